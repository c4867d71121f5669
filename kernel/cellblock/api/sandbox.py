"""Sandboxes on an asyncio loop: ``AsyncSandbox``, and pools whose guests are forks of one zygote.

A sandbox without a pool has one of its own, so they are in one module.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import traceback
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from cellblock.api.front import ANSWERING, SandboxFront
from cellblock.errors import GuestError, PolicyError
from cellblock.guest import remove_tree
from cellblock.host.cell.cell import Asked
from cellblock.host.cell.output_log import Kept
from cellblock.host.guests import spawn
from cellblock.host.guests.zygote import SharedZygote, ZygoteShare, place_of
from cellblock.host.session import history
from cellblock.host.session.build import (
    audit_of,
    enter_start,
    exports_of,
    found,
    placed,
    shareable,
    views_of,
)
from cellblock.host.session.config import Ground, Terms, lay, make_scratch
from cellblock.host.session.history import default_path
from cellblock.host.session.settings import own_tools
from cellblock.policy import paths
from cellblock.policy.model import Policy
from cellblock.policy.paths import within
from cellblock.render.text import COLUMNS, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from cellblock.api.consent import Approver
    from cellblock.api.front import OnOutput
    from cellblock.api.results import Result, Wish
    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.services.tools.in_process import InProcessTools
    from cellblock.host.services.tools.registry import RegisteredTool
    from cellblock.policy.enforcement import Enforcement, Gap

    Tools = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]]


class AsyncioReactor:
    """``host.reactor.Reactor`` over a running asyncio loop; used only in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: By descriptor: what to call, and whether reading and writing are watched.
        self._watched: dict[int, tuple[Callable[[], None], bool, bool]] = {}

    def watch(
        self, fd: int, on_ready: Callable[[], None], *, read: bool = True, write: bool = False
    ) -> None:
        """Call ``on_ready`` when a descriptor is ready."""
        _, reads, writes = self._watched.get(fd, (on_ready, False, False))
        self._watched[fd] = on_ready, read, write
        if read != reads:
            (self._loop.add_reader(fd, self._call, fd) if read else self._loop.remove_reader(fd))
        if write != writes:
            (self._loop.add_writer(fd, self._call, fd) if write else self._loop.remove_writer(fd))

    def unwatch(self, fd: int) -> None:
        """Stop watching."""
        _, reads, writes = self._watched.pop(fd, (None, False, False))
        if reads and not self._loop.is_closed():
            self._loop.remove_reader(fd)
        if writes and not self._loop.is_closed():
            self._loop.remove_writer(fd)

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call ``action`` in ``seconds``."""
        return self._loop.call_later(seconds, _attempt, action)

    def expect(self) -> None:
        """Do nothing: asyncio has no busy polling."""

    def _call(self, fd: int) -> None:
        if (watched := self._watched.get(fd)) is not None:
            _attempt(watched[0])


def _attempt(action: Callable[[], None]) -> None:
    """Call ``action``; our fault is printed and ends no session (promise P6)."""
    try:
        action()
    except Exception:  # noqa: BLE001 - the loop goes on
        traceback.print_exc()


# --- pools ------------------------------------------------------------------------------------

_NOT_OPEN: Final = "the pool is not open: use `async with AsyncSandboxPool(…) as pool:`"
ASK: Final = "Pass allow_unsafe=True"
#: What IPython imports at a guest's first cell and first result; a pool's zygote imports it once.
_LATE: Final = ("hashlib", "IPython.core.logger")


class AsyncSandboxPool:
    """Makes sandboxes that share a zygote, so that each starts in milliseconds.

    Every sandbox has a guest, a session, a scratch folder and an audit log of its own. ``policy``
    is a preset's name, a file, or a ``Policy``; ``tools`` are functions that cells may call, beside
    the policy's own; ``project`` is the folder that ``{project}`` stands for, by default the
    current one; ``operators`` is the policy that this one was made narrower from, see ``narrowed``.
    Belongs to the loop that it was opened on, and to its thread.

    A policy whose backend gives guests no folder of their own (``docker``) takes a zygote for each
    sandbox; the pool then only keeps the arguments.
    """

    def __init__(
        self,
        policy: str | Path | Policy = "safe",
        *,
        tools: Tools = (),
        project: str | Path | None = None,
        allow_unsafe: bool = False,
        operators: Policy | None = None,
    ) -> None:
        self._asked = str(policy) if isinstance(policy, Path) else policy
        #: What ``policy`` was made narrower from, if it was: see ``narrowed``.
        self._operators = operators
        self._given = tools
        self._project, self._allow_unsafe = project, allow_unsafe
        self._tools: dict[str, RegisteredTool] = {}
        self._ground: Ground | None = None
        self._shared: SharedZygote | None = None
        self._reactor: AsyncioReactor | None = None
        self._scratch: Path | None = None
        self._numbers = itertools.count(1)
        self._apart = False
        #: Sandboxes that are open and not garbage.
        self._open: weakref.WeakSet[AsyncSandbox] = weakref.WeakSet()
        #: The zygote that has had a guest ready.
        self._warm: Zygote | None = None

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
        """Read the policy and have a zygote prepare itself; that is not waited for.

        Raises PolicyError, BackendError, StartError: what a kernel would show on every cell.
        """
        if self._ground is not None:
            return
        self._scratch = scratch = Path(make_scratch())
        try:
            self._ground = ground = await asyncio.to_thread(self._lay, scratch)
            reactor = AsyncioReactor(asyncio.get_running_loop())
            told = msgspec.structs.replace(ground.told, preload=(*ground.told.preload, *_LATE))
            shared = SharedZygote(reactor, functools.partial(spawn.start, ground.wrap), told)
            self._reactor, self._shared = reactor, shared
            policy = ground.policy
            if shareable(ground) and not policy.tools and not policy.packages:
                given = (one.tool for one in self._tools.values())
                shared.equip((*given, *own_tools(policy)))
                shared.warm()
        except BaseException:
            self._ground = None
            remove_tree.remove(str(scratch))
            raise

    def _lay(self, scratch: Path) -> Ground:
        """Return the ground. Raises the error that there is instead."""
        project = self._folder()
        if self._given:
            from cellblock.host.services.tools.in_process import register_functions  # noqa: PLC0415 - pydantic

            self._tools = register_functions(self._given)
        terms = Terms(self._asked, project, scratch, self._allow_unsafe, ask=ASK)
        ground = lay(terms)
        if not isinstance(ground, Ground):
            raise ground
        if self._operators is None:
            return ground
        # A narrower policy: its folders must still be where they were when it was made.
        asked, found = self._asked, paths.unplaced(ground.policy, scratch)
        if not isinstance(asked, Policy) or found.digest() != asked.digest():
            what, remedy = "a folder that it names was moved meanwhile", "Run it again."
            raise PolicyError(what, file=found.name, key="", value="", remedy=remedy)
        operators = paths.in_scratch(self._operators, scratch)
        return dataclasses.replace(ground, operators=operators)

    def _folder(self) -> Path:
        """Return the project folder. Raises PolicyError where there is none."""
        try:
            return Path(self._project or Path.cwd()).resolve(strict=True)
        except OSError as exc:
            file = self._asked if isinstance(self._asked, str) else self._asked.name
            value, remedy = repr(str(self._project or "")), "Name a folder that is there."
            what = f"no such folder: {exc.strerror}"
            raise PolicyError(what, file=file, key="project", value=value, remedy=remedy) from None

    def sandbox(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        input: Callable[[str], Any] | None = None,  # noqa: A002 - what it stands in for
        approve: Callable[[Wish], Any] | None = None,
        artifacts: str | Path | None = None,
        cwd: str | Path | None = None,
        snapshots: bool = True,
        notebook: str = "",
    ) -> AsyncSandbox:
        """Return a sandbox that is yet to be opened; see ``AsyncSandbox``.

        ``cwd`` is the folder that its cells run in: beneath one that they may read. ``notebook``
        is the file that they are of, where that has made the policy narrower. Without
        ``snapshots`` a killed cell costs the variables, and each cell a millisecond or two less;
        a policy that has them ``always`` takes them anyhow.
        """
        mine: dict[str, Any] = {"inputs": inputs, "input": input, "artifacts": artifacts}
        mine |= {"approve": approve, "notebook": notebook}
        return AsyncSandbox(pool=self, cwd=cwd, snapshots=snapshots, **mine)

    async def close(self) -> None:
        """End every sandbox and the zygote; nothing of them is left."""
        for one in tuple(self._open):
            await one.close()
        shared, self._shared = self._shared, None
        self._ground = None
        if shared is not None and (zygote := shared.close()) is not None:
            gone = await asyncio.to_thread(zygote.wait)
            if not gone:  # it goes on removing
                return
        if self._scratch is not None:
            await asyncio.to_thread(remove_tree.remove, str(self._scratch))
            self._scratch = None

    # --- for sandboxes ------------------------------------------------------------------------

    @property
    def ground(self) -> Ground:
        """The policy, backend and plan of its sandboxes. Raises GuestError if it is not open."""
        if self._ground is None:
            raise GuestError(_NOT_OPEN)
        return self._ground

    @property
    def reactor(self) -> AsyncioReactor:
        """The loop of its sandboxes. Raises GuestError if it is not open."""
        if self._reactor is None:
            raise GuestError(_NOT_OPEN)
        return self._reactor

    @property
    def is_open(self) -> bool:
        """Whether the pool is open."""
        return self._ground is not None

    @property
    def shared(self) -> bool:
        """Whether several sandboxes may share its zygote."""
        return shareable(self.ground)

    def alone(self) -> AsyncSandboxPool:
        """Return a pool for one sandbox, made as this one."""
        return self._like(self._asked, self._operators)

    def narrowed(self, policy: Policy) -> AsyncSandboxPool:
        """Return a pool under ``policy``, which is narrower than this one's; open and close it.

        Opening it raises PolicyError where a folder that the policy names has been moved.
        """
        scratch = Path(self.ground.told.scratch)
        mine = paths.unplaced(self.ground.policy, scratch)
        return self._like(paths.unplaced(policy, scratch), mine)

    def _like(self, policy: str | Policy, operators: Policy | None) -> AsyncSandboxPool:
        made = AsyncSandboxPool(
            policy,
            tools=self._given,
            project=self._project,
            allow_unsafe=self._allow_unsafe,
            operators=operators,
        )
        made._apart = self._apart
        return made

    def keep_tools_apart(self) -> None:
        """Have async tools run on a loop of their own: one that blocks blocks no cell."""
        self._apart = True

    def ground_for(self, inputs: Mapping[str, Any], cwd: str | None) -> Ground:
        """Return the ground for one sandbox, with a folder of its own where there may be several.

        Raises InputError.
        """
        encoded = history.encoded(inputs)
        folder = Path(self.ground.told.scratch)
        if self.shared:
            folder /= f"{next(self._numbers)}"
            folder.mkdir(mode=0o700)
        return placed(self.ground, folder, inputs=encoded, cwd=cwd)

    def zygotes(self, ground: Ground, on_left: Callable[[], None]) -> ZygoteShare:
        """Return a sandbox's part in the zygote."""
        if self._shared is None:
            raise GuestError(_NOT_OPEN)
        return ZygoteShare(self.reactor, self._shared, place_of(ground.told), on_left)

    def functions(self, policy: Policy) -> InProcessTools:
        """Return what runs the tools that were given."""
        from cellblock.host.services.tools.in_process import InProcessTools  # noqa: PLC0415 - as above

        return InProcessTools(
            asyncio.get_running_loop(),
            self._tools,
            timeout=policy.tool_timeout,
            most=policy.tool_max_bytes,
            apart=self._apart,
        )

    @property
    def has_functions(self) -> bool:
        """Whether tools were given."""
        return bool(self._tools)

    @property
    def is_warm(self) -> bool:
        """Whether a guest of its zygote was ready once, so that the next is in milliseconds."""
        zygote = self._shared.zygote if self._shared is not None else None
        return zygote is not None and zygote is self._warm

    def warmed(self) -> None:
        """Record that a guest of its zygote is ready."""
        self._warm = self._shared.zygote if self._shared is not None else None

    def opened(self, one: AsyncSandbox) -> None:
        """Record a sandbox that is to be closed with the pool."""
        self._open.add(one)

    def closed(self, one: AsyncSandbox) -> None:
        """Record that a sandbox was closed."""
        self._open.discard(one)


# --- one sandbox ------------------------------------------------------------------------------

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
    """Runs cells in a confined process, one after another and under a policy.

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
        self._front: SandboxFront | None = None
        self._functions: InProcessTools | None = None
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
        """Build the session and start its guest."""
        pool = self._pool
        self._ground = ground = self._laid()
        views = views_of(ground, _warn)
        self._loop = loop = asyncio.get_running_loop()
        kept = Kept(default_path().parent / "output", views.kept_bytes())
        self._kept, self._audit = kept, audit_of(views)
        self._front = front = SandboxFront(loop, views, kept, self._audit, self._ask)
        if self._approve is not None:
            from cellblock.api.consent import Approver, clerk_of  # noqa: PLC0415 - few programs do

            self._approver = Approver(loop, self._approve, front)
            front.clerk = clerk_of(ground.policy, front, self._approver)
        zygotes = pool.zygotes(ground, self._left.set)
        make_functions = self._make_functions if pool.has_functions else None
        enter_start(ground, front)
        session = found(ground, pool.reactor, front, zygotes, make_functions)
        front.session = session
        front.exports = exports_of(ground, pool.reactor, session)
        pool.opened(self)
        session.start()

    def _make_functions(self, policy: Policy) -> InProcessTools:
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
    def _live(self) -> SandboxFront:
        if self._front is None or self._closed:
            raise GuestError(NOT_OPEN)
        if self._process != os.getpid():
            raise GuestError(FORKED)
        return self._front

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
        if self._front in ANSWERING.get():
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
        """Interrupt a cell that nobody waits for any more, and again: that kills it."""
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
        started = self._end(self._front) if self._front is not None else False
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

    def _end(self, front: SandboxFront) -> bool:
        """End the session; return whether some of its processes may be left for a moment."""
        if self._approver is not None:
            self._approver.close()
        if front.exports is not None:
            front.exports.close()
        gone = front.session is None or front.session.close()
        front.abandon(GuestError("the sandbox was closed"))
        self._audit.close()
        self._kept.close()
        self._pool.closed(self)
        return not gone

    def __del__(self) -> None:
        if getattr(self, "_front", None) is None or self._closed or self._process != os.getpid():
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
        in_force = self._front.views.in_force if self._front is not None else None
        return in_force or self._ground.policy

    @property
    def session(self) -> str:
        """What its audit log is called (``cellblock audit show``); empty without one."""
        return self._live.audit.session

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._live.views.backend

    @property
    def enforcement(self) -> Mapping[str, Enforcement]:
        """How far each capability is enforced in this sandbox."""
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
    """Log a warning, once a process: what is not enforced is so for each sandbox."""
    _LOG.warning("\n".join(wrap(text, hanging="  ", columns=COLUMNS)))


def _own_folder(path: str | Path) -> str:
    """Return a folder's path without links, but for the last part: it may not exist."""
    whole = Path(path).absolute()
    return f"{os.path.realpath(whole.parent)}/{whole.name}"
