"""Functions that call the host: tools, operations (``ops``) and language models (``llm``).

``namespace`` makes them in the zygote. ``Calls`` has the calls that are under way in a guest, and
who waits for which answer:

    caller ── ToolCall ──> host ── ToolResult ──> the reading thread ── wakes ──> caller
    caller ── interrupted or cancelled: ToolWithdrawn ──> host

Threads take turns reading the channel. The main thread reads while it waits. While it runs code,
one of the waiting threads, the *leader*, reads for all; the others are its *followers*. An event
loop reads while something in it waits.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import itertools
import json
import select
import sys
import threading
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.loop import GuestLoop
from cellblock.guest.output import current_cell, current_subshell
from cellblock.wire import arrays, messages, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from cellblock.guest.channel import Channel
    from cellblock.guest.loop import ChannelReaders

    Decode = Callable[[msgspec.Raw | bytes], Any]


#: Seconds after which a follower checks whether it must still wait, and a leader whether it must
#: still read.
LOOK: Final = 0.5
LOOK_READING: Final = 0.02


class ToolError(Exception):
    """A tool failed or could not be called: ``tool`` names it, ``kind`` and ``message`` say how."""

    def __init__(self, tool: str, kind: str = "", message: str = "") -> None:
        super().__init__(tool, kind, message)
        self.tool, self.kind, self.message = tool, kind, message

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.tool, self.kind, self.message)))


class _Call:
    """One call. ``wake`` is called when the answer is here, by the thread that read it.

    ``decode`` makes a value of the answer.
    """

    __slots__ = ("decode", "result", "tool", "wake")

    def __init__(self, tool: str, wake: Callable[[], None], decode: Decode) -> None:
        self.tool = tool
        self.wake = wake
        self.decode = decode
        self.result: messages.ToolResult | None = None

    def wake_caller(self) -> None:
        with contextlib.suppress(Exception):  # a cell may have spoilt the loop
            self.wake()

    def due(self) -> bool:
        return self.result is not None

    def value(self) -> Any:
        """Return the answer's value. Raises ToolError if the call failed."""
        result = self.result
        if result is None:
            raise ToolError(self.tool, "RuntimeError", "its answer was not waited for")
        if result.kind:
            raise ToolError(self.tool, result.kind, result.message)
        try:
            return self.decode(result.value)
        except ImportError as exc:
            raise ToolError(self.tool, "ImportError", str(exc)) from None


def _nothing() -> None: ...


class Calls:
    """The calls of a guest that are under way. Any thread may call.

    ``most`` is how many calls may be under way at once. ``allows`` returns whether cells may have
    objects of a library, which answers may contain.
    """

    def __init__(
        self,
        channel: Channel,
        readers: ChannelReaders,
        most: int,
        allows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._channel = channel
        self.readers = readers
        self._most = most
        self._decode = arrays.answers(allows)
        self._ids = itertools.count(1)
        self._in_flight: dict[int, _Call] = {}
        #: Held while calls are counted. Reentrant, because code of a cell, such as a finalizer, may
        #: run meanwhile and call.
        self._counting = threading.RLock()
        #: Held by the thread that reads for all.
        self._leader = threading.Lock()
        #: The events of threads that wait while another thread reads.
        self._followers: dict[threading.Event, None] = {}
        channel.on_result = self._on_result
        channel.on_leave = self._promote

    def reset_after_fork(self) -> None:
        """Forget all calls, in a copy: their answers go to the original."""
        self._in_flight.clear()
        self._followers.clear()
        self._counting = threading.RLock()
        self._leader = threading.Lock()

    # --- calling ------------------------------------------------------------------------------

    def block(self, tool: str, arguments: msgspec.Raw) -> Any:
        """Call a tool and block until it answers; an interrupt withdraws the call.

        ``arguments`` are encoded (``pack``). Raises ToolError.
        """
        main = self._channel.is_main()
        event = None if main else threading.Event()
        call = _Call(tool, _nothing if event is None else event.set, self._decode)
        number = next(self._ids)
        try:
            self._send(number, call, arguments)
            while call.result is None:
                if event is None:
                    self._channel.wait(call.due)
                else:
                    self.wait_beside_main(call.due, event)
        finally:
            self._end(number)
        return call.value()

    async def wait(self, tool: str, arguments: msgspec.Raw) -> Any:
        """Call a tool and await its answer; cancelling withdraws the call. Raises ToolError."""
        loop = asyncio.get_running_loop()
        answer_due = asyncio.Event()

        def wake() -> None:
            if _get_running_loop() is loop:  # None in another thread
                answer_due.set()
            else:
                with contextlib.suppress(RuntimeError):  # it has closed
                    loop.call_soon_threadsafe(answer_due.set)

        call = _Call(tool, wake, self._decode)
        number = next(self._ids)
        try:
            self.readers.begin(loop)
            try:
                self._send(number, call, arguments)
                while call.result is None:
                    await answer_due.wait()
                    answer_due.clear()
            finally:
                self.readers.end(loop)
        finally:
            self._end(number)
        return call.value()

    def _send(self, number: int, call: _Call, arguments: msgspec.Raw) -> None:
        """Send a call. Raises ToolError if too many are under way."""
        with self._counting:
            if len(self._in_flight) >= self._most:
                why = f"{self._most:,} calls are under way already (tool_max_in_flight)"
                raise ToolError(call.tool, "TooManyCalls", why)
            self._in_flight[number] = call
        self._channel.send(
            messages.ToolCall(
                id=number,
                name=call.tool,
                arguments=arguments,
                cell=current_cell.get(),
                subshell=current_subshell.get(),
            )
        )

    def _end(self, number: int) -> None:
        """Forget a call; if it was not answered, tell the host that nobody waits for it."""
        if number not in self._in_flight:
            return
        try:
            self._channel.send(messages.ToolWithdrawn(id=number))
        finally:  # only then, so that another call takes its place when the host knows of this
            self._in_flight.pop(number, None)

    # --- answers ------------------------------------------------------------------------------

    def _on_result(self, result: messages.ToolResult) -> Callable[[], None]:
        """Store an answer; return the function that wakes the caller."""
        call = self._in_flight.pop(result.id, None)
        if call is None:
            return _nothing
        call.result = result
        return call.wake_caller

    def wait_beside_main(self, is_due: Callable[[], bool], event: threading.Event) -> None:
        """Wait until ``is_due`` returns true, in a thread other than the main one.

        The thread becomes the leader if no thread reads. Otherwise it waits for ``event``, which is
        set when something has arrived for it, or when it should become the leader.
        """
        while not is_due():
            if self._channel.main_waits or not self._leader.acquire(blocking=False):
                self._followers[event] = None
                event.wait(LOOK)
                event.clear()
                self._followers.pop(event, None)
                continue
            try:
                self._lead(is_due)
            finally:
                self._leader.release()
                self._promote()

    def _lead(self, is_due: Callable[[], bool]) -> None:
        """Read for all threads until ``is_due`` returns true or the main thread reads itself."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while not is_due() and not self._channel.main_waits:
            if poll.poll(LOOK_READING * 1000):
                self._channel.read()

    def read_now(self) -> None:
        """Read what has arrived, in any thread, unless another thread is reading."""
        if self._leader.acquire(blocking=False):
            try:
                while not self._channel.main_waits and self._channel.has_arrived():
                    self._channel.read()
            finally:
                self._leader.release()
                self._promote()

    def _promote(self) -> None:
        """Wake one follower, which becomes the leader if there is none."""
        # StopIteration: there are no followers. RuntimeError: another thread changed ``_followers``
        # meanwhile; that thread then looks itself whether it must lead.
        with contextlib.suppress(RuntimeError, StopIteration):
            next(iter(self._followers)).set()


#: How the names of operations begin.
PREFIX: Final = "ops."
# Names of the two calls of a language model. Its key and address are in the host only.
NAME: Final = "llm"
CHAT: Final = "llm.chat"


def namespace(
    tools: Iterable[messages.Tool], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return, by name, what cells can call: the operator's tools, ``ops``, ``llm``, ``ToolError``.

    Called in the zygote. ``calls`` returns the guest's ``Calls`` when a function is called.
    ``most`` is the most bytes that the arguments of a call may take. Operations that are not
    granted are not listed; a cell that calls one is told by the host which section of a policy
    would grant it.
    """
    tools_by_name = {tool.name: tool for tool in tools}
    of_model = (NAME, CHAT) if CHAT in tools_by_name else ()
    granted = build_tools(
        (t for t in tools_by_name.values() if t.name not in of_model), most, calls
    )
    names = (f"{PREFIX}{name}" for name in messages.OPERATIONS)
    withheld = build_tools((_placeholder(n) for n in names if n not in tools_by_name), most, calls)
    operator_tools = {
        name: function for name, function in granted.items() if not name.startswith(PREFIX)
    }
    operations = {
        n.removeprefix(PREFIX): function
        for n, function in granted.items()
        if n not in operator_tools
    }
    withheld_operations = {
        name.removeprefix(PREFIX): function for name, function in withheld.items()
    }
    ops = Operations(operations, withheld_operations)
    return {
        "ToolError": ToolError,
        **operator_tools,
        "ops": ops,
        **build_llm(tools_by_name, most, calls),
    }


def _placeholder(name: str) -> messages.Tool:
    """Return a tool that stands for one that is not granted. It takes any arguments."""
    anything = (
        messages.Parameter(name="args", kind=inspect.Parameter.VAR_POSITIONAL),
        messages.Parameter(name="kwargs", kind=inspect.Parameter.VAR_KEYWORD),
    )
    doc = "This policy does not grant it; call it to see which section would."
    return messages.Tool(name=name, parameters=anything, doc=doc)


class Operations:
    """``ops``: operations that the host does for cells. ``%tools`` lists what the policy grants."""

    def __init__(self, granted: Mapping[str, Any], withheld: Mapping[str, Any]) -> None:
        vars(self).update(granted)
        self._withheld = withheld

    def __getattr__(self, name: str) -> Any:
        withheld = vars(self).get("_withheld", {})
        if name in withheld:
            return withheld[name]
        raise AttributeError(f"there is no operation ops.{name}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [name for name in vars(self) if not name.startswith("_")]

    def __repr__(self) -> str:
        names = ", ".join(f"ops.{name}" for name in dir(self))
        return f"<operations: {names or 'this policy grants none'}>"


#: HTTP statuses from here on are errors.
_FIRST_ERROR: Final = 400


class Response:
    """The answer to ``ops.http``: ``status``, ``url``, ``headers`` by lower-case name, body."""

    __slots__ = ("content", "headers", "status", "url")

    def __init__(self, status: int, url: str, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.url = url
        self.headers = headers
        self.content = content

    @property
    def text(self) -> str:
        """The body as text, in the encoding that its headers name, else UTF-8."""
        kind = self.headers.get("content-type", "")
        _, _, charset = kind.lower().partition("charset=")
        try:
            return self.content.decode(
                charset.partition(";")[0].strip("\"' ") or "utf-8", "replace"
            )
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return json.loads(self.content)

    @property
    def ok(self) -> bool:
        """Whether the status is not an error's."""
        return self.status < _FIRST_ERROR

    def raise_for_status(self) -> None:
        """Raise ToolError if the status is an error's."""
        if not self.ok:
            raise ToolError("ops.http", "HTTPStatusError", f"{self.status} for {self.url}")

    def __repr__(self) -> str:
        kind = self.headers.get("content-type", "").partition(";")[0] or "no stated type"
        return f"<Response {self.status}: {len(self.content):,} bytes of {kind}>"


def _make_importable(value: Any) -> list[str]:
    """Put installed packages on ``sys.path``, last; return their names."""
    sys.path.extend(path for path in value["paths"] if path not in sys.path)
    importlib.invalidate_caches()
    installed: list[str] = value["installed"]
    return installed


#: By operation: makes the object that cells get from the host's answer, if that is not plain data.
_RESULTS: Final[dict[str, Callable[[Any], Any]]] = {
    "ops.http": lambda value: Response(**value),
    "ops.install": _make_importable,
}


#: Kinds of parameters, by their numbers on the wire.
_KINDS: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
)


class _Text:
    """An annotation or default in a signature, whose object only the host has; shown as text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def build_tools(
    tools: Iterable[messages.Tool], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return a function for each tool, by name."""
    return {tool.name: _function(tool, most, calls) for tool in tools}


def _function(tool: messages.Tool, most: int, calls: Callable[[], Calls]) -> Any:
    """Return the function of a tool.

    An async tool and an operation can be both awaited and called: the function returns a coroutine
    if a loop turns, and otherwise waits and returns the answer.
    """
    name = tool.name
    signature = signature_of(tool)
    result = _RESULTS.get(name, lambda value: value)
    cap = (tool.max_bytes, "max_bytes") if tool.max_bytes else (most, "tool_max_bytes")

    def prepare(args: Any, kwargs: Any) -> msgspec.Raw:
        _bind(name, signature, args, kwargs)
        return pack(name, signature, args, kwargs, cap)

    call, wait = _call_and_wait(tool, signature, calls, prepare, result)
    if not (tool.is_async or name.startswith(PREFIX)):
        return call

    def call_or_await(*args: Any, **kwargs: Any) -> Any:
        # Only code on a loop that turns can await a coroutine. A thread without a loop, and a plain
        # cell, whose loop is marked as running but does not turn, get the value itself.
        loop = _get_running_loop()
        marked = loop if isinstance(loop, GuestLoop) and not loop.turns() else None
        if loop is not None and marked is None:
            return wait(*args, **kwargs)
        value = call(*args, **kwargs)
        if marked is not None:
            marked.settled = value
        return value

    _describe(call_or_await, tool, name, signature)
    return call_or_await


def _bind(name: str, signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments by the parameters' names. Raises TypeError, with the signature."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as exc:
        # Python names a missing argument first. But an argument may be missing just because the
        # caller used a wrong name, so that is reported first.
        unknown = [key for key in kwargs if key not in signature.parameters]
        takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        why = str(exc)
        if unknown and not takes_any:
            why = f"got an unexpected keyword argument {unknown[0]!r}"
        raise TypeError(f"{name}() {why}. Call it as {name}{signature}") from None


def _call_and_wait(
    tool: messages.Tool,
    signature: inspect.Signature,
    calls: Callable[[], Calls],
    prepare: Callable[[Any, Any], msgspec.Raw],
    result: Callable[[Any], Any],
    name_of_wait: str = "",
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a function that blocks for the answer, and a coroutine function.

    ``prepare`` encodes the arguments, ``result`` makes the value that a cell gets. The coroutine
    function is called ``name_of_wait``, or like the tool.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return result(calls().block(tool.name, prepare(args, kwargs)))

    async def wait(*args: Any, **kwargs: Any) -> Any:
        return result(await calls().wait(tool.name, prepare(args, kwargs)))

    _describe(call, tool, tool.name, signature)
    _describe(wait, tool, name_of_wait or tool.name, signature)
    return call, wait


def _describe(function: Any, tool: messages.Tool, name: str, signature: inspect.Signature) -> None:
    """Give a function the name, documentation and signature of its tool."""
    function.__name__ = name.rpartition(".")[2]
    function.__qualname__ = name
    function.__doc__ = tool.doc
    function.__module__ = "tools"
    vars(function)["__signature__"] = signature


def pack(
    name: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cap: tuple[int, str],
) -> msgspec.Raw:
    """Encode the arguments of a call.

    ``cap`` is the most bytes that the arguments may take, and the name of the setting with that
    limit. Raises TypeError or ValueError, whose text names the wrong argument.
    """
    parameters = signature.parameters.values()
    names = [repr(p.name) for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    subject = "the arguments"
    try:
        positional = []
        named = {}
        for index, value in enumerate(args):
            subject = f"argument {names[index] if index < len(names) else index + 1}"
            positional.append(values.plain(value, arrays.data))
        for key, value in kwargs.items():
            subject = f"argument {key!r}"
            named[key] = values.plain(value, arrays.data)
        subject = "the arguments"
        return values.encode((positional, named), *cap)
    except (TypeError, ValueError) as exc:
        raise type(exc)(f"{name}(): {subject}: {exc}") from None


def signature_of(tool: messages.Tool) -> inspect.Signature:
    """Return a tool's signature, as the operator wrote it."""
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            parameter.name,
            _KINDS[parameter.kind],
            default=empty if parameter.default is None else _default(parameter.default),
            annotation=_Text(parameter.annotation) if parameter.annotation else empty,
        )
        for parameter in tool.parameters
    ]
    returns = _Text(tool.returns) if tool.returns else inspect.Signature.empty
    return inspect.Signature(parameters, return_annotation=returns)


def _default(text: str) -> Any:
    """Return a default as a value if its text is a literal, else to be shown as that text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _Text(text)
    return _Text(text) if value is ... else value


#: The ``llm`` of this guest, if the policy grants one. Made in the zygote, for ``cellblock.dspy``.
_granted_llm: Final[list[Llm]] = []


class Completion(str):
    """The text of a model's answer, and why it ended.

    ``finish_reason`` is the endpoint's word: ``length`` if the text was cut off at ``max_tokens``.
    Tokens are as the endpoint counts them, None if it does not say.
    """

    __slots__ = ("completion_tokens", "finish_reason", "model", "prompt_tokens")

    finish_reason: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Completion:
        """Return the completion in the host's answer."""
        completion = cls(answer["text"])
        for name in cls.__slots__:
            setattr(completion, name, answer[name])
        return completion


class Llm:
    """Asks a language model: ``llm("prompt")``, ``llm.chat(messages)``.

    ``await llm.acall(…)`` and ``await llm.achat(…)`` do the same and let other code go on
    meanwhile.
    """

    __slots__ = ("__signature__", "_ask", "acall", "achat", "chat")

    def __init__(self, ask: Any, acall: Any, chat: Any, achat: Any) -> None:
        self._ask = ask
        self.acall = acall
        self.chat = chat
        self.achat = achat
        self.__signature__: inspect.Signature = vars(self._ask)["__signature__"]

    def __call__(self, *args: Any, **kwargs: Any) -> Completion:
        """Ask with a prompt, and wait for the whole answer."""
        completion: Completion = self._ask(*args, **kwargs)
        return completion

    def __repr__(self) -> str:
        return f"<llm{self.__signature__}>"


def build_llm(
    tools_by_name: Mapping[str, messages.Tool], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return ``llm`` by its name. If it is not granted, calls raise an error that says so.

    Return nothing if it is not granted and the operator has a tool of that name.
    """
    if CHAT in tools_by_name:
        llm = Llm(
            *_asking(tools_by_name[NAME], most, calls), *_asking(tools_by_name[CHAT], most, calls)
        )
        _granted_llm[:] = [llm]
        return {NAME: llm}
    if NAME in tools_by_name:
        return {}
    withheld = build_tools(map(_placeholder, (NAME, CHAT)), most, calls)
    return {NAME: Llm(withheld[NAME], withheld[NAME], withheld[CHAT], withheld[CHAT])}


def current() -> Llm:
    """Return this guest's ``llm``. Raises RuntimeError if the policy grants none."""
    if not _granted_llm:
        raise RuntimeError("the policy grants no language model: [llm] names no endpoint")
    return _granted_llm[0]


def _asking(
    tool: messages.Tool, most: int, calls: Callable[[], Calls]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the blocking and the awaitable function for one of the two calls of a model."""
    name = tool.name
    signature = signature_of(tool)

    def prepare(args: Any, kwargs: Any) -> msgspec.Raw:
        arguments = _bind(name, signature, args, kwargs)
        return pack(name, signature, (), arguments, (most, "tool_max_bytes"))

    awaited = {NAME: "llm.acall", CHAT: "llm.achat"}[name]
    return _call_and_wait(tool, signature, calls, prepare, Completion.of, awaited)
