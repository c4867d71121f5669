"""Copies of a guest hold no more for themselves than they may, whoever wrote to its memory."""

import contextlib
import os

import pytest

from support import machines, processes
from support.kernels import world_and_prefix
from support.reading import result, run

SIZE, MOST = 192 << 20, 96 << 20
POLICY = f"""
extends = "unsafe"
subprocess_execution = true
undo_max_bytes = {MOST}
undo_depth = 4
backend = "{{}}"
"""
#: A child that shares the guest's memory writes all of ``held``; its faults are its own.
WRITES_BY_CHILD = f"""
import contextlib, ctypes, mmap, os, signal, time
C = ctypes.CDLL(None)
SHARED, WAITS = 0x100, 0x4000  # CLONE_VM, CLONE_VFORK
held = mmap.mmap(-1, {SIZE}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at, value = ctypes.addressof(ctypes.c_char.from_buffer(held)), 0
stack = ctypes.create_string_buffer(1 << 20)
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
def child(_):
    ctypes.memset(at, value, {SIZE})
    return 0
def write():
    global value
    value += 1
    top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 20) - 64)
    pid = C.clone(child, top, SHARED | WAITS | signal.SIGCHLD, None)
    assert pid > 0, "refused"
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
"""
#: Programs with as many faults as the guest has pages, and none of them the guest's.
RUNS_PROGRAMS = f"""
import subprocess, sys, time
held = bytearray(b"x") * {SIZE}
def faults():
    program = "[bytearray({SIZE >> 1}) for _ in range(6)]"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)
"""


def held_by_copies(kernel):
    """Return the bytes that are in memory because the guest's copies have them, and it has not."""
    guest = kernel.sole_guest()
    kept = 0
    for pid in (kernel.zygote(), guest, *kernel.copies()):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it was let go of
            kept += processes.memory(pid, "Pss_Anon")
    return 1024 * (kept - processes.memory(guest, "Anonymous"))


@pytest.fixture(params=machines.places(), ids=" ".join)
def kernel(start, request):
    user, backend = request.param
    world, prefix = world_and_prefix(f"{user} in namespaces" if backend == "bubblewrap" else user)
    yield start(world.policy(POLICY.format(backend)), "--allow-unsafe", world=world, prefix=prefix)
    world.close()


@pytest.fixture
def told(kernel, request):
    """A kernel whose host the OS kernel tells how guest and copies share pages."""
    user, backend = request.node.callspec.params["kernel"]
    is_root = os.geteuid() == 0 and user == "same user"
    if backend == "landlock" and not is_root:
        pytest.skip("of processes in no user namespace of its own, only root is told")
    return kernel


@pytest.mark.parametrize("ends", ["are waited for", "are ignored"])
def test_what_a_child_writes_to_the_guests_memory_counts_for_its_copies(told, ends):
    run(told, WRITES_BY_CHILD)
    if ends == "are ignored":
        run(told, "signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    for _ in range(5):
        run(told, "write(); time.sleep(0.11)")
    # Of the newest copy nothing is asked.
    assert processes.until(lambda: held_by_copies(told) < MOST + (32 << 20)), (
        held_by_copies(told) >> 20
    )
    assert result(run(told, "set(held[::4096])")) == "{5}"


def test_a_checkpoint_that_a_child_writes_over_counts_too(told):
    run(told, WRITES_BY_CHILD)
    for name in "abc":
        run(told, f"write()\n%checkpoint {name}")
    run(told, "write()")
    assert processes.until(lambda: held_by_copies(told) < 2 * MOST + (32 << 20)), (
        held_by_copies(told) >> 20
    )
    reply, _ = told.run("%restore a")
    assert "there is no checkpoint" in reply["evalue"]


def test_programs_with_many_faults_of_their_own_cost_no_undo_step(kernel):
    run(kernel, RUNS_PROGRAMS)
    for number in range(4):
        run(kernel, f"x = {number}; faults(); time.sleep(0.11)")
    run(kernel, "time.sleep(2)")
    run(kernel, "%undo 4")
    assert result(run(kernel, "x, len(held)")) == f"(0, {SIZE})"
