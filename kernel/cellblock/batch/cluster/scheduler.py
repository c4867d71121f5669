"""A run's end of the cluster: notebooks out, records in, whatever becomes of workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from distributed import Client, KilledWorker, wait
from distributed.client import FuturesCancelledError
from distributed.comm.addressing import get_address_host, normalize_address
from msgspec.structs import replace

from cellblock import __version__
from cellblock.batch.cluster import protocol, worker
from cellblock.batch.cluster.protocol import Offer
from cellblock.batch.cluster.worker import BEATS
from cellblock.batch.run import runner
from cellblock.batch.run.document import Document
from cellblock.batch.run.execution import UnwritableError, told
from cellblock.batch.run.result import Fate, Record, said
from cellblock.batch.run.runner import Run
from cellblock.errors import BackendError, CellblockError, PolicyError
from cellblock.host.audit import reader
from cellblock.policy import load
from cellblock.policy.enforcement import Gap
from cellblock.policy.model import Policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cellblock.batch.run.execution import Job, Saver
    from cellblock.batch.run.plan import Terms
    from cellblock.batch.run.runner import Listener, Order, Ran
    from cellblock.batch.run.state import OutputFolder


# Which workers a cluster has, which of them keep the policy, and that they hear of the run.

#: Seconds between looks at which workers there are.
LOOKING: Final = 1.0
#: Seconds without a worker that keeps the policy, after which notebooks wait no longer.
ALONE: Final = 60.0
_TICK: Final = 0.1


class ClusterError(CellblockError):
    """There is no cluster, or none whose workers keep the policy."""


class Roll:
    """The workers of the cluster at an address, for the run that is called ``name`` there.

    They are told each quarter of ``silence`` seconds that the run goes on.
    """

    def __init__(self, address: str, name: str, silence: float) -> None:
        self._address, self._name = address, name
        self._client: Any = None
        self._beat = silence / BEATS
        self._there: frozenset[str] = frozenset()
        self._known: dict[str, protocol.Found] = {}
        self._preparing: frozenset[str] = frozenset()
        self._sure = asyncio.Event()
        self._sure.set()
        self._say: Callable[[str], None] | None = None
        self._said: set[str] = set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._ended = False
        self.gaps: tuple[Gap, ...] = ()

    def begin(self, client: Any) -> None:
        """Look for workers from now on, and be heard by them."""
        self._client = client
        making = asyncio.get_running_loop().create_task
        self._tasks = (making(self._watch()), making(self._be_heard()))

    def end(self) -> None:
        """Do so no more."""
        for task in self._tasks:
            task.cancel()

    def give_up(self) -> None:
        """Have nobody wait for workers any more: the run is to end."""
        self._ended = True
        self._sure.set()

    def listen(self, said: Callable[[str], None]) -> None:
        """Have it said, once each, why workers get no notebook: of those there are, and to come."""
        self._say = said
        self._tell()

    @property
    def keeping(self) -> dict[str, protocol.Found]:
        """The workers that keep the policy, by address."""
        return {address: one for address, one in self._known.items() if not one.refusal}

    @property
    def threads(self) -> int:
        """How many threads they have."""
        return sum(one.threads for one in self.keeping.values())

    async def someone(self, *, at_once: bool = False) -> list[str]:
        """Return the workers that a notebook may go to; none where the run is to end.

        Raises ClusterError when none comes; with ``at_once``, also when all that are there refuse.
        Those that prepare are waited for.
        """
        waited = 0.0
        while not (self.keeping or self._ended):
            refused = at_once and self._there and self._there <= self._known.keys()
            if waited > ALONE or refused:
                raise ClusterError(f"{self._address}: {self._why_none()}")
            await asyncio.sleep(_TICK)
            waited = 0.0 if self._preparing else waited + _TICK
        return list(self.keeping)

    async def doubt(self) -> None:
        """Have all workers asked again: one of them has no pool for this run any more."""
        self._sure.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._sure.wait(), ALONE)

    def _why_none(self) -> str:
        if not self._there:
            return "the cluster has no workers"
        return "no worker keeps the policy. " + ". ".join(self._refusals())

    def _refusals(self) -> list[str]:
        said = (
            f"worker on {one.host}: {one.refusal}" for one in self._known.values() if one.refusal
        )
        return list(dict.fromkeys(said))

    def _tell(self) -> None:
        if self._say is None:
            return
        for reason in self._refusals():
            if reason not in self._said:
                self._said.add(reason)
                self._say(reason)

    # --- what goes on meanwhile -----------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                await self._look()
            await asyncio.sleep(LOOKING)

    async def _look(self) -> None:
        """See which workers there are, and what new ones have found by now, or all in doubt."""
        doubted = not self._sure.is_set()
        there = frozenset(await self._client.nthreads())
        asked = [at for at in there if doubted or at not in self._known]
        answers: dict[str, bytes | None] = {}
        if asked:
            asking = self._client.run(worker.found, self._name, workers=asked, on_error="ignore")
            answers = await asking
        found = {at: _found(answer) for at, answer in answers.items() if answer}
        self._there = there
        self._preparing = frozenset(
            at for at, answer in answers.items() if answer == worker.NOT_YET
        )
        known = {at: one for at, one in self._known.items() if at in there and at not in asked}
        self._known = known | found
        if doubted:
            self._sure.set()
        self.gaps = self.gaps or next((_gaps(one) for one in self.keeping.values()), ())
        self._tell()

    async def _be_heard(self) -> None:
        """Tell all workers that the run goes on: see ``pulse``."""
        while True:
            await asyncio.sleep(self._beat)
            with contextlib.suppress(Exception):  # a worker may be gone; others have heard
                async with asyncio.timeout(self._beat):
                    await self._client.run(worker.hear, self._name, on_error="ignore")


def _found(answer: bytes) -> protocol.Found:
    return msgspec.json.decode(answer, type=protocol.Found)


def _gaps(found: protocol.Found) -> tuple[Gap, ...]:
    return tuple(Gap(**gap) for gap in found.gaps)


#: Seconds for a scheduler to answer, and between looks at whether a notebook's worker is there.
CONNECTING: Final = 10.0
_LOOKING: Final = 1.0
#: Seconds after which workers end what they hold for a run that is not heard of any more.
SILENCE: Final = 60.0
#: Times that a notebook is sent, where its workers vanish. Dask tries four with each.
TRIES: Final = 5
#: Notebooks under way for each thread of a worker's: one that runs, one that is there when it ends.
_AHEAD: Final = 2
_AUDIT: Final = "audit"


class Workers:
    """``crew.Crew`` of a Dask cluster: those of its workers that keep the policy."""

    def __init__(
        self, address: str, offer: protocol.Offer, policy: Policy, folder: OutputFolder
    ) -> None:
        self._address, self._offer, self._folder = address, offer, folder
        self._policy = policy
        self._name = f"cellblock-{offer.digest[:12]}-{os.urandom(4).hex()}"
        self._client: Any = None
        self._roll = Roll(address, self._name, SILENCE)
        self._stopping: asyncio.Future[None] | None = None
        self._said: Callable[[str], None] = _nothing
        self.digest = offer.digest

    async def __aenter__(self) -> Self:
        """Raise ClusterError where nothing can be run."""
        try:
            get_address_host(normalize_address(self._address))  # a client leaves coroutines
            self._client = await Client(self._address, asynchronous=True, timeout=CONNECTING)
        except (OSError, TimeoutError, ValueError) as exc:
            raise ClusterError(f"no scheduler at {self._address}: {exc}") from None
        try:
            await self._begin()
        except BaseException:
            await self._end()
            raise
        return self

    async def _begin(self) -> None:
        plugin = worker.WarmZygote(msgspec.json.encode(self._offer), self._name, SILENCE)
        try:
            await self._client.register_plugin(plugin, name=self._name)
        except Exception as exc:  # noqa: BLE001 - whatever a worker has raised
            what = "its workers can't take a policy. Is cellblock[dask] installed on each?"
            raise ClusterError(f"{self._address}: {what} ({type(exc).__name__}: {exc})") from None
        self._roll.begin(self._client)
        await self._roll.someone(at_once=True)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Have workers end what they held for this run."""
        await self._end()

    async def _end(self) -> None:
        self._roll.end()
        with contextlib.suppress(Exception):  # it may be gone
            await self._client.unregister_worker_plugin(self._name)
        await self._client.close()

    def listen(self, said: Callable[[str], None]) -> None:
        """Have it said which workers get no notebook, and which logs stay with theirs."""
        self._said = said
        self._roll.listen(said)

    @property
    def lanes(self) -> int:
        """How many notebooks are to be under way by now."""
        return _AHEAD * self._roll.threads

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the first worker does not enforce."""
        return self._roll.gaps

    # --- notebooks ----------------------------------------------------------------------------

    async def run(self, job: Job, terms: Terms, saver: Saver) -> Record:
        """Run a notebook on a worker; on another where that is lost. Raises ClusterError."""
        try:
            less = await protocol.less_of(job, self._policy)
        except PolicyError as exc:
            return Record(notebook=job.name, fate=Fate.denied, reason=said(told(exc)))
        what: Any = {"name": job.name, "content": job.content, "folder": job.folder}
        payload = msgspec.msgpack.encode(protocol.Work(**what, terms=terms, less=less))
        why = f"{TRIES} times its worker was gone before it ended"
        for _ in range(TRIES):
            workers = await self._roll.someone()
            if not workers:
                return Record(notebook=job.name, fate=Fate.interrupted, reason="the run was ended")
            answer = await self._sent(payload, workers)
            if isinstance(answer, protocol.Returned):
                return self._home(answer, saver)
            if answer is not None:
                why = answer
                break
        return Record(notebook=job.name, fate=Fate.killed, reason=why)

    async def _sent(self, payload: bytes, workers: list[str]) -> protocol.Returned | str | None:
        """Return what came of it; why nothing could; None where it has to be sent again."""
        future = self._client.submit(
            worker.run_notebook,
            self._name,
            payload,
            key=f"{self._name}-{os.urandom(8).hex()}",
            workers=workers,
            pure=False,
        )
        try:
            while not await _ended(future):
                if not self._roll.keeping.keys() & set(workers):
                    return None
            return await self._answer(future)
        finally:
            if not future.done():
                await self._client.cancel([future], force=True)
            future.release()

    async def _answer(self, future: Any) -> protocol.Returned | str | None:
        match future.status:
            case "finished":
                return msgspec.msgpack.decode(await future.result(), type=protocol.Returned)
            case "error":
                error = await future.exception()
                if isinstance(error, KilledWorker):
                    return "the workers that ran it were lost, one after another"
                if isinstance(error, BackendError | KeyError):
                    await self._roll.doubt()
                    return None
                return f"{type(error).__name__}: {error}"
        if self._client.status != "running":
            raise ClusterError(f"{self._address}: the scheduler was lost. --resume goes on.")
        return None

    def _home(self, answer: protocol.Returned, saver: Saver) -> Record:
        """Keep what a worker has sent. Raises OSError where its log can't be kept."""
        record, log = answer.record, answer.audit
        for name, content in log.files.items():
            if reader.is_name(name):
                self._folder.keep(_AUDIT, name, content)
        if log.left:
            self._said(f"{record.notebook}: its audit log stays on its worker: {log.left}")
        if answer.document is None:
            return record
        try:
            saver.begun(Document.of(answer.document))
            saver.ended(record)
        except UnwritableError as exc:
            return replace(record, fate=Fate.killed, reason=said(str(exc)), cell=0)
        return record

    def stop(self) -> None:
        """Have notebooks end on all workers; twice, at once."""
        self._roll.give_up()
        self._stopping = asyncio.ensure_future(self._stop())

    async def _stop(self) -> None:
        with contextlib.suppress(Exception):  # a worker may be gone
            await self._client.run(worker.stop, self._name, on_error="ignore")


async def _ended(future: Any) -> bool:
    """Wait a while for a task's end; say whether it came, if only by the scheduler's loss."""
    with contextlib.suppress(TimeoutError, FuturesCancelledError):
        await wait([future], timeout=_LOOKING)
    return bool(future.done())


def _nothing(text: str) -> None:
    """Say it to nobody: none listens yet."""


# ``cellblock run --cluster``: the same run, by workers.


def run(order: Order, folder: OutputFolder, listener: Listener, address: str) -> Ran:
    """Run the notebooks on the cluster of that scheduler. Raises CellblockError."""
    return asyncio.run(_there(order, folder, listener, address))


async def _there(order: Order, folder: OutputFolder, listener: Listener, address: str) -> Ran:
    made = Run(order, folder, listener)
    with made.heeding_signals():
        policy = _policy(order)
        runner.check(order, folder, policy.filesystem_write_roots)
        workers = Workers(address, _offer(policy, order), policy, folder)
        made.end_with_signals(workers)  # while it waits for workers, too
        async with workers:
            workers.listen(listener.said)
            return await made.by(workers, exports=False)


def _policy(order: Order) -> Policy:
    if isinstance(order.policy, Policy):
        found = order.policy
    else:
        allowed = order.allow_unsafe
        found = load.load(order.policy, project=Path.cwd(), allow_unsafe=allowed)
    if found.artifact_export_paths:
        what = "files that cells leave are not brought home from workers"
        raise ClusterError(f"{found.name}: artifact_export_paths: {what}. Remove the entry.")
    return found


def _offer(policy: Policy, order: Order) -> Offer:
    return Offer(
        version=__version__,
        policy=policy.as_dict(),
        digest=policy.digest(),
        allow_unsafe=order.allow_unsafe,
        project=str(Path.cwd()),
    )
