"""The execution of one notebook, from its bytes to its result, in a sandbox of a warm pool.

- `Job` and `RunOptions` say what is run and how; `NotebookResult` says how it ended.
- `PolicyPools` has a pool for each policy. A notebook's metadata may ask for a narrower policy than
  the operator's, and never gets a wider one (promise P8).
- `Execution` runs the notebook: it reads it, gets its policy, opens a sandbox, runs its cells in
  order until one ends the notebook, and settles the staged files.

It is used unchanged in the process of a run (`batch.run.runner`) and in the workers of a cluster
(`batch.cluster`), which send the document home.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from cellblock import __version__
from cellblock.analysis.magics import may_go_back
from cellblock.api.results import receipts_module
from cellblock.batch.files import UnreadableError
from cellblock.batch.run.document import Document, TooMuchOutputError
from cellblock.batch.run.notebook import (
    EXECUTION,
    cell_after_run,
    cell_before_run,
    now,
    read,
    with_parameters,
)
from cellblock.batch.run.outputs import NotebookOutputs
from cellblock.errors import CellblockError, ChangesError, PolicyError, ReceiptError
from cellblock.host.cell.status import FIELD_OF_STOP
from cellblock.host.services import changes, keeping
from cellblock.jupyter.messages import kernel_info
from cellblock.policy import paths
from cellblock.policy.narrow_requests import NOTEBOOK_TABLE, narrow_for_notebook
from cellblock.render.headings import Heading
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from cellblock.api.result_parts import Provenance
    from cellblock.api.results import Denial, Result, Status, Stop
    from cellblock.api.sandbox import AsyncSandbox, AsyncSandboxPool
    from cellblock.batch.run.notebook import Cell, Notebook
    from cellblock.host.services.changes import Staged
    from cellblock.policy.model import Gap, Policy
    from cellblock.render.outcomes import Refusal

#: Unused pools of narrower policies that are kept for later notebooks: each has a zygote.
MAX_IDLE: Final = 4
#: Seconds from interrupting a cell to killing it, when the run must end.
GRACE: Final = 1.0
#: Seconds that a guest has to be ready: the first guest waits for the policy's preloaded modules.
OPEN_TIMEOUT: Final = 120.0
#: The shortest timeout of a cell, in seconds.
_MIN_TIMEOUT: Final = 0.01
#: The values of ``--changes`` besides a folder.
KEEP: Final = "keep"
DROP: Final = "drop"
#: Characters of the reason why a notebook did not pass.
MAX_REASON: Final = 2_000


# --- jobs and options -----------------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True):
    """A notebook to run: its name, content, folder and policy. Jobs are sent to cluster workers.

    Cells run in ``folder`` if the policy lets them read it. ``artifacts`` is the folder that files
    are copied out to, if the policy exports any. ``changes`` is the folder that staged files are
    written to, or "".
    """

    name: str
    content: bytes
    folder: str
    policy: str = ""
    artifacts: str | None = None
    changes: str = ""

    @property
    def file(self) -> Path:
        """The path of the notebook."""
        return Path(self.folder, Path(self.name).name)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, the same for all notebooks. They are sent to a cluster's workers.

    Timeouts are in seconds: ``timeout`` for a whole notebook, ``cell_timeout`` for each cell, if
    the policy's is not shorter. ``timing`` says whether the times at which cells ran are written.
    ``changes`` says what becomes of the files that a notebook which passed has staged: ``keep``,
    ``drop``, or a folder to write them to. If empty, they stay staged for a week, like those of a
    notebook that did not pass. With ``receipt``, each notebook gets a receipt.
    """

    parameters: dict[str, Any] = {}
    allow_errors: bool = False
    timeout: float | None = None
    cell_timeout: float | None = None
    timing: bool = True
    changes: str = ""
    receipt: bool = False

    def changes_folder(self, output: str) -> str:
        """Return the folder that a notebook's staged files are written to, or "" for none.

        ``output`` is the name of the notebook's file in the output folder.
        """
        is_no_folder = self.changes in {"", KEEP, DROP}
        return "" if is_no_folder else f"{self.changes}/{output.rpartition('.')[0]}.changes"

    def key(self, content: bytes, policy_digest: str) -> str:
        """Return a hash of a notebook and everything that decides how it is run.

        A resumed run skips a notebook that passed with the same key.
        """
        options = msgspec.structs.asdict(self)
        if self.changes in {"", DROP}:  # these two make no difference to what is written
            del options["changes"]
        parts = [__version__, hashlib.sha256(content).hexdigest(), policy_digest, options]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# --- results --------------------------------------------------------------------------------------


class NotebookStatus(StrEnum):
    """How a notebook ended."""

    #: Every cell ran, and only cells failed that were allowed to.
    passed = "passed"
    #: A cell raised an exception.
    failed = "failed"
    #: The policy refused a cell, or the policy that the notebook's metadata asks for.
    denied = "denied"
    #: A cell, or the notebook, took longer than allowed.
    timed_out = "timed out"
    #: A cell was ended from outside (memory, a crash, a breach), or no guest could be had.
    killed = "killed"
    #: The file is not a valid notebook, or exceeds a bound.
    unreadable = "could not read"
    #: The notebook was not begun: its language is not Python, or the run was ended before.
    skipped = "skipped"
    #: The run was ended while the notebook ran.
    interrupted = "interrupted"


#: The notebook's status, by the status of a result, or by why its cell was stopped. Any other way
#: to end a cell counts as killed.
_STATUSES: Final = {
    "cpu": NotebookStatus.timed_out,
    "denied": NotebookStatus.denied,
    "error": NotebookStatus.failed,
    "interrupt": NotebookStatus.interrupted,
    "refused": NotebookStatus.denied,
    "timeout": NotebookStatus.timed_out,
}


class NotebookResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a notebook.

    ``cell`` is the number of the cell that decided the status, counting cells of all types from 1,
    or 0 if none did. ``cells`` is the number of cells that ran, and ``errors`` the number of those
    that failed and were allowed to. Times are in seconds. ``session`` is the name of the audit log.
    ``staged`` is the name by which ``cellblock changes`` knows the files that cells staged, if they
    are still staged. ``kept`` says that the result is an earlier run's. ``receipt`` is the receipt,
    until the run has written it to a file.
    """

    notebook: str
    status: NotebookStatus = msgspec.field(name="fate")  # the name in earlier versions' run logs
    reason: str = ""
    cell: int = 0
    cells: int = 0
    errors: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    session: str = ""
    staged: str = ""
    kept: bool = False
    receipt: str = ""


class Ending(msgspec.Struct, frozen=True):
    """How a notebook ended: its status, the reason, and the number of the cell that decided it."""

    status: NotebookStatus
    reason: str = ""
    cell: int = 0


def clip_reason(text: str) -> str:
    """Return a reason cut to ``MAX_REASON`` characters, without lone surrogates."""
    text = encodable(text.strip())
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


# --- the policy of each notebook, and the pools ---------------------------------------------------


@dataclass(slots=True, eq=False)
class _Entry:
    """A pool, whether it is open, the number of notebooks that use it, and the lock to open it."""

    pool: AsyncSandboxPool
    is_open: bool = False
    users: int = 0
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class PolicyPools:
    """The operator's pool, which the caller opens and closes, and pools of narrower policies.

    A narrower pool is opened when a notebook needs it. Then ``check``, if given, is awaited with
    the pool, and may raise to refuse it. A few unused pools are kept for later notebooks.
    """

    def __init__(
        self,
        operators: AsyncSandboxPool,
        check: Callable[[AsyncSandboxPool], Awaitable[object]] | None = None,
    ) -> None:
        self.operators = operators
        self._check = check
        #: The narrower pools, by the digest of their policy; the most recently used is last.
        self._entries: dict[str, _Entry] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def policy_of(self, notebook: Notebook, job: Job) -> Policy:
        """Return the policy for a notebook.

        Raise PolicyError if its metadata asks for an invalid policy, or for more than the
        operator's.
        """
        config = self.operators.config
        if NOTEBOOK_TABLE not in notebook.metadata:
            return config.policy
        return await asyncio.to_thread(
            narrow_for_notebook,
            notebook.metadata,
            config.policy,
            file=job.file,
            project=config.project,
            scratch=Path(config.prepare.scratch),
        )

    @asynccontextmanager
    async def use(self, policy: Policy) -> AsyncIterator[AsyncSandboxPool]:
        """Yield an open pool of this policy. Raise like ``AsyncSandboxPool.open``."""
        config = self.operators.config
        if policy == config.policy:
            yield self.operators
            return
        digest = paths.without_scratch(policy, Path(config.prepare.scratch)).digest()
        entry = self._entries.pop(digest, None) or _Entry(self.operators.narrowed(policy))
        self._entries[digest] = entry
        entry.users += 1
        try:
            async with entry.opening:
                if not entry.is_open:
                    await self._open(entry.pool)
                    entry.is_open = True
            yield entry.pool
        finally:
            entry.users -= 1
            idle = [digest for digest, entry in self._entries.items() if not entry.users]
            for unused in [self._entries.pop(digest) for digest in idle[:-MAX_IDLE]]:
                await unused.pool.close()

    async def _open(self, pool: AsyncSandboxPool) -> None:
        await pool.open()
        try:
            if self._check is not None:
                await self._check(pool)
        except BaseException:
            await pool.close()
            raise

    async def close(self) -> None:
        """Close the pools of narrower policies."""
        while self._entries:
            _, entry = self._entries.popitem()
            await entry.pool.close()


# --- the execution --------------------------------------------------------------------------------


class Stopwatch:
    """The time that a notebook has taken since the stopwatch was made, and its limit in seconds."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds that the notebook has taken."""
        return time.monotonic() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause while the notebook waits for something that all notebooks wait for."""
        since = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - since

    def timed_out(self, cell: int) -> Ending | None:
        """Return the ending of a notebook if its time is over at this cell, else None."""
        if self._timeout is None or self.seconds < self._timeout:
            return None
        why = f"the notebook took longer than {self._timeout:g} s (--timeout)"
        return Ending(NotebookStatus.timed_out, why, cell)

    def at_most(self, timeout: float | None) -> float | None:
        """Return ``timeout``, or the time that is left if that is less; None for no limit."""
        if self._timeout is None:
            return timeout
        seconds_left = max(_MIN_TIMEOUT, self._timeout - self.seconds)
        return seconds_left if timeout is None else min(timeout, seconds_left)


class Execution:
    """The execution of one notebook. Single use."""

    def __init__(self, job: Job, options: RunOptions) -> None:
        self._job = job
        self._options = options
        #: The sandbox, while cells run.
        self._sandbox: AsyncSandbox | None = None
        self._stopped = False
        self._watch = Stopwatch(options.timeout)
        #: The notebook as it is written; None until it is read.
        self.document: Document | None = None
        #: The number of the cell that runs or ran last, from 1; the number of cells that ran, and
        #: of those that failed and were allowed to.
        self._cell = self._cells = self._errors = 0
        self._peak_memory = 0
        self._session = ""
        #: The conditions in force when the last cell ended, for the receipt.
        self._provenance: Provenance | None = None
        #: The SHA-256 of files that were copied out, by name.
        self._artifacts: dict[str, str] = {}
        #: The files that cells staged.
        self._staged: Staged | None = None
        #: The name by which these are known, if they stay staged after the notebook.
        self._left_staged = ""
        #: What was refused, or why cells were stopped, with the cells' numbers from 1. For
        #: ``cellblock learn``.
        self.refused: list[tuple[int, Refusal | Stop | Denial]] = []
        #: The gaps in enforcement, known once a guest is locked.
        self.gaps: tuple[Gap, ...] = ()

    def stop(self) -> None:
        """Interrupt the cell, and kill it after ``GRACE`` seconds; at once if called again."""
        self._stopped = True
        self._interrupt()
        asyncio.get_running_loop().call_later(GRACE, self._interrupt)

    def _interrupt(self) -> None:
        if self._sandbox is not None:
            self._sandbox.interrupt()

    async def run(self, pools: PolicyPools) -> NotebookResult:
        """Run the notebook, and return its result. Raises nothing for a faulty notebook."""
        self._watch = Stopwatch(self._options.timeout)
        try:
            ending = await self._run(pools)
        except Exception as exc:  # noqa: BLE001 - it ends one notebook, not the run
            ending = self._ending_by(exc)
        if self._staged is not None:  # the guest has ended, so the staged files don't change
            ending = await self._settle(self._staged, ending)
        receipt = ""
        try:
            receipt = await asyncio.to_thread(self._receipt, ending)
        except ReceiptError as exc:
            ending = Ending(NotebookStatus.killed, clip_reason(str(exc)))
        return NotebookResult(
            notebook=self._job.name,
            status=ending.status,
            reason=ending.reason,
            cell=ending.cell,
            cells=self._cells,
            errors=self._errors,
            seconds=round(self._watch.seconds, 3),
            peak_memory_bytes=self._peak_memory,
            session=self._session,
            staged=self._left_staged,
            receipt=receipt,
        )

    def _receipt(self, ending: Ending) -> str:
        """Return the receipt, or "" if the options ask for none or no cell ran. For a thread."""
        if not self._options.receipt or self._provenance is None or self.document is None:
            return ""
        receipts = receipts_module()
        signed: str = receipts.sign_run(
            self._provenance,
            written=self.document.file_content(),
            artifacts=self._artifacts,
            status=str(ending.status),
            notebook=encodable(self._job.name),
            notebook_sha256=hashlib.sha256(self._job.content).hexdigest(),
            parameters_sha256=receipts.digest(self._options.parameters),
            cells=self._cells,
            errors=self._errors,
        )
        return signed

    def _ending_by(self, exc: Exception) -> Ending:
        """Return the ending of a notebook by an exception that is not a cell's."""
        status = NotebookStatus.killed
        match exc:
            case TimeoutError() if (ending := self._watch.timed_out(self._cell)) is not None:
                return ending
            case UnreadableError():
                status, why = NotebookStatus.unreadable, f"it {exc}"
            case TooMuchOutputError():
                status, why = NotebookStatus.failed, str(exc)
            case TimeoutError():
                why = f"no guest was ready in {OPEN_TIMEOUT:g} s"
            case CellblockError():
                why = f"no guest could be started: {exc}"
            case _:
                why = f"a mistake of cellblock's own: {type(exc).__name__}: {exc}"
        return Ending(status, clip_reason(why), self._cell)

    async def _run(self, pools: PolicyPools) -> Ending:
        """Read and run the notebook. Raises for anything but a cell's own failure."""
        # In a thread, because reading an older format waits for another process.
        notebook = await asyncio.to_thread(read, self._job.content)
        if not notebook.is_python:
            why = f"its language is {notebook.language}"
            return Ending(NotebookStatus.skipped, clip_reason(why))
        notebook = with_parameters(notebook, self._options.parameters)
        try:
            policy = await pools.policy_of(notebook, self._job)
        except PolicyError as exc:
            why = "\n".join(f"{error.what()[:-1]}\nInstead: {error.remedy}" for error in exc.all())
            return Ending(NotebookStatus.denied, clip_reason(why))
        self.document = document = await asyncio.to_thread(_document, notebook, policy.display)
        # Snapshots cost time for each cell. They are needed only if cells go on after a cell was
        # killed, with the variables restored, or if a cell may undo others or narrow the policy
        # (then a copy of the guest goes on, with more locks).
        snapshots = self._options.allow_errors or any(
            cell.may_fail or may_go_back(cell.source) for cell in notebook.cells if cell.runs
        )
        async with AsyncExitStack() as stack:
            with self._watch.paused():
                pool = await stack.enter_async_context(pools.use(policy))
            sandbox = pool.sandbox(
                inputs=self._options.parameters,
                artifacts=self._job.artifacts,
                cwd=pool.readable_folder(self._job.folder),
                snapshots=snapshots,
                notebook=str(self._job.file),
            )
            stack.push_async_callback(sandbox.close)
            await self._open(sandbox, is_warm=pool.is_warm)
            try:
                return await self._run_cells(sandbox, notebook, document)
            finally:
                self._sandbox = None

    async def _settle(self, staged: Staged, ending: Ending) -> Ending:
        """Keep, write out or drop the staged files, as the options say.

        Return ``ending``, or another if that fails.
        """
        option = self._options.changes
        has_passed = ending.status is NotebookStatus.passed
        try:
            if option == KEEP and has_passed:
                await asyncio.to_thread(keeping.keep, staged, (), by="a run")
            elif self._job.changes and has_passed:
                await asyncio.to_thread(keeping.write_out, staged, Path(self._job.changes))
            if option == DROP or (self._job.changes and has_passed):
                await asyncio.to_thread(staged.drop)
        except (ChangesError, OSError) as exc:
            ending = Ending(NotebookStatus.failed, clip_reason(str(exc)))
        await asyncio.to_thread(changes.end, staged.id)
        self._left_staged = staged.id if changes.session(staged.id) is not None else ""
        return ending

    async def _open(self, sandbox: AsyncSandbox, *, is_warm: bool) -> None:
        """Open the sandbox. Waiting for the zygote, which all notebooks share, is not counted."""
        timeout = self._watch.at_most(OPEN_TIMEOUT) if is_warm else OPEN_TIMEOUT
        with nullcontext() if is_warm else self._watch.paused():
            async with asyncio.timeout(timeout):
                await sandbox.open()
        self._sandbox = sandbox
        self._session = sandbox.session
        self.gaps = sandbox.gaps
        self._staged = sandbox.staged

    async def _run_cells(
        self, sandbox: AsyncSandbox, notebook: Notebook, document: Document
    ) -> Ending:
        """Run the cells in order, until one ends the notebook."""
        outputs = NotebookOutputs(document)
        worst = Ending(NotebookStatus.passed)
        for index, cell in enumerate(notebook.cells):
            if not cell.runs:
                continue
            if self._stopped:
                return _ended_by_run(index + 1)
            if (timed_out := self._watch.timed_out(index + 1)) is not None:
                return timed_out
            self._cell = index + 1
            ending, status = await self._run_cell(sandbox, index, cell, outputs)
            if ending is None:
                continue
            if status == "failed" or self._stopped or self._watch.timed_out(0):
                return ending
            interrupted = ending.status is NotebookStatus.interrupted
            if not cell.may_fail and (interrupted or not self._options.allow_errors):
                return ending
            self._errors += 1
            # `--allow-errors` lets the notebook go on after any failure, but forgives exceptions
            # alone. A tag on the cell forgives any.
            is_forgiven = cell.may_fail or ending.status is NotebookStatus.failed
            if worst.status is NotebookStatus.passed and not is_forgiven:
                worst = ending
        return worst

    async def _run_cell(
        self, sandbox: AsyncSandbox, index: int, cell: Cell, outputs: NotebookOutputs
    ) -> tuple[Ending | None, Status]:
        """Run a cell, and write it into the document.

        Return how it ends the notebook, or None, and the status of its result. The result itself is
        not kept, so that no more than one is in memory.
        """
        began = now()
        limit = self._watch.at_most(self._options.cell_timeout)
        result = await sandbox.execute(
            cell.source, timeout=limit, may_ask=False, cell=f"cell {index}"
        )
        self._cells += 1
        self._provenance = result.provenance
        self._artifacts |= {artifact.name: artifact.sha256 for artifact in result.artifacts}
        cell_json = cell_after_run(cell, result, (began, now()))
        if not self._options.timing:
            cell_json["metadata"].pop(EXECUTION, None)
        outputs.end_cell(index, cell_json, result.outputs)
        if result.usage is not None:
            self._peak_memory = max(self._peak_memory, result.usage.peak_memory_bytes)
        refusals = (result.refusal, result.stop, *result.denials)
        self.refused += [(index + 1, refusal) for refusal in refusals if refusal is not None]
        return self._ending_of(result, index + 1, sandbox.policy), result.status

    def _ending_of(self, result: Result, number: int, policy: Policy | None) -> Ending | None:
        """Return how a cell ends the notebook, or None if it succeeded."""
        if self._stopped:
            return _ended_by_run(number)
        if result.success:
            return None
        stop = result.stop
        status_name = stop.why if result.status == "stopped" and stop is not None else result.status
        status = _STATUSES.get(status_name, NotebookStatus.killed)
        timed_out = self._watch.timed_out(number)
        if status is NotebookStatus.timed_out and timed_out is not None:
            return timed_out
        if stop is not None:
            # Say why it was stopped, and leave out what became of its variables: nobody can go on
            # with them.
            heading = Heading.LOST if stop.said.startswith(Heading.LOST) else Heading.STOPPED
            why = "" if result.error is None else f"{heading}: {result.error.message}."
            own = self._options.cell_timeout
            policys = None if policy is None else policy.timeout
            if why and stop.why == "timeout" and own and (policys is None or own < policys):
                upper_bound = (
                    "" if policys is None else f", up to {policys:g}: the policy's timeout"
                )
                why += f"\nTo raise it: --cell-timeout{upper_bound}."
            elif why and stop.why in FIELD_OF_STOP:
                field = FIELD_OF_STOP[stop.why]
                why += f"\nTo raise it, set {field} in a policy file (--policy FILE)."
            result = replace(result, stop=replace(stop, said=why))
        return Ending(status, clip_reason(result.to_string(MAX_REASON)), number)


def _ended_by_run(number: int) -> Ending:
    return Ending(NotebookStatus.interrupted, "the run was ended", number)


def _document(notebook: Notebook, display: str) -> Document:
    """Return a notebook as it is written before its first cell runs. For a thread."""
    metadata = notebook.metadata | {"language_info": kernel_info()["language_info"]}
    cells = (cell_before_run(cell, display) for cell in notebook.cells)
    return Document(cells, metadata, notebook.minor)
