"""One notebook from its bytes to its result, in a sandbox of a warm pool; and what that result is.

An execution is the same in the process of a run and in a worker on another machine, which sends the
document home.

`PolicyPools` has a pool of warm guests for each policy. A notebook's metadata can ask for less than
the operator's policy, and never gets more (promise P8).
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

#: Pools of narrower policies that are kept for notebooks to come: each has a zygote.
MAX_IDLE: Final = 4
#: Seconds from interrupting a cell to killing it, when the run is to end.
GRACE: Final = 1.0
#: Seconds that a guest has to be ready: the first one waits for what its policy preloads.
OPEN_TIMEOUT: Final = 120.0
#: The least seconds that a cell is given.
_MIN_TIMEOUT: Final = 0.01
#: What ``--changes`` takes besides a folder.
KEEP: Final = "keep"
DROP: Final = "drop"
#: Characters of why a notebook did not pass.
MAX_REASON: Final = 2_000


# --- what is run, and how -------------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True):
    """A notebook to run: its name, content, folder and policy; sent to workers of a cluster.

    Cells run in ``folder`` where the policy lets them read it. ``artifacts`` is the folder for the
    files that the policy has copied out, if it has any; ``changes`` that for what cells wrote to
    the project.
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
    """How all notebooks of a run are run; sent to workers of a cluster. Timeouts are in seconds.

    ``timeout`` is for a whole notebook. ``cell_timeout`` is for each cell, where the policy does
    not allow less. ``timing`` says whether the times at which cells ran are written. ``changes`` is
    what becomes of what a notebook that passed has staged: ``keep``, ``drop``, or a folder for it;
    empty, it is staged for a week, like that of a notebook that did not pass. With ``receipt`` each
    notebook has one.
    """

    parameters: dict[str, Any] = {}
    allow_errors: bool = False
    timeout: float | None = None
    cell_timeout: float | None = None
    timing: bool = True
    changes: str = ""
    receipt: bool = False

    def changes_folder(self, output: str) -> str:
        """Return the folder for what a notebook staged; empty if that is not written to one.

        ``output`` is the name of the notebook's file in the output folder.
        """
        own = self.changes in {"", KEEP, DROP}
        return "" if own else f"{self.changes}/{output.rpartition('.')[0]}.changes"

    def key(self, content: bytes, policy_digest: str) -> str:
        """Return a hash of a notebook and how it is run.

        A notebook with the same key would be run in the same way, so a resumed run skips it.
        """
        options = msgspec.structs.asdict(self)
        if self.changes in {"", DROP}:  # the notebook's file is the same
            del options["changes"]
        known = [__version__, hashlib.sha256(content).hexdigest(), policy_digest, options]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


# --- how it ended ---------------------------------------------------------------------------------


class NotebookStatus(StrEnum):
    """How a notebook ended."""

    #: Every cell ran, and none failed that was not allowed to.
    passed = "passed"
    #: A cell raised an exception.
    failed = "failed"
    #: The policy refused a cell, or what the notebook asks for.
    denied = "denied"
    #: A cell, or the notebook, took longer than it may.
    timed_out = "timed out"
    #: A cell was ended from outside (memory, a crash, a breach), or there was no guest for it.
    killed = "killed"
    #: The file is no notebook, or not one that can be read within the bounds.
    unreadable = "could not read"
    #: The notebook was not begun: its language is another, or the run was ended before.
    skipped = "skipped"
    #: The run was ended while the notebook ran.
    interrupted = "interrupted"


#: By a result's status, or why its cell was stopped. Whatever else ends a cell has it killed.
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

    ``cell`` is the one that decided the status, counting cells of all types from 1, or 0.
    ``cells`` is how many ran, ``errors`` how many of those failed and were allowed to. Times are in
    seconds. ``session`` names the session's audit log. ``staged`` is by what name ``cellblock
    changes`` knows what its cells wrote to the project, if that is still staged. ``kept`` says that
    the result is an earlier run's. ``receipt`` is on its way to a file of its own.
    """

    notebook: str
    status: NotebookStatus = msgspec.field(name="fate")  # in files of earlier runs, too
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
    """The status of a notebook, the reason for it, and the cell."""

    status: NotebookStatus
    reason: str = ""
    cell: int = 0


def clip_reason(text: str) -> str:
    """Return a reason that can be sent and is not too long."""
    text = encodable(text.strip())
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


# --- the policy of each notebook, and the pools ---------------------------------------------------


@dataclass(slots=True, eq=False)
class _Entry:
    """A pool, whether it is open, how many notebooks use it, and the lock to open it under."""

    pool: AsyncSandboxPool
    is_open: bool = False
    users: int = 0
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class PolicyPools:
    """The operator's pool, which is open and belongs to the caller, and those narrower than it.

    A narrower one is opened when a notebook asks for it, and then ``check``, if there is one, is
    awaited and may raise. Few that nobody uses are kept.
    """

    def __init__(
        self,
        operators: AsyncSandboxPool,
        check: Callable[[AsyncSandboxPool], Awaitable[object]] | None = None,
    ) -> None:
        self.operators, self._check = operators, check
        #: By the policy's digest; the one that was used last is last.
        self._entries: dict[str, _Entry] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def policy_of(self, notebook: Notebook, job: Job) -> Policy:
        """Return the policy for a notebook. Raise PolicyError, also where it asks for more."""
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
        """Use an open pool of this policy. Raise what opening one raises."""
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
    """The time that a notebook has taken, and its limit. It runs from when it is made."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout, self._began = timeout, time.monotonic()

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

    def at_most(self, timeout: float | None) -> float | None:
        """Return a timeout, or the seconds that are left if those are fewer; None for no limit."""
        if self._timeout is None:
            return timeout
        left = max(_MIN_TIMEOUT, self._timeout - self.seconds)
        return left if timeout is None else min(timeout, left)


class Execution:
    """The execution of one notebook. Single use."""

    def __init__(self, job: Job, options: RunOptions) -> None:
        self._job, self._options = job, options
        self._sandbox: AsyncSandbox | None = None
        self._stopped = False
        self._watch = Stopwatch(options.timeout)
        #: The notebook as it is written; None until it was read.
        self.document: Document | None = None
        #: The cell that runs or ran last, from 1; how many ran; how many failed and may.
        self._cell = self._cells = self._errors = 0
        self._peak_memory = 0
        self._session = ""
        #: What was in force when the last cell ended; files that were copied out, by name.
        self._made: Provenance | None = None
        self._artifacts: dict[str, str] = {}
        #: What cells write to the project, and by what name it is known if it is still staged.
        self._staged: Staged | None = None
        self._left = ""
        #: What cells were refused, or stopped for, with their numbers from 1.
        self.refused: list[tuple[int, Refusal | Stop | Denial]] = []
        #: What the policy asks for and is not enforced; known once a guest is locked.
        self.gaps: tuple[Gap, ...] = ()

    def stop(self) -> None:
        """Interrupt the cell, and kill it if it goes on. A second call kills it at once."""
        self._stopped = True
        self._interrupt()
        asyncio.get_running_loop().call_later(GRACE, self._interrupt)

    def _interrupt(self) -> None:
        if self._sandbox is not None:
            self._sandbox.interrupt()

    async def run(self, pools: PolicyPools) -> NotebookResult:
        """Run the notebook, and return its result. What is wrong with it raises nothing."""
        self._watch = Stopwatch(self._options.timeout)
        try:
            ending = await self._run(pools)
        except Exception as exc:  # noqa: BLE001 - it ends one notebook, not the run
            ending = self._ending_by(exc)
        if self._staged is not None:  # its guest is gone: nobody writes there any more
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
            staged=self._left,
            receipt=receipt,
        )

    def _receipt(self, ending: Ending) -> str:
        """Return the receipt, if one is wanted and a cell ran."""
        if not self._options.receipt or self._made is None or self.document is None:
            return ""
        receipts = receipts_module()
        signed: str = receipts.sign_run(
            self._made,
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
                why = f"no guest could be had: {exc}"
            case _:
                why = f"a mistake of cellblock's own: {type(exc).__name__}: {exc}"
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
            why = "\n".join(f"{one.what()[:-1]}\nInstead: {one.remedy}" for one in exc.all())
            return Ending(NotebookStatus.denied, clip_reason(why))
        self.document = document = await asyncio.to_thread(_document, notebook, policy.display)
        # Where a cell that is killed ends the notebook, nobody needs its variables. A guest that is
        # to get more locks goes on as a copy.
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
        """Keep, write out or drop what is staged; return how the notebook ended after all."""
        asked, passed = self._options.changes, ending.status is NotebookStatus.passed
        try:
            if asked == KEEP and passed:
                await asyncio.to_thread(keeping.keep, staged, (), by="a run")
            elif self._job.changes and passed:
                await asyncio.to_thread(keeping.write_out, staged, Path(self._job.changes))
            if asked == DROP or (self._job.changes and passed):
                await asyncio.to_thread(staged.drop)
        except (ChangesError, OSError) as exc:
            ending = Ending(NotebookStatus.failed, clip_reason(str(exc)))
        await asyncio.to_thread(changes.end, staged.id)
        self._left = staged.id if changes.session(staged.id) is not None else ""
        return ending

    async def _open(self, sandbox: AsyncSandbox, *, is_warm: bool) -> None:
        """Open the sandbox. A zygote that starts for all takes no notebook's time."""
        timeout = self._watch.at_most(OPEN_TIMEOUT) if is_warm else OPEN_TIMEOUT
        with nullcontext() if is_warm else self._watch.paused():
            async with asyncio.timeout(timeout):
                await sandbox.open()
        self._sandbox, self._session, self.gaps = sandbox, sandbox.session, sandbox.gaps
        self._staged = sandbox.staged

    async def _run_cells(
        self, sandbox: AsyncSandbox, notebook: Notebook, document: Document
    ) -> Ending:
        outputs, worst = NotebookOutputs(document), Ending(NotebookStatus.passed)
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
            # Where the run alone allows errors, those other than exceptions still count.
            allowed = cell.may_fail or ending.status is NotebookStatus.failed
            if worst.status is NotebookStatus.passed and not allowed:
                worst = ending
        return worst

    async def _run_cell(
        self, sandbox: AsyncSandbox, index: int, cell: Cell, outputs: NotebookOutputs
    ) -> tuple[Ending | None, Status]:
        """Run a cell; nothing of its result is held while the next one runs."""
        began, limit = now(), self._watch.at_most(self._options.cell_timeout)
        result = await sandbox.execute(
            cell.source, timeout=limit, may_ask=False, cell=f"cell {index}"
        )
        self._cells += 1
        self._made = result.provenance
        self._artifacts |= {one.name: one.sha256 for one in result.artifacts}
        written = cell_after_run(cell, result, (began, now()))
        if not self._options.timing:
            written["metadata"].pop(EXECUTION, None)
        outputs.end_cell(index, written, result.outputs)
        if result.usage is not None:
            self._peak_memory = max(self._peak_memory, result.usage.peak_memory_bytes)
        refused = (result.refusal, result.stop, *result.denials)
        self.refused += [(index + 1, one) for one in refused if one is not None]
        return self._ending_of(result, index + 1, sandbox.policy), result.status

    def _ending_of(self, result: Result, number: int, policy: Policy | None) -> Ending | None:
        """Return how a cell ends the notebook; None if it does not."""
        if self._stopped:
            return _ended_by_run(number)
        if result.success:
            return None
        stop = result.stop
        how = stop.why if result.status == "stopped" and stop is not None else result.status
        status = _STATUSES.get(how, NotebookStatus.killed)
        timed_out = self._watch.timed_out(number)
        if status is NotebookStatus.timed_out and timed_out is not None:
            return timed_out
        if stop is not None:
            # Why it was stopped. That its variables were restored is of no use here.
            how = Heading.LOST if stop.said.startswith(Heading.LOST) else Heading.STOPPED
            why = "" if result.error is None else f"{how}: {result.error.message}."
            own, policys = self._options.cell_timeout, None if policy is None else policy.timeout
            if why and stop.why == "timeout" and own and (policys is None or own < policys):
                most = "" if policys is None else f", up to {policys:g}: the policy's timeout"
                why += f"\nTo raise it: --cell-timeout{most}."
            elif why and stop.why in FIELD_OF_STOP:
                field = FIELD_OF_STOP[stop.why]
                why += f"\nTo raise it, set {field} in a policy file (--policy FILE)."
            result = replace(result, stop=replace(stop, said=why))
        return Ending(status, clip_reason(result.to_string(MAX_REASON)), number)


def _ended_by_run(number: int) -> Ending:
    return Ending(NotebookStatus.interrupted, "the run was ended", number)


def _document(notebook: Notebook, display: str) -> Document:
    """Return a notebook as it is written before its first cell."""
    metadata = notebook.metadata | {"language_info": kernel_info()["language_info"]}
    cells = (cell_before_run(cell, display) for cell in notebook.cells)
    return Document(cells, metadata, notebook.minor)
