"""What cells call of the host: tools, operations, language models, as plain functions."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.loop import GuestLoop
from cellblock.guest.tool_calls import ToolError
from cellblock.wire import messages, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from cellblock.guest.tool_calls import Calls

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
        if loop is not None and loop.is_running():
            return wait(*args, **kwargs)
        value = call(*args, **kwargs)
        if isinstance(loop, GuestLoop):
            loop.settled = value
        return value

    _describe(call_or_await, tool, name, signature)
    return call_or_await


def _bind(name: str, signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as exc:
        raise TypeError(f"{name}() {exc}") from None


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
            positional.append(values.plain(value, values.of_numpy))
        for key, value in kwargs.items():
            what = f"argument {key!r}"
            named[key] = values.plain(value, values.of_numpy)
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
