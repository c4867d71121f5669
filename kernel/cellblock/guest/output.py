"""The output of cells: sys.stdout and sys.stderr, displays and results.

All output of a guest passes its one ``Outlet``. There are three ways to the host:

    text of stdout, stderr    two pipes, to which programs and C code write as well
    displays, results, ends   frames on the channel

Python's text is written to its pipe at once, so that it keeps its order among the text of programs
that a cell starts. The order between the three ways is said by marks (``wire.marks``).

Parts: values that frames can carry (``plain``); context variables that say whose output something
is; ``Hooks`` and the streams; the ``Outlet``; IPython's publisher, formatter and result hook; what
the language layer changes.
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
    text = str.__str__(text)  # the characters of an object of a subclass, which may override str()
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def plain(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return ``data``, with each value that msgpack can't carry replaced by one that it can."""
    return {encodable(str(key)): _plain(value) for key, value in data.items()}


def _plain(value: Any) -> Any:
    """Return ``value``, or it as builtin types, or its ``repr``: the first that can be carried."""
    with contextlib.suppress(Exception):
        msgspec.msgpack.encode(value)
        return value
    with contextlib.suppress(Exception):
        converted = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_builtin)
        msgspec.msgpack.encode(converted)
        return converted
    return encodable(value if isinstance(value, str) else repr(value))


def _builtin(value: Any) -> Any:
    """Return an object of a library, such as numpy's or ``markupsafe.Markup``, as a builtin."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else list(value)


#: The number of the cell that output belongs to; 0 is the cell that runs. A task inherits that of
#: its cell, a thread begins with 0, as under ipykernel.
current_cell: ContextVar[int] = ContextVar("current_cell", default=0)


#: The number of the subshell that code runs in; 0 in the main shell, and in threads of cells.
current_subshell: ContextVar[int] = ContextVar("current_subshell", default=0)


#: Whether an object is being formatted for a display or result.
is_formatting: ContextVar[bool] = ContextVar("is_formatting", default=False)


def set_parent(parent: Any) -> Token[int]:
    """Make output of the calling thread or task belong to the cell that ``parent`` names.

    ``parent`` is what ``get_parent`` returned. Return a token that undoes this.
    """
    number = parent.get("header", {}).get("cell", 0)
    return current_cell.set(number if type(number) is int and 0 <= number < 1 << 31 else 0)


class Hooks(threading.local):
    """Hooks that a thread's output passes before it is sent, as under ipykernel.

    Each hook gets a message, and returns the message that goes on, or None if it has handled it.
    """

    def __init__(self) -> None:
        self._hooks: list[Callable[[dict[str, Any]], dict[str, Any] | None]] = []

    def register_hook(self, hook: Any) -> None:
        """Pass the output of the calling thread through ``hook`` from now on."""
        self._hooks.append(hook)

    def unregister_hook(self, hook: Any) -> bool:
        """Remove a hook of the calling thread; return whether it was registered."""
        registered = hook in self._hooks
        if registered:
            self._hooks.remove(hook)
        return registered

    def passed(self, kind: str, content: dict[str, Any]) -> dict[str, Any] | None:
        """Return the content of a message after all hooks, or None if one has handled it."""
        if not self._hooks:
            return content
        header = {"msg_id": "", "msg_type": kind}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        for hook in tuple(self._hooks):
            if (changed := hook(header | message)) is None:
                return None
            message = changed
        return dict(message["content"])


class OutStream(io.TextIOBase):
    """The base class of ``sys.stdout`` and ``sys.stderr``, by which libraries know a notebook.

    It is found as ``ipykernel.iostream.OutStream``.
    """

    encoding = "UTF-8"
    errors = "backslashreplace"  # how ``Outlet.add`` writes lone surrogates

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return False: progress bars then pick their plain form."""
        return False


OutStream.__module__ = "ipykernel.iostream"


def out_stream(name: messages.StreamName, outlet: Outlet) -> io.TextIOBase:
    """Make ``sys.stdout`` or ``sys.stderr`` of a guest.

    The outlet, which leads to the channel, is in a closure: cells can read the stream's attributes.
    """
    add = outlet.add
    send = outlet.flush
    is_own = outlet.is_own
    fd = outlet.fileno(name)
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
            """Write half a line that a process forked by a cell has kept; a guest keeps none."""
            send()

        def fileno(self) -> int:
            """Return a descriptor of the same pipe.

            It is not 1 or 2, to which C code writes. As under ipykernel, libraries (wurlitzer)
            replace these by a pipe of theirs, and write to this stream what comes through it.
            """
            return fd

        def _is_master_process(self) -> bool:
            """Return False in a process that a cell forked. Libraries call this, as ipykernel's."""
            return is_own()

    Stream.__name__, Stream.__module__ = OutStream.__name__, OutStream.__module__
    return Stream()


class _Bytes(io.RawIOBase):
    """``sys.stdout.buffer``: decodes bytes as UTF-8 and writes the text."""

    def __init__(self, text: io.TextIOBase) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        blob = bytes(data)
        self._text.write(blob.decode("utf-8", "replace"))
        return len(blob)


#: The descriptors to which C code and programs write.
_FDS: Final[dict[messages.StreamName, int]] = {"stdout": 1, "stderr": 2}
_OTHER: Final[dict[messages.StreamName, messages.StreamName]] = {
    "stdout": "stderr",
    "stderr": "stdout",
}
#: Lowest number of a copied descriptor: above those with fixed numbers (``guest.setup``).
_LOWEST: Final = 6
# Taken before cells can replace them.
_write: Final = os.write
_thread_id: Final = threading.get_native_id


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[_write(fd, data) :]


class Outlet:
    """Sends the output of a guest: text to its pipes, the rest to the channel, marks to both.

    In a process that a cell forked, text goes to stdout and stderr in whole lines, and nothing goes
    to the channel, which belongs to the parent.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        #: Copies of the descriptors of stdout and stderr. A cell may replace the original ones, and
        #: our text must not go there. ``_filenos`` are further copies, which are given to cells.
        self._own = {name: _duplicate(fd) for name, fd in _FDS.items()}
        self._filenos = {name: _duplicate(fd) for name, fd in _FDS.items()}
        #: The numbers of marks.
        self._numbers = itertools.count(1)
        #: The stream that was written to last, and the number of the cell that runs.
        self._last: messages.StreamName = "stdout"
        self._cell = 0
        #: Ids (of the OS kernel) of threads that ended cells have left running.
        self._left_running = frozenset[int]()
        #: A program or a forked process may write, too. Every write then gets a mark, so that its
        #: place among that text is known.
        self._others_write = False
        #: In a process that a cell forked: the beginning of a line, until the line is complete.
        self._begun: dict[messages.StreamName, bytes] = {"stdout": b"", "stderr": b""}
        os.register_at_fork(after_in_child=self._forget_lines)

    def is_own(self) -> bool:
        """Return whether this process is the guest, and was not forked by a cell."""
        return not self._channel.is_parents

    def fileno(self, name: messages.StreamName) -> int:
        """Return the descriptor of a stream that is given to cells."""
        return self._filenos[name]

    def begin(self, cell: int) -> None:
        """Note that a cell begins; 0 is a cell without a number, a comm handler, or no cell."""
        self._cell = cell
        self._others_write = self._others_write and _has_children()

    def cell_ended(self) -> None:
        """Note which threads the cell left running. Called after its ``Done`` was sent."""
        self._left_running = frozenset(
            thread.native_id or 0
            for thread in threading.enumerate()
            if _runs_code_of_a_cell(thread)
        )

    def program_starts(self) -> None:
        """Mark the end of what was written before a program or a fork that starts now."""
        self._others_write = True
        if not self._channel.is_parents:
            self._mark(marks.PLAIN)

    def add(self, kind: messages.StreamName, text: str) -> None:
        """Write ``text`` to the stream ``kind``.

        Usually writes nothing but the text. Puts a mark before it if the order would not be clear
        otherwise, or if the text belongs to another cell than the one that runs.
        """
        data = str.encode(text, "utf-8", "backslashreplace")
        if self._channel.is_parents:
            self._add_to_line(kind, data)
            return
        cell = current_cell.get()
        subshell = current_subshell.get()
        late = not cell and self._left_running and _thread_id() in self._left_running
        is_others = late or subshell or cell not in (0, self._cell)
        if is_others or kind != self._last or self._others_write:
            self._last = kind
            number = next(self._numbers)
            _write_all(self._own[_OTHER[kind]], marks.encode(marks.PLAIN, number))
            if is_others:
                mark_kind = marks.LATE if late else marks.TEXT
                data = marks.encode(mark_kind, number, cell, subshell) + data + marks.END
            else:
                data = marks.encode(marks.TEXT, number) + data
        _write_all(self._own[kind], data)

    def _mark(self, kind: int) -> int:
        """Write the same mark to both pipes; return its number."""
        number = next(self._numbers)
        mark = marks.encode(kind, number)
        for fd in self._own.values():
            _write_all(fd, mark)
        return number

    def _add_to_line(self, kind: messages.StreamName, data: bytes) -> None:
        """Write whole lines, and keep the rest. Used in a process that a cell forked."""
        lines, end, rest = (self._begun[kind] + data).rpartition(b"\n")
        self._begun[kind] = rest
        _write_all(_FDS[kind], lines + end)

    def flush(self) -> None:
        """Write the beginning of a line that a process forked by a cell has kept."""
        for kind, fd in _FDS.items():
            data, self._begun[kind] = self._begun[kind], b""
            _write_all(fd, data)

    def marked(self, message: Any) -> Any:
        """Mark the present place in both pipes; return ``message`` with the mark's number.

        A process that a cell forked writes no marks.
        """
        if self._channel.is_parents:
            return message
        return msgspec.structs.replace(message, mark=self._mark(marks.MESSAGE))

    def send(self, message: msgspec.Struct) -> None:
        """Send ``message`` to the host, with a mark if its place among text matters.

        A process that a cell forked can't use the channel: it prints the plain text of a display.
        """
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
        """Send a mime bundle in a message of type ``kind``.

        If msgpack can't carry some value, the value's plain form is sent (``plain``). If the bundle
        is too large, a note is sent instead.
        """
        data, metadata = dict(data), dict(fields.pop("metadata", None) or {})
        # The host accepts only text as names. IPython's kernels make text of other objects.
        data, fields["metadata"] = (
            {key if type(key) is str else str(key): value for key, value in mapping.items()}
            for mapping in (data, metadata)
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
        """Send a cell's ``Done``. Parts that can't be carried are replaced, so that it is sent."""
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
        """Write to the present stdout and stderr. Called in a copy, which has pipes of its own."""
        for name, fd in _FDS.items():
            for duplicate in (self._own[name], self._filenos[name]):
                os.dup2(fd, duplicate, inheritable=False)

    def _forget_lines(self) -> None:
        """Forget the beginning of a line, in a forked process: its parent writes it."""
        self._begun = dict.fromkeys(self._begun, b"")


# C's stdout and ``sys.__stdout__``. Unless they are a terminal, they are written only when their
# buffer is full, which would lose the order.

#: _IOLBF of setvbuf(3), the same in glibc, musl and macOS.
_LINES: Final = 1
_c: Final = ctypes.CDLL(None)
_setvbuf, _fflush = _c.setvbuf, _c.fflush


def _c_stdout() -> ctypes.c_void_p | None:
    for name in ("stdout", "__stdoutp"):
        with contextlib.suppress(ValueError):
            return ctypes.c_void_p.in_dll(_c, name)
    return None


#: Looked up in the zygote, before the language layer is in force.
_stdout: Final = _c_stdout()


def write_lines() -> None:
    """Make C code in this process, and ``sys.__stdout__``, write each line when it is complete."""
    if _stdout is not None:
        _setvbuf(_stdout, None, _LINES, ctypes.c_size_t(0))
    if isinstance(sys.__stdout__, io.TextIOWrapper):
        sys.__stdout__.reconfigure(line_buffering=True)


def flush_c() -> None:
    """Write the beginning of a line that C code has kept in its buffer."""
    if _stdout is not None:
        _fflush(_stdout)


def _runs_code_of_a_cell(thread: threading.Thread) -> bool:
    """Return whether a thread runs a function or class of a cell, so that its text is that cell's.

    Threads that run a library's code, such as those of pools, print on behalf of whichever cell
    gives them work.
    """
    # A Timer has its function under another name.
    target = thread.__dict__.get("_target") or thread.__dict__.get("function")
    while type(target) is functools.partial:
        target = target.func
    if type(target) in (FunctionType, MethodType):
        return bool(target.__module__ == "__main__")
    return target is None and type(thread).__module__ == "__main__"


def _duplicate(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST)


#: Taken before ``guest.children`` hides copies from it. macOS lacks it before Python 3.13.
_waitid: Final = getattr(os, "waitid", None)


def _has_children() -> bool:
    """Return whether this process has a child, including waiting copies. Reaps none."""
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
        if (passed := self._hooks.passed(kind, content)) is None:
            return
        display_id = passed["transient"].get("display_id")
        self.out.show(
            messages.Display,
            passed["data"],
            metadata=passed["metadata"],
            display_id=None if display_id is None else str(display_id),
            update=update,
            cell=current_cell.get(),
        )

    def clear_output(self, wait: bool = False) -> None:  # noqa: FBT002 - IPython's signature
        """Clear the running cell's output."""
        passed = self._hooks.passed("clear_output", {"wait": bool(wait)})
        if passed is not None:
            self.out.send(messages.Clear(wait=bool(passed["wait"])))


class Formatter(DisplayFormatter):
    """Makes the bundles of displays and results.

    Sets ``is_formatting`` meanwhile, so that an error is known to come from formatting.
    """

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
        #: Whether the host wants the value of the running cell, and that value, encoded.
        self.is_asked = False
        self.value = messages.NOTHING

    @property
    def is_formatting(self) -> bool:
        """Whether the calling thread's cell is formatting its result."""
        return current_subshell.get() in self._formatting

    @property
    def prompt_count(self) -> int:
        """The number of the calling cell, beside which another may run in a subshell."""
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
        """Format the result; ``is_formatting`` says so meanwhile."""
        subshell = current_subshell.get()
        self._formatting.add(subshell)
        try:
            return super().compute_format_data(result)
        finally:
            self._formatting.discard(subshell)

    def fill_exec_result(self, result: Any) -> None:
        """Keep the result, and encode it if the host wants it and it is little data."""
        super().fill_exec_result(result)
        if self.is_asked:
            self.value = messages.NOTHING
            with contextlib.suppress(Exception):  # it is not data, or changes meanwhile
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


# Streams and printers under the language layer.


def stream_in_force(name: str) -> object:
    """Return the ``sys.stdout`` or ``sys.stderr`` of cells, which writes to the real one.

    That is looked up at each write, since it may be replaced, as by %%capture.
    """

    class Stream(io.TextIOBase):
        encoding = "utf-8"
        errors = "backslashreplace"

        def write(self, text: str) -> Any:
            return getattr(sys, name).write(text)

        def flush(self) -> None:
            getattr(sys, name).flush()

        def writable(self) -> bool:
            return True

    Stream.name = f"<{name}>"  # type: ignore[attr-defined]
    return Stream()


def harden_printers() -> None:
    """Make pretty printers keep the rules, whoever calls them, as a cell may derive from one.

    They then read only attributes that cells may read, and show namespaces as cells may see them.
    ``_repr_pretty_`` gets a printer whose tables are copies, because the shell's own tables outlive
    the cell.
    """
    plain_printer = pprint.PrettyPrinter
    name = "_pprint_simplenamespace"
    setattr(plain_printer, name, of_whole(vars(plain_printer)[name]))
    vars(plain_printer)["_dispatch"][SimpleNamespace.__repr__] = vars(plain_printer)[name]
    vars(pprint)["getattr"] = library_getattr
    printer: Any = pretty.RepresentationPrinter
    original_init = printer.__init__
    printers = vars(pretty)["_type_pprinters"]

    def init_with_copies(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        for table in ("singleton_pprinters", "type_pprinters", "deferred_pprinters"):
            setattr(self, table, dict(getattr(self, table)))

    printer.__init__ = init_with_copies
    printers[SimpleNamespace] = of_whole(printers[SimpleNamespace], 0)
    vars(pretty)["getattr"] = library_getattr
    for base in printer.__mro__:
        freeze(base)
