"""Language models, the host's end: provides ``llm`` and ``llm.chat`` to cells.

Each call goes through four steps: validate its arguments (``read``), reserve a call and the most
tokens that it may take, make it in a worker (``llm_client``), release the tokens that it did not
take. Only arguments that ``read`` knows reach an endpoint.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from cellblock.host.services.tools.calls import Answer, Call, Quota
from cellblock.host.services.tools.worker import WorkerProvider
from cellblock.host.services.tools.worker_messages import WorkerSettings
from cellblock.render.tables import ModelBudget
from cellblock.wire.messages import NOTHING, Parameter, Tool

if TYPE_CHECKING:
    from cellblock.host.reactor import Reactor
    from cellblock.policy.model import Llm


#: The function that the worker runs.
_ENTRY: Final = "cellblock.host.services.llm_client:complete"
_COMPLETE: Final = Tool(name="complete", is_async=True)
#: Bytes of a worker's answer besides the model's text.
_ROOM: Final = 4_096


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's answer: the encoded ``value`` for the cell, or an error if ``kind`` is set.

    ``tokens`` is None if it isn't known how many the call took.
    """

    value: msgspec.Raw = msgspec.Raw(NOTHING)
    kind: str = ""
    message: str = ""
    tokens: int | None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Outcome).decode


class LlmProvider:
    """The provider of a session's language models, and of their quotas of calls and tokens.

    ``max_bytes`` bounds the text of one answer.
    """

    def __init__(self, reactor: Reactor, llm: Llm, *, max_bytes: int) -> None:
        self._llm = llm
        self._max_bytes = max_bytes
        self._calls = Quota(llm.max_calls)
        self._tokens = Quota(llm.max_tokens)
        #: The tools that cells may call.
        self.tools = tools(llm)
        self.worker = WorkerProvider(
            reactor,
            WorkerSettings(
                entries=(_ENTRY,),
                timeout=llm.timeout,
                limit="llm.timeout",
                max_bytes=max_bytes + _ROOM,
            ),
        )

    def spent(self) -> ModelBudget:
        """Return how much of the session's quotas is used, and how large they are."""
        calls = self._calls
        tokens = self._tokens
        return ModelBudget(calls.used, calls.most, tokens.used, tokens.most)

    def precheck(self, call: Call) -> Answer | None:
        """Return the refusal of an invalid call, or None. Called before a user is asked."""
        try:
            read(call, self._llm)
        except InvalidRequestError as exc:
            return Answer(kind="ValidationError", message=str(exc))
        return None

    def begin(self, call: Call) -> None:
        """Send a call to a model, or answer with the reason why not.

        A cancelled call has no answer, so it counts as the most tokens that it might have taken.
        """
        try:
            request = read(call, self._llm)
        except InvalidRequestError as exc:
            call.answer(Answer(kind="ValidationError", message=str(exc)))
            return
        most = request.most_tokens()
        if refusal := self._reserve(most):
            call.answer(Answer(kind="BudgetSpent", message=refusal))
            return

        def on_answer(answer: Answer) -> None:
            # An error comes from the worker process, not from llm_client: the call ran out of time
            # or the worker was lost. So nobody knows how many tokens it took.
            kind = answer.kind
            message = answer.message
            failed = Outcome(kind=kind, message=message, tokens=None)
            outcome = failed if kind else _decode(answer.value)
            tokens_used = most if outcome.tokens is None else outcome.tokens
            self._tokens.release(most - tokens_used)
            value = bytes(outcome.value)
            call.answer(Answer(value, outcome.kind, outcome.message, tokens=tokens_used))

        arguments = (dataclasses.asdict(self._llm), self._max_bytes, request)
        raw = msgspec.Raw(_encode((arguments, {})))
        self.worker.begin(Call(call.number, _COMPLETE, raw, on_answer, tell=call.tell))

    def _reserve(self, tokens: int) -> str:
        """Reserve a call and its tokens. Return why it may not be made, or an empty string."""
        if self._calls.used >= self._calls.most:
            return f"the session's calls are spent (llm.max_calls): {self.spent()}"
        if not self._tokens.reserve(tokens):
            return f"it may take {tokens:,} tokens, too many (llm.max_tokens): {self.spent()}"
        self._calls.reserve(1)
        return ""


# --- the tools that cells see -----------------------------------------------------------------

CALL, CHAT = "llm", "llm.chat"
_POSITIONAL: Final = int(inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD_ONLY: Final = int(inspect.Parameter.KEYWORD_ONLY)
_OPTIONS: Final = """
``temperature`` is from 0 to 2, ``stop`` a text or up to four at which the answer ends. Returned is
a str that has ``finish_reason``, ``model``, ``prompt_tokens`` and ``completion_tokens``, too. What
fails raises ToolError. ``%tools`` shows what is left for the session."""
_CALL_DOC: Final = f"""Ask a language model and return what it says.

``system`` goes before the prompt. ``await llm.acall(…)`` asks without holding up other tasks.
{_OPTIONS}"""
_CHAT_DOC: Final = f"""Continue a conversation with a language model.

A message is {{"role": "user", "content": "…"}}; roles are system, developer, user and assistant.
``await llm.achat(…)`` asks without holding up other tasks.
{_OPTIONS}"""


def tools(llm: Llm) -> tuple[Tool, ...]:
    """Return the tools ``llm`` and ``llm.chat``, whose signatures name the policy's models."""
    prompt = Parameter(name="prompt", kind=_POSITIONAL, annotation="str")
    messages = Parameter(name="messages", kind=_POSITIONAL, annotation="list[dict[str, str]]")
    models = ", ".join(map(repr, llm.models))
    options = (
        _option("model", f"Literal[{models}]", repr(llm.models[0])),
        _option("temperature", "float | None", "None"),
        _option("max_tokens", "int", str(llm.max_tokens_per_call)),
        _option("stop", "str | list[str] | None", "None"),
    )
    system = _option("system", "str | None", "None")
    signatures = (
        (CALL, (prompt, system, *options), _CALL_DOC),
        (CHAT, (messages, *options), _CHAT_DOC),
    )
    return tuple(
        Tool(name=name, parameters=parameters, returns="str", doc=doc, of_host=True)
        for name, parameters, doc in signatures
    )


def _option(name: str, annotation: str, default: str) -> Parameter:
    return Parameter(name=name, kind=_KEYWORD_ONLY, annotation=annotation, default=default)


def refusal(name: str) -> str:
    """Return why a call is refused under a policy that grants no language model."""
    message = f"this policy does not grant {name}; a section [llm] in it would"
    return f"{message}, with base_url, the endpoint that is asked, and models"


# --- validation of a cell's arguments: only what is named here reaches an endpoint ------------

#: Tokens that a message, and a call, may take beyond their text.
PER_MESSAGE: Final = 16
PER_CALL: Final = 64
_MAX_MESSAGES, _MAX_STOPS, _MAX_STOP = 10_000, 4, 1_000
_MAX_REASON: Final = 300


class InvalidRequestError(Exception):
    """The arguments of a call are invalid or not granted; the text says why."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation; texts only."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_STOP)]


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: _Stop | Annotated[list[_Stop], msgspec.Meta(max_length=_MAX_STOPS)] | None = None


class _Prompt(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prompt: str
    system: str | None = None

    @property
    def messages(self) -> list[Message]:
        before = [] if self.system is None else [Message("system", self.system)]
        return [*before, Message("user", self.prompt)]


class _Chat(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=_MAX_MESSAGES)]


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated call, each number of which is within the policy's bounds."""

    model: str
    messages: list[Message]
    max_tokens: int
    temperature: float | None = None
    stop: list[str] = []

    def most_tokens(self) -> int:
        """Return the most tokens that the call may take: a token is at least a byte of text."""
        tokens = sum(len(message.content.encode()) + PER_MESSAGE for message in self.messages)
        return tokens + PER_CALL + self.max_tokens


_NoArguments = Annotated[list[Any], msgspec.Meta(max_length=0)]
_prompt: Final = msgspec.msgpack.Decoder(tuple[_NoArguments, _Prompt]).decode
_chat: Final = msgspec.msgpack.Decoder(tuple[_NoArguments, _Chat]).decode


def read(call: Call, llm: Llm) -> CompletionRequest:
    """Return the validated arguments of a call. Raises InvalidRequestError."""
    try:
        _, arguments = (_chat if call.tool.name == CHAT else _prompt)(call.arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise InvalidRequestError(_reason(exc)) from None
    if arguments.temperature is not None and not math.isfinite(arguments.temperature):
        raise InvalidRequestError("temperature: not a number")
    model = arguments.model if arguments.model is not None else llm.models[0]
    if model not in llm.models:
        model_names = ", ".join(llm.models)
        raise InvalidRequestError(
            f"model: {model[:100]!r} is not allowed; the policy names {model_names}"
        )
    most = llm.max_tokens_per_call
    if arguments.max_tokens is not None and arguments.max_tokens > most:
        raise InvalidRequestError(f"max_tokens: {most:,} at most (llm.max_tokens_per_call)")
    return CompletionRequest(
        model=model,
        messages=arguments.messages,
        max_tokens=arguments.max_tokens or most,
        temperature=arguments.temperature,
        stop=[arguments.stop] if isinstance(arguments.stop, str) else arguments.stop or [],
    )


def _reason(exc: Exception) -> str:
    """Return msgspec's message with the argument's name first."""
    problem, _, where = str(exc).partition(" - at `$[1]")
    name = where.rstrip("`").removeprefix(".")
    return (f"{name}: {problem}" if name else problem)[:_MAX_REASON]
