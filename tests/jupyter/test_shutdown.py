"""P10: no process outlives the kernel, whatever ends it."""

import os
import signal
import subprocess
import threading

import pytest

from support import machines, processes, reading
from support.kernels import Kernel, argv_for, start_staged, world_and_prefix

GO = "print('go', flush=True)\n"
FAMILY = """
import os, subprocess, time
children = []
for _ in range(2):
    if os.fork() == 0:
        os.setsid() if hasattr(os, 'setsid') else None
        time.sleep(600)
"""
STATES = {
    "idle": None,
    "running": "while True: pass",
    "deaf": "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass",
}


def busy(kernel, state):
    if STATES[state] is not None:
        mid = kernel.execute_send(GO + STATES[state])
        kernel.until(lambda m: m["msg_type"] == "stream", mid)
    return kernel.tree()


@pytest.mark.parametrize(
    ("state", "restart"), [("idle", False), ("running", True), ("deaf", False), ("deaf", True)]
)
@pytest.mark.quick
def test_a_shutdown_request_is_answered_and_leaves_nothing(start, state, restart):
    kernel = start("safe")
    pids = busy(kernel, state)
    assert {kernel.zygote(), kernel.guest()} < {*pids}
    mid = kernel.send("shutdown_request", {"restart": restart}, "control")
    reply = kernel.reply(mid, "control")["content"]
    assert reply == {"status": "ok", "restart": restart}
    assert kernel.proc.wait(5) == 0
    assert processes.gone(pids) == []
    assert list((kernel.world.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_signal_ends_the_kernel_and_cleans_up(start, number):
    kernel = start("safe")
    pids = busy(kernel, "running")
    kernel.proc.send_signal(number)
    assert kernel.proc.wait(5) == 0
    assert processes.gone(pids) == []
    assert list((kernel.world.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.quick
def test_after_sigkill_of_the_host_nothing_is_left(start, state):
    kernel = start("safe")
    pids = busy(kernel, state)
    kernel.proc.kill()
    kernel.proc.wait(5)
    assert processes.gone(pids) == []


@pytest.mark.parametrize("how", ["shutdown", "SIGKILL"])
def test_children_that_a_policy_allows_end_with_the_kernel(start, world, how):
    policy = world.policy('mode = "unsafe"\nsubprocess_execution = true\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    kernel.run(FAMILY, silent=True)
    pids = kernel.tree()
    assert len(pids) >= 5
    if how == "SIGKILL":
        kernel.proc.kill()
    else:
        kernel.send("shutdown_request", {"restart": False}, "control")
    kernel.proc.wait(5)
    assert processes.gone(pids) == []


#: A guest that asks for no signal when its zygote ends, one child and one orphan that have none.
UNLEASHED = """
import ctypes, os, time
print(ctypes.CDLL(None).prctl(1, 18, 0, 0, 0))
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
if os.fork() == 0:
    time.sleep(600)
os.wait()
"""
#: Where there is no pid namespace, the zygote is forked from a reaper, the host's only child.
KILLED = {
    "host and zygote": lambda kernel: [kernel.proc.pid, kernel.zygote()],
    "host and reaper": lambda kernel: [kernel.proc.pid, kernel.child()],
}


@pytest.mark.parametrize("killed", KILLED)
@pytest.mark.parametrize("user", machines.users())
def test_guests_that_await_no_signal_of_their_zygotes_end_are_ended_all_the_same(
    start, user, killed
):
    world, prefix = world_and_prefix(user)
    policy = world.policy('mode = "unsafe"\nsubprocess_execution = true\nbackend = "landlock"\n')
    kernel = start(policy, "--allow-unsafe", world=world, prefix=prefix)
    kernel.own_world = True
    assert reading.stream(kernel.run(UNLEASHED)[1]) == "0\n"
    processes.until(lambda: len(kernel.called("cb-guest")) == 3)  # a copy has its name late
    pids = kernel.tree()
    for pid in KILLED[killed](kernel):
        os.kill(pid, signal.SIGKILL)
    assert processes.gone(pids[1:]) == []


@pytest.mark.parametrize("user", machines.users())
def test_what_mounts_for_a_zygote_ends_with_it_when_host_and_reaper_are_killed(start, user):
    """It is under no locks, so a zygote that is can't kill it."""
    world, prefix = world_and_prefix(user)
    policy = world.policy('extends = "data"\nbackend = "landlock"\n')
    kernel = start(policy, "--allow-unsafe", world=world, prefix=prefix)
    kernel.run("open('new', 'w').close()")
    pids = kernel.tree()
    for pid in KILLED["host and reaper"](kernel):
        os.kill(pid, signal.SIGKILL)
    assert processes.gone(pids[1:]) == []


@pytest.fixture(params=machines.places(), ids=" ".join)
def staged(request, start):
    """A kernel whose writes are staged, which takes a process that mounts, and what a cell forked."""
    kernel = start_staged(start, *request.param)
    kernel.run(FAMILY, silent=True)
    return kernel


@pytest.mark.parametrize("stopped", ["cb-zygote", "cb-mounter"])
def test_nothing_outlives_a_killed_host_when_its_zygote_or_who_mounts_for_it_hangs(staged, stopped):
    pids = staged.tree()
    assert {"cb-zygote", "cb-mounter", "cb-guest"} <= {*map(processes.name, pids)}
    (hung,) = staged.called(stopped)
    os.kill(hung, signal.SIGSTOP)
    staged.proc.kill()
    staged.proc.wait(5)
    assert processes.gone(pids) == []


def test_their_folder_goes_too_when_host_and_zygote_are_killed(start):
    kernel = start("safe")
    zygote = kernel.zygote()
    for pid in (kernel.proc.pid, zygote):
        os.kill(pid, signal.SIGKILL)
    processes.until(lambda: list((kernel.world.root / "tmp").iterdir()) == [])


def test_what_a_killed_kernel_left_whose_policy_was_in_error_is_removed_by_the_next(start, world):
    """It never had a zygote that would have removed its folder."""
    with Kernel(argv_for(world.policy("mode = 'none'")), world=world) as first:
        first.wait_heard()
        assert first.run("1")[0]["status"] == "error"
        (left,) = (world.root / "tmp").iterdir()
        first.proc.kill()
        first.proc.wait(5)
    assert left.exists()
    start("safe", world=world)
    processes.until(lambda: not left.exists())
    (_,) = (world.root / "tmp").iterdir()


def test_guests_of_a_stopped_zygote_end_with_the_host(start):
    kernel = start("safe")
    pids, zygote = kernel.tree(), kernel.zygote()
    os.kill(zygote, signal.SIGSTOP)
    kernel.proc.kill()
    kernel.proc.wait(5)
    assert processes.gone(pids) == []


def test_a_kernel_killed_while_starting_leaves_nothing(world):
    kernel = Kernel(argv_for("safe"), world=world)
    pids = [kernel.proc.pid, kernel.child()]
    kernel.proc.kill()
    kernel.proc.wait(5)
    assert processes.gone(pids) == []
    kernel.close()


def test_a_kernel_ends_with_whoever_started_it(start):
    prefix = ("sh", "-c", '"$@" & echo started; wait', "sh")
    kernel = start("safe", prefix=prefix, extra_env={"JPY_PARENT_PID": "1"})
    pids = kernel.tree()
    os.kill(kernel.proc.pid, signal.SIGKILL)
    kernel.proc.wait(5)
    assert processes.gone(pids[1:]) == []


def test_a_kernel_ends_if_whoever_started_it_was_gone_before_it_looked(world):
    starter = subprocess.Popen(["/bin/true"])
    starter.wait()
    env = {"JPY_PARENT_PID": str(starter.pid)}
    kernel = Kernel(argv_for("safe"), world=world, extra_env=env)
    assert kernel.proc.wait(30) == 0
    kernel.close()


def test_a_shutdown_before_anything_else_is_obeyed(world):
    kernel = Kernel(argv_for("safe"), world=world)
    kernel.send("shutdown_request", {"restart": False}, "control")
    assert kernel.proc.wait(10) == 0
    kernel.close()


def test_an_end_of_the_guests_own_making_leaves_no_zombie(start):
    kernel = start("unsafe", "--allow-unsafe")
    for _ in range(3):
        kernel.run("import os\nos._exit(0)")
    kernel.run("1")
    assert kernel.sole_guest()

    # Copies that were let go of are buried by the guest, when it makes its next one.
    buriers = {kernel.proc.pid, kernel.zygote()}
    processes.until(lambda: buriers.isdisjoint(processes.parents(zombies=True).values()))


def test_threads_of_the_front_end_do_not_matter(start):
    """A kernel started from a thread lives on when that thread ends (PR_SET_PDEATHSIG trap)."""
    box = []
    thread = threading.Thread(target=lambda: box.append(start("safe")))
    thread.start()
    thread.join()
    assert box[0].run("1")[0]["status"] == "ok"
