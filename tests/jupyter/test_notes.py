"""An error of the OS layer names the capability and the field that would allow it."""

import pytest

from support import machines, reading
from support.kernels import World

ALLOW = "To allow it: "
CASES = {
    "read": ("open('/etc/shadow-').read()", "filesystem_read_roots"),
    "read, by pathlib": (
        "import pathlib; pathlib.Path('/proc/1/environ').read_text()",
        "filesystem_read_roots",
    ),
    "list": ("import os; os.listdir('/var')", "filesystem_read_roots"),
    "write": (
        "import os; open(os.path.dirname(os.__file__) + '/evil.py', 'w')",
        "filesystem_write_roots",
    ),
    "delete": ("import os; os.unlink(os.__file__)", "filesystem_write_roots"),
    "socket": ("import socket; socket.socket()", "network_access"),
    "url": (
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "network_access",
    ),
    "subprocess": ("import subprocess; subprocess.run(['id'])", "subprocess_execution"),
    "fork": ("import os; os.fork()", "subprocess_execution"),
    "exec": ("import os; os.execv('/bin/id', ['id'])", "subprocess_execution"),
    "escape": ("!id", "subprocess_execution"),
    "kill": ("import os; os.kill(os.getppid(), 9)", "subprocess_execution"),
}


@pytest.fixture(scope="module", params=["landlock", "bubblewrap"])
def unsafe(request, start_shared):
    """One kernel, and one in namespaces, where what is not granted is not even there."""
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    made = start_shared("unsafe", "--allow-unsafe", world=World(backend=request.param))
    made.own_world = True
    return made


@pytest.mark.parametrize("kind", CASES)
def test_a_refusal_says_what_would_allow_it(unsafe, kind):
    code, field = CASES[kind]
    reply, published = unsafe.run(code)
    assert reply["status"] == "error"
    text = reading.traceback(published)
    assert f"{ALLOW}{field}" in text, text


def test_the_note_stands_once_even_when_the_error_is_raised_again(unsafe):
    unsafe.run("try: open('/etc/shadow-')\nexcept OSError as e: kept = e")
    unsafe.run("raise kept")
    assert reading.traceback(unsafe.run("raise kept")[1]).count(ALLOW) == 1


@pytest.mark.parametrize(
    "code",
    [
        "raise PermissionError('of my own')",
        "open('no such file')",
        "import os; open('mine', 'w').close(); os.chmod('mine', 0); os.close(-1)",
    ],
)
def test_other_errors_get_no_note(unsafe, code):
    assert ALLOW not in reading.traceback(unsafe.run(code)[1])


def test_an_error_that_raises_at_every_touch_is_shown_as_it_is(unsafe):
    code = (
        "class Nasty(PermissionError):\n"
        "    def __getattribute__(self, name): raise RuntimeError(name)\n"
        "raise Nasty(13, 'x', '/etc')"
    )
    assert unsafe.run(code)[0]["status"] == "error"
    assert unsafe.run("1")[0]["status"] == "ok"


def test_without_locks_there_is_nothing_to_note(start, world):
    policy = world.policy('mode = "unsafe"\nbackend = "noop"\nrequire = []')
    kernel = start(policy, "--allow-unsafe", world=world)
    closed = world.write("closed", "")
    reply, published = kernel.run(f"import os; os.mkdir({str(closed)!r} + '/x')")
    assert reply["status"] == "error"
    assert ALLOW not in reading.traceback(published)
