"""The gate for real: a guest in a child, its listener held here."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import mmap
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from cellblock.descriptors import is_readable
from cellblock.guest import snapshots
from cellblock.guest.confine import LOCKS, arch, confine, landlock, libc, notify
from cellblock.guest.confine.libc import LockFailed
from cellblock.guest.confine.notify import Gate, Request, Sessions
from cellblock.guest.confine.syscalls import Grants
from cellblock.wire.messages import Limits, Plan
from confine import simulator
from confine.cell import LIBRARIES
from confine.simulator import Call

MACHINE = arch.current()
PATIENCE = 20
#: What it takes to run a program of the system's.
PROGRAMS = ("/usr/bin", "/bin", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", *LIBRARIES)


def plan_of(*, most_tasks=None, processes=False, network=False, loopback=False):
    """Return what a gate decides by: where a test says nothing else, any number of threads."""
    return Plan(
        limits=Limits(max_processes=most_tasks),
        subprocess=processes,
        network=network,
        loopback=loopback,
    )


class Guest:
    """A gated child running ``program(say, ask)``; ``said`` collects what it says."""

    def __init__(self, program, plan, **options):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.pid = os.fork()
        if self.pid == 0:
            _child(program, plan, theirs)
        theirs.close()
        _, (listener,), _, _ = socket.recv_fds(self.ours, 1, 1)
        self.listener = listener
        self.gate = Gate(listener, MACHINE, plan_of(**options), Sessions(self.pid))
        self.said = []

    def serve(self):
        """Answer until the guest has gone; "snapshot" makes the next fork due."""
        poll = select.poll()
        poll.register(self.ours, select.POLLIN)
        poll.register(self.listener, select.POLLIN)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for fd, event in poll.poll(100):
                if fd == self.listener and event & select.POLLIN:
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


@contextlib.contextmanager
def running(*argv, **options):
    """Run a program meanwhile, in a session of its own."""
    with subprocess.Popen(argv, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def world(worlds):
    return worlds(os.getuid())  # the gate does not depend on who runs it


@pytest.fixture
def plan(world):
    return world.plan


def test_a_gated_guest_says_so(plan):
    guest = Guest(None, plan())

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
    guest = Guest(crowd, plan(), most_tasks=12)

    assert guest.serve() == ["can't start new thread", "11"]


def test_threads_are_free_where_no_number_is_set(plan):
    guest = Guest(crowd, plan())

    assert guest.serve() == ["60"]


def test_threads_that_start_threads_at_once_do_not_outrun_the_count(plan):
    class Counted(Guest):
        def _hear(self):
            line = self.ours.recv(4096).decode()
            if line:
                self.counted = notify.thread_count(self.pid)
                self.ours.send(b"go")
            return bool(line)

    def burst(say, ask):
        full = threading.Event()

        def more(depth):
            for _ in range(4 if depth else 0):
                thread = threading.Thread(target=more, args=(depth - 1,), daemon=True)
                if outcome(thread.start) != "ok":
                    full.set()
            time.sleep(PATIENCE)

        threading.Thread(target=more, args=(4,), daemon=True).start()
        full.wait()
        time.sleep(0.2)  # so that others get to try
        # Those that began a moment ago count twice: there may be room again.
        while outcome(threading.Thread(target=more, args=(0,), daemon=True).start) == "ok":
            pass
        say("count")
        ask()

    guest = Counted(burst, plan(), most_tasks=30)
    guest.serve()
    assert 20 < guest.counted <= 30


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

    guest = Guest(forks, plan())

    assert guest.serve() == ["EPERM", "EPERM"]


def test_a_signal_that_comes_while_a_snapshot_is_forked_costs_no_snapshot(plan):
    """Linux begins such a fork again (clone(2), ERESTARTNOINTR): the gate sees a second one."""

    class Signalled(Guest):
        def _hear(self):
            heard = super()._hear()
            if "waits" in self.said:
                self.said.remove("waits")
                # The call is stopped until it is answered.
                is_readable(self.listener, None)
                os.kill(self.pid, signal.SIGURG)
            return heard

    def forks(say, ask):
        seen = []
        signal.signal(signal.SIGURG, lambda *_: seen.append("handled"))
        for fork in (snapshots.fork, os.fork):
            say("snapshot")
            ask()
            say("waits")
            pid = 0
            try:
                pid = fork()
            except OSError as error:
                say(errno.errorcode[error.errno])
                continue
            if pid == 0:
                say(f"copy blocks {signal.pthread_sigmask(signal.SIG_BLOCK, ())}")
                os._exit(0)
            os.waitpid(pid, 0)
            say(f"original blocks {signal.pthread_sigmask(signal.SIG_BLOCK, ())}")
            say(seen.pop())

    guest = Signalled(forks, plan())

    *said, control = guest.serve()
    assert said == ["copy blocks set()", "original blocks set()", "handled"]
    # A fork that is not ours is interrupted, or begun again and not due: when the signal comes.
    assert control in {"EINTR", "EPERM"}


@pytest.mark.parametrize("processes", [False, True])
def test_a_snapshot_that_is_due_is_made_though_there_is_room_for_nothing(processes):
    gate = Gate(-1, MACHINE, plan_of(most_tasks=1, processes=processes), Sessions(os.getsid(0)))
    asked = Request(1, os.getpid(), "clone", (signal.SIGCHLD, 0, 0, 0, 0, 0))
    gate.allow_fork(os.getpid())
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(subprocess.Popen(["/bin/sleep", "60"]))
        stack.callback(program.kill)  # until then it takes what room there is
        assert gate.decide(asked) == 0
        assert gate.decide(asked) != 0


def test_a_fork_that_is_due_for_anybody_is_left_for_whom_none_is_due():
    gate = Gate(-1, MACHINE, plan_of(), Sessions(os.getpid()))
    gate.allow_fork(None)
    gate.allow_fork(os.getpid())
    asked = Request(1, os.getpid(), "clone", (signal.SIGCHLD, 0, 0, 0, 0, 0))
    assert gate.decide(asked) == 0
    gate.withdraw_fork((None,))
    assert gate.decide(asked) == 0
    assert gate.decide(asked) == errno.EPERM


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

    guest = Guest(signals, plan())

    assert guest.serve() == [
        "copy to itself: 2",
        "copy to original: EPERM",
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

    guest = Guest(kills, plan())

    assert guest.serve() == ["EPERM", "copy lives"]


def test_a_cell_that_may_start_programs_ends_its_own_and_no_snapshot():
    by = decider(processes=True)
    snapshot, program = (subprocess.Popen(["/usr/bin/sleep", "60"]) for _ in range(2))
    try:
        by.protect(snapshot.pid)
        for call, args in (("kill", ()), ("tgkill", (snapshot.pid,))):
            assert decide(by, call, snapshot.pid, *args, signal.SIGKILL) == errno.EPERM
        assert decide(by, "kill", program.pid, signal.SIGKILL) == 0
        by.protect(program.pid)
        program.kill()
        is_readable(os.pidfd_open(program.pid), None)
        assert decide(by, "kill", program.pid, signal.SIGKILL) == 0  # another's number from now on
    finally:
        for each in (snapshot, program):
            each.kill()
            each.wait()


def test_nobody_who_has_left_the_guests_group_comes_back():
    """Its ``kill(0)`` may have been let through already, as it was in a group of its own."""
    by, guest = decider(processes=True), os.getpid()
    with running("/bin/sleep", "60") as program:
        for group, expected in ((guest, errno.EPERM), (program.pid, 0), (0, 0)):
            assert decide(by, "setpgid", program.pid, group) == expected
            assert decide(by, "setpgid", 0, group, pid=program.pid) == expected
        assert decide(by, "setpgid", 0, 0) == errno.EPERM  # as by the OS kernel


def test_a_snapshot_that_took_over_stays_in_the_session_and_group_that_nobody_signals():
    """It leads neither: it could leave, and those that it forks would be signalled together."""
    by = decider(processes=True)
    with running("/bin/sleep", "60") as snapshot:
        by._sessions.begin(snapshot.pid, 0)
        group = -snapshot.pid & 0xFFFF_FFFF
        assert decide(by, "kill", group, signal.SIGKILL) == 0
        by.protect(snapshot.pid)
        assert decide(by, "setsid", pid=snapshot.pid) == errno.EPERM
        for target, asking in (
            (0, snapshot.pid),
            (snapshot.pid, snapshot.pid),
            (snapshot.pid, None),
        ):
            assert decide(by, "setpgid", target, 0, pid=asking) == errno.EPERM
        assert decide(by, "kill", group, signal.SIGKILL) == errno.EPERM
        assert decide(by, "kill", 0, signal.SIGKILL, pid=snapshot.pid) == errno.EPERM


def test_a_fork_begins_one_session_and_what_is_begun_from_there_is_its_own():
    by = decider(processes=True)
    with running("/bin/sleep", "60") as fork, running("/bin/sleep", "60") as program:
        # Each leads a session already, so that the gate alone says what it may.
        by._sessions.begin(fork.pid, 7)
        by.protect(fork.pid)
        by.allow_session(fork.pid)
        assert decide(by, "setsid", pid=fork.pid) == 0
        assert decide(by, "setsid", pid=fork.pid) == errno.EPERM
        assert decide(by, "setpgid", program.pid, fork.pid, pid=program.pid) == errno.EPERM
        by._sessions.begin(program.pid, 7)
        assert decide(by, "setsid", pid=program.pid) == 0
        assert by._sessions.user_of(program.pid) == 7


def test_who_is_of_a_fork_names_nothing_of_others_and_others_nothing_of_it():
    """To set a limit of the processor's time to nothing ends a process as a signal does."""
    by = decider(processes=True)
    naming = [("kill", (9,)), ("tgkill", (0, 9)), ("setpgid", (0,))]
    naming += [(call, (0, 0)) for call in notify.ABOUT if call != "getpriority"]
    with contextlib.ExitStack() as programs:
        first, beside, fork, its = (
            programs.enter_context(running("/bin/sleep", "60")).pid for _ in range(4)
        )
        for program, user in ((first, 0), (beside, 0), (fork, 7), (its, 7)):
            by._sessions.begin(program, user)
            assert decide(by, "execve", pid=program) == 0
        # Whoever started it: the guest that a fork comes from, or that goes on from one, did.
        pairs = [(first, beside, 0), (its, fork, 0), (first, its, 1), (its, first, 1)]
        for asking, target, refused in [*pairs, (os.getpid(), its, 1), (os.getpid(), first, 0)]:
            for call, rest in naming:
                expected = notify._REFUSED_WITH.get(call, errno.EPERM) if refused else 0
                assert decide(by, call, target, *rest, pid=asking) == expected, (call, target)
            expected = errno.EPERM if refused else 0
            assert decide(by, "getpriority", 0, target, pid=asking) == expected
            group = -target & 0xFFFF_FFFF
            assert decide(by, "kill", group, 9, pid=asking) == expected, "a group that is led"


def test_a_group_without_a_leader_is_named_by_those_of_its_user_alone():
    by = decider(processes=True)
    command = "sleep 60 & echo $!"
    options = {"stdout": subprocess.PIPE, "text": True}
    with running("/bin/sh", "-c", command, **options) as leader, running("sleep", "60") as fork:
        member = int(leader.stdout.readline())
        leader.wait()
        try:
            by._sessions.begin(leader.pid, 0)
            by._sessions.begin(fork.pid, 7)
            group = -leader.pid & 0xFFFF_FFFF
            assert decide(by, "kill", group, 9, pid=fork.pid) == errno.EPERM
            assert decide(by, "kill", group, 9) == 0
        finally:
            os.kill(member, signal.SIGKILL)


def test_a_snapshot_counts_for_nothing_and_what_it_starts_when_it_serves_does():
    threads = (
        "import threading, time\n"
        "for _ in range({}): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    for started, expected in ((0, 0), (9, errno.EAGAIN)):
        command = (sys.executable, "-c", threads.format(started))
        with running(*command, stdout=subprocess.PIPE) as snapshot:
            snapshot.stdout.readline()
            by = Gate(-1, MACHINE, plan_of(processes=True, most_tasks=9), Sessions(snapshot.pid))
            by.protect(snapshot.pid)
            assert decide(by, "clone", THREAD, pid=snapshot.pid) == expected


def test_a_start_counts_however_long_it_takes_and_no_longer(monkeypatch):
    """A fork of many mappings in a process that seldom runs, beside others that always do."""
    now = [0.0]
    monkeypatch.setattr(notify.time, "monotonic", lambda: now[0])
    with running("/bin/sh", "-c", "while :; do :; done") as slow:
        by = Gate(-1, MACHINE, plan_of(processes=True, most_tasks=2), Sessions(slow.pid))
        assert decide(by, "vfork", pid=slow.pid) == 0
        now[0] += 3_600
        assert decide(by, "vfork") == errno.EAGAIN
        slow.send_signal(signal.SIGSTOP)  # as no task is on the way to another
        os.waitid(os.P_PID, slow.pid, os.WSTOPPED)
        assert decide(by, "vfork") == 0
        assert decide(by, "kill", os.getpid(), 0) == 0  # it has begun none: it calls again
        slow.send_signal(signal.SIGCONT)
        assert decide(by, "vfork", pid=slow.pid) == 0
        assert decide(by, "vfork") == errno.EAGAIN
        assert decide(by, "kill", slow.pid, 0, pid=slow.pid) == 0
        assert decide(by, "vfork") == 0


def test_starts_of_threads_are_over_when_their_process_has_all_of_them(monkeypatch):
    """One that is there may be any of them, also of a task that has made another call since."""
    threads = {70: 1}
    monkeypatch.setattr(notify, "thread_count", threads.__getitem__)
    monkeypatch.setattr(notify, "_may_be_starting", lambda _: True)
    starts = notify.Starts()
    for task, is_thread in ((71, True), (72, True), (73, False)):
        starts.add(task, 70, 1, is_thread=is_thread)
    seen = []
    for threads[70], ends in ((2, 71), (2, 0), (3, 73)):
        starts.look()
        seen.append(len(starts))
        starts.end(ends)
    assert (seen, len(starts)) == ([3, 2, 1], 0)
    starts.add(72, 70, 3, is_thread=True)
    starts.look()
    assert len(starts) == 1


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

    guest = Guest(spawn, plan(subprocess=True, read_roots=PROGRAMS), most_tasks=10, processes=True)
    said = guest.serve()

    assert said[0] == "EAGAIN"
    assert 5 <= int(said[1]) <= 9
    assert said[2:] == ["ok", "-9", "EPERM"]


def test_a_program_has_sessions_and_groups_and_the_gate_knows_them(plan):
    def program(say, _ask):
        own = os.getpgid(0)
        child = os.fork()
        if child == 0:
            os.setsid()
            time.sleep(PATIENCE)
            os._exit(0)
        while os.getsid(child) != child:
            time.sleep(0.001)
        say("session")
        stranger = os.getppid()
        say(outcome(lambda: os.getpgid(stranger)))
        say(outcome(lambda: os.getsid(stranger)))
        say(outcome(lambda: os.setpgid(stranger, 0)))
        say(outcome(lambda: os.sched_getaffinity(stranger)))
        say(outcome(lambda: os.setpriority(os.PRIO_PROCESS, stranger, 1)))
        say(outcome(lambda: resource.prlimit(stranger, resource.RLIMIT_CORE)))
        say(outcome(lambda: os.killpg(os.getpgid(stranger), 0)))
        say(outcome(lambda: os.kill(-1, 0)))
        say(outcome(lambda: os.kill(0, 0)))  # whoever ends that ends the guest
        say(outcome(lambda: os.killpg(own, 0)))
        say(outcome(lambda: os.killpg(child, signal.SIGSTOP)))
        say(outcome(lambda: os.killpg(child, signal.SIGKILL)))
        say(os.waitpid(child, 0)[1])

    guest = Guest(program, plan(subprocess=True), processes=True)
    said = guest.serve()

    assert said[:7] == ["session", "EPERM", "EPERM", "EPERM", "ENOSYS", "EPERM", "EPERM"]
    assert said[7:] == ["EPERM", "EPERM", "EPERM", "EPERM", "EPERM", "ok", "9"]


def test_a_group_of_a_strangers_is_not_signalled_whatever_else_would_refuse_it():
    with running("/bin/sleep", "60") as one:
        group = -one.pid & 0xFFFF_FFFF
        strangers, ours = (
            Gate(-1, MACHINE, plan_of(processes=True), sessions)
            for sessions in (Sessions(os.getpid()), Sessions(os.getpid()))
        )
        ours._sessions.begin(one.pid, 0)
        assert decide(strangers, "kill", group, 15) == errno.EPERM
        assert decide(ours, "kill", group, 15) == 0


def test_a_program_ends_another_that_it_did_not_start_and_not_the_guest_or_what_it_forks(plan):
    def program(say, _ask):
        read, write = os.pipe()
        executed, executing = os.pipe()  # which ends when the last that has it has executed
        if os.fork() == 0:
            if (orphan := os.fork()) == 0:
                os.execv("/usr/bin/sleep", ["sleep", "60"])
            os.write(write, b"%d" % orphan)
            os._exit(0)
        os.close(executing)
        os.read(executed, 1)
        orphan = int(os.read(read, 10))
        os.wait()
        if (forked := os.fork()) == 0:
            time.sleep(PATIENCE)
            os._exit(0)
        for target in (forked, orphan):
            done = subprocess.run(["/usr/bin/env", "kill", "-9", str(target)], check=False)
            say(done.returncode)
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)

    guest = Guest(program, plan(subprocess=True, read_roots=PROGRAMS), processes=True)

    assert guest.serve() == ["1", "0"]


def test_a_shell_whose_child_ends_while_it_forks_sees_no_fork_fail(plan):
    def pipelines(say, _ask):
        shell = ["dash", "-c", "for i in 1 2 3; do echo $i | cat; done"]
        ended = subprocess.run(shell, capture_output=True, text=True, check=False)
        say(f"{ended.stdout}{ended.stderr}".replace("\n", " "))

    guest = Guest(pipelines, plan(subprocess=True, read_roots=PROGRAMS), processes=True)
    answer = guest.gate.answer

    def late():
        time.sleep(0.02)  # the first part of a pipeline has ended by then
        return answer()

    guest.gate.answer = late

    assert guest.serve() == ["1 2 3 "]


SA_RESTART = 0x10000000
#: A program that sets a handler for SIGCHLD which restarts nothing, and reads its flags.
HANDLES = (
    "import ctypes, signal, sys\n"
    "class Action(ctypes.Structure):\n"
    "    _fields_ = [(name, ctypes.c_ulong) for name in ('handler', 'flags', 'restorer', 'mask')]\n"
    "def flags(mask):\n"
    "    new, now = Action(1 << 20, 0x04000000, 1 << 20, mask), Action()\n"
    "    libc = ctypes.CDLL(None)\n"
    "    assert libc.syscall(13 if sys.argv[1] == 'x86_64' else 134, 17, ctypes.byref(new), 0, 8) == 0\n"
    "    signal.signal(signal.SIGCHLD, signal.SIG_DFL)\n"
    "    return new.flags & 0x10000000\n"
)


def test_a_handler_is_left_as_it_is_but_a_shells(plan):
    """As of a program that blocks one signal meanwhile, and of a guest, which is no program."""
    both = HANDLES + "said = [flags(1 << 1), flags(2 ** 64 - 1)]\n"

    def program(say, _ask):
        here = {}
        sys.argv[1:] = [MACHINE.name]
        exec(both, here)
        say(here["said"])
        told = [sys.executable, "-c", both + "print(said)", MACHINE.name]
        say(subprocess.run(told, capture_output=True, text=True, check=False).stdout.strip())

    roots = (*PROGRAMS, sys.prefix, sys.base_prefix)
    guest = Guest(program, plan(subprocess=True, read_roots=roots), processes=True)

    assert guest.serve() == ["[0, 0]", f"[0, {SA_RESTART}]"]


def test_the_zygote_touches_no_memory_that_another_process_may_have(plan):
    """Who has it could keep it locked, and the zygote waiting."""
    sharing = HANDLES + (
        "import os\n"
        "libc = ctypes.CDLL(None)\n"
        "said, stack = [flags(2 ** 64 - 1)], ctypes.create_string_buffer(1 << 20)\n"
        "def child(_):\n"
        "    libc.execve(b'/nonexistent', 0, 0)\n"
        "    said.append(flags(2 ** 64 - 1))\n"
        "    os._exit(0)\n"
        "run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(child)\n"
        "shared_until_it_ends = 0x100 | 0x4000 | 17\n"  # CLONE_VM, CLONE_VFORK, SIGCHLD
        "clone = ctypes.PyDLL(None).clone\n"  # it keeps the interpreter's lock for the child
        "clone(run, ctypes.byref(stack, 1 << 19), shared_until_it_ends, None)\n"
        "os.wait()\n"
        "print([*said, flags(2 ** 64 - 1)])\n"
    )

    def program(say, _ask):
        argv = [sys.executable, "-c", sharing, MACHINE.name]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        say(f"{done.stdout}{done.stderr}".strip())

    roots = (*PROGRAMS, sys.prefix, sys.base_prefix)
    guest = Guest(program, plan(subprocess=True, read_roots=roots), processes=True)

    assert guest.serve() == [f"[{SA_RESTART}, 0, 0]"]


@pytest.mark.parametrize("anonymous", [True, False])
def test_the_zygote_touches_no_memory_that_is_a_files(monkeypatch, tmp_path, anonymous):
    """Whoever truncates a file keeps it locked, and who reads of it waiting."""
    touched = []
    monkeypatch.setattr(notify, "read_memory", lambda *_: touched.append(True) or bytes(32))
    file = tmp_path / "file"
    file.write_bytes(bytes(mmap.PAGESIZE))
    shows = (
        "import ctypes, mmap, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "fd = -1 if len(sys.argv) > 2 else file.fileno()\n"
        "mapped = mmap.mmap(fd, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)\n"
        "print(ctypes.addressof(ctypes.c_char.from_buffer(mapped)), flush=True)\n"
        "sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", shows, file, *["anonymous"] * anonymous]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as program:
        by = decider(processes=True)
        monkeypatch.setattr(by, "_has_own_memory", lambda _: True)
        by._make_calls_restart(1, program.pid, int(program.stdout.readline()))
        program.stdin.close()
    assert touched == [True] * anonymous


def test_what_a_program_starts_counts_in_a_session_of_its_own_too(plan):
    def program(say, _ask):
        started = []

        def start():
            while True:
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    time.sleep(PATIENCE)
                    os._exit(0)
                while os.getsid(pid) != pid:
                    time.sleep(0.001)
                started.append(pid)

        say(outcome(start))
        say(len(started))
        for pid in started:  # they have the channel, too
            os.kill(pid, signal.SIGKILL)

    guest = Guest(program, plan(subprocess=True), most_tasks=6, processes=True)
    said = guest.serve()

    assert said[0] == "EAGAIN"
    assert 3 <= int(said[1]) <= 5


def test_sessions_that_have_ended_are_forgotten():
    told = []
    sessions = Sessions(os.getsid(0), told.append)
    for number in range(2**22 - 200, 2**22):  # which no process has
        sessions.begin(number, 0)
    assert len(told) == 200
    assert len(list(sessions)) <= 64
    assert os.getsid(0) in sessions
    sessions.begin(os.getsid(0), 0)
    assert len(told) == 200


def test_a_session_is_kept_while_anybody_is_in_it_though_a_walk_misses_them(monkeypatch):
    """As of a daemon whose parent ends between the look at its new parent and the one at itself."""
    monkeypatch.setattr(notify, "descendants", lambda _: iter(()))
    sessions = Sessions(os.getsid(0))
    with running("/bin/sleep", "60") as daemon:
        for number in (daemon.pid, *range(2**22 - 200, 2**22)):
            sessions.begin(number, 0)
        assert daemon.pid in sessions


@pytest.mark.parametrize("missed", [(True, False), (False, True)])
def test_who_is_not_in_one_look_is_in_the_next(monkeypatch, missed):
    """As of a child that is made during the first, by a process that ends then."""
    misses, listed = [], os.listdir

    def look(path):
        found = listed(path)
        if path == "/proc" and misses and misses.pop(0):
            found.remove(str(one.pid))
        return found

    monkeypatch.setattr(notify.os, "listdir", look)
    with running("/bin/sleep", "60") as one:
        misses += missed
        assert (one.pid, one.pid) in list(notify.everybody())
        misses += missed
        notify.end_sessions(Sessions(one.pid), keep=())
        assert one.wait() == -signal.SIGKILL


@pytest.mark.parametrize("first", [False, True])
def test_a_stranger_whose_session_has_the_number_of_an_ended_one_is_not_ended(monkeypatch, first):
    def started():
        return subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)

    with started() as ours, started() as stranger:
        sessions = Sessions(stranger.pid if first else None)
        monkeypatch.setattr(notify, "descends", lambda pid, _: pid == ours.pid)
        for one in (ours, stranger):
            sessions.begin(one.pid, 0)
        notify.end_sessions(sessions, keep=())
        assert ours.wait() == -signal.SIGKILL
        assert stranger.poll() is None
        stranger.kill()


def test_whom_we_may_not_signal_is_not_ours(monkeypatch):
    def refuse(*_):
        raise PermissionError

    with running("/bin/sleep", "60") as one:
        monkeypatch.setattr(notify.signal, "pidfd_send_signal", refuse)
        notify.end_sessions(Sessions(one.pid), keep=())
        assert one.poll() is None


def test_a_session_is_ended_whatever_the_number_of_a_descriptor():
    read, write = os.pipe()
    held = [fcntl.fcntl(read, fcntl.F_DUPFD, 0) for _ in range(1_100)]
    try:
        with running("/bin/sleep", "60") as one:
            notify.end_sessions(Sessions(one.pid), keep=())
            assert one.wait() == -signal.SIGKILL
    finally:
        for fd in (read, write, *held):
            os.close(fd)


def test_when_the_holder_lets_go_nothing_starts_any_more(plan):
    def wait(say, ask):
        say("ready")
        ask()
        say(outcome(threading.Thread(target=int).start))
        say(outcome(os.fork))

    guest = Guest(wait, plan())
    poll = select.poll()
    poll.register(guest.listener, select.POLLIN)
    while not is_readable(guest.ours):
        if poll.poll(50):
            guest.gate.answer()
    guest.gate.close()
    guest.ours.send(b"go")
    said = b"".join(iter(lambda: guest.ours.recv(4096), b"")).decode().split("\n")
    os.waitpid(guest.pid, 0)

    assert said[:3] == ["ready", "can't start new thread", "ENOSYS"]


THREAD, FORK = 0x3D0F00, 17


def decider(**options):
    return Gate(-1, MACHINE, plan_of(**options), Sessions(os.getpid()))


def decide(by, call, *args, pid=None):
    return by.decide(Request(1, pid or os.getpid(), call, args))


def test_decisions():
    for call, args, processes, expected in (
        ("clone", (THREAD,), False, 0),
        ("clone", (FORK,), False, errno.EPERM),
        ("clone", (FORK,), True, 0),
        ("clone", (FORK | 0x10000000,), True, errno.EPERM),
        ("vfork", (0,), True, 0),
        ("vfork", (0,), False, errno.EPERM),
        ("kill", (1, 9), False, errno.EPERM),
        ("kill", (1, 9), True, errno.EPERM),
        ("tgkill", (os.getpid(), 1, 9), False, 0),
    ):
        by = decider(processes=processes)
        assert decide(by, call, *args) == expected, (call, args, processes)


#: What one guest's gate is asked about, and by which arguments.
ASKED = [
    ({}, "clone", (FORK,), True),
    ({}, "landlock_restrict_self", (3, 0), True),
    ({}, "kill", (4242, 15), True),  # a fork is under the filter of the guest that it comes from
    ({}, "kill", (4243, 15), True),
    ({}, "socket", (2, 1, 0), False),
    ({}, "execve", (1,), False),
    ({}, "setsid", (), True),
    ({}, "setpgid", (0, 0), False),
    ({}, "getpgid", (0,), False),
    *(({}, call, (4242, 4242), True) for call in notify.ABOUT),
    ({}, "rt_sigaction", (17, 1), False),
    ({"subprocess": True}, "rt_sigaction", (17, 1), True),
    ({"subprocess": True}, "rt_sigaction", (2, 1), False),
    ({"subprocess": True}, "setsid", (), True),
    ({"subprocess": True}, "setpgid", (0, 0), True),
    ({"subprocess": True}, "getpgid", (0,), False),
    *(({"subprocess": True}, call, (4242, 4242), True) for call in notify.ABOUT),
    ({"subprocess": True}, "getpgid", (4243,), True),
    ({"subprocess": True}, "prlimit64", (0, 7, 1, 1), False),
    ({"subprocess": True}, "prlimit64", (4243, 7, 0, 1), True),
    ({"subprocess": True}, "getpriority", (0, 0), False),
    ({"subprocess": True}, "getpriority", (0, 4243), True),
    ({"subprocess": True}, "setpriority", (0, 4243, 1), False),
    ({"subprocess": True}, "sched_setaffinity", (4243, 8, 1), True),
    ({}, "openat", (0, 1, 0), False),
    ({"subprocess": True}, "execve", (1,), True),
    *(({"network": True}, call, (3, 1, 16), True) for call in notify.REACHING),
    ({"network": True}, "sendto", (3, 1, 1, 0, 0, 0), False),
    ({"network": True}, "sendto", (3, 1, 1, 0, 0x1000, 16), True),
    ({"network": True}, "sendto", (3, 1, 1, 0, 1 << 40, 16), True),
    ({"network": True}, "sendmsg", (3, 1, 0), True),
    ({"network": True}, "sendmsg", (3, 1, 4), False),  # the main filter's to refuse
    ({"network": True}, "sendmsg", (3, 1, 0x4004), True),
    ({"network": True}, "write", (3, 1, 1), False),
    ({}, "epoll_ctl", (3, 1, 4), True),
    ({}, "epoll_ctl", (3, 2, 4), False),
    ({"network": True}, "recvmsg", (3, 1, 0), False),
]


@pytest.mark.parametrize("machine", arch.KNOWN)
def test_the_zygote_is_asked_about_what_may_change_and_about_nothing_on_the_way(machine):
    known = arch.named(machine)
    for grants, call, args, asked in ASKED:
        if call not in known.numbers:
            continue
        program = notify.build(known, Grants(**grants)).filled(4242)
        answer = simulator.run(program, Call(known.numbers[call], known.audit, args).packed)
        assert (answer == notify.RET_USER_NOTIF) is asked, (grants, call, args)


@pytest.fixture
def program():
    """Return the process id of a program that runs."""
    with running("sleep", str(PATIENCE)) as process:
        yield process.pid


def test_a_guest_does_not_execute_a_program_itself(program):
    """Nothing of the session would be left, and who reads of the guest meanwhile would wait."""
    by = decider(processes=True)
    assert decide(by, "execve") == errno.EPERM
    assert decide(by, "execve", pid=program) == 0


def test_who_starts_a_process_that_shares_its_memory_is_no_program_by_that(program):
    """Any program could end it then: the guest starts programs so (vfork)."""
    by = decider(processes=True)
    with running("sleep", str(PATIENCE)) as guest:
        by._sessions.begin(guest.pid, 0)
        assert decide(by, "vfork", pid=guest.pid) == 0
        assert decide(by, "kill", guest.pid, 9, pid=program) == errno.EPERM
        assert decide(by, "execve", pid=guest.pid) == 0
        assert decide(by, "kill", guest.pid, 9, pid=program) == 0


def test_networks_and_programs_are_as_the_policy_has_them_by_now(program):
    for call in (*notify.REACHING, "sendto", "sendmsg", "execve"):
        by = decider(processes=True, network=True)
        assert decide(by, call, 0, 0, 0, pid=program) == 0, call
        by.plan = plan_of()
        assert decide(by, call, 0, 0, 0, pid=program) in {errno.EACCES, errno.EPERM}, call


def test_a_guest_does_not_use_up_what_the_users_epolls_may_watch(plan, monkeypatch):
    monkeypatch.setattr(notify, "WATCHES", 20)
    monkeypatch.setattr(notify, "REGROWN", 1 << 40)

    def watch(say, _ask):
        watched, polls = socket.socketpair()[0], [select.epoll() for _ in range(30)]
        poll = select.epoll()
        poll.register(watched)
        poll.modify(watched, 0)
        poll.unregister(watched)
        say(outcome(lambda: [poll.register(watched) for poll in polls[:19]]))
        say(outcome(lambda: polls[19].register(watched)))

    guest = Guest(watch, plan())

    assert guest.serve() == ["ok", "ENOSPC"]


@pytest.mark.parametrize(
    ("most", "calls", "refused"),
    [
        ("WATCHES", ["epoll_ctl"], errno.ENOSPC),
        ("PORTS", ["bind", "listen"], errno.EADDRINUSE),
    ],
)
def test_what_may_be_taken_of_what_all_programs_share_grows_with_time(
    monkeypatch, most, calls, refused
):
    now = [0.0]
    monkeypatch.setattr(notify, most, 1_000)
    monkeypatch.setattr(notify.time, "monotonic", lambda: now[0])
    by = decider(network=True)

    def take():
        calls.reverse()
        return decide(by, calls[0], 3, 1, 4)

    assert {take() for _ in range(1_000)} == {0}
    assert take() == refused
    now[0] += 1.5 * notify.REGROWN / 1_000
    assert (take(), take()) == (0, refused)


@pytest.mark.parametrize(
    ("most", "call", "refused"),
    [("WATCHES", "epoll_ctl", errno.ENOSPC), ("PORTS", "bind", errno.EADDRINUSE)],
)
def test_a_fork_takes_nothing_of_what_others_may_take(monkeypatch, most, call, refused):
    monkeypatch.setattr(notify, most, 5)
    monkeypatch.setattr(notify, "REGROWN", 1 << 40)
    by = decider(network=True)
    with running("/bin/sleep", "60") as fork:
        by._sessions.begin(fork.pid, 7)
        assert {decide(by, call, 3, 1, 4, pid=fork.pid) for _ in range(5)} == {0}
        assert decide(by, call, 3, 1, 4, pid=fork.pid) == refused
        assert {decide(by, call, 3, 1, 4) for _ in range(5)} == {0}


def test_a_network_with_many_sockets_has_no_more_for_datagrams_if_it_is_the_sessions_own(
    monkeypatch,
):
    """There are some already, whatever this process has: those of all kinds count."""
    flags = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    datagrams = [(family, socket.SOCK_DGRAM | more) for family in (2, 10) for more in (0, flags)]
    others = [(socket.AF_INET, socket.SOCK_STREAM | flags), (socket.AF_UNIX, socket.SOCK_DGRAM)]
    with socket.socket():
        for most, refused in ((1, errno.ENOBUFS), (1 << 30, 0)):
            monkeypatch.setattr(notify, "MOST_SOCKETS", most)
            own, shared = decider(loopback=True), decider(network=True)
            assert {decide(own, "socket", *made, 0) for made in datagrams} == {refused}
            assert {decide(own, "socket", *made, 0) for made in others} == {0}
            assert {decide(shared, "socket", *made, 0) for made in datagrams} == {0}


def test_a_snapshot_shares_nothing_with_whoever_forks_it():
    for shared in (0x100, 0x200, 0x400, 0x800):
        by = decider()
        by.allow_fork(None)
        assert decide(by, "clone", FORK | shared) == errno.EPERM
        assert decide(by, "clone", FORK) == 0


# --- more locks -----------------------------------------------------------------------------------


class Locked(Guest):
    """A gated child on which one more ruleset can be laid, when it says "lock"."""

    def __init__(self, program, plan, narrower, **options):
        super().__init__(program, plan)
        self.narrower, self.options, self.done = narrower, options, []

    def serve(self):
        self.ruleset = landlock.ruleset(self.narrower, 1)
        return super().serve()

    def _hear(self):
        line = self.ours.recv(4096).decode()
        for word in line.splitlines():
            if word == "lock":
                done = functools.partial(self.done.append, "done")
                pid = self.options.get("pid", self.pid)
                due = notify.DueRuleset(pid, self.ruleset, self.narrower.limits, done)
                self.gate.expect_ruleset(due)
                self.ours.send(b"go")
            else:
                self.said.append(word)
        return bool(line)


def reads(path):
    return outcome(lambda: os.close(os.open(path, os.O_RDONLY)))


@pytest.fixture
def narrower(plan, world):
    """Return a plan with less to read and to open; tests before this one may have left files open."""
    return plan(read_roots=(str(world.readable),), limits=Limits(max_open_files=150))


def lay(number, flags=0):
    return outcome(lambda: libc.syscall(MACHINE.numbers["landlock_restrict_self"], number, flags))


def test_a_ruleset_of_the_zygotes_is_laid_on_who_asks_when_it_is_due(plan, narrower, world):
    def program(say, ask):
        say(f"before {lay(os.dup(1))} {reads(LIBRARIES[0])}")
        say("lock")
        ask()
        say(f"now {lay(os.dup(1))} {reads(LIBRARIES[0])} {reads(world.readable)}")
        say(f"files {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}")
        say(f"again {lay(os.dup(1))}")

    guest = Locked(program, plan(), narrower)
    said = " ".join(guest.serve())
    assert said == "before EPERM ok now ok EACCES ok files 150 again EPERM"
    assert guest.done == ["done"]


def test_a_flag_that_may_have_it_fail_is_no_way_to_be_taken_for_locked_nor_a_bad_number(
    plan, narrower
):
    for number, flags in ((1, 1), (1, 1 << 10), (1, 1 << 31), (-1, 0), (10**6, 0), (2**31 - 1, 0)):

        def program(say, ask, number=number, flags=flags):
            say("lock")
            ask()
            number = os.dup(number) if flags else number
            say(f"{lay(number, flags)} {reads(LIBRARIES[0])}")

        guest = Locked(program, plan(), narrower)
        assert " ".join(guest.serve()) == "EPERM ok", (number, flags)
        assert guest.done == []


def test_nobody_else_gets_the_ruleset_and_no_thread_does(plan, narrower):
    def program(say, ask):
        say("lock")
        ask()
        found = []
        thread = threading.Thread(target=lambda: found.append(lay(os.dup(1))))
        say(outcome(thread.start).split()[0])  # nothing starts while a lock is due

    guest = Locked(program, plan(), narrower)
    assert guest.serve() == ["can't"]

    def other(say, ask):
        say("lock")
        ask()
        say(lay(os.dup(1)))

    guest = Locked(other, plan(), narrower, pid=os.getpid())
    assert guest.serve() == ["EPERM"]
    assert guest.done == []


def test_a_thread_that_was_there_before_keeps_the_ruleset_away(plan, narrower):
    def program(say, ask):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        say("lock")
        ask()
        say(lay(os.dup(1)))

    guest = Locked(program, plan(), narrower)
    assert guest.serve() == ["EPERM"]


def test_a_fork_waits_for_its_own_lock_and_keeps_nobody_else_from_anything(narrower):
    by, pid = decider(), os.getpid()
    others = landlock.ruleset(narrower, 1)
    by.allow_fork(pid + 1)
    due = notify.DueRuleset(pid, others, narrower.limits, lambda: None, alone=False)
    by.expect_ruleset(due)
    second = notify.DueRuleset(
        pid + 1, landlock.ruleset(narrower, 1), narrower.limits, lambda: None, alone=False
    )
    by.expect_ruleset(second)
    assert decide(by, "clone", THREAD) == errno.EPERM  # it has no lock yet
    by.allow_fork(pid + 1)  # gives up the second, and leaves the first due
    os.fstat(others)
    by.expect_ruleset(notify.DueRuleset(pid, os.dup(others), narrower.limits, lambda: None))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(others)


def test_a_lock_that_was_due_is_not_when_a_snapshot_is(narrower):
    ruleset = landlock.ruleset(narrower, 1)
    by = decider()
    pid = os.getpid()
    by.expect_ruleset(notify.DueRuleset(pid, ruleset, narrower.limits, lambda: None))
    assert decide(by, "clone", THREAD) == errno.EPERM
    by.allow_fork(None)
    assert decide(by, "landlock_restrict_self", 1, 0) == errno.EPERM
    assert decide(by, "clone", THREAD) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(ruleset)


def test_a_ruleset_that_no_more_fits_is_known_before_anything_is_ended(narrower):
    with pytest.raises(LockFailed, match="narrowed too often"):
        landlock.ruleset(narrower, landlock.MOST_AGAIN + 1)
    handle = landlock.handled(landlock.abi(MACHINE), network=False)
    assert landlock._fits(handle, 2)
    assert not landlock._fits(handle, 17)


def test_a_fork_that_was_not_taken_can_be_withdrawn():
    by = decider()
    by.allow_fork(os.getpid())
    by.withdraw_fork()

    assert decide(by, "clone", FORK) == errno.EPERM


def test_a_fork_is_for_whom_it_is_due_to():
    for due, expected in ((None, 0), (os.getpid(), 0), (os.getppid(), errno.EPERM)):
        by = decider()
        by.allow_fork(due)
        assert decide(by, "clone", FORK) == expected, due
        assert decide(by, "clone", FORK) == errno.EPERM


@pytest.mark.parametrize("call", notify.STARTING)
@pytest.mark.parametrize("to_anybody", [False, True])
def test_a_thread_of_a_cells_does_not_take_the_fork_that_is_due(call, to_anybody):
    """It would be the snapshot: with the thread's state, and what the cell has it do."""
    by = decider()
    by.allow_fork(None if to_anybody else os.getpid())
    answers = []

    def ask():
        answers.append(decide(by, call, FORK, pid=threading.get_native_id()))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()

    assert answers == [errno.EPERM]
    assert decide(by, call, FORK) == 0  # it is still due to the main thread


def test_a_task_that_is_gone_or_ends_while_its_call_is_decided_costs_no_more_than_the_call():
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    for processes in (False, True):
        for call in ("clone", "vfork", "kill", "tgkill"):
            by = decider(most_tasks=1, processes=processes)
            by.allow_fork(ended.pid)
            assert decide(by, call, FORK, 9, pid=ended.pid) == errno.EPERM, (call, processes)
    assert decide(decider(most_tasks=1), "kill", ended.pid, 9, pid=ended.pid) == errno.EPERM


def test_descendants_that_come_and_go_while_they_are_looked_for_are_no_failure():
    churn = "import os\nwhile True:\n    pid = os.fork() or os._exit(0)\n    os.wait()"
    parent = subprocess.Popen([sys.executable, "-c", churn])
    try:
        for _ in range(200):
            assert [*notify.descendants(parent.pid), *notify.descendants(os.getpid())]
    finally:
        parent.kill()
        parent.wait()
    assert parent.pid not in set(notify.descendants(os.getpid()))
