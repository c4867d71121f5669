"""LangChain: tools that run cells in a sandbox.

    from cellblock import Sandbox
    from cellblock.integrations.langchain import sandbox_tools

    with Sandbox("agent.toml", project=".") as sandbox:
        agent = create_agent(model, tools=sandbox_tools(sandbox))  # of the package langchain
        agent.invoke({"messages": ["…"]})

The tools also work in async agents, where cancelling a call interrupts its cell. Pictures are image
blocks of the tool's message. The program opens and closes the sandbox, and may use it directly: its
variables, its files, and its staged changes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.messages.content import create_image_block, create_text_block
from langchain_core.tools import BaseTool, StructuredTool

from cellblock.api.assigned import assigned_name, assigned_text
from cellblock.api.blocking import Sandbox
from cellblock.api.explained import run_cell_description
from cellblock.api.fences import without_fence
from cellblock.integrations.agents import Seconds, described, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.api.images import Image
    from cellblock.api.results import Result


def sandbox_tools(sandbox: Sandbox, *, limit: int = 8_000) -> list[BaseTool]:
    """Return the tools ``run_cell`` and ``variables`` of an open sandbox.

    The description of ``run_cell`` has the sandbox's tools and policy. ``limit`` is the largest
    number of characters of a result that the model reads. A cell that fails or is refused doesn't
    raise: the content of the message says why. The message's ``artifact`` is the ``Result``. Raises
    TypeError for anything but a ``Sandbox``, and GuestError if it is not open.
    """
    if not isinstance(sandbox, Sandbox):
        kind = type(sandbox).__name__
        remedy = "pass a cellblock.Sandbox, whose tools work in async agents, too"
        raise TypeError(f"sandbox_tools takes no {kind}: {remedy}")

    def run_cell(code: str, timeout: Seconds | None = None) -> tuple[Any, Any]:
        result = sandbox.execute(without_fence(code), timeout=timeout)
        name = assigned_name(result)
        assigned = assigned_text(name, sandbox.variables()) if name else ""
        return _content(result, limit, assigned, sandbox.images(result)), result

    async def run_cell_async(
        code: str,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - the cell's
    ) -> tuple[Any, Any]:
        result = await sandbox.execute_async(without_fence(code), timeout=timeout)
        name = assigned_name(result)
        in_sandbox = await asyncio.to_thread(sandbox.variables) if name else ()
        images = await asyncio.to_thread(sandbox.images, result)
        return _content(result, limit, assigned_text(name, in_sandbox), images), result

    def variables() -> str:
        """List the variables that cells have set: names, types, shapes and sizes in bytes."""
        return described(sandbox.variables(), limit)

    return [
        StructuredTool.from_function(
            run_cell,
            run_cell_async,
            description=run_cell_description(sandbox),
            response_format="content_and_artifact",
        ),
        StructuredTool.from_function(variables),
    ]


def _content(result: Result, limit: int, assigned: str, images: Sequence[Image]) -> str | list[Any]:
    """Return the content of a tool's message: text, and image blocks if there are pictures."""
    text = told(result, limit, assigned, images)
    if not images:
        return text
    blocks = [create_image_block(base64=image.data, mime_type=image.mime_type) for image in images]
    return [create_text_block(text), *blocks]
