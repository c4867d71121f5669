"""A wrapped interpreter that looks whether what is around it holds: the probe of ``seatbelt``."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.backends import planner
from cellblock.backends.probes import unprobed
from cellblock.policy.model import Policy

if TYPE_CHECKING:
    from cellblock.backends.base import Backend, Support

#: Seconds a trial may take: an interpreter's start on a machine that is busy.
PATIENCE: Final = 20.0
_LONGEST: Final = 64 * 1024
#: What has to be refused, each beside a control that has to succeed.
_SEEN: Final = ("files", "names", "writes", "links", "sockets", "programs")

#: Runs inside. Each line of the table is an attempt; its name starts with "no" if it is to fail.
_PROGRAM: Final = """
import json, os, socket, sys
inside, outside, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def connect():
    with socket.socket() as sock:
        sock.settimeout(5)
        sock.connect(("127.0.0.1", port))
def pair():
    one, other = socket.socketpair()
    one.sendall(b"x")
    other.recv(1)
def child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError("refused")
def started():
    os.execv("/usr/bin/true", ["true"])
attempts = {
    "files": lambda: open(inside + "/in").read(),
    "no files": lambda: open(outside + "/secret").read(),
    "names": lambda: os.stat(inside + "/in"),
    "no names": lambda: os.stat(outside + "/secret"),
    "writes": lambda: open(inside + "/new", "w").close(),
    "no writes": lambda: open(outside + "/new", "w").close(),
    "links": lambda: os.rename(inside + "/new", inside + "/newer"),
    "no links": lambda: os.link(outside + "/secret", inside + "/secret"),
    "sockets": pair,
    "no sockets": connect,
    "programs": lambda: child(lambda: None),
    "no programs": lambda: child(started),
}
said = {}
for name, attempt in attempts.items():
    try:
        attempt()
        said[name] = True
    except OSError:
        said[name] = False
print(json.dumps(said))
"""


def trial(backend: Backend) -> Support:
    """Try ``backend`` on this interpreter. Never raises; what can't be tried is unusable."""
    try:
        answer = _tried(backend)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return unprobed(f"the probe gave no answer: {error}", usable=False)
    if isinstance(answer, str):
        return unprobed(answer, usable=False)
    witnessed = tuple(name for name in _SEEN if answer.get(name) and not answer.get(f"no {name}"))
    unseen = [name for name in _SEEN if name not in witnessed]
    why = f"not witnessed: {', '.join(unseen)}" if unseen else "seen to hold in a probe"
    return replace(unprobed(why, usable=not unseen), witnessed=witnessed)


def _tried(backend: Backend) -> dict[str, bool] | str:
    """Return what came of each attempt, or what went wrong."""
    with (
        tempfile.TemporaryDirectory(prefix="cellblock-") as inside,
        tempfile.TemporaryDirectory(prefix="cellblock-") as outside,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        Path(inside, "in").write_text("in", encoding="utf-8")
        Path(outside, "secret").write_text("secret", encoding="utf-8")
        arguments = (os.path.realpath(inside), os.path.realpath(outside))
        done = _run(backend, *arguments, listener.getsockname()[1])
    if done.returncode:
        return f"the probe ended with {done.returncode}: {_last_line(done.stderr)}"
    answer = json.loads(done.stdout[:_LONGEST])
    return answer if isinstance(answer, dict) else "the probe gave no answer"


def _run(
    backend: Backend, inside: str, outside: str, port: int
) -> subprocess.CompletedProcess[bytes]:
    policy = Policy().replace(filesystem_write_roots=(inside,))
    folders: Any = {"scratch": Path(inside), "project": Path(inside)}
    view = planner.view(policy, planner.plan(policy, backend, **folders), **folders)
    program = [sys.executable, "-I", "-S", "-c", _PROGRAM, inside, outside, str(port)]
    with backend.command(program, view) as argv:
        return subprocess.run(  # noqa: S603 - our own program
            argv,
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else platform.system()
