"""Whose gate is kept, and until when; ending what descends from some forks, and nothing else."""

import contextlib
import os
import select
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock.guest import zygote
from cellblock.guest.confine import arch, aside, notify
from cellblock.guest.confine.libc import LockFailed
from cellblock.guest.zygote import Gatekeeper, _Control
from cellblock.wire import frames
from cellblock.wire.messages import Answered, BeginSession, Narrow, Plan
from support import processes

pytestmark = pytest.mark.skipif(arch.current() is None, reason="no table for this machine")


def test_a_frame_of_any_length_that_the_host_makes_is_read():
    """One that was taken for too long was taken for the host's end, and ended every guest."""
    plan = Plan(read_roots=("/" + "d" * (frames.MAX_FRAME - 4_096),))
    said = Narrow(id=1, ticket=1, pid=1, plan=plan, rulesets=1)
    host, zygote = socket.socketpair()
    with ThreadPoolExecutor(1) as other, host, zygote:
        sent = other.submit(host.sendall, frames.encode(said))
        assert _Control(zygote).receive() == (said, [])
        sent.result()


@pytest.fixture
def gates():
    made = Gatekeeper(select.poll(), Plan(), lambda: None, lambda _: None)
    pids = []

    def fork(number, *, session=True):
        pid = os.fork()
        if pid == 0:
            if session:
                os.setsid()
            time.sleep(60)
            os._exit(0)
        made.forked(number, pid)
        pids.append(pid)
        return pid

    made.fork, made.pids = fork, pids
    yield made
    for pid in pids:
        try:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


def turned(pid):
    """Wait until a process leads a session of its own."""
    deadline = time.monotonic() + 10
    while os.getsid(pid) != pid:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def left(gates, seconds=10.0):
    """Reap and ask, as a zygote does, until something is left or time is up."""
    deadline = time.monotonic() + seconds
    while not (done := gates.ended()) and time.monotonic() < deadline:
        for pid in gates.pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    return done


def alive(pid):
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def test_forks_that_are_named_end_and_others_do_not(gates):
    first, second = gates.fork(1), gates.fork(2)
    turned(first)
    turned(second)
    gates.end_forks(9, (1,))
    assert left(gates) == (9,)
    assert (alive(first), alive(second)) == (False, True)
    assert gates.ended() == ()


def test_a_fork_has_not_ended_while_anybody_is_in_its_session_though_a_walk_misses_them(
    gates, monkeypatch
):
    monkeypatch.setattr(notify, "descendants", lambda _: iter(()))
    pid = gates.fork(1)
    turned(pid)
    gates.end_forks(9, (1,))
    assert gates.ended() == ()
    assert left(gates) == (9,)
    assert not alive(pid)


def test_one_that_has_no_session_of_its_own_yet_ends_too(gates):
    pid = gates.fork(1, session=False)
    gates.end_forks(9, (1,))
    assert left(gates) == (9,)
    assert not alive(pid)


def test_forks_of_which_nothing_is_left_are_told_at_once(gates):
    gates.end_forks(9, (1, 2))
    assert gates.ended() == (9,)


def test_a_number_that_another_fork_has_by_now_is_no_ones_any_more(gates):
    pid = gates.fork(7)
    turned(pid)
    gates.forked(1, pid)  # 7 had ended, and its number is used again
    gates.end_forks(9, (7,))
    assert gates.ended() == (9,)
    assert alive(pid)


def test_of_a_guest_whose_first_session_is_anothers_by_now_the_others_end_all_the_same(gates):
    program, pid = gates.fork(8), gates.fork(9)
    turned(program)
    turned(pid)
    gates.forked(7, pid)
    gates.begin_session(BeginSession(id=7, pid=program, user=7))
    gates.forked(1, pid)  # 7 went on from a fork, and the number is used again
    gates.end_forks(2, (7,))
    assert left(gates) == (2,)
    assert (alive(program), alive(pid)) == (False, True)


def test_one_below_many_who_die_slowly_is_ended_too(monkeypatch):
    killed, (read, write) = [], os.pipe()
    leader = os.fork()
    if leader == 0:
        os.setsid()
        for _ in range(99):
            if os.fork():
                time.sleep(60)
                os._exit(0)
        os.write(write, b"%d" % os.getpid())
        time.sleep(60)
        os._exit(0)
    deepest = int(os.read(read, 20))
    opened = []
    monkeypatch.setattr(notify.signal, "pidfd_send_signal", lambda fd, _: killed.append(fd))
    monkeypatch.setattr(notify.os, "pidfd_open", lambda pid: opened.append(pid) or os.dup(read))
    monkeypatch.setattr(notify, "_TIMEOUT", float("inf"))
    notify.end_sessions(notify.Sessions(leader), ())
    os.killpg(leader, signal.SIGKILL)
    assert deepest in opened
    assert killed


def test_a_descriptor_that_is_late_is_not_waited_for(monkeypatch):
    """As of a ruleset for a folder that a cell's program keeps locked."""
    monkeypatch.setattr(aside, "PATIENCE", 0.2)
    pids, fork = [], os.fork
    monkeypatch.setattr(aside.os, "fork", lambda: pids.append(fork()) or pids[-1])
    with pytest.raises(LockFailed, match=r"could not be opened within 0\.2 s"):
        aside.descriptor(lambda: time.sleep(600))
    assert os.waitpid(pids[0], 0)[1] == signal.SIGKILL


def test_who_makes_a_descriptor_keeps_nothing_open_of_ours():
    read, write = os.pipe()

    def make():
        try:
            os.fstat(write)
        except OSError:
            return os.open(os.devnull, os.O_RDONLY)
        raise LockFailed("it is open")

    os.close(aside.descriptor(make))
    with pytest.raises(LockFailed, match="no room"):
        aside.descriptor(lambda: (_ for _ in ()).throw(LockFailed("no room")))
    os.close(read)
    os.close(write)


def hands_over(many=30):
    """Begin a session in which a process dies of the others' deaths, and leaves a child to us."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(write)
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        os.read(read, 1)
        os._exit(0)
    for _ in range(many):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    time.sleep(60)
    os._exit(0)


def in_session(number):
    return [pid for pid in processes.parents() if pid != number and notify.session(pid) == number]


def test_nothing_is_left_of_a_session_whose_dying_hand_their_children_over():
    for _ in range(5):
        leader = hands_over()
        while len(in_session(leader)) < 32:
            time.sleep(0.01)
        members = in_session(leader)
        notify.end_sessions(notify.Sessions(leader), ())
        assert processes.gone([leader, *members], seconds=60) == []


def test_who_dies_slowly_is_not_waited_for(monkeypatch):
    """As one that frees a file of many pieces, a call that no signal ends."""
    killed = []
    monkeypatch.setattr(notify.signal, "pidfd_send_signal", lambda *_: killed.append(leader))
    leader = hands_over(many=0)
    while len(in_session(leader)) < 2:
        time.sleep(0.01)
    monkeypatch.setattr(notify, "_TIMEOUT", float("inf"))
    notify.end_sessions(notify.Sessions(leader), ())
    assert len(killed) >= 3  # each of the three that live, and again when it was looked once more
    assert alive(leader)
    os.killpg(leader, signal.SIGKILL)


def test_members_of_a_session_stay(gates):
    pid = gates.fork(1)
    turned(pid)
    notify.end_sessions(notify.Sessions(pid), (pid,))
    assert alive(pid)


def concerning(keeper):
    (fd,) = (fd for fd in range(1_000) if keeper.concerns(fd))
    return fd


def test_a_listener_that_does_not_come_is_not_waited_for():
    """A guest has the other end, and could say that something is there to be read."""
    keeper = Gatekeeper(select.poll(), Plan(locks=("seccomp",)), lambda: None, lambda _: None)
    with keeper.expect(1):
        waiting = concerning(keeper)
        assert not os.get_blocking(waiting)
        keeper.act(waiting, select.POLLIN)
        assert not keeper.concerns(waiting)


def test_a_gate_is_let_go_when_nobody_is_under_it_and_not_when_a_look_was_interrupted():
    """Such a look says POLLERR (seccomp_notify_poll in the OS kernel)."""
    poll = select.poll()
    keeper = Gatekeeper(poll, Plan(locks=("seccomp",)), lambda: None, lambda _: None)
    with keeper.expect(1) as theirs:
        waiting, read, write = concerning(keeper), *os.pipe()
        socket.send_fds(theirs, [b"g"], [read])
        keeper.act(waiting, select.POLLIN)
    os.close(read)
    listener = concerning(keeper)
    keeper.act(listener, select.POLLERR)
    assert keeper.concerns(listener)
    keeper.act(listener, select.POLLHUP)
    assert not keeper.concerns(listener)
    os.close(write)


def test_the_time_of_answers_goes_with_the_gate(monkeypatch):
    """Kept by the guest's number, it stayed for each guest that there ever was."""
    answers, clock, told = iter([True, False, True, True]), iter(range(100)), []
    monkeypatch.setattr(notify.Gate, "answer", lambda *_: next(answers))
    monkeypatch.setattr(zygote.time, "thread_time", lambda: next(clock) * 0.02)
    keeper = Gatekeeper(select.poll(), Plan(locks=("seccomp",)), lambda: None, told.append)
    for _ in range(2):
        listener = gated(keeper)
        keeper.act(listener, select.POLLIN)
        keeper.act(listener, select.POLLIN)
    assert told == []
    answers = iter([True])
    keeper.act(listener, select.POLLIN)
    assert told == [Answered(id=1, user=0, seconds=pytest.approx(0.06))]
    keeper.act(listener, select.POLLHUP)


def test_the_time_of_answers_counts_for_who_asked(monkeypatch):
    clock, told, asking = iter(range(100)), [], iter([7, 0, 7, 0, 7])

    def answer(gate, _before):
        gate.asking = next(asking)
        return True

    monkeypatch.setattr(notify.Gate, "answer", answer)
    monkeypatch.setattr(zygote.time, "thread_time", lambda: next(clock) * 0.02)
    keeper = Gatekeeper(select.poll(), Plan(locks=("seccomp",)), lambda: None, told.append)
    listener = gated(keeper)
    for _ in range(5):
        keeper.act(listener, select.POLLIN)
    assert told == [Answered(id=1, user=7, seconds=pytest.approx(0.06))]


def gated(keeper):
    """Hand guest 1's listener over; a file stands in for it."""
    with keeper.expect(1) as theirs, Path(os.devnull).open("rb") as listener:
        waiting = concerning(keeper)
        socket.send_fds(theirs, [b"g"], [listener.fileno()])
        keeper.act(waiting, select.POLLIN)
    return concerning(keeper)
