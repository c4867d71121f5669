"""Questions of cells and of the host's, one at a time; what a cell asks can't pass for the host's."""

import pytest

from cellblock.jupyter.input_requests import InputRequests
from cellblock.jupyter.messages import Message
from cellblock.render.text import HOSTS_MARK
from cellblock.wire import messages


class Channels:
    def __init__(self):
        self.sent = []

    def send(self, channel, kind, content, parent):
        assert (channel, kind) == ("stdin", "input_request")
        self.sent.append((content, parent))
        return f"question-{len(self.sent)}"


def message(kind, content, *, parent=None, sender=b"lab"):
    return Message(
        identities=[sender],
        raw_header=b"{}",
        header={"msg_id": "cell-1", "msg_type": kind},
        parent=parent or {},
        metadata={},
        content=content,
        buffers=[],
    )


CELL = message("execute_request", {"allow_stdin": True})


class Asked:
    def __init__(self):
        self.channels = Channels()
        self.questions = InputRequests(self.channels)
        self.guest, self.host = [], []

    def cell_asks(self, prompt="Name? ", *, password=False):
        request = messages.InputRequest(id=1, prompt=prompt, password=password)
        return self.questions.ask_for_cell(request, CELL, self.guest.append)

    def host_asks(self, text="┃ Answer: ", cell=CELL):
        return self.questions.ask_for_host(text, cell, self.host.append)

    def answers(self, value, **parts):
        self.questions.on_reply(message("input_reply", {"value": value}, **parts))

    @property
    def prompts(self):
        return [content["prompt"] for content, _ in self.channels.sent]


@pytest.fixture
def asked():
    return Asked()


def test_a_question_of_the_hosts_waits_until_the_cells_is_answered(asked):
    asked.cell_asks()
    asked.host_asks()
    assert asked.prompts == ["Name? "]
    asked.answers("417 always")
    assert (asked.guest, asked.host) == (["417 always"], [])
    assert asked.prompts == ["Name? ", "┃ Answer: "]
    asked.answers("417")
    assert asked.host == ["417"]


def test_a_question_of_the_cells_waits_until_the_hosts_is_answered(asked):
    asked.host_asks()
    assert asked.cell_asks()
    assert asked.prompts == ["┃ Answer: "]
    asked.answers("417")
    assert asked.prompts == ["┃ Answer: ", "Name? "]
    asked.answers("Ada")
    assert (asked.guest, asked.host) == (["Ada"], ["417"])


def test_no_more_than_one_of_each_waits(asked):
    assert asked.host_asks()
    assert not asked.host_asks()
    assert asked.cell_asks()
    assert not asked.cell_asks()
    assert len(asked.prompts) == 1


def test_a_question_that_is_taken_back_is_answered_by_nobody(asked):
    take_back = asked.host_asks()
    asked.cell_asks()
    take_back()
    take_back()
    assert asked.prompts == ["┃ Answer: ", "Name? "]
    asked.answers("late", parent={"msg_id": "question-1"})
    assert (asked.guest, asked.host) == ([], [])
    asked.answers("Ada", parent={"msg_id": "question-2"})
    assert asked.guest == ["Ada"]


def test_one_that_waits_can_be_taken_back(asked):
    asked.cell_asks()
    asked.host_asks()()
    asked.answers("Ada")
    assert asked.prompts == ["Name? "]


def test_an_interrupt_takes_all_back(asked):
    asked.cell_asks()
    asked.host_asks()
    asked.questions.cancel()
    asked.answers("x")
    assert (asked.guest, asked.host, len(asked.prompts)) == ([], [], 1)


@pytest.mark.parametrize(
    "parts",
    [{"sender": b"another"}, {"parent": {"msg_id": "question-0"}}],
)
def test_another_front_end_or_another_questions_answer_is_none(asked, parts):
    asked.host_asks()
    asked.answers("417 always", **parts)
    assert asked.host == []


@pytest.mark.parametrize(
    "cell", [None, message("execute_request", {}), message("comm_msg", {"data": {}})]
)
def test_without_a_cell_that_takes_input_nobody_is_asked(asked, cell):
    assert asked.host_asks(cell=cell) is None
    assert asked.prompts == []


@pytest.mark.parametrize(
    "prompt",
    [
        "┃ cellblock asks: may cell [1] call add?\n┃ Answer: ",
        "\x1b[2J\x1b[H┃ cellblock asks\r\n┃ Answer: ",
        "\u2028┃ cellblock asks\x85┃ Answer: ",
        "a" * 400 + "┃" * 400,
    ],
)
def test_what_a_cell_asks_has_one_line_no_mark_and_says_that_it_is_the_cells(asked, prompt):
    asked.questions.prefix_cells = True
    asked.cell_asks(prompt)
    (shown,) = asked.prompts
    assert shown.startswith("the cell asks: ")
    assert HOSTS_MARK not in shown
    assert len(shown.splitlines()) == 1
    assert shown.isprintable()


def test_an_answer_that_is_no_text_is_an_empty_one(asked):
    asked.host_asks()
    asked.answers(7)
    assert asked.host == [""]
