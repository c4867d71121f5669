"""The host's ends of copies: what they cost it, and whom it signals."""

import errno
import gc
import os
import signal
import socket
import subprocess
import sys

import pytest

from cellblock.host.guests import process
from cellblock.host.guests.process import Guest, Lineage
from cellblock.host.limits import shares
from cellblock.host.session.types import Stopped
from cellblock.host.snapshots import driver, memory
from cellblock.host.snapshots.memory import NO_SNAPSHOT
from cellblock.host.state import core
from cellblock.host.state.chain import PastRequest
from cellblock.wire import frames, messages
from support.simulator import Reactor


@pytest.fixture
def reactor():
    return Reactor()


def guest(reactor, **options):
    return Guest(reactor, print, print, print, **options)


# --- descriptors ------------------------------------------------------------------------------


def none_left(*_):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_guest_for_which_there_are_too_few_descriptors_leaves_none_open(
    reactor, descriptors, monkeypatch
):
    pipes = [none_left, os.pipe]

    def pipe():
        return pipes.pop()()

    monkeypatch.setattr(process.os, "pipe", pipe)
    before = descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        guest(reactor)
    assert descriptors() == before
    assert reactor._fds == {}


def test_descriptors_that_the_host_lacks_cost_a_snapshot_and_are_told_once(
    reactor, serving, monkeypatch
):
    made = []
    snapshots = serving(reactor, guest(reactor), snapshots="always")
    monkeypatch.setattr(process.socket, "socketpair", none_left)
    for _ in range(3):
        snapshots.play(snapshots.core.copy_guest, made.append)
    assert made == [None] * 3
    notices = [NO_SNAPSHOT.format("the kernel can't open what one takes (Too many open files)")]
    assert snapshots.supervisor.notices == notices
    assert snapshots.chain == []
    snapshots.play(snapshots.core.end)


# --- what one costs ---------------------------------------------------------------------------


@pytest.fixture
def taken(reactor, serving, monkeypatch):
    """Return what takes a snapshot that stands at once, and notes what the host does for it."""
    serves, done = guest(reactor), []
    serves.pid = 1
    channel = os.dup(serves.child_fds[0])  # the other ends of copies wait in there
    snapshots = serving(reactor, serves, undo_depth=5, undo_max_bytes=1 << 40)
    monkeypatch.setattr(
        driver, "private_bytes", lambda pid: done.append(("resident", pid)) or 1 << 20
    )
    monkeypatch.setattr(memory, "available", lambda: done.append("available") or 1 << 40)
    monkeypatch.setattr(memory, "page_faults", lambda _: 0)
    monkeypatch.setattr(Guest, "sender_is_ours", lambda _: True)
    monkeypatch.setattr(
        Guest, "signal", lambda self, n: done.append((signal.Signals(n).name, self.pid))
    )

    def take():
        snapshots.play(snapshots.core.copy_guest, lambda _: None)
        number, copy = snapshots.chain[-1].copy.number, snapshots.process_of(snapshots.chain[-1])
        copy.pid = 10 + number
        copy.on_message(messages.SnapshotReady(id=number))
        cell = messages.Execute(id=1, source="1", raw="1", execution_count=number)
        snapshots.play(snapshots.core.cell_ended, PastRequest(cell, 0.0), list, alone=False)
        return copy.pid

    take.snapshots, take.done = snapshots, done
    yield take
    snapshots.play(snapshots.core.end)
    os.close(channel)


def test_one_more_has_its_guest_read_twice_and_is_stopped_once_however_many_there_are(taken):
    for _ in range(4):
        taken()
    taken.done.clear()
    number = taken()
    assert taken.done == [("resident", 1), ("resident", 1), ("SIGSTOP", number)]


def test_memory_is_read_anew_after_a_while_and_at_once_where_it_is_short(
    reactor, taken, monkeypatch
):
    taken()
    taken()
    assert taken.done.count("available") == 1
    reactor.advance(2 * memory.FRESH)
    taken()
    assert taken.done.count("available") == 2
    short = memory.free_bytes_for_copy(1 << 20)
    monkeypatch.setattr(memory, "available", lambda: taken.done.append("short") or short)
    for _ in range(3):
        reactor.advance(2 * memory.FRESH)
        taken()
        taken()
    assert taken.done.count("short") == 6


def test_where_memory_is_short_it_is_read_once_for_each_copy_given_up(taken, reactor, monkeypatch):
    for _ in range(3):
        taken()
    reactor.advance(2 * memory.FRESH)
    taken.done.clear()
    monkeypatch.setattr(memory, "available", lambda: taken.done.append("short") or 0)
    taken.snapshots.play(taken.snapshots.core.copy_guest, lambda _: None)
    assert taken.done.count("short") == 4
    assert taken.done.count(("resident", 1)) == 1
    assert taken.snapshots.chain == []


def test_copies_that_the_end_of_their_guest_sets_going_are_stopped_again(taken, reactor):
    first, _ = taken(), taken()
    taken.done.clear()
    taken.snapshots.play(taken.snapshots.core.guest_lost, Stopped("crash"))
    reactor.advance(0.1)
    assert taken.done.count(("SIGSTOP", first)) == 1


def test_a_copy_that_computes_while_it_should_stand_still_is_dropped(taken, monkeypatch):
    pid, used = taken(), iter((0.2, 0.24, 0.24, 0.3))
    monkeypatch.setattr(driver.Gauge, "cpu", lambda _: next(used))
    for _ in range(3):  # what it took to come to stand is no matter
        taken.snapshots.look()
        assert taken.snapshots.pids()[1:] == [pid]
    taken.snapshots.look()
    assert taken.snapshots.pids()[1:] == []


def test_copies_that_the_os_kernel_says_have_too_much_are_dropped_at_a_later_look(
    taken, reactor, monkeypatch
):
    taken.snapshots.core.policy = taken.snapshots.core.policy.replace(
        subprocess_execution=True, undo_max_bytes=2 << 20
    )
    asked = []

    def read(pids):
        asked.append({*pids})
        return dict.fromkeys(asked[-1], shares.Shares(1 << 20, 1 << 20, 1 << 20))

    monkeypatch.setattr(driver.shares, "read", read)
    pids = [taken() for _ in range(4)]
    reactor.advance(0.1)
    taken.snapshots._shares._thread.join(10)
    assert asked == [{*pids}]
    assert taken.snapshots.pids()[1:] == pids
    reactor.advance(0.1)
    assert taken.snapshots.pids()[1:] == pids[1:]


@pytest.mark.parametrize(
    ("guest", "copies", "held"),
    [
        ((60, 60, 60), [(40, 40, 40)], 60),  # what the copy has it has alone
        ((30, 0, 60), [(30, 0, 60)], 60),
        ((10, 0, 60), [(10, 0, 60)], 20),  # four others have the same
        ((0, 0, 0), [(50, 0, 50)], 0),  # nor does what several copies have count
    ],
)
def test_what_only_copies_have_is_not_their_guests(guest, copies, held):
    known = {pid: shares.Shares(*each) for pid, each in enumerate([guest, *copies])}
    assert driver._of_guest(0, [*known], known) == held


def test_unknown_processes_are_looked_for_within_a_second_of_a_snapshot_and_once(
    taken, reactor, zygote
):
    pids = [taken() for _ in range(3)]
    assert zygote.told == ["allow"] * 3
    reactor.advance(1.0)
    assert zygote.told[3:] == [(1, *pids)]


def test_forks_that_something_else_took_are_few_while_more_are_asked_for(taken, reactor, zygote):
    """While one copy or another is being made, nothing can be told from it and ended."""
    taken()
    most = 0
    for _ in range(40):
        taken.snapshots.play(taken.snapshots.core.copy_guest, lambda _: None)
        reactor.advance(0.7)
        ended = [place for place, told in enumerate(zygote.told) if told != "allow"]
        most = max(most, len(zygote.told[ended[-1] + 1 if ended else 0 :]))
    assert most <= 6
    assert zygote.told.count("allow") > 12


# --- whose process it is ----------------------------------------------------------------------


def test_a_process_of_another_session_is_neither_vouched_for_nor_signalled(reactor, descriptors):
    waiting = guest(reactor, check_sender=True)
    waiting.lineage = Lineage(1, os.getsid(0))
    said = bytes(frames.encode(messages.SnapshotReady(id=1)))
    program = f"import os; os.write(0, {said!r}); os.read(0, 1)"
    theirs = socket.socket(fileno=os.dup(waiting.child_fds[0]))
    gc.collect()  # what tests before this one have left is not to go meanwhile
    before = descriptors()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, start_new_session=True
    ) as other:
        while waiting.pid is None:
            reactor.turn()
        assert waiting.pid == other.pid
        vouched = waiting.sender_is_ours()
        left = descriptors() - before
        theirs.close()
        waiting.close()
        assert (vouched, left) == (False, 0)
        assert other.wait() == 0  # by the end of its channel


def stood(chain):
    return [one.kept for one in chain]


@pytest.mark.parametrize("poses_as", ["the guest", "an older snapshot", "a fork's guest"])
def test_a_process_that_is_known_already_does_not_pass_for_a_new_snapshot(
    stepwise, monkeypatch, poses_as
):
    """A guest that answers for its copy would be killed, and restored, and be both."""
    sim = stepwise()
    (older,) = sim.session.requests.supervisor.snapshots.chain
    snapshots = sim.session.requests.supervisor.snapshots
    fork = sim.guest.pid + 1_000
    monkeypatch.setattr(snapshots, "others", lambda: [fork])
    known = {
        "the guest": sim.guest.pid,
        "an older snapshot": snapshots.process_of(older).pid,
    }
    sim.cell()
    sim.reactor.advance(core.IDLE)
    copy = sim.guest.copy()
    assert stood(snapshots.chain) == [True, False]

    sim._standing = known.get(poses_as, fork)
    sim.hears(messages.SnapshotReady(id=copy.number), by=copy)

    assert snapshots.chain == [older]
    assert copy.gone()


def test_a_new_process_of_the_guests_passes(stepwise):
    sim = stepwise()
    sim.kept()
    assert stood(sim.session.requests.supervisor.snapshots.chain) == [True, True]


@pytest.mark.parametrize("lie", ["another number", "another message", "another's process"])
def test_a_copy_that_does_not_say_what_it_has_to_is_none(stepwise, monkeypatch, lie):
    sim = stepwise()
    snapshots = sim.session.requests.supervisor.snapshots
    (older,) = snapshots.chain
    sim.cell()
    sim.reactor.advance(core.IDLE)
    copy = sim.guest.copy()
    sim._standing = copy.pid
    said = messages.SnapshotReady(id=copy.number + (lie == "another number"))
    if lie == "another message":
        said = messages.Resumed()
    if lie == "another's process":
        monkeypatch.setattr(Guest, "sender_is_ours", lambda _: False)

    sim.hears(said, by=copy)

    assert snapshots.chain == [older]
    assert copy.gone()


def test_a_state_whose_copy_lied_while_it_waited_is_copied_again_in_idle_time(stepwise):
    sim = stepwise()
    snapshots = sim.session.requests.supervisor.snapshots
    (only,) = snapshots.chain
    snapshots.process_of(only).on_message(messages.Resumed())
    assert snapshots.chain == []

    sim.reactor.advance(core.IDLE)

    assert stood(snapshots.chain) == [False]
