"""Who runs a run's notebooks: guests of this process, or, elsewhere, those of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cellblock.batch.run.execution import Execution
from cellblock.policy import placing

if TYPE_CHECKING:
    from cellblock.batch.run.execution import Job, Saver
    from cellblock.batch.run.fate import Record
    from cellblock.batch.run.narrowing import Pools
    from cellblock.batch.run.terms import Terms
    from cellblock.policy.enforcement import Gap


class Crew(Protocol):
    """Runs notebooks, so many of them at once, under a policy of this ``digest``."""

    digest: str

    @property
    def lanes(self) -> int:
        """How many are to be under way by now."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the policy asks for and is not enforced; known once a notebook has run."""

    async def run(self, job: Job, terms: Terms, saver: Saver) -> Record:
        """Run a notebook; whatever is wrong with it is its record."""

    def stop(self) -> None:
        """Have what runs end soon; twice, at once."""


class Guests:
    """Guests of pools of this process."""

    def __init__(self, pools: Pools, lanes: int) -> None:
        self._pools, self.lanes = pools, lanes
        ground = pools.operators.ground
        self.digest = placing.unplaced(ground.policy, Path(ground.told.scratch)).digest()
        self.gaps: tuple[Gap, ...] = ()
        self._running: set[Execution] = set()

    async def run(self, job: Job, terms: Terms, saver: Saver) -> Record:
        """Run a notebook in a sandbox of the pool that has its policy."""
        execution = Execution(job, terms, saver)
        self._running.add(execution)
        try:
            return await execution.run(self._pools)
        finally:
            self._running.discard(execution)
            self.gaps = together(self.gaps, execution.gaps)

    def stop(self) -> None:
        """Interrupt all that runs, and kill what goes on."""
        for execution in self._running:
            execution.stop()


def together(gaps: tuple[Gap, ...], more: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """Return gaps, and what else there is where another policy asks for something else."""
    known = {(gap.capability, gap.consequence) for gap in gaps}
    return (*gaps, *(gap for gap in more if (gap.capability, gap.consequence) not in known))
