"""A run's end of the cluster: notebooks out, records in, whatever becomes of workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from distributed import Client, KilledWorker, wait
from distributed.client import FuturesCancelledError
from distributed.comm.addressing import get_address_host, normalize_address
from msgspec.structs import replace

from cellblock.batch.cluster import narrowing, speech, warm
from cellblock.batch.cluster.roll import ClusterError, Roll
from cellblock.batch.run.document import Document
from cellblock.batch.run.execution import UnwritableError
from cellblock.batch.run.fate import Fate, Record, said
from cellblock.batch.run.narrowing import told
from cellblock.errors import BackendError, PolicyError
from cellblock.host.audit import reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cellblock.batch.run.execution import Job, Saver
    from cellblock.batch.run.folder import OutputFolder
    from cellblock.batch.run.terms import Terms
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy

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
        self, address: str, offer: speech.Offer, policy: Policy, folder: OutputFolder
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
        plugin = warm.WarmZygote(msgspec.json.encode(self._offer), self._name, SILENCE)
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
            less = await narrowing.less_of(job, self._policy)
        except PolicyError as exc:
            return Record(notebook=job.name, fate=Fate.denied, reason=said(told(exc)))
        what: Any = {"name": job.name, "content": job.content, "folder": job.folder}
        payload = msgspec.msgpack.encode(speech.Work(**what, terms=terms, less=less))
        why = f"{TRIES} times its worker was gone before it ended"
        for _ in range(TRIES):
            workers = await self._roll.someone()
            if not workers:
                return Record(notebook=job.name, fate=Fate.interrupted, reason="the run was ended")
            answer = await self._sent(payload, workers)
            if isinstance(answer, speech.Returned):
                return self._home(answer, saver)
            if answer is not None:
                why = answer
                break
        return Record(notebook=job.name, fate=Fate.killed, reason=why)

    async def _sent(self, payload: bytes, workers: list[str]) -> speech.Returned | str | None:
        """Return what came of it; why nothing could; None where it has to be sent again."""
        future = self._client.submit(
            warm.run_notebook,
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

    async def _answer(self, future: Any) -> speech.Returned | str | None:
        match future.status:
            case "finished":
                return msgspec.msgpack.decode(await future.result(), type=speech.Returned)
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

    def _home(self, answer: speech.Returned, saver: Saver) -> Record:
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
            await self._client.run(warm.stop, self._name, on_error="ignore")


async def _ended(future: Any) -> bool:
    """Wait a while for a task's end; say whether it came, if only by the scheduler's loss."""
    with contextlib.suppress(TimeoutError, FuturesCancelledError):
        await wait([future], timeout=_LOOKING)
    return bool(future.done())


def _nothing(text: str) -> None:
    """Say it to nobody: none listens yet."""
