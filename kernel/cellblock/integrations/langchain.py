"""LangChain: tools that run cells in a sandbox.

    from cellblock import Sandbox
    from cellblock.integrations.langchain import sandbox_tools

    with Sandbox("agent.toml") as sandbox:
        agent = create_agent(model, tools=sandbox_tools(sandbox))
        agent.invoke({"messages": ["…"]})

They work in async agents, too: to cancel a call interrupts its cell. The sandbox is the program's,
to open and to close, and to look into: variables, files, what was staged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool

from cellblock.api.fences import without_fence
from cellblock.integrations.agents import described

if TYPE_CHECKING:
    from cellblock.api.blocking import Sandbox


def sandbox_tools(sandbox: Sandbox, *, limit: int = 8_000) -> list[BaseTool]:
    """Return the tools ``run_cell`` and ``variables`` of an open sandbox.

    ``limit`` is the most characters that the model reads of a result. A cell that fails or is
    refused is content like any other, which says why. The message's ``artifact`` is the ``Result``.
    """

    def run_cell(code: str) -> tuple[str, Any]:
        """Run a cell of Python, and return what it printed, its last value, or why it failed.

        Variables live from cell to cell. What the policy refuses says what to write instead.
        """
        result = sandbox.execute(without_fence(code))
        return result.to_string(limit), result

    async def run_cell_on_a_loop(code: str) -> tuple[str, Any]:
        result = await sandbox.execute_async(without_fence(code))
        return result.to_string(limit), result

    def variables() -> str:
        """List the variables that cells have set: names, types, shapes and sizes in bytes."""
        return described(sandbox.variables(), limit)

    return [
        StructuredTool.from_function(
            run_cell, run_cell_on_a_loop, response_format="content_and_artifact"
        ),
        StructuredTool.from_function(variables),
    ]
