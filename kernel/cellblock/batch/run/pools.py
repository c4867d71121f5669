"""The policy that each notebook gets, and a pool of warm guests for each such policy.

A notebook's metadata can ask for less than the operator's policy, and never gets more (promise P8).
Pools of narrower policies are opened when a notebook asks. Few that nobody uses are kept.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cellblock.policy import paths as placing
from cellblock.policy.narrow_requests import asked_of, of_notebook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cellblock.api.sandbox import AsyncSandboxPool
    from cellblock.batch.run.execution import Job
    from cellblock.batch.run.notebook import Notebook
    from cellblock.errors import PolicyError
    from cellblock.policy.model import Policy

#: Pools of narrower policies that are kept for notebooks to come: each has a zygote.
MAX_IDLE: Final = 4


def denial_reason(error: PolicyError) -> str:
    """Return why a notebook can't have the policy that it asks for."""
    got = f" (got {error.value})" if error.value else ""
    return f"{error.key}: {error.message}{got}\nInstead: {error.remedy}"


@dataclass(slots=True, eq=False)
class _Entry:
    """A pool, how many notebooks use it, and the lock under which it is opened."""

    pool: AsyncSandboxPool
    users: int = 0
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class PolicyPools:
    """The operator's pool, which is open and belongs to the caller, and those narrower than it."""

    def __init__(self, operators: AsyncSandboxPool) -> None:
        self.operators = operators
        #: By the policy's digest; the one that was used last is last.
        self._entries: dict[str, _Entry] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def policy_of(self, notebook: Notebook, job: Job) -> Policy:
        """Return the policy for a notebook. Raise PolicyError, also where it asks for more."""
        whole, ground = {"metadata": notebook.metadata}, self.operators.ground
        if asked_of(whole) is None:
            return ground.policy
        return await asyncio.to_thread(
            of_notebook,
            whole,
            ground.policy,
            file=job.file,
            project=ground.project,
            scratch=Path(ground.prepare.scratch),
        )

    @asynccontextmanager
    async def use(self, policy: Policy) -> AsyncIterator[AsyncSandboxPool]:
        """Use an open pool of this policy. Raise what opening one raises."""
        if policy == self.operators.ground.policy:
            yield self.operators
            return
        scratch = Path(self.operators.ground.prepare.scratch)
        digest = placing.unplaced(policy, scratch).digest()
        entry = self._entries.pop(digest, None) or _Entry(self.operators.narrowed(policy))
        self._entries[digest] = entry
        entry.users += 1
        try:
            async with entry.opening:
                await self._open(entry.pool)
            yield entry.pool
        finally:
            entry.users -= 1
            await self._close_idle()

    async def _open(self, pool: AsyncSandboxPool) -> None:
        """Open a pool of a narrower policy, unless it is open."""
        await pool.open()

    async def _close_idle(self) -> None:
        """Close the pools that nobody uses, except those used last."""
        idle = [digest for digest, entry in self._entries.items() if not entry.users]
        for entry in [self._entries.pop(digest) for digest in idle[:-MAX_IDLE]]:
            await entry.pool.close()

    async def close(self) -> None:
        """Close the pools of narrower policies."""
        while self._entries:
            _, entry = self._entries.popitem()
            await entry.pool.close()
