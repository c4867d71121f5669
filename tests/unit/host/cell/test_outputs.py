"""What is published of a cell's output, with nothing but the sockets left out."""

import re
from types import SimpleNamespace

import pytest

from cellblock.host.audit.recorder import Audit
from cellblock.host.cell import outputs
from cellblock.host.cell.output_log import OutputLog
from cellblock.host.cell.outputs import Outputs
from cellblock.host.cell.quota import Quota
from cellblock.host.cell.status import Views
from cellblock.host.cell.transcript import BY_HOST
from cellblock.wire import messages


class Publisher:
    def __init__(self):
        self.published, self.under, self.by_host = [], [], []

    def publish(self, kind, content, parent, *, metadata=None):
        self.by_host += [kind] * (metadata == BY_HOST)
        self.published.append((kind, content))
        self.under.append((parent, kind))


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


def test_markup_counts_as_what_was_to_be_sanitised_whatever_is_left_of_it(out):
    out._quota = Quota({"stdout": 100, "stderr": 100, "display": 5_000})
    hidden = {"text/html": f"<style>{'a{}' * 500}</style>"}
    for _ in range(9):
        out.show(messages.Display(data=hidden))
    assert len(out._publisher.published) == 3  # of 9


@pytest.fixture
def begin(out):
    """Begin the cell of this number; its request is its text."""

    def begun(number, *, sent=True):
        request = SimpleNamespace(store_history=True, cell="", deleted=())
        cell = SimpleNamespace(request=request, number=number, count=number, failed=False)
        out.begin(f"cell {number}", cell)
        if sent:
            out.on_sent()
        return cell

    return begun


def shows_everything(out, number):
    """Have the guest show one of each under the cell of this number; return where it stands."""
    del out._publisher.under[:]
    text = {"text/plain": "forged"}
    for message in (
        messages.Stream(name="stdout", text="forged", cell=number),
        messages.Display(data=text, cell=number),
        messages.Error(ename="E", evalue="forged", traceback=["forged"]),
        messages.Clear(wait=False),
    ):
        out.show(message)
    out._settle()
    return out._publisher.under


@pytest.mark.parametrize("number", [0, 2, 3])
def test_nothing_of_a_guests_stands_under_a_cell_that_was_refused(out, begin, number):
    begin(1)
    refused = begin(2, sent=False)  # it waits for an answer, perhaps
    refused.error = None  # what calls it would say that the refused cell raised something
    assert {where for where, _ in shows_everything(out, number)} == {"cell 1"}
    out.end()
    assert {where for where, _ in shows_everything(out, number)} == {"cell 1"}


def test_what_a_task_shows_stands_under_its_cell_until_no_copy_of_its_guest_is_left(out, begin):
    begin(1)
    begin(2).error = lambda _: None
    assert {*shows_everything(out, 1)} >= {("cell 1", "stream"), ("cell 1", "display_data")}
    out.on_new_guest()
    assert {where for where, _ in shows_everything(out, 1)} == {"cell 2"}


def test_a_subshells_code_shows_nothing_under_the_cell_of_a_guest_that_is_gone(out, begin):
    begin(1)
    beside = out.beside()
    beside.begin("comm message")
    assert {*shows_everything(beside, 1)} >= {("cell 1", "stream"), ("cell 1", "display_data")}
    out.on_new_guest()
    assert {where for where, _ in shows_everything(beside, 1)} == {"comm message"}


@pytest.fixture
def narrow(tmp_path, monkeypatch):
    """Return outputs of which each cell may show 8,000 bytes of stdout."""
    views = Views()
    caps = {"stdout": 8_000, "stderr": 8_000, "display": 8_000}
    monkeypatch.setattr(views, "quota", lambda: Quota(caps))
    return Outputs(Publisher(), views, FlowControl(), OutputLog(tmp_path / "kept", 0), Audit())


NOTE = re.compile(r"(?m)^\[cellblock left out ([\d,]+) bytes of stdout here: .*\]\n")


@pytest.mark.parametrize("flushed", [1, 7, 20, 3_000])
def test_a_gap_is_marked_where_it_is_and_no_line_stands_there_that_was_not_printed(narrow, flushed):
    text = "".join(f"amount {number}\n" for number in range(3_000))
    say(narrow, *(("stdout", text[at : at + flushed]) for at in range(0, len(text), flushed)))
    say(narrow, ("stderr", "a warning"))
    narrow.end()
    assert texts(narrow, "stderr") == "a warning"
    head, missing, tail = NOTE.split(texts(narrow, "stdout"))
    assert text.startswith(head.removesuffix("…\n"))
    assert text.endswith(tail.removeprefix("…"))
    printed = set(text.splitlines())
    shown = [*head.splitlines(), *tail.splitlines()]
    assert all(line in printed for line in shown if "…" not in line)
    kept = len(head.removesuffix("…\n")) + len(tail.removeprefix("…"))
    assert int(missing.replace(",", "")) == len(text) - kept


def test_a_line_that_is_cut_has_dots_where_it_is_cut(narrow):
    say(narrow, ("stdout", "x" * 100_000))
    narrow.end()
    head, _, tail = NOTE.split(texts(narrow, "stdout"))
    assert head.strip("x") == "…\n"
    assert tail.strip("x") == "…"


def test_one_byte_is_one_byte(narrow):
    say(narrow, ("stdout", "x" * 8_000), ("stdout", "x"))
    narrow.end()
    assert "left out 1 byte of stdout" in texts(narrow, "stdout")
