"""What cells start in sessions of their own ends with the guest, and with the kernel (P10).

Started the way that daemons are: a session of its own, then an orphan in it, whose parents are gone
and whose signals are ignored. As the user, as nobody, and in namespaces.
"""

import os
import signal
import time

import pytest

from support import machines, processes, reading
from support.kernels import Kernel, argv_for, world_and_prefix

#: Starts a daemon; the result is its argument, by which it is found from outside.
DAEMON = """
import os, signal, subprocess, sys
name = "daemon-" + os.urandom(6).hex()
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.setpgid(0, 0)
        os.dup2(write, 1)
        os.close(write)
        said = f"echo {name}; exec >&-; while :; do sleep 9; done"
        os.execv("/bin/sh", ["sh", "-c", said, name])
    os._exit(0)
os.close(write)
os.wait()
line = open(read).readline().strip()
line
"""


def running(name):
    """Return the processes that were started with this argument, looked at from outside."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                with open(f"{entry.path}/cmdline", "rb") as file:  # noqa: PTH123
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if name.encode() in words:
                found.append(int(entry.name))
    return found


def ends(name):
    """Return whether nothing of that name runs, in time."""
    deadline = time.monotonic() + 10
    while running(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not running(name)


@pytest.fixture(params=machines.users(wrapped=True))
def kernel(request):
    world, prefix = world_and_prefix(request.param)
    policy = world.policy("extends = 'unsafe'\nsubprocess_execution = true\n")
    started = Kernel(argv_for(policy, "--allow-unsafe"), world=world, prefix=prefix)
    yield started.wait_ready()
    started.close()
    world.close()


def start(kernel):
    reply, published = kernel.run(DAEMON)
    assert reply["status"] == "ok", reply
    name = reading.result(published).strip("'")
    assert running(name), "the control: it is there, and seen from outside"
    return name


def test_a_daemon_ends_with_its_guest_with_a_restart_of_its_zygote_and_with_its_host(kernel):
    first = start(kernel)
    reply, _ = kernel.run("x = 1")
    assert reply["status"] == "ok"
    assert running(first), "a cell's end is not a daemon's"
    os.kill(kernel.guest(), signal.SIGKILL)
    kernel.run("1")
    assert ends(first)

    second = start(kernel)
    os.kill(kernel.zygote(), signal.SIGKILL)
    kernel.run("1")
    assert ends(second)

    third = start(kernel)
    left = kernel.tree()
    kernel.proc.send_signal(signal.SIGKILL)
    kernel.proc.wait(10)
    assert ends(third)
    assert processes.gone(left) == []


def test_a_daemon_ends_where_the_policy_gives_up_programs(kernel):
    name = start(kernel)
    reply, published = kernel.run("%policy narrow subprocess_execution = false")
    assert reply["status"] == "ok", (reply, reading.stream(published, "stderr"))
    assert ends(name)
