"""What a guest takes, read from outside: a process of our own stands in for the guest."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cellblock.guest.confine import arch
from cellblock.host.limits import family as of_family
from cellblock.host.limits import kernel_memory, scratch
from cellblock.host.limits import processes as of_processes
from cellblock.host.limits.family import Family
from cellblock.host.limits.kernel_memory import KernelMemory
from cellblock.host.limits.monitor import (
    FAMILY_PACE,
    FIRST_LOOK,
    IDLE_MOST,
    IDLE_PACE,
    MOST_UNSEEN,
    PACE,
    Monitor,
)
from cellblock.host.limits.processes import Gauge
from cellblock.host.limits.scratch import STUCK
from cellblock.host.limits.shared_memory import SharedMemory
from cellblock.host.limits.shares import Shares, have_one_memory
from cellblock.policy.model import Policy
from support import processes
from support.simulator import NOBODYS_PID, Reactor

MACHINE = arch.current()


@pytest.fixture
def process():
    """Start a Python that runs lines of its input and says when each is done."""
    program = (
        "import sys\nfor line in sys.stdin:\n    exec(line, globals())\n    print(flush=True)\n"
    )
    pipe = subprocess.PIPE
    # In a session of its own, as a guest is: the tests' own one has a browser's processes in it.
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, start_new_session=True
    ) as made:
        do(made, "import os, time; kept = []")
        yield made
        made.stdin.close()
        made.kill()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait for each look at the scratch folder, however busy this machine is."""
    monkeypatch.setattr(scratch, "PATIENCE", 60)


def do(process, line):
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"\n"


def policy(**limits):
    return Policy().replace(**{"memory_max_bytes": None, "scratch_max_bytes": None} | limits)


def watched(process, scratch="", **limits):
    reactor, seen = Reactor(), []
    monitor = Monitor(
        reactor,
        policy(**limits),
        (scratch,),
        lambda: reactor.now,
        lambda *excess: seen.append(excess),
    )
    monitor.begin(process.pid)
    return reactor, monitor, seen


BURN = "end = time.process_time() + {}\nwhile time.process_time() < end: pass"


def burn(process, seconds):
    do(process, f"exec({BURN.format(seconds)!r})")


def fork(process, does):
    do(process, f"child = os.fork() or ({does}, time.sleep(60), os._exit(0))")


def bury(process):
    do(process, "os.kill(child, 9); os.waitpid(child, 0)")


def test_bounds_that_become_narrower_count_from_the_next_request_on(process):
    reactor, monitor, seen = watched(process)
    do(process, "kept.append(bytearray(150_000_000))")
    reactor.advance(FIRST_LOOK + PACE)
    assert seen == []
    monitor.end()
    monitor.narrow_to(policy(memory_max_bytes=50_000_000))
    monitor.begin(process.pid)
    reactor.advance(FIRST_LOOK)
    assert seen == [("memory", True)]


@pytest.mark.parametrize("in_fork", [False, True])
def test_pages_of_files_that_are_mapped_often_are_too_many(process, monkeypatch, tmp_path, in_fork):
    """Who unmaps them holds up whoever waits for what that locks, and no signal ends it."""
    monkeypatch.setattr("cellblock.host.limits.monitor.MOST_MAPPED", 256 << 20)
    (tmp_path / "large").write_bytes(bytes(16 << 20))
    reactor, _, seen = watched(process, subprocess_execution=True)
    do(process, f"import mmap; file = open({str(tmp_path / 'large')!r}, 'rb')")
    once = "[kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)), sum(kept[-1][::4096])]"
    do(process, once)
    reactor.advance(FIRST_LOOK + PACE)
    assert seen == []
    maps = f"[{once} for _ in range(20)]"
    if in_fork:
        fork(process, f"{maps}, open({str(tmp_path / 'done')!r}, 'w').close()")
        processes.until((tmp_path / "done").exists)
    else:
        do(process, maps)
    reactor.advance(PACE)
    assert seen == [("mapped", True)]


def test_memory_that_range_locks_take_counts_for_who_has_many(process, monkeypatch):
    monkeypatch.setattr(kernel_memory, "MANY_LOCKS", 500)
    sizes = iter([*[300 << 20] * 2, *[400 << 20] * 3])
    monkeypatch.setattr(kernel_memory, "_unreclaimable", lambda: next(sizes))
    do(process, "import fcntl, tempfile; file = tempfile.TemporaryFile()")
    lock = "[fcntl.lockf(file, fcntl.{}, 1, at) for at in range(0, 2 * 600, 2)]"
    locks, seconds = KernelMemory(), itertools.count()

    assert locks.held(lambda: [process.pid], next(seconds)) == 0
    do(process, lock.format("LOCK_EX"))
    assert locks.held(lambda: [process.pid], next(seconds)) == 100 << 20
    assert locks.held(lambda: [os.getpid()], next(seconds)) == 0
    do(process, lock.format("LOCK_UN"))
    assert locks.held(lambda: [process.pid], next(seconds)) == 0


def test_locks_of_a_process_that_has_ended_count_for_who_shares_its_descriptors(
    process, monkeypatch
):
    monkeypatch.setattr(kernel_memory, "MANY_LOCKS", 500)
    sizes = iter([*[300 << 20] * 2, *[400 << 20] * 2])
    monkeypatch.setattr(kernel_memory, "_unreclaimable", lambda: next(sizes))
    locks, seconds = KernelMemory(), itertools.count()
    lock = "[fcntl.lockf(file, fcntl.LOCK_EX, 1, at) for at in range(0, 2 * 600, 2)]"
    clone_files = f"ctypes.CDLL(None).syscall({MACHINE.numbers['clone']}, 0x411, 0, 0, 0, 0)"
    do(process, "import ctypes, fcntl, tempfile; file = tempfile.TemporaryFile()")

    assert locks.held(lambda: [process.pid], next(seconds)) == 0
    do(process, f"child = {clone_files} or ({lock}, os._exit(0))")
    do(process, "os.waitpid(child, 0)")
    assert locks.held(lambda: [process.pid], next(seconds)) == 100 << 20
    do(process, "file.close()")
    assert locks.held(lambda: [process.pid], next(seconds)) == 0


def test_what_the_machine_took_counts_for_a_session_while_it_has_several_processes(monkeypatch):
    """Mappings of a process that descends from many by forks take kilobytes each."""
    sizes = iter(size << 20 for size in (300, 900, 1000, 1500, 1500, 1400))
    monkeypatch.setattr(kernel_memory, "_unreclaimable", lambda: next(sizes))
    kernel, seconds = KernelMemory(), itertools.count()
    alone, two = [NOBODYS_PID], [NOBODYS_PID] * 2
    assert kernel.held(lambda: alone, next(seconds)) == 0
    assert kernel.held(lambda: two, next(seconds)) == 100 << 20
    assert kernel.held(lambda: two, next(seconds)) == 600 << 20
    assert kernel.held(lambda: alone, next(seconds)) == 0
    assert kernel.held(lambda: two, next(seconds)) == 0


def test_a_process_that_is_called_as_a_field_is_shows_its_own_memory(process):
    do(process, "import ctypes; ctypes.CDLL(None).prctl(15, b'VmHWM: 99999999')")
    memory = of_processes.process_memory(process.pid)
    assert memory.peak < 1 << 30


SOCKETS = """
import socket, sys
kind = getattr(socket, sys.argv[1])
made = [socket.socket(socket.AF_UNIX, kind) for _ in range(int(sys.argv[2]))]
for number, each in enumerate(made): each.bind(f"\\0{number}")
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("own", "kind", "count", "least"),
    [
        (True, "SOCK_STREAM", 400, 100 * 208 << 10),
        (True, "SOCK_DGRAM", 100, 700 * 208 << 10),
        (True, "SOCK_STREAM", 100, 0),
        (False, "SOCK_STREAM", 400, 0),
    ],
)
def test_unix_sockets_of_a_network_of_its_own_count_by_what_they_may_hold(own, kind, count, least):
    apart = ["unshare", "--net", "--map-root-user"] * own
    argv = [*apart, sys.executable, "-c", SOCKETS, kind, str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as made:
        made.stdout.readline()
        held = kernel_memory.socket_memory(made.pid)
        made.stdin.close()
    assert (held >= least) if least else held == 0


def test_what_range_locks_take_is_in_the_memory_that_is_limited(process, monkeypatch):
    grown = 0
    monkeypatch.setattr(kernel_memory, "MANY_LOCKS", 500)
    monkeypatch.setattr(kernel_memory, "_unreclaimable", lambda: grown)
    reactor, monitor, seen = watched(process, memory_max_bytes=200 << 20)
    lock = "[fcntl.lockf(file, fcntl.LOCK_EX, 1, at) for at in range(0, 2 * 600, 2)]"
    do(process, "import fcntl, tempfile; file = tempfile.TemporaryFile()")
    do(process, lock)
    reactor.advance(FIRST_LOOK)
    assert seen == []
    burn(process, 0.2)
    grown = 300 << 20
    reactor.advance(PACE)
    assert seen == [("memory", True)]
    assert monitor.is_charged


def test_a_session_that_sleeps_is_not_charged_with_what_another_makes(monkeypatch):
    """A session with a sleeping program was stopped for another's sockets."""
    sizes = iter(size << 20 for size in (300, 900, 900, 1900))
    monkeypatch.setattr(kernel_memory, "_unreclaimable", lambda: next(sizes))
    kernel, two = KernelMemory(), [NOBODYS_PID] * 2
    assert kernel.held(lambda: two, 0.001) == 0
    assert kernel.held(lambda: two, 10.0) == 0  # what it did after that is no reason
    assert kernel.held(lambda: two, 10.25) == (512 << 20) + int(0.001 * kernel_memory.MADE)


def test_memory_of_the_os_kernels_is_read_here():
    assert kernel_memory._unreclaimable() > 1 << 20


STATUS = """
VmHWM:	  9 kB
VmRSS:	  8 kB
RssAnon:	  1 kB
RssFile:	  5 kB
RssShmem:	  2 kB
VmPTE:	  4 kB
VmSwap:	  16 kB
"""


def test_page_tables_and_what_was_swapped_out_are_held(monkeypatch):
    monkeypatch.setattr(of_processes, "read_proc", lambda _: STATUS.encode())
    assert of_processes.process_memory(NOBODYS_PID).held == (1 + 2 + 4 + 16) << 10


def test_memory_is_read_of_another_process(process):
    gauge = Gauge(process.pid)
    before = gauge.memory()
    do(process, "kept.append(b'x' * 50_000_000)")
    now = gauge.memory()
    assert now.held - before.held == pytest.approx(50_000_000, rel=0.1)
    assert now.peak >= now.resident
    assert now.resident == pytest.approx(gauge.resident(), rel=0.1)


def test_a_process_that_is_gone_has_nothing(process):
    gauge = Gauge(process.pid)
    assert gauge.memory() is not None
    process.kill()
    process.wait()
    assert (gauge.cpu(), gauge.memory(), gauge.resident()) == (None, None, None)
    gauge.close()


def test_a_request_over_its_processor_time_is_told_of_at_every_look(process):
    reactor, _, seen = watched(process, cpu_seconds=0.1)
    reactor.advance(FIRST_LOOK)
    assert seen == []
    burn(process, 0.2)
    reactor.advance(2.5 * PACE)
    assert seen == [("cpu", False)] * 2


def test_a_full_folder_is_told_of(process, tmp_path):
    (tmp_path / "file").write_bytes(bytes(2 << 20))
    reactor, _, seen = watched(process, scratch=str(tmp_path), scratch_max_bytes=1 << 20)
    reactor.advance(FIRST_LOOK)
    assert seen == [("scratch", False)]


class Lock:
    """A lock on each folder, which a look waits for, as a guest can have one."""

    def __init__(self, monkeypatch):
        self._walked, self._unlocked = threading.Event(), threading.Semaphore(0)
        self._patch, self._sizes = monkeypatch.setattr, scratch._sizes
        self._patch(scratch, "_sizes", self._read)
        for used in ("_used", "_entries_used"):  # others' files
            self._patch(scratch, used, lambda _: 0)
        self._patch(scratch, "PATIENCE", 0)

    def _read(self, folder, forks):
        assert threading.current_thread() is not threading.main_thread()
        self._walked.set()
        assert self._unlocked.acquire(timeout=60)
        return self._sizes(folder, forks)

    def wait_for_a_look(self):
        assert self._walked.wait(60)

    def open_once(self, monitor):
        self._unlocked.release()
        monitor._scratch._reading._thread.join(60)

    def open(self):
        self._unlocked.release(1_000)
        self._patch(scratch, "PATIENCE", 60)


@pytest.fixture
def lock(monkeypatch):
    made = Lock(monkeypatch)
    yield made
    made.open()


def test_a_folder_that_can_not_be_read_holds_nothing_up_and_counts_as_full(process, tmp_path, lock):
    reactor, monitor, seen = watched(process, scratch=str(tmp_path), scratch_max_bytes=1 << 20)
    reactor.advance(FIRST_LOOK)
    lock.wait_for_a_look()
    reactor.advance(STUCK - PACE)
    assert seen == []
    reactor.advance(2 * PACE)
    assert set(seen) == {("locked", False)}
    # The next cell did not lock it, and has as long; when it can be read, all is well.
    monitor.end()
    monitor.begin(process.pid)
    seen.clear()
    reactor.advance(STUCK)
    assert seen == []
    lock.open_once(monitor)
    lock.open()
    reactor.advance(2 * STUCK)
    assert seen == []


@pytest.mark.parametrize(("entries", "counts"), [(1, {("locked", False)}), (20, set())])
def test_a_folder_of_which_hardly_an_entry_is_read_stops_the_cell(
    process, tmp_path, lock, entries, counts
):
    reactor, monitor, seen = watched(process, scratch=str(tmp_path), scratch_max_bytes=1 << 20)
    reactor.advance(FIRST_LOOK)
    lock.wait_for_a_look()
    for _ in range(int(2 * STUCK / PACE)):
        monitor._scratch._scratch.entries += entries
        reactor.advance(PACE)
    assert set(seen) == counts


def test_a_cell_does_not_answer_for_what_a_look_finds_that_began_before_it(process, tmp_path, lock):
    (tmp_path / "left").write_bytes(bytes(2 << 20))
    reactor, monitor, seen = watched(process, scratch=str(tmp_path), scratch_max_bytes=1 << 20)
    reactor.advance(FIRST_LOOK)
    lock.wait_for_a_look()
    monitor.end()
    monitor.begin(process.pid)
    lock.open_once(monitor)
    reactor.advance(FIRST_LOOK)
    lock.open_once(monitor)
    lock.open()
    reactor.advance(1)
    assert seen == []
    (tmp_path / "more").write_bytes(bytes(1 << 20))
    reactor.advance(PACE)
    assert seen == [("scratch", False)]


def test_a_look_that_takes_its_time_is_heard_of_before_the_next_is_due(process, tmp_path, lock):
    reactor, monitor, seen = watched(process, scratch=str(tmp_path), scratch_max_bytes=1 << 20)
    monitor.end()
    reactor.advance(IDLE_PACE)
    lock.wait_for_a_look()
    lock.open_once(monitor)
    (tmp_path / "more").write_bytes(bytes(2 << 20))
    reactor.advance(IDLE_PACE + 2 * PACE)
    lock.open_once(monitor)
    reactor.advance(2 * PACE)
    assert ("scratch", True) in seen


def test_a_folder_that_no_thread_can_look_at_stops_the_cell(process, tmp_path, monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    reactor, _, seen = watched(process, scratch=str(tmp_path), scratch_max_bytes=1 << 20)
    monkeypatch.setattr(threading.Thread, "start", start)
    reactor.advance(STUCK)
    assert seen == []
    reactor.advance(2 * PACE)
    assert set(seen) == {("locked", False)}


def test_files_that_only_a_snapshot_still_has_are_the_sessions(process, tmp_path, monkeypatch):
    used = 0
    monkeypatch.setattr(scratch, "_used", lambda _: used)
    reactor, seen = Reactor(), []
    monitor = Monitor(
        reactor,
        policy(scratch_max_bytes=16 << 20),
        (str(tmp_path),),
        lambda: reactor.now,
        lambda *excess: seen.append(excess),
        copies=lambda: {os.getpid(): 0},
    )
    monitor.begin(process.pid)
    with (tmp_path / "kept").open("wb") as file:
        file.write(bytes(20 << 20))
        used = 20 << 20
        (tmp_path / "kept").unlink()
        reactor.advance(FIRST_LOOK)
    monitor.lost()
    assert seen == [("scratch", False)]


def test_what_a_request_took_is_told_at_its_end(process):
    reactor, monitor, _ = watched(process)
    burn(process, 0.1)
    do(process, "kept = [b'x' * 50_000_000]; kept.clear()")
    reactor.advance(1.5)
    monitor.output_bytes += 70
    usage = monitor.end(512)
    assert (usage.wall_seconds, usage.output_bytes, usage.read_bytes) == (1.5, 70, 512)
    # To the tick, of which a second has a hundred.
    assert 0.1 <= usage.cpu_seconds <= processes.cpu_seconds(process.pid) + 0.02
    assert usage.peak_memory_bytes > 50_000_000
    monitor.begin(process.pid)
    reactor.advance(1.0)
    usage = monitor.end()
    assert (usage.output_bytes, usage.read_bytes) == (0, 0)
    assert usage.cpu_seconds < 0.1
    assert usage.peak_memory_bytes < 50_000_000


def test_of_a_guest_that_is_lost_the_last_reading_counts(process):
    reactor, monitor, _ = watched(process)
    burn(process, 0.1)
    reactor.advance(FIRST_LOOK)
    process.kill()
    process.wait()
    monitor.lost()
    usage = monitor.end()
    assert usage.cpu_seconds >= 0.1
    assert usage.peak_memory_bytes > 1 << 20
    reactor.advance(100)


def test_a_guest_without_a_process_takes_nothing_and_is_not_looked_at():
    reactor, seen = Reactor(), []
    monitor = Monitor(
        reactor, policy(cpu_seconds=1, memory_max_bytes=1), "", lambda: reactor.now, seen.append
    )
    for pid in (None, NOBODYS_PID):
        monitor.begin(pid)
        reactor.advance(1_000)
        assert monitor.end().cpu_seconds == 0
    assert seen == []


def test_an_idle_guest_is_looked_at_less_and_less_and_a_balloon_is_still_found(process):
    reactor, monitor, seen = watched(process, memory_max_bytes=1 << 20)
    monitor.end()
    reactor.advance(300)
    assert seen == []
    do(process, "kept.append(b'x' * 100_000_000)")
    reactor.advance(IDLE_MOST)
    assert set(seen) == {("memory", True)}


@pytest.mark.parametrize("lost", [False, True])
def test_what_runs_in_a_sandbox_has_folders_of_idle_forks_looked_at_within_a_second(
    process, tmp_path, lost
):
    """Those of forks whose guest is gone, too: a cell of their parent's may write there."""
    reactor, parent, _ = watched(process)
    seen = []
    fork = Monitor(
        reactor,
        policy(scratch_max_bytes=1 << 20),
        (str(tmp_path),),
        lambda: reactor.now,
        lambda *excess: seen.append(excess),
    )
    fork.begin(process.pid)
    parent.end()
    fork.end()
    reactor.advance(300)  # both are idle, and are looked at every half minute
    if lost:
        fork.lost()
    parent.forks = fork.forks = [fork]
    parent.begin(process.pid)
    reactor.advance(FIRST_LOOK)
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(bytes(100 << 20))
        reactor.advance(1 + PACE)
        # More than no cell is forgiven, of a guest that is gone.
        assert bool(seen) is (not lost or number == 2)
    assert set(seen) == {("scratch", True)}
    assert fork.is_past_forgiving


def test_of_forks_that_hold_too_much_between_cells_one_that_works_is_told_of(process):
    reactor, monitor, seen = watched(process, forks_max_bytes=100)
    monitor.held_together = lambda: 200
    monitor.end()
    reactor.advance(2 * IDLE_PACE)
    assert seen == []
    burn(process, 0.5)
    reactor.advance(4 * IDLE_PACE)
    assert seen == [("forks", True)]


def test_what_a_cell_left_in_the_folder_ends_no_idle_guest_and_what_comes_later_does(
    process, tmp_path
):
    reactor, monitor, seen = watched(process, scratch=str(tmp_path), scratch_max_bytes=1 << 20)
    (tmp_path / "left").write_bytes(bytes(2 << 20))
    monitor.end()
    reactor.advance(300)
    assert seen == []
    (tmp_path / "more").write_bytes(bytes(1 << 20))
    reactor.advance(IDLE_MOST)
    assert set(seen) == {("scratch", True)}


def test_looks_that_take_long_leave_the_host_most_of_its_time(process, monkeypatch):
    reactor, monitor, _ = watched(process, memory_max_bytes=1 << 30)
    looks = []

    def held(_copies):
        looks.append(reactor.now)
        reactor.now += 2  # it took two seconds
        return False

    monkeypatch.setattr(monitor, "_holds_too_much", held)
    reactor.advance(30)
    assert [round(later - look) for look, later in itertools.pairwise(looks)] == [10, 10]


@pytest.mark.parametrize("forks", [False, True])
def test_a_row_of_short_requests_puts_no_look_off_for_ever(process, forks):
    reactor, monitor, seen = watched(process, memory_max_bytes=1 << 20, subprocess_execution=forks)
    do(process, "kept.append(b'x' * 100_000_000)")
    for _ in range(MOST_UNSEEN):
        assert seen == []
        monitor.end()
        monitor.begin(process.pid)
        reactor.advance(0.001)
    assert set(seen) == {("memory", True)}


# --- processes that a guest starts ------------------------------------------------------------


def test_a_fork_counts_by_what_it_wrote(process, monkeypatch):
    monkeypatch.setattr(of_family, "huge_pages", lambda: 0)  # the whole machine's
    do(process, "kept.append(bytearray(b'x') * 60_000_000)")
    family, own = Family(process.pid), Gauge(process.pid).memory()
    assert family.held(own) == 0
    fork(process, "None")
    assert family.held(own) < 20_000_000
    bury(process)
    fork(process, "kept[0].__setitem__(slice(None), b'y' * 60_000_000)")
    assert processes.until(lambda: family.held(own) >= 50_000_000)
    bury(process)


def test_a_fork_counts_by_what_it_wrote_to_pages_of_a_file(process, monkeypatch, tmp_path):
    """Each is read from the disk first, which is a major fault (getrusage(2))."""
    monkeypatch.setattr(of_family, "huge_pages", lambda: 0)
    with (tmp_path / "file").open("wb") as file:
        file.truncate(60_000_000)
    do(process, f"import mmap; file = open({str(tmp_path / 'file')!r}, 'r+b')")
    do(process, "space = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)")
    do(process, "space.madvise(mmap.MADV_RANDOM); pages = range(0, 60_000_000, 4096)")
    family, own = Family(process.pid), Gauge(process.pid).memory()
    fork(process, "[space.__setitem__(at, 1) for at in pages]")
    assert processes.until(lambda: family.held(own) >= 50_000_000)
    bury(process)


def test_what_processes_have_counts_whenever_they_are_first_looked_at(process):
    do(process, "ready, said = os.pipe()")
    early = Family(process.pid)
    fork(process, "kept.append(bytearray(b'x') * 60_000_000), os.write(said, b'.')")
    do(process, "os.read(ready, 1)")
    own = Gauge(process.pid).memory()
    for family in (early, Family(process.pid)):
        assert family.held(own) >= 50_000_000
        assert (family.measured(own, {}) or 60_000_000) >= 50_000_000
        assert 50_000_000 <= family.held(own) < 90_000_000
    bury(process)


def test_the_time_in_which_the_zygote_answers_calls_of_a_cell_is_the_cells(process):
    reactor, monitor, seen = watched(process, cpu_seconds=5.0)
    monitor.answering_cpu = lambda: 100.0
    monitor.begin(process.pid)
    reactor.advance(FIRST_LOOK)
    assert seen == []
    monitor.answering_cpu = lambda: 106.0
    reactor.advance(PACE)
    assert seen == [("cpu", False)]
    assert monitor.end().cpu_seconds >= 6.0


def test_what_a_fork_still_has_that_its_parent_let_go_of_counts(process):
    do(process, "kept.append(bytearray(b'x') * 80_000_000)")
    family, gauge = Family(process.pid), Gauge(process.pid)
    assert family.held(gauge.memory()) == 0
    fork(process, "None")
    do(process, "kept[0] = None; kept[0] = bytearray(b'y') * 80_000_000")
    assert 70_000_000 < family.held(gauge.memory()) < 120_000_000
    measured = family.measured(gauge.memory(), {})
    assert measured is None or 70_000_000 < measured < 120_000_000
    bury(process)


def test_what_forks_share_is_told_from_what_they_were_given_and_let_go_of(process):
    do(process, "kept.append(bytearray(b'x') * 50_000_000)")
    family, gauge = Family(process.pid), Gauge(process.pid)
    assert family.held(gauge.memory()) == 0
    fork(process, "None")
    do(process, "[bytearray(b'y') * 50_000_000 for _ in range(3)]")
    assert 40_000_000 < family.held(gauge.memory()) < 100_000_000
    measured = family.measured(gauge.memory(), {})
    bury(process)
    if measured is None:
        pytest.skip("this user may not read what processes share that are not dumpable")
    assert measured < 20_000_000


@pytest.fixture
def all_is_known(process, monkeypatch):
    """Return how to have the OS kernel say that the others hold nothing by themselves now."""
    monkeypatch.setattr(of_family, "huge_pages", lambda: 0)  # the whole machine's
    family = Family(process.pid)

    def know():
        own = of_processes.process_memory(process.pid)
        with monkeypatch.context() as patch:
            patch.setattr(Shares, "of", lambda _: Shares(share=0, alone=0, whole=1 << 40))
            family.held(own)
            assert family.measured(own, {}) == pytest.approx(0, abs=5_000_000)
        return family, own

    return know


ALLOCATE = "kept.append(bytearray(b'x') * 60_000_000)"
AND_LET_GO = "[bytearray(b'x') * 60_000_000 for _ in range(3)]"
IGNORE_ENDS = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
PIPE = "ready, said = os.pipe()"
SAY, HEAR = "os.write(said, b'.')", "os.read(ready, 1)"


def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # it is no orphan
            os.waitpid(pid, 0)


def test_what_a_fork_has_from_a_parent_that_has_ended_counts(process, all_is_known):
    """The pages were given to the parent alone, and whose parent ignores its end has no count."""
    do(process, IGNORE_ENDS)
    do(process, PIPE)
    family, own = all_is_known()
    orphan = f"os.fork() or ({SAY}, time.sleep(60), os._exit(0))"
    for count in (1, 2):
        do(process, f"child = os.fork() or ({ALLOCATE}, {orphan}, os._exit(0))")
        do(process, HEAR)
        assert processes.until(lambda count=count: len(family.pids()) == count)
        assert family.held(own) >= 50_000_000
        if count == 1:
            all_is_known()
            assert family.held(own) < 20_000_000
    end(family.pids())


def test_pages_of_a_process_that_has_ended_make_no_room_for_others(process, all_is_known):
    do(process, IGNORE_ENDS)
    do(process, PIPE)
    fork(process, f"{AND_LET_GO}, {SAY}")
    do(process, HEAR)
    family, own = all_is_known()
    do(process, "os.kill(child, 9)")
    assert processes.until(lambda: not family.pids())
    for _ in range(2):
        fork(process, f"{ALLOCATE}, {SAY}")
        do(process, HEAR)
    assert family.held(own) >= 110_000_000
    end(family.pids())


def test_pages_of_workers_that_were_waited_for_are_counted_once(process, all_is_known):
    """A pool replaces its workers, each of which was given much over time, and let go of it."""
    do(process, ALLOCATE)
    do(process, PIPE)
    fork(process, f"{AND_LET_GO}, {SAY}")
    do(process, HEAR)
    family, own = all_is_known()
    bury(process)
    fork(process, "None")
    assert family.held(own) < 20_000_000
    bury(process)


@pytest.mark.parametrize("share", [0, 200_000_000])
def test_what_no_count_has_is_found_by_asking_now_and_then(process, monkeypatch, share):
    """A process was given pages by a child that shared its memory, and whose end it ignored."""
    monkeypatch.setattr(of_family, "huge_pages", lambda: 0)
    monkeypatch.setattr(Shares, "of", lambda _: Shares(share, alone=0, whole=1 << 40))
    do(process, "kept.append(bytearray(b'x') * 80_000_000)")
    reactor, monitor, seen = watched(process, subprocess_execution=True, memory_max_bytes=40 << 20)
    fork(process, "None")
    reactor.advance(FIRST_LOOK)
    assert seen == []
    monitor._family._check._thread.join(60)
    reactor.advance(PACE)
    assert seen == [("memory", True)] * bool(share)
    bury(process)


@pytest.mark.parametrize("readings", [1, of_family.READINGS])
def test_sharers_that_end_before_they_are_read_hide_no_page(process, monkeypatch, readings):
    """Each has an eighth of all pages when the first of them is read, and that one alone later."""
    do(process, PIPE)
    family = Family(process.pid)
    twin = f"os.fork() or ({SAY}, time.sleep(60), os._exit(0))"
    fork(process, f"{ALLOCATE}, [{twin} for _ in range(7)], {SAY}")
    for _ in range(8):
        do(process, HEAR)
    (holder, *sharers), real = family.pids(), Shares.of
    assert len(sharers) == 7

    def read(pid):
        found = real(pid)
        if pid == holder and sharers:
            for sharer in sharers:
                os.kill(sharer, signal.SIGKILL)
            # One without memory of its own may still be unmapping what it shared.
            assert processes.gone(sharers, 60) == []
            sharers.clear()
        return found

    monkeypatch.setattr(Shares, "of", read)
    monkeypatch.setattr(of_family, "READINGS", readings)
    own = Gauge(process.pid).memory()
    family.held(own)
    measured = family.measured(own, {})
    bury(process)
    if measured is None:
        pytest.skip("this user may not read what processes share that are not dumpable")
    assert measured >= 55_000_000
    assert measured < 90_000_000 or readings == 1


SHARING = """
import ctypes
libc = ctypes.CDLL(None)
space = ctypes.create_string_buffer(1 << 16)
top = ctypes.c_void_p(ctypes.addressof(space) + (1 << 15))
child = libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), top, 0x100 | 17, None)
"""


def test_a_child_that_shares_memory_until_its_program_begins_counts_once(process):
    do(process, ALLOCATE)
    family, own = Family(process.pid), Gauge(process.pid).memory()
    do(process, f"exec({SHARING!r})")
    assert len(family.pids()) == 1
    family._known = None
    assert family.held(own) >= 55_000_000
    measured = family.measured(own, {})
    if measured is not None:
        assert measured < 20_000_000
        assert family.held(own) < 20_000_000
    bury(process)


def test_a_process_whose_first_thread_has_ended_has_no_memory_in_common_by_that(process):
    end = f"ctypes.CDLL(None).syscall({MACHINE.numbers['exit']}, 0)"
    go_on = "threading.Thread(target=time.sleep, args=(60,)).start()"
    do(process, f"import ctypes, threading; {PIPE}")
    family = Family(process.pid)
    inner = f"os.fork() or ({ALLOCATE}, {go_on}, {end})"
    fork(process, f"{inner}, {go_on}, {end}")
    assert processes.until(lambda: len(family.pids()) == 2)
    for pid in family.pids():
        status = Path(f"/proc/{pid}/status")
        assert processes.until(lambda status=status: "zombie" in status.read_text())
    parent, child = family.pids()
    assert not have_one_memory(child, parent)
    assert of_family._private([parent, child])[child] > 50_000_000
    os.kill(child, signal.SIGKILL)
    bury(process)


def test_programs_that_were_waited_for_count_no_more_than_what_runs(process, monkeypatch):
    """What they were given may be their parent's (vfork(2)), until a look shows that it is not."""
    monkeypatch.setattr(of_family, "huge_pages", lambda: 0)
    do(process, ALLOCATE)
    family, own = Family(process.pid), Gauge(process.pid).memory()
    for _ in range(3):
        fork(process, AND_LET_GO)
        bury(process)
    do(process, "import subprocess; p = subprocess.Popen(['sleep', '60'])")
    family.held(own)
    fork(process, "None")
    assert family.held(own) < 20_000_000
    bury(process)
    do(process, "p.kill(), p.wait()")


def test_a_process_that_is_gone_hides_no_other(process):
    """Whoever ends while the OS kernel is asked, or stays a zombie, has nothing."""
    fork(process, "None")
    family, own = Family(process.pid), Gauge(process.pid).memory()
    pids = [process.pid, *family.pids(), NOBODYS_PID]
    bury(process)
    assert len(pids) == 3
    assert family._measure(own, lambda: pids) is not None


def test_a_process_whose_first_thread_has_ended_hides_no_other(process):
    do(
        process,
        f"import ctypes, threading; end = lambda: ctypes.CDLL(None).syscall({MACHINE.numbers['exit']}, 0)",
    )
    fork(
        process,
        "kept.append(bytearray(b'x') * 60_000_000), threading.Thread(target=time.sleep, args=(60,)).start(), end()",
    )
    family = Family(process.pid)
    (pid,) = family.pids()
    assert processes.until(lambda: "zombie" in Path(f"/proc/{pid}/status").read_text())
    assert Shares.of(pid).share > 50_000_000
    bury(process)


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_whose_pages_can_not_be_asked_for_is_not_taken_for_gone(process, monkeypatch, error):
    def read_bytes(_):
        raise error

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert Shares.of(process.pid) is None


def test_processes_whose_pages_take_long_to_ask_for_are_not_asked(process, monkeypatch):
    family, own = Family(process.pid), Gauge(process.pid).memory()
    fork(process, "None")
    asked, real = [], Shares.of
    monkeypatch.setattr(Shares, "of", lambda pid: asked.append(pid) or real(pid))
    family.measured(own, {})
    assert process.pid in asked
    asked.clear()
    monkeypatch.setattr(of_family, "MOST_WALKED", own.resident)
    assert family.measured(own, {}) is None
    assert asked == []
    bury(process)


def test_a_process_that_keeps_its_memory_locked_holds_up_no_loop(process, monkeypatch):
    family, own = Family(process.pid), Gauge(process.pid).memory()
    fork(process, "None")
    unlocked, threads = threading.Event(), threading.active_count()
    monkeypatch.setattr(Shares, "of", lambda _: unlocked.wait(5) and None)
    monkeypatch.setattr(of_family, "MEASURE_TIMEOUT", 0.01)
    assert family.measured(own, {}) is None
    assert family.measured(own, {}) is None  # and no second thread waits
    assert threading.active_count() == threads + 1
    unlocked.set()
    family._measuring._thread.join(60)
    bury(process)


def test_page_tables_of_a_child_count(process):
    family, own = Family(process.pid), Gauge(process.pid).memory()
    assert family.held(own) == 0
    do(process, "import mmap; ready, said = os.pipe()")
    touch = "[space[at] for at in range(0, 20 << 30, 2 << 20)]"
    space = "space := mmap.mmap(-1, 20 << 30, flags=34, prot=mmap.PROT_READ)"
    fork(process, f"({space}), {touch}, os.write(said, b'.')")
    do(process, "os.read(ready, 1)")
    assert family.held(own) > 30_000_000
    assert (family.measured(own, {}) or 1 << 30) > 30_000_000
    bury(process)


def test_memory_of_a_process_counts_whose_first_thread_has_ended(process):
    family, own = Family(process.pid), Gauge(process.pid).memory()
    assert family.held(own) == 0
    do(process, "import ctypes, threading; ready, said = os.pipe()")
    do(process, "def hold(): held = bytearray(b'x') * 60_000_000; ended(); time.sleep(60)")
    do(process, "def ended(): os.write(said, b'.')")
    end = f"ctypes.CDLL(None).syscall({MACHINE.numbers['exit']}, 0)"
    fork(process, f"threading.Thread(target=hold).start(), {end}")
    do(process, "os.read(ready, 1)")
    pid = family.pids()[0]
    assert processes.until(lambda: "zombie" in Path(f"/proc/{pid}/status").read_text())
    assert family.held(own) > 50_000_000
    gauge = Gauge(pid)
    assert gauge.memory().held > 50_000_000
    assert gauge.resident() > 50_000_000
    assert of_processes.private_bytes(pid) > 50_000_000
    gauge.close()
    bury(process)


def test_a_process_that_can_not_be_read_counts_with_all_that_it_shows(process, monkeypatch):
    """What it was given lately is not known, nor what its forks have from it."""
    monkeypatch.setattr(of_family, "huge_pages", lambda: 0)  # the whole machine's
    do(process, "kept.append(bytearray(b'x') * 60_000_000)")
    family, own = Family(process.pid), Gauge(process.pid).memory()
    fork(process, "None")
    assert family.held(own) < 20_000_000
    monkeypatch.setattr(family._stats, "read", lambda _: {})
    assert family.held(own) >= 50_000_000
    bury(process)


def test_time_of_a_process_that_can_not_be_read_counts(process, monkeypatch):
    family = Family(process.pid)
    monkeypatch.setattr(family._stats, "read", lambda _: {})
    fork(process, f"exec({BURN.format(0.3)!r})")
    assert processes.until(lambda: family.cpu() >= 0.25)
    bury(process)


def test_time_of_children_counts_while_they_live_and_after(process):
    family = Family(process.pid)
    fork(process, f"exec({BURN.format(0.3)!r})")
    assert processes.until(lambda: family.cpu() >= 0.25)
    alive = family.cpu()
    bury(process)
    assert family.cpu() >= alive - 0.02


def test_time_of_children_that_nobody_waits_for_counts_as_far_as_it_was_seen(process):
    family = Family(process.pid)
    do(process, "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    for had in (0.0, 0.2):
        fork(process, f"exec({BURN.format(0.25)!r})")
        assert processes.until(lambda had=had: family.cpu() >= had + 0.2)
        do(process, "os.kill(child, 9)")
        assert processes.until(lambda: not family.pids())
        assert family.cpu() >= had + 0.2


def test_time_of_a_child_counts_once_whoever_waits_for_it(process):
    orphans = 0.0
    family = Family(process.pid, orphans_cpu=lambda: orphans)
    fork(process, f"exec({BURN.format(0.25)!r})")
    assert processes.until(lambda: family.cpu() >= 0.2)
    bury(process)
    assert 0.2 <= family.cpu() < 0.4
    assert 0.2 <= family.cpu() < 0.4
    orphans += 1
    assert 1.2 <= family.cpu() < 1.4


def test_processes_of_others_are_not_the_guests(process):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        members = Family(process.pid)._members()
        other.kill()
    assert not {other.pid, os.getpid()} & set(members)


CHILD = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {!r}])"


def test_what_a_process_of_the_guests_uses_between_cells_is_charged_to_none(process):
    reactor, monitor, _ = watched(process, subprocess_execution=True)
    do(process, CHILD.format("while True: pass"))
    reactor.advance(1)
    monitor.end()
    time.sleep(0.5)
    began = time.monotonic()
    monitor.begin(process.pid)
    reactor.advance(1)
    between = monitor.end().cpu_seconds
    looked = time.monotonic() - began
    monitor.begin(process.pid)
    reactor.advance(0.01)
    time.sleep(0.5)
    within = monitor.end().cpu_seconds
    do(process, "child.kill(); child.wait()")
    assert between < 0.2 + looked
    assert within > 0.05


@pytest.mark.parametrize("limit", ["scratch_max_bytes", "memory_max_bytes"])
def test_a_process_that_sleeps_long_before_it_takes_too_much_is_found_in_a_second(
    process, tmp_path, limit
):
    reactor, monitor, seen = watched(
        process, scratch=str(tmp_path), subprocess_execution=True, **{limit: 1 << 20}
    )
    fork(process, "None")
    monitor.end()
    reactor.advance(300)
    assert seen == []
    if limit == "scratch_max_bytes":
        (tmp_path / "filled").write_bytes(bytes(2 << 20))
    else:
        do(process, "kept.append(b'x' * 100_000_000)")
    reactor.advance(FAMILY_PACE)
    assert seen == [(limit.partition("_")[0], True)]
    bury(process)


def test_what_is_in_dev_shm_is_removed_as_far_as_a_host_has_time_for_it(tmp_path):
    for name in ("file", "a/b/c/deep", "a/b/c/d/deeper"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(4 << 20))
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "a").chmod(0)
    shared = SharedMemory(os.open(tmp_path, os.O_RDONLY))
    assert shared.empty()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/deeper"
    ]  # fmt: skip
    shared.close()


@pytest.mark.parametrize("measured", [None, 300_000_000])
def test_it_is_known_whether_what_processes_hold_could_only_be_estimated(
    process, monkeypatch, measured
):
    monkeypatch.setattr(Family, "held", lambda *_: 200_000_000)
    monkeypatch.setattr(Family, "measured", lambda *_: measured)
    reactor, monitor, seen = watched(
        process, memory_max_bytes=100_000_000, subprocess_execution=True
    )
    reactor.advance(FIRST_LOOK)
    assert seen[0] == ("memory", True)
    assert monitor.is_estimate is (measured is None)
