"""What is told of an exception: to the user their frames, to the host which call failed."""

from __future__ import annotations

import contextlib
import errno
import inspect
import itertools
import linecache
import math
import mmap
import os
import re
import resource
import socket
import sys
import threading
import traceback
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

from cellblock.guest.audit_hook import effects, roots
from cellblock.guest.output import encodable
from cellblock.wire.messages import FailedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Frames of these files are the kernel's own.
OWN = str(Path(__file__).resolve().parents[1]) + "/"
_LONGEST_CHAIN = 32
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
#: "Unable to allocate 76.3 MiB for an array" (numpy), "malloc of size 1048576 failed" (Arrow).
_SIZE = re.compile(r"\b(?:allocate|size) (\d{1,15}(?:\.\d{1,3})?)(?: ([KMGTP]iB|bytes)\b)?")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
#: What IPython's formatter takes at most, with all that it imports.
_FORMATTER = 64 << 20


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and what it was raised from, each once and not without end."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def trim(error: BaseException) -> BaseException:
    """Drop the kernel's frames from ``error`` and from what it was raised from."""
    for one in chain(error):
        one.__traceback__ = _without_own_frames(one.__traceback__)
    return error


def _without_own_frames(tb: TracebackType | None) -> TracebackType | None:
    return _joined(
        [each for each in _links(tb) if not each.tb_frame.f_code.co_filename.startswith(OWN)]
    )


def _links(tb: TracebackType | None) -> list[TracebackType]:
    found = []
    while tb is not None:
        found.append(tb)
        tb = tb.tb_next
    return found


def _joined(links: list[TracebackType]) -> TracebackType | None:
    result: TracebackType | None = None
    for link in reversed(links):
        # An interrupt may hit an instruction that belongs to no line.
        line = link.tb_lineno or link.tb_frame.f_code.co_firstlineno
        result = TracebackType(result, link.tb_frame, link.tb_lasti, line)
    return result


@contextlib.contextmanager
def folded(
    error: BaseException, tb: TracebackType | None
) -> Iterator[tuple[TracebackType | None, int]]:
    """Leave the frames of libraries out of ``error``, and of what it was raised from, for a while.

    Yields the frames that are left of ``tb``, where those of ``error`` begin, and how many were
    left out. An earlier error without a frame of the user's own is left out itself.
    """
    links = list(_shown(error))
    before = [
        (one, one.__traceback__, one.__cause__, one.__context__, one.__suppress_context__)
        for one in links
    ]
    try:
        own, left_out = _without_libraries(tb)
        kept = [error]
        for one in links[1:]:
            one.__traceback__, more = _without_libraries(one.__traceback__)
            left_out += more
            kept += [one] if one.__traceback__ is not None else []
        for one, earlier in itertools.zip_longest(kept, kept[1:]):
            if one.__cause__ is not None:
                one.__cause__ = earlier
            one.__context__ = earlier
        yield own, left_out
    finally:
        for one, frames, cause, context, suppresses in before:
            one.__traceback__, one.__cause__, one.__context__ = frames, cause, context
            one.__suppress_context__ = suppresses


def _shown(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and those of ``chain`` that a traceback shows: not behind ``from None``."""
    for one in chain(error):
        yield one
        if one.__cause__ is None and one.__suppress_context__:
            return


def _without_libraries(tb: TracebackType | None) -> tuple[TracebackType | None, int]:
    """Return a traceback without the frames of libraries, and how many they are."""
    libraries = (*roots(), "<frozen ")
    found = _links(tb)
    own = [each for each in found if not each.tb_frame.f_code.co_filename.startswith(libraries)]
    return _joined(own), len(found) - len(own)


def with_left_out(lines: list[str], name: str, line: str) -> list[str]:
    """Return a traceback with a line on what it leaves out, above the message of an error.

    ``name`` is that of the error's type, with which the message begins.
    """
    begins = (
        at for at in reversed(range(len(lines))) if _COLOURS.sub("", lines[at]).startswith(name)
    )
    at = next(begins, len(lines))
    return [*lines[:at], line, *lines[at:]]


def is_pythons(error: BaseException) -> bool:
    """Whether Python itself is to show ``error``: IPython has no formatter, or no memory for it."""
    if isinstance(error, MemoryError) and not _has_room(_FORMATTER):
        return True
    return any(isinstance(one, BaseExceptionGroup) for one in chain(error))


def by_python(error: BaseException, tb: TracebackType | None) -> list[str]:
    """Return the lines that Python prints of ``error``, from ``tb`` on."""
    return "".join(traceback.format_exception(type(error), error, tb)).splitlines()


def with_lines_of_errors(get_records: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return IPython's ``get_records`` with each record at the line that raised.

    IPython has two ways to make a record. That for code without a file, which a cell is, asks the
    frame for its line: where it is now, in a ``finally`` or the handler that raised anew. And it
    asks ``inspect`` for the lines of the code, which are those of the ``def`` above it, or too few,
    where the code is a comprehension's, a lambda's or a class's.
    """

    def records(etb: TracebackType | None, *args: Any, **kwargs: Any) -> list[Any]:
        made = get_records(etb, *args, **kwargs)
        lines = traceback.walk_tb(etb)
        # A frame that raised an error twice is in the traceback twice: records are in its order.
        for record in made:
            if getattr(record, "_sd", None) is None:
                same = (line for frame, line in lines if frame is record.frame)
                record.lineno = next(same, record.lineno)
                lines_of_code = _lines_of(record.frame.f_code)
                if record.raw_lines[: len(lines_of_code)] != lines_of_code:
                    record.raw_lines = lines_of_code
        return made

    return records


def _lines_of(code: CodeType) -> list[str]:
    """Return the lines of a code's file from its first to its last; none where there is no file."""
    first = code.co_firstlineno
    last = max((line for *_, line in code.co_lines() if line is not None), default=first)
    return linecache.getlines(code.co_filename)[first - 1 : last]


def prepare(shell: Any, error: BaseException) -> None:
    """Make what IPython's formatters need for ``error`` cheap."""
    # With pygments, which no guest needs before its first error.
    from cellblock.guest import traceback_colours  # noqa: PLC0415 - as said

    traceback_colours.make_once()
    _register_cells(shell, error)


def _register_cells(shell: Any, error: BaseException) -> None:
    """Tell ``inspect`` that cells belong to no module.

    It would look through all that are imported, several times for each frame: half of the time
    that an error takes, and half of the memory that it writes to.
    """
    frames = (frame for one in chain(error) for frame, _ in traceback.walk_tb(one.__traceback__))
    for name in {frame.f_code.co_filename for frame in frames}:
        if shell.compile.format_code_name(name) is not None:
            # Looked up as it is and as a path; no module is called "".
            inspect.modulesbyfile.setdefault(name, "")
            with contextlib.suppress(OSError):  # the folder may be gone
                inspect.modulesbyfile.setdefault(str(Path.cwd() / name), "")


def describe(error: BaseException) -> str:
    """Return ``str(error)``, whatever it does."""
    try:
        return str(error)
    except Exception:
        return "<the message could not be formatted>"


# --- the call behind an exception, where the OS kernel refused it: for the host -----------------
#
# Read from the exception and from where it was raised. User code can forge every part, and then
# misleads the card of its own cell: what the policy has to do with it the host decides.

#: Modules and calls whose refusal is about processes, or about the network.
_SIGNAL: Final = re.compile(r"\b(kill|killpg|pidfd\w*)\b")
_PROCESS: Final = re.compile(
    r"\b(subprocess|multiprocessing|pty|fork|forkpty|posix_spawnp?|exec[lv]p?e?|system)\b"
)
_NETWORK: Final = re.compile(
    r"\b(socket|socketpair|ssl|connect|bind|sendto|urllib|http|asyncio\.open_connection"
    r")\b"
)
_PACKAGE: Final = re.compile(r"/(subprocess|multiprocessing|pty|socket|ssl|http|urllib)\b")
#: Where libraries that open files by themselves leave the path: Arrow and pandas quote it, as does
#: DuckDB, Polars appends it, GDAL begins with it, and so do Arrow's and NumPy's FileNotFoundError.
_PATH: Final = re.compile(
    r"""(?:^|[\s(`])(?:'([^'\0\n]{1,4096})'|"([^"\0\n]{1,4096})")"""
    r"""|: (/[^\0\n]{1,4096})|\A(/[^\0\n]{1,4096}?)(?: not found\.)?\Z"""
    r"""|\AParent directory (/[^\0\n]{1,4096}) does not exist"""  # PyTorch
)
#: The number that Rust's libraries write into the text.
_NUMBER: Final = re.compile(r"\(os error (\d{1,4})\)")
#: Python's own types of error, which libraries also raise for what they looked up themselves.
_PLAIN: Final = (OSError, FileNotFoundError, NotADirectoryError)
#: What the OS kernel says of a file that can't be used: in an error that has no number.
_SAID: Final = {
    os.strerror(number): number for number in (errno.EACCES, errno.EROFS, errno.ENOENT, errno.EPERM)
}
#: A library looked for the folder before it wrote a file there.
_WRITES: Final = re.compile(r"\b(?:sav|writ|creat|stor)|\AParent\b", re.IGNORECASE)
_FOLDER: Final = re.compile(r"\b(?:director(?:y|ies)|folder)\b", re.IGNORECASE)
_LONGEST_TEXT: Final = 10_000
#: Of a target, in characters: what a ``Name`` on the wire may have.
_LONGEST_TARGET: Final = 1_000
#: SQLITE_CANTOPEN, SQLITE_READONLY; SQLite does not say what it could not open.
_SQLITE: Final = {14, 8}
#: A stack's bytes where RLIMIT_STACK has no limit (pthread_create(3): 2 MiB on most machines).
_STACK: Final = 2 << 20
#: Of errno(3): a system call returns no other.
_LAST_ERRNO: Final = 4_095
#: Functions whose arguments are an address, in Python's own sockets and in what wraps them.
_CONNECTS: Final = {"create_connection", "getaddrinfo", "_new_conn", "connect"}
#: Those of a server's, whose arguments are where it was to listen.
_LISTENS: Final = {"create_server", "server_bind", "bind_sockets", "run_simple"}


def failed_call(error: BaseException) -> FailedCall | None:
    """Return what was refused, from ``error`` or from what it was raised from.

    A number of the OS kernel's says more than words: of all errors it is looked for first.
    """
    links = list(chain(error))
    for find in (_call, _call_in_words):
        for link in links:
            with contextlib.suppress(Exception):  # a user's exception may raise at every touch
                if (found := find(link)) is not None:
                    if found.kind == "network" and not found.target:
                        return FailedCall("network", found.errno, _address(links))
                    return found
    return None


def _call(error: BaseException) -> FailedCall | None:
    if isinstance(error, MemoryError):
        return FailedCall("memory", size=_size_in(str(error)))
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return FailedCall("thread", errno.EAGAIN if _has_room_for_stack() else errno.ENOMEM)
    if isinstance(error, ModuleNotFoundError):
        return _import_beside(error.name)
    code = getattr(error, "sqlite_errorcode", None)
    if type(error).__module__ == "sqlite3" and isinstance(code, int) and code & 0xFF in _SQLITE:
        return _database()
    return _os_error(error) if isinstance(error, OSError) else None


def _size_in(message: str) -> int:
    """Return the bytes that could not be allocated, as numpy's and Arrow's errors say; else 0."""
    found = _SIZE.search(message)
    if found is None:
        return 0
    unit: int = 1024 ** _UNITS.index(found[2] or "bytes")
    return min(1 << 60, math.ceil(float(found[1]) * unit))


def _has_room_for_stack() -> bool:
    """Return whether a thread's stack would fit: the C library gives the same error if not."""
    size = threading.stack_size() or resource.getrlimit(resource.RLIMIT_STACK)[0]
    if size == resource.RLIM_INFINITY:
        size = _STACK
    return _has_room(size)


def _has_room(size: int) -> bool:
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return False
    return True


def _import_beside(module: object) -> FailedCall | None:
    """Return what was to be imported, if it lies in the working folder, which imports passed by."""
    if "" in sys.path or type(module) is not str:
        return None
    name = module.partition(".")[0]
    folder = os.getcwd()
    found = PathFinder.find_spec(name, [folder]) is not None
    return FailedCall("import", target=_bounded(os.path.join(folder, name))) if found else None


def _database() -> FailedCall | None:
    """Return the database that was opened last, unless it is one in memory."""
    name = effects.database
    if not isinstance(name, str | bytes | os.PathLike):
        return None
    path, reads = os.fsdecode(name), False
    if path.startswith("file:"):
        parts = urlsplit(path)
        path, reads = unquote(parts.path), "mode=ro" in parts.query
    if path in ("", ":memory:"):
        return None
    return FailedCall("database", 0, _bounded(os.path.realpath(path)), not reads)


def _os_error(error: OSError) -> FailedCall | None:
    number = error.errno or 0
    if isinstance(error, socket.gaierror):
        return FailedCall("network", errno.EHOSTUNREACH)  # its numbers are not the OS kernel's
    if not 0 < number <= _LAST_ERRNO:
        return None
    kind = _kind(error)
    if kind == "file":
        path = _path_of(error)
        writes = path is not None and path in (effects.written, error.filename2)
        return FailedCall(kind, number, _real(path), writes)
    program = error.filename
    # One that is not in a folder was looked for in all of PATH.
    named = kind == "process" and isinstance(program, str) and "/" in program
    return FailedCall(kind, number, _real(program) if named else "")


def _path_of(error: OSError) -> object:
    """Return the file that an error is about: of two, the second where the first can be moved."""
    first, second = error.filename, error.filename2
    if second is None or error.errno == errno.EBUSY or not os.path.lexists(first):
        return first or _path_in(_text(error))
    return second if os.access(os.path.dirname(os.path.abspath(first)), os.W_OK) else first


def _call_in_words(error: BaseException) -> FailedCall | None:
    """Return the call behind an error without a number, by the path that its text names.

    So say Rust's libraries what the OS kernel answered, and pandas that a folder, which it looked
    for itself, is not there.
    """
    if isinstance(error, OSError) and error.errno:
        return None
    text = _text(error)
    found = _NUMBER.search(text)
    number = int(found[1]) if found else 0
    for words, meant in _SAID.items():
        if words in text:
            number, text = number or meant, text.replace(words, "").strip(" :")
    path = _path_in(text)
    if isinstance(error, PermissionError):
        number = number or errno.EACCES
    elif type(error) in _PLAIN or text.startswith("Parent directory /"):
        number = number or errno.ENOENT
    if not path or not 0 < number <= _LAST_ERRNO:
        return None
    in_folder = _WRITES.search(text) is not None and _FOLDER.search(text) is not None
    return FailedCall("file", number, _real(path), writes=in_folder, in_folder=in_folder)


def _real(path: object) -> str:
    """Return a path without links, as the wire takes it; empty for what is none."""
    if not isinstance(path, str | bytes):
        return ""
    return _bounded(os.path.realpath(os.fsdecode(path)))


def _kind(error: OSError) -> Literal["file", "network", "process", "signal"]:
    """Judge by the library modules the error came through, and the line that raised it."""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    modules = " ".join(m[1] for name, _ in frames if (m := _PACKAGE.search(name)))
    words = f"{modules} {linecache.getline(*frames[-1])}" if frames else ""
    if _SIGNAL.search(words):
        return "signal"
    if _PROCESS.search(words):
        return "process"
    if _NETWORK.search(words) and not error.filename:
        return "network"
    return "file"


def _text(error: BaseException) -> str:
    return " ".join(arg for arg in error.args if isinstance(arg, str))[:_LONGEST_TEXT]


def _path_in(text: str) -> str | None:
    """Return the path that a library wrote into its message: before others, an absolute one."""
    found = [next(filter(None, match.groups())) for match in _PATH.finditer(text)]
    return next((path for path in found if path.startswith("/")), found[0] if found else None)


def _address(links: list[BaseException]) -> str:
    """Return the host and port that was to be connected to, or listened at.

    From the calls that the errors left.
    """
    for link in links:
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if frame.f_code.co_name not in _CONNECTS | _LISTENS:
                continue
            found = frame.f_locals
            own = found.get("self")
            # ``http.client`` and urllib3 keep them on the connection, socketserver on the server.
            pairs = (
                found.get("address"),
                (found.get("host"), found.get("port")),
                (getattr(own, "host", None), getattr(own, "port", None)),
                getattr(own, "server_address", None),
            )
            for pair in pairs:
                # An IPv6 address has two more parts.
                host, port = pair[:2] if type(pair) is tuple and pair[1:] else ("", 0)
                if type(host) is str and host and type(port) is int:
                    return _bounded(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return ""


def _bounded(text: str) -> str:
    return encodable(text)[:_LONGEST_TARGET]
