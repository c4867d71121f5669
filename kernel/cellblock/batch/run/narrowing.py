"""What of a run's policy its notebooks have, and a pool of warm guests for each such policy.

A notebook's metadata can ask for less than the operator's policy, and never has more (promise P8).
Pools of narrower policies are opened when a notebook asks, and few that nobody uses are kept.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cellblock.policy import placing
from cellblock.policy.notebook import asked_of, of_notebook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from cellblock.api.pool import AsyncSandboxPool
    from cellblock.batch.run.execution import Job
    from cellblock.batch.run.notebook import Notebook
    from cellblock.errors import PolicyError
    from cellblock.policy.model import Policy

#: Pools of narrower policies that are kept for notebooks to come: each has a zygote.
MOST_IDLE: Final = 4


def told(error: PolicyError) -> str:
    """Return why a notebook can't have the policy that it asks for; which one is known."""
    got = f" (got {error.value})" if error.value else ""
    return f"{error.key}: {error.message}{got}\nInstead: {error.remedy}"


@dataclass(slots=True, eq=False)
class _Held:
    """A pool, who is in it, and whose turn it is to open it."""

    pool: AsyncSandboxPool
    users: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pools:
    """The operator's pool, which is open and somebody else's, and those of narrower policies."""

    def __init__(self, operators: AsyncSandboxPool) -> None:
        self.operators = operators
        #: By the policy's digest; the one that was used last is last.
        self._held: dict[str, _Held] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def left_to(self, notebook: Notebook, job: Job) -> Policy:
        """Return the policy that a notebook has. Raises PolicyError, also where it wants more."""
        whole, ground = {"metadata": notebook.metadata}, self.operators.ground
        if asked_of(whole) is None:
            return ground.policy
        return await asyncio.to_thread(
            of_notebook,
            whole,
            ground.policy,
            file=job.file,
            project=ground.project,
            scratch=Path(ground.told.scratch),
        )

    @asynccontextmanager
    async def having(self, policy: Policy) -> AsyncIterator[AsyncSandboxPool]:
        """Have a pool under this policy, which is open. Raises what opening one does."""
        if policy == self.operators.ground.policy:
            yield self.operators
            return
        scratch = Path(self.operators.ground.told.scratch)
        digest = placing.unplaced(policy, scratch).digest()
        held = self._held.pop(digest, None) or _Held(self.operators.narrowed(policy))
        self._held[digest] = held
        held.users += 1
        try:
            async with held.turn:
                await self._open(held.pool)
            yield held.pool
        finally:
            held.users -= 1
            await self._let_go()

    async def _open(self, pool: AsyncSandboxPool) -> None:
        """Open a pool of a narrower policy, unless it is."""
        await pool.open()

    async def _let_go(self) -> None:
        """Close what nobody uses, but for what was used last."""
        idle = [digest for digest, held in self._held.items() if not held.users]
        gone = [self._held.pop(digest) for digest in idle[:-MOST_IDLE]]
        for held in gone:
            await held.pool.close()

    async def close(self) -> None:
        """Close the pools of narrower policies."""
        while self._held:
            _, held = self._held.popitem()
            await held.pool.close()
