"""pydantic-ai: a toolset whose tools run cells in a sandbox.

    from pydantic_ai import Agent
    from cellblock.integrations.pydantic_ai import SandboxToolset

    agent = Agent(model, toolsets=[SandboxToolset("agent.toml")])
    agent.run_sync("…")

Each run of the agent has a sandbox of its own. Within ``async with toolset:`` all runs share one,
and so do runs at once, whose cells then run one after the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from pydantic_ai.toolsets import FunctionToolset

from cellblock.api.fences import without_fence
from cellblock.api.sandbox import AsyncSandbox
from cellblock.integrations.agents import described

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_ai import RunContext
    from pydantic_ai.toolsets import AbstractToolset

    from cellblock.policy.model import Policy


class SandboxToolset(FunctionToolset[Any]):
    """The tools ``run_cell`` and ``variables``; arguments are those of ``cellblock.Sandbox``.

    ``limit`` is the most characters of a result that the model reads. A cell that fails or is
    refused is a result, which says why: the model corrects it without using up its retries.
    """

    def __init__(
        self, policy: str | Path | Policy = "safe", *, limit: int = 8_000, **arguments: Any
    ) -> None:
        super().__init__([self.run_cell, self.variables], sequential=True)
        self._policy, self._arguments, self._limit = policy, arguments, limit
        #: The open sandbox, while somebody is in ``async with``, and how many are.
        self.sandbox: AsyncSandbox | None = None
        self._entered, self._entering = 0, asyncio.Lock()

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:  # noqa: ARG002
        """Return this toolset within ``async with``, else one for this run alone."""
        if self.sandbox is not None:
            return self
        return SandboxToolset(self._policy, limit=self._limit, **self._arguments)

    async def __aenter__(self) -> Self:
        async with self._entering:
            if self.sandbox is None:
                sandbox = AsyncSandbox(self._policy, **self._arguments)
                await sandbox.open()
                self.sandbox = sandbox
            self._entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._entering:
            self._entered -= 1
            if not self._entered and self.sandbox is not None:
                sandbox, self.sandbox = self.sandbox, None
                await sandbox.close()

    async def run_cell(self, code: str) -> str:
        """Run a cell of Python, and return what it printed, its last value, or why it failed.

        Variables live from cell to cell. What the policy refuses says what to write instead.

        Args:
            code: The cell's source.
        """
        return (await self._open.execute(without_fence(code))).to_string(self._limit)

    async def variables(self) -> str:
        """List the variables that cells have set: names, types, shapes and sizes in bytes."""
        return described(await self._open.variables(), self._limit)

    @property
    def _open(self) -> AsyncSandbox:
        if self.sandbox is None:
            raise RuntimeError("the toolset was not entered: use `async with`, or run an agent")
        return self.sandbox
