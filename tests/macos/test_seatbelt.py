"""The profile for macOS, tried: a real sandbox-exec around a real interpreter.

Runs on macOS only, without the kernels of the other tests (.github/workflows/macos.yml). A guest
needs Linux today, so what is tried is the interpreter that would become the zygote.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.backends import plan
from cellblock.backends.base import choose
from cellblock.backends.seatbelt import Seatbelt
from cellblock.policy.model import Policy

pytestmark = pytest.mark.skipif(
    sys.platform != "darwin", reason="needs macOS: .github/workflows/macos.yml runs it there"
)

#: An attempt is one line of statements; a refusal is PermissionError and nothing else.
PRELUDE = """\
import os, socket, sys
scratch, home = sys.argv[1:]
try:
    {attempt}
except PermissionError:
    print("refused")
else:
    print("done")
"""


class Place:
    """A scratch folder, and a home with something to hide."""

    def __init__(self, root):
        self.scratch, self.home = root / "scratch", root / "home"
        for folder in (self.scratch, self.home / ".ssh", self.home / 'odd ") (allow default) ("'):
            folder.mkdir(parents=True)
        (self.home / ".ssh/key").write_text("key")
        (self.home / "notes").write_text("notes")
        (self.scratch / "in").write_text("in")

    def run(self, attempt, **fields):
        """Return what came of an attempt under a policy with these fields."""
        program = PRELUDE.format(attempt=attempt)
        argv = [sys.executable, "-I", "-S", "-c", program, str(self.scratch), str(self.home)]
        policy = Policy().replace(filesystem_write_roots=(str(self.scratch),)).replace(**fields)
        where = {"scratch": self.scratch, "project": self.home}
        view = plan.make_view(policy, plan.make_plan(policy, Seatbelt(), **where), **where)
        done = subprocess.run(
            Seatbelt().wrap(argv, view),
            env={},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(Path(os.path.realpath(tmp_path)))
    monkeypatch.setenv("HOME", str(made.home))
    return made


def test_the_probe_sees_every_lock_hold():
    support = Seatbelt().probe()

    assert support.usable, support.why
    assert support.witnessed == ("files", "names", "writes", "links", "sockets", "programs")


def test_auto_takes_it():
    assert choose(Policy()).backend.name == "seatbelt"


REFUSED = {
    "reading": 'open(home + "/notes").read()',
    "looking up": 'os.stat(home + "/notes")',
    "listing": "os.listdir(home)",
    "writing": 'open(home + "/new", "w")',
    "removing": 'os.unlink(home + "/notes")',
    "renaming into reach": 'os.rename(home + "/notes", scratch + "/notes")',
    "linking into reach": 'os.link(home + "/notes", scratch + "/notes")',
    "following a link out": (
        'os.symlink(home + "/notes", scratch + "/link"), open(scratch + "/link").read()'
    ),
    "changing modes": "os.chmod(home, 0o777)",
    "set-user-id": 'os.chmod(scratch + "/in", 0o4755)',
    "connecting": 'socket.socket().connect(("127.0.0.1", 1))',
    "datagrams": 'socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))',
    "listening": 'socket.create_server(("127.0.0.1", 0))',
    "a local socket": ("socket.socket(socket.AF_UNIX).connect('/private/var/run/mDNSResponder')"),
    "executing": 'os.execv("/usr/bin/true", ["true"])',
    "executing what was made": (
        'open(scratch + "/made", "w").write("#!/bin/sh"), os.chmod(scratch + "/made", 0o755), '
        'os.execv(scratch + "/made", ["made"])'
    ),
    "spawning": 'os.posix_spawn("/usr/bin/true", ["true"], {})',
    "signalling the host": "os.kill(os.getppid(), 0)",
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_an_attempt_is_refused(place, attempt):
    assert place.run(REFUSED[attempt]) == "refused"


ALLOWED = {
    "reading": 'open(scratch + "/in").read()',
    "writing": 'open(scratch + "/new", "w").write("x")',
    "renaming": 'os.rename(scratch + "/in", scratch + "/out")',
    "locking": 'import fcntl; fcntl.lockf(open(scratch + "/in", "r+"), fcntl.LOCK_EX)',
    "pairs of sockets": 'one, other = socket.socketpair(); one.sendall(b"x")',
    "threads": "import threading; threading.Thread(target=print).start()",
    "facts": "os.uname(), os.cpu_count(), os.urandom(8), os.getcwd()",
    "devices": 'open("/dev/null", "w").write("x")',
    "modules": "import ssl, sqlite3, zoneinfo, ctypes; zoneinfo.ZoneInfo('Europe/Berlin')",
    "forking, which is the gap": "os.waitpid(os.fork() or os._exit(0), 0)",
}


@pytest.mark.parametrize("attempt", ALLOWED)
def test_honest_code_goes_on(place, attempt):
    assert place.run(ALLOWED[attempt]).endswith("done")


@pytest.mark.parametrize("name", [".ssh/key", ".SSH/key", ".Ssh/KEY"])
def test_a_denied_path_is_denied_in_any_case_beneath_a_read_root(place, name):
    roots = (str(place.home),)

    assert place.run('open(home + "/notes").read()', filesystem_read_roots=roots) == "done"
    attempt = f'open(home + "/{name}").read()'
    assert place.run(attempt, filesystem_read_roots=roots) == "refused"


def test_a_root_in_another_case_is_the_folder_it_names(place):
    roots = (str(place.home).upper(),)

    assert place.run('open(home + "/notes").read()', filesystem_read_roots=roots) == "done"


def test_a_name_with_rules_in_it_is_a_name(place):
    roots = (str(place.home / 'odd ") (allow default) ("'),)

    assert place.run('open(home + "/notes").read()', filesystem_read_roots=roots) == "refused"


def test_programs_run_where_the_policy_has_processes(place):
    attempt = 'os.execv("/usr/bin/true", ["true"])'

    assert place.run(attempt, subprocess_execution=True) == ""
