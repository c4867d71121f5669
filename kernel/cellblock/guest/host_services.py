"""What cells call of the host: tools, operations, language models, as plain functions."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from asyncio import events
from typing import TYPE_CHECKING, Any, Final

from IPython.display import display

from cellblock.guest.loop import GuestLoop
from cellblock.guest.tool_calls import ToolError
from cellblock.wire import messages, values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec
    from IPython.core.display_functions import DisplayHandle

    from cellblock.guest.tool_calls import Calls


# ``ops`` as cells see it: the host's own operations, those that the policy does not grant too.
#
# One that is not granted is not offered; whoever calls it by its name is told by the host which
# section of a policy grants it.

PREFIX: Final = "ops."
_REST, _NAMED_REST = 2, 4
_CHARSET: Final = "charset="
_LEAST_ERROR: Final = 400


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


class Response:
    """An answer that ``ops.http`` got: ``status``, ``url``, ``headers`` by small letters, body."""

    __slots__ = ("content", "headers", "status", "url")

    def __init__(self, status: int, url: str, headers: dict[str, str], content: bytes) -> None:
        self.status, self.url, self.headers, self.content = status, url, headers, content

    @property
    def text(self) -> str:
        """The body as text, in the encoding that its headers name, else UTF-8."""
        kind = self.headers.get("content-type", "")
        _, _, named = kind.lower().partition(_CHARSET)
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
        return self.status < _LEAST_ERROR

    def raise_for_status(self) -> None:
        """Raise ToolError where the status is one of an error."""
        if not self.ok:
            raise ToolError("ops.http", "HTTPStatusError", f"{self.status} for {self.url}")

    def __repr__(self) -> str:
        kind = self.headers.get("content-type", "").partition(";")[0] or "no stated type"
        return f"<Response {self.status}: {len(self.content):,} bytes of {kind}>"


def _installed(value: Any) -> list[str]:
    """Have what was installed imported, behind what the interpreter has itself."""
    sys.path.extend(path for path in value["paths"] if path not in sys.path)
    importlib.invalidate_caches()
    installed: list[str] = value["installed"]
    return installed


#: What cells get of what the host answers, where that is more than data.
RESULTS: Final[dict[str, Callable[[Any], Any]]] = {
    "ops.http": lambda value: Response(**value),
    "ops.install": _installed,
}


def withheld(granted: tuple[messages.Tool, ...]) -> tuple[messages.Tool, ...]:
    """Return what stands for operations that are not granted."""
    known = {tool.name for tool in granted}
    names = (f"{PREFIX}{name}" for name in messages.OPERATIONS)
    return tuple(stand_in(name) for name in names if name not in known)


def stand_in(name: str) -> messages.Tool:
    """Return what stands for something of the host's that is not granted: it takes anything."""
    anything = (
        messages.Parameter(name="args", kind=_REST),
        messages.Parameter(name="kwargs", kind=_NAMED_REST),
    )
    doc = "This policy does not grant it; call it to see which section would."
    return messages.Tool(name=name, parameters=anything, doc=doc)


def gathered(functions: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return what a cell's namespace has: tools by their names, operations in ``ops``."""
    plain = {name: one for name, one in functions.items() if not name.startswith(PREFIX)}
    return {**plain, "ops": Operations(_named(functions), _named(others))}


def _named(functions: dict[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX): one for name, one in functions.items() if name.startswith(PREFIX)
    }


_KINDS: Final = tuple(inspect._ParameterKind)  # noqa: SLF001 - by number


class _Text:
    """Stands in a signature for what only the host has; shown as it is written there."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def build_tools(
    tools: tuple[messages.Tool, ...], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return a function for each tool, by name. ``calls`` finds the guest's when one is called.

    ``most`` are the bytes that the arguments of one call may take.
    """
    return {tool.name: _function(tool, most, calls) for tool in tools}


def _function(tool: messages.Tool, most: int, calls: Callable[[], Calls]) -> Any:
    name, signature = tool.name, signature_of(tool)
    result = RESULTS.get(tool.name, _as_it_is)
    cap = (tool.max_bytes, "max_bytes") if tool.max_bytes else (most, "tool_max_bytes")

    def packed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise TypeError(f"{name}() {exc}") from None
        return pack(name, signature, args, kwargs, cap)

    def call(*args: Any, **kwargs: Any) -> Any:
        return result(calls().block(name, packed(args, kwargs)))

    async def wait(*args: Any, **kwargs: Any) -> Any:
        return result(await calls().wait(name, packed(args, kwargs)))

    def as_one_can(*args: Any, **kwargs: Any) -> Any:
        # In a thread without a loop nobody could wait for a coroutine. In a plain cell a loop is
        # marked as running that does not turn: nobody awaits there.
        loop = events._get_running_loop()  # noqa: SLF001
        if loop is not None and loop.is_running():
            return wait(*args, **kwargs)
        value = call(*args, **kwargs)
        if isinstance(loop, GuestLoop):
            loop.settled = value
        return value

    function = as_one_can if tool.is_async or name.startswith(PREFIX) else call
    for made in (call, wait, as_one_can):
        made.__name__, made.__qualname__ = name.rpartition(".")[2], name
    function.__doc__, function.__module__ = tool.doc, "tools"
    vars(function)["__signature__"] = signature
    return function


def _as_it_is(value: Any) -> Any:
    return value


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
    what = "the arguments"
    try:
        positional, named = [], {}
        for index, value in enumerate(args):
            what = f"argument {index + 1}"
            positional.append(values.plain(value, _data))
        for key, value in kwargs.items():
            what = f"argument {key!r}"
            named[key] = values.plain(value, _data)
        what = "the arguments"
        return values.encode((positional, named), *cap)
    except (TypeError, ValueError) as exc:
        parameter = _parameter(signature, what)
        raise type(exc)(f"{name}(): {parameter}: {exc}") from None


def _data(value: Any) -> Any:
    """Return data for a value of numpy's, where cells have that. Raises TypeError."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no data that crosses")


def _parameter(signature: inspect.Signature, what: str) -> str:
    """Name the parameter behind ``argument 2``, where it has one of its own."""
    position = what.removeprefix("argument ")
    names = [p.name for p in signature.parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    if position.isdigit() and int(position) <= len(names):
        return f"argument {names[int(position) - 1]!r}"
    return what


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


# ``llm`` as cells see it: prompts in, text out. No key and no address is on this side.

NAME: Final = "llm"
CHAT: Final = "llm.chat"
#: Characters of a growing text that are shown, from its end; when it is whole, all of it is.
_WINDOW: Final = 4_000
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

    def __init__(self, call: _Pair, chat: _Pair) -> None:
        self._ask, self.acall = call
        self.chat, self.achat = chat
        self.__signature__: inspect.Signature = vars(self._ask)["__signature__"]

    def __call__(self, *args: Any, **kwargs: Any) -> Completion:
        """Ask, with a prompt, and wait for the whole answer."""
        return self._ask(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<llm{self.__signature__}>"


_Pair = tuple["Callable[..., Completion]", "Callable[..., Any]"]


def build_llm(
    known: Mapping[str, messages.Tool], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return ``llm`` by its name; where it is not granted, one that says so when it is called.

    A tool of the operator's may have that name, where it is not granted.
    """
    if CHAT not in known:
        return {} if NAME in known else {NAME: _withheld(most, calls)}
    made = Llm(*(_asking(known[name], most, calls) for name in (NAME, CHAT)))
    _made[:] = [made]
    return {NAME: made}


def _withheld(most: int, calls: Callable[[], Calls]) -> Llm:
    built = build_tools(tuple(map(stand_in, (NAME, CHAT))), most, calls)
    return Llm(*((built[name], built[name]) for name in (NAME, CHAT)))


def current() -> Llm:
    """Return this guest's ``llm``. Raises RuntimeError where the policy grants none."""
    if not _made:
        raise RuntimeError("the policy grants no language model: [llm] names no endpoint")
    return _made[0]


def _asking(tool: messages.Tool, most: int, calls: Callable[[], Calls]) -> _Pair:
    """Return a function that asks and waits, and one to be awaited."""
    name, signature = tool.name, signature_of(tool)

    def packed(args: Any, kwargs: Any) -> tuple[Any, _Growing]:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as exc:
            raise TypeError(f"{name}() {exc}") from None
        growing = _Growing(wanted=bool(given.get("stream")))
        return pack(name, signature, (), given, (most, "tool_max_bytes")), growing

    def call(*args: Any, **kwargs: Any) -> Completion:
        arguments, growing = packed(args, kwargs)
        return growing.end(calls().block(name, arguments, growing.add))

    async def wait(*args: Any, **kwargs: Any) -> Completion:
        arguments, growing = packed(args, kwargs)
        return growing.end(await calls().wait(name, arguments, growing.add))

    for made, own in ((call, name), (wait, {NAME: "llm.acall", CHAT: "llm.achat"}[name])):
        made.__name__, made.__qualname__ = own.rpartition(".")[2], own
        made.__doc__, made.__module__ = tool.doc, "tools"
        vars(made)["__signature__"] = signature
    return call, wait


class _Growing:
    """Shows a text while it comes, in a display of its own, if that is ``wanted``."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted, self._end = wanted, ""
        self._handle: DisplayHandle | None = None

    def add(self, piece: str) -> None:
        self._end = (self._end + piece)[-_WINDOW - 1 :]
        self._show(self._end if len(self._end) <= _WINDOW else f"… {self._end[1:]}")

    def end(self, answer: Mapping[str, Any]) -> Completion:
        """Show all of it, and return it."""
        completion = Completion.of(answer)
        self._show(str(completion))
        return completion

    def _show(self, text: str) -> None:
        if not self._wanted:
            return
        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
