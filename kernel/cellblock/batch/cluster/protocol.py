"""What a run and its workers say to each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.run.execution import Pools
from cellblock.batch.run.notebook import UnreadableError, read
from cellblock.batch.run.plan import Terms  # noqa: TC001 - as above
from cellblock.batch.run.result import Record  # noqa: TC001 - msgspec reads the annotations
from cellblock.errors import BackendError, PolicyError
from cellblock.policy import load, paths
from cellblock.policy.enforcement import Status
from cellblock.policy.narrow_requests import NOTEBOOK_TABLE, asked_of, of_notebook
from cellblock.policy.narrowing import check_narrower
from cellblock.policy.paths import Places

if TYPE_CHECKING:
    from cellblock.api.pool import AsyncSandboxPool
    from cellblock.batch.run.execution import Job
    from cellblock.batch.run.notebook import Notebook
    from cellblock.host.session.config import Ground
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy


#: Bytes of a session's audit log that are brought home; more stays on its worker.
MOST_AUDIT = 16 << 20


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a run: all of its fields, the hash of them, and what goes with it.

    ``project`` is its folder, which a worker may have or not.
    """

    version: str
    policy: dict[str, Any]
    digest: str
    allow_unsafe: bool
    project: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker made of an offer: why it can't keep the policy, or nothing; and its gaps."""

    host: str
    threads: int
    refusal: str = ""
    backend: str = ""
    gaps: tuple[dict[str, Any], ...] = ()


class Less(msgspec.Struct, frozen=True, kw_only=True):
    """What a notebook's metadata leaves of the policy: all fields of that, and their hash."""

    policy: dict[str, Any]
    digest: str


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A notebook to be run; ``less`` goes with every one whose metadata asks for anything."""

    name: str
    content: bytes
    folder: str
    terms: Terms
    less: Less | None = None


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """An audit log by its files' names; or why it was ``left`` on the worker."""

    files: dict[str, bytes] = {}
    left: str = ""


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it: the notebook as it is written, and its audit log."""

    record: Record
    document: bytes | None = None
    audit: Log = Log()


# A notebook's own policy, where the run is and where its cells are (promise P8).
#
# It is found out where the run is, as for a run without a cluster, and sent with its hash. A
# worker takes it up if it has that hash, allows no more than the run's policy, and is kept by a
# guest there.

#: What nothing keeps: a worker of which that is true for anything asked is refused.
_VOID: Final = (Status.unenforced, Status.unavailable)
_FILE: Final = "the notebook's policy"
#: What is in every notebook that asks for a policy: the key as it is, or a letter by its number.
_ASKS: Final = (f'"{NOTEBOOK_TABLE}"'.encode(), b"\\u")


# --- where the run is -------------------------------------------------------------------------


async def less_of(job: Job, policy: Policy) -> Less | None:
    """Return what a notebook leaves of the run's policy; None where it asks for nothing.

    Raises PolicyError, also where it wants more. What can't be read is for the worker to say.
    """
    if not any(sign in job.content for sign in _ASKS):
        return None
    return await asyncio.to_thread(_less, job, policy)


def _less(job: Job, policy: Policy) -> Less | None:
    try:
        notebook = read(job.content)
    except UnreadableError:
        return None
    whole = {"metadata": notebook.metadata}
    if asked_of(whole) is None or not notebook.is_python:
        return None
    left = of_notebook(whole, policy, file=job.file, project=Path.cwd())
    return Less(policy=left.as_dict(), digest=left.digest())


# --- where its cells are ----------------------------------------------------------------------


def accepted(less: Less, offered: Policy, ground: Ground) -> Policy:
    """Return a narrower policy than was ``offered``, as it is on the ground of that.

    What is denied there and how logs are kept is the worker's. Raises CellblockError for one that
    is not what its hash says, that allows more, there or here, or whose folders are not here.
    """
    policy = load.of_fields(less.policy, file=_FILE)
    if policy.digest() != less.digest:
        raise BackendError("the notebook's policy that arrived is not the one that its hash is of")
    check_narrower(offered, policy, file=_FILE)
    mine = ground.policy
    denied = tuple(dict.fromkeys((*policy.read_deny_paths, *mine.read_deny_paths)))
    places = Places(_FILE, ground.project, ground.project, Path(ground.told.scratch))
    here = paths.placed(policy.replace(read_deny_paths=denied, audit=mine.audit), places)
    check_narrower(mine, here, file=_FILE)
    return here


class Sent(Pools):
    """``Pools`` of a worker, to which the policies of notebooks are sent."""

    async def left_to(self, notebook: Notebook, job: Job) -> Policy:
        """Return the policy that came with a notebook. Raises PolicyError where none did."""
        if job.policy is not None:
            return job.policy
        if asked_of({"metadata": notebook.metadata}) is None:
            return self.operators.ground.policy
        what, remedy = "asks for a policy, and none was sent with it", "Report this."
        key = f"metadata.{NOTEBOOK_TABLE}"
        raise PolicyError(what, file=str(job.file), key=key, value="", remedy=remedy)

    async def _open(self, pool: AsyncSandboxPool) -> None:
        """Open a pool, and have a guest show that its policy is kept. Raises CellblockError."""
        if pool.is_open:
            return
        await pool.open()
        try:
            check_kept(*await shown(pool))
        except BaseException:
            await pool.close()
            raise


async def shown(pool: AsyncSandboxPool) -> tuple[str, tuple[Gap, ...]]:
    """Return what carries a guest of a pool's, and what it does not enforce."""
    async with pool.sandbox() as sandbox:
        return sandbox.backend, sandbox.gaps


def check_kept(backend: str, gaps: tuple[Gap, ...]) -> None:
    """Raise BackendError where anything that is asked for is enforced by nothing."""
    void = [gap for gap in gaps if gap.status in _VOID]
    if void:
        what = "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in void)
        raise BackendError(f"backend {backend} can't enforce the policy here: {what}")
