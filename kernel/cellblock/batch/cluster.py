"""``cellblock run --cluster``: a run on a Dask cluster, with a Dask task for each notebook.

Workers are hosts, and as trusted as this process: Dask's own protocol carries programs both ways.
Guests have no part in it. cellblock's own messages are bytes that are decoded strictly. Dask is an
extra, which only this module imports.

- **In the process of the run**, `ClusterExecutor` is the executor of `batch.run.runner`. It sends
  notebooks to workers that can enforce the policy, sends a notebook again if its worker is lost,
  and takes results and audit logs home.
- **In each worker process**, `ZygotePlugin` has a pool with a warm zygote for the run's policy. The
  pool is opened for the first notebook, and closed when the run ends, or has sent no notebook for a
  minute.

A notebook may narrow the policy (promise P8). The worker reads its metadata, like a run without a
cluster, and starts a guest to see that the narrower policy is enforced.
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

#: Seconds that a scheduler has to answer.
CONNECT_TIMEOUT: Final = 10.0
#: Seconds between two looks at the list of workers, and between two looks at whether the run still
#: waits for a notebook.
_POLL: Final = 1.0
#: Seconds without a notebook after which a worker closes its pool.
IDLE: Final = 60.0
#: Seconds between two looks at whether a worker has come.
_TICK: Final = 0.1
#: Seconds that notebooks wait for a worker if there is none.
MAX_WAIT: Final = 60.0
#: The number of times that a notebook is sent if its workers vanish. Each time, Dask tries four
#: workers.
MAX_TRIES: Final = 5
#: Notebooks under way for each thread of a worker: the one that runs, and the next one.
_PER_THREAD: Final = 2
#: The folder for audit logs among the run's own files.
_AUDIT: Final = "audit"
#: Bytes of a session's audit log that are sent home; a larger one stays on its worker.
MAX_AUDIT_BYTES: Final = 16 << 20


# --- messages -------------------------------------------------------------------------------------


class PolicyOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a run, sent to each worker: all its fields, and their hash.

    ``project`` is the project folder, which a worker's machine need not have.
    """

    version: str
    policy: dict[str, Any]
    digest: str
    allow_unsafe: bool
    project: str


class TaskResult(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The result of a notebook, the executed notebook, and the files of the audit log.

    ``audit_left`` says why the log stays on the worker, if it does. ``gaps`` are the gaps in
    enforcement on the worker.
    """

    result: NotebookResult
    document: bytes | None = None
    audit: dict[str, bytes] = {}
    audit_left: str = ""
    gaps: tuple[Gap, ...] = ()


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """The refusal of a worker that can't enforce the policy, and its reason."""

    address: str
    host: str
    why: str


# --- in a worker process --------------------------------------------------------------------------


class ZygotePlugin(WorkerPlugin):  # type: ignore[misc]  # it has no types
    """The plugin of a Dask worker that runs the notebooks of one run.

    Dask's threads call ``run``, one for each task; the executions run on the loop of a thread that
    the plugin owns. Its methods never end the worker.
    """

    def __init__(self, offer: bytes, name: str, idle: float) -> None:
        self._offer = offer
        self.name = name
        self._idle = idle

    def setup(self, worker: Worker) -> None:
        """Prepare to run notebooks. The pool is opened for the first one.

        Dask also calls it on workers that start when the run may be gone: those get no notebook,
        and so they start nothing.
        """
        # Keep gaps out of the worker's log: the run shows them once, not for each guest.
        log = logging.getLogger("cellblock")
        if not log.handlers:
            log.addHandler(logging.NullHandler())
        self._worker = worker
        #: Held while the pool is opened or closed, and while ``_users`` changes.
        self._lock = threading.Lock()
        #: The number of notebooks that use the pool.
        self._users = 0
        self._timer = threading.Timer(0.0, self._close_unused)
        self._thread: LoopThread | None = None
        self._pool: AsyncSandboxPool | None = None
        self._pools: PolicyPools | None = None
        self._gaps: tuple[Gap, ...] = ()
        self._running: set[Execution] = set()
        self._stopped = False

    def teardown(self, worker: Worker) -> None:
        """End the notebooks that run, and close the pool.

        The pool is closed in a thread, because the worker's own loop must go on.
        """
        del worker
        self.stop()
        threading.Thread(target=self._close_unused, name="cellblock-end", daemon=True).start()

    def run(self, key: str, job: Job, options: RunOptions) -> TaskResult | Refusal:
        """Run a notebook, and return when it has ended. Called in the thread of a Dask task."""
        if self._stopped:
            return TaskResult(result=ended_by_run(job))
        try:
            with self._lock:
                thread, pools = self._thread, self._pools
                if thread is None or pools is None:
                    thread, pools = self._open()
                self._users += 1
                self._timer.cancel()
        except Exception as exc:  # noqa: BLE001 - whatever the reason, this worker can't run it
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
        """Run a notebook, and stop it if the run was killed, so that its Dask task is gone."""

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
        """End the notebooks that run, soon, and begin none. If called again, end them at once."""
        self._stopped = True
        for execution in tuple(self._running):
            if self._thread is not None:
                self._thread.soon(execution.stop)

    def _open(self) -> tuple[LoopThread, PolicyPools]:
        """Open the pool, and start a guest to see what is enforced. Raise if that fails."""
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
        """Close the pool and end its thread, unless a notebook uses the pool."""
        with self._lock:
            thread, pools, pool = self._thread, self._pools, self._pool
            if self._users or thread is None or pools is None or pool is None:
                return
            self._thread = self._pools = self._pool = None
            thread.run(pools.close())
            thread.run(pool.close())
            thread.end()


def ended_by_run(job: Job) -> NotebookResult:
    """Return the result of a notebook that was not begun because the run was ended."""
    why = "the run was ended"
    return NotebookResult(notebook=job.name, status=NotebookStatus.interrupted, reason=why)


def audit_files(session: str, audit: Audit) -> tuple[dict[str, bytes], str]:
    """Return the file of a session's audit log by its name, or why the log stays here."""
    if not session or not audit.log:
        return {}, ""
    try:
        log = find(Path(audit.folder), session)
        if log.file.stat().st_size > MAX_AUDIT_BYTES:
            return {}, f"it is over {MAX_AUDIT_BYTES >> 20} MiB"
        return {log.file.name: log.file.read_bytes()}, ""
    except AuditError as exc:
        return {}, exc.message
    except OSError as exc:
        return {}, f"it can't be read: {exc.strerror}"


def accept_offer(offer: PolicyOffer) -> Policy:
    """Return the policy of an offer, which also denies the credentials of this worker's user.

    Raise CellblockError if the offer is of another version of cellblock, or if the policy doesn't
    match its hash.
    """
    if offer.version != __version__:
        raise BackendError(f"cellblock is {__version__} here, and {offer.version} where the run is")
    policy = load.from_fields(offer.policy, file="the run's policy")
    if policy.digest() != offer.digest:
        raise BackendError("the policy that arrived is not the one that its hash is of")
    denied_paths = load.preset_values("safe")["read_deny_paths"]
    denied_paths = dict.fromkeys((*policy.read_deny_paths, *denied_paths))
    # Logs are sent home. Until then they lie in the folder of this worker's user.
    audit = dataclasses.replace(policy.audit, folder=Audit().folder)
    return policy.replace(read_deny_paths=tuple(denied_paths), audit=audit)


async def enforced_gaps(pool: AsyncSandboxPool) -> tuple[Gap, ...]:
    """Return the gaps in enforcement of a guest of the pool.

    Raise BackendError if anything that the policy asks for is not enforced at all.
    """
    async with pool.sandbox() as sandbox:
        backend = sandbox.backend
        gaps = sandbox.gaps
    unenforced = [gap for gap in gaps if gap.status in (Status.unenforced, Status.unavailable)]
    if unenforced:
        summary = "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in unenforced)
        raise BackendError(f"backend {backend} can't enforce the policy here: {summary}")
    return gaps


# --- functions that the run calls on workers ------------------------------------------------------


def stop_notebooks(name: str, dask_worker: Worker) -> None:
    """End a run's notebooks on this worker."""
    if (plugin := dask_worker.plugins.get(name)) is not None:
        plugin.stop()


def run_notebook(name: str, key: str, task: bytes) -> bytes:
    """Run one notebook. This is the function of a Dask task."""
    job, options = msgspec.msgpack.decode(task, type=tuple[Job, RunOptions])
    return msgspec.msgpack.encode(get_worker().plugins[name].run(key, job, options))


# --- in the process of the run --------------------------------------------------------------------


class ClusterError(CellblockError):
    """The error for a cluster that can't be reached, or whose workers can't enforce the policy."""


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
            problem = "files that cells leave are not brought home from workers"
            raise ClusterError(
                f"{policy.name}: artifact_export_paths: {problem}. Remove the entry."
            )
        check_out_of_reach(request, folder, policy.filesystem_write_roots)
        executor = ClusterExecutor(address, policy, folder, progress.message, allow_unsafe=unsafe)
        # Set before it is entered, so that signals also end the run while it waits for workers.
        run.executor = executor
        async with executor:
            return await run.run(executor, exports=False)


class ClusterExecutor:
    """The executor that runs notebooks in the workers of a Dask cluster that enforce the policy.

    ``message`` is called with texts for the user: which workers get no notebooks, and which audit
    logs stay on their workers.
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
        self._address = address
        self._folder = folder
        self._message = message
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
        #: The number of threads of each worker, by address.
        self._threads: dict[str, int] = {}
        #: Why workers get no notebooks, by address.
        self._refusals: dict[str, str] = {}
        #: The gaps in enforcement on the first worker that ran a notebook.
        self.gaps: tuple[Gap, ...] = ()

    def digest(self, _policy: str, /) -> str:
        """Return the digest of the one policy of the run."""
        return self._digest

    async def __aenter__(self) -> Self:
        """Connect, and wait for a worker. Raise ClusterError if nothing can be run."""
        try:
            # Parse the address first: a Client with a bad address leaves coroutines behind.
            get_address_host(normalize_address(self._address))
            self._client = await Client(self._address, asynchronous=True, timeout=CONNECT_TIMEOUT)
        except (OSError, TimeoutError, ValueError) as exc:
            raise ClusterError(f"no scheduler at {self._address}: {exc}") from None
        try:
            plugin = ZygotePlugin(msgspec.json.encode(self._offer), self._name, IDLE)
            try:
                await self._client.register_plugin(plugin, name=self._name)
            except Exception as exc:  # noqa: BLE001 - whatever a worker has raised
                problem = "its workers can't take a policy. Is cellblock[dask] installed on each?"
                cause = f"({type(exc).__name__}: {exc})"
                raise ClusterError(f"{self._address}: {problem} {cause}") from None
            self._tasks.add(asyncio.create_task(self._watch()))
            await self._workers()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Make workers close their pools for this run, and disconnect."""
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(Exception):  # the scheduler may be gone
            await self._client.unregister_worker_plugin(self._name)
        await self._client.close()

    def stop(self) -> None:
        """End the notebooks on all workers, soon; if called again, at once."""
        self._stopped = True

        async def stop_workers() -> None:
            with contextlib.suppress(Exception):  # a worker may be gone
                await self._client.run(stop_notebooks, self._name, on_error="ignore")

        self._tasks.add(asyncio.ensure_future(stop_workers()))

    # --- workers --------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """The number of notebooks that may be under way now."""
        return _PER_THREAD * sum(self._threads[address] for address in self._accepting)

    @property
    def _accepting(self) -> list[str]:
        """The addresses of the workers that have not refused the policy."""
        return [address for address in self._threads if address not in self._refusals]

    async def _watch(self) -> None:
        """Keep ``_threads`` up to date, until cancelled."""
        while True:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self._threads = await self._client.nthreads()
            await asyncio.sleep(_POLL)

    async def _workers(self) -> list[str]:
        """Wait for workers that may run a notebook, and return their addresses.

        There are none if the run is being ended. Raise ClusterError if no worker comes, or if all
        workers have refused the policy.
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
        """Run a notebook on a worker, and on another if the worker is lost. Raise ClusterError."""
        payload = msgspec.msgpack.encode((job, options))
        tries = 0
        why = f"{MAX_TRIES} times its worker was gone before it ended"
        while tries < MAX_TRIES:
            workers = await self._workers()
            if not workers:
                return ended_by_run(job), None
            match await self._send(payload, workers):
                case TaskResult() as answer:
                    return self._take_home(answer)
                case Refusal(address=address, host=host, why=refusal):
                    text = f"worker on {host}: {refusal}"
                    if text not in self._refusals.values():
                        self._message(text)
                    self._refusals[address] = text
                case str() as why:
                    break
                case None:
                    tries += 1
        killed = NotebookStatus.killed
        return NotebookResult(notebook=job.name, status=killed, reason=why), None

    async def _send(self, payload: bytes, workers: list[str]) -> TaskResult | Refusal | str | None:
        """Send a notebook, and return a worker's result or refusal.

        Return a text if there can be no result, and None if the notebook must be sent again.
        """
        key = f"{self._name}-{os.urandom(8).hex()}"
        # Dask may choose any worker, also one that comes later, unless some have refused.
        allowed_workers = workers if self._refusals else None
        future = self._client.submit(
            run_notebook, self._name, key, payload, key=key, workers=allowed_workers, pure=False
        )
        try:
            while not future.done():
                # If the scheduler is lost, the future is done too.
                with contextlib.suppress(TimeoutError, FuturesCancelledError):
                    await wait([future], timeout=_POLL)
                if future.done():
                    break
                present = await self._workers()
                if not present or (allowed_workers and not set(allowed_workers) & set(present)):
                    return None
            return await self._answer(future)
        finally:
            if not future.done():
                await self._client.cancel([future], force=True)
            future.release()

    async def _answer(self, future: Any) -> TaskResult | Refusal | str | None:
        """Return what ``_send`` returns, from a future that is done. Raise ClusterError."""
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
        """Save the audit log that a worker has sent, and return the result and the document.

        Raise OSError if the log can't be saved.
        """
        self.gaps = self.gaps or answer.gaps
        for name, content in answer.audit.items():
            if is_log_name(name):
                self._folder.keep(_AUDIT, name, content)
        if why_left := answer.audit_left:
            name = answer.result.notebook
            self._message(f"{name}: its audit log stays on its worker: {why_left}")
        document = answer.document
        return answer.result, None if document is None else Document.from_bytes(document)
