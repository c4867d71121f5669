"""A language model for DSPy programs in cells: ``LM`` sends requests through the host.

    import dspy
    from cellblock.dspy import LM

    dspy.configure(lm=LM())

It uses the broker behind ``llm``, so the policy's budgets apply. Only cells, in guests, import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import dspy
from dspy import lm15

from cellblock.guest import host_services as broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.guest.host_services import Completion

__all__ = ["LM"]

#: The settings of a request that are sent on. A request that sets any other is refused.
_CARRIED_OPTIONS: Final = ("max_tokens", "temperature", "stop")
_REASONS: Final = {"length": "length", "content_filter": "content_filter"}


class LM(dspy.LM):  # type: ignore[misc]  # untyped
    """A language model that the policy grants: ``model``, or by default the first.

    The arguments are those of ``dspy.LM``, without addresses, keys and engines. Prompts and answers
    are texts. DSPy's own cache answers repeated requests, which then cost no budget.
    """

    def __init__(self, model: str | None = None, **kwargs: Any) -> None:
        model_name = model if model is not None else _default_model()
        super().__init__(model_name, engine=_Engine(), async_engine=_AsyncEngine(), **kwargs)

    @property
    def supports_function_calling(self) -> bool:
        """False: the model can't call tools."""
        return False

    @property
    def supports_reasoning(self) -> bool:
        """False: only the answer is returned."""
        return False

    @property
    def supports_response_schema(self) -> bool:
        """False: adapters describe the form of an answer in words."""
        return False

    @property
    def supported_params(self) -> set[str]:
        """The parameters of a call that reach the endpoint."""
        return set(_CARRIED_OPTIONS)

    def dump_state(self) -> dict[str, Any]:
        """Return the model and its parameters. The broker is looked up again after loading."""
        return dict(dspy.BaseLM.dump_state(self))


class _Engine:
    """The engine of blocking calls."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        return _response(broker.current().chat(_messages(request), **_options(request)))

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        """Do nothing: an engine holds no resources."""


class _AsyncEngine:
    """The engine of async calls, which let other tasks go on."""

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return _response(await broker.current().achat(_messages(request), **_options(request)))

    async def stream(self, request: lm15.Request) -> Any:
        for event in lm15.response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Do nothing: an engine holds no resources."""


def _default_model() -> str:
    signature = broker.current().__signature__
    return str(signature.parameters["model"].default)


def _messages(request: lm15.Request) -> list[dict[str, str]]:
    """Return the conversation in the form that ``llm.chat`` takes.

    Raises UnsupportedFeatureError for tools, other roles, and content that is not text.
    """
    if request.tools:
        raise _unsupported("tools")
    system = request.system
    texts = [] if system is None else [system] if isinstance(system, str) else map(_text, system)
    messages = [{"role": "system", "content": text} for text in texts]
    for message in request.messages:
        if message.role not in ("user", "assistant", "developer"):
            raise _unsupported(f"messages of role {message.role}")
        content = "\n".join(map(_text, message.parts))
        messages.append({"role": message.role, "content": content})
    return messages


def _text(part: Any) -> str:
    if part.type != "text":
        raise _unsupported(f"{part.type} in messages")
    return str(part.text)


def _options(request: lm15.Request) -> dict[str, Any]:
    """Return the settings of a request that are sent on.

    Raises UnsupportedFeatureError if the request sets any other.
    """
    config = request.config
    default = lm15.Config()
    for name in config.__dataclass_fields__:
        if name not in _CARRIED_OPTIONS and getattr(config, name) != getattr(default, name):
            raise _unsupported(name)
    carried = {name: getattr(config, name) for name in _CARRIED_OPTIONS}
    options = {name: value for name, value in carried.items() if value not in (None, ())}
    return {"model": request.model, **options}


def _unsupported(feature: str) -> lm15.UnsupportedFeatureError:
    return lm15.UnsupportedFeatureError(f"the host carries no {feature}", feature=feature)


def _response(completion: Completion) -> lm15.Response:
    return lm15.Response(
        id=None,
        model=completion.model or _default_model(),
        message=lm15.Message.assistant([lm15.TextPart(str(completion))]),
        finish_reason=_REASONS.get(completion.finish_reason, "stop"),
        usage=lm15.Usage(
            input_tokens=completion.prompt_tokens, output_tokens=completion.completion_tokens
        ),
    )
