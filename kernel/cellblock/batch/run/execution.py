"""One notebook from its bytes to its record, in a sandbox of a warm pool.

It knows of no file and of no run: who keeps what it writes is handed in, so that it is the same in
the process that was started for a run and in a worker on another machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.batch.run.document import Document, TooMuchError
from cellblock.batch.run.notebook import (
    EXECUTION,
    UnreadableError,
    after,
    before,
    now,
    read,
    with_parameters,
)
from cellblock.batch.run.outputs import Outputs
from cellblock.batch.run.result import Ending, Fate, Record, ending_of, said
from cellblock.errors import CellblockError, PolicyError
from cellblock.jupyter.replies import kernel_info
from cellblock.policy import paths
from cellblock.policy.narrow_requests import asked_of, of_notebook
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from cellblock.api.pool import AsyncSandboxPool
    from cellblock.api.results import Result, Status
    from cellblock.api.sandbox import AsyncSandbox
    from cellblock.batch.run.notebook import Cell, Notebook
    from cellblock.batch.run.plan import Terms
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy


# A notebook's time: what it has taken, what is left of it, and what is not its own.

#: Seconds that a guest has to be ready: the first one waits for what its policy preloads.
OPENING: Final = 120.0
#: The least time that a cell is given.
_LEAST: Final = 0.01


class Clock:
    """Goes from when it is made, under the limits of a run's terms."""

    def __init__(self, terms: Terms) -> None:
        self._timeout, self._cell_timeout = terms.timeout, terms.cell_timeout
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """What the notebook has taken."""
        return time.monotonic() - self._began

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have it stand still: what is waited for would be there for whoever comes first."""
        since = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - since

    def over(self, cell: int) -> Ending | None:
        """Return what becomes of a notebook that has no time left, at this cell; None if it has."""
        if self._timeout is None or self.seconds < self._timeout:
            return None
        what = f"the notebook took longer than {self._timeout:g} s (--timeout)"
        return Ending(Fate.timed_out, what, cell)

    def for_opening(self) -> float:
        """Return the seconds that a guest of a warm zygote has to be ready."""
        return min([OPENING, *self._left()])

    def for_cell(self) -> float | None:
        """Return the seconds that the next cell may take, where that is for us to say."""
        own = [] if self._cell_timeout is None else [self._cell_timeout]
        return min([*own, *self._left()], default=None)

    def is_shorter(self, timeout: float | None) -> bool:
        """Say whether a cell has less than this by the run's own limit for cells."""
        own = self._cell_timeout
        return own is not None and (timeout is None or own < timeout)

    def _left(self) -> list[float]:
        return [] if self._timeout is None else [max(_LEAST, self._timeout - self.seconds)]


# What of a run's policy its notebooks have, and a pool of warm guests for each such policy.
#
# A notebook's metadata can ask for less than the operator's policy, and never has more (promise
# P8). Pools of narrower policies are opened when a notebook asks, and few that nobody uses are
# kept.

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
        digest = paths.unplaced(policy, scratch).digest()
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


T = TypeVar("T")
#: Seconds from interrupting what runs to killing it, when the run is to end.
GRACE: Final = 1.0
#: Bytes of a notebook that is read while nothing else goes on: 20 ms.
_LARGE: Final = 1 << 20
_LANGUAGE: Final = "language_info"
#: What a cell says that goes back by itself.
_UNDO: Final = "undo"
#: What one says that narrows the policy.
_NARROWS: Final = f"%{SHOWS_POLICY}"


@dataclass(frozen=True, slots=True)
class Job:
    """A notebook to be run: what it is called, its content, and its folder.

    Cells run in ``folder`` where the policy lets them read it. ``artifacts`` is where the files go
    that the policy has copied out, if it has any. ``policy`` is what the notebook leaves of the
    run's, where that was found out elsewhere.
    """

    name: str
    content: bytes
    folder: str
    artifacts: str | None = None
    policy: Policy | None = None

    @property
    def file(self) -> Path:
        """Where the notebook lies."""
        return Path(self.folder, Path(self.name).name)


class UnwritableError(CellblockError):
    """What was run can't be written."""


class Saver(Protocol):
    """Keeps what is written of a notebook. What can't be kept is an UnwritableError."""

    def begun(self, written: Document) -> None:
        """Take note of a notebook before its first cell."""

    def cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Keep a cell that has ended, or was updated, and the widgets that changed with it."""

    def ended(self, record: Record) -> None:
        """Keep the whole of it."""


class Execution:
    """A notebook on its way; single use."""

    def __init__(self, job: Job, terms: Terms, saver: Saver) -> None:
        self._job, self._terms, self._saver = job, terms, saver
        self._sandbox: AsyncSandbox | None = None
        self._stopped = False
        self._written: Document | None = None
        self._at = self._cells = self._errors = self._peak = 0
        self._session = ""
        #: What the policy asks for and is not enforced; known once a guest is locked.
        self.gaps: tuple[Gap, ...] = ()
        self._clock = Clock(terms)

    def stop(self) -> None:
        """Have it end soon: interrupt its cell, and kill that if it goes on. Twice has it hurry."""
        self._stopped = True
        if self._sandbox is not None:
            self._sandbox.interrupt()
            asyncio.get_running_loop().call_later(GRACE, self._kill)

    def _kill(self) -> None:
        if self._sandbox is not None:
            self._sandbox.interrupt()

    async def run(self, pools: Pools) -> Record:
        """Run it, and return what became of it: whatever is wrong is that, and no exception."""
        self._clock = Clock(self._terms)
        ending = await self._ending(pools)
        record = self._record(ending, self._clock.seconds)
        if self._written is None:
            return record
        try:
            self._saver.ended(record)
        except UnwritableError as exc:
            return self._record(Ending(Fate.killed, said(str(exc))), record.seconds)
        return record

    def _record(self, ending: Ending, seconds: float) -> Record:
        return Record(
            notebook=self._job.name,
            fate=ending.fate,
            reason=ending.reason,
            cell=ending.cell,
            cells=self._cells,
            errors=self._errors,
            seconds=round(seconds, 3),
            peak_memory_bytes=self._peak,
            session=self._session,
        )

    async def _ending(self, pools: Pools) -> Ending:
        try:
            return await self._through(pools)
        except Exception as exc:  # noqa: BLE001 - it is one notebook's, not the run's
            return self._ending_by(exc)

    def _ending_by(self, exc: Exception) -> Ending:
        if isinstance(exc, TimeoutError) and (over := self._clock.over(self._at)) is not None:
            return over
        match exc:
            case UnreadableError():
                fate, why = Fate.unreadable, f"it {exc}"
            case TooMuchError():
                fate, why = Fate.failed, str(exc)
            case UnwritableError():
                fate, why = Fate.killed, str(exc)
            case TimeoutError():
                fate, why = Fate.killed, f"no guest was ready in {OPENING:g} s"
            case CellblockError():
                fate, why = Fate.killed, f"no guest could be had: {exc}"
            case _:
                fate, why = (
                    Fate.killed,
                    f"a mistake of cellblock's own: {type(exc).__name__}: {exc}",
                )
        return Ending(fate, said(why), self._at)

    async def _through(self, pools: Pools) -> Ending:
        # In a thread: an old format is read in another process, for as long as that takes.
        notebook = await asyncio.to_thread(read, self._job.content)
        if not notebook.is_python:
            return Ending(Fate.skipped, said(f"its language is {notebook.language}"))
        notebook = with_parameters(notebook, self._terms.parameters)
        try:
            policy = await pools.left_to(notebook, self._job)
        except PolicyError as exc:
            return Ending(Fate.denied, said(told(exc)))
        self._written = written = await _aside(
            len(self._job.content), lambda: _document(notebook, policy.display)
        )
        self._saver.begun(written)
        snapshots = self._may_go_back(notebook)
        async with AsyncExitStack() as stack:
            with self._clock.stopped():
                pool = await stack.enter_async_context(pools.having(policy))
            opened = self._opened(pool, snapshots=snapshots)
            return await self._run_cells(await stack.enter_async_context(opened), notebook, written)

    def _may_go_back(self, notebook: Notebook) -> bool:
        """Say whether a state before a cell may be gone back to: else none need be kept.

        Where a cell that is killed ends the notebook, its variables are of no use to anybody. A
        guest that is to have more locks goes on as a copy.
        """
        cells = [cell for cell in notebook.cells if cell.runs]
        return self._terms.allow_errors or any(
            cell.may_fail or _UNDO in cell.source or _NARROWS in cell.source for cell in cells
        )

    @asynccontextmanager
    async def _opened(
        self, pool: AsyncSandboxPool, *, snapshots: bool
    ) -> AsyncIterator[AsyncSandbox]:
        sandbox = pool.sandbox(
            inputs=self._terms.parameters,
            artifacts=self._job.artifacts,
            cwd=_readable(self._job.folder, pool),
            snapshots=snapshots,
            notebook=str(self._job.file),
        )
        try:
            await self._open(sandbox, pool)
            self._sandbox, self._session, self.gaps = sandbox, sandbox.session, sandbox.gaps
            yield sandbox
        finally:
            self._sandbox = None
            await sandbox.close()

    async def _open(self, sandbox: AsyncSandbox, pool: AsyncSandboxPool) -> None:
        """Open a sandbox; a zygote that starts for all takes no notebook's time."""
        if pool.is_warm:
            async with asyncio.timeout(self._clock.for_opening()):
                await sandbox.open()
            return
        with self._clock.stopped():
            async with asyncio.timeout(OPENING):
                await sandbox.open()

    async def _run_cells(
        self, sandbox: AsyncSandbox, notebook: Notebook, written: Document
    ) -> Ending:
        outputs, worst = Outputs(written), Ending(Fate.passed)
        for index, cell in enumerate(notebook.cells):
            if not cell.runs:
                continue
            if (over := self._over(index)) is not None:
                return over
            self._at = index + 1
            ending, status = await self._run_cell(sandbox, index, cell, outputs)
            if ending is None:
                continue
            if not self._goes_on(cell, ending, status):
                return ending
            self._errors += 1
            if worst.fate is Fate.passed and not self._is_allowed(cell, ending):
                worst = ending
        return worst

    async def _run_cell(
        self, sandbox: AsyncSandbox, index: int, cell: Cell, outputs: Outputs
    ) -> tuple[Ending | None, Status]:
        """Run a cell; nothing of its result is held while the next one runs."""
        began, limit = now(), self._clock.for_cell()
        result = await sandbox.execute(cell.source, timeout=limit, may_ask=False)
        self._cells += 1
        self._keep(index, after(cell, result, (began, now())), outputs, result)
        return self._judged(result, index + 1), result.status

    # --- limits -------------------------------------------------------------------------------

    def _over(self, index: int) -> Ending | None:
        """Return why the next cell is not begun."""
        if self._stopped:
            return Ending(Fate.interrupted, "the run was ended", index + 1)
        return self._clock.over(index + 1)

    # --- what came of a cell ------------------------------------------------------------------

    def _judged(self, result: Result, number: int) -> Ending | None:
        """Return what a cell means for the notebook, None if it may go on as if nothing was."""
        if result.usage is not None:
            self._peak = max(self._peak, result.usage.peak_memory_bytes)
        if self._stopped:
            return Ending(Fate.interrupted, "the run was ended", number)
        ending = ending_of(result, number, own_limit=self._has_own_limit)
        if ending is None or ending.fate is not Fate.timed_out:
            return ending
        return self._clock.over(number) or ending

    @property
    def _has_own_limit(self) -> bool:
        """Whether cells have less time by the run than by the policy."""
        policy = self._sandbox.policy if self._sandbox is not None else None
        return self._clock.is_shorter(policy.timeout if policy is not None else None)

    def _goes_on(self, cell: Cell, ending: Ending, status: Status) -> bool:
        """Say whether the next cell runs after one that did not come to its end."""
        if status == "failed" or self._stopped or self._clock.over(0):
            return False
        return cell.may_fail or (self._terms.allow_errors and ending.fate is not Fate.interrupted)

    def _is_allowed(self, cell: Cell, ending: Ending) -> bool:
        """Say whether it counts as passed: exceptions alone do where only the run allows them."""
        return cell.may_fail or ending.fate is Fate.failed

    def _keep(self, index: int, cell: dict[str, Any], outputs: Outputs, result: Result) -> None:
        if self._written is None:
            return
        if not self._terms.timing:
            cell["metadata"].pop(EXECUTION, None)
        cell["outputs"] = outputs.of_cell(index, result.outputs)
        done = outputs.updated() | {index: self._written.put(index, cell)}
        widgets = outputs.widgets.changes()
        self._written.take_widgets(widgets)
        for number, content in done.items():
            self._saver.cell(number, content, widgets if number == index else {})


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Do work on so many bytes: what takes long, in a thread, that other notebooks go on."""
    return await asyncio.to_thread(work) if size > _LARGE else work()


def _document(notebook: Notebook, display: str) -> Document:
    """Return a notebook as it is written before its first cell."""
    told = notebook.metadata | {_LANGUAGE: kernel_info()[_LANGUAGE]}
    return Document((before(cell, display) for cell in notebook.cells), told, notebook.minor)


def _readable(folder: str, pool: AsyncSandboxPool) -> str | None:
    """Return the folder if cells may read it."""
    plan, real = pool.ground.told.plan, os.path.realpath(folder)
    roots = (*plan.read_roots, *plan.write_roots)
    return real if os.path.isdir(real) and any(within(real, root) for root in roots) else None  # noqa: PTH112
