"""The gate for real: a guest in a child, its listener held here."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from cellblock.guest.confine import LOCKS, arch, confine, gate
from cellblock.guest.confine.gate import Gate, Request
from unit.guest.confine.cell import LIBRARIES

MACHINE = arch.current()
PATIENCE = 20


class Guest:
    """A gated child running ``program(say, ask)``; ``said`` collects what it says."""

    def __init__(self, program, plan, **options):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.pid = os.fork()
        if self.pid == 0:
            _child(program, plan, theirs)
        theirs.close()
        _, (listener,), _, _ = socket.recv_fds(self.ours, 1, 1)
        self.gate = Gate(listener, MACHINE, **options)
        self.said = []

    def serve(self):
        """Answer until the guest has gone; "snapshot" makes the next fork due."""
        poll = select.poll()
        poll.register(self.ours, select.POLLIN)
        poll.register(self.gate.fileno(), select.POLLIN)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for fd, event in poll.poll(100):
                if fd == self.gate.fileno() and event & select.POLLIN:
                    assert self.gate.answer()
                elif fd == self.ours.fileno() and not self._hear():
                    return self._end()
        os.kill(self.pid, signal.SIGKILL)
        pytest.fail(f"no end, but {self.said}")
        return []

    def _hear(self):
        line = self.ours.recv(4096).decode()
        for word in line.splitlines():
            if word == "snapshot":
                self.gate.allow_fork(self.pid)
                self.ours.send(b"go")
            else:
                self.said.append(word)
        return bool(line)

    def _end(self):
        self.gate.close()
        self.ours.close()
        os.waitpid(self.pid, 0)
        return self.said


def _child(program, plan, channel):
    try:
        os.setsid()
        report = confine(plan, hand_over=lambda fd: socket.send_fds(channel, [b"x"], [fd]))
        if program is None:
            channel.send(f"{' '.join(sorted(report.achieved))}\n".encode())
        else:
            program(lambda text: channel.send(f"{text}\n".encode()), lambda: channel.recv(2))
    except BaseException as error:  # noqa: BLE001 - a child never returns into pytest
        channel.send(f"raised {error!r}\n".encode())
    finally:
        os._exit(0)


def outcome(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    except RuntimeError as error:
        return str(error)
    return "ok"


@pytest.fixture
def plan(world, uid):
    if uid != os.getuid():
        pytest.skip("the gate does not depend on who runs it")
    return world.plan


def test_a_gated_guest_says_so(plan):
    guest = Guest(None, plan(), most_tasks=None, processes=False)

    assert guest.serve() == [" ".join(sorted([*LOCKS, "gate", "witness"]))]


def crowd(say, _ask):
    started = 0
    try:
        while started < 60:
            threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
            started += 1
    except RuntimeError as error:
        say(error)
    say(started)


def test_threads_are_counted_for_uid_0_too(plan):
    guest = Guest(crowd, plan(), most_tasks=12, processes=False)

    assert guest.serve() == ["can't start new thread", "11"]


def test_threads_are_free_where_no_number_is_set(plan):
    guest = Guest(crowd, plan(), most_tasks=None, processes=False)

    assert guest.serve() == ["60"]


def test_threads_that_start_threads_at_once_do_not_outrun_the_count(plan):
    def burst(say, _ask):
        def more(depth):
            if depth:
                for _ in range(4):
                    outcome(threading.Thread(target=more, args=(depth - 1,), daemon=True).start)
            time.sleep(1)

        threading.Thread(target=more, args=(4,), daemon=True).start()
        time.sleep(0.5)
        say("done")

    guest = Guest(burst, plan(), most_tasks=30, processes=False)
    peak = 0
    watch = threading.Event()

    def look():
        nonlocal peak
        while not watch.wait(0.005):
            peak = max(peak, gate._threads(guest.pid))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        guest.serve()
    finally:
        watch.set()
        watcher.join()
    assert 20 < peak <= 30


def test_a_fork_passes_once_when_a_snapshot_is_due_and_never_else(plan):
    def forks(say, ask):
        say(outcome(os.fork))
        say("snapshot")
        ask()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        say(outcome(os.fork))

    guest = Guest(forks, plan(), most_tasks=None, processes=False)

    assert guest.serve() == ["EPERM", "EPERM"]


def test_a_snapshot_can_signal_itself_and_not_the_original_nor_the_reverse(plan):
    def signals(say, ask):
        say("snapshot")
        ask()
        pid = os.fork()
        if pid == 0:
            seen = []
            signal.signal(signal.SIGUSR1, lambda *_: seen.append("seen"))
            signal.raise_signal(signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
            say(f"copy to itself: {len(seen)}")
            say(f"copy to original: {outcome(lambda: os.kill(os.getppid(), 0))}")
            say(f"copy stops itself: {outcome(lambda: os.kill(os.getpid(), signal.SIGSTOP))}")
            say(f"copy forks: {outcome(os.fork)}")
            os._exit(0)
        os.waitpid(pid, 0)
        say(f"original to all: {outcome(lambda: os.kill(-1, 0))}")
        say(f"original to group: {outcome(lambda: os.kill(0, 0))}")
        say(f"original to parent: {outcome(lambda: os.kill(os.getppid(), 0))}")

    guest = Guest(signals, plan(), most_tasks=None, processes=False)

    assert guest.serve() == [
        "copy to itself: 2",
        # To the original's id the filter says yes, and Landlock: they are one domain.
        "copy to original: ok",
        "copy stops itself: EPERM",
        "copy forks: EPERM",
        "original to all: EPERM",
        "original to group: EPERM",
        "original to parent: EPERM",
    ]


def test_the_original_can_not_kill_the_snapshot_that_would_replace_it(plan):
    def kills(say, ask):
        say("snapshot")
        ask()
        pid = os.fork()
        if pid == 0:
            time.sleep(0.3)
            say("copy lives")
            os._exit(0)
        say(outcome(lambda: os.kill(pid, signal.SIGKILL)))
        os.waitpid(pid, 0)

    guest = Guest(kills, plan(), most_tasks=None, processes=False)

    assert guest.serve() == ["EPERM", "copy lives"]


def test_processes_and_threads_are_counted_together_where_they_are_allowed(plan):
    def spawn(say, _ask):
        some = []
        say(
            outcome(
                lambda: [some.append(subprocess.Popen(["/usr/bin/sleep", "5"])) for _ in range(30)]
            )
        )
        say(len(some))
        say(outcome(some[0].kill))
        say(some[0].wait())
        say(outcome(lambda: os.kill(os.getppid(), 0)))

    roots = ("/usr/bin", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", *LIBRARIES)
    guest = Guest(spawn, plan(subprocess=True, read_roots=roots), most_tasks=10, processes=True)
    said = guest.serve()

    assert said[0] == "EAGAIN"
    assert 5 <= int(said[1]) <= 9
    assert said[2:] == ["ok", "-9", "EPERM"]


def test_when_the_holder_lets_go_nothing_starts_any_more(plan):
    def wait(say, ask):
        say("ready")
        ask()
        say(outcome(threading.Thread(target=int).start))
        say(outcome(os.fork))

    guest = Guest(wait, plan(), most_tasks=None, processes=False)
    poll = select.poll()
    poll.register(guest.gate.fileno(), select.POLLIN)
    while not select.select([guest.ours], [], [], 0)[0]:
        if poll.poll(50):
            guest.gate.answer()
    guest.gate.close()
    guest.ours.send(b"go")
    said = b"".join(iter(lambda: guest.ours.recv(4096), b"")).decode().split("\n")
    os.waitpid(guest.pid, 0)

    assert said[:3] == ["ready", "can't start new thread", "ENOSYS"]


THREAD, FORK = 0x3D0F00, 17


@pytest.mark.parametrize(
    ("call", "args", "processes", "expected"),
    [
        ("clone", (THREAD,), False, 0),
        ("clone", (FORK,), False, errno.EPERM),
        ("clone", (FORK,), True, 0),
        ("clone", (FORK | 0x10000000,), True, errno.EPERM),
        ("vfork", (0,), True, 0),
        ("vfork", (0,), False, errno.EPERM),
        ("kill", (1, 9), False, errno.EPERM),
        ("kill", (1, 9), True, errno.EPERM),
        ("tgkill", (os.getpid(), 1, 9), False, 0),
    ],
)
def test_decisions(call, args, processes, expected):
    decider = Gate(-1, MACHINE, most_tasks=None, processes=processes)
    args = tuple(os.getpid() if arg == os.getpid() else arg for arg in args)

    assert decider.decide(Request(1, os.getpid(), call, args)) == expected


def test_a_fork_that_was_not_taken_can_be_withdrawn():
    decider = Gate(-1, MACHINE, most_tasks=None, processes=False)
    decider.allow_fork(os.getpid())
    decider.withdraw_fork()

    assert decider.decide(Request(1, os.getpid(), "clone", (FORK,))) == errno.EPERM


@pytest.mark.parametrize(
    ("due", "expected"), [(None, 0), (os.getpid(), 0), (os.getppid(), errno.EPERM)]
)
def test_a_fork_is_for_whom_it_is_due_to(due, expected):
    decider = Gate(-1, MACHINE, most_tasks=None, processes=False)
    decider.allow_fork(due)

    assert decider.decide(Request(1, os.getpid(), "clone", (FORK,))) == expected
    assert decider.decide(Request(1, os.getpid(), "clone", (FORK,))) == errno.EPERM


def test_a_task_that_is_gone_starts_nothing_and_signals_nobody():
    decider = Gate(-1, MACHINE, most_tasks=1, processes=False)
    gone = 2**22 + 1

    assert decider.decide(Request(1, gone, "kill", (gone, 9))) == errno.EPERM


@pytest.mark.parametrize("call", ["clone", "vfork", "kill", "tgkill"])
@pytest.mark.parametrize("processes", [False, True])
def test_a_task_that_ends_while_its_call_is_decided_costs_no_more_than_the_call(call, processes):
    decider = Gate(-1, MACHINE, most_tasks=1, processes=processes)
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    decider.allow_fork(ended.pid)

    assert decider.decide(Request(1, ended.pid, call, (FORK, 9))) == errno.EPERM


def test_descendants_that_come_and_go_while_they_are_looked_for_are_no_failure():
    churn = "import os\nfor _ in range(1000):\n    pid = os.fork() or os._exit(0)\n    os.wait()"
    parent = subprocess.Popen([sys.executable, "-c", churn])
    looks = 0
    while parent.poll() is None:
        looks += len([*gate.descendants(parent.pid), *gate.descendants(os.getpid())]) > 0

    assert looks
    assert parent.pid not in set(gate.descendants(os.getpid()))
