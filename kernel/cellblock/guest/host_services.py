"""What cells call of the host: tools, operations, language models, as plain functions.

``Calls`` are those under way: who waits for which answer. No thread reads for others for good. The
main thread reads while it waits; while it runs code, one of the threads that wait reads for all of
them; an event loop reads while something in it waits.
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


#: Seconds after which a thread that waits, or that reads for others, looks whether it still must.
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
    """One call; ``wake`` is called, in any thread, when it is answered."""

    __slots__ = ("decode", "result", "tool", "wake")

    def __init__(self, tool: str, wake: Callable[[], None], decode: Decode) -> None:
        self.tool, self.wake, self.decode = tool, wake, decode
        self.result: messages.ToolResult | None = None

    def wake_caller(self) -> None:
        with contextlib.suppress(Exception):  # a loop that a cell has spoilt
            self.wake()

    def due(self) -> bool:
        return self.result is not None

    def value(self) -> Any:
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
    """All calls of one guest. Any thread may call.

    ``most`` are the calls at a time; ``allows`` says whether cells may have a library's objects.
    """

    def __init__(
        self,
        channel: Channel,
        readers: ChannelReaders,
        most: int,
        allows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._channel, self.readers, self._most = channel, readers, most
        self._decode = arrays.answers(allows)
        self._ids = itertools.count(1)
        self._in_flight: dict[int, _Call] = {}
        #: Of one thread more than once: a cell's own code may run in between, as a finalizer.
        self._counting = threading.RLock()
        self._leader = threading.Lock()
        #: Threads that wait while another one reads.
        self._followers: dict[threading.Event, None] = {}
        channel.on_result, channel.on_leave = self._on_result, self._promote

    def reset_after_fork(self) -> None:
        """Forget, in a copy, the calls whose answers only the original gets."""
        self._in_flight.clear()
        self._followers.clear()
        self._counting, self._leader = threading.RLock(), threading.Lock()

    # --- calling ------------------------------------------------------------------------------

    def block(self, tool: str, arguments: msgspec.Raw) -> Any:
        """Call and wait. Raises ToolError; an interrupt withdraws the call."""
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
        """Call, and let the loop go on meanwhile. Raises ToolError; to cancel it withdraws it."""
        loop, due = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if _get_running_loop() is loop:  # None in a foreign thread
                due.set()
            else:
                with contextlib.suppress(RuntimeError):  # it has closed
                    loop.call_soon_threadsafe(due.set)

        call, number = _Call(tool, wake, self._decode), next(self._ids)
        try:
            self.readers.begin(loop)
            try:
                self._send(number, call, arguments)
                while call.result is None:
                    await due.wait()
                    due.clear()
            finally:
                self.readers.end(loop)
        finally:
            self._end(number)
        return call.value()

    def _send(self, number: int, call: _Call, arguments: msgspec.Raw) -> None:
        with self._counting:
            if len(self._in_flight) >= self._most:
                said = f"{self._most:,} calls are under way already (tool_max_in_flight)"
                raise ToolError(call.tool, "TooManyCalls", said)
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
        """Stop expecting an answer; tell the host if there was none."""
        if number not in self._in_flight:
            return
        try:
            self._channel.send(messages.ToolWithdrawn(id=number))
        finally:  # after it: another call takes its place only when the host knows
            self._in_flight.pop(number, None)

    # --- answers ------------------------------------------------------------------------------

    def _on_result(self, result: messages.ToolResult) -> Callable[[], None]:
        """Hand an answer on; return what wakes whoever waits for it, if any."""
        call = self._in_flight.pop(result.id, None)
        if call is None:
            return _nothing
        call.result = result
        return call.wake_caller

    def wait_beside_main(self, due: Callable[[], bool], event: threading.Event) -> None:
        """Wait in a thread that is not the main one until something is ``due``; ``event`` wakes it.

        It reads for all that wait if nobody does.
        """
        while not due():
            if self._channel.main_waits or not self._leader.acquire(blocking=False):
                self._followers[event] = None
                event.wait(LOOK)
                event.clear()
                self._followers.pop(event, None)
                continue
            try:
                self._lead(due)
            finally:
                self._leader.release()
                self._promote()

    def _lead(self, due: Callable[[], bool]) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while not due() and not self._channel.main_waits:
            if poll.poll(LOOK_READING * 1000):
                self._channel.read()

    def read_now(self) -> None:
        """Read what has arrived, in any thread, unless somebody reads already."""
        if self._leader.acquire(blocking=False):
            try:
                while not self._channel.main_waits and self._channel.has_arrived():
                    self._channel.read()
            finally:
                self._leader.release()
                self._promote()

    def _promote(self) -> None:
        """Make one of the waiting threads the reader, unless there is one."""
        # Another thread may change it meanwhile: it looks itself.
        with contextlib.suppress(RuntimeError, StopIteration):
            next(iter(self._followers)).set()


PREFIX: Final = "ops."
#: ``llm`` as cells see it: prompts in, text out. No key and no address is on this side.
NAME: Final = "llm"
CHAT: Final = "llm.chat"


def namespace(
    tools: Iterable[messages.Tool], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return what cells have by name: the operator's tools, ``ops``, ``llm``, ``ToolError``.

    ``calls`` finds the guest's when one is called; ``most`` are the bytes that the arguments of
    one call may take. An operation that is not granted is not offered; whoever calls it by its
    name is told by the host which section of a policy grants it.
    """
    known = {tool.name: tool for tool in tools}
    of_model = (NAME, CHAT) if CHAT in known else ()
    granted = build_tools((t for t in known.values() if t.name not in of_model), most, calls)
    names = (f"{PREFIX}{name}" for name in messages.OPERATIONS)
    withheld = build_tools((_placeholder(n) for n in names if n not in known), most, calls)
    own = {name: one for name, one in granted.items() if not name.startswith(PREFIX)}
    operations = {n.removeprefix(PREFIX): one for n, one in granted.items() if n not in own}
    others = {name.removeprefix(PREFIX): one for name, one in withheld.items()}
    ops = Operations(operations, others)
    return {"ToolError": ToolError, **own, "ops": ops, **build_llm(known, most, calls)}


def _placeholder(name: str) -> messages.Tool:
    """Return what stands for something of the host's that is not granted: it takes anything."""
    anything = (
        messages.Parameter(name="args", kind=inspect.Parameter.VAR_POSITIONAL),
        messages.Parameter(name="kwargs", kind=inspect.Parameter.VAR_KEYWORD),
    )
    doc = "This policy does not grant it; call it to see which section would."
    return messages.Tool(name=name, parameters=anything, doc=doc)


class Operations:
    """What the host does for cells. ``%tools`` lists what this policy grants."""

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


#: Of the statuses of HTTP.
_FIRST_ERROR: Final = 400


class Response:
    """An answer that ``ops.http`` got: ``status``, ``url``, ``headers`` by small letters, body."""

    __slots__ = ("content", "headers", "status", "url")

    def __init__(self, status: int, url: str, headers: dict[str, str], content: bytes) -> None:
        self.status, self.url, self.headers, self.content = status, url, headers, content

    @property
    def text(self) -> str:
        """The body as text, in the encoding that its headers name, else UTF-8."""
        kind = self.headers.get("content-type", "")
        _, _, named = kind.lower().partition("charset=")
        try:
            return self.content.decode(named.partition(";")[0].strip("\"' ") or "utf-8", "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return what the body says as JSON."""
        return json.loads(self.content)

    @property
    def ok(self) -> bool:
        """Whether the status is none of an error."""
        return self.status < _FIRST_ERROR

    def raise_for_status(self) -> None:
        """Raise ToolError where the status is one of an error."""
        if not self.ok:
            raise ToolError("ops.http", "HTTPStatusError", f"{self.status} for {self.url}")

    def __repr__(self) -> str:
        kind = self.headers.get("content-type", "").partition(";")[0] or "no stated type"
        return f"<Response {self.status}: {len(self.content):,} bytes of {kind}>"


def _importable(value: Any) -> list[str]:
    """Make what was installed importable, behind what the interpreter has itself."""
    sys.path.extend(path for path in value["paths"] if path not in sys.path)
    importlib.invalidate_caches()
    installed: list[str] = value["installed"]
    return installed


#: What cells get of what the host answers, where that is more than data.
_RESULTS: Final[dict[str, Callable[[Any], Any]]] = {
    "ops.http": lambda value: Response(**value),
    "ops.install": _importable,
}


#: By their numbers.
_KINDS: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
)


class _Text:
    """Stands in a signature for what only the host has; shown as it is written there."""

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
    name, signature = tool.name, signature_of(tool)
    result = _RESULTS.get(name, lambda value: value)
    cap = (tool.max_bytes, "max_bytes") if tool.max_bytes else (most, "tool_max_bytes")

    def prepare(args: Any, kwargs: Any) -> msgspec.Raw:
        _bind(name, signature, args, kwargs)
        return pack(name, signature, args, kwargs, cap)

    call, wait = _call_and_wait(tool, signature, calls, prepare, result)
    if not (tool.is_async or name.startswith(PREFIX)):
        return call

    def call_or_await(*args: Any, **kwargs: Any) -> Any:
        # In a thread without a loop nobody could wait for a coroutine. In a plain cell a loop is
        # marked as running that does not turn: nobody awaits there.
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
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as exc:
        # What is missing would be named before a wrong name, which is why it is missing.
        unknown = [key for key in kwargs if key not in signature.parameters]
        takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
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
    """Return a function that calls and waits, and one to be awaited.

    ``prepare`` encodes the arguments, ``result`` makes a cell's value of the answer.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return result(calls().block(tool.name, prepare(args, kwargs)))

    async def wait(*args: Any, **kwargs: Any) -> Any:
        return result(await calls().wait(tool.name, prepare(args, kwargs)))

    _describe(call, tool, tool.name, signature)
    _describe(wait, tool, name_of_wait or tool.name, signature)
    return call, wait


def _describe(function: Any, tool: messages.Tool, name: str, signature: inspect.Signature) -> None:
    function.__name__, function.__qualname__ = name.rpartition(".")[2], name
    function.__doc__, function.__module__ = tool.doc, "tools"
    vars(function)["__signature__"] = signature


def pack(
    name: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cap: tuple[int, str],
) -> msgspec.Raw:
    """Return the arguments encoded, in as many bytes as ``cap`` has, which names what sets that.

    Raises TypeError or ValueError that names the wrong one.
    """
    parameters = signature.parameters.values()
    names = [repr(p.name) for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    what = "the arguments"
    try:
        positional, named = [], {}
        for index, value in enumerate(args):
            what = f"argument {names[index] if index < len(names) else index + 1}"
            positional.append(values.plain(value, arrays.data))
        for key, value in kwargs.items():
            what = f"argument {key!r}"
            named[key] = values.plain(value, arrays.data)
        what = "the arguments"
        return values.encode((positional, named), *cap)
    except (TypeError, ValueError) as exc:
        raise type(exc)(f"{name}(): {what}: {exc}") from None


def signature_of(tool: messages.Tool) -> inspect.Signature:
    """Return a tool's signature, as the operator wrote it."""
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            one.name,
            _KINDS[one.kind],
            default=empty if one.default is None else _default(one.default),
            annotation=_Text(one.annotation) if one.annotation else empty,
        )
        for one in tool.parameters
    ]
    returns = _Text(tool.returns) if tool.returns else inspect.Signature.empty
    return inspect.Signature(parameters, return_annotation=returns)


def _default(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _Text(text)
    return _Text(text) if value is ... else value


#: The one of this guest, for ``cellblock.dspy``; made in the zygote, once.
_made: Final[list[Llm]] = []


class Completion(str):
    """What a model said: a text, and how it came to its end.

    ``finish_reason`` is the endpoint's word for it: ``length`` where the text was cut off at
    ``max_tokens``. Tokens are as the endpoint counts them, None where it does not tell.
    """

    __slots__ = ("completion_tokens", "finish_reason", "model", "prompt_tokens")

    finish_reason: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Completion:
        """Return what the host answered."""
        made = cls(answer["text"])
        for name in cls.__slots__:
            setattr(made, name, answer[name])
        return made


class Llm:
    """Asks a language model: ``llm("prompt")``, ``llm.chat(messages)``.

    ``await llm.acall(…)`` and ``await llm.achat(…)`` are the same where other code is to go on
    meanwhile.
    """

    __slots__ = ("__signature__", "_ask", "acall", "achat", "chat")

    def __init__(self, ask: Any, acall: Any, chat: Any, achat: Any) -> None:
        self._ask, self.acall, self.chat, self.achat = ask, acall, chat, achat
        self.__signature__: inspect.Signature = vars(self._ask)["__signature__"]

    def __call__(self, *args: Any, **kwargs: Any) -> Completion:
        """Ask, with a prompt, and wait for the whole answer."""
        completion: Completion = self._ask(*args, **kwargs)
        return completion

    def __repr__(self) -> str:
        return f"<llm{self.__signature__}>"


def build_llm(
    known: Mapping[str, messages.Tool], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return ``llm`` by its name; where it is not granted, one that says so when it is called.

    A tool of the operator's may have that name, where it is not granted.
    """
    if CHAT in known:
        made = Llm(*_asking(known[NAME], most, calls), *_asking(known[CHAT], most, calls))
        _made[:] = [made]
        return {NAME: made}
    if NAME in known:
        return {}
    withheld = build_tools(map(_placeholder, (NAME, CHAT)), most, calls)
    return {NAME: Llm(withheld[NAME], withheld[NAME], withheld[CHAT], withheld[CHAT])}


def current() -> Llm:
    """Return this guest's ``llm``. Raises RuntimeError where the policy grants none."""
    if not _made:
        raise RuntimeError("the policy grants no language model: [llm] names no endpoint")
    return _made[0]


def _asking(
    tool: messages.Tool, most: int, calls: Callable[[], Calls]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    name, signature = tool.name, signature_of(tool)

    def prepare(args: Any, kwargs: Any) -> msgspec.Raw:
        given = _bind(name, signature, args, kwargs)
        return pack(name, signature, (), given, (most, "tool_max_bytes"))

    awaited = {NAME: "llm.acall", CHAT: "llm.achat"}[name]
    return _call_and_wait(tool, signature, calls, prepare, Completion.of, awaited)
