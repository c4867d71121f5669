"""What is published of a cell's output, with nothing but the sockets left out."""

import pytest

from cellblock.host.audit.recorder import Audit
from cellblock.host.cell import outputs
from cellblock.host.cell.output_log import OutputLog
from cellblock.host.cell.outputs import Outputs
from cellblock.host.cell.status import Views
from cellblock.wire import messages


class Publisher:
    def __init__(self):
        self.published = []

    def publish(self, kind, content, _parent):
        self.published.append((kind, content))


class FlowControl:
    def admits(self):
        return True

    def check(self):
        """Let it pass."""


@pytest.fixture
def out(tmp_path):
    return Outputs(Publisher(), Views(), FlowControl(), OutputLog(tmp_path / "kept", 0), Audit())


def texts(out, kind):
    published = out._publisher.published
    return "".join(c["text"] for k, c in published if k == "stream" and c["name"] == kind)


def say(out, *pieces):
    for name, text in pieces:
        out.show(messages.Stream(name=name, text=text))


@pytest.mark.parametrize("at", range(1, 5))
def test_a_colour_that_is_flushed_in_two_pieces_is_one(out, at):
    colour = "\x1b[31m"
    say(out, ("stdout", f"a{colour[:at]}"), ("stderr", "b"), ("stdout", f"{colour[at:]}c"))
    assert texts(out, "stdout") == "a\x1b[31mc"
    assert texts(out, "stderr") == "b"


def test_half_a_colour_at_the_end_of_a_cell_is_nothing_to_the_next(out):
    say(out, ("stdout", "a\x1b[3"))
    out.begin(None)
    say(out, ("stdout", "1m b"))
    assert texts(out, "stdout") == "a1m b"


def test_the_id_of_a_display_is_cleaned_once(out, monkeypatch):
    asked, real = [], outputs.gateway.clean_name
    monkeypatch.setattr(outputs.gateway, "clean_name", lambda n: asked.append(n) or real(n))
    for update in (False, True):
        out.show(messages.Display(data={"text/plain": "1"}, display_id="a\x00b", update=update))
    transient = {"display_id": real("a\x00b")}
    assert [c["transient"] for _, c in out._publisher.published] == [transient, transient]
    assert asked == ["a\x00b"] * 2
