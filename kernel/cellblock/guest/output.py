"""What a cell shows: the guest's sys.stdout and sys.stderr, displays, results.

A print costs a list append: text is collected and leaves in one frame, when there is much of it,
when the cell ends or shows something, or a moment after the first of it was written.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pprint
import sys
import threading
import time
from _thread import start_new_thread
from collections import deque
from contextvars import ContextVar, Token
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.lib import pretty

from cellblock.errors import FrameTooLargeError
from cellblock.guest.guards.access import freeze, library_getattr, of_whole
from cellblock.wire import messages, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cellblock.guest.channel import Channel


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates, which UTF-8 has no form for, spelled out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def plain(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return ``data`` with every value that msgpack can't carry replaced by its ``str``."""
    return {encodable(str(key)): _plain(value) for key, value in data.items()}


def _plain(value: Any) -> Any:
    try:
        msgspec.msgpack.encode(value)
    except Exception:
        return encodable(value if isinstance(value, str) else repr(value))
    return value


#: The number of the cell that what is shown belongs to; 0 is whichever runs. A task takes its
#: cell's along, a thread begins with 0, as under ipykernel.
current_cell: ContextVar[int] = ContextVar("current_cell", default=0)


#: The number of the subshell that code runs in; 0 is the main shell, and any other thread.
current_subshell: ContextVar[int] = ContextVar("current_subshell", default=0)


def set_parent(parent: Any) -> Token[int]:
    """Have what the calling thread or task shows belong to the cell that ``get_parent`` named."""
    number = parent.get("header", {}).get("cell", 0)
    return current_cell.set(number if type(number) is int and 0 <= number < 1 << 31 else 0)


#: Text waits at most this long, in seconds: below what a reader notices.
LATENCY = 0.02
#: Characters that are sent at once.
BATCH = 1 << 16
#: Seconds that a thread waits for another that sends before it looks whether that one lives.
_TIMEOUT = 0.5


class OutStream(io.TextIOBase):
    """What libraries know ``sys.stdout`` of a notebook by: it is no terminal, but shows text."""

    encoding = "utf-8"
    errors = "backslashreplace"  # as lone surrogates are written

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return False: progress bars then pick their plain form."""
        return False


OutStream.__module__ = "ipykernel.iostream"


def out_stream(name: messages.StreamName, fd: int, outlet: Outlet) -> io.TextIOBase:
    """Return ``sys.stdout`` or ``sys.stderr``, whose other end is the front end.

    The outlet is held in a closure: cells get hold of the stream, and it knows the channel.
    ``fileno`` is the real descriptor, for what writes below Python; that text takes the pipe.
    """
    add, send, is_own = outlet.add, outlet.flush, outlet.is_own

    class Stream(OutStream):
        def __init__(self) -> None:
            super().__init__()
            self.name = f"<{name}>"
            self.buffer = _Bytes(self)

        def write(self, text: str) -> int:
            """Collect ``text``; raises ``TypeError`` for anything else."""
            if not isinstance(text, str):
                raise TypeError(f"write() argument must be str, not {type(text).__name__}")
            add(name, text)
            return len(text)

        def flush(self) -> None:
            """Send what was written so far."""
            send()

        def fileno(self) -> int:
            """Return the descriptor that C code writes to."""
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


_FDS: Final[dict[str, int]] = {"stdout": 1, "stderr": 2}


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class Outlet:
    """The way out of a guest: text that is collected, and messages after the text before them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        #: Each piece of text behind its stream, its cell and its subshell.
        self._parts = deque[tuple[tuple[messages.StreamName, int, int], str]]()
        self._size = 0
        self._lock = threading.Lock()
        #: Which thread has it, as the OS kernel numbers them: Python's numbers are used again.
        self._held = self._lock, 0
        self._dirty = threading.Event()
        self._drains = False
        os.register_at_fork(after_in_child=self.reset_after_fork)

    def is_own(self) -> bool:
        """Whether this is the guest, and no process that a cell forked."""
        return not self._channel.is_parents

    def add(self, kind: messages.StreamName, text: str) -> None:
        """Collect ``text`` for the stream ``kind``; a process that a cell forked writes lines."""
        self._parts.append(((kind, current_cell.get(), current_subshell.get()), text))
        self._size += len(text)
        if self._size >= BATCH:
            self.flush()
        elif self._channel.is_parents:
            if "\n" in text:
                self.flush()
        elif not self._dirty.is_set():
            self._dirty.set()
            if not self._drains:
                self._start()

    def flush(self) -> None:
        """Send what is collected."""
        with self.hold():
            self._dirty.clear()
            self._size, parts = 0, []
            with contextlib.suppress(IndexError):  # one by one: threads add to it meanwhile
                while True:
                    parts.append(self._parts.popleft())
            for (kind, cell, subshell), group in itertools.groupby(parts, itemgetter(0)):
                text = "".join(piece for _, piece in group)
                if self._channel.is_parents:
                    _write_all(_FDS[kind], text.encode("utf-8", "backslashreplace"))
                    continue
                for start in range(0, len(text), BATCH * 4):
                    piece = encodable(text[start : start + BATCH * 4])
                    self._channel.send(
                        messages.Stream(name=kind, text=piece, cell=cell, subshell=subshell)
                    )

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other threads from sending, and finish what is half sent: for a fork."""
        own = threading.get_native_id()
        if self._held[1] == own:  # a finaliser that prints, in the middle of it
            yield
            return
        mine = lock, _ = self._lock, own
        while not lock.acquire(timeout=_TIMEOUT):
            # CPython 3.11 reaches no handler where no memory is left: a thread that ended so holds
            # the lock for ever.
            held, by = self._held
            if held is lock is self._lock and not os.path.exists(f"/proc/self/task/{by}"):
                self._lock = threading.Lock()
            mine = lock, _ = self._lock, own
        self._held = mine
        try:
            yield
        finally:
            self._held = lock, 0
            lock.release()

    def send(self, message: msgspec.Struct) -> None:
        """Send ``message`` after all text so far; of a forked process, what is text of it."""
        if self._channel.is_parents:
            data = message.data if isinstance(message, messages.Display | messages.Result) else {}
            if "text/plain" in data:
                self.add("stdout", f"{data['text/plain']}\n")
            return
        self.flush()
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
            note = f"<output left out: {exc}>"
            self.send(kind(data={"text/plain": note}))
        except (TypeError, UnicodeEncodeError, RecursionError):
            fields["metadata"] = plain(fields["metadata"])
            self.send(kind(data=plain(data), **fields))

    def end(self, done: messages.Done) -> None:
        """Send a cell's end, whatever its parts hold."""
        try:
            try:
                self.send(done)
            except (TypeError, UnicodeEncodeError, RecursionError):
                values = {k: plain(v) for k, v in done.user_expressions.items()}
                pages = [plain(p) for p in done.payload]
                done = msgspec.structs.replace(done, user_expressions=values, payload=pages)
                self.send(done)
        except FrameTooLargeError as exc:
            left_out = {"status": "error", "ename": "ValueError", "evalue": str(exc)}
            values = {k: {**left_out, "traceback": []} for k in done.user_expressions}
            self.send(msgspec.structs.replace(done, user_expressions=values, payload=[]))

    def reset_after_fork(self) -> None:
        """Reset a copy, which has neither the thread nor the text of the original."""
        self._parts, self._size = deque(), 0
        self._lock, self._dirty, self._drains = threading.Lock(), threading.Event(), False
        self._held = self._lock, 0

    def _start(self) -> None:
        """Start a thread that drains, which cells that count theirs don't see."""
        try:
            start_new_thread(self._drain, ())
        except (RuntimeError, MemoryError):
            self.flush()  # no room for one more: text leaves as it comes
            return
        self._drains = True

    def _drain(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(LATENCY)
            try:
                self.flush()
            except OSError:
                return


class Publisher(DisplayPublisher):
    """``display()`` and ``clear_output()``."""

    out: Outlet

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
        display_id = (transient or {}).get("display_id")
        self.out.show(
            messages.Display,
            data,
            metadata=metadata or {},
            display_id=None if display_id is None else str(display_id),
            update=update,
            cell=current_cell.get(),
        )

    def clear_output(self, wait: bool = False) -> None:  # noqa: FBT002 - IPython's signature
        """Clear the running cell's output."""
        self.out.send(messages.Clear(wait=bool(wait)))


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
                self.value = values.encode_small(result)

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
