"""Between cells and a worker: who is asked, what it is told, and what is entered for it."""

from dataclasses import asdict, replace

import msgspec
import pytest

from cellblock.host.services.llm import LlmProvider
from cellblock.host.services.tools.calls import Answer, Call
from cellblock.policy.model import Llm as Section
from support.simulator import Reactor

SECTION = Section(
    base_url="http://127.0.0.1:1/v1", models=("small",), max_tokens_per_call=100, max_calls=10
)
#: What the shortest call is entered with: a byte, what it may take beyond that, and the answer.
LEAST = 1 + 16 + 64 + 100


class Worker:
    """Stands where the workshop does; the test answers."""

    def __init__(self):
        self.calls, self.cancelled = [], []

    def begin(self, call):
        self.calls.append(call)

    def cancel(self, number):
        self.cancelled.append(number)


class Counter:
    """A provider over a worker that the test is, and what cells were answered."""

    def __init__(self, tokens=1_000):
        self.llm = LlmProvider(Reactor(), replace(SECTION, max_tokens=tokens), max_bytes=1_000)
        self.worker = self.llm.worker = Worker()
        self.answers = {}

    def ask(self, number, **given):
        def answer(said):
            assert number not in self.answers
            self.answers[number] = said

        self.llm.begin(self.call(number, answer, **given))

    def call(self, number, answer, **given):
        raw = msgspec.Raw(msgspec.msgpack.encode(([], {"prompt": "x"} | given)))
        return Call(number, self.llm.tools[0], raw, answer)

    def reply(self, **said):
        self.worker.calls.pop(0).answer(Answer(msgspec.msgpack.encode(said)))


@pytest.fixture
def counter():
    return Counter()


def test_a_call_goes_on_with_what_the_policy_says_and_its_answer_comes_back(counter):
    counter.ask(1)
    (call,) = counter.worker.calls
    (llm, max_bytes, wanted), named = msgspec.msgpack.decode(call.arguments)
    assert named == {}
    assert llm == asdict(counter.llm._llm) | {"models": ["small"]}
    assert max_bytes == 1_000
    assert wanted["messages"] == [{"role": "user", "content": "x"}]
    counter.reply(value={"text": "ok"}, tokens=12)
    assert counter.answers[1] == Answer(msgspec.msgpack.encode({"text": "ok"}), tokens=12)
    assert counter.llm.spent() == (1, 10, 12, 1_000)


def test_what_is_wrong_or_too_dear_reaches_no_worker(counter):
    counter.ask(1, max_tokens=-1)
    counter.ask(2, prompt="x" * 900)
    assert counter.answers[1].kind == "ValidationError"
    assert counter.answers[2] == Answer(
        kind="BudgetSpent",
        message="it may take 1,080 tokens, too many (llm.max_tokens):"
        " 10 of 10 calls and 1,000 of 1,000 tokens are left",
    )
    assert counter.worker.calls == []
    assert counter.llm.spent() == (0, 10, 0, 1_000)


def test_calls_at_once_share_what_is_left(counter):
    for number in range(100):
        counter.ask(number)
    admitted = 1_000 // LEAST
    assert len(counter.worker.calls) == admitted
    assert {said.kind for said in counter.answers.values()} == {"BudgetSpent"}
    assert len(counter.answers) == 100 - admitted


@pytest.mark.parametrize(("tokens", "entered"), [(0, 0), (7, 7), (None, LEAST)])
def test_a_failure_costs_what_is_known_of_it_or_all_that_it_might(counter, tokens, entered):
    counter.ask(1)
    counter.reply(kind="RateLimitError", message="busy", tokens=tokens)
    assert counter.answers[1] == Answer(kind="RateLimitError", message="busy", tokens=entered)
    assert counter.llm.spent().tokens == entered
    # So does a call whose time ran out, or whose worker is lost.
    counter.ask(2)
    counter.worker.calls.pop().answer(Answer(kind="TimeoutError", message="too long"))
    assert counter.answers[2] == Answer(kind="TimeoutError", message="too long", tokens=LEAST)
    assert counter.llm.spent().tokens == entered + LEAST


def test_a_call_that_is_withdrawn_again_and_again_spends_the_budget(counter):
    for number in range(100):
        counter.ask(number)
        counter.llm.worker.cancel(number)
    admitted = 1_000 // LEAST
    assert len(counter.worker.calls) == admitted
    assert counter.llm.spent().tokens == admitted * LEAST
    assert counter.worker.cancelled == list(range(100))


def test_what_a_policy_does_not_grant_is_known_before_anybody_is_asked(counter):
    answer = counter.llm.precheck(counter.call(1, print, model="other"))
    why = "model: 'other' is not allowed; the policy names small"
    assert (answer.kind, answer.message) == ("ValidationError", why)
    assert counter.llm.precheck(counter.call(1, print)) is None


def test_an_endpoint_that_takes_more_than_it_may_ends_the_budget(counter):
    counter.ask(1)
    counter.reply(value={"text": "ok"}, tokens=5_000)
    counter.ask(2)
    assert counter.answers[2].message == (
        f"it may take {LEAST} tokens, too many (llm.max_tokens):"
        " 9 of 10 calls and 0 of 1,000 tokens are left"
    )


def test_calls_are_counted_whatever_came_of_them_and_what_is_refused_costs_nothing(counter):
    for number in range(20):
        counter.ask(number)
        if counter.worker.calls:
            counter.reply(kind="RateLimitError", message="busy", tokens=0)
    assert counter.answers[10].message == (
        "the session's calls are spent (llm.max_calls):"
        " 0 of 10 calls and 1,000 of 1,000 tokens are left"
    )
    assert counter.llm.spent() == (10, 10, 0, 1_000)
