"""For DSPy programs in cells: ``LM`` asks through the host, by the broker that ``llm`` is.

    import dspy
    from cellblock.dspy import LM

    dspy.configure(lm=LM())

Imported in guests only, by cells.
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

#: What of a request's configuration goes on; anything else that is set is refused.
_CARRIED: Final = ("max_tokens", "temperature", "stop")
_REASONS: Final = {"length": "length", "content_filter": "content_filter"}


class LM(dspy.LM):  # type: ignore[misc]  # untyped
    """A language model of the policy's, the first where none is named.

    Takes what ``dspy.LM`` takes, but for addresses, keys and engines. Prompts and answers are
    texts. What is asked twice is answered from DSPy's own cache, which costs no budget.
    """

    def __init__(self, model: str | None = None, **kwargs: Any) -> None:
        named = model if model is not None else _default()
        super().__init__(named, engine=_Engine(), async_engine=_AsyncEngine(), **kwargs)

    @property
    def supports_function_calling(self) -> bool:
        """Tools are not called by the model."""
        return False

    @property
    def supports_reasoning(self) -> bool:
        """Only the answer comes back."""
        return False

    @property
    def supports_response_schema(self) -> bool:
        """Adapters ask for a form in words."""
        return False

    @property
    def supported_params(self) -> set[str]:
        """What of a call's parameters reaches the endpoint."""
        return set(_CARRIED)

    def dump_state(self) -> dict[str, Any]:
        """Return model and parameters: the broker is found anew wherever they are loaded."""
        return dict(dspy.BaseLM.dump_state(self))


class _Engine:
    """Asks, and holds up whoever asks."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        return _response(broker.current().chat(_messages(request), **_options(request)))

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        """Nothing is held."""


class _AsyncEngine:
    """Asks, and lets other tasks go on."""

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return _response(await broker.current().achat(_messages(request), **_options(request)))

    async def stream(self, request: lm15.Request) -> Any:
        for event in lm15.response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Nothing is held."""


def _default() -> str:
    signature = broker.current().__signature__
    return str(signature.parameters["model"].default)


def _messages(request: lm15.Request) -> list[dict[str, str]]:
    """Return the conversation as ``llm.chat`` takes it. Raises UnsupportedFeatureError."""
    if request.tools:
        raise _unsupported("tools")
    system = request.system
    texts = [] if system is None else [system] if isinstance(system, str) else map(_text, system)
    said = [{"role": "system", "content": text} for text in texts]
    for message in request.messages:
        if message.role not in ("user", "assistant", "developer"):
            raise _unsupported(f"messages of role {message.role}")
        content = "\n".join(map(_text, message.parts))
        said.append({"role": message.role, "content": content})
    return said


def _text(part: Any) -> str:
    if part.type != "text":
        raise _unsupported(f"{part.type} in messages")
    return str(part.text)


def _options(request: lm15.Request) -> dict[str, Any]:
    """Return what of the configuration is set. Raises UnsupportedFeatureError for the rest."""
    config, plain = request.config, lm15.Config()
    for name in config.__dataclass_fields__:
        if name not in _CARRIED and getattr(config, name) != getattr(plain, name):
            raise _unsupported(name)
    given = {name: getattr(config, name) for name in _CARRIED}
    found = {name: value for name, value in given.items() if value not in (None, ())}
    return {"model": request.model, **found}


def _unsupported(what: str) -> lm15.UnsupportedFeatureError:
    return lm15.UnsupportedFeatureError(f"the host carries no {what}", feature=what)


def _response(completion: Completion) -> lm15.Response:
    return lm15.Response(
        id=None,
        model=completion.model or _default(),
        message=lm15.Message.assistant([lm15.TextPart(str(completion))]),
        finish_reason=_REASONS.get(completion.finish_reason, "stop"),
        usage=lm15.Usage(
            input_tokens=completion.prompt_tokens, output_tokens=completion.completion_tokens
        ),
    )
