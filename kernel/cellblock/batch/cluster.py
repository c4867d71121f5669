"""``cellblock run --cluster``: the same run on a Dask cluster, one notebook a task.

Workers are hosts, and as trusted as this process: Dask's own protocol carries programs both ways.
No part of that is a guest's. What crosses as ours is bytes that are decoded strictly. Dask is an
extra: only this module imports it.

The run's end is an executor of `batch.run.runner`, `ClusterExecutor`. It knows which workers keep
the policy, sends notebooks, and takes results and audit logs home, whatever happens to workers.

In each worker process `ZygotePlugin` has a pool with a warm zygote for the run's policy, as long as
the run lasts: it is opened when the run first asks, and closed when the run says that it ends, or
says nothing any more. A notebook may narrow the policy (promise P8): the worker reads its metadata,
as a run without a cluster does, and a guest shows that the narrower policy is enforced.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from distributed import Client, KilledWorker, get_worker, wait
from distributed import Status as WorkerStatus
from distributed.client import FuturesCancelledError
from distributed.comm.addressing import get_address_host, normalize_address
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.node import ServerNode
from msgspec.structs import replace

from cellblock import __version__
from cellblock.api.blocking import LoopThread
from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.batch.run.document import Document
from cellblock.batch.run.execution import (
    Execution,
    Job,
    NotebookResult,
    NotebookStatus,
    PolicyPools,
    RunOptions,
    UnwritableError,
)
from cellblock.batch.run.runner import Run, check_out_of_reach
from cellblock.errors import AuditError, BackendError, CellblockError
from cellblock.host.audit.log import find, is_log_name
from cellblock.policy import load
from cellblock.policy.enforcement import Gap, Status
from cellblock.policy.model import Audit, Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Worker

    from cellblock.batch.run.output_folder import FileSaver, OutputFolder
    from cellblock.batch.run.report import Progress
    from cellblock.batch.run.runner import RunRequest, RunResult

#: Seconds for a scheduler to answer.
CONNECT_TIMEOUT: Final = 10.0
#: Seconds between looks at which workers there are, and at whether a notebook's is still there.
_POLL: Final = 1.0
#: Seconds after which workers close what they hold for a run that is silent.
SILENCE: Final = 60.0
#: Seconds without a worker that keeps the policy, after which notebooks wait no longer.
MAX_WAIT: Final = 60.0
_TICK: Final = 0.1
#: Times that a notebook is sent, where its workers vanish. Dask tries four with each.
MAX_TRIES: Final = 5
#: Notebooks under way for each thread of a worker: one that runs, and the next one.
_PER_THREAD: Final = 2
#: The folder for audit logs among the run's own files.
_AUDIT: Final = "audit"
#: The answer of a worker that still prepares: it is to be asked again.
NOT_YET: Final = b""
#: How often a run is heard of in the time after which silence means that it is gone.
BEATS: Final = 4
#: Bytes of a session's audit log that are sent home; a larger one stays on its worker.
MAX_AUDIT_BYTES: Final = 16 << 20
#: Seconds for workers to answer: one that hangs must not keep the run from being heard by others.
_ANSWER_TIMEOUT: Final = 5.0
#: Seconds that a worker lets a question wait for its pool to open, and its loop for it to close.
_OPENING_TIMEOUT: Final = 2.0
_CLOSE_TIMEOUT: Final = 5.0


# --- what is sent ---------------------------------------------------------------------------------


class PolicyOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a run: all its fields, their hash, and what goes with it.

    ``project`` is its folder, which a worker may have or not.
    """

    version: str
    policy: dict[str, Any]
    digest: str
    allow_unsafe: bool
    project: str


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's answer to an offer. ``refusal`` says why it can't keep the policy, or is ""."""

    host: str
    threads: int
    refusal: str = ""
    gaps: tuple[Gap, ...] = ()


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a notebook, the document that is written, and the files of the audit log.

    ``audit_left`` says why the log stays on the worker, if it does.
    """

    result: NotebookResult
    document: bytes | None = None
    audit: dict[str, bytes] = {}
    audit_left: str = ""


# --- in a worker process --------------------------------------------------------------------------


class ZygotePlugin(WorkerPlugin):  # type: ignore[misc]  # it has no types
    """Accepts an offer, or says why not. It never raises, as that would end the worker."""

    def __init__(self, offer: bytes, name: str, silence: float) -> None:
        self._offer, self.name, self._silence = offer, name, silence

    def setup(self, worker: Worker) -> None:
        """Wait to be asked: a run that is gone asks nothing, and later workers start nothing.

        There is no ``await`` here, so that no question comes before its end.
        """
        # Keep gaps out of the worker's log: the run shows them once, and not for each guest.
        log = logging.getLogger("cellblock")
        if not log.handlers:
            log.addHandler(logging.NullHandler())
        self._folder = worker.local_directory
        self._unanswered = WorkerState(host=socket.gethostname(), threads=worker.state.nthreads)
        self._state = self._unanswered
        self._running: set[Execution] = set()
        self._stopped = False
        self._thread: LoopThread | None = None
        self._pool: AsyncSandboxPool | None = None
        self._pools: PolicyPools | None = None
        #: Held while the pool is opened or closed.
        self._lock, self._removed = threading.Lock(), False
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._missed_beats = 0
        self._counting = asyncio.get_running_loop().create_task(self._count_missed_beats())
        self._close_guard = CloseGuard(worker)

    def teardown(self, worker: Worker) -> None:
        """Close the pool."""
        del worker
        self._close_guard.cancel()
        self._removed = True
        self._counting.cancel()
        closing = threading.Thread(target=self._close_in_thread, name="cellblock-end")
        closing.start()
        closing.join(_CLOSE_TIMEOUT)

    async def state(self) -> WorkerState | None:
        """Return the answer to the offer, or None if it is not known yet.

        The first question opens the pool, in a thread, as the worker's own loop has to go on.
        """
        self._missed_beats = 0
        if self._opening is None:
            self._opening = asyncio.create_task(asyncio.to_thread(self._open_in_thread))
        done, _ = await asyncio.wait([self._opening], timeout=_OPENING_TIMEOUT)
        return self._state if done else None

    async def _count_missed_beats(self) -> None:
        """Close the pool of a run that is silent. If it asks after all, another one is opened.

        A run that was killed could not say that it ends. Intervals are counted, not time: a worker
        that was itself held up for as long gets the run's questions first.
        """
        while True:
            await asyncio.sleep(self._silence / BEATS)
            self._missed_beats += 1
            silent = self._missed_beats > BEATS
            if silent and self._opening is not None and self._opening.done():
                self._opening = None
                self._closing = asyncio.create_task(asyncio.to_thread(self._close_in_thread))

    def _open_in_thread(self) -> None:
        """Open the pool, and check with a guest what is enforced: the answer to the offer."""
        with self._lock:
            if self._removed:
                return
            try:
                self._state = replace(self._unanswered, gaps=self._open())
            except Exception as exc:  # noqa: BLE001 - whatever it is, this worker can't
                kind = "" if isinstance(exc, CellblockError) else f"{type(exc).__name__}: "
                self._state = replace(self._unanswered, refusal=f"{kind}{exc}")
                self._close()

    def _open(self) -> tuple[Gap, ...]:
        offer = msgspec.json.decode(self._offer, type=PolicyOffer)
        policy = accept_offer(offer)
        project = offer.project if Path(offer.project).is_dir() else self._folder
        self._thread = thread = LoopThread()
        self._pool = AsyncSandboxPool(policy, project=project, allow_unsafe=offer.allow_unsafe)
        thread.run(self._pool.open())
        gaps = thread.run(enforced_gaps(self._pool))
        self._pools = PolicyPools(self._pool, check=enforced_gaps)
        return gaps

    def _close_in_thread(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        thread, pools, pool = self._thread, self._pools, self._pool
        # No notebook may find the pools of a run that was silent while others open.
        self._thread = self._pools = self._pool = None
        if thread is not None:
            if pools is not None:
                thread.run(pools.close())
            if pool is not None:
                thread.run(pool.close())
            thread.end()

    def run(self, job: Job, options: RunOptions) -> TaskResult:
        """Run a notebook, in the calling thread. Raise CellblockError."""
        thread, pools = self._thread, self._pools
        if thread is None or pools is None:
            raise BackendError(self._state.refusal)
        execution = Execution(job, options)
        if self._stopped:
            thread.soon(execution.stop)
        self._running.add(execution)
        try:
            result = thread.run(execution.run(pools))
        finally:
            self._running.discard(execution)
            if self._thread is not thread:  # then the result says nothing of the notebook
                raise BackendError("the pool was ended while the notebook ran")
        document = execution.document.to_bytes() if execution.document is not None else None
        audit, left = audit_files(result.session, pools.operators.config.policy.audit)
        return TaskResult(result=result, document=document, audit=audit, audit_left=left)

    def stop(self) -> None:
        """End all that runs, or is yet to, soon; when called twice, at once."""
        self._stopped = True
        for execution in tuple(self._running):
            if self._thread is not None:
                self._thread.soon(execution.stop)


def audit_files(session: str, audit: Audit) -> tuple[dict[str, bytes], str]:
    """Return the file of a session's audit log by its name, and why it stays here, if it does."""
    if not session or not audit.log:
        return {}, ""
    try:
        found = find(Path(audit.folder), session)
        if found.file.stat().st_size > MAX_AUDIT_BYTES:
            return {}, f"it is over {MAX_AUDIT_BYTES >> 20} MiB"
        return {found.file.name: found.file.read_bytes()}, ""
    except AuditError as exc:
        return {}, exc.message
    except OSError as exc:
        return {}, f"it can't be read: {exc.strerror}"


def accept_offer(offer: PolicyOffer) -> Policy:
    """Return the policy of an offer, which also denies the credentials of this worker's user.

    Raise CellblockError for a policy that does not have its hash, or is of another version.
    """
    if offer.version != __version__:
        raise BackendError(f"cellblock is {__version__} here, and {offer.version} where the run is")
    policy = load.from_fields(offer.policy, file="the run's policy")
    if policy.digest() != offer.digest:
        raise BackendError("the policy that arrived is not the one that its hash is of")
    denied = load.preset_values("safe")["read_deny_paths"]
    denied = dict.fromkeys((*policy.read_deny_paths, *denied))
    # Logs are sent home; until then they are where this worker's user keeps them.
    audit = dataclasses.replace(policy.audit, folder=Audit().folder)
    return policy.replace(read_deny_paths=tuple(denied), audit=audit)


async def enforced_gaps(pool: AsyncSandboxPool) -> tuple[Gap, ...]:
    """Return the gaps in a guest of the pool.

    Raise BackendError where anything that the policy asks for is enforced by nothing.
    """
    async with pool.sandbox() as sandbox:
        backend, gaps = sandbox.backend, sandbox.gaps
    missing = [gap for gap in gaps if gap.status in (Status.unenforced, Status.unavailable)]
    if missing:
        what = "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in missing)
        raise BackendError(f"backend {backend} can't enforce the policy here: {what}")
    return gaps


class CloseGuard:
    """Makes sure that a worker that closes comes to its end, until it is cancelled.

    A signal while a worker closes, as just after its scheduler has gone, cancels what it does, and
    it would wait for its own end for ever (``Worker.handle_scheduler``, distributed 2026.8.0). The
    longer a plugin takes to end, the more likely that is.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker, self._cancelled = worker, False
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def cancel(self) -> None:
        """Watch no longer, unless the worker closes."""
        if self._worker.status is not WorkerStatus.closing:
            self._cancelled = True
            self._watching.cancel()

    async def _watch(self) -> None:
        try:
            await self._worker.finished()
        except asyncio.CancelledError:
            if not self._cancelled:
                # Its end may come by itself as the loop ends.
                try:
                    async with asyncio.timeout(_CLOSE_TIMEOUT):
                        await self._worker.finished()
                except TimeoutError:
                    await ServerNode.close(self._worker)
            raise


# --- what a run calls -----------------------------------------------------------------------------


async def worker_state(name: str, dask_worker: Worker) -> bytes | None:
    """Return this worker's answer to an offer, or NOT_YET; None if no offer has arrived."""
    plugin = dask_worker.plugins.get(name)
    if plugin is None:
        return None
    known = await plugin.state()
    return NOT_YET if known is None else msgspec.json.encode(known)


def stop_notebooks(name: str, dask_worker: Worker) -> None:
    """End a run's notebooks on this worker."""
    if (plugin := dask_worker.plugins.get(name)) is not None:
        plugin.stop()


def run_notebook(name: str, task: bytes) -> bytes:
    """Run one notebook; a Dask task."""
    job, options = msgspec.msgpack.decode(task, type=tuple[Job, RunOptions])
    return msgspec.msgpack.encode(get_worker().plugins[name].run(job, options))


# --- the run's end ------------------------------------------------------------------------------


class ClusterError(CellblockError):
    """There is no cluster, or none whose workers keep the policy."""


def run(request: RunRequest, folder: OutputFolder, progress: Progress, address: str) -> RunResult:
    """Run the notebooks on the cluster of the scheduler at ``address``. Raise CellblockError."""
    return asyncio.run(_run(request, folder, progress, address))


async def _run(
    request: RunRequest, folder: OutputFolder, progress: Progress, address: str
) -> RunResult:
    run = Run(request, folder, progress)
    with run.handling_signals():
        (policy,), unsafe = request.policies.values(), request.allow_unsafe
        if not isinstance(policy, Policy):
            policy = load.load(policy, project=Path.cwd(), allow_unsafe=unsafe)
        if policy.artifact_export_paths:
            what = "files that cells leave are not brought home from workers"
            raise ClusterError(f"{policy.name}: artifact_export_paths: {what}. Remove the entry.")
        check_out_of_reach(request, folder, policy.filesystem_write_roots)
        executor = ClusterExecutor(address, policy, folder, progress.message, allow_unsafe=unsafe)
        run.executor = executor  # signals end it while it waits for workers, too
        async with executor:
            return await run.run(executor, exports=False)


class ClusterExecutor:
    """`runner.Executor` that uses the workers of a Dask cluster that keep the policy.

    ``message`` is called with which workers get no notebook, and which logs stay on theirs.
    """

    def __init__(
        self,
        address: str,
        policy: Policy,
        folder: OutputFolder,
        message: Callable[[str], None],
        *,
        allow_unsafe: bool,
    ) -> None:
        self._address, self._folder, self._message = address, folder, message
        self._digest = policy.digest()
        self._offer = PolicyOffer(
            version=__version__,
            policy=policy.as_dict(),
            digest=self._digest,
            allow_unsafe=allow_unsafe,
            project=str(Path.cwd()),
        )
        self._name = f"cellblock-{self._digest[:12]}-{os.urandom(4).hex()}"
        self._client: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        #: Workers of the cluster by address: all, those that have answered, and those that are
        #: still preparing.
        self._present: frozenset[str] = frozenset()
        self._known: dict[str, WorkerState] = {}
        self._preparing: frozenset[str] = frozenset()
        #: When all were asked; not set while all are to be asked again at once.
        self._last_asked = 0.0
        self._asked = asyncio.Event()
        self._asked.set()
        #: Refusals that were reported; None until there is a worker that accepts.
        self._reported: set[str] | None = None
        #: What the first worker that accepted does not enforce.
        self.gaps: tuple[Gap, ...] = ()

    def digest(self, _policy: str, /) -> str:
        """Return the digest of the one policy of the run."""
        return self._digest

    async def __aenter__(self) -> Self:
        """Connect, and wait for a worker. Raise ClusterError where nothing can be run."""
        try:
            get_address_host(normalize_address(self._address))  # a client leaves coroutines
            self._client = await Client(self._address, asynchronous=True, timeout=CONNECT_TIMEOUT)
        except (OSError, TimeoutError, ValueError) as exc:
            raise ClusterError(f"no scheduler at {self._address}: {exc}") from None
        try:
            plugin = ZygotePlugin(msgspec.json.encode(self._offer), self._name, SILENCE)
            try:
                await self._client.register_plugin(plugin, name=self._name)
            except Exception as exc:  # noqa: BLE001 - whatever a worker has raised
                what = "its workers can't take a policy. Is cellblock[dask] installed on each?"
                why = f"({type(exc).__name__}: {exc})"
                raise ClusterError(f"{self._address}: {what} {why}") from None
            self._tasks.add(asyncio.create_task(self._watch()))
            await self._accepting_workers(at_once=True)
        except BaseException:
            await self._close()
            raise
        self._reported = set()
        self._report_refusals()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Make workers close what they hold for this run."""
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(Exception):  # it may be gone
            await self._client.unregister_worker_plugin(self._name)
        await self._client.close()

    def stop(self) -> None:
        """End notebooks on all workers; when called twice, at once."""
        self._stopped = True
        self._asked.set()

        async def stop_workers() -> None:
            with contextlib.suppress(Exception):  # a worker may be gone
                await self._client.run(stop_notebooks, self._name, on_error="ignore")

        self._tasks.add(asyncio.ensure_future(stop_workers()))

    # --- which workers there are, and which of them keep the policy -----------------------------

    @property
    def slots(self) -> int:
        """How many notebooks are to be under way now."""
        return _PER_THREAD * sum(one.threads for one in self._accepting.values())

    @property
    def _accepting(self) -> dict[str, WorkerState]:
        return {address: one for address, one in self._known.items() if not one.refusal}

    async def _accepting_workers(self, *, at_once: bool = False) -> list[str]:
        """Wait for workers that may run a notebook, and return them; none if the run ends.

        Raise ClusterError if none comes, and with ``at_once`` also if all that are there refuse.
        Those that are preparing are waited for.
        """
        waited = 0.0
        while not (self._accepting or self._stopped):
            all_refuse = at_once and self._present and self._present <= self._known.keys()
            if waited > MAX_WAIT or all_refuse:
                why = "the cluster has no workers"
                if self._present:
                    why = "no worker keeps the policy. " + ". ".join(self._refusals())
                raise ClusterError(f"{self._address}: {why}")
            await asyncio.sleep(_TICK)
            waited = 0.0 if self._preparing else waited + _TICK
        return [] if self._stopped else list(self._accepting)

    def _refusals(self) -> list[str]:
        refusing = (one for one in self._known.values() if one.refusal)
        return list(dict.fromkeys(f"worker on {one.host}: {one.refusal}" for one in refusing))

    def _report_refusals(self) -> None:
        """Report why workers get no notebook, each reason once."""
        if self._reported is not None:
            for refusal in set(self._refusals()) - self._reported:
                self._reported.add(refusal)
                self._message(refusal)

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # a worker may be gone; the next look sees it
                await self._look()
            await asyncio.sleep(_POLL)

    async def _look(self) -> None:
        """See which workers there are, and ask new ones for their state; now and then, all.

        A worker that is asked hears that the run goes on (see `ZygotePlugin`).
        """
        self._present = present = frozenset(await self._client.nthreads())
        self._known = {at: one for at, one in self._known.items() if at in present}
        at_once, now = not self._asked.is_set(), time.monotonic()
        if at_once or now - self._last_asked >= SILENCE / BEATS:
            self._last_asked, asked = now, list(present)
        else:
            asked = [at for at in present if at not in self._known]
        answers: dict[str, bytes | None] = {}
        if asked:
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                answers = await self._client.run(
                    worker_state, self._name, workers=asked, on_error="ignore"
                )
        self._preparing = frozenset(at for at in answers if answers[at] == NOT_YET)
        for address, answer in answers.items():
            if answer:
                self._known[address] = msgspec.json.decode(answer, type=WorkerState)
            else:
                self._known.pop(address, None)
        if at_once:
            self._asked.set()
        if not self.gaps:
            self.gaps = next((one.gaps for one in self._accepting.values()), ())
        self._report_refusals()

    # --- notebooks ------------------------------------------------------------------------------

    async def run(self, job: Job, options: RunOptions, saver: FileSaver) -> NotebookResult:
        """Run a notebook on a worker, and on another if that is lost. Raise ClusterError."""
        payload = msgspec.msgpack.encode((job, options))
        status = NotebookStatus.killed
        why = f"{MAX_TRIES} times its worker was gone before it ended"
        for _ in range(MAX_TRIES):
            workers = await self._accepting_workers()
            if not workers:
                status, why = NotebookStatus.interrupted, "the run was ended"
                break
            answer = await self._send(payload, workers)
            if isinstance(answer, TaskResult):
                return self._take_home(answer, saver)
            if answer is not None:
                why = answer
                break
        return NotebookResult(notebook=job.name, status=status, reason=why)

    async def _send(self, payload: bytes, workers: list[str]) -> TaskResult | str | None:
        """Return the result, why there can't be one, or None if the task has to be sent again."""
        future = self._client.submit(
            run_notebook,
            self._name,
            payload,
            key=f"{self._name}-{os.urandom(8).hex()}",
            workers=workers,
            pure=False,
        )
        try:
            while not future.done():
                # It is done, too, where the scheduler was lost.
                with contextlib.suppress(TimeoutError, FuturesCancelledError):
                    await wait([future], timeout=_POLL)
                lost = not self._accepting.keys() & set(workers)
                if lost and not future.done():
                    return None
            return await self._answer(future)
        finally:
            if not future.done():
                await self._client.cancel([future], force=True)
            future.release()

    async def _answer(self, future: Any) -> TaskResult | str | None:
        match future.status:
            case "finished":
                return msgspec.msgpack.decode(await future.result(), type=TaskResult)
            case "error":
                error = await future.exception()
                if isinstance(error, KilledWorker):
                    return "the workers that ran it were lost, one after another"
                if isinstance(error, BackendError | KeyError):  # it has no pool for this run
                    self._asked.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._asked.wait(), MAX_WAIT)
                    return None
                return f"{type(error).__name__}: {error}"
        if self._client.status != "running":
            raise ClusterError(f"{self._address}: the scheduler was lost. --resume goes on.")
        return None

    def _take_home(self, answer: TaskResult, saver: FileSaver) -> NotebookResult:
        """Save what a worker has sent. Raise OSError where its log can't be saved."""
        result = answer.result
        for name, content in answer.audit.items():
            if is_log_name(name):
                self._folder.keep(_AUDIT, name, content)
        if left := answer.audit_left:
            self._message(f"{result.notebook}: its audit log stays on its worker: {left}")
        try:
            if answer.document is not None:
                saver.begin(Document.from_bytes(answer.document))
                saver.finish(result)
        except UnwritableError as exc:
            return exc.result(result)
        return result
