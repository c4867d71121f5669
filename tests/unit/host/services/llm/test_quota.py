"""A session's budget for language models: never overspent, by no number of calls at once."""

from cellblock.host.services.llm.provider import LlmQuota


def ledger(calls=3, tokens=100):
    return LlmQuota(max_calls=calls, max_tokens=tokens)


def test_what_is_under_way_counts_as_all_that_it_may_take():
    account = ledger()
    assert account.reserve(1, 60) == ""
    assert account.reserve(2, 41) == (
        "it may take 41 tokens, too many (llm.max_tokens):"
        " 2 of 3 calls and 40 of 100 tokens are left"
    )
    assert account.reserve(3, 40) == ""
    assert account.spent() == (2, 3, 100, 100)


def test_what_a_call_did_not_take_is_there_again_and_all_where_nobody_tells_is_not():
    account = ledger()
    account.reserve(1, 90)
    assert account.settle(1, 10) == 10
    assert account.reserve(2, 90) == ""
    assert account.settle(2) == 90
    for number in range(3, 53):  # what is refused costs nothing
        assert account.reserve(number, 1).startswith("it may take 1 tokens, too many")
    assert account.spent() == (2, 3, 100, 100)


def test_a_call_is_settled_once():
    account = ledger()
    account.reserve(1, 50)
    assert (account.settle(1, 20), account.settle(1, 20), account.settle(7)) == (20, 0, 0)
    assert account.spent().tokens == 20


def test_an_endpoint_that_takes_more_than_it_may_ends_the_budget():
    account = ledger()
    account.reserve(1, 50)
    account.settle(1, 5_000)
    assert account.reserve(2, 1) == (
        "it may take 1 tokens, too many (llm.max_tokens): 2 of 3 calls and 0 of 100 tokens are left"
    )


def test_calls_are_counted_whatever_came_of_them():
    account = ledger(calls=2)
    for number in (1, 2):
        account.reserve(number, 1)
        account.settle(number, 0)
    assert account.reserve(3, 1) == (
        "the session's calls are spent (llm.max_calls): 0 of 2 calls and 100 of 100 tokens are left"
    )
    assert account.spent().calls == 2
