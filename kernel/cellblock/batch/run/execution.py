"""One notebook from its bytes to its result, in a sandbox of a warm pool.

An execution knows of no file and no run: what is written is handed to a `Saver`. So it is the same
in the process that was started for a run and in a worker on another machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.batch.notebook import UnreadableError
from cellblock.batch.run.document import Document, TooMuchOutputError
from cellblock.batch.run.notebook import (
    EXECUTION,
    cell_after_run,
    cell_before_run,
    now,
    read,
    with_parameters,
)
from cellblock.batch.run.outputs import Outputs
from cellblock.batch.run.pools import denial_reason
from cellblock.batch.run.result import (
    Ending,
    NotebookResult,
    NotebookStatus,
    clip_reason,
    ending_of,
)
from cellblock.errors import CellblockError, PolicyError
from cellblock.jupyter.messages import kernel_info
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from cellblock.api.results import Result, Status
    from cellblock.api.sandbox import AsyncSandbox, AsyncSandboxPool
    from cellblock.batch.run.notebook import Cell, Notebook
    from cellblock.batch.run.plan import RunOptions
    from cellblock.batch.run.pools import PolicyPools
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy

#: Seconds from interrupting a cell to killing it, when the run is to end.
GRACE: Final = 1.0
#: Seconds that a guest has to be ready: the first one waits for what its policy preloads.
OPEN_TIMEOUT: Final = 120.0
#: The least seconds that a cell is given.
_MIN_TIMEOUT: Final = 0.01
#: Bytes of a notebook that is made a document on the loop, which takes 20 ms; a larger one, in a
#: thread.
_LARGE: Final = 1 << 20
_LANGUAGE: Final = "language_info"
#: What a cell contains that undoes cells.
_UNDO: Final = "undo"
#: What a cell contains that narrows the policy.
_POLICY_MAGIC: Final = f"%{SHOWS_POLICY}"


@dataclass(frozen=True, slots=True)
class Job:
    """A notebook to run: its name, its content, and its folder.

    Cells run in ``folder`` where the policy lets them read it. ``artifacts`` is the folder for the
    files that the policy has copied out, if it has any. ``policy`` is the notebook's own, where
    that was found out by another process.
    """

    name: str
    content: bytes
    folder: str
    artifacts: str | None = None
    policy: Policy | None = None

    @property
    def file(self) -> Path:
        """The path of the notebook."""
        return Path(self.folder, Path(self.name).name)


class UnwritableError(CellblockError):
    """What was run can't be written."""


class Saver(Protocol):
    """Keeps what is written of a notebook. Its methods raise UnwritableError."""

    def begin(self, document: Document) -> None:
        """Keep a notebook before its first cell."""

    def save_cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Keep a cell that has ended or was updated, and the widgets that changed with it."""

    def finish(self, result: NotebookResult) -> None:
        """Keep the whole notebook."""


class Stopwatch:
    """The time that a notebook has taken, and its limits. It runs from when it is made."""

    def __init__(self, options: RunOptions) -> None:
        self._timeout, self._cell_timeout = options.timeout, options.cell_timeout
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds that the notebook has taken."""
        return time.monotonic() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause: the notebook waits for what all notebooks wait for."""
        since = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - since

    def timed_out(self, cell: int) -> Ending | None:
        """Return the ending of a notebook whose time is over at this cell; None if it is not."""
        if self._timeout is None or self.seconds < self._timeout:
            return None
        why = f"the notebook took longer than {self._timeout:g} s (--timeout)"
        return Ending(NotebookStatus.timed_out, why, cell)

    def open_timeout(self) -> float:
        """Return the seconds that a guest of a warm zygote has to be ready."""
        return min([OPEN_TIMEOUT, *self._left()])

    def cell_timeout(self) -> float | None:
        """Return the seconds that the run gives the next cell; None if it sets no limit."""
        own = [] if self._cell_timeout is None else [self._cell_timeout]
        return min([*own, *self._left()], default=None)

    def cell_limit_is_below(self, timeout: float | None) -> bool:
        """Whether the run's own limit for cells is lower than the policy's ``timeout``."""
        own = self._cell_timeout
        return own is not None and (timeout is None or own < timeout)

    def _left(self) -> list[float]:
        return [] if self._timeout is None else [max(_MIN_TIMEOUT, self._timeout - self.seconds)]


class Execution:
    """The execution of one notebook; single use."""

    def __init__(self, job: Job, options: RunOptions, saver: Saver) -> None:
        self._job, self._options, self._saver = job, options, saver
        self._sandbox: AsyncSandbox | None = None
        self._stopped = False
        self._document: Document | None = None
        #: The cell that runs or ran last, from 1; how many ran; how many failed and may.
        self._cell = self._cells = self._errors = 0
        self._peak_memory = 0
        self._session = ""
        #: What the policy asks for and is not enforced; known once a guest is locked.
        self.gaps: tuple[Gap, ...] = ()
        self._watch = Stopwatch(options)

    def stop(self) -> None:
        """Interrupt the cell, and kill it if it goes on. A second call kills it at once."""
        self._stopped = True
        if self._sandbox is not None:
            self._sandbox.interrupt()
            asyncio.get_running_loop().call_later(GRACE, self._kill)

    def _kill(self) -> None:
        if self._sandbox is not None:
            self._sandbox.interrupt()

    async def run(self, pools: PolicyPools) -> NotebookResult:
        """Run the notebook, and return its result. What is wrong with it raises nothing."""
        self._watch = Stopwatch(self._options)
        try:
            ending = await self._run(pools)
        except Exception as exc:  # noqa: BLE001 - it ends one notebook, not the run
            ending = self._ending_by(exc)
        seconds = self._watch.seconds
        result = self._result(ending, seconds)
        if self._document is None:
            return result
        try:
            self._saver.finish(result)
        except UnwritableError as exc:
            ending = Ending(NotebookStatus.killed, clip_reason(str(exc)))
            return self._result(ending, seconds)
        return result

    def _result(self, ending: Ending, seconds: float) -> NotebookResult:
        return NotebookResult(
            notebook=self._job.name,
            status=ending.status,
            reason=ending.reason,
            cell=ending.cell,
            cells=self._cells,
            errors=self._errors,
            seconds=round(seconds, 3),
            peak_memory_bytes=self._peak_memory,
            session=self._session,
        )

    def _ending_by(self, exc: Exception) -> Ending:
        if isinstance(exc, TimeoutError) and (ending := self._watch.timed_out(self._cell)):
            return ending
        match exc:
            case UnreadableError():
                status, why = NotebookStatus.unreadable, f"it {exc}"
            case TooMuchOutputError():
                status, why = NotebookStatus.failed, str(exc)
            case UnwritableError():
                status, why = NotebookStatus.killed, str(exc)
            case TimeoutError():
                status, why = NotebookStatus.killed, f"no guest was ready in {OPEN_TIMEOUT:g} s"
            case CellblockError():
                status, why = NotebookStatus.killed, f"no guest could be had: {exc}"
            case _:
                why = f"a mistake of cellblock's own: {type(exc).__name__}: {exc}"
                status = NotebookStatus.killed
        return Ending(status, clip_reason(why), self._cell)

    async def _run(self, pools: PolicyPools) -> Ending:
        # In a thread: an older format is upgraded in another process, for as long as that takes.
        notebook = await asyncio.to_thread(read, self._job.content)
        if not notebook.is_python:
            why = f"its language is {notebook.language}"
            return Ending(NotebookStatus.skipped, clip_reason(why))
        notebook = with_parameters(notebook, self._options.parameters)
        try:
            policy = await pools.policy_of(notebook, self._job)
        except PolicyError as exc:
            return Ending(NotebookStatus.denied, clip_reason(denial_reason(exc)))
        if len(self._job.content) > _LARGE:
            document = await asyncio.to_thread(_document, notebook, policy.display)
        else:
            document = _document(notebook, policy.display)
        self._document = document
        self._saver.begin(document)
        async with AsyncExitStack() as stack:
            with self._watch.paused():
                pool = await stack.enter_async_context(pools.use(policy))
            opened = self._opened(pool, snapshots=self._needs_snapshots(notebook))
            sandbox = await stack.enter_async_context(opened)
            return await self._run_cells(sandbox, notebook, document)

    def _needs_snapshots(self, notebook: Notebook) -> bool:
        """Whether a state before a cell may be restored.

        Where a cell that is killed ends the notebook, nobody needs its variables. A guest that is
        to get more locks goes on as a copy.
        """
        cells = [cell for cell in notebook.cells if cell.runs]
        return self._options.allow_errors or any(
            cell.may_fail or _UNDO in cell.source or _POLICY_MAGIC in cell.source for cell in cells
        )

    @asynccontextmanager
    async def _opened(
        self, pool: AsyncSandboxPool, *, snapshots: bool
    ) -> AsyncIterator[AsyncSandbox]:
        sandbox = pool.sandbox(
            inputs=self._options.parameters,
            artifacts=self._job.artifacts,
            cwd=_readable(self._job.folder, pool),
            snapshots=snapshots,
            notebook=str(self._job.file),
        )
        try:
            if pool.is_warm:
                async with asyncio.timeout(self._watch.open_timeout()):
                    await sandbox.open()
            else:  # a zygote that starts for all takes no notebook's time
                with self._watch.paused():
                    async with asyncio.timeout(OPEN_TIMEOUT):
                        await sandbox.open()
            self._sandbox, self._session, self.gaps = sandbox, sandbox.session, sandbox.gaps
            yield sandbox
        finally:
            self._sandbox = None
            await sandbox.close()

    async def _run_cells(
        self, sandbox: AsyncSandbox, notebook: Notebook, document: Document
    ) -> Ending:
        outputs, worst = Outputs(document), Ending(NotebookStatus.passed)
        for index, cell in enumerate(notebook.cells):
            if not cell.runs:
                continue
            if self._stopped:
                return self._ended_by_run(index + 1)
            if (timed_out := self._watch.timed_out(index + 1)) is not None:
                return timed_out
            self._cell = index + 1
            ending, status = await self._run_cell(sandbox, index, cell, outputs)
            if ending is None:
                continue
            if not self._goes_on(cell, ending, status):
                return ending
            self._errors += 1
            # Where the run alone allows errors, those other than exceptions still count.
            allowed = cell.may_fail or ending.status is NotebookStatus.failed
            if worst.status is NotebookStatus.passed and not allowed:
                worst = ending
        return worst

    async def _run_cell(
        self, sandbox: AsyncSandbox, index: int, cell: Cell, outputs: Outputs
    ) -> tuple[Ending | None, Status]:
        """Run a cell; nothing of its result is held while the next one runs."""
        began, limit = now(), self._watch.cell_timeout()
        result = await sandbox.execute(cell.source, timeout=limit, may_ask=False)
        self._cells += 1
        self._save(index, cell_after_run(cell, result, (began, now())), outputs, result)
        if result.usage is not None:
            self._peak_memory = max(self._peak_memory, result.usage.peak_memory_bytes)
        return self._ending_of(result, index + 1, sandbox), result.status

    def _ending_of(self, result: Result, number: int, sandbox: AsyncSandbox) -> Ending | None:
        """Return how a cell ends the notebook; None if it does not."""
        if self._stopped:
            return self._ended_by_run(number)
        policy = sandbox.policy
        own = self._watch.cell_limit_is_below(policy.timeout if policy is not None else None)
        ending = ending_of(result, number, own_limit=own)
        if ending is not None and ending.status is NotebookStatus.timed_out:
            return self._watch.timed_out(number) or ending
        return ending

    def _ended_by_run(self, number: int) -> Ending:
        return Ending(NotebookStatus.interrupted, "the run was ended", number)

    def _goes_on(self, cell: Cell, ending: Ending, status: Status) -> bool:
        """Whether the next cell runs after one that did not succeed."""
        if status == "failed" or self._stopped or self._watch.timed_out(0):
            return False
        interrupted = ending.status is NotebookStatus.interrupted
        return cell.may_fail or (self._options.allow_errors and not interrupted)

    def _save(self, index: int, cell: dict[str, Any], outputs: Outputs, result: Result) -> None:
        if self._document is None:
            return
        if not self._options.timing:
            cell["metadata"].pop(EXECUTION, None)
        cell["outputs"] = outputs.of_cell(index, result.outputs)
        changed = outputs.updated() | {index: self._document.put(index, cell)}
        widgets = outputs.widgets.changes()
        self._document.take_widgets(widgets)
        for number, content in changed.items():
            self._saver.save_cell(number, content, widgets if number == index else {})


def _document(notebook: Notebook, display: str) -> Document:
    """Return a notebook as it is written before its first cell."""
    metadata = notebook.metadata | {_LANGUAGE: kernel_info()[_LANGUAGE]}
    cells = (cell_before_run(cell, display) for cell in notebook.cells)
    return Document(cells, metadata, notebook.minor)


def _readable(folder: str, pool: AsyncSandboxPool) -> str | None:
    """Return the folder if cells may read it."""
    plan, real = pool.ground.prepare.plan, os.path.realpath(folder)
    roots = (*plan.read_roots, *plan.write_roots)
    readable = any(within(real, root) for root in roots)
    # Unlike pathlib's, this is False for a folder that can't be looked at.
    return real if readable and os.path.isdir(real) else None  # noqa: PTH112 - see above
