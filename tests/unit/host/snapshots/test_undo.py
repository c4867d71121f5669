"""``%undo``: which copy it goes to, and what it runs again there."""

import time

from cellblock.host.session.types import ExecuteRequest, Restored, Stopped
from cellblock.host.state import core
from support.stepwise import INEXACT


def undo(sim, line="%undo"):
    sim.count += 1
    sim.run(ExecuteRequest(code=line, execution_count=sim.count))
    return sim.outcomes[-1] if sim.outcomes else None


def undone(sim):
    return [stopped.undone for kind, stopped in sim.notes if kind == "undone"]


def test_undo_goes_to_the_copy_before_and_the_guest_ends_and_so_on_from_there(sim):
    first, second, _ = sim.guest.copies[0], sim.kept(), sim.kept()
    guest = sim.guest
    sim.outcomes.clear()
    undo(sim)
    assert guest.gone()
    assert sim.takes_over(second).inputs == [(2, f"# undone\n{INEXACT}"), (3, "%undo")]
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    sim.stands(sim.guest.copy())
    undo(sim)
    sim.takes_over(first)
    assert undone(sim) == [(2,), (1,)]


def test_the_first_cell_can_be_undone_though_it_came_at_once(stepped):
    sim = stepped(at_once=True)
    sim.cell()
    first = sim.guest.copies[0]
    sim.stands(first)
    undo(sim)
    sim.takes_over(first)
    assert undone(sim) == [(1,)]


def test_undo_over_cells_that_share_a_copy_runs_those_before_again(sim):
    copy = sim.guest.copy()
    for code in ("a = 1", "a = 2", "a = 3"):
        sim.cell(code)
    undo(sim, "%undo 2")
    resume = sim.takes_over(copy)
    assert [count for count, _ in resume.inputs] == [2, 3, 4]
    sim.again("a = 1")
    assert undone(sim) == [(2, 3)]


def test_cells_that_only_show_what_the_host_has_are_no_steps(sim):
    first = sim.guest.copies[0]
    sim.kept()
    sim.cell("%policy")
    sim.cell("%policy\n")
    undo(sim)
    sim.takes_over(first)
    assert undone(sim) == [(1, 2, 3)]


def test_silent_cells_and_those_without_history_are_no_steps(sim):
    first = sim.guest.copies[0]
    sim.kept()
    sim.kept(silent=True, store_history=False)
    sim.kept(store_history=False)
    undo(sim)
    sim.takes_over(first)
    assert undone(sim) == [(1,)]


def test_blanks_without_end_behind_an_undo_that_is_not_alone_hold_nobody_up(sim):
    began = time.process_time()
    undo(sim, f"%undo{' ' * 100_000}\nx = 1")
    # Where it is quadratic, this takes a minute.
    assert time.process_time() - began < 5


def test_more_steps_than_there_are_change_nothing(sim):
    sim.kept()
    outcome = undo(sim, "%undo 2")
    assert outcome.error.evalue == "%undo 2: only the last cell can be undone"
    assert len(sim.guests) == 1


def test_undo_to_a_copy_that_fails_goes_to_the_one_before_and_runs_what_is_missing_again(sim):
    first, second = sim.guest.copies[0], sim.kept()
    sim.kept()
    undo(sim)
    sim.end(second)
    sim.takes_over(first)
    sim.again(INEXACT)
    (stopped,) = [s for kind, s in sim.notes if kind == "undone"]
    assert (stopped.undone, stopped.restored) == ((2,), Restored(again=(1,)))


def test_undo_when_every_copy_has_ended_says_that_nothing_is_restored(sim):
    copies = [sim.guest.copies[0], sim.kept()]
    for copy in copies:
        copy.sock.close()  # the host has not looked yet
    undo(sim)
    sim.reactor.turn()
    assert [s for kind, s in sim.notes if kind == "undone"] == [Stopped("undo", undone=(1,))]
    assert len(sim.guests) == 2


def test_an_undo_of_nothing_puts_no_snapshot_off(stepped):
    sim = stepped()
    sim.reaped(9)
    assert undo(sim).error.ename == "UndoRefused"
    sim.reactor.advance(core.IDLE)
    assert sim.guest.copy().maker is sim.guest
