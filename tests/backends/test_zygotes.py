"""What a policy preloads is imported under the locks of the widest guest, never unconfined (P12)."""

import json
import subprocess
import sys

import pytest

from support import machines
from support.kernels import world_and_prefix

WHY_NOT = machines.no_bubblewrap()
BACKENDS = [
    "landlock",
    pytest.param("bubblewrap", marks=pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)),
]

#: What an import does that has been made to serve somebody else: each is refused, but the last.
MODULE = """
import os, socket, subprocess, sys
WORLD = os.path.dirname(os.path.dirname(__file__))
OUTSIDE = WORLD + "/home"

def follow():
    os.symlink(OUTSIDE + "/secret", "link")
    open("link").close()

def take(megabytes):
    return bytearray(megabytes << 20)

ATTEMPTS = {
    "read": lambda: open(OUTSIDE + "/secret").close(),
    "follow a link": follow,
    "write": lambda: open(OUTSIDE + "/new", "w").close(),
    "write beside itself": lambda: open(os.path.dirname(__file__) + "/new", "w").close(),
    "change a mode": lambda: os.chmod(__file__, 0o600),
    "open a socket": lambda: socket.socket().close(),
    "start a program": lambda: subprocess.run([sys.executable, "-c", ""]),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "take memory": lambda: take(700),
    "be at home": lambda: open(os.path.expanduser("~/mine"), "w").close(),
}

def tried(attempt):
    try:
        attempt()
    except (OSError, MemoryError):
        return "refused"
    return "done"

FOUND = {name: tried(attempt) for name, attempt in ATTEMPTS.items()}
"""
PROGRAM = """
import sys
folder, backend = sys.argv[1:]
sys.path.append(folder)
from cellblock import Policy, Sandbox
policy = Policy.preset("unsafe", backend=backend, preload=["preloaded"], memory_max_bytes=2**29)
with Sandbox(policy, allow_unsafe=True) as sandbox:
    print(sandbox.execute("import json, preloaded; json.dumps(preloaded.FOUND)").result)
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("user", machines.users())
def test_what_is_preloaded_can_do_no_more_than_a_cell(user, backend):
    world, prefix = world_and_prefix(user)
    try:
        for path, text in ((world.work / "preloaded.py", MODULE), (world.home / "secret", "")):
            path.write_text(text)
            world.give(path)
        argv = [*prefix, sys.executable, "-c", PROGRAM, str(world.work), backend]
        env = world.environment(PATH=machines.WITH_BUBBLEWRAP)
        shown = subprocess.check_output(argv, env=env, cwd=world.work, text=True, timeout=60)
    finally:
        world.close()
    found = json.loads(shown.strip()[1:-1])
    assert found.pop("be at home") == "done"
    assert set(found.values()) == {"refused"}, found
