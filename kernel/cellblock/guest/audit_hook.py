"""The last line inside the interpreter: an audit hook (PEP 578) that judges operations by kind.

Whatever path user code finds, opening, connecting, spawning and making code raise audit events.
What this process is never to do is refused, whoever tries. A hook can't be removed, and this one
holds everything in closures, so that there is no table to edit. Not covered, since CPython reports
nothing: stat, access, readlink, read and write on open descriptors. The OS layer bounds those.

A refusal is an exception where honest cells lead to it, by a display class that opens a file, say:
nothing was done, and the cell may go on. Where none does it is a breach: it is reported and the
process ends, since an exception could be caught.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cellblock.analysis.findings import RULES
from cellblock.guest import installed
from cellblock.guest.guards.access import LIBRARY, freeze_loaded
from cellblock.guest.violations import OperationViolation, is_exempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Rules

    Report = Callable[[str], None]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_AF_UNIX = 1
_PROCESS = (
    "os.exec", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn", "os.spawn",
    "os.startfile", "os.system", "pty.", "signal.", "subprocess.", "webbrowser.",
)  # fmt: skip
_NETWORK = (
    "ftplib.", "http.", "imaplib.", "nntplib.", "poplib.", "smtplib.", "socket.", "telnetlib.",
    "urllib.",
)  # fmt: skip
_FILES = ("fcntl.", "glob.", "mmap.", "os.", "shutil.", "sqlite3.", "tempfile.")
_NATIVE = ("ctypes.", "function.__new__", "gc.")
_INTERPRETER = (
    "cpython.run_", "ensurepip.", "pdb.", "pickle.", "resource.", "setopencodehook",
    "sys._current", "sys.addaudithook", "sys.settrace", "syslog.",
)  # fmt: skip
#: Whoever raises these, no honest cell is behind it.
_BREACHES = (*_PROCESS, *_NETWORK, *_NATIVE, *_INTERPRETER, "object.__setattr__")
_LISTING = frozenset({"os.fwalk", "os.listdir", "os.scandir", "os.walk"})
_HARMLESS = frozenset({"os.putenv", "os.unsetenv"})
#: Where the parser looks for the line of a syntax error, as if text had come from a file.
_NOWHERE = frozenset({"<fstring>", "<input>", "<stdin>", "<string>", "<unknown>"})
_NATIVE_MODULES = frozenset({"_ctypes", "_cffi_backend", "cffi", "ctypes"})

_RULE = RULES["operation-not-allowed"]


@lru_cache(maxsize=1)
def roots() -> tuple[str, ...]:
    """Return the folders and files of the installation, each ending in a slash."""
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.update(installed.package_paths())
    found |= {os.path.realpath(path) for path in found}
    found.add(__file__.rpartition("/guest/")[0])
    return tuple(sorted(path.rstrip("/") + "/" for path in found))


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """Return the folders of time zone data."""
    import zoneinfo  # noqa: PLC0415 - not before the guards go in

    packaged = (root + "tzdata/zoneinfo" for root in roots())
    return tuple(path.rstrip("/") + "/" for path in (*zoneinfo.TZPATH, *packaged))


def arming(
    rules: Rules, *, files: bool = False, network: bool = False, processes: bool = False
) -> Callable[[Report], None]:
    """Return what has the process refuse operations that are False here, once called.

    For the zygote, when all of the guest's modules are imported: what it touches, guests share.
    What it returns is for the guest, after the OS locks and before the first user byte; there is
    no way back. What is True is left to the OS layer. Packages that the operator lets in raw need
    files and native code, so with those only network and processes are refused. It is called with
    ``report``, which gets the event of a breach: it is to end the process.
    """
    if not rules.language:
        return lambda _report: None
    freeze_loaded(LIBRARY | {"cellblock"})
    native = bool(rules.raw_modules)
    refused: tuple[str, ...] = _INTERPRETER
    refused += () if processes else _PROCESS
    refused += () if network else _NETWORK
    refused += () if native else _NATIVE
    refused += () if files or native else _FILES
    kept = _PROCESS if processes else ()
    judge = _judge(refused, kept, files=files or native, native=native)

    def arm(report: Report) -> None:
        sys.addaudithook(_hook(judge, report))

    return arm


def _hook(
    is_refused: Callable[[str, tuple[Any, ...]], bool], report: Report
) -> Callable[[str, tuple[Any, ...]], None]:
    violation, rule, breaches, is_ours = OperationViolation, _RULE, _BREACHES, is_exempt

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not is_refused(event, args) or is_ours():
            return
        if event.startswith(breaches):
            report(event)
        raise violation(rule.id, event, rule.why, rule.remedy)

    return hook


def _judge(
    refused: tuple[str, ...], kept: tuple[str, ...], *, files: bool, native: bool
) -> Callable[[str, tuple[Any, ...]], bool]:
    """Return a test for what is refused; ``kept`` are kinds that are not, though others' like."""
    kinds: dict[str, bool] = {}
    readable = roots() + zones()
    listing, harmless, native_modules = _LISTING, _HARMLESS, _NATIVE_MODULES
    nowhere, allowed_path, unix = _NOWHERE, _allowed_path, _AF_UNIX

    def is_refused(event: str, args: tuple[Any, ...]) -> bool:
        if event == "open":
            looks_up = type(args[0]) is str and args[0] in nowhere
            return not (files or looks_up or allowed_path(args, readable))
        if event == "import":
            return not native and args[0] in native_modules
        if event == "object.__setattr__":
            return not native and args[1] == "__code__"
        known = kinds.get(event)
        if known is None:
            known = event.startswith(refused) and not (kept and event.startswith(kept))
            kinds[event] = known = known and event not in harmless
        if not known:
            return False
        if event in listing and args:
            return not allowed_path((args[0], "r", 0), readable)
        return not (event == "socket.__new__" and args[1] == unix)  # an event loop's own pair

    return is_refused


def _allowed_path(args: tuple[Any, ...], readable: tuple[str, ...]) -> bool:
    """Whether ``open(path, mode, flags)`` reads a file of the installation."""
    path, _, flags = args
    if type(path) is bytes:
        path = os.fsdecode(path)
    if type(path) is not str or (type(flags) is int and flags & _WRITES):
        return False
    return (path + "/").startswith(readable) and "/.." not in path
