"""A run: so many notebooks at once, each to its record, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Protocol

from cellblock.api.pool import AsyncSandboxPool
from cellblock.batch.run import notebook, plan
from cellblock.batch.run.execution import Execution, Job, Pools
from cellblock.batch.run.plan import Planned
from cellblock.batch.run.result import Fate, Record
from cellblock.batch.run.state import OWN, Checkpoint, Ledger, OutputFolder, OutputFolderError, fold
from cellblock.policy import paths
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from cellblock.batch.run.execution import Saver
    from cellblock.batch.run.plan import Terms
    from cellblock.batch.run.state import OutputFolder
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy


# Who runs a run's notebooks: guests of this process, or, elsewhere, those of others.


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
        self.digest = paths.unplaced(ground.policy, Path(ground.told.scratch)).digest()
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


# Nothing that is written of a run is in cells' reach, nor in the place of another's files.


def check(order: Order, folder: OutputFolder, write_roots: Sequence[str]) -> None:
    """Raise OutputFolderError where cells could change what is written, or where it leads."""
    roots = list(map(os.path.realpath, write_roots))
    for path in _written(order, folder):
        for root in roots:
            if within(path, root):
                what = f"cells could change what is written: {root} is writable"
                raise OutputFolderError(f"{path}: {what}. Name another place.")


def _written(order: Order, folder: OutputFolder) -> Iterator[str]:
    """Yield what a run writes; links in DIR are not followed, but by whoever named it."""
    path = os.path.realpath(folder.path)
    yield path
    yield os.path.join(path, OWN)  # noqa: PTH118 - of thousands of notebooks
    for planned in order.notebooks:
        yield os.path.join(path, planned.output)  # noqa: PTH118 - as above
    if order.report is not None:
        yield os.path.join(os.path.realpath(order.report.parent), order.report.name)  # noqa: PTH118


def check_artifacts(notebooks: Sequence[Planned], folder: OutputFolder) -> None:
    """Raise OutputFolderError where a notebook's artifacts would be among another's files."""
    taken = dict[str, Planned]()
    for planned in notebooks:
        first = taken.setdefault(planned.artifacts, planned)
        if first is not planned:
            raise _shared(planned.artifacts, planned, first, folder)
    for planned in notebooks:
        for above in PurePosixPath(planned.output).parents:
            if (other := taken.get(str(above))) is not None:
                raise _shared(str(above), planned, other, folder)


def _shared(name: str, one: Planned, other: Planned, folder: OutputFolder) -> OutputFolderError:
    what = f"files of {other.name}'s cells would be among those of {one.name}"
    return OutputFolderError(f"{folder.path}/{name}: {what}. Run them into two folders.")


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
            check(order, folder, pool.ground.told.plan.write_roots)
            exports = bool(pool.ground.policy.artifact_export_paths)
            if exports:
                check_artifacts(order.notebooks, folder)
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
