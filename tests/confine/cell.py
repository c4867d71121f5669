"""Running one small program in a forked child, confined or not, and hearing how it ended."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cellblock.descriptors import is_readable
from cellblock.guest.confine import LOCKS, confine
from cellblock.guest.confine.landlock import HIGHEST_KNOWN_ABI
from cellblock.wire.messages import Limits, Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOBODY = 65534
PATIENCE = 20.0

LIBRARIES = tuple(
    str(path)
    for path in (
        "/usr/lib",
        "/usr/lib64",
        "/usr/share/zoneinfo",
        os.path.realpath(sysconfig.get_path("stdlib")),
        f"{os.path.realpath(sys.base_prefix)}/lib",
        os.path.realpath(sysconfig.get_path("purelib")),
    )
    if os.path.exists(path)  # noqa: PTH110
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class World:
    """What lies around a guest: a readable folder, a writable one, and what is neither."""

    readable: Path
    scratch: Path
    outside: Path
    sentinel: int
    port: int

    def plan(self, **changes: Any) -> Plan:
        chosen: dict[str, Any] = {
            "read_roots": (str(self.readable), *LIBRARIES),
            "write_roots": (str(self.scratch),),
            "device_files": DEVICES,
            "limits": Limits(max_open_files=200),
            "locks": LOCKS,
            "required": LOCKS,
        }
        return Plan(**(chosen | changes))


def run(
    program: Callable[[], object],
    *,
    plan: Plan | None,
    uid: int,
    abi: int = HIGHEST_KNOWN_ABI,
) -> str:
    """Return "ok", "ok: value", an errno's name, an exception's type, or how the child died."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(program, plan, uid, abi, theirs)
    os.close(theirs)
    if not is_readable(ours, PATIENCE):
        os.kill(pid, signal.SIGKILL)
    said = b"".join(iter(lambda: os.read(ours, 65536), b""))
    os.close(ours)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "stopped"
    if os.WIFSIGNALED(status) and not said:
        return signal.Signals(os.WTERMSIG(status)).name
    return str(json.loads(said or '"nothing"'))


def _child(program, plan, uid, abi, out):
    try:
        if uid != os.getuid():
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        if plan is not None:
            confine(plan, highest_abi=abi)
        os.write(out, json.dumps(_outcome(program)).encode())
        os._exit(0)
    finally:
        os._exit(70)


def _outcome(program: Callable[[], object]) -> str:
    try:
        value = program()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except BaseException as error:  # noqa: BLE001 - the row says which is expected
        return f"{type(error).__name__}: {error}"
    return "ok" if value is None else f"ok: {value}"
