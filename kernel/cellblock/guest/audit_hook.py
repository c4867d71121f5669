"""Two audit hooks (PEP 578): one refuses operations, the other notes the effects of cells.

*The refusing hook* (``arming``) is the language layer's last defence inside the interpreter.
Whatever path user code finds, opening, connecting, spawning and making code raise audit events, and
operations that this process must never do are refused, whoever tries. No hook can be removed, and
this one keeps everything in closures, so that there is no table to edit. CPython raises no event
for stat, access, readlink, and for read and write on open descriptors; the OS layer bounds these.

A refusal is an exception if honest code can cause it, such as a display class that opens a file:
nothing was done, and the cell may go on. Otherwise it is a *breach*: it is reported and the process
ends, since an exception could be caught.

*The noting hook* (``Effects``) notes what a cell did or read that would happen twice, or come out
otherwise, if the cell ran again. After a kill, the host restores a session by a copy and runs the
later cells again, if they had no such effects (``analysis.dataflow``, ADR 0027). A cell can hide
its effects; it then spoils only its own session.
"""

from __future__ import annotations

import _thread
import asyncio
import errno
import fcntl
import functools
import inspect
import itertools
import mmap
import os
import random
import re
import resource
import signal
import stat
import sys
import sysconfig
import threading
from enum import Enum
from functools import lru_cache
from hashlib import shake_256
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.findings import RULES, word_set
from cellblock.guest import installed
from cellblock.guest.guards.access import LIBRARY, freeze_loaded
from cellblock.guest.loop import own_descriptors
from cellblock.guest.violations import OperationViolation, is_exempt, run_exempt

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cellblock.analysis import Rules

    Report = Callable[[str], None]
    from collections.abc import Callable, Iterator


#: Flags of open(2) with which the file may change.
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
    "cpython.PyInterpreterState_New", "cpython.run_", "ensurepip.", "pdb.", "pickle.", "resource.",
    "setopencodehook", "sys._current", "sys.addaudithook", "sys.settrace", "syslog.",
)  # fmt: skip
#: Events that no honest cell causes.
_BREACHES = (*_PROCESS, *_NETWORK, *_NATIVE, *_INTERPRETER, "object.__setattr__")
_LISTING = frozenset({"os.fwalk", "os.listdir", "os.scandir", "os.walk"})
_HARMLESS = frozenset({"os.putenv", "os.unsetenv"})
#: File names that the parser tries to open for the line of a syntax error, though the text did not
#: come from a file.
_NOWHERE = frozenset({"<fstring>", "<input>", "<stdin>", "<string>", "<unknown>"})
_NATIVE_MODULES = frozenset({"_ctypes", "_cffi_backend", "cffi", "ctypes"})
#: Modules that make other interpreters, imported by Python's own modules for that
#: (``concurrent.interpreters``). A hook belongs to one interpreter, so another would run without
#: it, and from 3.13 on making one raises no event that a hook sees.
_INTERPRETER_MODULES = frozenset({"_interpreters", "_xxsubinterpreters"})

_RULE = RULES["operation-not-allowed"]


@lru_cache(maxsize=1)
def roots() -> tuple[str, ...]:
    """Return the folders and files of the installation, each ending in a slash."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(installed.package_paths())
    folders |= {os.path.realpath(path) for path in folders}
    folders.add(__file__.rpartition("/guest/")[0])
    return tuple(sorted(path.rstrip("/") + "/" for path in folders))


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """Return the folders of time zone data."""
    import zoneinfo  # noqa: PLC0415 - not before the guards go in

    packaged = (root + "tzdata/zoneinfo" for root in roots())
    return tuple(path.rstrip("/") + "/" for path in (*zoneinfo.TZPATH, *packaged))


def arming(
    rules: Rules, *, files: bool = False, network: bool = False, processes: bool = False
) -> Callable[[Report], None]:
    """Prepare the refusing hook; return a function that arms it, for good.

    Kinds of operations that are False here are refused; those that are True are left to the OS
    layer. Raw packages need files and native code, so if the policy has any, only network and
    processes are refused.

    Called in the zygote, once all of the guest's modules are imported, so that guests share the
    memory that this touches. The function it returns is called in the guest, after the OS locks and
    before the first byte of a user's code. It takes ``report``, which gets the event of a breach
    and must end the process.
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
    excepted = _PROCESS if processes else ()
    judge = _judge(refused, excepted, files=files or native, native=native)

    def arm(report: Report) -> None:
        sys.addaudithook(_hook(judge, report))

    return arm


def _hook(
    is_refused: Callable[[str, tuple[Any, ...]], bool], report: Report
) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the refusing hook. All that it uses is in its closure."""
    violation = OperationViolation
    rule = _RULE
    breaches = _BREACHES
    is_ours = is_exempt

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not is_refused(event, args) or is_ours():
            return
        if event.startswith(breaches):
            report(event)
        raise violation(rule.id, event, rule.why, rule.remedy)

    return hook


def _judge(
    refused: tuple[str, ...], excepted: tuple[str, ...], *, files: bool, native: bool
) -> Callable[[str, tuple[Any, ...]], bool]:
    """Return a function that says whether an event is refused.

    ``refused`` and ``excepted`` are beginnings of events' names; ``excepted`` are exceptions of the
    former.
    """
    kinds: dict[str, bool] = {}
    readable = roots() + zones()
    listing = _LISTING
    harmless = _HARMLESS
    refused_modules = _INTERPRETER_MODULES | (frozenset() if native else _NATIVE_MODULES)
    nowhere = _NOWHERE
    allowed_path = _allowed_path
    unix = _AF_UNIX

    def is_refused(event: str, args: tuple[Any, ...]) -> bool:
        if event == "open":
            looks_up = type(args[0]) is str and args[0] in nowhere
            return not (files or looks_up or allowed_path(args, readable))
        if event == "import":
            return args[0] in refused_modules
        if event == "object.__setattr__":
            return not native and args[1] == "__code__"
        refused_kind = kinds.get(event)
        if refused_kind is None:
            refused_kind = event.startswith(refused) and not (
                excepted and event.startswith(excepted)
            )
            kinds[event] = refused_kind = refused_kind and event not in harmless
        if not refused_kind:
            return False
        if event in listing and args:
            return not allowed_path((args[0], "r", 0), readable)
        return not (event == "socket.__new__" and args[1] == unix)  # an event loop's own pair

    return is_refused


def _allowed_path(args: tuple[Any, ...], readable: tuple[str, ...]) -> bool:
    """Return whether ``open(path, mode, flags)`` only reads a file of the installation."""
    path, _, flags = args
    if type(path) is bytes:
        path = os.fsdecode(path)
    if type(path) is not str or (type(flags) is int and flags & _WRITES):
        return False
    return (path + "/").startswith(readable) and "/.." not in path


#: Audit events of changes to files, of processes and of the network.
_EVENTS: Final = word_set("""
    os.chmod os.chown os.exec os.kill os.killpg os.link os.posix_spawn os.remove
    os.removexattr os.rename os.rmdir os.setxattr os.spawn os.symlink os.system os.truncate
    os.utime pty.spawn socket.bind socket.connect socket.getaddrinfo
    socket.gethostbyname socket.sendto sqlite3.connect subprocess.Popen
""")
#: Of these, changes to the file or folder that is the first argument.
_CHANGES: Final = word_set("""
    os.chmod os.chown os.link os.remove os.removexattr os.rename os.rmdir os.setxattr os.symlink
    os.truncate os.utime
""")
#: Events of starting a process.
_PROGRAMS: Final = word_set("""
    os.fork os.forkpty os.posix_spawn os.spawn os.system pty.spawn subprocess.Popen
""")
#: Events of listing a folder. A cell that lists one isn't run again after a kill: the killed cell
#: may have changed the folder, and the list would come out otherwise.
_LOOKS: Final = word_set("os.listdir os.scandir")
#: Events of searches, which find nothing in a folder that may not be read; and of entering one.
_SEARCHES: Final = word_set("glob.glob/2 os.chdir os.walk pathlib.Path.glob pathlib.Path.rglob")
#: Events of forks, which may go on beside the cells.
_FORKS: Final = word_set("os.fork os.forkpty")
#: Why a guest's own exec is refused, as the gate also does (``guest.confine.notify``).
_NO_EXEC: Final = (
    "The program would replace the session's interpreter, and no variables would be left. "
    "Start it with subprocess.run"
)
#: A library that waits for its threads, which no copy has.
_THREADED: Final = "polars"
#: Modules that list the folders of ``sys.path``, for imports and for metadata of packages.
_IMPORTERS: Final = word_set("""
    _frozen_importlib_external importlib._bootstrap_external importlib.metadata
""")
#: Folders that no cell changes, beside the installation. The first two change like a clock.
_SYSTEM: Final = ("/proc/", "/sys/", "/usr/")
#: Kinds of ``mmap.mmap`` that /proc shows as shared.
_SHARED: Final = (mmap.ACCESS_READ, mmap.ACCESS_WRITE)
#: Most random bytes of one draw that are the same if the cell runs again.
_MOST_DRAWN: Final = 1 << 16
_SHARED_LINE: Final = re.compile(rb"^[0-9a-f-]++ [r-][w-][x-]s .*+", re.MULTILINE)
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
#: The operating system's random numbers. Cells get a replacement.
_urandom: Final = os.urandom
_modules: Final = sys.modules
#: How names of the guest's own threads begin. They start again by themselves.
OWN_THREADS: Final = "cellblock-"
#: The lowest descriptor that a cell can have, and how many unused ones in a row count as the end.
FIRST_FD: Final = 4
_GAP: Final = 16


# --- effects: what running a cell again would do twice, or find otherwise -------------------------


class Effects:
    """The effects of the cells in this process.

    ``runner`` calls ``begin`` before a cell and ``repeatable`` after it. Other modules read what a
    cell tried last (``written``, ``database``), and set the callbacks.
    """

    def __init__(self) -> None:
        #: The running cell has had an effect.
        self.any = False
        #: Called for each search, and for each folder that is listed (``guest.not_there``).
        self.on_search: Callable[[str, tuple[Any, ...]], None] = lambda _event, _args: None
        #: What a cell tried last to write, make, remove or rename, as the cell named it.
        self.written: object = None
        #: The database that a cell opened last, as the cell named it: SQLite's errors don't.
        self.database: object = None
        #: Called before a cell starts a program, or forks.
        self.on_program: Callable[[], None] = lambda: None
        #: Whether a cell has started something that a copy lacks or has in another state, such as a
        #: thread. No cell may be run again from then on.
        self.lasting = False
        #: Forks of cells whose child is unknown; and children that are known, until they ended.
        self._forks = 0
        self._children: list[int] = []
        #: Whether cells ever started a program, whose process is unknown.
        self._programs = False
        #: Whether this process is the guest of a session that may start programs. It must not
        #: replace itself by one.
        self._stays = False
        #: Blocks that were written to disk before the cell.
        self._written = 0
        #: The key of ``os.urandom``, which this process and its copies share.
        self._key: bytes | None = None
        self._draws = itertools.count()
        #: Folders and files that no cell changes.
        self._unchanging: tuple[str, ...] = ()
        #: matplotlib's folder, which has its list of fonts.
        self._settings = ""
        #: Files of the installation that this cell opened. And all files that are open for reading,
        #: with whether they are of the installation: libraries leave fonts open.
        self._read: list[str | bytes] = []
        self._files: dict[tuple[int, int, int], bool] = {}
        #: The guest's own shared mappings, known from its first cell on; and whether the running
        #: cell mapped something.
        self._own_mappings: set[bytes] | None = None
        self._mapped = False
        #: Number of modules that were imported before the cell.
        self._imported = 0

    def watch(self) -> None:
        """Note effects from now on and for good, in this process and its forks."""
        self._unchanging = (*roots(), *_SYSTEM, f"{sys.prefix}/share/")
        sys.addaudithook(self._hook())

        @functools.wraps(_urandom)
        def urandom(size: int, /) -> bytes:
            return self._draw(size)

        os.urandom = vars(random)["_urandom"] = urandom  # SystemRandom's, too
        os.fork, os.forkpty = self._known(os.fork), self._known(os.forkpty)
        os.register_at_fork(after_in_child=self._rekey_child)
        # Threads of ``threading`` don't count as lasting: ``cells_threads`` finds them as long as
        # they run.
        name = "_start_new_thread" if sys.version_info < (3, 13) else "_start_joinable_thread"
        vars(threading)[name] = self._noting(vars(threading)[name])
        _thread.start_new_thread = self._noting(_thread.start_new_thread, lasting=True)

    def _hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """Return the noting hook."""
        events = _EVENTS
        writes = _WRITES
        forks = _FORKS
        is_unchanging = self._is_unchanging
        handlers: dict[str, Callable[[str, tuple[Any, ...]], None]]
        handlers = {"mmap.__new__": self._note_mapping, "os.mkdir": self._note_folder}
        handlers |= dict.fromkeys(_LOOKS, self._note_look)
        handlers |= dict.fromkeys(_SEARCHES, self._note_search)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "open":
                for_writing = type(args[2]) is int and args[2] & writes
                self._note_written(args[0], written=bool(for_writing))
                if not for_writing and is_unchanging(args[0]):
                    self._read.append(args[0])
                elif for_writing or not _is_no_archive(args[0]):
                    self.any = self.any or not is_exempt()
            elif event in events or event in forks:
                if not is_exempt():
                    self._note(event, args)
            elif (note := handlers.get(event)) is not None:
                note(event, args)

        return hook

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        """Note an effect. Raises PermissionError if the guest would replace itself by a program."""
        if event == "os.exec" and self._stays:
            raise PermissionError(errno.EPERM, _NO_EXEC)
        self.any = True
        if event in _CHANGES:
            self.written = args[0]
        elif event == "sqlite3.connect":
            self.database = args[0]
        self._forks += event in _FORKS
        if event in _PROGRAMS:
            self._programs = self._programs or event not in _FORKS
            self.on_program()

    def _is_unchanging(self, path: object) -> bool:
        if type(path) is bytes:
            path = os.fsdecode(path)
        return type(path) is str and f"{path}/".startswith(self._unchanging)

    def rekey(self) -> None:
        """Give ``os.urandom`` a new key, so that it gives other numbers than in the parent.

        Until this is called, a copy draws the same numbers as its original. So cells that choose
        random names (a styled table, a figure, a fitted model) can be run again.
        """
        self._key = _urandom(32)

    def _draw(self, size: int) -> bytes:
        """Return random bytes, which a copy draws again if they are few."""
        if is_exempt():
            return _urandom(size)
        if self._key is None or type(size) is not int or not 0 <= size <= _MOST_DRAWN:
            self.any = True
            return _urandom(size)
        return shake_256(self._key + next(self._draws).to_bytes(8)).digest(size)

    def _rekey_child(self) -> None:
        if not is_exempt():  # a cell's fork: copies are forked under an exemption
            self._stays = False
            self.rekey()

    def _note_look(self, event: str, args: tuple[Any, ...]) -> None:
        if not (self._is_unchanging(args[0]) or _is_import()):
            self.any = True
            self.on_search(event, args)

    def _note_search(self, event: str, args: tuple[Any, ...]) -> None:
        self.on_search(event, args)  # looked up each time: the guest sets it after the hook is made

    def _note_written(self, path: object, *, written: bool) -> None:
        if written:
            self.written = path
        elif type(path) is str and type(self.written) is str and path == self.written:
            self.written = None

    def _note_folder(self, _event: str, args: tuple[Any, ...]) -> None:
        self.written = args[0]
        # matplotlib makes its folder with exist_ok, which changes nothing.
        exists = args[0] == self._settings and os.path.isdir(args[0])
        self.any = self.any or not (exists or is_exempt())

    def _note_mapping(self, _event: str, args: tuple[Any, ...]) -> None:
        if is_exempt():
            return
        fd, _, access, *_ = args
        if fd != -1:
            self.any = True
            self.lasting = self.lasting or access not in _SHARED
        self._mapped = True

    def _noting(self, function: Callable[..., Any], *, lasting: bool = False) -> Any:
        """Wrap a function whose call is an effect."""

        @functools.wraps(function)
        def noted(*args: Any, **options: Any) -> Any:
            if not is_exempt():
                self.any = True
                self.lasting = self.lasting or lasting
            return function(*args, **options)

        return noted

    def _known(self, fork: Callable[[], Any]) -> Any:
        """Wrap a fork function, so that its child is known."""

        @functools.wraps(fork)
        def known() -> Any:
            result = fork()
            pid = result if type(result) is int else result[0]
            if pid and not is_exempt():
                self._children.append(pid)
                self._forks -= 1
            return result

        return known

    def begin_session(self, *, programs: bool) -> None:
        """Forget all effects before the first cell, such as the zygote's fork.

        ``programs`` says whether the session may start programs.
        """
        self.any = False
        self.lasting = False
        self._forks = 0
        self._settings = os.environ.get("MPLCONFIGDIR", "")
        self._unchanging += (f"{self._settings}/fontlist",)
        self._stays = programs
        self.rekey()

    def begin(self) -> None:
        """Begin to note the effects of a cell."""
        if self._own_mappings is None:
            self._own_mappings = run_exempt(_shared_mappings)
            for fd, status in descriptors(256):
                if _is_pipe_socket_or_folder(status):
                    own_descriptors.add(fd)
                self._files[_key(fd, status)] = True
        self.any, self._written, self._mapped = self._has_open(), _blocks_written(), False
        self.written = None
        self._read.clear()
        self._imported = len(_modules)

    def repeatable(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether the cell had no effects and nothing runs beside the cells.

        Something that runs (threads, timers, children, tasks of ``loop``, shared mappings) also
        makes all later cells not repeatable.
        """
        mapped = (self._mapped or _has_semaphores()) and (
            run_exempt(_shared_mappings) - (self._own_mappings or set())
        )
        timed = any(signal.getitimer(timer) != (0.0, 0.0) for timer in _TIMERS)
        self._children = [pid for pid in self._children if _state_of_child(pid) is _Child.running]
        forked = self._forks or self._children
        beside = cells_threads() or mapped or timed or forked or _is_due(loop)
        if beside or _THREADED in sys.modules:
            self.lasting = True
        had_no_effects = not (self.any or self.lasting) and _blocks_written() == self._written
        return had_no_effects and not self._has_open() and not self._has_imported_others()

    def may_have_children(self) -> bool:
        """Return whether cells may have children that have not been reaped."""
        if self._programs or self._forks > 0:
            return True
        return any(_state_of_child(pid) is not _Child.gone for pid in self._children)

    def _has_imported_others(self) -> bool:
        """Return whether the cell has imported a module from outside of the installation.

        Importing a namespace package, or a library in C, raises no event that tells.
        """
        for module in itertools.islice(tuple(_modules.values()), self._imported, None):
            if type(module) is ModuleType:
                names = vars(module)
                paths = (names.get("__file__"), *getattr(names.get("__path__"), "_path", ()))
                if not all(path is None or self._is_unchanging(path) for path in paths):
                    return True
        return False

    def _has_open(self) -> bool:
        """Return whether a cell has a file, pipe, socket or folder open.

        The cell can use an open file without raising an event, and a copy shares its state, such as
        the offset. Installed files that are open only for reading don't count.
        """
        for fd, status in descriptors(256):
            if stat.S_ISREG(status.st_mode):
                mode = run_exempt(fcntl.fcntl, fd, fcntl.F_GETFL) & os.O_ACCMODE
                if mode != os.O_RDONLY or not self._is_installed(_key(fd, status)):
                    return True
            elif _is_pipe_socket_or_folder(status) and fd not in own_descriptors:
                return True
        return False

    def _is_installed(self, key: tuple[int, int, int]) -> bool:
        """Return whether an open file is one of the installation's that the cell opened."""
        if key not in self._files:
            self._files[key] = any(
                key == _key(key[0], os.stat(path)) for path in self._read if os.path.exists(path)
            )
        return self._files[key]


#: The one of this process.
effects: Final = Effects()


def descriptors(most: int, gap: int = _GAP) -> Iterator[tuple[int, os.stat_result]]:
    """Yield open descriptors below ``most``; stop after ``gap`` unused ones in a row."""
    unused = 0
    for fd in range(FIRST_FD, most):
        try:
            status = os.fstat(fd)
        except OSError:
            unused += 1
            if unused >= gap:
                return
            continue
        unused = 0
        yield fd, status


def _has_semaphores() -> bool:
    """Return whether there may be semaphores of multiprocessing, mapped without an event."""
    util = sys.modules.get("multiprocessing.util")
    registry = getattr(util, "_afterfork_registry", {})
    return any(hasattr(value, "_semlock") for value in registry.values())


class _Child(Enum):
    """The state of a process that a cell forked."""

    running = "running"
    ended = "ended"  # and not reaped
    gone = "gone"  # reaped


def _state_of_child(pid: int) -> _Child:
    """Return a child's state, without reaping it (waitid(2))."""
    try:
        exit_info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return _Child.gone
    except AttributeError:  # macOS has no waitid before Python 3.13
        return _Child.running
    return _Child.running if exit_info is None else _Child.ended


def _is_import() -> bool:
    """Return whether an import caused the event that the calling method handles."""
    frame: FrameType | None = inspect.currentframe()
    for _ in range(3):
        frame = frame and frame.f_back
    return frame is not None and frame.f_globals.get("__name__") in _IMPORTERS


def _is_no_archive(path: object) -> bool:
    """Return whether a path is an entry of ``sys.path`` that an import tries to read as a file."""
    return type(path) is str and path in sys.path and not os.path.isfile(path)


def _is_pipe_socket_or_folder(status: os.stat_result) -> bool:
    mode = status.st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISDIR(mode)


def _key(fd: int, status: os.stat_result) -> tuple[int, int, int]:
    return fd, status.st_dev, status.st_ino


def _is_due(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a task or a call waits for ``loop`` to turn."""
    if not getattr(loop, "used", False):
        return False
    scheduled = getattr(loop, "_scheduled", ())
    return bool(asyncio.all_tasks(loop)) or any(not call.cancelled() for call in scheduled)


def cells_threads() -> list[threading.Thread]:
    """Return the threads of cells, none of which a copy has."""
    main = threading.main_thread()
    # Not `enumerate`: its lock may still be held by a thread that ended because memory ran out.
    active = list(vars(threading)["_active"].values())
    return [t for t in active if t is not main and not str(t.name).startswith(OWN_THREADS)]


def _shared_mappings() -> set[bytes]:
    """Return the lines of /proc about this process's shared mappings.

    If /proc can't be read, return something else each time, so that a change is assumed.
    """
    try:
        with open("/proc/self/maps", "rb") as maps:
            shared = _SHARED_LINE.findall(maps.read())
            return {line for line in shared if not line.endswith(b"/gconv-modules.cache")}
    except OSError:
        return {_urandom(8)}


def _blocks_written() -> int:
    """Return how many blocks were written to disk for this process so far (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_oublock
