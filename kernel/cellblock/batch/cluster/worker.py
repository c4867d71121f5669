"""In a worker process: a pool with a warm zygote for a run's policy, for as long as the run lasts.

It is opened when the run first asks, and closed when the run says that it ends, or says nothing any
more. The functions at the end are what the run calls through Dask.

A notebook may narrow the policy (promise P8). The worker reads its metadata, as a run without a
cluster does, and a guest shows that the narrower policy is enforced.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from distributed import Status as WorkerStatus
from distributed import get_worker
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.node import ServerNode
from msgspec.structs import replace

from cellblock import __version__
from cellblock.api.blocking import LoopThread
from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.batch.run.execution import Execution, Job, PolicyPools
from cellblock.batch.run.plan import RunOptions
from cellblock.batch.run.result import NotebookResult
from cellblock.errors import AuditError, BackendError, CellblockError
from cellblock.host.audit.log import find
from cellblock.policy import load
from cellblock.policy.enforcement import Gap, Status
from cellblock.policy.model import Audit

if TYPE_CHECKING:
    from distributed import Worker

    from cellblock.policy.model import Policy

#: The answer of a worker that still prepares: it is to be asked again.
NOT_YET: Final = b""
#: How often a run is heard of in the time after which silence means that it is gone.
BEATS: Final = 4
#: Bytes of a session's audit log that are sent home; a larger one stays on its worker.
MAX_AUDIT_BYTES: Final = 16 << 20
#: Seconds that a question waits for its answer, and that a worker's loop waits for a pool to close.
_ANSWER_TIMEOUT: Final = 2.0
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


class AuditFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of an audit log by name; or why it was ``left`` on the worker."""

    files: dict[str, bytes] = {}
    left: str = ""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a notebook, the document that is written, and the audit log."""

    result: NotebookResult
    document: bytes | None = None
    audit: AuditFiles = AuditFiles()


# --- the pool -------------------------------------------------------------------------------------


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
        done, _ = await asyncio.wait([self._opening], timeout=_ANSWER_TIMEOUT)
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
        audit = audit_files(result.session, pools.operators.config.policy.audit)
        return TaskResult(result=result, document=document, audit=audit)

    def stop(self) -> None:
        """End all that runs, or is yet to, soon; when called twice, at once."""
        self._stopped = True
        for execution in tuple(self._running):
            if self._thread is not None:
                self._thread.soon(execution.stop)


def audit_files(session: str, audit: Audit) -> AuditFiles:
    """Return a session's audit log. It is empty if there is none, or says why it stays here."""
    if not session or not audit.log:
        return AuditFiles()
    try:
        found = find(Path(audit.folder), session)
        if sum(path.stat().st_size for path in found.files) > MAX_AUDIT_BYTES:
            return AuditFiles(left=f"it is over {MAX_AUDIT_BYTES >> 20} MiB")
        return AuditFiles(files={path.name: path.read_bytes() for path in found.files})
    except AuditError as exc:
        return AuditFiles(left=exc.message)
    except OSError as exc:
        return AuditFiles(left=f"it can't be read: {exc.strerror}")


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


def stop(name: str, dask_worker: Worker) -> None:
    """End a run's notebooks on this worker."""
    if (plugin := dask_worker.plugins.get(name)) is not None:
        plugin.stop()


def run_notebook(name: str, task: bytes) -> bytes:
    """Run one notebook; a Dask task."""
    job, options = msgspec.msgpack.decode(task, type=tuple[Job, RunOptions])
    return msgspec.msgpack.encode(get_worker().plugins[name].run(job, options))
