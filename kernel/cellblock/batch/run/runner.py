"""A run: from PATHS to notebooks, so many of them at once, and an end that leaves nothing behind.

A notebook in the current folder keeps its path from there as its name in DIR; any other keeps its
whole path. So no two are written to one file, however they are called.

What runs them is an `Executor`: guests of this process (`LocalExecutor`), or the workers of a
cluster (`batch.cluster`). Nothing that a run writes is in the cells' reach.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.batch import files
from cellblock.batch.run import notebook
from cellblock.batch.run.execution import (
    Execution,
    Job,
    NotebookResult,
    NotebookStatus,
    PolicyPools,
    clip_reason,
)
from cellblock.batch.run.output_folder import (
    OWN,
    OutputFolder,
    OutputFolderError,
    RunLog,
)
from cellblock.batch.verdict import FileKind, Problem
from cellblock.policy import paths
from cellblock.policy.paths import within
from cellblock.render.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cellblock.batch.run.document import Document
    from cellblock.batch.run.execution import RunOptions
    from cellblock.batch.run.report import Progress
    from cellblock.policy.enforcement import Gap

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds between looks at whether an executor has more slots.
_POLL: Final = 1.0
_NO_NOTEBOOK: Final = "no notebook is there"
_NOT_NOTEBOOK: Final = "only notebooks are run (.ipynb)"
#: What is said instead of the messages of `files.find`, as scripts can't be run.
_MESSAGES: Final = {files.NOTHING_FOUND: _NO_NOTEBOOK, files.WRONG_KIND: _NOT_NOTEBOOK}


# --- which notebooks are run, and as which files --------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedNotebook:
    """A notebook to run.

    ``output`` is the name of its file in DIR, ``name`` what it is called.
    """

    file: files.File
    output: str
    name: str

    @property
    def artifacts(self) -> str:
        """The folder in DIR that files of its cells are copied to."""
        return self.output.rpartition(".")[0] + ".artifacts"

    @property
    def receipt(self) -> str:
        """The name of its receipt in DIR."""
        return self.output.rpartition(".")[0] + ".receipt.json"


def plan(
    paths: Sequence[str], output_dir: Path, exclude: Sequence[str] = ()
) -> tuple[list[PlannedNotebook], list[Problem]]:
    """Return the notebooks that ``paths`` name, in a stable order, and what is wrong with those.

    What an earlier run has written to ``output_dir`` is left out.
    """
    found, problems = files.find(paths, exclude)
    problems = [Problem(one.path, _MESSAGES.get(one.message, one.message)) for one in problems]
    folder, given = os.path.realpath(output_dir), {files.absolute(path) for path in paths}
    skips_outputs = not any(within(os.path.realpath(path), folder) for path in paths)
    planned = dict[str, PlannedNotebook]()
    for file in found:
        path, real = files.absolute(file.path), os.path.realpath(file.path)
        if file.kind is not FileKind.notebook:
            problems += [Problem(file.shown, _NOT_NOTEBOOK)] if path in given else []
            continue
        if skips_outputs and within(real, folder):
            continue
        shown = Path(file.shown)
        outside = shown.is_absolute() or shown.parts[0] in {"..", OWN}
        output = path.lstrip("/") if outside else file.shown
        one = PlannedNotebook(file, output, visible(file.shown))
        if (other := planned.get(output)) is not None:
            what = f"would be written to the same file as {other.name}"
            problems.append(Problem(one.name, what))
        if os.path.realpath(Path(folder, output)) == real:
            problems.append(Problem(one.name, "would be overwritten: name another --output-dir"))
        planned[output] = one
    if not planned and not problems:
        problems.append(Problem(" ".join(paths), _NO_NOTEBOOK))
    return list(planned.values()), problems


# --- running them ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run, under which policy, and how.

    ``notebooks`` names the policy of each.
    ``resume`` takes over what passed in an earlier run.
    ``report`` is a file that is written when all has ended.
    """

    notebooks: Mapping[PlannedNotebook, str]
    allow_unsafe: bool
    options: RunOptions
    jobs: int
    resume: bool = False
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run went. ``signal`` is the one that ended it, or 0."""

    results: tuple[NotebookResult, ...]
    gaps: tuple[Gap, ...]
    signal: int


class Executor(Protocol):
    """Runs notebooks, each under the policy of its job."""

    def digest(self, policy: str, /) -> str:
        """Return the digest of the policy of this name."""

    @property
    def slots(self) -> int:
        """How many notebooks are to run at once now. There may be more later."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the policy asks for and is not enforced; known once a notebook has run."""

    async def run(self, job: Job, options: RunOptions) -> tuple[NotebookResult, Document | None]:
        """Run a notebook; return it, too, if it could be read. What is wrong is its result."""

    def stop(self) -> None:
        """End what runs soon; when called twice, at once."""


class LocalExecutor:
    """Runs notebooks in guests of this process. ``pools`` has those of each policy by its name."""

    def __init__(self, pools: Mapping[str, PolicyPools], slots: int) -> None:
        self._pools, self.slots = pools, slots
        self.gaps: tuple[Gap, ...] = ()
        self._running: set[Execution] = set()

    def digest(self, policy: str, /) -> str:
        """Return the digest of the policy of this name."""
        config = self._pools[policy].operators.config
        return paths.without_scratch(config.policy, Path(config.prepare.scratch)).digest()

    async def run(self, job: Job, options: RunOptions) -> tuple[NotebookResult, Document | None]:
        """Run a notebook in a sandbox of the pool that has its policy."""
        execution = Execution(job, options)
        self._running.add(execution)
        try:
            result = await execution.run(self._pools[job.policy])
            return result, execution.document
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
        async with AsyncExitStack() as stack:
            pools, exports = dict[str, PolicyPools](), False
            for policy in dict.fromkeys(request.notebooks.values()):
                unopened = AsyncSandboxPool(policy, allow_unsafe=request.allow_unsafe)
                pool = await stack.enter_async_context(unopened)
                check_out_of_reach(request, folder, pool.config.prepare.plan.write_roots)
                exports = exports or bool(pool.config.policy.artifact_export_paths)
                pools[policy] = await stack.enter_async_context(PolicyPools(pool))
            if exports:
                check_artifact_folders(tuple(request.notebooks), folder)
            notebook.warm_up()  # while zygotes prepare
            run.executor = LocalExecutor(pools, request.jobs)
            return await run.run(run.executor, exports=exports)


class Run:
    """One run on an asyncio loop; single use. A signal stops its ``executor``, if it has one."""

    def __init__(self, request: RunRequest, folder: OutputFolder, progress: Progress) -> None:
        self._request, self._folder, self._progress = request, folder, progress
        self._results: list[NotebookResult] = []
        self.executor: Executor | None = None
        self._signal = 0

    async def run(self, executor: Executor, *, exports: bool) -> RunResult:
        """Run all notebooks. With ``exports``, cells' files are kept. Raise CellblockError."""
        try:
            log = RunLog(self._folder, resumed=self._request.resume)
        except OSError as exc:
            raise OutputFolderError(f"{self._folder.path}: {exc.strerror}") from None
        waiting = iter(self._request.notebooks)

        async def run_in_turn() -> None:
            for planned in waiting:
                result = await self._result(planned, executor, log, exports=exports)
                self._results.append(result)
                self._progress.ended(result)

        tasks = set[asyncio.Task[None]]()
        try:
            while True:
                for _ in range(max(1, executor.slots) - len(tasks)):
                    tasks.add(asyncio.create_task(run_in_turn()))
                ended, going = await asyncio.wait(
                    tasks, timeout=_POLL, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in ended:
                    task.result()  # raises what it has raised
                if not going:
                    return RunResult(tuple(self._results), executor.gaps, self._signal)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            log.close()

    async def _result(
        self, planned: PlannedNotebook, executor: Executor, log: RunLog, *, exports: bool
    ) -> NotebookResult:
        """Return the result of a notebook: an earlier run's, or that of running it."""
        if self._signal:
            return _not_run(planned, NotebookStatus.skipped, "the run was ended before")
        try:
            content = files.read(planned.file)
        except (OSError, files.NoFileError) as exc:
            why = f"it can't be read: {exc.strerror}" if isinstance(exc, OSError) else f"it {exc}"
            return _not_run(planned, NotebookStatus.unreadable, why)
        policy = self._request.notebooks[planned]
        key = self._request.options.key(content, executor.digest(policy))
        known = log.find(planned.output, key)
        if known is not None:
            return known
        result = _not_run(planned, NotebookStatus.killed, "")
        try:
            artifacts = self._folder.remove_folder(planned.artifacts) if exports else None
            options, folder = self._request.options, files.absolute(planned.file.path.parent)
            changes = options.changes_folder(planned)
            job = Job(planned.name, content, folder, policy, artifacts, changes)
            result, document = await executor.run(job, options)
            if document is not None:
                pieces = document.file_content()
                await asyncio.to_thread(self._folder.write, planned.output, pieces)
            if result.receipt:
                self._folder.write(planned.receipt, [result.receipt.encode()])
                result = replace(result, receipt="")
            if result.status is NotebookStatus.passed:
                log.append(planned.output, key, result)
        except OSError as exc:
            why = clip_reason(f"its output can't be written: {exc.strerror}")
            return replace(result, status=NotebookStatus.killed, reason=why, cell=0)
        return result

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


def _not_run(planned: PlannedNotebook, status: NotebookStatus, why: str) -> NotebookResult:
    return NotebookResult(notebook=planned.name, status=status, reason=why)


# --- what a run writes is out of the cells' reach -------------------------------------------------


def check_out_of_reach(
    request: RunRequest, folder: OutputFolder, write_roots: Sequence[str]
) -> None:
    """Raise OutputFolderError where cells could change what is written, or where it leads."""
    # Links in DIR are not followed, those to it are.
    path = Path(os.path.realpath(folder.path))
    written = [path, path / OWN, *(path / planned.output for planned in request.notebooks)]
    written += [Path(os.path.realpath(one)) for one in (request.options.changes,) if "/" in one]
    if request.report is not None:
        written.append(Path(os.path.realpath(request.report.parent), request.report.name))
    roots = list(map(os.path.realpath, write_roots))
    for one in written:
        for root in roots:
            if within(str(one), root):
                what = f"cells could change what is written: {root} is writable"
                raise OutputFolderError(f"{one}: {what}. Name another place.")


def check_artifact_folders(notebooks: Sequence[PlannedNotebook], folder: OutputFolder) -> None:
    """Raise OutputFolderError where a notebook's artifacts would be among another's files."""
    owners = dict[str, PlannedNotebook]()
    for planned in notebooks:
        owners.setdefault(planned.artifacts, planned)
    for planned in notebooks:
        for name in (planned.artifacts, *map(str, PurePosixPath(planned.output).parents)):
            if (owner := owners.get(name, planned)) is not planned:
                what = f"files of {owner.name}'s cells would be among those of {planned.name}"
                where = f"{folder.path}/{name}"
                raise OutputFolderError(f"{where}: {what}. Run them into two folders.")
