"""Snapshots: when they are taken, what waits for them, how many are kept, what they may cost."""

import errno
import signal

import pytest

from cellblock.host.limits.processes import PAGE
from cellblock.host.snapshots import driver, memory
from cellblock.host.snapshots.memory import NO_SNAPSHOT
from cellblock.host.state import core
from cellblock.wire import messages
from support.stepwise import EXACT


def asked_for(sim):
    """Return how many copies the guest was asked for."""
    sim.guest.copy()
    return len(sim.guest.copies)


# --- standing -------------------------------------------------------------------------------------


def test_a_copy_is_asked_for_in_idle_time_only(sim):
    due = messages.AllowFork(id=1, pid=sim.guest.pid)
    assert [m for m in sim.told if isinstance(m, messages.AllowFork)] == [due]
    sim.kept()
    sim.end(sim.guest.copy())
    sim.reactor.advance(core.IDLE / 2)
    assert asked_for(sim) == 2
    sim.reactor.advance(core.IDLE)
    assert asked_for(sim) == 3


def test_the_zygote_knows_each_copy_and_twin_before_another_cell_runs(sim):
    copy = sim.kept()
    sim.reaped(9)
    twin = sim.leaves_twin(copy)
    sim.takes_over(copy)
    protected = [m.pid for m in sim.told if isinstance(m, messages.Protect)]
    assert protected == [sim.guests[0].copies[0].pid, copy.pid, twin.pid]


def test_a_cell_that_waits_for_its_snapshot_is_over_no_limit_any_more(sim):
    assert sim.cell(seconds=0.2) is None
    copy = sim.guest.copy()
    sim.session.requests.on_excess("cpu", urgent=False)
    sim.reactor.advance(3)
    assert not {signal.SIGINT, signal.SIGKILL} & {number for _, number in sim.kills}
    sim.stands(copy)
    assert sim.outcomes[-1].status == "ok"


def test_a_long_cell_is_answered_when_it_is_certain_that_no_copy_will_stand(sim):
    assert sim.cell(seconds=0.2) is None
    sim.reactor.advance(core.PATIENCE)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    assert sim.guest.copy().gone()
    claimed = [m for m in sim.told if isinstance(m, messages.KeepOnly)]
    assert claimed[-1].pids == (sim.guest.pid, sim.guest.copies[0].pid)
    assert sim.cell(EXACT) is None  # what is before it can't be run again, so it is kept at once
    sim.stands(sim.guest.copy())
    assert [outcome.status for outcome in sim.outcomes] == ["ok", "ok"]


def test_a_guest_that_says_it_can_make_none_is_believed_and_the_user_told_once(sim):
    for _ in range(3):
        assert sim.cell(seconds=0.2) is None
        asked = sim.guest.copy()
        sim.hears(messages.SnapshotFailed(id=asked.number, errno=errno.ENOMEM))
        assert asked.gone()
    assert [outcome.status for outcome in sim.outcomes] == ["ok"] * 3
    assert sim.notices() == [NO_SNAPSHOT.format("one could not be made (Cannot allocate memory)")]


def test_a_copy_that_the_gate_refused_is_asked_for_once_more_before_the_user_is_told(sim):
    """It took so long that it was taken back: on a busy machine the next one stands."""
    for _ in range(2):
        sim.cell()
        asked = sim.guest.copy()
        sim.reactor.advance(core.PATIENCE)
        sim.hears(messages.SnapshotFailed(id=asked.number, errno=errno.EPERM))
        sim.reactor.advance(core.IDLE)
        assert sim.guest.copy().number > asked.number
        sim.stands(sim.guest.copy())
    assert sim.notices() == []

    sim.cell()
    for _ in range(2):
        assert sim.notices() == []
        sim.hears(messages.SnapshotFailed(id=sim.guest.copy().number, errno=errno.EPERM))
        sim.reactor.advance(core.IDLE)
    assert sim.notices() == [NO_SNAPSHOT.format("one could not be made (Operation not permitted)")]


def test_the_user_is_told_also_where_the_end_of_the_copy_is_seen_before_the_guests_word(sim):
    assert sim.cell(seconds=0.2) is None
    asked = sim.guest.copy()
    asked.close()
    sim.reactor.turn()
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    sim.hears(messages.SnapshotFailed(id=asked.number, errno=errno.ENOMEM))
    assert sim.notices() == [NO_SNAPSHOT.format("one could not be made (Cannot allocate memory)")]


def test_what_says_anything_but_that_it_stands_is_no_copy(sim):
    sim.cell()
    copy = sim.guest.copy()
    sim._standing = copy.pid
    sim.hears(messages.SnapshotReady(id=copy.number + 1), by=copy)
    assert copy.gone()


def test_a_copy_is_stopped_while_it_stands_and_set_going_to_take_over(sim):
    copy = sim.kept()
    assert (copy.pid, signal.SIGSTOP) in sim.kills
    sim.kills.clear()
    sim.reaped(9)
    assert set(sim.kills) == {(copy.pid, signal.SIGCONT)}


def test_copies_that_are_lost_while_they_stand_are_made_again_and_given_up_after_some(sim):
    for _ in range(core.MAX_LOSSES + 3):
        sim.end(sim.guest.copy())
        sim.reactor.advance(core.IDLE)
        copy = sim.guest.copy()
        if copy.sock.fileno() >= 0:
            sim.stands(copy)
    assert len(sim.guest.copies) == core.MAX_LOSSES + 1
    sim.kept()
    assert len(sim.guest.copies) == core.MAX_LOSSES + 2


# --- what is answered before it is kept -----------------------------------------------------------


def test_one_short_cell_is_answered_before_it_is_kept_and_the_next_when_that_one_is(sim):
    assert sim.cell().status == "ok"
    first = sim.guest.copy()
    assert sim.cell() is None
    sim.stands(first)
    assert [outcome.status for outcome in sim.outcomes] == ["ok", "ok"]


@pytest.mark.parametrize(("seconds", "unkept"), [(0.0, 100), (0.3, 3), (0.9, 1), (5.0, 0)])
def test_cells_that_come_out_the_same_are_answered_at_once_and_a_seconds_work_is_left_unkept(
    sim, seconds, unkept
):
    for _ in range(unkept):
        assert sim.cell(EXACT, seconds).status == "ok"
    sim.reactor.advance(60)
    assert asked_for(sim) == 1
    assert sim.cell(EXACT, seconds).status == "ok"
    assert asked_for(sim) == 2


@pytest.mark.parametrize("broken", ["asked", "interrupted", "linked", "failed"])
def test_a_cell_that_asked_was_interrupted_has_a_widget_or_failed_is_kept(sim, broken):
    request = sim.begin(EXACT, allow_stdin=True)
    if broken == "asked":
        sim.hears(messages.InputRequest(id=request.id, prompt=""))
    elif broken == "interrupted":
        sim.session.interrupt()
    elif broken == "linked":
        sim.hears(messages.Display(data={"text/plain": "1"}, display_id="one"))
    error = messages.Error(ename="E", evalue="", traceback=[]) if broken == "failed" else None
    sim.hears(messages.Done(id=request.id, error=error, repeatable=True))
    assert asked_for(sim) == 2


# --- how many are kept ----------------------------------------------------------------------------


def test_as_many_are_kept_as_can_be_undone_and_the_newest(stepwise):
    sim = stepwise(undo_depth=2)
    for _ in range(5):
        sim.kept()
    assert [copy.gone() for copy in sim.guest.copies] == [True] * 3 + [False] * 3


def test_what_nobody_would_call_a_step_is_given_up(sim):
    sim.kept(silent=True, store_history=False)
    assert [copy.gone() for copy in sim.guest.copies] == [True, False]


def test_the_oldest_goes_first_when_they_hold_too_much(stepwise, monkeypatch):
    size = PAGE * 100
    sim = stepwise(undo_max_bytes=2 * size)
    faults = iter(range(0, 10_000, 100))  # a hundred pages between any two
    monkeypatch.setattr(memory, "page_faults", lambda _: next(faults))
    monkeypatch.setattr(driver, "private_bytes", lambda _: memory.LARGE - 1)
    for _ in range(5):
        sim.kept()
    gone = [copy.gone() for copy in sim.guest.copies]
    assert gone == [True] * 3 + [False] * 3
    assert sim.session.requests.supervisor.snapshots.chain.cost() == 2 * size


# --- what they cost -------------------------------------------------------------------------------


@pytest.fixture
def plenty(monkeypatch):
    """Memory without end, and guests of one GiB."""
    sizes = {"free": 1 << 40, "guest": 1 << 30}
    monkeypatch.setattr(memory, "available", lambda: sizes["free"])
    monkeypatch.setattr(driver, "private_bytes", lambda _: sizes["guest"])
    return sizes


def slow(sim):
    """Run a cell whose copy takes longer than it may; say whether one was asked for."""
    known = asked_for(sim)
    sim.cell()
    if asked_for(sim) == known:
        return False
    sim.reactor.advance(memory.TOO_LONG + 0.05)
    sim.stands(sim.guest.copies[-1])
    return True


@pytest.mark.usefixtures("plenty")
def test_two_slow_ones_in_a_row_begin_a_rest_which_time_ends(stepwise):
    sim = stepwise(snapshots="auto")
    assert [slow(sim) for _ in range(4)] == [True, True, False, False]
    assert sim.notices() == [NO_SNAPSHOT.format("the last one took 0.3 s")]
    sim.reactor.advance(20 * 0.3)
    assert slow(sim)
    assert not slow(sim)
    assert len(sim.notices()) == 1


@pytest.mark.usefixtures("plenty")
def test_a_quick_one_between_them_makes_up_for_a_slow_one(stepwise):
    sim = stepwise(snapshots="auto")
    for _ in range(4):
        assert slow(sim)
        sim.kept()
    assert sim.notices() == []


@pytest.mark.parametrize(
    ("mode", "sizes"), [("auto", {"guest": memory.SMALL - 1}), ("always", {"free": 0})]
)
def test_a_small_guest_is_copied_however_long_it_takes_and_any_if_always(
    stepwise, plenty, mode, sizes
):
    plenty.update(sizes)
    sim = stepwise(snapshots=mode)
    assert all(slow(sim) for _ in range(5))
    assert sim.notices() == []


def test_a_guest_that_became_smaller_ends_the_rest(stepwise, plenty):
    sim = stepwise(snapshots="auto")
    assert [slow(sim) for _ in range(3)] == [True, True, False]
    plenty["guest"] = plenty["guest"] * 3 // 4
    assert slow(sim)


def test_while_memory_is_short_the_oldest_are_given_up_and_none_is_taken(stepwise, plenty):
    sim = stepwise(snapshots="auto")
    copy = sim.kept()
    plenty["free"] = memory.free_bytes_for_copy(plenty["guest"]) - 1
    sim.cell(seconds=0.2)
    sim.cell(seconds=0.2)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"] * 3
    assert copy.gone()
    assert sim.notices() == [NO_SNAPSHOT.format("memory is short")]
    plenty["free"] += 1
    sim.kept()
    assert not sim.guest.copy().gone()
