"""What a cell shows: the guest's sys.stdout and sys.stderr, displays, results.

Text is written at once, to the pipe that programs and C code write to as well: so whatever a cell
prints and starts stands in the order in which it happened. The host collects it. Where text goes
another way than what came before, a mark says in which order (``wire.marks``).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import io
import itertools
import os
import pprint
import sys
import threading
from contextvars import ContextVar, Token
from numbers import Integral, Real
from types import FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.lib import pretty

from cellblock.errors import FrameTooLargeError
from cellblock.guest.guards.access import freeze, library_getattr, of_whole
from cellblock.wire import arrays, marks, messages
from cellblock.wire.frames import MAX_FRAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.guest.channel import Channel


def encodable(text: str) -> str:
    """Return ``text`` as a plain ``str``, with lone surrogates, which UTF-8 lacks, spelled out."""
    text = str.__str__(text)  # of a class of a library's or a cell's, its characters
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def plain(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return ``data`` with every value that msgpack can't carry replaced by one that it can."""
    return {encodable(str(key)): _plain(value) for key, value in data.items()}


def _plain(value: Any) -> Any:
    """Return ``value``, as builtin types, or its ``repr``, whichever can be carried first."""
    with contextlib.suppress(Exception):
        msgspec.msgpack.encode(value)
        return value
    with contextlib.suppress(Exception):
        found = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_builtin)
        msgspec.msgpack.encode(found)
        return found
    return encodable(value if isinstance(value, str) else repr(value))


def _builtin(value: Any) -> Any:
    """Return what Jupyter's messages have in a value's place: ``markupsafe.Markup``, numpy's."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else list(value)


#: The number of the cell that what is shown belongs to; 0 is whichever runs. A task takes its
#: cell's along, a thread begins with 0, as under ipykernel.
current_cell: ContextVar[int] = ContextVar("current_cell", default=0)


#: The number of the subshell that code runs in; 0 is the main shell, and any other thread.
current_subshell: ContextVar[int] = ContextVar("current_subshell", default=0)


#: Whether something is being formatted, to be shown.
is_formatting: ContextVar[bool] = ContextVar("is_formatting", default=False)


def set_parent(parent: Any) -> Token[int]:
    """Have what the calling thread or task shows belong to the cell that ``get_parent`` named."""
    number = parent.get("header", {}).get("cell", 0)
    return current_cell.set(number if type(number) is int and 0 <= number < 1 << 31 else 0)


class Hooks(threading.local):
    """What a thread's output passes before it is sent, as ipykernel's: each hook gets a message.

    It returns the message that goes on, or None if it has dealt with it.
    """

    def __init__(self) -> None:
        self._hooks: list[Callable[[dict[str, Any]], dict[str, Any] | None]] = []

    def register_hook(self, hook: Any) -> None:
        """Have what the calling thread shows from now on pass ``hook``."""
        self._hooks.append(hook)

    def unregister_hook(self, hook: Any) -> bool:
        """Undo that; return whether it had been done."""
        found = hook in self._hooks
        if found:
            self._hooks.remove(hook)
        return found

    def passed(self, kind: str, content: dict[str, Any]) -> dict[str, Any] | None:
        """Return the content of a message as the hooks leave it."""
        if not self._hooks:
            return content
        header = {"msg_id": "", "msg_type": kind}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        for hook in tuple(self._hooks):
            if (left := hook(header | message)) is None:
                return None
            message = left
        return dict(message["content"])


class OutStream(io.TextIOBase):
    """What libraries know ``sys.stdout`` of a notebook by: it is no terminal, but shows text."""

    encoding = "UTF-8"
    errors = "backslashreplace"  # as lone surrogates are written

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return False: progress bars then pick their plain form."""
        return False


OutStream.__module__ = "ipykernel.iostream"


def out_stream(name: messages.StreamName, outlet: Outlet) -> io.TextIOBase:
    """Return ``sys.stdout`` or ``sys.stderr``, whose other end is the front end.

    The outlet is held in a closure: cells get hold of the stream, and it knows the channel.
    """
    add, send, is_own, fd = outlet.add, outlet.flush, outlet.is_own, outlet.fileno(name)
    hooks = Hooks()

    class Stream(OutStream):
        def __init__(self) -> None:
            super().__init__()
            self.name = name
            self.buffer = _Bytes(self)
            self.register_hook, self.unregister_hook = hooks.register_hook, hooks.unregister_hook

        def write(self, text: str) -> int:
            """Write ``text``; raises ``TypeError`` for anything else."""
            if not isinstance(text, str):
                raise TypeError(f"write() argument must be str, not {type(text).__name__}")
            content = hooks.passed("stream", {"name": name, "text": text})
            if content is not None:
                add(name, content["text"])
            return len(text)

        def flush(self) -> None:
            """Leave nothing behind: only a process that a cell forked keeps half a line."""
            send()

        def fileno(self) -> int:
            """Return a descriptor of the same pipe.

            It is another than that of C code, as under ipykernel: libraries (wurlitzer) put a pipe
            of theirs in the place of that one, and write here what comes through.
            """
            return fd

        def _is_master_process(self) -> bool:
            """Whether no cell forked this process, by ipykernel's name for the question."""
            return is_own()

    Stream.__name__, Stream.__module__ = OutStream.__name__, OutStream.__module__
    return Stream()


class _Bytes(io.RawIOBase):
    """``sys.stdout.buffer``: bytes are read as utf-8."""

    def __init__(self, text: io.TextIOBase) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        blob = bytes(data)
        self._text.write(blob.decode("utf-8", "replace"))
        return len(blob)


#: Where C code, and programs, write.
_FDS: Final[dict[messages.StreamName, int]] = {"stdout": 1, "stderr": 2}
_OTHER: Final[dict[messages.StreamName, messages.StreamName]] = {
    "stdout": "stderr",
    "stderr": "stdout",
}
#: Above those that have numbers of their own (``guest.setup``).
_LOWEST: Final = 6
#: Before cells can put something else in its place.
_write: Final = os.write
_thread_id: Final = threading.get_native_id


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[_write(fd, data) :]


class Outlet:
    """The way out of a guest: text to its pipes, anything else to the channel, marks in both.

    A process that a cell forked writes its text to its own stdout and stderr, in whole lines.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        #: Of the same pipes as stdout and stderr: what a cell puts in the place of those is not
        #: written to. The second ones are for cells.
        self._own = {name: _twin(fd) for name, fd in _FDS.items()}
        self._filenos = {name: _twin(fd) for name, fd in _FDS.items()}
        #: Marks, numbered.
        self._numbers = itertools.count(1)
        #: The stream that was written to last, and the number of the cell that runs.
        self._last: messages.StreamName = "stdout"
        self._cell = 0
        #: Threads, by the OS kernel's ids, that cells which have ended left running.
        self._left_running = frozenset[int]()
        #: A program, or a fork, may be writing as well: each line has its place among its lines.
        self._beside = False
        #: In a process that a cell forked: the beginning of a line.
        self._begun: dict[messages.StreamName, bytes] = {"stdout": b"", "stderr": b""}
        os.register_at_fork(after_in_child=self._forget_lines)

    def is_own(self) -> bool:
        """Whether this is the guest, and no process that a cell forked."""
        return not self._channel.is_parents

    def fileno(self, name: messages.StreamName) -> int:
        """Return the descriptor that cells know a stream by."""
        return self._filenos[name]

    def begin(self, cell: int) -> None:
        """Begin a cell of this number; 0 is a cell without a number, a handler, or no cell."""
        self._cell = cell
        self._beside = self._beside and _has_children()

    def cell_ended(self) -> None:
        """Note which threads the cell left running, after its end was sent."""
        self._left_running = frozenset(
            one.native_id or 0 for one in threading.enumerate() if _runs_code_of_a_cell(one)
        )

    def program_starts(self) -> None:
        """Mark what was written before a program, or a fork, that is started now."""
        self._beside = True
        if not self._channel.is_parents:
            self._mark(marks.PLAIN)

    def add(self, kind: messages.StreamName, text: str) -> None:
        """Write ``text`` to the stream ``kind``."""
        data = str.encode(text, "utf-8", "backslashreplace")
        if self._channel.is_parents:
            self._add_to_line(kind, data)
            return
        cell, subshell = current_cell.get(), current_subshell.get()
        late = not cell and self._left_running and _thread_id() in self._left_running
        is_others = late or subshell or cell not in (0, self._cell)
        if is_others or kind != self._last or self._beside:
            self._last = kind
            number = next(self._numbers)
            _write_all(self._own[_OTHER[kind]], marks.encode(marks.PLAIN, number))
            if is_others:
                whose = marks.LATE if late else marks.TEXT
                data = marks.encode(whose, number, cell, subshell) + data + marks.END
            else:
                data = marks.encode(marks.TEXT, number) + data
        _write_all(self._own[kind], data)

    def _mark(self, kind: int) -> int:
        """Mark a moment in both pipes; return its number."""
        number = next(self._numbers)
        mark = marks.encode(kind, number)
        for fd in self._own.values():
            _write_all(fd, mark)
        return number

    def _add_to_line(self, kind: messages.StreamName, data: bytes) -> None:
        whole, end, rest = (self._begun[kind] + data).rpartition(b"\n")
        self._begun[kind] = rest
        _write_all(_FDS[kind], whole + end)

    def flush(self) -> None:
        """Write what a process that a cell forked has begun of a line."""
        for kind, fd in _FDS.items():
            data, self._begun[kind] = self._begun[kind], b""
            _write_all(fd, data)

    def marked(self, message: Any) -> Any:
        """Return ``message`` with its place among what was written; a forked process has none."""
        if self._channel.is_parents:
            return message
        return msgspec.structs.replace(message, mark=self._mark(marks.MESSAGE))

    def send(self, message: msgspec.Struct) -> None:
        """Send ``message``, what is shown in its place; of a forked process, what is text of it."""
        if self._channel.is_parents:
            data = message.data if isinstance(message, messages.Display | messages.Result) else {}
            if "text/plain" in data:
                self.add("stdout", f"{data['text/plain']}\n")
            return
        if isinstance(message, messages.OfOutput | messages.Done):
            message = self.marked(message)
        subshell = current_subshell.get()
        if subshell and isinstance(message, messages.OfSubshell):
            message = msgspec.structs.replace(message, subshell=subshell)
        self._channel.send(message)

    def show(self, kind: type[msgspec.Struct], data: Mapping[str, Any], **fields: Any) -> None:
        """Send a bundle, falling back to its plain form where it can't be carried."""
        data, metadata = dict(data), dict(fields.pop("metadata", None) or {})
        # The host takes names that are text alone; IPython's kernels make text of others.
        data, fields["metadata"] = (
            {key if type(key) is str else str(key): value for key, value in part.items()}
            for part in (data, metadata)
        )
        try:
            self.send(kind(data=data, **fields))
        except FrameTooLargeError as exc:
            note = f"<left out: {exc}, and one output has at most {MAX_FRAME >> 20} MiB>"
            self.send(kind(data={"text/plain": note}))
        except (TypeError, UnicodeEncodeError, OverflowError, RecursionError):
            fields["metadata"] = plain(fields["metadata"])
            self.send(kind(data=plain(data), **fields))

    def end(self, done: messages.Done) -> None:
        """Send a cell's end, whatever its parts hold."""
        flush_c()
        try:
            try:
                self.send(done)
            except (TypeError, UnicodeEncodeError, OverflowError, RecursionError):
                values = {k: plain(v) for k, v in done.user_expressions.items()}
                pages = [plain(p) for p in done.payload]
                done = msgspec.structs.replace(done, user_expressions=values, payload=pages)
                self.send(done)
        except FrameTooLargeError as exc:
            left_out = {"status": "error", "ename": "ValueError", "evalue": str(exc)}
            values = {k: {**left_out, "traceback": []} for k in done.user_expressions}
            self.send(msgspec.structs.replace(done, user_expressions=values, payload=[]))

    def stand_on_own_pipes(self) -> None:
        """Write to what stdout and stderr are now: in a copy, which has pipes of its own."""
        for name, fd in _FDS.items():
            for twin in (self._own[name], self._filenos[name]):
                os.dup2(fd, twin, inheritable=False)

    def _forget_lines(self) -> None:
        self._begun = dict.fromkeys(self._begun, b"")


# C's own stdout, and Python's, which are full before they are written where they are no terminal.

#: _IOLBF of setvbuf(3), of glibc, musl and macOS.
_LINES: Final = 1
_c: Final = ctypes.CDLL(None)
_setvbuf, _fflush = _c.setvbuf, _c.fflush


def _c_stdout() -> ctypes.c_void_p | None:
    for name in ("stdout", "__stdoutp"):
        with contextlib.suppress(ValueError):
            return ctypes.c_void_p.in_dll(_c, name)
    return None


#: Looked up before the language layer is in force.
_stdout: Final = _c_stdout()


def write_lines() -> None:
    """Have C code in this process, and ``sys.__stdout__``, write each line when it ends."""
    if _stdout is not None:
        _setvbuf(_stdout, None, _LINES, ctypes.c_size_t(0))
    if isinstance(sys.__stdout__, io.TextIOWrapper):
        sys.__stdout__.reconfigure(line_buffering=True)


def flush_c() -> None:
    """Write what C code has begun of a line."""
    if _stdout is not None:
        _fflush(_stdout)


def _runs_code_of_a_cell(thread: threading.Thread) -> bool:
    """Whether a thread does what a cell wrote, and nothing that any cell may hand to it.

    Threads that libraries wrote, those of pools among them, print for whoever gives them work.
    """
    target = thread.__dict__.get("_target") or thread.__dict__.get("function")  # of a Timer
    while type(target) is functools.partial:
        target = target.func
    if type(target) in (FunctionType, MethodType):
        return bool(target.__module__ == "__main__")
    return target is None and type(thread).__module__ == "__main__"


def _twin(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST)


#: Before copies are hidden from it (``guest.children``); macOS has none before Python 3.13.
_waitid: Final = getattr(os, "waitid", None)


def _has_children() -> bool:
    """Whether this process has a child, a copy that waits among them; nobody's end is taken."""
    if _waitid is None:
        return True
    try:
        _waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class Publisher(DisplayPublisher):
    """``display()`` and ``clear_output()``."""

    out: Outlet

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hooks = Hooks()
        self.register_hook = self._hooks.register_hook
        self.unregister_hook = self._hooks.unregister_hook

    def publish(  # type: ignore[override]
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Send one bundle to the front end."""
        kind = "update_display_data" if update else "display_data"
        content = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        if (found := self._hooks.passed(kind, content)) is None:
            return
        display_id = found["transient"].get("display_id")
        self.out.show(
            messages.Display,
            found["data"],
            metadata=found["metadata"],
            display_id=None if display_id is None else str(display_id),
            update=update,
            cell=current_cell.get(),
        )

    def clear_output(self, wait: bool = False) -> None:  # noqa: FBT002 - IPython's signature
        """Clear the running cell's output."""
        found = self._hooks.passed("clear_output", {"wait": bool(wait)})
        if found is not None:
            self.out.send(messages.Clear(wait=bool(found["wait"])))


class Formatter(DisplayFormatter):
    """Makes the bundles of displays and results, and notes it, for an error meanwhile."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Any:
        """Return the data and metadata of a bundle."""
        outer = is_formatting.set(True)
        try:
            return super().format(obj, include=include, exclude=exclude)
        finally:
            is_formatting.reset(outer)


class ResultHook(DisplayHook):
    """``sys.displayhook``: the last expression's value."""

    out: Outlet

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Subshells in which a result is being formatted.
        self._formatting = set[int]()
        #: Whether the value of the running cell is asked for, and what it is, encoded.
        self.is_asked, self.value = False, messages.NOTHING

    @property
    def is_formatting(self) -> bool:
        """Whether the calling thread's cell formats its result."""
        return current_subshell.get() in self._formatting

    @property
    def prompt_count(self) -> int:
        """The number of the cell that shows a result: another may run beside it."""
        number = current_cell.get()
        return number or int(super().prompt_count)

    def quiet(self) -> bool:
        """Return whether a trailing semicolon hides the result."""
        shell: Any = self.shell
        inputs = shell.history_manager.input_hist_parsed
        cell = inputs[number if (number := current_cell.get()) < len(inputs) and number else -1]
        last = cell.rstrip().rpartition("\n")[2]
        return ";" in last and bool(self.semicolon_at_end_of_expression(cell))

    def compute_format_data(self, result: Any) -> Any:
        """Format the result; note that it is done, for an error meanwhile."""
        subshell = current_subshell.get()
        self._formatting.add(subshell)
        try:
            return super().compute_format_data(result)
        finally:
            self._formatting.discard(subshell)

    def fill_exec_result(self, result: Any) -> None:
        """Encode the result where it is asked for, and is little data."""
        super().fill_exec_result(result)
        if self.is_asked:
            self.value = messages.NOTHING
            with contextlib.suppress(Exception):  # it is no data, or changes meanwhile
                self.value = arrays.encode_small(result)

    def write_output_prompt(self) -> None:
        """Write nothing: the front end numbers its results."""

    def write_format_data(
        self,
        format_dict: dict[str, Any],
        md_dict: dict[str, Any] | None = None,
    ) -> None:
        """Send the result."""
        self.out.show(messages.Result, format_dict, metadata=md_dict or {})

    def finish_displayhook(self) -> None:
        """Write nothing."""
        self._is_active = False


Formatter.__name__ = Formatter.__qualname__ = "DisplayFormatter"
Formatter.__module__ = DisplayFormatter.__module__
Publisher.__name__ = Publisher.__qualname__ = "ZMQDisplayPublisher"
ResultHook.__name__ = ResultHook.__qualname__ = "ZMQShellDisplayHook"
Publisher.__module__ = ResultHook.__module__ = "ipykernel.zmqshell"


# What streams and printers do under the language layer.


def stream_in_force(name: str) -> object:
    """Return ``sys.stdout`` or ``sys.stderr`` as cells see it: it writes to the one in force."""

    class Stream(io.TextIOBase):
        encoding, errors = "utf-8", "backslashreplace"

        def write(self, text: str) -> Any:
            return getattr(sys, name).write(text)

        def flush(self) -> None:
            getattr(sys, name).flush()

        def writable(self) -> bool:
            return True

    Stream.name = f"<{name}>"  # type: ignore[attr-defined]
    return Stream()


def harden_printers() -> None:
    """Have pretty printers keep the rules, whoever calls them: a cell may derive from one.

    They read attributes as cells may, and show a namespace that cells may hold. ``_repr_pretty_``
    gets a printer whose tables are copies: the shell's own outlive a cell.
    """
    simple, name = pprint.PrettyPrinter, "_pprint_simplenamespace"
    setattr(simple, name, of_whole(vars(simple)[name]))
    vars(simple)["_dispatch"][SimpleNamespace.__repr__] = vars(simple)[name]
    vars(pprint)["getattr"] = library_getattr
    printer: Any = pretty.RepresentationPrinter
    make, printers = printer.__init__, vars(pretty)["_type_pprinters"]

    def make_with_copies(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        for table in ("singleton_pprinters", "type_pprinters", "deferred_pprinters"):
            setattr(self, table, dict(getattr(self, table)))

    printer.__init__ = make_with_copies
    printers[SimpleNamespace] = of_whole(printers[SimpleNamespace], 0)
    vars(pretty)["getattr"] = library_getattr
    for kind in printer.__mro__:
        freeze(kind)
