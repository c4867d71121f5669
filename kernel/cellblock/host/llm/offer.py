"""``llm`` and ``llm.chat`` as cells see them: signatures that name the models of the policy."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from cellblock.policy.sections import Llm

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
