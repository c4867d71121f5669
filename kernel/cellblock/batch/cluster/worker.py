"""In a worker process: a warm zygote for a run's policy, for as long as the run lasts.

It is there from the run's first question on, until the run says that it ends, or says nothing more.
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
from distributed import Status, get_worker
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.node import ServerNode
from msgspec.structs import replace

from cellblock import __version__
from cellblock.api.blocking import LoopThread
from cellblock.api.pool import AsyncSandboxPool
from cellblock.batch.cluster import protocol
from cellblock.batch.cluster.protocol import MOST_AUDIT, Log
from cellblock.batch.run.execution import Execution, Job
from cellblock.batch.run.result import Fate, Record, said
from cellblock.errors import AuditError, BackendError, CellblockError
from cellblock.host.audit import reader
from cellblock.policy import load
from cellblock.policy.model import Audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Worker

    from cellblock.batch.run.document import Document
    from cellblock.host.session.config import Ground
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy


# How a worker tells a run that goes on from one that was killed, and could not say so.

#: How often a run is heard of in the time after which nothing means that it is gone.
BEATS: Final = 4


class Pulse:
    """Calls ``silent`` on its loop, again and again, when nothing was heard for so many seconds.

    Waits are counted, not time: a worker that was itself held up for as long hears the run first.
    """

    def __init__(self, seconds: float, silent: Callable[[], None]) -> None:
        self._every, self._silent = seconds / BEATS, silent
        self._missed = 0
        self._counting = asyncio.get_running_loop().create_task(self._count())

    def hear(self) -> None:
        """Take note that the run goes on."""
        self._missed = 0

    def end(self) -> None:
        """Listen no more."""
        self._counting.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            self._missed += 1
            if self._missed > BEATS:
                self._silent()


# A worker that closes comes to its end, also where a signal comes meanwhile.

#: Seconds that a worker has for its end, once its loop ends.
_PATIENCE: Final = 5.0


class Closing:
    """Sees to a worker's end, until it is let go of.

    A signal while it closes, as just after its scheduler has gone, cancels what it does, and it
    would wait for its own end for ever (``Worker.handle_scheduler``, distributed 2026.8.0). The
    longer a plugin takes to end, the more likely.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker, self._let_go = worker, False
        self._seeing = asyncio.get_running_loop().create_task(self._see())

    def let_go(self) -> None:
        """Leave a worker that goes on to itself."""
        if self._worker.status is not Status.closing:
            self._let_go = True
            self._seeing.cancel()

    async def _see(self) -> None:
        try:
            await self._worker.finished()
        except asyncio.CancelledError:
            if not self._let_go:
                await self._end()
            raise

    async def _end(self) -> None:
        """Have it at its end: it may come to that in the midst of this loop's, by itself."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._worker.finished()
        except TimeoutError:
            await ServerNode.close(self._worker)


# A session's audit log on its way home.


def log_of(session: str, audit: Audit) -> Log:
    """Return a session's log: nothing where there is none, or why it stays where it is."""
    if not session or not audit.log:
        return Log()
    try:
        found = reader.find(Path(audit.folder), session)
        if sum(path.stat().st_size for path in found.files) > MOST_AUDIT:
            return Log(left=f"it is over {MOST_AUDIT >> 20} MiB")
        return Log(files={path.name: path.read_bytes() for path in found.files})
    except AuditError as exc:
        return Log(left=exc.message)
    except OSError as exc:
        return Log(left=f"it can't be read: {exc.strerror}")


_DENY: Final = "read_deny_paths"
#: What a worker answers that prepares: it is to be asked again.
NOT_YET: Final = b""
#: Seconds that a question waits for the answer to it, and a worker's loop for a pool to end.
_ASKED: Final = 2.0
_ENDING: Final = 5.0


class WarmZygote(WorkerPlugin):  # type: ignore[misc]  # it has no types
    """Takes an offer up, or says why not; it never fails, as that would be the worker's end."""

    def __init__(self, offer: bytes, name: str, silence: float) -> None:
        self._offer, self.name, self._silence = offer, name, silence

    def setup(self, worker: Worker) -> None:
        """Be there to be asked: a run that is gone asks nothing, and later workers start nothing.

        No ``await`` here, so that no question comes before its end.
        """
        _hold_back_gaps()
        self._running: set[Execution] = set()
        self._stopped = False
        self._thread: LoopThread | None = None
        self._pool: AsyncSandboxPool | None = None
        self._pools: protocol.Sent | None = None
        self._offered: Policy | None = None
        self._where = worker.local_directory, worker.state.nthreads
        self._found = protocol.Found(host=socket.gethostname(), threads=worker.state.nthreads)
        self._turn, self._over = threading.Lock(), False
        self._opening: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._pulse = Pulse(self._silence, self._rest)
        self._closing = Closing(worker)

    def teardown(self, worker: Worker) -> None:
        """End the pool."""
        del worker
        self._closing.let_go()
        self._over = True
        self._pulse.end()
        ending = threading.Thread(target=self._end, name="cellblock-end")
        ending.start()
        ending.join(_ENDING)

    async def found(self) -> protocol.Found | None:
        """Return what came of the offer, or None: not known yet. The pool opens when first asked.

        The worker's own loop goes on meanwhile.
        """
        self._pulse.hear()
        if self._opening is None:
            self._opening = asyncio.create_task(asyncio.to_thread(self._begin))
        done, _ = await asyncio.wait([self._opening], timeout=_ASKED)
        return self._found if done else None

    def hear(self) -> None:
        """Take note that the run goes on."""
        self._pulse.hear()

    def _rest(self) -> None:
        """End the pool of a run that is not heard of. If it is after all, another one opens."""
        if self._opening is not None and self._opening.done():
            self._opening = None
            self._ending = asyncio.create_task(asyncio.to_thread(self._end))

    def _begin(self) -> None:
        with self._turn:
            if not self._over:
                self._found = self._try(*self._where)

    def _end(self) -> None:
        with self._turn:
            self._close()

    def _try(self, folder: str, threads: int) -> protocol.Found:
        made = protocol.Found(host=socket.gethostname(), threads=threads)
        try:
            offer = msgspec.json.decode(self._offer, type=protocol.Offer)
            self._offered = _offered(offer)
            policy = accepted(offer)
            project = offer.project if Path(offer.project).is_dir() else folder
            backend, gaps = self._open(policy, project, allow_unsafe=offer.allow_unsafe)
        except CellblockError as exc:
            refusal = str(exc)
        except Exception as exc:  # noqa: BLE001 - whatever it is, this worker can't
            refusal = f"{type(exc).__name__}: {exc}"
        else:
            return replace(made, backend=backend, gaps=tuple(map(_told, gaps)))
        self._close()
        return replace(made, refusal=refusal)

    def _open(
        self, policy: Policy, project: str, *, allow_unsafe: bool
    ) -> tuple[str, tuple[Gap, ...]]:
        """Open the pool, and have a guest show what is enforced. Raises CellblockError."""
        self._thread = thread = LoopThread()
        self._pool = pool = AsyncSandboxPool(policy, project=project, allow_unsafe=allow_unsafe)
        thread.run(pool.open())
        backend, gaps = thread.run(protocol.shown(pool))
        protocol.check_kept(backend, gaps)
        self._pools = protocol.Sent(pool)
        return backend, gaps

    def _close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._pools is not None:
                thread.run(self._pools.close())
            if self._pool is not None:
                thread.run(self._pool.close())
            thread.end()

    def run(self, work: protocol.Work) -> protocol.Returned:
        """Run a notebook, in the thread that this is called in. Raises CellblockError."""
        thread, pools, held = self._thread, self._pools, Held()
        if thread is None or pools is None:
            raise BackendError(self._found.refusal)
        ground = pools.operators.ground
        try:
            policy = self._less(work, ground)
        except CellblockError as exc:
            refused = Record(notebook=work.name, fate=Fate.denied, reason=said(str(exc)))
            return protocol.Returned(record=refused)
        job = Job(work.name, work.content, work.folder, policy=policy)
        execution = Execution(job, work.terms, held)
        if self._stopped:
            execution.stop()
        self._running.add(execution)
        try:
            record = thread.run(execution.run(pools))
        finally:
            self._running.discard(execution)
            if self._thread is not thread:  # it says nothing of the notebook
                raise BackendError("the pool was ended while the notebook ran")
        document = held.document.whole() if held.document is not None else None
        audit = log_of(record.session, ground.policy.audit)
        return protocol.Returned(record=record, document=document, audit=audit)

    def _less(self, work: protocol.Work, ground: Ground) -> Policy | None:
        """Return the narrower policy that a notebook was sent with. Raises CellblockError."""
        if work.less is None or self._offered is None:
            return None
        return protocol.accepted(work.less, self._offered, ground)

    def stop(self) -> None:
        """Have all that runs, or is yet to, end soon; twice, at once."""
        self._stopped = True
        for execution in tuple(self._running):
            if self._thread is not None:
                self._thread.soon(execution.stop)


class Held:
    """``execution.Saver`` that holds the document, and sends it home when it is whole."""

    def __init__(self) -> None:
        self.document: Document | None = None

    def begun(self, written: Document) -> None:
        """Hold it."""
        self.document = written

    def cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Do nothing: the document has it."""

    def ended(self, record: Record) -> None:
        """Do nothing: the record goes home with it."""


def accepted(offer: protocol.Offer) -> Policy:
    """Return the policy of an offer, with this worker's user's credentials denied, too.

    Raises CellblockError for one that is not what its hash says, or is from another version.
    """
    policy = _offered(offer)
    denied = dict.fromkeys((*policy.read_deny_paths, *load.preset_values("safe")[_DENY]))
    # Logs go home; until then they are where this worker's user keeps them.
    audit = dataclasses.replace(policy.audit, folder=Audit().folder)
    return policy.replace(read_deny_paths=tuple(denied), audit=audit)


def _offered(offer: protocol.Offer) -> Policy:
    """Return the policy of an offer as it was sent. Raises CellblockError."""
    if offer.version != __version__:
        raise BackendError(f"cellblock is {__version__} here, and {offer.version} where the run is")
    policy = load.of_fields(offer.policy, file="the run's policy")
    if policy.digest() != offer.digest:
        raise BackendError("the policy that arrived is not the one that its hash is of")
    return policy


def _hold_back_gaps() -> None:
    """Keep gaps out of the worker's log: the run tells them once, and not for each guest."""
    log = logging.getLogger("cellblock")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def _told(gap: Gap) -> dict[str, Any]:
    return {name: getattr(gap, name) for name in gap.__slots__}


# --- what a run calls -------------------------------------------------------------------------


async def found(name: str, dask_worker: Worker) -> bytes | None:
    """Return what this worker found of an offer, or NOT_YET; None where that has not arrived."""
    plugin = dask_worker.plugins.get(name)
    if plugin is None:
        return None
    known = await plugin.found()
    return NOT_YET if known is None else msgspec.json.encode(known)


def hear(name: str, dask_worker: Worker) -> None:
    """Have this worker know that a run goes on."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.hear()


def stop(name: str, dask_worker: Worker) -> None:
    """Have a run's notebooks end here."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.stop()


def run_notebook(name: str, work: bytes) -> bytes:
    """Run one notebook; a task."""
    plugin = get_worker().plugins[name]
    return msgspec.msgpack.encode(plugin.run(msgspec.msgpack.decode(work, type=protocol.Work)))
