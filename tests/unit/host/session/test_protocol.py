"""What a guest may say when: each check by itself, beside what an honest guest says."""

import pytest

from cellblock.host.session.requests import (
    MAX_QUESTIONS,
    InFlight,
    RequestState,
    check_began,
    check_question,
    check_reply,
)
from cellblock.wire import messages

CELL = messages.Execute(id=5, source="", raw="", execution_count=1, allow_stdin=True)
SILENT = messages.Execute(id=5, source="", raw="", execution_count=1)
VALUED = messages.Execute(id=5, source="", raw="", execution_count=1, value=True)
QUERY = messages.Complete(id=5, code="", cursor=0)


def flight(message=CELL, state=RequestState.running, questions=0):
    made = InFlight(message, print)
    made.state, made.questions = state, questions
    return made


SENT, ENDING = RequestState.sent, RequestState.ending
BEGAN, DONE, ASKED = (
    messages.Began(id=5),
    messages.Done(id=5),
    messages.InputRequest(id=5, prompt="?"),
)
COMPLETED = messages.Completed(id=5, matches=[], start=0, end=0)
NOT_TOLD = "it claims to have begun what it was not told to"


@pytest.mark.parametrize(
    ("message", "request_", "unread", "breach"),
    [
        (BEGAN, flight(state=SENT), 0, ""),
        (BEGAN, None, 0, NOT_TOLD),
        (messages.Began(id=4), flight(state=SENT), 0, NOT_TOLD),
        (BEGAN, flight(), 0, NOT_TOLD),
        (BEGAN, flight(QUERY, SENT), 0, "it claims to have begun a query"),
        (BEGAN, flight(state=SENT), 1, "it claims to have begun what it has not read"),
    ],
)
def test_what_has_begun_was_sent_and_read(message, request_, unread, breach):
    assert check_began(message, request_, unread) == breach


@pytest.mark.parametrize(
    ("message", "request_", "breach"),
    [
        (ASKED, flight(), ""),
        (ASKED, flight(questions=MAX_QUESTIONS), ""),
        (ASKED, flight(questions=MAX_QUESTIONS + 1), "a storm of questions"),
        (ASKED, None, "a question of no cell"),
        (ASKED, flight(state=SENT), "a question of no cell"),
        (messages.InputRequest(id=4, prompt="?"), flight(), "a question of no cell"),
        (ASKED, flight(SILENT), "a question where none may be asked"),
        (ASKED, flight(QUERY), "a question where none may be asked"),
    ],
)
def test_a_question_is_of_a_cell_that_may_ask(message, request_, breach):
    assert check_question(message, request_) == breach


@pytest.mark.parametrize(
    ("message", "request_", "breach"),
    [
        (DONE, flight(), ""),
        (COMPLETED, flight(QUERY, SENT), ""),
        (DONE, None, "a reply to no request"),
        (messages.Done(id=4), flight(), "a reply to no request"),
        (DONE, flight(state=ENDING), "a reply to no request"),
        (COMPLETED, flight(), "a reply of another kind"),
        (DONE, flight(QUERY, SENT), "a reply of another kind"),
        (DONE, flight(state=SENT), "an end without a beginning"),
        (messages.Done(id=5, value=b"\x01"), flight(), "a value unasked for"),
        (messages.Done(id=5, value=b"\x01"), flight(VALUED), ""),
    ],
)
def test_a_reply_is_one_to_what_was_asked(message, request_, breach):
    assert check_reply(message, request_) == breach
