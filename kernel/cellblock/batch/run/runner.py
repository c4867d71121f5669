"""A run: so many notebooks at once, each to its record, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from cellblock.api.pool import AsyncSandboxPool
from cellblock.batch.run import apart, notebook, plan
from cellblock.batch.run.checkpoint import Checkpoint
from cellblock.batch.run.crew import Guests
from cellblock.batch.run.execution import Job
from cellblock.batch.run.fate import Fate, Record
from cellblock.batch.run.fold import fold
from cellblock.batch.run.folder import OutputFolder, OutputFolderError
from cellblock.batch.run.ledger import Ledger
from cellblock.batch.run.narrowing import Pools

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path

    from cellblock.batch.run.crew import Crew
    from cellblock.batch.run.plan import Planned
    from cellblock.batch.run.terms import Terms
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy

_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds between looks at whether a crew has become larger.
_GROWING: Final = 1.0


class Listener(Protocol):
    """Is told how a run goes."""

    def begun(self, name: str) -> None:
        """Hear that a notebook was begun."""

    def ended(self, record: Record) -> None:
        """Hear that one has come to its end."""

    def stopping(self) -> None:
        """Hear that the run was told to end."""

    def said(self, text: str) -> None:
        """Hear something that whoever runs this should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run, under what, and how.

    ``resume`` takes over what ended before; with ``again``, only what passed. ``report`` is a file
    that is written when all has ended.
    """

    notebooks: Sequence[Planned]
    policy: str | Policy
    allow_unsafe: bool
    terms: Terms
    jobs: int
    resume: bool = False
    again: bool = False
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run went. ``signal`` is what ended it, or 0."""

    records: tuple[Record, ...]
    gaps: tuple[Gap, ...]
    signal: int


def run(order: Order, folder: OutputFolder, listener: Listener) -> Ran:
    """Run the notebooks in guests of this process. Raises CellblockError where none can be."""
    return asyncio.run(_here(order, folder, listener))


async def _here(order: Order, folder: OutputFolder, listener: Listener) -> Ran:
    run = Run(order, folder, listener)
    with run.heeding_signals():
        async with AsyncSandboxPool(order.policy, allow_unsafe=order.allow_unsafe) as pool:
            apart.check(order, folder, pool.ground.told.plan.write_roots)
            exports = bool(pool.ground.policy.artifact_export_paths)
            if exports:
                apart.check_artifacts(order.notebooks, folder)
            notebook.warm_up()  # while the zygote prepares
            async with Pools(pool) as pools:
                return await run.by(Guests(pools, order.jobs), exports=exports)


class Run:
    """One run on an asyncio loop; single use."""

    def __init__(self, order: Order, folder: OutputFolder, listener: Listener) -> None:
        self._order, self._folder, self._listener = order, folder, listener
        self._records: list[Record] = []
        self._crew: Crew | None = None
        self._signal = 0
        self._exports = False

    async def by(self, crew: Crew, *, exports: bool) -> Ran:
        """Have a crew run all; with ``exports``, cells' files are kept. Raises CellblockError."""
        self.end_with_signals(crew)
        self._exports = exports
        ledger = self._opened_ledger()
        try:
            await self._all(crew, ledger)
        finally:
            ledger.close()
        return Ran(tuple(self._records), crew.gaps, self._signal)

    def end_with_signals(self, crew: Crew) -> None:
        """Have a crew told when a signal ends the run."""
        self._crew = crew

    async def _all(self, crew: Crew, ledger: Ledger) -> None:
        """Run all, as many at once as the crew has lanes for: it may come to have more."""
        waiting = iter(self._order.notebooks)
        lanes: set[asyncio.Task[None]] = set()
        going = True
        try:
            while going:
                more = max(1, crew.lanes) - len(lanes)
                lanes |= {_begun(self._lane(crew, ledger, waiting)) for _ in range(more)}
                going = await _some_go_on(lanes)
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    def _opened_ledger(self) -> Ledger:
        try:
            ledger = Ledger(self._folder, resumed=self._order.resume)
            fold(self._folder, ledger)
            if self._order.resume:
                ledger.recall()
        except OSError as exc:
            raise OutputFolderError(f"{self._folder.path}: {exc.strerror}") from None
        return ledger

    @contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Have signals end the run in good order, but for those that whoever started it ignores."""
        loop = asyncio.get_running_loop()
        heeded = [one for one in _ENDINGS if signal.getsignal(one) is not signal.SIG_IGN]
        for number in heeded:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        if not self._signal:
            self._listener.stopping()
        self._signal = number
        if self._crew is not None:
            self._crew.stop()

    async def _lane(self, crew: Crew, ledger: Ledger, waiting: Iterator[Planned]) -> None:
        """Run one notebook after another."""
        for planned in waiting:
            if self._signal:
                what = "the run was ended before"
                self._ended(Record(notebook=planned.name, fate=Fate.skipped, reason=what))
            else:
                await self._one(planned, crew, ledger)

    async def _one(self, planned: Planned, crew: Crew, ledger: Ledger) -> None:
        try:
            content = plan.read(planned)
        except OSError as exc:
            self._ended(_unread(planned, exc))
            return
        key = self._order.terms.key(content, crew.digest)
        known = ledger.find(planned.output, key, passed=self._order.again)
        if known is not None:
            self._ended(known)
            return
        self._listener.begun(planned.name)
        saver = Checkpoint(self._folder, planned.output, key, asyncio.get_running_loop())
        done = False
        try:
            record = await crew.run(self._job(planned, content), self._order.terms, saver)
            ledger.enter(planned.output, key, record)
            done = True
        except OSError as exc:
            record = _lost(planned, exc)
        finally:
            saver.close(done=done)
        self._ended(record)

    def _job(self, planned: Planned, content: bytes) -> Job:
        """Return what is run. Raises OSError where its files would have no place."""
        folder = os.path.abspath(planned.path.parent)  # noqa: PTH100 - resolves no links
        artifacts = None
        if self._exports:
            artifacts = self._folder.cleared(planned.artifacts)
        return Job(planned.name, content, folder, artifacts)

    def _ended(self, record: Record) -> None:
        self._records.append(record)
        self._listener.ended(record)


def _begun(lane: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(lane)


async def _some_go_on(lanes: set[asyncio.Task[None]]) -> bool:
    """Wait a while; say whether any lane is left. Raises what one has raised."""
    first = asyncio.FIRST_EXCEPTION
    ended, going = await asyncio.wait(lanes, timeout=_GROWING, return_when=first)
    for lane in ended:
        lane.result()
    return bool(going)


def _unread(planned: Planned, error: OSError) -> Record:
    why = "it can't be read: " + (error.strerror or str(error))
    if error.errno == errno.ELOOP:
        why = "it is a link, and those are followed only where they are named"
    return Record(notebook=planned.name, fate=Fate.unreadable, reason=why)


def _lost(planned: Planned, error: OSError) -> Record:
    why = f"its record can't be written: {error.strerror}"
    return Record(notebook=planned.name, fate=Fate.killed, reason=why)
