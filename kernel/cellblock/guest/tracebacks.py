"""Exceptions of cells: the traceback that the user sees, and the failed call that the host learns.

``shell`` calls these when an error is shown. ``trim`` and ``with_lines_of_errors`` make the
traceback right, ``prepare`` makes it cheap. ``failed_call`` finds the system call that the OS
kernel refused, so that the host can say whether the policy was behind it.
"""

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
#: Most bytes of memory that IPython's formatter takes, with all that it imports.
_FORMATTER = 64 << 20


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and the errors it was raised from: each once, and a bounded number."""
    seen_ids: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen_ids and len(seen_ids) < _LONGEST_CHAIN:
        seen_ids.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def trim(error: BaseException) -> BaseException:
    """Drop the kernel's frames from ``error`` and from the errors it was raised from."""
    for link in chain(error):
        link.__traceback__ = _without_own_frames(link.__traceback__)
    return error


def _without_own_frames(tb: TracebackType | None) -> TracebackType | None:
    return _joined(
        [link for link in _links(tb) if not link.tb_frame.f_code.co_filename.startswith(OWN)]
    )


def _links(tb: TracebackType | None) -> list[TracebackType]:
    links = []
    while tb is not None:
        links.append(tb)
        tb = tb.tb_next
    return links


def _joined(links: list[TracebackType]) -> TracebackType | None:
    result: TracebackType | None = None
    for link in reversed(links):
        # An interrupt may arrive at an instruction that has no line.
        line = link.tb_lineno or link.tb_frame.f_code.co_firstlineno
        result = TracebackType(result, link.tb_frame, link.tb_lasti, line)
    return result


@contextlib.contextmanager
def folded(
    error: BaseException, tb: TracebackType | None
) -> Iterator[tuple[TracebackType | None, int]]:
    """Yield an error's traceback without the frames of libraries, and how many were left out.

    ``tb`` is the traceback of ``error``. Within the ``with`` block, the errors that ``error`` was
    raised from lack these frames as well, and those with no frame of the user's own are unlinked.
    Their frames are counted, too. After the block, all errors are as before.
    """
    errors = list(_shown_errors(error))
    before = [
        (link, link.__traceback__, link.__cause__, link.__context__, link.__suppress_context__)
        for link in errors
    ]
    try:
        own_traceback, left_out = _without_libraries(tb)
        kept_errors = [error]
        for link in errors[1:]:
            link.__traceback__, more_left_out = _without_libraries(link.__traceback__)
            left_out += more_left_out
            if link.__traceback__ is not None:
                kept_errors.append(link)
        for link, earlier in itertools.zip_longest(kept_errors, kept_errors[1:]):
            if link.__cause__ is not None:
                link.__cause__ = earlier
            link.__context__ = earlier
        yield own_traceback, left_out
    finally:
        for link, frames, cause, context, suppresses in before:
            link.__traceback__ = frames
            link.__cause__ = cause
            link.__context__ = context
            link.__suppress_context__ = suppresses


def _shown_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of ``chain`` that a traceback shows: none behind ``from None``."""
    for link in chain(error):
        yield link
        if link.__cause__ is None and link.__suppress_context__:
            return


def _without_libraries(tb: TracebackType | None) -> tuple[TracebackType | None, int]:
    """Return a traceback without the frames of libraries, and their number."""
    libraries = (*roots(), "<frozen ")
    links = _links(tb)
    own_links = [
        link for link in links if not link.tb_frame.f_code.co_filename.startswith(libraries)
    ]
    return _joined(own_links), len(links) - len(own_links)


def with_left_out(lines: list[str], name: str, line: str) -> list[str]:
    """Return a traceback's lines with ``line`` above the error's message.

    ``line`` says what is left out. ``name`` is the name of the error's type, with which the message
    begins.
    """
    begins = (
        index
        for index in reversed(range(len(lines)))
        if _COLOURS.sub("", lines[index]).startswith(name)
    )
    index = next(begins, len(lines))
    return [*lines[:index], line, *lines[index:]]


def is_pythons(error: BaseException) -> bool:
    """Return whether ``error`` must be shown in Python's own format.

    IPython can't format exception groups, and may lack the memory to format a MemoryError.
    """
    if isinstance(error, MemoryError) and not _has_room(_FORMATTER):
        return True
    return any(isinstance(link, BaseExceptionGroup) for link in chain(error))


def by_python(error: BaseException, tb: TracebackType | None) -> list[str]:
    """Return the lines that Python prints for ``error``, with frames from ``tb`` on."""
    return "".join(traceback.format_exception(type(error), error, tb)).splitlines()


def with_lines_of_errors(get_records: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Wrap IPython's ``get_records`` so that each record has the line that raised.

    IPython has two ways to make a record. For code without a file, such as a cell, it makes two
    mistakes. It asks the frame for its line, which is where the frame is now: in a ``finally``, or
    in a handler that raised again. And it asks ``inspect`` for the lines of the code: if the code
    is a comprehension, a lambda or a class, these are the lines of the ``def`` above, or too few.
    """

    def get_corrected(etb: TracebackType | None, *args: Any, **kwargs: Any) -> list[Any]:
        records = get_records(etb, *args, **kwargs)
        lines = traceback.walk_tb(etb)
        # A frame that raised twice is in the traceback twice. Records have the same order, so each
        # takes the next line of its frame.
        for record in records:
            if getattr(record, "_sd", None) is None:
                same = (line for frame, line in lines if frame is record.frame)
                record.lineno = next(same, record.lineno)
                lines_of_code = _lines_of(record.frame.f_code)
                if record.raw_lines[: len(lines_of_code)] != lines_of_code:
                    record.raw_lines = lines_of_code
        return records

    return get_corrected


def _lines_of(code: CodeType) -> list[str]:
    """Return the source lines of a code object, none if its file is unknown."""
    first = code.co_firstlineno
    last = max((line for *_, line in code.co_lines() if line is not None), default=first)
    return linecache.getlines(code.co_filename)[first - 1 : last]


def prepare(shell: Any, error: BaseException) -> None:
    """Save IPython's formatters work before they format ``error``."""
    # Imported here: it imports pygments, which no guest needs before its first error.
    from cellblock.guest import traceback_colours  # noqa: PLC0415 - as said

    traceback_colours.make_once()
    _register_cells(shell, error)


def _register_cells(shell: Any, error: BaseException) -> None:
    """Tell ``inspect`` that cells belong to no module.

    Otherwise it searches all imported modules several times for each frame, which is half of the
    time that an error takes, and half of the memory that it writes to.
    """
    frames = (frame for link in chain(error) for frame, _ in traceback.walk_tb(link.__traceback__))
    for name in {frame.f_code.co_filename for frame in frames}:
        if shell.compile.format_code_name(name) is not None:
            # ``inspect`` looks up the name both as it is and as a path. No module is called "".
            inspect.modulesbyfile.setdefault(name, "")
            with contextlib.suppress(OSError):  # the folder may be gone
                inspect.modulesbyfile.setdefault(str(Path.cwd() / name), "")


def describe(error: BaseException) -> str:
    """Return ``str(error)``, or a note if that raises."""
    try:
        return str(error)
    except Exception:
        return "<the message could not be formatted>"


# --- the refused call behind an exception, for the host -----------------------------------------
#
# Read from the exception and from the frames that raised it. User code can forge every part, which
# only misleads the card of its own cell: the host decides whether the policy was behind the call.

# Words of modules and calls, by which a refusal is about a signal, a process or the network.
_SIGNAL: Final = re.compile(r"\b(kill|killpg|pidfd\w*)\b")
_PROCESS: Final = re.compile(
    r"\b(subprocess|multiprocessing|pty|fork|forkpty|posix_spawnp?|exec[lv]p?e?|system)\b"
)
_NETWORK: Final = re.compile(
    r"\b(socket|socketpair|ssl|connect|bind|sendto|urllib|http|asyncio\.open_connection"
    r")\b"
)
_PACKAGE: Final = re.compile(r"/(subprocess|multiprocessing|pty|socket|ssl|http|urllib)\b")
#: The path in the text of an error. Arrow, pandas and DuckDB quote it, Polars appends it, GDAL
#: begins with it, as do Arrow's and NumPy's FileNotFoundError.
_PATH: Final = re.compile(
    r"""(?:^|[\s(`])(?:'([^'\0\n]{1,4096})'|"([^"\0\n]{1,4096})")"""
    r"""|: (/[^\0\n]{1,4096})|\A(/[^\0\n]{1,4096}?)(?: not found\.)?\Z"""
    r"""|\AParent directory (/[^\0\n]{1,4096}) does not exist"""  # PyTorch
)
#: The errno that libraries in Rust write into the text.
_NUMBER: Final = re.compile(r"\(os error (\d{1,4})\)")
#: Types of Python's own that libraries also raise, without an errno, when they have looked for a
#: file themselves.
_PLAIN: Final = (OSError, FileNotFoundError, NotADirectoryError)
#: By the OS kernel's words about a file: the errno. For errors that have the words alone.
_STRERRORS: Final = {
    os.strerror(number): number for number in (errno.EACCES, errno.EROFS, errno.ENOENT, errno.EPERM)
}
# A text with both: a library looked for the folder in which it wanted to write a file.
_WRITES: Final = re.compile(r"\b(?:sav|writ|creat|stor)|\AParent\b", re.IGNORECASE)
_FOLDER: Final = re.compile(r"\b(?:director(?:y|ies)|folder)\b", re.IGNORECASE)
#: Files of libraries' functions, Cython's too, and names of those that write.
_OF_LIBRARY: Final = re.compile(r"/site-packages/|\.pyx\Z|\.pxi\Z")
_WRITER: Final = re.compile(r"writable|\A(?:save|write)")
_LONGEST_TEXT: Final = 10_000
#: Characters of a target: as many as a ``Name`` on the wire may have.
_LONGEST_TARGET: Final = 1_000
#: SQLITE_CANTOPEN, SQLITE_READONLY. SQLite does not say which file it could not open.
_SQLITE: Final = {14, 8}
#: Bytes of a thread's stack if RLIMIT_STACK is unlimited (pthread_create(3), most machines).
_STACK: Final = 2 << 20
#: The largest errno that a system call returns (errno(3)).
_LAST_ERRNO: Final = 4_095
#: Functions that connect to an address, of Python's sockets and of libraries around them.
_CONNECTS: Final = {"create_connection", "getaddrinfo", "_new_conn", "connect"}
#: Functions of servers that listen at an address.
_LISTENS: Final = {"create_server", "server_bind", "bind_sockets", "run_simple"}


def failed_call(error: BaseException) -> FailedCall | None:
    """Return the call that was refused, found in ``error`` or the errors it was raised from.

    An errno says more than words, so all these errors are searched for one first.
    """
    links = list(chain(error))
    for find in (_call, _call_in_words):
        for link in links:
            with contextlib.suppress(Exception):  # any attribute of a user's exception may raise
                if (call := find(link)) is not None:
                    if call.kind == "network" and not call.target:
                        return FailedCall("network", call.errno, _address(links))
                    return call
    return None


def _call(error: BaseException) -> FailedCall | None:
    """Return the call behind one error, by its type and errno."""
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
    """Return the bytes that could not be allocated, if numpy's or Arrow's text has them, else 0."""
    match = _SIZE.search(message)
    if match is None:
        return 0
    unit: int = 1024 ** _UNITS.index(match[2] or "bytes")
    return min(1 << 60, math.ceil(float(match[1]) * unit))


def _has_room_for_stack() -> bool:
    """Return whether there is memory for a thread's stack.

    If there is none, the C library gives the same error as for too many threads.
    """
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
    """Return the failed import, if the working folder has the module and imports don't look there.

    ``module`` is the name that could not be imported.
    """
    if "" in sys.path or type(module) is not str:
        return None
    name = module.partition(".")[0]
    folder = os.getcwd()
    exists = PathFinder.find_spec(name, [folder]) is not None
    return FailedCall("import", target=_bounded(os.path.join(folder, name))) if exists else None


def _database() -> FailedCall | None:
    """Return the SQLite database that was opened last, unless it is in memory."""
    name = effects.database
    if not isinstance(name, str | bytes | os.PathLike):
        return None
    path = os.fsdecode(name)
    reads = False
    if path.startswith("file:"):
        parts = urlsplit(path)
        path, reads = unquote(parts.path), "mode=ro" in parts.query
    if path in ("", ":memory:"):
        return None
    return FailedCall("database", 0, _bounded(os.path.realpath(path)), not reads)


def _os_error(error: OSError) -> FailedCall | None:
    """Return the call behind an error with an errno."""
    number = error.errno or 0
    if isinstance(error, socket.gaierror):
        return FailedCall("network", errno.EHOSTUNREACH)  # getaddrinfo has numbers of its own
    if not 0 < number <= _LAST_ERRNO:
        return None
    kind = _kind_of_error(error)
    if kind == "file":
        if number == errno.EPERM and error.strerror != os.strerror(number):
            return None  # words of the guest's own or of a library's, which say why
        if number == errno.EXDEV and error.filename2 is not None:
            # Of a move between two mounts. The host knows which of the two cells may not write.
            second_path = _real_path(error.filename2)
            return FailedCall(
                kind, number, _real_path(error.filename), writes=True, other=second_path
            )
        path = _path_of(error)
        writes = path is not None and path in (effects.written, error.filename2)
        return FailedCall(kind, number, _real_path(path), writes or _is_in_a_writer(error))
    program = error.filename
    # Without a folder, the program was looked for in all folders of PATH, so there is no one path.
    has_path = kind == "process" and isinstance(program, str) and "/" in program
    return FailedCall(kind, number, _real_path(program) if has_path else "")


def _path_of(error: OSError) -> object:
    """Return the file that an error is about.

    An error about two files, such as a link, is about the second if the first could be moved.
    """
    first = error.filename
    second = error.filename2
    if second is None or error.errno == errno.EBUSY or not os.path.lexists(first):
        return first or _path_in(_text(error))
    return second if os.access(os.path.dirname(os.path.abspath(first)), os.W_OK) else first


def _is_in_a_writer(error: OSError) -> bool:
    """Return whether a library's function that writes raised it, such as ``_open_writable``.

    No audit event says that of files that libraries open in C.
    """
    frames = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(_OF_LIBRARY.search(c.co_filename) and _WRITER.search(c.co_name) for c in frames)


def _call_in_words(error: BaseException) -> FailedCall | None:
    """Return the call behind an error without an errno, if its text names a path.

    Libraries in Rust write the OS kernel's answer into the text. pandas writes that a folder, for
    which it looked itself, does not exist.
    """
    if isinstance(error, OSError) and error.errno:
        return None
    text = _text(error)
    match = _NUMBER.search(text)
    number = int(match[1]) if match else 0
    for phrase, errno_of_words in _STRERRORS.items():
        if phrase in text:
            number, text = number or errno_of_words, text.replace(phrase, "").strip(" :")
    path = _path_in(text)
    if isinstance(error, PermissionError):
        number = number or errno.EACCES
    elif type(error) in _PLAIN or text.startswith("Parent directory /"):
        number = number or errno.ENOENT
    if not path or not 0 < number <= _LAST_ERRNO:
        return None
    in_folder = _WRITES.search(text) is not None and _FOLDER.search(text) is not None
    return FailedCall("file", number, _real_path(path), writes=in_folder, in_folder=in_folder)


def _real_path(path: object) -> str:
    """Return a path without links, short enough for the wire; "" if ``path`` is not a path."""
    if not isinstance(path, str | bytes):
        return ""
    return _bounded(os.path.realpath(os.fsdecode(path)))


def _kind_of_error(error: OSError) -> Literal["file", "network", "process", "signal"]:
    """Return what an error is about, judged by the modules it passed and the line that raised."""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    modules = " ".join(m[1] for name, _ in frames if (m := _PACKAGE.search(name)))
    clues = f"{modules} {linecache.getline(*frames[-1])}" if frames else ""
    if _SIGNAL.search(clues):
        return "signal"
    if _PROCESS.search(clues):
        return "process"
    if _NETWORK.search(clues) and not error.filename:
        return "network"
    return "file"


def _text(error: BaseException) -> str:
    return " ".join(arg for arg in error.args if isinstance(arg, str))[:_LONGEST_TEXT]


def _path_in(text: str) -> str | None:
    """Return the path in an error's text, preferably an absolute one."""
    paths = [next(filter(None, match.groups())) for match in _PATH.finditer(text)]
    return next((path for path in paths if path.startswith("/")), paths[0] if paths else None)


def _address(links: list[BaseException]) -> str:
    """Return ``host:port`` of the connection or server that failed, or "".

    Found in the local variables of the frames that the errors passed.
    """
    for link in links:
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if frame.f_code.co_name not in _CONNECTS | _LISTENS:
                continue
            variables = frame.f_locals
            instance = variables.get("self")
            # ``http.client`` and urllib3 keep them on the connection, socketserver on the server.
            pairs = (
                variables.get("address"),
                (variables.get("host"), variables.get("port")),
                (getattr(instance, "host", None), getattr(instance, "port", None)),
                getattr(instance, "server_address", None),
            )
            for pair in pairs:
                # The tuple of an IPv6 address has two more parts.
                host, port = pair[:2] if type(pair) is tuple and pair[1:] else ("", 0)
                if type(host) is str and host and type(port) is int:
                    return _bounded(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return ""


def _bounded(text: str) -> str:
    return encodable(text)[:_LONGEST_TARGET]
