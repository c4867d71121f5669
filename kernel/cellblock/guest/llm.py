"""``llm`` as cells see it: prompts in, text out. No key and no address is on this side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from IPython.display import display

from cellblock.guest import operations
from cellblock.guest import tools as plain_tools

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Mapping

    from IPython.core.display_functions import DisplayHandle

    from cellblock.guest.calls import Calls
    from cellblock.wire import messages

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
    built = plain_tools.build_tools(tuple(map(operations.stand_in, (NAME, CHAT))), most, calls)
    return Llm(*((built[name], built[name]) for name in (NAME, CHAT)))


def current() -> Llm:
    """Return this guest's ``llm``. Raises RuntimeError where the policy grants none."""
    if not _made:
        raise RuntimeError("the policy grants no language model: [llm] names no endpoint")
    return _made[0]


def _asking(tool: messages.Tool, most: int, calls: Callable[[], Calls]) -> _Pair:
    """Return a function that asks and waits, and one to be awaited."""
    name, signature = tool.name, plain_tools.signature_of(tool)

    def packed(args: Any, kwargs: Any) -> tuple[Any, _Growing]:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as exc:
            raise TypeError(f"{name}() {exc}") from None
        growing = _Growing(wanted=bool(given.get("stream")))
        return plain_tools.pack(name, signature, (), given, (most, "tool_max_bytes")), growing

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
