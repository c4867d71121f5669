"""What honest cells do works in a confined guest."""

# Written as cells write it.
# ruff: noqa: SIM115, PTH103, PTH104, PTH110, PTH123
from __future__ import annotations

import asyncio
import bz2  # noqa: F401 - what opening an archive imports
import ctypes
import encodings.cp437
import encodings.idna  # noqa: F401 - what connecting by a host's name imports
import fcntl
import gzip  # noqa: F401
import lzma  # noqa: F401
import mmap
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tarfile
import tempfile
import threading
import time
import zipfile
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from cellblock.guest.library_patches import patch_standard_library
from cellblock.wire.messages import Limits
from confine.cell import run


def threads(_w):
    ran = []
    some = [threading.Thread(target=ran.append, args=(n,)) for n in range(8)]
    [thread.start() for thread in some]
    [thread.join() for thread in some]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
    return sorted(ran)


def event_loops(_w):
    async def main():
        return await asyncio.gather(asyncio.to_thread(abs, -1), asyncio.sleep(0, 2))

    return [asyncio.run(main()) for _ in range(3)]


def signals_to_itself(_w):
    seen = []
    for number in (signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: seen.append(int(number)))
    # Again and again: the first may come before anybody waits.
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.raise_signal(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    return {*seen[:-3]} == {signal.SIGALRM} and seen[-3:] == [signal.SIGUSR1] * 3


def temporary_files(w):
    tempfile.tempdir = str(w.scratch)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.NamedTemporaryFile() as named,
        tempfile.TemporaryFile() as nameless,
    ):
        Path(folder, "x").write_text("x")
        nameless.write(b"x")
        return os.path.exists(named.name)


def database(w):
    connection = sqlite3.connect(w.scratch / "x.db")
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table t(a)")
    connection.execute("insert into t values (1)")
    connection.commit()
    return connection.execute("select count(*) from t").fetchone()[0]


def copies(w):
    patch_standard_library()
    os.chdir(w.scratch)
    os.makedirs("tree/below")
    Path("tree/below/file").write_text("x")
    shutil.copy("tree/below/file", "copy")
    shutil.copy2("tree/below/file", "copy2")
    shutil.copytree("tree", "tree2")
    shutil.move("tree2", "tree3")
    shutil.make_archive("packed", "gztar", "tree")
    shutil.make_archive("packed", "zip", "tree")
    tarfile.open("packed.tar.gz").extractall("untarred", filter="data")
    zipfile.ZipFile("packed.zip").extractall("unzipped")
    return Path("untarred/below/file").read_text() + Path("unzipped/below/file").read_text()


def paths(w):
    patch_standard_library()
    resolved = (w.scratch / "link").resolve()
    (w.scratch / "touched").touch()
    (w.scratch / "touched").touch()
    os.rename(w.scratch / "touched", w.scratch / "renamed")
    return resolved == w.scratch / "link"


def files_to_sockets(w):
    """Send files: with sendfile where that is allowed, else by reading them."""
    (w.scratch / "sent").write_text("x")
    ends = socket.socketpair()
    with (w.scratch / "sent").open("rb") as file:
        ends[0].sendfile(file)
        file.seek(0)

        async def send():
            ends[0].setblocking(False)
            await asyncio.get_running_loop().sock_sendfile(ends[0], file)

        asyncio.run(send())
    return ends[1].recv(10)


def memory(_w):
    patch_standard_library()
    asked = [
        mmap.mmap(-1, 1 << 16),
        mmap.mmap(-1, 1 << 16, access=mmap.ACCESS_WRITE),
        mmap.mmap(-1, 1 << 16, access=mmap.ACCESS_COPY),
        mmap.mmap(-1, 1 << 16, flags=mmap.MAP_PRIVATE),
        mmap.mmap(-1, length=1 << 16, prot=mmap.PROT_READ | mmap.PROT_WRITE),
    ]
    for mapping in asked:
        mapping[:3] = b"abc"
    asked[0].resize(1 << 17)
    return {bytes(mapping[:3]) for mapping in asked}, type(asked[0]).__name__


def mapped_files(w):
    patch_standard_library()
    path = w.scratch / "mapped"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[:3] = b"abc"
        mapping.flush()
    return path.read_bytes()[:3]


def callback_from_c(_w):
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)
    )
    numbers = (ctypes.c_int * 3)(3, 1, 2)
    ctypes.CDLL(None).qsort(numbers, 3, 4, kind(lambda a, b: a[0] - b[0]))
    return list(numbers)


def machine_facts(_w):
    zoneinfo.ZoneInfo("Europe/Rome")
    time.sleep(0.001)
    return os.cpu_count() >= len(os.sched_getaffinity(0)) > 0 and bool(os.urandom(8))


def devices(_w):
    Path("/dev/null").write_text("x")
    with open("/dev/zero", "rb") as zero, open("/dev/urandom", "rb") as random:
        return len(zero.read(2) + random.read(2))


def own_map(_w):
    return "libc" in Path("/proc/self/maps").read_text()


def locks_on_ranges(w):
    with open(w.scratch / "locked", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.isatty(file.fileno())


def buffers_of_sockets(_w):
    """Ask for more than there is, as libraries do; what is there counts for no limit of memory."""
    ends = socket.socketpair()
    sizes = [end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for end in ends]
    ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * sizes[0])
    ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * sizes[1])
    return sizes == [end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for end in ends]


HONEST = {
    threads: "ok: [0, 1, 2, 3, 4, 5, 6, 7]",
    event_loops: "ok: [[1, 2], [1, 2], [1, 2]]",
    signals_to_itself: "ok: True",
    temporary_files: "ok: True",
    database: "ok: 1",
    copies: "ok: xx",
    paths: "ok: True",
    files_to_sockets: "ok: b'xx'",
    memory: "ok: ({b'abc'}, 'mmap')",
    mapped_files: "ok: b'abc'",
    callback_from_c: "ok: [1, 2, 3]",
    machine_facts: "ok: True",
    devices: "ok: 4",
    own_map: "ok: True",
    locks_on_ranges: "ok: False",
    buffers_of_sockets: "ok: True",
}


def test_honest_code_works(world, uid):
    came, before = {}, set(world.scratch.iterdir())
    for program in HONEST:
        came[program] = run(partial(program, world), plan=world.plan(), uid=uid)
        for leftover in set(world.scratch.iterdir()) - before:
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    assert came == HONEST


#: Limits, what goes beyond them, and what comes of it under them and without.
BEYOND = [
    (
        Limits(memory_max_bytes=256 << 20),
        lambda _: len(bytearray(1 << 30)),
        ("MemoryError: ", f"ok: {1 << 30}"),
    ),
    (
        Limits(max_file_size=1 << 16),
        lambda w: (w.scratch / "big").write_bytes(bytes(1 << 20)),
        ("EFBIG", f"ok: {1 << 20}"),
    ),
    (
        Limits(max_open_files=300),  # the process that runs the tests may have some open
        lambda _: len([os.open("/dev/null", os.O_RDONLY) for _ in range(400)]),
        ("EMFILE", "ok: 400"),
    ),
]


@pytest.mark.parametrize(("limits", "greedy", "outcomes"), BEYOND, ids=["memory", "file", "files"])
def test_what_is_too_much_is_an_error_and_not_the_end(world, uid, limits, greedy, outcomes):
    plans = (world.plan(limits=limits), None)
    assert tuple(run(partial(greedy, world), plan=plan, uid=uid) for plan in plans) == outcomes


def test_tasks_are_limited_for_all_but_uid_0(world, uid):
    def crowd():
        started = 0
        try:
            while started < 60:
                threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
                started += 1
        except RuntimeError:
            return started <= 20
        return "no limit"

    # A user of our own: tasks of nobody's that end meanwhile, another run's say, leave more room.
    user = uid if uid == os.getuid() else 100_000 + os.getpid()
    outcome = run(crowd, plan=world.plan(limits=Limits(max_processes=20)), uid=user)

    assert outcome == ("ok: no limit" if uid == 0 else "ok: True")


# --- what a policy may open ---------------------------------------------------------------------


@pytest.fixture
def programs(world):
    """Return a plan under which programs run."""
    system = ("/usr/bin", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
    return world.plan(read_roots=(str(world.readable), *system), subprocess=True)


def shared_memory(w):
    """Share with a child what is mapped without a file: by one that has no name any more."""
    patch_standard_library(processes=True)
    tempfile.tempdir = str(w.scratch)
    mappings = [
        mmap.mmap(-1, 1 << 16),
        mmap.mmap(-1, 1 << 16, access=mmap.ACCESS_WRITE),
        mmap.mmap(-1, 1 << 16, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS),
    ]
    if os.fork() == 0:
        for mapping in mappings:
            mapping[:3] = b"abc"
        os._exit(0)
    os.wait()
    left = [path.name for path in w.scratch.iterdir() if path.name.startswith("mmap-")]
    return {bytes(mapping[:3]) for mapping in mappings}, left


def test_with_processes_allowed_they_share_memory_that_has_a_size(world, uid, programs):
    outcome = run(partial(shared_memory, world), plan=programs, uid=uid)
    assert outcome == "ok: ({b'abc'}, [])"


def test_with_processes_allowed_a_program_runs_under_the_same_locks(world, uid, programs):
    def cat():
        shown = [
            subprocess.run(["/usr/bin/cat", folder / "file"], capture_output=True, check=False)
            for folder in (world.readable, world.outside)
        ]
        return shown[0].stdout.decode() + str(shown[1].returncode)

    assert run(cat, plan=programs, uid=uid) == "ok: contents of readable\n1"


def test_with_processes_allowed_a_child_can_be_ended_but_nobody_else(world, uid, programs):
    def end():
        child = subprocess.Popen(["/usr/bin/sleep", "60"])
        child.terminate()
        return child.wait()

    assert run(end, plan=programs, uid=uid) == f"ok: {-signal.SIGTERM}"
    assert run(lambda: os.kill(world.sentinel, 0), plan=programs, uid=uid) == "EPERM"
    assert run(lambda: os.kill(os.getppid(), 0), plan=programs, uid=uid) == "EPERM"


def test_with_processes_allowed_a_written_program_does_not_run(world, uid, programs):
    def execute_own():
        shutil.copyfile("/usr/bin/true", world.scratch / "true")
        subprocess.run([world.scratch / "true"], check=True)

    assert run(execute_own, plan=programs, uid=uid) == "EACCES"


def test_with_network_allowed_tcp_works_and_local_sockets_do_not(world, uid):
    def tcp():
        s = socket.socket()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.connect(("127.0.0.1", world.port))

    plan = world.plan(network=True)

    assert run(tcp, plan=plan, uid=uid) == "ok"
    assert run(lambda: socket.socket(socket.AF_UNIX), plan=plan, uid=uid) == "EACCES"
    assert run(lambda: socket.socket(16, 3, 0), plan=plan, uid=uid) == "ENOTSUP"
