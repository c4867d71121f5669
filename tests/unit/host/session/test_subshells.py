"""Cells of subshells beside the main shell's: when they begin, whose end is whose, what waits."""

import signal

import pytest

from cellblock.host.session.types import ExecuteRequest, Restored, Stopped
from cellblock.host.state.core import IDLE
from cellblock.wire import messages


class Beside:
    """Runs cells of subshells in a simulated session, and keeps what became of each by its code."""

    def __init__(self, sim):
        self.sim, self.ended = sim, {}

    def runs(self, code, subshell=0):
        cell = ExecuteRequest(code=code, execution_count=len(self.ended) + 1, subshell=subshell)
        self.ended[code] = None
        self.sim.run(cell, lambda outcome: self.ended.update({code: outcome}))

    def sent(self):
        self.sim.reactor.advance(0.01)
        found = [one for one in self.sim.guest.read() if not isinstance(one, messages.Subshells)]
        self.sim.reactor.turn()
        return found

    def begun(self, code, subshell=0):
        """Run a cell, and have it taken up; return the request."""
        self.runs(code, subshell)
        (request,) = self.sent()
        assert (request.raw, request.subshell) == (code, subshell)
        self.says(messages.Began(id=request.id))
        return request

    def says(self, *said):
        self.sim.guest.send(*said)
        self.sim.reactor.turn()

    def done(self, request):
        self.says(messages.Done(id=request.id))

    def keeps(self, code):
        """Run a cell to its end, and have the copy that holds what it did stand; return that."""
        self.done(self.begun(code))
        self.sim.reactor.advance(IDLE)
        copy = self.sim.guest.copy()
        self.sim.stands(copy)
        return copy

    @property
    def stops(self):
        return {code: one and one.stopped for code, one in self.ended.items()}


@pytest.fixture
def beside(simulate):
    return Beside(simulate())


@pytest.fixture
def kept(stepwise):
    return Beside(stepwise(undo_depth=5))


def test_a_subshells_cell_runs_and_ends_while_the_main_shells_goes_on(beside):
    main, other = beside.begun("1"), beside.begun("2", 7)
    beside.done(other)
    assert beside.ended["2"].status == "ok"
    assert beside.ended["1"] is None
    beside.done(main)
    assert beside.ended["1"].status == "ok"


def test_a_cell_is_judged_in_a_subshell_as_elsewhere(beside):
    beside.runs("import os", 7)
    assert beside.ended["import os"].status == "denied"
    assert beside.sent() == []


def test_what_a_subshell_exceeds_ends_its_guest_and_all_that_ran_there_are_told_why(beside):
    beside.begun("1", 7)
    beside.sim.reactor.advance(5)
    beside.begun("2")
    beside.sim.reactor.advance(5.1)
    assert beside.sim.signals() == [signal.SIGKILL]
    assert beside.stops == {"1": Stopped("timeout"), "2": Stopped("timeout", beside=True)}


def test_short_cells_beside_a_long_one_do_not_make_it_count_anew(beside, monkeypatch):
    """Else a subshell's cell could compute, and fill the scratch folder, without end."""
    begun, monitor = [], beside.sim.session.requests._monitor
    begin = monitor.begin
    monkeypatch.setattr(monitor, "begin", lambda pid: begun.append(pid) or begin(pid))
    long = beside.begun("1", 7)
    beside.sim.reactor.advance(2)
    for code in ("2", "3"):
        short = beside.begun(code)
        beside.sim.reactor.advance(1)
        beside.done(short)
        assert beside.ended[code].usage.wall_seconds == pytest.approx(1, abs=0.1)
    assert len(begun) == 1
    short = beside.begun("4")
    beside.sim.reactor.advance(1)
    beside.done(long)
    assert beside.ended["1"].usage.wall_seconds == pytest.approx(5, abs=0.2)
    beside.done(short)
    assert beside.ended["4"].usage.wall_seconds == pytest.approx(1, abs=0.1)
    beside.begun("5")
    assert len(begun) == 2


def test_what_cells_take_side_by_side_is_charged_to_the_one_that_began_first(beside):
    beside.begun("1", 7)
    beside.begun("2")
    beside.sim.session.requests.on_excess("cpu", urgent=False)
    assert beside.stops == {"1": Stopped("cpu"), "2": Stopped("cpu", beside=True)}


def test_when_the_main_shells_cell_is_killed_what_ran_beside_it_is_told_why(beside):
    beside.begun("1")
    beside.begun("2", 7)
    beside.sim.session.requests.on_excess("memory", urgent=True)
    assert beside.stops == {"1": Stopped("memory"), "2": Stopped("memory", beside=True)}


def test_an_interrupt_is_for_the_main_shell(beside):
    main, other = beside.begun("1"), beside.begun("2", 7)
    beside.sim.session.interrupt()
    assert beside.sim.signals() == [signal.SIGINT]
    beside.done(main)
    assert beside.ended["2"] is None
    beside.done(other)
    assert beside.ended["2"].status == "ok"


def test_what_had_not_begun_is_sent_to_the_next_guest(beside):
    beside.begun("1")
    beside.runs("2", 7)
    beside.sent()
    beside.sim.session.requests.on_excess("memory", urgent=True)
    (request,) = beside.sent()
    assert (request.raw, request.subshell) == ("2", 7)


def test_a_guest_is_told_its_subshells_and_so_is_the_next(beside):
    beside.sim.session.have_subshells((7, 8))
    beside.sim.reactor.turn()
    assert beside.sim.guest.read() == [messages.Subshells(numbers=(7, 8))]
    beside.begun("1")
    beside.sim.session.requests.on_excess("memory", urgent=True)
    beside.sim.reactor.advance(0.01)
    assert beside.sim.guest.read() == [messages.Subshells(numbers=(7, 8))]


# --- what a guest says ------------------------------------------------------------------------


LIES = {
    "it ends what has not begun": lambda _main, other: messages.Done(id=other.id),
    "it ends what there is not": lambda _main, other: messages.Done(id=other.id + 1),
    "it begins anew": lambda main, _other: messages.Began(id=main.id),
    "its subshell asks": lambda _main, other: messages.InputRequest(id=other.id, prompt=""),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_guest_that_lies_about_a_subshell_is_ended(beside, lie):
    main = beside.begun("1")
    beside.runs("2", 7)
    (other,) = beside.sent()
    beside.says(lie(main, other))
    assert beside.sim.signals() == [signal.SIGKILL]
    assert beside.stops["1"].why == "violation"


def test_a_guest_can_not_claim_to_have_begun_what_it_has_not_read(beside):
    main = beside.begun("1")
    beside.runs("2", 7)
    beside.says(messages.Began(id=main.id + 1))
    assert beside.stops["1"].why == "violation"


def test_nothing_is_sent_behind_a_request_that_is_not_read(beside):
    beside.runs("1")
    beside.runs("2", 7)
    assert [one.raw for one in beside.sim.guest.read()] == ["1"]
    beside.sim.reactor.advance(0.01)
    assert [one.raw for one in beside.sim.guest.read()] == ["2"]


# --- snapshots, and what needs the guest for itself ---------------------------------------------


def test_no_snapshot_is_taken_while_a_subshell_runs_and_one_when_it_ends(kept):
    other = kept.begun("2", 7)
    kept.done(kept.begun("import math"))
    assert kept.ended["import math"].status == "ok"
    kept.sim.reactor.advance(1)
    known = len(kept.sim.guest.copies)
    assert kept.sim.guest.copy() is kept.sim.guest.copies[known - 1]
    kept.done(other)
    kept.sim.guest.copy()
    assert len(kept.sim.guest.copies) == known + 1


def test_what_ended_beside_a_cell_that_kills_the_guest_is_named_and_not_run_again(kept):
    kept.begun("2", 7)
    kept.done(kept.begun("x = 1"))
    kept.sim.session.requests.on_excess("memory", urgent=True)
    copy = kept.sim.guests[0].copies[-1]
    kept.sim.takes_over(copy)
    assert kept.stops["2"].restored == Restored(missed=(2,))


def test_a_subshells_cell_waits_while_a_copy_is_made(kept):
    kept.done(kept.begun("x = (1).bit_length()"))
    kept.sim.reactor.advance(IDLE)
    copy = kept.sim.guest.copy()
    kept.runs("2", 7)
    assert kept.sent() == []
    kept.sim.stands(copy)
    assert [one.raw for one in kept.sent()] == ["2"]


def test_what_waited_begins_after_the_snapshot_of_the_cell_that_ended_meanwhile(kept):
    kept.done(kept.begun("x = (1).bit_length()"))
    kept.sim.reactor.advance(IDLE)
    copy = kept.sim.guest.copy()
    kept.runs("y = (1).bit_length()")
    kept.runs("2", 7)
    (main,) = kept.sent()
    kept.sim.stands(copy)
    known = len(kept.sim.guest.copies)
    kept.sim.guest.send(messages.Began(id=main.id), messages.Done(id=main.id))
    kept.sim.reactor.turn()
    assert kept.ended["y = (1).bit_length()"].status == "ok"
    kept.sim.guest.copy()
    assert len(kept.sim.guest.copies) == known + 1
    assert kept.sent() == []
    kept.sim.stands(kept.sim.guest.copy())
    assert [one.raw for one in kept.sent()] == ["2"]


def test_a_cell_of_a_subshell_that_shows_what_a_page_updates_is_kept_and_not_run_again(kept):
    kept.keeps("x = 1")
    known = len(kept.sim.guest.copies)
    request = kept.begun("2", 7)
    kept.says(messages.Display(data={"text/plain": "1"}, display_id="one", subshell=7))
    kept.says(messages.Done(id=request.id, repeatable=True))
    kept.sim.guest.copy()
    assert len(kept.sim.guest.copies) == known + 1


def test_undo_waits_until_no_subshell_runs_anything_and_none_begins(kept):
    kept.keeps("x = 1")
    other = kept.begun("2", 7)
    kept.runs("%undo")
    kept.runs("3", 8)
    assert kept.sent() == []
    assert signal.SIGKILL not in kept.sim.signals()
    kept.done(other)
    kept.sim.reactor.advance(0.03)
    assert kept.ended["2"].status == "ok"
    assert signal.SIGKILL in kept.sim.signals()
    assert kept.ended["3"] is None


def test_undo_steps_over_the_subshells_cell_that_it_waited_for(kept):
    copy = kept.keeps("x = 1")
    other = kept.begun("x = 3", 7)
    kept.runs("%undo")
    kept.done(other)
    kept.sim.reactor.advance(0.03)
    kept.sim.takes_over(copy)
    assert [stopped.undone for kind, stopped in kept.sim.notes if kind == "undone"] == [(2,)]


def test_undo_that_waits_for_a_subshell_can_be_interrupted(kept):
    kept.keeps("x = 1")
    kept.begun("2", 7)
    kept.runs("%undo")
    kept.sim.session.interrupt()
    error = "%undo 1: it waited for subshells, and was interrupted"
    assert kept.ended["%undo"].error.evalue == error
    assert signal.SIGINT not in kept.sim.signals()
