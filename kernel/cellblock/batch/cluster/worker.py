"""In a worker process: a pool with a warm zygote for a run's policy, for as long as the run lasts.

It is opened when the run first asks, and closed when the run says that it ends, or says nothing any
more. The functions at the end are what the run calls through Dask.

A notebook's own policy (promise P8) is found out by the client, as in a run without a cluster, and
sent with its hash. A worker takes it if it has that hash, allows no more than the run's policy, and
a guest keeps it.
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
from cellblock.batch.cluster.protocol import (
    MAX_AUDIT_BYTES,
    AuditFiles,
    NotebookTask,
    PolicyOffer,
    TaskResult,
    WorkerState,
)
from cellblock.batch.run.execution import Execution, Job, PolicyPools
from cellblock.errors import AuditError, BackendError, CellblockError, PolicyError
from cellblock.host.audit import reader
from cellblock.policy import load
from cellblock.policy.enforcement import Status
from cellblock.policy.model import Audit
from cellblock.policy.narrow_requests import NOTEBOOK_TABLE, requested_table
from cellblock.policy.narrowing import check_narrower
from cellblock.policy.paths import Places, expand_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Worker

    from cellblock.batch.cluster.protocol import NarrowedPolicy
    from cellblock.batch.run.document import Document
    from cellblock.batch.run.notebook import Notebook
    from cellblock.batch.run.result import NotebookResult
    from cellblock.host.session.config import SessionConfig
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy

#: The answer of a worker that still prepares: it is to be asked again.
NOT_YET: Final = b""
#: How often a run is heard of in the time after which silence means that it is gone.
BEATS: Final = 4
#: Seconds that a question waits for its answer, and that a worker's loop waits for a pool to close.
_ANSWER_TIMEOUT: Final = 2.0
_CLOSE_TIMEOUT: Final = 5.0


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
        self._running: set[Execution] = set()
        self._stopped = False
        self._thread: LoopThread | None = None
        self._pool: AsyncSandboxPool | None = None
        self._pools: SentPolicyPools | None = None
        self._offered: Policy | None = None
        self._folder = worker.local_directory
        self._unanswered = WorkerState(host=socket.gethostname(), threads=worker.state.nthreads)
        self._state = self._unanswered
        #: Held while the pool is opened or closed.
        self._lock, self._removed = threading.Lock(), False
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._heartbeat = Heartbeat(self._silence, self._close_until_asked)
        self._close_guard = CloseGuard(worker)

    def teardown(self, worker: Worker) -> None:
        """Close the pool."""
        del worker
        self._close_guard.cancel()
        self._removed = True
        self._heartbeat.cancel()
        closing = threading.Thread(target=self._close_in_thread, name="cellblock-end")
        closing.start()
        closing.join(_CLOSE_TIMEOUT)

    async def state(self) -> WorkerState | None:
        """Return the answer to the offer, or None if it is not known yet.

        The first question opens the pool, in a thread, as the worker's own loop has to go on.
        """
        self._heartbeat.beat()
        if self._opening is None:
            self._opening = asyncio.create_task(asyncio.to_thread(self._open_in_thread))
        done, _ = await asyncio.wait([self._opening], timeout=_ANSWER_TIMEOUT)
        return self._state if done else None

    def beat(self) -> None:
        """Note that the run goes on."""
        self._heartbeat.beat()

    def _close_until_asked(self) -> None:
        """Close the pool of a run that is silent. If it asks after all, another one is opened."""
        if self._opening is not None and self._opening.done():
            self._opening = None
            self._closing = asyncio.create_task(asyncio.to_thread(self._close_in_thread))

    def _open_in_thread(self) -> None:
        """Open the pool, and check with a guest what is enforced: the answer to the offer."""
        with self._lock:
            if self._removed:
                return
            try:
                gaps = self._open()
            except Exception as exc:  # noqa: BLE001 - whatever it is, this worker can't
                kind = "" if isinstance(exc, CellblockError) else f"{type(exc).__name__}: "
                self._state = replace(self._unanswered, refusal=f"{kind}{exc}")
                self._close()
            else:
                fields = tuple(map(dataclasses.asdict, gaps))
                self._state = replace(self._unanswered, gaps=fields)

    def _open(self) -> tuple[Gap, ...]:
        offer = msgspec.json.decode(self._offer, type=PolicyOffer)
        self._offered = _offered_policy(offer)
        policy = accept_offer(offer)
        project = offer.project if Path(offer.project).is_dir() else self._folder
        self._thread = thread = LoopThread()
        self._pool = AsyncSandboxPool(policy, project=project, allow_unsafe=offer.allow_unsafe)
        thread.run(self._pool.open())
        gaps = thread.run(enforced_gaps(self._pool))
        self._pools = SentPolicyPools(self._pool)
        return gaps

    def _close_in_thread(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._pools is not None:
                thread.run(self._pools.close())
            if self._pool is not None:
                thread.run(self._pool.close())
            thread.end()

    def run(self, task: NotebookTask) -> TaskResult:
        """Run a notebook, in the calling thread. Raise CellblockError."""
        thread, pools, saver = self._thread, self._pools, MemorySaver()
        if thread is None or pools is None:
            raise BackendError(self._state.refusal)
        config, policy = pools.operators.config, None
        try:
            if task.narrowed is not None and self._offered is not None:
                policy = accept_narrowed(task.narrowed, self._offered, config)
        except CellblockError as exc:
            return TaskResult.denied(task.name, str(exc))
        job = Job(task.name, task.content, task.folder, policy=policy)
        execution = Execution(job, task.options, saver)
        if self._stopped:
            thread.soon(execution.stop)
        self._running.add(execution)
        try:
            result = thread.run(execution.run(pools))
        finally:
            self._running.discard(execution)
            if self._thread is not thread:  # then the result says nothing of the notebook
                raise BackendError("the pool was ended while the notebook ran")
        document = saver.document.to_bytes() if saver.document is not None else None
        audit = audit_files(result.session, config.policy.audit)
        return TaskResult(result=result, document=document, audit=audit)

    def stop(self) -> None:
        """End all that runs, or is yet to, soon; when called twice, at once."""
        self._stopped = True
        for execution in tuple(self._running):
            if self._thread is not None:
                self._thread.soon(execution.stop)


class MemorySaver:
    """`execution.Saver` that holds the document, to be sent when it is complete."""

    def __init__(self) -> None:
        self.document: Document | None = None

    def begin(self, document: Document) -> None:
        """Hold the document, which gets all cells."""
        self.document = document

    def save_cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Do nothing: the document has the cell."""

    def finish(self, result: NotebookResult) -> None:
        """Do nothing: the result is sent with the document."""


def audit_files(session: str, audit: Audit) -> AuditFiles:
    """Return a session's audit log. It is empty if there is none, or says why it stays here."""
    if not session or not audit.log:
        return AuditFiles()
    try:
        found = reader.find(Path(audit.folder), session)
        if sum(path.stat().st_size for path in found.files) > MAX_AUDIT_BYTES:
            return AuditFiles(left=f"it is over {MAX_AUDIT_BYTES >> 20} MiB")
        return AuditFiles(files={path.name: path.read_bytes() for path in found.files})
    except AuditError as exc:
        return AuditFiles(left=exc.message)
    except OSError as exc:
        return AuditFiles(left=f"it can't be read: {exc.strerror}")


# --- policies that were sent ----------------------------------------------------------------------


def accept_offer(offer: PolicyOffer) -> Policy:
    """Return the policy of an offer, which also denies the credentials of this worker's user.

    Raise CellblockError for a policy that does not have its hash, or is of another version.
    """
    policy = _offered_policy(offer)
    denied = load.preset_values("safe")["read_deny_paths"]
    denied = dict.fromkeys((*policy.read_deny_paths, *denied))
    # Logs are sent home; until then they are where this worker's user keeps them.
    audit = dataclasses.replace(policy.audit, folder=Audit().folder)
    return policy.replace(read_deny_paths=tuple(denied), audit=audit)


def _offered_policy(offer: PolicyOffer) -> Policy:
    """Return the policy of an offer as it was sent. Raise CellblockError."""
    if offer.version != __version__:
        raise BackendError(f"cellblock is {__version__} here, and {offer.version} where the run is")
    policy = load.from_fields(offer.policy, file="the run's policy")
    if policy.digest() != offer.digest:
        raise BackendError("the policy that arrived is not the one that its hash is of")
    return policy


def accept_narrowed(narrowed: NarrowedPolicy, offered: Policy, config: SessionConfig) -> Policy:
    """Return a policy narrower than the ``offered`` one, placed where that holds.

    What the worker denies is denied, and logs are kept as the worker keeps them. Raise
    CellblockError for a policy that does not have its hash, that allows more, there or here, or
    whose folders are not here.
    """
    file = "the notebook's policy"
    policy = load.from_fields(narrowed.policy, file=file)
    if policy.digest() != narrowed.digest:
        raise BackendError("the notebook's policy that arrived is not the one that its hash is of")
    check_narrower(offered, policy, file=file)
    mine = config.policy
    denied = tuple(dict.fromkeys((*policy.read_deny_paths, *mine.read_deny_paths)))
    places = Places(file, config.project, config.project, config.scratch)
    here = expand_paths(policy.replace(read_deny_paths=denied, audit=mine.audit), places)
    check_narrower(mine, here, file=file)
    return here


class SentPolicyPools(PolicyPools):
    """`PolicyPools` of a worker, to which the policies of notebooks are sent."""

    async def policy_of(self, notebook: Notebook, job: Job) -> Policy:
        """Return the policy that was sent with a notebook. Raise PolicyError if it has none."""
        if job.policy is not None:
            return job.policy
        if requested_table({"metadata": notebook.metadata}) is None:
            return self.operators.config.policy
        what, remedy = "asks for a policy, and none was sent with it", "Report this."
        key = f"metadata.{NOTEBOOK_TABLE}"
        raise PolicyError(what, file=str(job.file), key=key, value="", remedy=remedy)

    async def _open(self, pool: AsyncSandboxPool) -> None:
        """Open a pool, and check with a guest that its policy is kept. Raise CellblockError."""
        if not pool.is_open:
            await pool.open()
            try:
                await enforced_gaps(pool)
            except BaseException:
                await pool.close()
                raise


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


# --- runs that are gone, and workers that close ---------------------------------------------------


class Heartbeat:
    """Calls ``on_silence`` on its loop, again and again, after so many seconds without a beat.

    A run that was killed could not say that it ends. Intervals are counted, not time: a worker that
    was itself held up for as long gets the run's beats first.
    """

    def __init__(self, seconds: float, on_silence: Callable[[], None]) -> None:
        self._interval, self._on_silence = seconds / BEATS, on_silence
        self._missed = 0
        self._counting = asyncio.get_running_loop().create_task(self._count())

    def beat(self) -> None:
        """Note that the run goes on."""
        self._missed = 0

    def cancel(self) -> None:
        """Stop counting."""
        self._counting.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            self._missed += 1
            if self._missed > BEATS:
                self._on_silence()


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


def beat(name: str, dask_worker: Worker) -> None:
    """Tell this worker that a run goes on."""
    if (plugin := dask_worker.plugins.get(name)) is not None:
        plugin.beat()


def stop(name: str, dask_worker: Worker) -> None:
    """End a run's notebooks on this worker."""
    if (plugin := dask_worker.plugins.get(name)) is not None:
        plugin.stop()


def run_notebook(name: str, task: bytes) -> bytes:
    """Run one notebook; a Dask task."""
    plugin = get_worker().plugins[name]
    return msgspec.msgpack.encode(plugin.run(msgspec.msgpack.decode(task, type=NotebookTask)))
