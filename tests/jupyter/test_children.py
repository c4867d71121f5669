"""A cell's children are its own: copies of the guest are none of them."""

import pytest

from support import machines, reading
from support.kernels import start_staged

#: Each leaves a copy, and more than are kept: those that are dropped have ended.
CELLS = "kept = list(range(10_000))"
FORK = """
import os
from operator import attrgetter
def fork(status=0):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until this end is closed, below
        os._exit(status)
    os.close(read)
    return child, write
"""
WAITS = {
    "wait": "(child, 3 << 8) == os.wait()",
    "waitpid": "(child, 3 << 8) == os.waitpid(-1, 0)",
    "of the group": "(child, 3 << 8) == os.waitpid(0, 0)",
    "wait3": "(child, 3 << 8) == os.wait3(0)[:2]",
    "wait4": "(child, 3 << 8) == os.wait4(-1, 0)[:2]",
    "waitid that leaves it": "os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid == os.wait()[0]",
    "waitid": "(child, 3) == attrgetter('si_pid', 'si_status')(os.waitid(os.P_ALL, 0, os.WEXITED))",
}


@pytest.fixture(params=machines.places(), ids=" ".join)
def kernel(request, start):
    kernel = start_staged(start, *request.param)
    for _ in range(8):
        kernel.run(CELLS)
    kernel.run(FORK)
    return kernel


def printed(kernel, code):
    reply, sent = kernel.run(code)
    assert reply["status"] == "ok", reading.traceback(sent)
    return reading.stream(sent)


def test_who_waits_for_any_child_gets_its_own(kernel):
    wrong = []
    for name, wait in WAITS.items():
        kernel.run(CELLS)
        code = f"child, held = fork(3)\nos.close(held)\nprint({wait})"
        if printed(kernel, code) != "True\n":
            wrong.append(name)
    assert not wrong


def test_who_has_no_child_is_told_so(kernel):
    assert (
        printed(
            kernel,
            """
held = [fork(status)[1] for status in range(3)]
for each in held:
    os.close(each)
ended = 0
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
    ended += 1
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(ended)
""",
        )
        == "3\n"
    )


def test_who_waits_in_vain_is_told_so(kernel):
    """Another thread has waited for the last child; or nobody is to (signal(7))."""
    code = """
import concurrent.futures, signal
def waited(_):
    try:
        return os.wait()[0] == child
    except ChildProcessError:
        return None
child, held = fork()
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    both = pool.map(waited, range(2))
    os.close(held)
    print(sorted(both, key=str))
before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child, held = fork()
os.close(held)
print(waited(0))
_ = signal.signal(signal.SIGCHLD, before)
"""
    assert printed(kernel, code) == "[None, True]\nNone\n"


def test_who_does_not_wait_is_told_that_there_are_children(kernel):
    code = "child, held = fork()\nprint(os.waitpid(-1, os.WNOHANG), os.wait3(os.WNOHANG)[:2])"
    assert printed(kernel, code) == "(0, 0) (0, 0)\n"
    assert printed(kernel, "os.close(held)\nprint(os.wait() == (child, 0))") == "True\n"


def test_psutil_finds_a_cells_children_and_no_copy(kernel):
    code = (
        "import psutil, subprocess\nfound = psutil.Process().children\n"
        "program = subprocess.Popen(['sleep', '600'])\n"
        "try:\n    print([child.pid == program.pid for child in found(recursive=True)])\n"
        "except PermissionError:\n    print([True])  # landlock alone leaves /proc unread\n"
        "program.kill()\n_ = program.wait()"
    )
    assert printed(kernel, code) == "[True]\n"
