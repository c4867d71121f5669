"""A run: the notebooks that PATHS name, several at once, their files, and the report.

**Planning** (`plan`). A notebook in the current folder has its path from there as its name in DIR,
the output folder. Any other notebook has its whole path. So two notebooks are never written to one
file.

**Running** (`Run`). An `Executor` runs the notebooks: in guests of this process (`LocalExecutor`),
or in the workers of a cluster (`batch.cluster`). A signal ends the run in good order.

**Writing** (`OutputFolder`). Cells can't reach anything that a run writes. No name leads out of
DIR, and no reader sees half a file. DIR may be part of a checkout, so links in it are not followed.
Beside the notebooks' files, the subfolder ``.cellblock`` has files of the run's own:

- the *run log*, ``run.jsonl`` (`RunLog`): a line for each notebook that passed, which ``--resume``
  reads. A line that was cut off is ignored, and so is anything else that is no entry;
- files that are not complete yet, and the lock.

**Reporting.** Each result is printed when it is known, and a summary at the end; `junit` makes
JUnit XML. No text in them is a command to a terminal or a CI runner (`report_formats.inert`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import signal
from collections import Counter
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from textwrap import wrap
from typing import TYPE_CHECKING, Final, Protocol
from xml.etree import ElementTree as ET

import msgspec
from msgspec.structs import replace

from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.batch import files
from cellblock.batch.report_formats import inert, one_line
from cellblock.batch.run import notebook
from cellblock.batch.run.execution import (
    Execution,
    Job,
    NotebookResult,
    NotebookStatus,
    PolicyPools,
    clip_reason,
)
from cellblock.batch.verdict import FileKind, Problem
from cellblock.descriptors import FILE, FOLDER, NEW, closing, remove_tree
from cellblock.errors import CellblockError
from cellblock.policy import paths
from cellblock.policy.paths import within
from cellblock.render.cards import count
from cellblock.render.policy_card import gaps_text
from cellblock.render.tables import BY_RUN
from cellblock.render.text import clip, visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from cellblock.batch.run.document import Document
    from cellblock.batch.run.execution import RunOptions
    from cellblock.policy.model import Gap


#: Lines of a reason that are printed, and their columns.
_MAX_LINES: Final = 12
_COLUMNS: Final = 120
_STATUS_WIDTH: Final = max(map(len, NotebookStatus))


# --- printed texts --------------------------------------------------------------------------------


def result_text(result: NotebookResult) -> str:
    """Return a result in a line, followed by the reason if the notebook did not pass."""
    facts = [count(result.cells, "cell"), f"{result.seconds:.2f} s"]
    facts += [count(result.errors, "allowed error")] if result.errors else []
    facts += ["kept"] if result.kept else []
    head = one_line(f"{result.status:<{_STATUS_WIDTH}}  {result.notebook}  ({', '.join(facts)})")
    if result.status is NotebookStatus.passed or not result.reason:
        return head
    text = visible_lines(_cell_prefix(result) + result.reason)
    # The host's reason and remedy, which it adds to an error, are wrapped instead of cut.
    text = text.replace(" [cellblock: ", "\n[cellblock: ")
    lines = [
        part
        for line in text.split("\n")
        if line.strip()
        for part in (wrap(line, _COLUMNS) if line.startswith("[cellblock: ") else [line])
    ]
    more = [f"… {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
    reason = [inert(f"    {clip(line, _COLUMNS)}") for line in lines[:_MAX_LINES] + more]
    return "\n".join([head, *reason])


def _cell_prefix(result: NotebookResult) -> str:
    return f"cell {result.cell}: " if result.cell else ""


def totals(results: Sequence[NotebookResult], seconds: float) -> str:
    """Return a line with the number of notebooks of each status."""
    by_status = Counter(result.status for result in results)
    counts = [f"{by_status[status]} {status}" for status in NotebookStatus if by_status[status]]
    resumed = sum(result.kept for result in results)
    rate = (len(results) - resumed) / seconds if seconds > 0 else 0.0
    text = f"{count(len(results), 'notebook')}: {', '.join(counts) or 'none run'}"
    text += f" ({resumed} of them in an earlier run)" if resumed else ""
    return f"{text}; {seconds:.1f} s, {rate:.1f} a second"


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


class Progress:
    """The printer of a run's progress: each result, when it is known."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def ended(self, result: NotebookResult) -> None:
        """Print the result of a notebook."""
        _print(self._console, result_text(result))

    def stopping(self) -> None:
        """Print that a signal ends the run, and what the run waits for."""
        _print(self._console, "Stopping: cells that still run are interrupted, and then killed.")

    def message(self, text: str) -> None:
        """Print a message to the user."""
        _print(self._console, one_line(text))


def print_summary(console: Console, run: RunResult, seconds: float) -> None:
    """Print staged files, every gap in enforcement (promise P7), and the totals."""
    if staged := sum(bool(result.staged) for result in run.results):
        summary = (
            f"Cells of {count(staged, 'notebook')} wrote to the project: your files are unchanged."
        )
        instruction = (
            "`cellblock changes list` lists it for a week. Or run with --changes keep, drop or DIR."
        )
        _print(console, f"{summary}\n{instruction}")
    for line in gaps_text(run.gaps).splitlines() if run.gaps else ():
        _print(console, one_line(line))
    _print(console, totals(run.results, seconds))


# --- JUnit XML, as CI servers read it: a test case for each notebook ------------------------------
# Source: the schema of Jenkins' xUnit plugin, which GitLab and others take, too.

#: Characters that XML 1.0 can't have, not even escaped.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(results: Sequence[NotebookResult], seconds: float) -> str:
    """Return the report as JUnit XML. It has no commands to a CI runner that prints it."""
    kinds = Counter(map(_junit_element, results))
    counts = {
        "tests": str(len(results)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "skipped": str(kinds["skipped"]),
        "time": f"{seconds:.3f}",
    }
    root = ET.Element("testsuites", {"name": "cellblock run", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "cellblock run", **counts})
    for result in results:
        _add_case(suite, result)
    ET.indent(root)
    return inert(ET.tostring(root, encoding="unicode", xml_declaration=False)) + "\n"


def _add_case(suite: ET.Element, result: NotebookResult) -> None:
    folder, _, name = _legal(result.notebook).rpartition("/")
    attributes = {"classname": folder or ".", "name": name, "time": f"{result.seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", attributes)
    if (kind := _junit_element(result)) is not None:
        text = _legal(result.reason)
        message = _cell_prefix(result) + (text.splitlines() or [""])[0]
        status = result.status.replace(" ", "-")
        ET.SubElement(case, kind, {"message": message, "type": status}).text = text


def _junit_element(result: NotebookResult) -> str | None:
    """Return the name of the element that says why a notebook did not pass; None if it passed."""
    match result.status:
        case NotebookStatus.passed:
            return None
        case NotebookStatus.failed | NotebookStatus.denied:  # the notebook is the cause
            return "failure"
        case NotebookStatus.skipped | NotebookStatus.interrupted:  # it was not tested to its end
            return "skipped"
    return "error"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)


# --- the output folder ----------------------------------------------------------------------------

#: The subfolder of DIR with the run's own files.
OWN: Final = ".cellblock"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: O_NONBLOCK: a named pipe in the file's place must not block the run.
_APPEND: Final = _CREATE | os.O_APPEND | os.O_NONBLOCK
#: The end of names of files that are not complete yet.
_PARTIAL: Final = ".part"
_BUFFER: Final = 1 << 18


class OutputFolderError(CellblockError):
    """The error for an output folder that can't be written to, or must not be by this run."""


class OutputFolder:
    """The output folder, DIR. It is made if missing, and locked for this run until it is closed.

    Every path in it is opened part by part from its descriptor, without following links.
    """

    def __init__(self, path: Path) -> None:
        """Open, lock and clean the folder. Raise OutputFolderError if it can't be used."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._root = os.open(path, FOLDER & ~os.O_NOFOLLOW)
            self._own = _make_folder(OWN, self._root)
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be written to: {exc.strerror}") from None
        try:
            self._lock = self.append_to("lock")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = "another run writes there. Wait for it, or name another folder"
            raise OutputFolderError(f"{path}: {problem}.") from None
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be locked: {exc.strerror}") from None
        for name in self.names(_PARTIAL):
            self.remove(name)

    def close(self) -> None:
        """Unlock the folder."""
        for descriptor in (self._lock, self._own, self._root):
            os.close(descriptor)

    # --- the user's files -----------------------------------------------------------------------

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file completely or not at all, and make its folders. Raise OSError."""
        partial_name = f"{os.urandom(8).hex()}{_PARTIAL}"
        with os.fdopen(os.open(partial_name, NEW, 0o666, dir_fd=self._own), "wb", _BUFFER) as file:
            file.writelines(content)
        try:
            with self._parent_of(name) as (folder, file_name):
                os.replace(partial_name, file_name, src_dir_fd=self._own, dst_dir_fd=folder)
        except OSError:
            self.remove(partial_name)
            raise

    def remove_folder(self, name: str) -> str:
        """Remove a folder if it is there, and return its path. Raise OSError."""
        with self._parent_of(name) as (folder, folder_name):
            remove_tree(f"/proc/self/fd/{folder}/{folder_name}")
        return str(self.path.resolve() / name)

    @contextlib.contextmanager
    def _parent_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the folder of a file, made if missing, and the file's name there. Raise OSError.

        The folder is a descriptor, which is closed afterwards.
        """
        *folders, file_name = name.split("/")
        invalid = "\0" in name or any(folder in {"", ".", ".."} for folder in (*folders, file_name))
        if invalid or folders[:1] == [OWN]:
            raise OSError(errno.EINVAL, "not a name that a file there may have")
        parent = os.dup(self._root)
        try:
            for folder in folders:
                parent, previous = _make_folder(folder, parent), parent
                os.close(previous)
            yield parent, file_name
        finally:
            os.close(parent)

    # --- the run's own files --------------------------------------------------------------------

    def keep(self, folder: str, name: str, content: bytes) -> None:
        """Write a new file into a folder of the run's own. Raise OSError."""
        with closing(_make_folder(folder, self._own)) as parent:
            descriptor = os.open(name, NEW, 0o600, dir_fd=parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)

    def append_to(self, name: str) -> int:
        """Return a descriptor for appending to a file of the run's own. Raise OSError."""
        return os.open(name, _APPEND, 0o600, dir_fd=self._own)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of the run's own, each with its end. Raise OSError."""
        with os.fdopen(os.open(name, FILE, dir_fd=self._own), "rb") as file:
            yield from file

    def names(self, ending: str) -> list[str]:
        """Return the names of the run's own files that have this ending."""
        with os.scandir(self._own) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(ending))

    def remove(self, name: str) -> None:
        """Remove a file of the run's own, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._own)


def _make_folder(name: str, folder: int) -> int:
    """Return a descriptor of the folder ``name`` in ``folder``, made if missing. Raise OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, FOLDER, dir_fd=folder)


# --- the run log ----------------------------------------------------------------------------------

_RUN_LOG: Final = "run.jsonl"


class _LogEntry(msgspec.Struct, frozen=True):
    """An entry of the run log: a notebook's file, its key, and its result.

    ``output`` is the name of the file, as bytes in hex, since a name need not be valid text.
    """

    output: str
    key: str
    record: NotebookResult


_encode: Final = msgspec.json.Encoder().encode
_decode_entry: Final = msgspec.json.Decoder(_LogEntry).decode


class RunLog:
    """The log of the notebooks that passed: in this run and, if it is ``resumed``, earlier runs."""

    def __init__(self, folder: OutputFolder, *, resumed: bool) -> None:
        """Open and read the log. Raise OSError if it can't be read or written."""
        self._known: dict[str, _LogEntry] = {}
        if not resumed:
            folder.remove(_RUN_LOG)
        self._descriptor = folder.append_to(_RUN_LOG)
        os.write(self._descriptor, b"\n")  # ends a line that was cut off
        for line in folder.lines(_RUN_LOG):
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):  # no entry: ignored
                entry = _decode_entry(line)
                self._known[entry.output] = entry

    def append(self, output: str, key: str, result: NotebookResult) -> None:
        """Append the result of a notebook that passed. Raise OSError."""
        entry = _LogEntry(os.fsencode(output).hex(), key, result)
        os.write(self._descriptor, _encode(entry) + b"\n")

    def find(self, output: str, key: str) -> NotebookResult | None:
        """Return the earlier result of a notebook that passed with this key, or None."""
        entry = self._known.get(os.fsencode(output).hex())
        if entry is None or entry.key != key or entry.record.status is not NotebookStatus.passed:
            return None
        return msgspec.structs.replace(entry.record, kept=True)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds between two looks at an executor's number of slots.
_POLL: Final = 1.0
_NO_NOTEBOOK: Final = "no notebook is there"
_NOT_NOTEBOOK: Final = "only notebooks are run (.ipynb)"
#: Messages in place of those of `files.find`, which speak of scripts: scripts can't be run.
_MESSAGES: Final = {files.NOTHING_FOUND: _NO_NOTEBOOK, files.WRONG_KIND: _NOT_NOTEBOOK}


# --- planning: which notebooks are run, and the files that they are written to --------------------


@dataclass(frozen=True, slots=True)
class PlannedNotebook:
    """A notebook to run.

    ``output`` is the name of its file in DIR, and ``name`` the name that messages have.
    """

    file: files.File
    output: str
    name: str

    @property
    def artifacts(self) -> str:
        """The name of the folder in DIR that files of its cells are copied to."""
        return self.output.rpartition(".")[0] + ".artifacts"

    @property
    def receipt(self) -> str:
        """The name of its receipt in DIR."""
        return self.output.rpartition(".")[0] + ".receipt.json"


def plan(
    paths: Sequence[str], output_dir: Path, exclude: Sequence[str] = ()
) -> tuple[list[PlannedNotebook], list[Problem]]:
    """Return the notebooks that ``paths`` name, in a stable order, and the problems with paths.

    Notebooks that an earlier run has written to ``output_dir`` are left out, unless a path leads
    there.
    """
    files_found, problems = files.find(paths, exclude)
    problems = [
        Problem(problem.path, _MESSAGES.get(problem.message, problem.message))
        for problem in problems
    ]
    folder = os.path.realpath(output_dir)
    named_paths = {files.absolute(path) for path in paths}
    skips_outputs = not any(within(os.path.realpath(path), folder) for path in paths)
    planned = dict[str, PlannedNotebook]()
    for file in files_found:
        path, real = files.absolute(file.path), os.path.realpath(file.path)
        if file.kind is not FileKind.notebook:
            problems += [Problem(file.shown, _NOT_NOTEBOOK)] if path in named_paths else []
            continue
        if skips_outputs and within(real, folder):
            continue
        shown_path = Path(file.shown)
        outside = shown_path.is_absolute() or shown_path.parts[0] in {"..", OWN}
        output = path.lstrip("/") if outside else file.shown
        new = PlannedNotebook(file, output, visible(file.shown))
        if (same_output := planned.get(output)) is not None:
            message = f"would be written to the same file as {same_output.name}"
            problems.append(Problem(new.name, message))
        if os.path.realpath(Path(folder, output)) == real:
            problems.append(Problem(new.name, "would be overwritten: name another --output-dir"))
        planned[output] = new
    if not planned and not problems:
        problems.append(Problem(" ".join(paths), _NO_NOTEBOOK))
    return list(planned.values()), problems


# --- running them ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run, under which policies, and how.

    ``notebooks`` has the name of the policy of each notebook. ``jobs`` is the number of notebooks
    that run at once. With ``resume``, notebooks that passed in an earlier run are not run again.
    ``report`` is the file of the report, which the caller writes when the run has ended.
    """

    notebooks: Mapping[PlannedNotebook, str]
    allow_unsafe: bool
    options: RunOptions
    jobs: int
    resume: bool = False
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run. ``signal`` is the number of the signal that ended it, or 0."""

    results: tuple[NotebookResult, ...]
    gaps: tuple[Gap, ...]
    signal: int


class Executor(Protocol):
    """The interface of whatever runs notebooks, each under the policy of its job."""

    def digest(self, policy: str, /) -> str:
        """Return the digest of the policy with this name."""

    @property
    def slots(self) -> int:
        """The number of notebooks that may run at once now. It may grow."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps in enforcement, known once a notebook has run."""

    async def run(self, job: Job, options: RunOptions) -> tuple[NotebookResult, Document | None]:
        """Run a notebook. Return its result, and the executed notebook if it could be read.

        Raises nothing for a faulty notebook: the result says what is wrong.
        """

    def stop(self) -> None:
        """End the notebooks that run, soon; if called a second time, at once."""


class LocalExecutor:
    """The executor that runs notebooks in guests of this process.

    ``pools`` has the pools of each policy, by the policy's name.
    """

    def __init__(self, pools: Mapping[str, PolicyPools], slots: int) -> None:
        self._pools = pools
        self.slots = slots
        self.gaps: tuple[Gap, ...] = ()
        self._running: set[Execution] = set()

    def digest(self, policy: str, /) -> str:
        """Return the digest of the policy with this name."""
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
            known_gaps = {(gap.capability, gap.consequence) for gap in self.gaps}
            new = (
                gap for gap in execution.gaps if (gap.capability, gap.consequence) not in known_gaps
            )
            self.gaps = (*self.gaps, *new)

    def stop(self) -> None:
        """Interrupt the cells that run, and kill those that go on."""
        for execution in self._running:
            execution.stop()


def run(request: RunRequest, folder: OutputFolder, progress: Progress) -> RunResult:
    """Run the notebooks in guests of this process. Raise CellblockError if none can be run."""
    return asyncio.run(_run(request, folder, progress))


async def _run(request: RunRequest, folder: OutputFolder, progress: Progress) -> RunResult:
    run = Run(request, folder, progress)
    with run.handling_signals():
        async with AsyncExitStack() as stack:
            pools = dict[str, PolicyPools]()
            exports = False
            for policy in dict.fromkeys(request.notebooks.values()):
                unopened = AsyncSandboxPool(
                    policy, project=Path.cwd(), allow_unsafe=request.allow_unsafe
                )
                unopened.kept_by = BY_RUN
                pool = await stack.enter_async_context(unopened)
                check_out_of_reach(request, folder, pool.config.prepare.plan.write_roots)
                exports = exports or bool(pool.config.policy.artifact_export_paths)
                pools[policy] = await stack.enter_async_context(PolicyPools(pool))
            if exports:
                check_artifact_folders(tuple(request.notebooks), folder)
            notebook.warm_up()  # meanwhile the zygotes prepare themselves
            run.executor = LocalExecutor(pools, request.jobs)
            return await run.run(run.executor, exports=exports)


class Run:
    """One run on an asyncio loop. Single use. Signals stop its ``executor``, once it has one."""

    def __init__(self, request: RunRequest, folder: OutputFolder, progress: Progress) -> None:
        self._request = request
        self._folder = folder
        self._progress = progress
        self._results: list[NotebookResult] = []
        self.executor: Executor | None = None
        self._signal = 0

    async def run(self, executor: Executor, *, exports: bool) -> RunResult:
        """Run all notebooks; with ``exports``, copy cells' files out. Raise CellblockError."""
        try:
            log = RunLog(self._folder, resumed=self._request.resume)
        except OSError as exc:
            raise OutputFolderError(f"{self._folder.path}: {exc.strerror}") from None
        waiting = iter(self._request.notebooks)

        # A task for each slot: all of them take notebooks from the same iterator.
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
                finished, pending = await asyncio.wait(
                    tasks, timeout=_POLL, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in finished:
                    task.result()  # raise an exception of the task's here
                if not pending:
                    return RunResult(tuple(self._results), executor.gaps, self._signal)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            log.close()

    async def _result(
        self, planned: PlannedNotebook, executor: Executor, log: RunLog, *, exports: bool
    ) -> NotebookResult:
        """Return the result of a notebook: an earlier run's, or that of running it now."""
        if self._signal:
            return _not_run(planned, NotebookStatus.skipped, "the run was ended before")
        try:
            content = files.read(planned.file)
        except (OSError, files.NoFileError) as exc:
            why = f"it can't be read: {exc.strerror}" if isinstance(exc, OSError) else f"it {exc}"
            return _not_run(planned, NotebookStatus.unreadable, why)
        policy = self._request.notebooks[planned]
        key = self._request.options.key(content, executor.digest(policy))
        earlier_result = log.find(planned.output, key)
        if earlier_result is not None:
            return earlier_result
        result = _not_run(planned, NotebookStatus.killed, "")
        try:
            artifacts = self._folder.remove_folder(planned.artifacts) if exports else None
            options = self._request.options
            folder = files.absolute(planned.file.path.parent)
            changes = options.changes_folder(planned.output)
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
        handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
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


# --- cells can't reach what a run writes ----------------------------------------------------------


def check_out_of_reach(
    request: RunRequest, folder: OutputFolder, write_roots: Sequence[str]
) -> None:
    """Raise OutputFolderError if cells could change a file that the run writes, or its path.

    ``write_roots`` are the folders that cells can write to.
    """
    # Links in DIR are not followed when files are written, but links on the way to DIR are.
    path = Path(os.path.realpath(folder.path))
    output_paths = [path, path / OWN, *(path / planned.output for planned in request.notebooks)]
    output_paths += [
        Path(os.path.realpath(file)) for file in (request.options.changes,) if "/" in file
    ]
    if request.report is not None:
        output_paths.append(Path(os.path.realpath(request.report.parent), request.report.name))
    roots = list(map(os.path.realpath, write_roots))
    for file in output_paths:
        for root in roots:
            if within(str(file), root):
                problem = f"cells could change what is written: {root} is writable"
                raise OutputFolderError(f"{file}: {problem}. Name another place.")


def check_artifact_folders(notebooks: Sequence[PlannedNotebook], folder: OutputFolder) -> None:
    """Raise OutputFolderError if a notebook's artifacts would be among another's files."""
    owners = dict[str, PlannedNotebook]()
    for planned in notebooks:
        owners.setdefault(planned.artifacts, planned)
    for planned in notebooks:
        for name in (planned.artifacts, *map(str, PurePosixPath(planned.output).parents)):
            if (owner := owners.get(name, planned)) is not planned:
                problem = f"files of {owner.name}'s cells would be among those of {planned.name}"
                folder_path = f"{folder.path}/{name}"
                raise OutputFolderError(
                    f"{folder_path}: {problem}. Give each an output folder of its own."
                )
