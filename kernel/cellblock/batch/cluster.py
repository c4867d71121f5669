"""``cellblock run --cluster``: the same run on a Dask cluster, one notebook a task.

Workers are hosts, and as trusted as this process: Dask's own protocol carries programs both ways.
No part of that is a guest's. What crosses as ours is bytes that are decoded strictly. Dask is an
extra: only this module imports it.

The run's end is an executor of `batch.run.runner`, `ClusterExecutor`. It sends notebooks to workers
that keep the policy, and takes results and audit logs home, whatever happens to workers.

In each worker process `ZygotePlugin` has a pool with a warm zygote for the run's policy. It is
opened for the first notebook, and closed when the run ends, or has sent none for a minute. A
notebook may narrow the policy (promise P8): the worker reads its metadata, as a run without a
cluster does, and a guest shows that the narrower policy is enforced.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from distributed import Client, KilledWorker, get_worker, wait
from distributed.client import FuturesCancelledError
from distributed.comm.addressing import get_address_host, normalize_address
from distributed.diagnostics.plugin import WorkerPlugin

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
)
from cellblock.batch.run.runner import Run, check_out_of_reach
from cellblock.errors import AuditError, BackendError, CellblockError
from cellblock.host.audit.log import find, is_log_name
from cellblock.policy import load
from cellblock.policy.model import Audit, Gap, Policy, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Worker

    from cellblock.batch.run.runner import OutputFolder, Progress, RunRequest, RunResult

#: Seconds for a scheduler to answer.
CONNECT_TIMEOUT: Final = 10.0
#: Seconds between looks at which workers there are, and at whether a notebook is still wanted.
_POLL: Final = 1.0
#: Seconds without a notebook after which a worker closes what it holds for a run.
IDLE: Final = 60.0
_TICK: Final = 0.1
#: Seconds without a worker, after which notebooks wait no longer.
MAX_WAIT: Final = 60.0
#: Times that a notebook is sent, where its workers vanish. Dask tries four with each.
MAX_TRIES: Final = 5
#: Notebooks under way for each thread of a worker: one that runs, and the next one.
_PER_THREAD: Final = 2
#: The folder for audit logs among the run's own files.
_AUDIT: Final = "audit"
#: Bytes of a session's audit log that are sent home; a larger one stays on its worker.
MAX_AUDIT_BYTES: Final = 16 << 20


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


class TaskResult(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The result of a notebook, the document that is written, and the files of the audit log.

    ``audit_left`` says why the log stays on the worker, if it does. ``gaps`` are the worker's.
    """

    result: NotebookResult
    document: bytes | None = None
    audit: dict[str, bytes] = {}
    audit_left: str = ""
    gaps: tuple[Gap, ...] = ()


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """Why the worker at this address can't keep the policy."""

    address: str
    host: str
    why: str


# --- in a worker process --------------------------------------------------------------------------


class ZygotePlugin(WorkerPlugin):  # type: ignore[misc]  # it has no types
    """Runs the notebooks of a run, or says why it can't. Its methods never end the worker."""

    def __init__(self, offer: bytes, name: str, idle: float) -> None:
        self._offer, self.name, self._idle = offer, name, idle

    def setup(self, worker: Worker) -> None:
        """Wait for a notebook: a run that is gone sends none, and later workers start nothing."""
        # Keep gaps out of the worker's log: the run shows them once, and not for each guest.
        log = logging.getLogger("cellblock")
        if not log.handlers:
            log.addHandler(logging.NullHandler())
        self._worker = worker
        #: Held while the pool is opened or closed, and for the numbers of its users.
        self._lock = threading.Lock()
        self._users, self._timer = 0, threading.Timer(0.0, self._close_unused)
        self._thread: LoopThread | None = None
        self._pool: AsyncSandboxPool | None = None
        self._pools: PolicyPools | None = None
        self._gaps: tuple[Gap, ...] = ()
        self._running: set[Execution] = set()
        self._stopped = False

    def teardown(self, worker: Worker) -> None:
        """End what runs, and close the pool: in a thread, as the worker's own loop has to go on."""
        del worker
        self.stop()
        threading.Thread(target=self._close_unused, name="cellblock-end", daemon=True).start()

    def run(self, key: str, job: Job, options: RunOptions) -> TaskResult | Refusal:
        """Run a notebook, in the calling thread, which is a Dask task's."""
        if self._stopped:
            return TaskResult(result=ended_by_run(job))
        try:
            with self._lock:
                thread, pools = self._thread, self._pools
                if thread is None or pools is None:
                    thread, pools = self._open()
                self._users += 1
                self._timer.cancel()
        except Exception as exc:  # noqa: BLE001 - whatever it is, this worker can't
            kind = "" if isinstance(exc, CellblockError) else f"{type(exc).__name__}: "
            return Refusal(self._worker.address, socket.gethostname(), f"{kind}{exc}")
        execution = Execution(job, options)
        try:
            result = thread.run(self._execute(execution, pools, key))
        finally:
            with self._lock:
                self._users -= 1
                idle = 0.0 if self._stopped else self._idle
                self._timer = threading.Timer(idle, self._close_unused)
                self._timer.daemon = True
                self._timer.start()
        document = execution.document.to_bytes() if execution.document is not None else None
        audit, left = audit_files(result.session, pools.operators.config.policy.audit)
        return TaskResult(
            result=result, document=document, audit=audit, audit_left=left, gaps=self._gaps
        )

    async def _execute(self, execution: Execution, pools: PolicyPools, key: str) -> NotebookResult:
        """Run it while anybody waits for it, and end it where the run was killed."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(_POLL)
                task = self._worker.state.tasks.get(key)
                if task is None or task.state == "cancelled":
                    execution.stop()

        self._running.add(execution)
        watching = asyncio.create_task(watch())
        try:
            return await execution.run(pools)
        finally:
            watching.cancel()
            self._running.discard(execution)

    def stop(self) -> None:
        """End all that runs, soon, and begin nothing; when called twice, at once."""
        self._stopped = True
        for execution in tuple(self._running):
            if self._thread is not None:
                self._thread.soon(execution.stop)

    def _open(self) -> tuple[LoopThread, PolicyPools]:
        """Open the pool, and check with a guest what is enforced. Raise what that raises."""
        offer = msgspec.json.decode(self._offer, type=PolicyOffer)
        policy = accept_offer(offer)
        project = offer.project if Path(offer.project).is_dir() else self._worker.local_directory
        thread = LoopThread()
        pool = AsyncSandboxPool(policy, project=project, allow_unsafe=offer.allow_unsafe)
        try:
            thread.run(pool.open())
            self._gaps = thread.run(enforced_gaps(pool))
        except BaseException:
            thread.run(pool.close())
            thread.end()
            raise
        pools = PolicyPools(pool, check=enforced_gaps)
        self._thread, self._pool, self._pools = thread, pool, pools
        return thread, pools

    def _close_unused(self) -> None:
        with self._lock:
            thread, pools, pool = self._thread, self._pools, self._pool
            if self._users or thread is None or pools is None or pool is None:
                return
            self._thread = self._pools = self._pool = None
            thread.run(pools.close())
            thread.run(pool.close())
            thread.end()


def ended_by_run(job: Job) -> NotebookResult:
    """Return the result of a notebook that was not begun, as the run was ended."""
    why = "the run was ended"
    return NotebookResult(notebook=job.name, status=NotebookStatus.interrupted, reason=why)


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


# --- what a run calls -----------------------------------------------------------------------------


def stop_notebooks(name: str, dask_worker: Worker) -> None:
    """End a run's notebooks on this worker."""
    if (plugin := dask_worker.plugins.get(name)) is not None:
        plugin.stop()


def run_notebook(name: str, key: str, task: bytes) -> bytes:
    """Run one notebook; a Dask task."""
    job, options = msgspec.msgpack.decode(task, type=tuple[Job, RunOptions])
    return msgspec.msgpack.encode(get_worker().plugins[name].run(key, job, options))


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
        (name,), unsafe = set(request.notebooks.values()), request.allow_unsafe
        policy = load.load(name, project=Path.cwd(), allow_unsafe=unsafe)
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
        #: How many threads each worker has, by address, and why some get no notebook.
        self._threads: dict[str, int] = {}
        self._refusals: dict[str, str] = {}
        #: What the first worker that ran a notebook does not enforce.
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
            plugin = ZygotePlugin(msgspec.json.encode(self._offer), self._name, IDLE)
            try:
                await self._client.register_plugin(plugin, name=self._name)
            except Exception as exc:  # noqa: BLE001 - whatever a worker has raised
                what = "its workers can't take a policy. Is cellblock[dask] installed on each?"
                why = f"({type(exc).__name__}: {exc})"
                raise ClusterError(f"{self._address}: {what} {why}") from None
            self._tasks.add(asyncio.create_task(self._watch()))
            await self._workers()
        except BaseException:
            await self._close()
            raise
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

        async def stop_workers() -> None:
            with contextlib.suppress(Exception):  # a worker may be gone
                await self._client.run(stop_notebooks, self._name, on_error="ignore")

        self._tasks.add(asyncio.ensure_future(stop_workers()))

    # --- which workers there are ----------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many notebooks are to be under way now."""
        return _PER_THREAD * sum(self._threads[at] for at in self._accepting)

    @property
    def _accepting(self) -> list[str]:
        return [address for address in self._threads if address not in self._refusals]

    async def _watch(self) -> None:
        """See which workers there are."""
        while True:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self._threads = await self._client.nthreads()
            await asyncio.sleep(_POLL)

    async def _workers(self) -> list[str]:
        """Wait for workers that may run a notebook, and return them; none if the run ends.

        Raise ClusterError if none comes, or all that are there refuse the policy.
        """
        waited = 0.0
        while not (self._accepting or self._stopped):
            if waited > MAX_WAIT or self._threads:
                why = "the cluster has no workers"
                if self._threads:
                    refusals = dict.fromkeys(self._refusals.values())
                    why = f"no worker keeps the policy. {'. '.join(refusals)}"
                raise ClusterError(f"{self._address}: {why}")
            await asyncio.sleep(_TICK)
            waited += _TICK
        return self._accepting

    # --- notebooks ------------------------------------------------------------------------------

    async def run(self, job: Job, options: RunOptions) -> tuple[NotebookResult, Document | None]:
        """Run a notebook on a worker, and on another if that is lost. Raise ClusterError."""
        payload = msgspec.msgpack.encode((job, options))
        tries, why = 0, f"{MAX_TRIES} times its worker was gone before it ended"
        while tries < MAX_TRIES:
            workers = await self._workers()
            if not workers:
                return ended_by_run(job), None
            match await self._send(payload, workers):
                case TaskResult() as answer:
                    return self._take_home(answer)
                case Refusal(address=address, host=host, why=refusal):
                    said = f"worker on {host}: {refusal}"
                    if said not in self._refusals.values():
                        self._message(said)
                    self._refusals[address] = said
                case str() as why:
                    break
                case None:
                    tries += 1
        killed = NotebookStatus.killed
        return NotebookResult(notebook=job.name, status=killed, reason=why), None

    async def _send(self, payload: bytes, workers: list[str]) -> TaskResult | Refusal | str | None:
        """Return the result, why there can't be one, or None if the task has to be sent again."""
        key = f"{self._name}-{os.urandom(8).hex()}"
        # Dask chooses among all of them, and those to come, unless some refuse.
        chosen = workers if self._refusals else None
        future = self._client.submit(
            run_notebook, self._name, key, payload, key=key, workers=chosen, pure=False
        )
        try:
            while not future.done():
                # It is done, too, where the scheduler was lost.
                with contextlib.suppress(TimeoutError, FuturesCancelledError):
                    await wait([future], timeout=_POLL)
                if future.done():
                    break
                there = await self._workers()
                if not there or (chosen and not set(chosen) & set(there)):
                    return None
            return await self._answer(future)
        finally:
            if not future.done():
                await self._client.cancel([future], force=True)
            future.release()

    async def _answer(self, future: Any) -> TaskResult | Refusal | str | None:
        match future.status:
            case "finished":
                return msgspec.msgpack.decode(await future.result(), type=TaskResult | Refusal)
            case "error":
                error = await future.exception()
                if isinstance(error, KilledWorker):
                    return "the workers that ran it were lost, one after another"
                return f"{type(error).__name__}: {error}"
        if self._client.status != "running":
            raise ClusterError(f"{self._address}: the scheduler was lost. --resume goes on.")
        return None

    def _take_home(self, answer: TaskResult) -> tuple[NotebookResult, Document | None]:
        """Take what a worker has sent. Raise OSError where its log can't be saved."""
        self.gaps = self.gaps or answer.gaps
        for name, content in answer.audit.items():
            if is_log_name(name):
                self._folder.keep(_AUDIT, name, content)
        if left := answer.audit_left:
            name = answer.result.notebook
            self._message(f"{name}: its audit log stays on its worker: {left}")
        written = answer.document
        return answer.result, None if written is None else Document.from_bytes(written)
