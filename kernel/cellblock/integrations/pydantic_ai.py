"""pydantic-ai: a toolset whose tools run cells in a sandbox.

    from pydantic_ai import Agent
    from cellblock.integrations.pydantic_ai import SandboxToolset

    agent = Agent(model, toolsets=[SandboxToolset("agent.toml", project=".")])
    agent.run_sync("…")

Each run of the agent has a sandbox of its own. Within ``async with toolset:`` all runs share one
sandbox; the cells of concurrent runs then run one after the other. Pictures are part of the result
of ``run_cell``.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any, Self

from pydantic_ai.messages import BinaryContent
from pydantic_ai.toolsets import FunctionToolset

from cellblock.api.assigned import assigned_name, assigned_text
from cellblock.api.explained import run_cell_description
from cellblock.api.fences import without_fence
from cellblock.api.sandbox import AsyncSandbox
from cellblock.errors import GuestError
from cellblock.integrations.agents import Seconds, described, told

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_ai import RunContext
    from pydantic_ai.toolsets import AbstractToolset

    from cellblock.policy.model import Policy


class SandboxToolset(FunctionToolset[Any]):
    """A toolset with the tools ``run_cell`` and ``variables``.

    The arguments are those of ``cellblock.Sandbox``. ``limit`` is the largest number of characters
    of a result that the model reads. The description of ``run_cell`` has the sandbox's tools and
    policy. A cell that fails or is refused has a result that says why, so that the model corrects
    it without using up its retries.
    """

    def __init__(
        self, policy: str | Path | Policy = "safe", *, limit: int = 8_000, **arguments: Any
    ) -> None:
        super().__init__(sequential=True)
        self._policy = policy
        self._arguments = arguments
        self._limit = limit
        self._begin()

    def _begin(self) -> None:
        """Set the state of a toolset without a sandbox, whose tools are methods of this object.

        Tools that users have added are kept.
        """
        own = FunctionToolset[Any]([self.run_cell, self.variables], sequential=True)
        self.tools = {**self.tools, **own.tools}
        #: The open sandbox, while anybody is in ``async with``.
        self._sandbox: AsyncSandbox | None = None
        #: The number of ``async with`` blocks that are entered.
        self._entered = 0
        self._entering = asyncio.Lock()

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:  # noqa: ARG002
        """Return this toolset within ``async with``, else a copy for this run alone."""
        if self._sandbox is not None:
            return self
        toolset = copy.copy(self)
        toolset._begin()  # noqa: SLF001 - of this class
        return toolset

    async def __aenter__(self) -> Self:
        async with self._entering:
            if self._sandbox is None:
                sandbox = AsyncSandbox(self._policy, **self._arguments)
                await sandbox.open()
                self._sandbox = sandbox
                if (own := self.tools.get("run_cell")) is not None:
                    own.description = run_cell_description(sandbox)
            self._entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._entering:
            self._entered -= 1
            if not self._entered and self._sandbox is not None:
                sandbox, self._sandbox = self._sandbox, None
                await sandbox.close()

    @property
    def sandbox(self) -> AsyncSandbox:
        """The open sandbox, for files and variables. Raises GuestError outside ``async with``.

        A run outside ``async with`` has a sandbox of its own, which is closed when the run ends.
        """
        if self._sandbox is None:
            raise GuestError("the toolset's sandbox is open within `async with toolset:` only")
        return self._sandbox

    async def run_cell(
        self,
        code: str,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - the cell's
    ) -> str | list[str | BinaryContent]:
        """Run a cell of Python, and return what it printed, its last value, or why it failed.

        Variables live from cell to cell. What the policy refuses says what to write instead.

        Args:
            code: The cell's source.
            timeout: Seconds, at most the policy's.
        """
        sandbox = self.sandbox
        result = await sandbox.execute(without_fence(code), timeout=timeout)
        name = assigned_name(result)
        assigned = assigned_text(name, await sandbox.variables()) if name else ""
        images = await sandbox.images(result)
        text = told(result, self._limit, assigned, images)
        contents = [
            BinaryContent(data=image.content, media_type=image.mime_type) for image in images
        ]
        return [text, *contents] if contents else text

    async def variables(self) -> str:
        """List the variables that cells have set: names, types, shapes and sizes in bytes."""
        return described(await self.sandbox.variables(), self._limit)
