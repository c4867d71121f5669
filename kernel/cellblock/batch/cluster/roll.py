"""Which workers a cluster has, which of them keep the policy, and that they hear of the run."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.cluster import speech, warm
from cellblock.batch.cluster.pulse import BEATS
from cellblock.errors import CellblockError
from cellblock.policy.enforcement import Gap

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds between looks at which workers there are.
LOOKING: Final = 1.0
#: Seconds without a worker that keeps the policy, after which notebooks wait no longer.
ALONE: Final = 60.0
_TICK: Final = 0.1


class ClusterError(CellblockError):
    """There is no cluster, or none whose workers keep the policy."""


class Roll:
    """The workers of the cluster at an address, for the run that is called ``name`` there.

    They are told each quarter of ``silence`` seconds that the run goes on.
    """

    def __init__(self, address: str, name: str, silence: float) -> None:
        self._address, self._name = address, name
        self._client: Any = None
        self._beat = silence / BEATS
        self._there: frozenset[str] = frozenset()
        self._known: dict[str, speech.Found] = {}
        self._preparing: frozenset[str] = frozenset()
        self._sure = asyncio.Event()
        self._sure.set()
        self._say: Callable[[str], None] | None = None
        self._said: set[str] = set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._ended = False
        self.gaps: tuple[Gap, ...] = ()

    def begin(self, client: Any) -> None:
        """Look for workers from now on, and be heard by them."""
        self._client = client
        making = asyncio.get_running_loop().create_task
        self._tasks = (making(self._watch()), making(self._be_heard()))

    def end(self) -> None:
        """Do so no more."""
        for task in self._tasks:
            task.cancel()

    def give_up(self) -> None:
        """Have nobody wait for workers any more: the run is to end."""
        self._ended = True
        self._sure.set()

    def listen(self, said: Callable[[str], None]) -> None:
        """Have it said, once each, why workers get no notebook: of those there are, and to come."""
        self._say = said
        self._tell()

    @property
    def keeping(self) -> dict[str, speech.Found]:
        """The workers that keep the policy, by address."""
        return {address: one for address, one in self._known.items() if not one.refusal}

    @property
    def threads(self) -> int:
        """How many threads they have."""
        return sum(one.threads for one in self.keeping.values())

    async def someone(self, *, at_once: bool = False) -> list[str]:
        """Return the workers that a notebook may go to; none where the run is to end.

        Raises ClusterError when none comes; with ``at_once``, also when all that are there refuse.
        Those that prepare are waited for.
        """
        waited = 0.0
        while not (self.keeping or self._ended):
            refused = at_once and self._there and self._there <= self._known.keys()
            if waited > ALONE or refused:
                raise ClusterError(f"{self._address}: {self._why_none()}")
            await asyncio.sleep(_TICK)
            waited = 0.0 if self._preparing else waited + _TICK
        return list(self.keeping)

    async def doubt(self) -> None:
        """Have all workers asked again: one of them has no pool for this run any more."""
        self._sure.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._sure.wait(), ALONE)

    def _why_none(self) -> str:
        if not self._there:
            return "the cluster has no workers"
        return "no worker keeps the policy. " + ". ".join(self._refusals())

    def _refusals(self) -> list[str]:
        said = (
            f"worker on {one.host}: {one.refusal}" for one in self._known.values() if one.refusal
        )
        return list(dict.fromkeys(said))

    def _tell(self) -> None:
        if self._say is None:
            return
        for reason in self._refusals():
            if reason not in self._said:
                self._said.add(reason)
                self._say(reason)

    # --- what goes on meanwhile -----------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                await self._look()
            await asyncio.sleep(LOOKING)

    async def _look(self) -> None:
        """See which workers there are, and what new ones have found by now, or all in doubt."""
        doubted = not self._sure.is_set()
        there = frozenset(await self._client.nthreads())
        asked = [at for at in there if doubted or at not in self._known]
        answers: dict[str, bytes | None] = {}
        if asked:
            asking = self._client.run(warm.found, self._name, workers=asked, on_error="ignore")
            answers = await asking
        found = {at: _found(answer) for at, answer in answers.items() if answer}
        self._there = there
        self._preparing = frozenset(at for at, answer in answers.items() if answer == warm.NOT_YET)
        known = {at: one for at, one in self._known.items() if at in there and at not in asked}
        self._known = known | found
        if doubted:
            self._sure.set()
        self.gaps = self.gaps or next((_gaps(one) for one in self.keeping.values()), ())
        self._tell()

    async def _be_heard(self) -> None:
        """Tell all workers that the run goes on: see ``pulse``."""
        while True:
            await asyncio.sleep(self._beat)
            with contextlib.suppress(Exception):  # a worker may be gone; others have heard
                async with asyncio.timeout(self._beat):
                    await self._client.run(warm.hear, self._name, on_error="ignore")


def _found(answer: bytes) -> speech.Found:
    return msgspec.json.decode(answer, type=speech.Found)


def _gaps(found: speech.Found) -> tuple[Gap, ...]:
    return tuple(Gap(**gap) for gap in found.gaps)
