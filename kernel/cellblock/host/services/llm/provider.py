"""Between cells and a language model: every call read, counted, made in a worker, and settled."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from cellblock.host.services.llm.client import Completed, Failed
from cellblock.host.services.tools.calls import Answer, Call, WorkerSettings
from cellblock.host.services.tools.worker_provider import WorkerProvider
from cellblock.render.tables import ModelBudget
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from cellblock.host.session.types import Reactor
    from cellblock.policy.model import Llm
    from cellblock.policy.model import Llm as Section


# ``llm`` and ``llm.chat`` as cells see them: signatures that name the models of the policy.

CALL, CHAT = "llm", "llm.chat"
_POSITIONAL: Final = int(inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED: Final = int(inspect.Parameter.KEYWORD_ONLY)
_OPTIONS: Final = """
``temperature`` is from 0 to 2, ``stop`` a text or up to four at which the answer ends. With
``stream=True`` the answer is shown as it comes. Returned is all of it, a str that has
``finish_reason``, ``model``, ``prompt_tokens`` and ``completion_tokens``, too. What fails raises
ToolError. ``%tools`` shows what is left for the session."""
_CALL: Final = f"""Ask a language model and return what it says.

``system`` goes before the prompt. ``await llm.acall(…)`` asks without holding up other tasks.
{_OPTIONS}"""
_CHAT: Final = f"""Continue a conversation with a language model.

A message is {{"role": "user", "content": "…"}}; roles are system, developer, user and assistant.
``await llm.achat(…)`` asks without holding up other tasks.
{_OPTIONS}"""


def tools(llm: Llm) -> tuple[Tool, ...]:
    """Return what cells may call."""
    prompt = Parameter(name="prompt", kind=_POSITIONAL, annotation="str")
    messages = Parameter(name="messages", kind=_POSITIONAL, annotation="list[dict[str, str]]")
    system = _option("system", "str | None", "None")
    options = _options(llm)
    return (
        _tool(CALL, (prompt, system, *options), _CALL),
        _tool(CHAT, (messages, *options), _CHAT),
    )


def refusal(name: str) -> str:
    """Return why a language model is not asked where the policy grants none."""
    said = f"this policy does not grant {name}; a section [llm] in it would"
    return f"{said}, with base_url, the endpoint that is asked, and models"


def _tool(name: str, parameters: tuple[Parameter, ...], doc: str) -> Tool:
    return Tool(name=name, parameters=parameters, returns="str", doc=doc, of_host=True)


def _options(llm: Llm) -> tuple[Parameter, ...]:
    models = ", ".join(map(repr, llm.models))
    return (
        _option("model", f"Literal[{models}]", repr(llm.models[0])),
        _option("temperature", "float | None", "None"),
        _option("max_tokens", "int", str(llm.max_tokens_per_call)),
        _option("stop", "str | list[str] | None", "None"),
        _option("stream", "bool", "False"),
    )


def _option(name: str, annotation: str, default: str) -> Parameter:
    return Parameter(name=name, kind=_NAMED, annotation=annotation, default=default)


# What calls of language models have cost a session, and what is left of what they may.
#
# Kept in the host, so that no restored guest and no new worker has it anew. A call is entered
# with the most that it may take before it is made, so that no number of them at once takes more.


class LlmQuota:
    """One session's account."""

    def __init__(self, *, max_calls: int, max_tokens: int) -> None:
        self._max_calls, self._max_tokens = max_calls, max_tokens
        self._calls = self._tokens = 0
        #: By number of call, what it may take at most.
        self._reserved: dict[int, int] = {}

    def spent(self) -> ModelBudget:
        """Return how the account stands."""
        tokens = self._tokens + sum(self._reserved.values())
        return ModelBudget(self._calls, self._max_calls, tokens, self._max_tokens)

    def reserve(self, number: int, tokens: int) -> str:
        """Enter a call that may take so many tokens; return why it may not be made, or nothing."""
        spent = self.spent()
        if spent.calls >= self._max_calls:
            return f"the session's calls are spent (llm.max_calls): {spent}"
        if spent.tokens + tokens > self._max_tokens:
            return f"it may take {tokens:,} tokens, too many (llm.max_tokens): {spent}"
        self._calls += 1
        self._reserved[number] = tokens
        return ""

    def settle(self, number: int, tokens: int | None = None) -> int:
        """Enter what a call took, None where nobody knows: then it counts as all that it might.

        Returns what was entered; nothing the second time.
        """
        reserved = self._reserved.pop(number, None)
        if reserved is None:
            return 0
        taken = reserved if tokens is None else tokens
        self._tokens += taken
        return taken


# What a cell asks of a language model, read strictly: nothing that is not named here goes on.

#: Tokens that a message, and a call, may take beyond what they say.
PER_MESSAGE: Final = 16
PER_CALL: Final = 64
_MOST_MESSAGES, _MOST_STOPS, _LONGEST_STOP = 10_000, 4, 1_000
_LONGEST_REASON: Final = 300


class WrongError(Exception):
    """A call that is not made; says why."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation; texts only."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_STOP)]


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: _Stop | Annotated[list[_Stop], msgspec.Meta(max_length=_MOST_STOPS)] | None = None
    stream: bool = False


class _Prompt(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prompt: str
    system: str | None = None

    @property
    def messages(self) -> list[Message]:
        before = [] if self.system is None else [Message("system", self.system)]
        return [*before, Message("user", self.prompt)]


class _Chat(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=_MOST_MESSAGES)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may be made, with every number within the policy's."""

    model: str
    messages: list[Message]
    max_tokens: int
    temperature: float | None = None
    stop: list[str] = []
    stream: bool = False

    def most_tokens(self) -> int:
        """Return how many tokens it may take at most: none is shorter than a byte."""
        said = sum(len(one.content.encode()) + PER_MESSAGE for one in self.messages)
        return said + PER_CALL + self.max_tokens


_Nothing = Annotated[list[Any], msgspec.Meta(max_length=0)]
_prompt: Final = msgspec.msgpack.Decoder(tuple[_Nothing, _Prompt]).decode
_chat: Final = msgspec.msgpack.Decoder(tuple[_Nothing, _Chat]).decode


def read(call: Call, llm: Llm) -> Wanted:
    """Return what ``call`` asks for. Raises WrongError."""
    try:
        _, given = (_chat if call.tool.name == CHAT else _prompt)(call.arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise WrongError(_reason(exc)) from None
    if given.temperature is not None and not math.isfinite(given.temperature):
        raise WrongError("temperature: not a number")
    model = given.model if given.model is not None else llm.models[0]
    if model not in llm.models:
        known = ", ".join(llm.models)
        raise WrongError(f"model: {model[:100]!r} is not allowed; the policy names {known}")
    most = llm.max_tokens_per_call
    if given.max_tokens is not None and given.max_tokens > most:
        raise WrongError(f"max_tokens: {most:,} at most (llm.max_tokens_per_call)")
    return Wanted(
        model=model,
        messages=given.messages,
        max_tokens=given.max_tokens or most,
        temperature=given.temperature,
        stop=[given.stop] if isinstance(given.stop, str) else given.stop or [],
        stream=given.stream,
    )


def _reason(exc: Exception) -> str:
    """Say which argument is wrong, as a cell named it."""
    what, _, where = str(exc).partition(" - at `$[1]")
    name = where.rstrip("`").removeprefix(".")
    return (f"{name}: {what}" if name else what)[:_LONGEST_REASON]


#: What the worker runs.
_ENTRY: Final = "cellblock.host.services.llm.client:complete"
_COMPLETE: Final = Tool(name="complete", is_async=True)
#: Bytes of an answer beside its text.
_ROOM: Final = 4_096
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Completed | Failed).decode


class LlmProvider:
    """A provider. Nothing is started or imported before the first call.

    ``max_bytes`` bounds what a model says in one answer.
    """

    def __init__(
        self, reactor: Reactor, section: Section, ledger: LlmQuota, *, max_bytes: int
    ) -> None:
        self._section, self._ledger = section, ledger
        self._connection = _connection(section, max_bytes)
        self._workshop = WorkerProvider(
            reactor,
            WorkerSettings(
                entries=(_ENTRY,),
                timeout=section.timeout,
                limit="llm.timeout",
                max_bytes=max_bytes + _ROOM,
            ),
        )

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What cells may call."""
        return tools(self._section)

    def beyond(self, call: Call) -> Answer | None:
        """Return what a call is answered that asks wrongly, or for what is not granted."""
        try:
            read(call, self._section)
        except WrongError as exc:
            return Answer(kind="ValidationError", message=str(exc))
        return None

    def begin(self, call: Call) -> None:
        """Have a model asked, or answer why it is not."""
        try:
            wanted = read(call, self._section)
        except WrongError as exc:
            call.answer(Answer(kind="ValidationError", message=str(exc)))
            return
        if refusal := self._ledger.reserve(call.number, wanted.most_tokens()):
            call.answer(Answer(kind="BudgetSpent", message=refusal))
            return
        self._workshop.begin(
            Call(
                number=call.number,
                tool=_COMPLETE,
                arguments=msgspec.Raw(_encode(([self._connection, wanted], {}))),
                answer=lambda answer: self._answered(call, answer),
                piece=call.piece,
                tell=call.tell,
            )
        )

    def _answered(self, call: Call, answer: Answer) -> None:
        """Settle a call that the worker is done with, and tell its cell."""
        if answer.kind:  # it ran out of time, or its worker is gone
            taken = self._ledger.settle(call.number)
            call.answer(Answer(kind=answer.kind, message=answer.message, tokens=taken))
            return
        match _decode(answer.value):
            case Failed(kind=kind, message=message, tokens=tokens):
                taken = self._ledger.settle(call.number, tokens)
                call.answer(Answer(kind=kind, message=message, tokens=taken))
            case Completed(value=value, tokens=tokens):
                taken = self._ledger.settle(call.number, tokens)
                call.answer(Answer(bytes(value), tokens=taken))

    def cancel(self, number: int) -> None:
        """Stop asking. What it took nobody tells: it counts as all that it might."""
        self._ledger.settle(number)
        self._workshop.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Take no answers for now, or again."""
        self._workshop.hold(held=held)

    def close(self) -> None:
        """End the worker."""
        self._workshop.close()


def _connection(section: Section, max_bytes: int) -> dict[str, Any]:
    known = dataclasses.asdict(section)
    names = ("base_url", "key_env", "keyring", "timeout", "retries", "max_in_flight")
    return {name: known[name] for name in (*names, "token_parameter")} | {"max_bytes": max_bytes}
