"""Seeing the locks hold: one refused attempt and one positive control for each.

Runs in the confined guest, before the first user byte, so what it sees is what a cell meets.
Every attempt is harmless should it succeed. An attempt that can't be made (nothing outside the
roots is there to open) proves nothing and is left out: unwitnessed, not passed.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine.errors import LockFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.wire.messages import Plan

#: Folders of which at least one is there, and that nobody makes readable.
_OUTSIDE: Final = ("/", "/proc", "/etc", "/root", "/home")
#: A port of this machine's that says nothing, if it is there (RFC 863).
_DISCARD: Final = 9
_REFUSED: Final = (errno.EACCES, errno.EPERM)


def files(plan: Plan) -> str:
    """Open a folder outside the roots, and one inside. Raises LockFailed unless that one alone."""
    outside = next((path for path in _OUTSIDE if not _granted(path, plan)), None)
    if outside is None or not plan.read_roots:
        return ""
    if not any(map(_opens, plan.read_roots)):
        raise LockFailed("files: no root can be opened")
    return _saw("files", lambda: os.close(os.open(outside, os.O_RDONLY)))


def calls(plan: Plan) -> str:
    """Make one refused call of each kind, and an allowed one. Raises LockFailed if one passes."""
    os.close(os.open("/", os.O_PATH))
    attempts: dict[str, Callable[[], object]] = {"signals": _signal_parent}
    if plan.relayed:
        attempts["connections"] = _connect
    elif plan.network:
        attempts["netlink"] = lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
    else:
        attempts["sockets"] = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    if not plan.subprocess:
        attempts["processes"] = _fork
        attempts["programs"] = lambda: os.execve("/nonexistent", ["-"], {})  # noqa: S606
    return ", ".join(_saw(what, attempt) for what, attempt in attempts.items())


def _saw(what: str, attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        if error.errno in _REFUSED:
            return what
        raise LockFailed(f"{what}: refused for another reason", error.errno or 0) from error
    raise LockFailed(f"{what}: an attempt succeeded under the lock")


def _granted(path: str, plan: Plan) -> bool:
    roots = (*plan.read_roots, *plan.write_roots)
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def _connect() -> None:
    with contextlib.closing(_socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as sock:
        sock.connect(("127.0.0.1", _DISCARD))


def _signal_parent() -> None:
    os.kill(os.getppid(), 0)  # asks for permission, sends nothing


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)
