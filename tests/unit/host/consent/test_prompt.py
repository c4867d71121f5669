"""What counts as an answer."""

import pytest

from cellblock.host.consent import approver

ALL = ("once", "session", "always")
LASTING = ("session", "always")


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("417", "once"),
        (" 417 \n", "once"),
        ("417 once", "once"),
        ("Once 417", "once"),
        ("417, yes", "once"),
        ("417 this once", "once"),
        ("417 session", "session"),
        ("s 417", "session"),
        ("417 this session", "session"),
        ("ALWAYS 417", "always"),
        ("417 a", "always"),
    ],
)
def test_the_code_and_a_word_allow(text, means):
    assert approver.read_answer(text, "417", ALL) == means


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "n 417",
        "no 417",
        "417 session always",
        "417 always no",
        "417 please",
        "4170",
        "417 " + "yes " * 50,
        "\x04",
        "４１７",  # noqa: RUF001
        "417\u200b",
    ],
)
def test_everything_else_is_no(text):
    assert approver.read_answer(text, "417", ALL) == "no"


@pytest.mark.parametrize(
    "text", ["once", "yes", "always", "416", "418 always", "417 418", "416 417"]
)
def test_without_the_code_nothing_is_allowed_and_it_is_asked_again(text):
    assert approver.read_answer(text, "417", ALL) == "again"


@pytest.mark.parametrize("text", ["417", "417 once"])
def test_a_word_that_is_not_offered_allows_nothing(text):
    assert approver.read_answer(text, "417", LASTING) == "again"
    assert approver.read_answer("417 session", "417", LASTING) == "session"


def test_a_code_is_three_digits_and_another_each_time():
    codes = {approver.new_code() for _ in range(200)}
    assert len(codes) > 50
    assert all(len(one) == 3 and one.isdigit() and one[0] != "0" for one in codes)
