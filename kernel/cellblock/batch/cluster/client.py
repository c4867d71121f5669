"""The run's end of a cluster: notebooks out, results in, whatever happens to workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from distributed import Client, KilledWorker, wait
from distributed.client import FuturesCancelledError
from distributed.comm.addressing import get_address_host, normalize_address

from cellblock import __version__
from cellblock.batch.cluster import worker
from cellblock.batch.cluster.worker import PolicyOffer, TaskResult, WorkerState
from cellblock.batch.run.document import Document
from cellblock.batch.run.result import NotebookResult, NotebookStatus, UnwritableError
from cellblock.batch.run.runner import Run, check_out_of_reach
from cellblock.errors import BackendError, CellblockError
from cellblock.host.audit import reader
from cellblock.policy import load
from cellblock.policy.model import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.batch.run.execution import Job
    from cellblock.batch.run.output_folder import FileSaver, OutputFolder
    from cellblock.batch.run.plan import RunOptions
    from cellblock.batch.run.report import Progress
    from cellblock.batch.run.result import RunResult
    from cellblock.batch.run.runner import RunRequest
    from cellblock.policy.enforcement import Gap

#: Seconds for a scheduler to answer.
CONNECT_TIMEOUT: Final = 10.0
#: Seconds between looks at which workers there are, and at whether a notebook's is still there.
_POLL: Final = 1.0
#: Seconds for workers to answer: one that hangs must not keep the run from being heard by others.
_ANSWER_TIMEOUT: Final = 5.0
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
            await self._register_plugin()
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

    async def _register_plugin(self) -> None:
        plugin = worker.ZygotePlugin(msgspec.json.encode(self._offer), self._name, SILENCE)
        try:
            await self._client.register_plugin(plugin, name=self._name)
        except Exception as exc:  # noqa: BLE001 - whatever a worker has raised
            what = "its workers can't take a policy. Is cellblock[dask] installed on each?"
            raise ClusterError(f"{self._address}: {what} ({type(exc).__name__}: {exc})") from None

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
        self._tasks.add(asyncio.ensure_future(self._stop_workers()))

    async def _stop_workers(self) -> None:
        with contextlib.suppress(Exception):  # a worker may be gone
            await self._client.run(worker.stop, self._name, on_error="ignore")

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

        A worker that is asked hears that the run goes on (see `worker.ZygotePlugin`).
        """
        self._present = present = frozenset(await self._client.nthreads())
        self._known = {at: one for at, one in self._known.items() if at in present}
        at_once, now = not self._asked.is_set(), time.monotonic()
        if at_once or now - self._last_asked >= SILENCE / worker.BEATS:
            self._last_asked, asked = now, list(present)
        else:
            asked = [at for at in present if at not in self._known]
        answers: dict[str, bytes | None] = {}
        if asked:
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                answers = await self._client.run(
                    worker.worker_state, self._name, workers=asked, on_error="ignore"
                )
        self._preparing = frozenset(at for at in answers if answers[at] == worker.NOT_YET)
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
            worker.run_notebook,
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
        result, log = answer.result, answer.audit
        for name, content in log.files.items():
            if reader.is_log_name(name):
                self._folder.keep(_AUDIT, name, content)
        if log.left:
            self._message(f"{result.notebook}: its audit log stays on its worker: {log.left}")
        try:
            if answer.document is not None:
                saver.begin(Document.from_bytes(answer.document))
                saver.finish(result)
        except UnwritableError as exc:
            return exc.result(result)
        return result
