"""Notes on errors that the OS layer causes: which policy field stands behind "not permitted".

A hint for whoever reads the traceback, drawn from the exception and from where it was raised.
Nothing is decided by it: user code can forge every part, and then misleads only itself.
"""

from __future__ import annotations

import errno
import linecache
import os
import re
import socket
import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.wire.messages import Plan

_DENIED: Final = {errno.EACCES, errno.EPERM}
#: The lock under which other names are not there at all, and what is read is mounted so.
_NAMESPACES: Final = "namespaces"
_CHAIN: Final = 8

#: Modules and calls whose refusal is about processes, or about the network.
_PROCESS: Final = re.compile(
    r"\b(subprocess|multiprocessing|pty|fork|forkpty|posix_spawnp?|exec[lv]p?e?|kill|killpg|pidfd)\b"
)
_NETWORK: Final = re.compile(
    r"\b(socket|socketpair|ssl|connect|bind|sendto|urllib|http|asyncio\.open_connection"
    r"|guest/(?:network|sockets))\b"
)
_PACKAGE: Final = re.compile(
    r"/(subprocess|multiprocessing|pty|socket|ssl|http|urllib|guest/(?:network|sockets))\b"
)

#: Where libraries that open files by themselves leave the path: Arrow quotes it, Polars appends it.
_PATH: Final = re.compile(r"(?:^|\s)'([^'\0]{1,4096})'|: (/[^\0\n]{1,4096})")
_LONGEST_TEXT: Final = 10_000
#: SQLITE_CANTOPEN, SQLITE_READONLY; SQLite does not say what it could not open.
_SQLITE: Final = {14, 8}

_NOTE: Final = "cellblock: {what}. The operator can allow it: {field} in the policy."


def explain(error: BaseException, plan: Plan) -> None:
    """Add a note to ``error`` and to what it was raised from, where a lock of ours refused."""
    if not plan.locks:
        return
    for link in _chain(error):
        try:
            note = _note(link, plan)
            if note and note not in getattr(link, "__notes__", ()):
                link.add_note(note)
        except Exception:  # noqa: BLE001, S112 - a user's exception may raise at every touch
            continue


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_CHAIN):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _note(error: BaseException, plan: Plan) -> str | None:
    if _cannot_open(error):
        what = "databases outside the folders that cells may write can't be opened"
        return _NOTE.format(what=what, field="filesystem_write_roots")
    if not isinstance(error, OSError):
        return None
    path = error.filename or _path_in(error)
    named = os.fsdecode(path) if isinstance(path, str | bytes) else None
    apart = _NAMESPACES in plan.locks
    if apart and error.errno == errno.ENOENT:
        return _about_name(named, plan) if named else None
    # Of listed names a name server knows best; the relay's own word is this one.
    unresolved = type(error).__name__ == "gaierror" and (
        not plan.relayed or error.errno == socket.EAI_FAIL
    )
    denied = isinstance(error, PermissionError) or error.errno in _DENIED
    if not (denied or unresolved or (apart and error.errno == errno.EROFS)):
        return None
    return _about_calls(error, plan, unresolved=unresolved) or (named and _about_path(named, plan))


def _about_calls(error: OSError, plan: Plan, *, unresolved: bool) -> str | None:
    words = _where(error)
    if not plan.subprocess and _PROCESS.search(words):
        return _NOTE.format(
            what="cells may not start or reach processes", field="subprocess_execution"
        )
    if not plan.network and (unresolved or _NETWORK.search(words)):
        what = "cells have no network"
        if plan.relayed:
            what = "cells reach listed addresses alone, by TCP, through Python's own sockets"
        return _NOTE.format(what=what, field="network_access")
    return None


def _cannot_open(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return type(error).__module__ == "sqlite3" and isinstance(code, int) and code & 0xFF in _SQLITE


def _path_in(error: OSError) -> str | None:
    """Return the path that a library wrote into its message."""
    text = " ".join(arg for arg in error.args if isinstance(arg, str))
    found = _PATH.search(text[:_LONGEST_TEXT])
    return found and (found[1] or found[2])


def _where(error: BaseException) -> str:
    """Return the library modules the error came through, and the line that raised it."""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    if not frames:
        return ""
    modules = " ".join(m[1] for name, _ in frames if (m := _PACKAGE.search(name)))
    return f"{modules} {linecache.getline(*frames[-1])}"


def _about_name(path: str, plan: Plan) -> str | None:
    """Speak of what is not there where it could not be, whether it is there for others or not."""
    shown = (*plan.read_roots, *plan.write_roots, *plan.device_files)
    return None if _within(os.path.realpath(path), shown) else _about_path(path, plan)


def _about_path(path: str, plan: Plan) -> str | None:
    real = os.path.realpath(path)
    if _within(real, (*plan.write_roots, *plan.device_files)):
        return None  # not our doing: an ordinary permission
    if _within(real, plan.read_roots):
        what = f"{path} is outside the folders that cells may write"
        return _NOTE.format(what=what, field="filesystem_write_roots")
    what = f"{path} is outside the folders that cells may use"
    field = "filesystem_read_roots (to write: filesystem_write_roots)"
    return _NOTE.format(what=what, field=field)


def _within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)
