"""Backups: each newest copy stands twice, so that no one kill takes the last of a state."""

import errno
import signal

import pytest

from cellblock.host.session.types import Restored
from cellblock.host.snapshots import store
from cellblock.wire import messages
from support.stepwise import EXACT, INEXACT, lost

STAGES = ("told to", "took over", "is running again", "serves")


def kept_twice(sim):
    """Run a cell and have what it did kept twice; return the copies."""
    copy = sim.kept()
    return copy, sim.backup(copy)


def kill(sim, copy, stage):
    """Have a copy end at a stage of its taking over from a guest that ended."""
    backup = copy.backup()
    if stage != "told to":
        sim.takes_over(copy)
    if stage == "is running again":
        (request,) = copy.read()
        copy.send(messages.Began(id=request.id))
        sim.reactor.turn()
    if stage == "serves":
        sim.again(EXACT)
        young = tuple(copy.copies[1:])  # asked for when it took over, and when it had caught up
        sim.reaped(9)
        sim.end(*young)
    else:
        sim.end(*([copy.copy()] if stage != "told to" else []), copy)
    return backup


# --- kills that follow each other -----------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_a_second_kill_costs_nothing_at_whichever_stage_of_a_restoration_it_comes(sim, stage):
    copy, _ = kept_twice(sim)
    sim.reactor.advance(10.0)  # too long ago to be run again
    sim.cell(EXACT)
    sim.reaped(9)
    backup = kill(sim, copy, stage)
    sim.takes_over(backup)
    sim.again(EXACT)
    restored = {stopped.restored for stopped in sim.losses()}
    assert restored == {Restored()} if stage != "serves" else restored >= {Restored()}
    sim.stands(sim.guest.copy())
    assert sim.cell().status == "ok"


@pytest.mark.parametrize("given_up", [False, True])
def test_kills_that_come_one_by_one_cost_nothing_until_a_state_is_given_up(sim, given_up):
    older = sim.guest.copies[0]
    copy, _ = kept_twice(sim)
    sim.reactor.advance(10.0)
    sim.reaped(9)
    for _ in range(store.MAX_BACKUPS + 1 if given_up else store.MAX_BACKUPS - 2):
        sim.backs_up(copy)
        backup = copy.backup()
        sim.end(copy)
        if backup is None:
            break
        copy = backup
    sim.takes_over(older if given_up else copy)
    assert sim.losses() == [lost(missed=(1,)) if given_up else lost()]


def test_copies_that_are_killed_cost_those_before_none_of_their_time(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.backup(copy)
    sim.reaped(9)
    for _ in range(3):
        sim.backs_up(copy)
        backup = copy.backup()
        sim.end(*([copy] if backup.stood else [backup, copy]))
        copy = backup
    sim.end(copy.backup(), copy)
    sim.reactor.advance(3.9)
    assert not older.gone()
    sim.reactor.advance(0.2)
    assert older.gone()


def test_a_copy_hears_of_a_backup_that_was_given_up_after_it_was_told_to_take_over(sim):
    copy = sim.kept()
    sim.reactor.advance(store.BACKUP_AFTER)
    first = copy.backup()
    newer = sim.kept()
    sim.backup(newer)
    assert first.gone()
    sim.reaped(9)
    sim.end(newer.backup(), newer)
    second = copy.backup()
    sim.hears(messages.SnapshotReady(id=first.number), by=copy)
    assert not copy.gone()
    sim.stands(second)
    copy.send(messages.SnapshotReady(id=second.number))
    sim.takes_over(copy, backup=False)
    assert len(sim.losses()) == 0
    sim.again(INEXACT)
    assert sim.losses() == [lost(again=(2,))]


def test_a_copy_without_a_backup_makes_one_before_it_goes_on(sim):
    copy = sim.kept()
    sim.reactor.advance(store.BACKUP_AFTER / 2)
    sim.reaped(9)
    backup = copy.backup()
    assert backup.number > copy.number
    (resume,) = copy.read()  # after it
    sim.stands(backup)
    sim.end(copy)
    (other,) = backup.read()
    assert (resume.inputs, resume.seed != other.seed) == (other.inputs, True)


def test_what_ran_lately_is_run_again_when_guest_and_copy_end_before_there_is_a_backup(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.cell()
    under_way = sim.guest.copy()
    sim.reaped(9)
    sim.end(under_way)
    sim.end(copy.backup(), copy)
    sim.takes_over(older)
    sim.again(INEXACT)
    sim.again(INEXACT)
    assert sim.losses() == [lost(again=(1, 2))]


def test_an_input_that_was_ended_is_known_to_whoever_takes_over_later(sim):
    copy, backup = kept_twice(sim)
    sim.begin("x = run()")
    sim.reaped(9)
    assert sim.takes_over(copy).inputs == [(2, "x = run()")]
    sim.reaped(9)
    assert sim.takes_over(backup).inputs == [(2, "x = run()")]


def test_a_cell_that_waited_for_a_copy_is_answered_when_its_backup_takes_over(sim):
    assert sim.cell(seconds=0.2) is None
    copy = sim.guest.copy()
    sim.reaped(9)
    sim.stands(copy)
    backup = copy.backup()
    sim.end(copy)
    sim.takes_over(backup)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    assert sim.losses() == [lost()]


def test_one_that_does_not_take_over_takes_its_backup_along(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    backup = sim.backup(copy)
    sim.reaped(9)
    sim.reactor.advance(4.1)
    assert (copy.gone(), backup.gone(), older.gone()) == (True, True, False)
    sim.takes_over(older)


def test_a_guest_that_ended_before_it_was_heard_is_replaced_at_once(sim):
    copy, backup = kept_twice(sim)
    sim.reaped(9)
    copy.read()
    sim.guests.append(copy)
    copy.send(messages.Resumed())
    sim.tell_reaped(copy, 9)  # heard first: it is polled in the order of descriptors
    sim.end(copy)
    sim.takes_over(backup)
    assert sim.losses() == [lost(), lost()]


# --- standing twice -------------------------------------------------------------------------------


def test_a_long_cell_is_answered_when_its_copy_stands_twice(sim):
    assert sim.cell(seconds=0.2) is None
    sim.reactor.advance(store.PATIENCE - 0.1)
    copy = sim.guest.copy()
    sim.stands(copy, backup=False)
    assert sim.outcomes == []
    sim.backs_up(copy)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]


@pytest.mark.parametrize("why", ["refused", "late"])
def test_a_long_cell_is_answered_when_it_is_certain_that_there_is_no_backup(sim, why):
    assert sim.cell(seconds=0.2) is None
    copy = sim.guest.copy()
    sim.stands(copy, backup=False)
    backup = copy.backup()
    if why == "refused":
        sim.hears(messages.SnapshotFailed(id=backup.number, errno=errno.EAGAIN), by=copy)
    else:
        sim.reactor.advance(store.PATIENCE)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    assert backup.gone()
    assert sim.kills[-1] == (copy.pid, signal.SIGSTOP)
    told = ["one could not be made (Resource temporarily unavailable)"]
    assert sim.notices() == (told if why == "refused" else [])


def test_cells_that_follow_each_other_at_once_cost_no_backup(sim):
    for _ in range(10):
        sim.cell()
        copy = sim.guest.copy()
        sim.stands(copy)
        sim.reactor.advance(store.BACKUP_AFTER / 2)
    assert [one.backup() for one in sim.guest.copies[1:]] == [None] * 10
    assert sim.backup(copy).stood


def test_both_are_stopped_and_known_to_belong_to_the_guest(sim):
    copy, backup = kept_twice(sim)
    assert {(copy.pid, signal.SIGSTOP), (backup.pid, signal.SIGSTOP)} <= set(sim.kills[-3:])
    assert set(sim.session.requests.supervisor.snapshots.chain.sizes()) >= {copy.pid, backup.pid}
    sim.reactor.advance(1.0)
    claimed = [m for m in sim.told if isinstance(m, messages.KeepOnly)]
    assert claimed[-1].pids == (sim.guest.pid, sim.guest.copies[0].pid, copy.pid, backup.pid)


def test_only_the_newest_has_a_backup(sim):
    first = sim.kept()
    backup = sim.backup(first)
    second = sim.kept()
    assert not backup.gone()  # until the newer one stands twice
    sim.backup(second)
    assert (backup.gone(), first.gone()) == (True, False)


def test_the_copy_before_is_kept_until_the_newest_stands_twice(stepwise):
    sim = stepwise(undo_depth=0)
    first, second = sim.guest.copy(), sim.kept()
    assert not first.gone()
    sim.backup(second)
    assert first.gone()


def test_a_copy_that_is_lost_is_followed_by_its_backup_and_that_has_another(sim):
    copy, backup = kept_twice(sim)
    sim.end(copy)
    sim.backs_up(backup)
    sim.reactor.advance(store.IDLE)
    assert backup.backup().stood
    assert len(sim.guest.copies) == 2  # the guest was not asked
    sim.reaped(9)
    sim.takes_over(backup)
    assert sim.losses() == [lost()]


def test_a_backup_that_is_lost_is_made_again(sim):
    copy = sim.kept()
    sim.end(sim.backup(copy))
    assert copy.backup() is not None
    sim.backs_up(copy)
    assert copy.backup().stood


@pytest.mark.parametrize("said", [messages.SnapshotReady(id=99), messages.Resumed()])
def test_a_copy_that_says_anything_but_that_it_has_a_backup_is_ended_with_it(sim, said):
    copy, backup = kept_twice(sim)
    sim.hears(said, by=copy)
    assert (copy.gone(), backup.gone()) == (True, True)
