"""The last line inside the interpreter: an audit hook (PEP 578) that judges operations.

Whatever path user code finds, opening, connecting, spawning and making code raise audit events.
Events from a user's own frame are refused unless listed; events from library frames are refused
by kind. A hook can't be removed. It holds everything in closures, so that there is no table to
edit. Not covered, since CPython reports nothing: stat, access, readlink, read and write on open
descriptors. The OS layer bounds those.

A refusal is an exception where library code does what it says itself, a display class that opens
a file, say: nothing was done, and the cell may go on. Anything else is a breach, for the guards
are there to keep cells from holding what raises such events. It is reported and the process ends,
since an exception could be caught.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cellblock.analysis.rules import RULES
from cellblock.guest import forking, installed
from cellblock.guest.guards import trust
from cellblock.guest.guards.violations import OperationViolation

if TYPE_CHECKING:
    from collections.abc import Callable

    Report = Callable[[str], None]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_AF_UNIX = 1
#: What honest code causes from its own frames, and sys._getframe, which the judges themselves
#: use: frames are guarded by their type.
_FREE = frozenset(
    """
    array.__new__ builtins.id builtins.input builtins.input/result sys._getframe sys.excepthook
    sys.unraisablehook time.sleep
    """.split()  # noqa: SIM905 - a table reads better
)
#: Attributes whose getters raise an event; the guards' own frames ask for those that are fine.
_INTERNAL = frozenset(
    """
    __builtins__ __code__ __globals__ ag_code ag_frame cr_code cr_frame f_code gi_code gi_frame
    tb_frame
    """.split()  # noqa: SIM905 - as above
)
_ATTRIBUTES = ("object.__getattr__", "object.__setattr__", "object.__delattr__")
_PROCESS = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.", "subprocess.")
_PROCESS_MORE = ("os.fork", "os.kill", "os.killpg", "os.startfile", "signal.", "webbrowser.")
_NETWORK = ("ftplib.", "http.", "imaplib.", "nntplib.", "poplib.", "smtplib.", "socket.")
_NETWORK_MORE = ("telnetlib.", "urllib.")
_FILES = ("fcntl.", "glob.", "mmap.", "os.", "shutil.", "sqlite3.", "tempfile.")
_NATIVE = ("code.__new__", "ctypes.", "function.__new__", "gc.")
_INTERPRETER = (
    "cpython.run_", "ensurepip.", "pdb.", "pickle.", "resource.", "setopencodehook",
    "sys._current", "sys.addaudithook", "syslog.",
)  # fmt: skip
#: Whoever raises these, no honest cell is behind it.
_BREACHES = _PROCESS + _PROCESS_MORE + _NETWORK + _NETWORK_MORE + _NATIVE + _INTERPRETER
#: What code says that raises an event under another name than the event's own.
_SPELT = {
    "ctypes.cdata": ("from_address",),
    "mmap.__new__": ("mmap", "__new__"),
    # The compiler looks for the file that a syntax error is in.
    "open": ("open", "open_code", "fdopen", "FileIO", "compile"),
    "os.remove": ("remove", "unlink"),
    "os.rename": ("rename", "replace"),
    "os.scandir": ("scandir", "walk", "fwalk", "glob"),
}
#: ``types.coroutine`` does, of code that was checked.
_MAKES_CODE = frozenset({"code.__new__", "function.__new__"})
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
    found.update(installed.places())
    found |= {os.path.realpath(path) for path in found}
    found.add(__file__.rpartition("/guest/guards/")[0])
    return tuple(sorted(path.rstrip("/") + "/" for path in found))


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """Return the folders of time zone data, which C code reads in the cell's own frame."""
    import zoneinfo  # noqa: PLC0415 - not before the guards go in

    packaged = (root + "tzdata/zoneinfo" for root in roots())
    return tuple(path.rstrip("/") + "/" for path in (*zoneinfo.TZPATH, *packaged))


def arming(
    *, files: bool, network: bool, processes: bool, native: bool
) -> Callable[[Report], None]:
    """Return what has the process refuse, once called, what is False here.

    What is True is left to the OS layer. It is called with ``report``, which gets the event of a
    breach and is not expected to return.
    """
    refused: tuple[str, ...] = _INTERPRETER
    refused += () if processes else _PROCESS + _PROCESS_MORE
    refused += () if network else _NETWORK + _NETWORK_MORE
    refused += () if native else _NATIVE
    if not files:
        refused += tuple(name for name in _FILES)
    keep = () if not processes else _PROCESS + _PROCESS_MORE
    judge = _judge(refused, keep, files=files, native=native)

    def arm(report: Report) -> None:
        sys.addaudithook(_hook(judge, report))

    return arm


_PASSES, _REFUSED, _BREACH = range(3)


def _hook(
    judge: Callable[[str, tuple[Any, ...]], int], report: Report
) -> Callable[[str, tuple[Any, ...]], None]:
    free, violation, rule, breach, passes = _FREE, OperationViolation, _RULE, _BREACH, _PASSES
    is_due = forking.is_due

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in free or (event == "os.fork" and is_due()):
            return
        verdict = judge(event, args)
        if verdict == passes:
            return
        if verdict == breach:
            report(event)
        raise violation(rule.id, event, rule.why, rule.remedy)

    return hook


def _judge(
    refused: tuple[str, ...], keep: tuple[str, ...], *, files: bool, native: bool
) -> Callable[[str, tuple[Any, ...]], int]:
    is_own, is_real, says = trust.operators()
    is_trusted, _ = trust.judges()
    zone_folders = zones()
    is_refused = _kind_judge(refused, keep)
    passes = _library_judge(is_refused, roots() + zone_folders, files=files, native=native)
    makes_code, attributes, internal = _MAKES_CODE, _ATTRIBUTES, _INTERNAL
    breaches, spelt, allowed_path = _BREACHES, _SPELT, _allowed_path

    def judge(event: str, args: tuple[Any, ...]) -> int:
        real = is_real(2)
        if event in attributes:
            return _PASSES if real or args[1] not in internal else _BREACH
        if not real:
            opens_zone = event == "open" and allowed_path(args, zone_folders)
            return _PASSES if opens_zone else _BREACH
        if (event in makes_code and is_trusted(2)) or passes(event, args):
            return _PASSES
        if event == "import":
            return _REFUSED
        said = says(2, spelt.get(event) or (event.rpartition(".")[2],))
        if is_own(2):
            return _PASSES if said else _BREACH
        return _BREACH if event.startswith(breaches) or not said else _REFUSED

    return judge


def _kind_judge(refused: tuple[str, ...], keep: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a memo of which events are refused by their kind."""
    kinds: dict[str, bool] = {}
    harmless = _HARMLESS

    def is_refused(event: str) -> bool:
        known = kinds.get(event)
        if known is None:
            known = event.startswith(refused) and not (keep and event.startswith(keep))
            kinds[event] = known = known and event not in harmless
        return known

    return is_refused


def _library_judge(
    is_refused: Callable[[str], bool], readable: tuple[str, ...], *, files: bool, native: bool
) -> Callable[[str, tuple[Any, ...]], bool]:
    listing, native_modules, nowhere = _LISTING, _NATIVE_MODULES, _NOWHERE
    allowed_path, unix = _allowed_path, _AF_UNIX

    def passes(event: str, args: tuple[Any, ...]) -> bool:
        if event == "open":
            looks_up = type(args[0]) is str and args[0] in nowhere
            return files or looks_up or allowed_path(args, readable)
        if event == "import":
            return native or args[0] not in native_modules
        if event in listing and args and allowed_path((args[0], "r", 0), readable):
            return True
        if event == "socket.__new__" and args[1] == unix:
            return True  # an event loop's own socket pair
        return not is_refused(event)

    return passes


def _allowed_path(args: tuple[Any, ...], readable: tuple[str, ...]) -> bool:
    """Whether ``open(path, mode, flags)`` reads a file of the installation."""
    path, _, flags = args
    if type(path) is bytes:
        path = os.fsdecode(path)
    if type(path) is not str or (type(flags) is int and flags & _WRITES):
        return False
    return (path + "/").startswith(readable) and "/.." not in path
