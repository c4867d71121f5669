"""One sandbox on an asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from cellblock.api.front import ANSWERING, Bench
from cellblock.api.pool import AsyncSandboxPool
from cellblock.errors import GuestError, PolicyError
from cellblock.guest import remove_tree
from cellblock.host.cell.cell import Asked
from cellblock.host.cell.output_log import Kept
from cellblock.host.session.build import audit_of, enter_start, exports_of, found, views_of
from cellblock.host.session.history import default_path
from cellblock.policy.paths import within
from cellblock.render.text import COLUMNS, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from cellblock.api.front import Approver, OnOutput
    from cellblock.api.pool import Tools
    from cellblock.api.results import Result, Wish
    from cellblock.host.services.tools.in_process import Functions
    from cellblock.host.session.config import Ground
    from cellblock.policy.enforcement import Enforcement, Gap
    from cellblock.policy.model import Policy


_LOG: Final = logging.getLogger("cellblock")
#: Seconds that an interrupted cell has before it is killed.
GRACE: Final = 2.0
#: Seconds that guests have to be gone once they were killed; then they are the zygote's to end.
LEAVING: Final = 5.0
#: Seconds that async tools have to end.
PATIENCE: Final = 1.0
NOT_OPEN: Final = (
    "the sandbox is not open: use `with Sandbox(…) as s:`, or `async with AsyncSandbox(…) as s:`"
)
OPENED_ONCE: Final = "a sandbox is opened once; an open one goes on as it was"
FORKED: Final = "a sandbox belongs to the process that opened it; open another one in this process"


class AsyncSandbox:
    """Runs cells one after another in a confined process, under a policy, and says what came of it.

    ``policy`` is a preset's name (``safe``, ``data``, ``unsafe``), a TOML file or a ``Policy``.
    ``tools`` are functions of yours that cells may call: sync ones run in threads, async ones on
    this loop. ``inputs`` is JSON data that cells find in ``inputs``. ``input`` answers a cell's
    ``input()``; without it that is an EOFError. ``approve`` answers where the policy has its user
    asked: given a ``Wish`` it returns True or ``once``, ``session`` or False; without it nothing
    that takes consent is allowed. ``project`` is the folder that ``{project}``
    stands for, by default the current one; ``artifacts`` is where files that match the policy's
    ``artifact_export_paths`` are copied to, instead of its ``artifact_folder``.

    Variables live from cell to cell, and are as before a cell that was killed. It belongs to the
    loop on which it is opened: use it there alone; calls of ``execute`` at once run in turn.
    """

    def __init__(  # noqa: PLR0913 - what a sandbox is made of
        self,
        policy: str | Path | Policy = "safe",
        *,
        tools: Tools = (),
        inputs: Mapping[str, Any] | None = None,
        input: Callable[[str], Any] | None = None,  # noqa: A002 - what it stands in for
        approve: Callable[[Wish], Any] | None = None,
        project: str | Path | None = None,
        artifacts: str | Path | None = None,
        allow_unsafe: bool = False,
        cwd: str | Path | None = None,
        pool: AsyncSandboxPool | None = None,
        snapshots: bool = True,
        notebook: str = "",
    ) -> None:
        arguments: dict[str, Any] = {"tools": tools, "project": project}
        self._own = pool is None
        self._pool = pool or AsyncSandboxPool(policy, allow_unsafe=allow_unsafe, **arguments)
        self._inputs, self._ask, self._approve = dict(inputs or {}), input, approve
        self._approver: Approver | None = None
        self._artifacts, self._cwd, self._snapshots = artifacts, cwd, snapshots
        self._notebook = notebook
        self._ground: Ground | None = None
        self._bench: Bench | None = None
        self._functions: Functions | None = None
        self._turn = asyncio.Lock()
        self._left = asyncio.Event()
        self._opened = self._closed = False
        self._process = os.getpid()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Have a guest locked and ready.

        Raises PolicyError, InputError, BackendError and GuestError: what a kernel would show on
        every cell.
        """
        if self._opened:
            raise GuestError(OPENED_ONCE)
        self._opened, self._process = True, os.getpid()
        if not self._own and not self._pool.shared:
            self._own, self._pool = True, self._pool.alone()
        try:
            if self._own:
                await self._pool.open()
            self._begin()
            await self._ready()
        except BaseException:
            await self.close()
            raise

    def _begin(self) -> None:
        """Found the session, and have its guest started."""
        pool = self._pool
        self._ground = ground = self._laid()
        views = views_of(ground, _warn)
        self._loop = loop = asyncio.get_running_loop()
        kept = Kept(default_path().parent / "output", views.kept_bytes())
        self._kept, self._audit = kept, audit_of(views)
        self._bench = bench = Bench(loop, views, kept, self._audit, self._ask)
        if self._approve is not None:
            self._have_asked(self._approve, ground, bench)
        seat = pool.seat(ground, self._left.set)
        given = self._given if pool.has_functions else None
        enter_start(ground, bench)
        session = found(ground, pool.reactor, bench, seat, given)
        bench.session = session
        bench.exports = exports_of(ground, pool.reactor, session)
        pool.opened(self)
        session.start()

    def _have_asked(self, approve: Callable[[Wish], Any], ground: Ground, bench: Bench) -> None:
        """Have the program answer. Raises PolicyError for a policy that asks nobody."""
        from cellblock.api.front import Approver, clerk_of  # noqa: PLC0415 - few programs do

        self._approver = Approver(asyncio.get_running_loop(), approve, bench)
        bench.clerk = clerk_of(ground.policy, bench, self._approver)

    def _given(self, policy: Policy) -> Functions:
        self._functions = made = self._pool.functions(policy)
        return made

    def _laid(self) -> Ground:
        cwd = None if self._cwd is None else self._folder()
        self._ground = ground = self._pool.ground_for(self._inputs, cwd)
        if self._artifacts is not None:
            ground = ground.with_artifacts(_own_folder(self._artifacts))
        if not self._snapshots and ground.policy.snapshots == "auto":
            ground = _without_snapshots(ground)
        return dataclasses.replace(ground, notebook=self._notebook)

    def keep_tools_apart(self) -> None:
        """Have async tools run on a loop of their own; to be called before it is opened."""
        self._pool.keep_tools_apart()

    def _folder(self) -> str:
        """Return the folder to run cells in. Raises PolicyError for one that they can't read."""
        told, asked = self._pool.ground.told, os.fspath(self._cwd or "")
        path = os.path.realpath(Path(self._pool.ground.project, asked))
        roots = (*told.plan.read_roots, *told.plan.write_roots)
        if os.path.isdir(path) and any(within(path, root) for root in roots):  # noqa: PTH112
            return path
        name, remedy = self._pool.ground.policy.name, "Name one beneath a read root."
        what = "no folder that cells can read"
        raise PolicyError(what, file=name, key="cwd", value=repr(asked), remedy=remedy)

    async def _ready(self) -> None:
        await asyncio.shield(self._live.ready)
        self._pool.warmed()

    @property
    def was_opened(self) -> bool:
        """Whether ``open`` was called."""
        return self._opened

    @property
    def _live(self) -> Bench:
        if self._bench is None or self._closed:
            raise GuestError(NOT_OPEN)
        if self._process != os.getpid():
            raise GuestError(FORKED)
        return self._bench

    async def execute(
        self,
        code: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the cell's, which is killed for it
        on_output: OnOutput | None = None,
        may_ask: bool = True,
    ) -> Result:
        """Run a cell and return what came of it; a cell's failure is a result, not an exception.

        ``timeout`` are seconds that it may run, where the policy does not allow fewer.
        ``on_output`` is called with each output as it comes, in order, until the next cell runs;
        what it raises is printed. A cell that ``may_ask`` nothing meets what it meets in a front
        end without questions, instead of an EOFError.
        When this is cancelled the cell is interrupted, and killed if it goes on; variables are then
        as they were. Raises GuestError for a sandbox that is not open.
        """
        if not isinstance(code, str):
            raise TypeError(f"code is a str, not {type(code).__name__}")
        if timeout is not None and not timeout > 0:
            raise ValueError("timeout is a number of seconds above 0")
        if self._bench in ANSWERING.get():
            raise GuestError("a cell of this sandbox waits for the callback that wants to run one")
        async with self._turn:
            asked = Asked(code=code, allow_stdin=may_ask, stop_on_error=False, timeout=timeout)
            done = self._live.execute(asked, on_output)
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                await self._give_up(done)
                raise

    async def _give_up(self, done: asyncio.Future[Result]) -> None:
        """Interrupt what nobody waits for any more, and again: that kills it."""
        while not done.done() and not self._closed:
            self._live.interrupt()
            try:
                await asyncio.wait({done}, timeout=GRACE)
            except asyncio.CancelledError:
                continue  # whoever is impatient has it killed
        if done.done() and not done.cancelled():
            done.exception()  # nobody asks for it

    def interrupt(self) -> None:
        """Interrupt the cell that runs; a second time, half a second later or more, kill it."""
        self._live.interrupt()

    async def close(self) -> None:
        """End the guest and remove what it left; nothing of the sandbox goes on after this."""
        closing = asyncio.ensure_future(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait({closing})
            raise

    async def _close(self) -> None:
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        started = self._end(self._bench) if self._bench is not None else False
        if self._functions is not None and not self._functions.ended():
            await asyncio.to_thread(self._functions.ended, PATIENCE)
        if self._own:  # all goes with the pool
            await self._pool.close()
            return
        if started:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), LEAVING)
        if self._ground is not None:
            await asyncio.to_thread(remove_tree.remove, self._ground.told.scratch)

    def _end(self, bench: Bench) -> bool:
        """End the session; say whether something of its may be left for a moment."""
        if self._approver is not None:
            self._approver.close()
        if bench.exports is not None:
            bench.exports.close()
        gone = bench.session is None or bench.session.close()
        bench.abandon(GuestError("the sandbox was closed"))
        self._audit.close()
        self._kept.close()
        self._pool.closed(self)
        return not gone

    def __del__(self) -> None:
        if getattr(self, "_bench", None) is None or self._closed or self._process != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._close()))

    # --- what is in force ---------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The policy in force, with its paths."""
        if self._ground is None:
            raise GuestError(NOT_OPEN)
        in_force = self._bench.views.in_force if self._bench is not None else None
        return in_force or self._ground.policy

    @property
    def session(self) -> str:
        """What its audit log is called (``cellblock audit show``); empty without one."""
        return self._live.audit.session

    @property
    def backend(self) -> str:
        """What carries it."""
        return self._live.views.backend

    @property
    def enforcement(self) -> Mapping[str, Enforcement]:
        """What each capability is worth in this sandbox."""
        return self._live.views.enforcement

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the policy asks for and is not enforced here; never silent (promise P7)."""
        return self._live.views.gaps


def _without_snapshots(ground: Ground) -> Ground:
    policy, operators = ground.policy.replace(snapshots="off"), ground.operators
    if operators is not None:
        operators = operators.replace(snapshots="off")
    return dataclasses.replace(ground, policy=policy, operators=operators)


@functools.lru_cache(maxsize=256)
def _warn(text: str) -> None:
    """Tell the program's log once a process: what is not enforced is so for each sandbox."""
    _LOG.warning("\n".join(wrap(text, hanging="  ", columns=COLUMNS)))


def _own_folder(path: str | Path) -> str:
    """Return a folder's path without links, but for the last part: that may be none."""
    whole = Path(path).absolute()
    return f"{os.path.realpath(whole.parent)}/{whole.name}"
