"""A run: so many notebooks at once, each to its result, and an end that leaves nothing behind.

What runs them is an `Executor`: guests of this process (`LocalExecutor`), or the workers of a
cluster (`batch.cluster.client`). Nothing that a run writes is in the cells' reach.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol

from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.batch.files import absolute
from cellblock.batch.run import notebook, plan
from cellblock.batch.run.execution import Execution, Job
from cellblock.batch.run.journal import FileSaver, RunLog, recover
from cellblock.batch.run.output_folder import OWN, OutputFolder, OutputFolderError
from cellblock.batch.run.plan import PlannedNotebook
from cellblock.batch.run.pools import PolicyPools
from cellblock.batch.run.result import NotebookResult, NotebookStatus, RunResult
from cellblock.policy import paths as placing
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.batch.run.execution import Saver
    from cellblock.batch.run.plan import RunOptions
    from cellblock.batch.run.report import Progress
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds between looks at whether an executor has more slots.
_POLL: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run, under which policy, and how.

    ``resume`` takes over the results of an earlier run; with ``again``, only those that passed.
    ``report`` is a file that is written when all has ended.
    """

    notebooks: Sequence[PlannedNotebook]
    policy: str | Policy
    allow_unsafe: bool
    options: RunOptions
    jobs: int
    resume: bool = False
    again: bool = False
    report: Path | None = None


class Executor(Protocol):
    """Runs notebooks under a policy with this ``digest``."""

    digest: str

    @property
    def slots(self) -> int:
        """How many notebooks are to run at once now. There may be more later."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the policy asks for and is not enforced; known once a notebook has run."""

    async def run(self, job: Job, options: RunOptions, saver: Saver) -> NotebookResult:
        """Run a notebook. What is wrong with it is its result."""

    def stop(self) -> None:
        """End what runs soon; when called twice, at once."""


class LocalExecutor:
    """Runs notebooks in guests of this process."""

    def __init__(self, pools: PolicyPools, slots: int) -> None:
        self._pools, self.slots = pools, slots
        ground = pools.operators.ground
        self.digest = placing.unplaced(ground.policy, Path(ground.prepare.scratch)).digest()
        self.gaps: tuple[Gap, ...] = ()
        self._running: set[Execution] = set()

    async def run(self, job: Job, options: RunOptions, saver: Saver) -> NotebookResult:
        """Run a notebook in a sandbox of the pool that has its policy."""
        execution = Execution(job, options, saver)
        self._running.add(execution)
        try:
            return await execution.run(self._pools)
        finally:
            self._running.discard(execution)
            known = {(gap.capability, gap.consequence) for gap in self.gaps}
            new = (g for g in execution.gaps if (g.capability, g.consequence) not in known)
            self.gaps = (*self.gaps, *new)

    def stop(self) -> None:
        """Interrupt all that runs, and kill what goes on."""
        for execution in self._running:
            execution.stop()


def run(request: RunRequest, folder: OutputFolder, progress: Progress) -> RunResult:
    """Run the notebooks in guests of this process. Raise CellblockError where none can be run."""
    return asyncio.run(_run(request, folder, progress))


async def _run(request: RunRequest, folder: OutputFolder, progress: Progress) -> RunResult:
    run = Run(request, folder, progress)
    with run.handling_signals():
        async with AsyncSandboxPool(request.policy, allow_unsafe=request.allow_unsafe) as pool:
            check_out_of_reach(request, folder, pool.ground.prepare.plan.write_roots)
            exports = bool(pool.ground.policy.artifact_export_paths)
            if exports:
                check_artifact_folders(request.notebooks, folder)
            notebook.warm_up()  # while the zygote prepares
            async with PolicyPools(pool) as pools:
                run.executor = LocalExecutor(pools, request.jobs)
                return await run.run(run.executor, exports=exports)


class Run:
    """One run on an asyncio loop; single use. A signal stops its ``executor``, if it has one."""

    def __init__(self, request: RunRequest, folder: OutputFolder, progress: Progress) -> None:
        self._request, self._folder, self._progress = request, folder, progress
        self._results: list[NotebookResult] = []
        self.executor: Executor | None = None
        self._signal = 0
        self._exports = False

    async def run(self, executor: Executor, *, exports: bool) -> RunResult:
        """Run all notebooks. With ``exports``, cells' files are kept. Raise CellblockError."""
        self._exports = exports
        log = self._open_log()
        try:
            await self._run_all(executor, log)
        finally:
            log.close()
        return RunResult(tuple(self._results), executor.gaps, self._signal)

    def _open_log(self) -> RunLog:
        try:
            log = RunLog(self._folder, resumed=self._request.resume)
            recover(self._folder, log)
            if self._request.resume:
                log.load()
        except OSError as exc:
            raise OutputFolderError(f"{self._folder.path}: {exc.strerror}") from None
        return log

    async def _run_all(self, executor: Executor, log: RunLog) -> None:
        """Run all, as many at once as the executor has slots."""
        waiting = iter(self._request.notebooks)
        loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        try:
            while True:
                for _ in range(max(1, executor.slots) - len(tasks)):
                    tasks.add(loop.create_task(self._run_in_turn(executor, log, waiting)))
                ended, going = await asyncio.wait(
                    tasks, timeout=_POLL, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in ended:
                    task.result()  # raises what it has raised
                if not going:
                    return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_in_turn(
        self, executor: Executor, log: RunLog, waiting: Iterator[PlannedNotebook]
    ) -> None:
        """Run one notebook after another."""
        for planned in waiting:
            if self._signal:
                why = "the run was ended before"
                self._end(planned.name, NotebookStatus.skipped, why)
            else:
                await self._run_one(planned, executor, log)

    async def _run_one(self, planned: PlannedNotebook, executor: Executor, log: RunLog) -> None:
        try:
            content = plan.read(planned)
        except OSError as exc:
            why = "it can't be read: " + (exc.strerror or str(exc))
            if exc.errno == errno.ELOOP:
                why = "it is a link, and those are followed only where they are named"
            self._end(planned.name, NotebookStatus.unreadable, why)
            return
        key = self._request.options.key(content, executor.digest)
        known = log.find(planned.output, key, passed=self._request.again)
        if known is not None:
            self._add(known)
            return
        self._progress.began(planned.name)
        saver = FileSaver(self._folder, planned.output, key, asyncio.get_running_loop())
        done = False
        try:
            job = self._job(planned, content)
            result = await executor.run(job, self._request.options, saver)
            log.append(planned.output, key, result)
            done = True
        except OSError as exc:
            why = f"its record can't be written: {exc.strerror}"
            result = NotebookResult(notebook=planned.name, status=NotebookStatus.killed, reason=why)
        finally:
            saver.close(done=done)
        self._add(result)

    def _job(self, planned: PlannedNotebook, content: bytes) -> Job:
        """Return the job for a notebook. Raise OSError where its artifacts have no folder."""
        artifacts = None
        if self._exports:
            artifacts = self._folder.remove_folder(planned.artifacts)
        return Job(planned.name, content, absolute(planned.path.parent), artifacts)

    def _end(self, name: str, status: NotebookStatus, why: str) -> None:
        self._add(NotebookResult(notebook=name, status=status, reason=why))

    def _add(self, result: NotebookResult) -> None:
        self._results.append(result)
        self._progress.ended(result)

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Let signals end the run in good order, except those that its parent has it ignore."""
        loop = asyncio.get_running_loop()
        handled = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        if not self._signal:
            self._progress.stopping()
        self._signal = number
        if self.executor is not None:
            self.executor.stop()


# --- what a run writes is out of the cells' reach -------------------------------------------------


def check_out_of_reach(
    request: RunRequest, folder: OutputFolder, write_roots: Sequence[str]
) -> None:
    """Raise OutputFolderError where cells could change what is written, or where it leads."""
    roots = list(map(os.path.realpath, write_roots))
    for path in _written(request, folder):
        for root in roots:
            if within(path, root):
                what = f"cells could change what is written: {root} is writable"
                raise OutputFolderError(f"{path}: {what}. Name another place.")


def _written(request: RunRequest, folder: OutputFolder) -> Iterator[str]:
    """Yield the paths that a run writes to. Links in DIR are not followed, those to it are."""
    path = Path(os.path.realpath(folder.path))
    yield str(path)
    yield str(path / OWN)
    for planned in request.notebooks:
        yield str(path / planned.output)
    if request.report is not None:
        yield str(Path(os.path.realpath(request.report.parent), request.report.name))


def check_artifact_folders(notebooks: Sequence[PlannedNotebook], folder: OutputFolder) -> None:
    """Raise OutputFolderError where a notebook's artifacts would be among another's files."""
    taken = dict[str, PlannedNotebook]()
    for planned in notebooks:
        first = taken.setdefault(planned.artifacts, planned)
        if first is not planned:
            raise _shared(planned.artifacts, planned, first, folder)
    for planned in notebooks:
        for above in PurePosixPath(planned.output).parents:
            if (other := taken.get(str(above))) is not None:
                raise _shared(str(above), planned, other, folder)


def _shared(
    name: str, one: PlannedNotebook, other: PlannedNotebook, folder: OutputFolder
) -> OutputFolderError:
    what = f"files of {other.name}'s cells would be among those of {one.name}"
    return OutputFolderError(f"{folder.path}/{name}: {what}. Run them into two folders.")
