"""Twins: whoever takes over leaves one that holds its state, so no one kill takes the last of it."""

import errno
import signal

import pytest

from cellblock.host.session.types import Restored, Stopped
from cellblock.host.snapshots.memory import NO_SNAPSHOT
from cellblock.host.state import core, takeover
from cellblock.host.state.core import PICKED_ENDED
from cellblock.wire import messages
from support.stepwise import CRASH, EXACT, INEXACT, outcome_of_loss

STAGES = ("has a twin", "took over", "is running again", "serves")


def kill(sim, copy, stage):
    """Have a copy end at a stage of its taking over from a guest that ended; return its twin."""
    twin = sim.leaves_twin(copy)
    if stage != "has a twin":
        sim.takes_over(copy)
    if stage == "is running again":
        (request,) = copy.read()
        copy.send(messages.Began(id=request.id))
        sim.reactor.turn()
    if stage == "serves":
        sim.again(EXACT)
        young = tuple(copy.copies[1:])  # asked for when it had caught up
        sim.reaped(9)
        sim.end(*young)
    else:
        sim.end(copy)
    return twin


# --- kills that follow each other -----------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_a_second_kill_costs_nothing_at_whichever_stage_of_a_restoration_it_comes(sim, stage):
    copy = sim.kept()
    sim.reactor.advance(10.0)  # too long ago to be run again
    sim.cell(EXACT)
    sim.reaped(9)
    twin = kill(sim, copy, stage)
    sim.takes_over(twin)
    sim.again(EXACT)
    restored = {stopped.restored for stopped in sim.losses()}
    assert restored == {Restored()} if stage != "serves" else restored >= {Restored()}
    sim.stands(sim.guest.copy())
    assert sim.cell().status == "ok"


@pytest.mark.parametrize("given_up", [False, True])
def test_kills_that_come_one_by_one_cost_nothing_until_a_state_is_given_up(sim, given_up):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.reactor.advance(10.0)
    sim.reaped(9)
    for _ in range(core.MAX_SERVED):
        twin = sim.leaves_twin(copy)
        sim.end(copy)
        copy = twin
    if given_up:
        assert copy.twin() is None
        sim.end(copy)
    sim.takes_over(older if given_up else copy)
    assert sim.losses() == [outcome_of_loss(missed=(1,)) if given_up else outcome_of_loss()]


def test_copies_that_are_killed_cost_those_before_none_of_their_time(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.reaped(9)
    for _ in range(3):
        twin = sim.leaves_twin(copy)
        sim.end(copy)
        copy = twin
    sim.end(copy.twin(), copy)
    sim.reactor.advance(takeover.PATIENCE - 0.1)
    assert not older.gone()
    sim.reactor.advance(0.2)
    assert older.gone()


def test_copies_that_end_just_in_time_have_no_more_time_than_one_that_does_not_end(sim):
    copies = [sim.guest.copies[0], sim.kept()]
    sim.reaped(9)
    began = sim.reactor.now
    for copy in reversed(copies):
        heir = copy
        while (twin := heir.twin()) is not None:
            sim.stands(twin)
            sim.reactor.advance(1.0)
            if heir.gone():
                break
            sim.end(heir)
            heir = twin
    assert sim.losses() == [Stopped("crash", CRASH)]
    assert sim.reactor.now - began < 2 * takeover.PATIENCE + 2


def test_programs_of_the_guest_before_are_ended_before_anything_is_asked_of_a_copy(stepwise):
    sim = stepwise(subprocess_execution=True)
    sim.kept()
    sim.reactor.advance(2.0)
    before = len(sim.told)
    sim.reaped(9)
    told = [type(message) for message in sim.told[before:]]
    assert told.index(messages.KeepOnly) < told.index(messages.AllowFork)


def test_nothing_is_asked_of_who_takes_over_until_its_twin_stands(sim):
    copy = sim.kept()
    sim.reaped(9)
    twin = copy.twin()
    assert copy.read() == []
    sim.stands(twin)
    (resume,) = copy.read()
    sim.end(copy)
    sim.leaves_twin(twin)
    (other,) = twin.read()
    assert (resume.inputs, resume.seed != other.seed) == (other.inputs, True)


@pytest.mark.parametrize("why", ["refused", "ended"])
def test_where_there_is_no_twin_the_copy_takes_over_without(sim, why):
    copy = sim.kept()
    sim.reaped(9)
    twin = copy.twin()
    if why == "refused":
        sim.hears(messages.SnapshotFailed(id=twin.number, errno=errno.EAGAIN), by=copy)
        assert twin.gone()
    else:
        sim.end(twin)
    sim.takes_over(copy, leaves_twin=False)
    assert sim.losses() == [outcome_of_loss()]
    told = [NO_SNAPSHOT.format("one could not be made (Resource temporarily unavailable)")]
    assert sim.notices() == (told if why == "refused" else [])
    sim.reactor.advance(core.IDLE)
    sim.stands(sim.guest.copy())
    assert sim.cell().status == "ok"


def test_one_that_leaves_no_twin_in_time_does_not_take_over(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.reaped(9)
    sim.reactor.advance(takeover.PATIENCE + 0.1)
    assert (copy.gone(), older.gone()) == (True, False)
    sim.takes_over(older)


def test_what_ran_lately_is_run_again_when_guest_and_copy_end_at_once(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.cell()
    under_way = sim.guest.copy()
    sim.reaped(9)
    sim.end(under_way)
    sim.end(copy.twin(), copy)
    sim.takes_over(older)
    sim.again(INEXACT)
    sim.again(INEXACT)
    assert sim.losses() == [outcome_of_loss(again=(1, 2))]


def test_an_input_that_was_ended_is_known_to_whoever_takes_over_later(sim):
    copy = sim.kept()
    sim.begin("x = run()")
    sim.reaped(9)
    twin = sim.leaves_twin(copy)
    assert sim.takes_over(copy).inputs == [(2, "x = run()")]
    sim.reaped(9)
    assert sim.takes_over(twin).inputs == [(2, "x = run()")]


def test_a_cell_that_waited_for_a_copy_is_answered_when_its_twin_takes_over(sim):
    assert sim.cell(seconds=0.2) is None
    copy = sim.guest.copy()
    sim.reaped(9)
    sim.stands(copy)
    twin = sim.leaves_twin(copy)
    sim.end(copy)
    sim.takes_over(twin)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    assert sim.losses() == [outcome_of_loss()]


def test_one_that_does_not_take_over_takes_its_twin_along(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.reaped(9)
    twin = sim.leaves_twin(copy)
    sim.reactor.advance(takeover.PATIENCE + 0.1)
    assert (copy.gone(), twin.gone(), older.gone()) == (True, True, False)
    sim.takes_over(older)


def test_a_guest_that_ended_before_it_was_heard_is_replaced_at_once(sim):
    copy = sim.kept()
    sim.reaped(9)
    twin = sim.leaves_twin(copy)
    copy.read()
    sim.guests.append(copy)
    copy.send(messages.Resumed())
    sim.tell_reaped(copy, 9)  # heard first: it is polled in the order of descriptors
    sim.end(copy)
    sim.takes_over(twin)
    assert sim.losses() == [outcome_of_loss(), outcome_of_loss()]


# --- standing -------------------------------------------------------------------------------------


def test_a_long_cell_is_answered_when_its_copy_stands(sim):
    assert sim.cell(seconds=0.2) is None
    sim.reactor.advance(core.PATIENCE - 0.1)
    assert sim.outcomes == []
    sim.stands(sim.guest.copy())
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]


def test_a_twin_is_stopped_and_known_to_belong_to_the_guest(sim):
    first, copy = sim.guest.copies[0], sim.kept()
    assert copy.twin() is None
    sim.reaped(9)
    twin = sim.leaves_twin(copy)
    assert (twin.pid, signal.SIGSTOP) in sim.kills
    assert set(sim.session.requests.supervisor.snapshots.look()) >= {first.pid, twin.pid}


def test_a_copy_that_is_lost_is_followed_by_another_of_the_guest(sim):
    copy = sim.kept()
    sim.end(copy)
    sim.reactor.advance(core.IDLE)
    again = sim.guest.copy()
    assert again is not copy
    sim.stands(again)
    sim.reaped(9)
    sim.takes_over(again)
    assert sim.losses() == [outcome_of_loss()]


@pytest.mark.parametrize("said", [messages.SnapshotReady(id=99), messages.Resumed()])
def test_a_copy_that_waits_and_says_anything_is_ended(sim, said):
    copy = sim.kept()
    sim.hears(said, by=copy)
    assert copy.gone()


def test_a_checkpoint_of_which_no_twin_can_be_made_is_kept_and_the_state_that_there_was(sim):
    supervisor, refused = sim.session.requests.supervisor, []
    supervisor.snapshots.checkpoint("point", refused.append)
    checkpoint = sim.guest.copy()
    sim.stands(checkpoint)
    supervisor.snapshots.restore("point", refused.append)
    failed = messages.SnapshotFailed(id=checkpoint.twin().number, errno=errno.EAGAIN)
    sim.hears(failed, by=checkpoint)
    assert refused == ["", "no copy of it could be made"]
    assert supervisor.snapshots.chain.named().keys() == {"point"}
    assert sim.cell().status == "ok"


def test_a_checkpoint_is_known_to_be_the_guests_by_its_twin_where_programs_are_ended(stepwise):
    sim = stepwise(subprocess_execution=True)
    supervisor = sim.session.requests.supervisor
    supervisor.snapshots.checkpoint("point", refused := list[str]().append)
    checkpoint = sim.guest.copy()
    sim.stands(checkpoint)
    before = len(sim.told)
    supervisor.snapshots.restore("point", refused)
    twin = sim.leaves_twin(checkpoint)
    claimed = [one for one in sim.told[before:] if isinstance(one, messages.KeepOnly)]
    assert claimed
    assert all({checkpoint.pid, twin.pid} <= set(one.pids) for one in claimed)


def test_a_checkpoint_whose_process_ends_leaves_the_state_that_there_was(sim):
    supervisor = sim.session.requests.supervisor
    supervisor.snapshots.checkpoint("point", refused := list[str]().append)
    checkpoint = sim.guest.copy()
    sim.stands(checkpoint)
    copy = sim.kept()
    supervisor.snapshots.restore("point", refused)
    sim.leaves_twin(checkpoint)
    sim.end(checkpoint)
    sim.takes_over(copy)
    assert sim.losses() == [Stopped("crash", PICKED_ENDED, restored=Restored())]
    assert supervisor.snapshots.chain.named().keys() == {"point"}
