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
import re
import time
import warnings
import weakref
from collections import Counter
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from cellblock import __version__
from cellblock.analysis.dataflow import Bindings
from cellblock.analysis.transform import transform
from cellblock.api.front import ANSWERING, ProgramPrompt, SandboxFront, approver_of
from cellblock.api.images import MAX_IMAGE, MAX_IMAGES, Image, image_of, pictures
from cellblock.api.result_parts import Origin
from cellblock.api.results import Variable, Variants
from cellblock.api.session_file import (
    LoadedSession,
    SavedCell,
    SavedSession,
    SavedVariable,
    SessionFile,
    SessionWriter,
)
from cellblock.descriptors import closing, remove_tree
from cellblock.errors import ChangesError, ExchangeError, GuestError, PolicyError
from cellblock.host.cell import output_log
from cellblock.host.cell.output_log import OutputLog
from cellblock.host.cell.status import Views
from cellblock.host.consent.approver import PROGRAM
from cellblock.host.guests import spawn
from cellblock.host.guests.zygote import SharedZygote, ZygoteSource, place_of
from cellblock.host.limits.deadlines import QUERY_TIMEOUT
from cellblock.host.limits.scratch import ForksFolder
from cellblock.host.output.text import clean_line, without_styles
from cellblock.host.services import changes, exchange, keeping
from cellblock.host.services.exchange import File
from cellblock.host.services.tools.calls import UNASKED, AllowNamed
from cellblock.host.session.config import (
    SessionConfig,
    SessionOptions,
    granted_services,
    resolve,
)
from cellblock.host.session.history import default_path, encode_inputs
from cellblock.host.session.narrowing import approval_of
from cellblock.host.session.session import open_audit, open_session, record_start
from cellblock.host.session.types import ExecuteRequest
from cellblock.host.threads import in_thread
from cellblock.policy import paths
from cellblock.policy.folders import (
    make_scratch,
    release_scratch,
    remove_scratch,
    scratch_name,
    sweep_scratch_in_thread,
)
from cellblock.policy.model import Policy
from cellblock.policy.paths import within
from cellblock.render.headings import Heading, beneath
from cellblock.render.tables import BY_PROGRAM
from cellblock.render.text import COLUMNS, encodable, wrap
from cellblock.wire import arrays

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from cellblock.api.front import OnOutput
    from cellblock.api.results import ApprovalRequest, Result
    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.services.changes import Change, Staged
    from cellblock.host.services.tools.runner import InProcessTools
    from cellblock.host.session.narrowing import MakeTools
    from cellblock.host.session.session import Session
    from cellblock.host.session.types import SessionSettings
    from cellblock.host.state.chain import Snapshot
    from cellblock.policy.model import Enforcement, Gap
    from cellblock.wire import messages as wire
    from cellblock.wire.messages import Tool, Value

    Tools = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]]
    Paths = str | Path | Iterable[str | Path]


T = TypeVar("T")


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
        """Call ``action`` in ``seconds``; the loop logs what it raises, and goes on (P6)."""
        return self._loop.call_later(seconds, action)

    def expect(self) -> None:
        """Do nothing: asyncio has no busy polling."""

    def _call(self, fd: int) -> None:
        if (watched := self._watched.get(fd)) is not None:
            watched[0]()


# --- pools ------------------------------------------------------------------------------------

_NOT_OPEN: Final = "the pool is not open: use `async with AsyncSandboxPool(…) as pool:`"
UNSAFE_REMEDY: Final = "Pass allow_unsafe=True"
#: What IPython imports at a guest's first cell and first result; a pool's zygote imports it once.
_PRELOAD: Final = ("hashlib", "IPython.core.logger")


@dataclasses.dataclass(frozen=True, slots=True)
class _OpenPool:
    """What an open pool has."""

    config: SessionConfig
    reactor: AsyncioReactor
    zygote: SharedZygote
    scratch: Path


class AsyncSandboxPool:
    """Makes sandboxes that share a zygote, so that each starts in milliseconds.

    Every sandbox has a guest, a session, a scratch folder and an audit log of its own. ``policy``
    is a preset's name, a file, or a ``Policy``; ``tools`` are functions that cells may call, beside
    the policy's own; ``project`` is the folder that ``{project}`` stands for: without one cells
    have a private folder and no file of the user's, whatever the policy says of ``{project}``;
    ``operators`` is the policy that this one was made narrower from, see ``narrowed``.
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
        self._policy = str(policy) if isinstance(policy, Path) else policy
        #: What ``policy`` was made narrower from, if it was: see ``narrowed``.
        self._operators = operators
        self._functions = tools
        #: The functions among them that nobody is asked about (``UNASKED``).
        self.unasked = frozenset[str]()
        self._tools: tuple[Tool, ...] = ()
        self._project, self._allow_unsafe = project, allow_unsafe
        #: Makes what runs the tools that were given, if any were, under a policy.
        self.make_tools: Callable[[Policy], InProcessTools] | None = None
        #: Whether this is one sandbox's own: nobody else has guests of its zygote.
        self.is_of_one = False
        #: Whether async tools run on a loop of their own: one that blocks blocks no cell then.
        self.has_tools_loop = False
        #: Who answers what is asked of a sandbox's cells, and keeps what they staged.
        self.answered_by, self.kept_by = PROGRAM, BY_PROGRAM
        self._open: _OpenPool | None = None
        self._numbers = itertools.count(1)
        #: Sandboxes that are open and not garbage.
        self.sandboxes: weakref.WeakSet[AsyncSandbox] = weakref.WeakSet()
        #: The zygote that has had a guest ready.
        self._warm: Zygote | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Read the policy and have a zygote prepare itself; that is not waited for.

        Raises PolicyError, BackendError, StartError: what a kernel would show on every cell.
        """
        if self._open is not None:
            return
        scratch = Path(make_scratch())
        sweep_scratch_in_thread()
        try:
            config = await in_thread(self._resolve, scratch)
            reactor = AsyncioReactor(asyncio.get_running_loop())
            preload = (*config.prepare.preload, *_PRELOAD)
            prepare = msgspec.structs.replace(config.prepare, preload=preload)
            start = functools.partial(spawn.start, config.wrap)
            zygote = SharedZygote(reactor, start, prepare, of_one=self.is_of_one)
            policy = config.policy
            if config.shareable and not (policy.tools or policy.mcp or policy.packages):
                services = granted_services(config)
                zygote.warm((*self._tools, *(services.tools() if services else ())))
            self._open = _OpenPool(config, reactor, zygote, scratch)
        except BaseException:
            _remove(scratch)
            raise

    def _resolve(self, scratch: Path) -> SessionConfig:
        """Return the configuration of sessions. Raises the error that there is instead."""
        if self._functions:
            self._register(self._functions)
        options = SessionOptions(
            self._policy,
            self._folder(),
            scratch,
            self._allow_unsafe,
            ask=UNSAFE_REMEDY,
            pooled=not self.is_of_one,
        )
        config = resolve(options)
        if not isinstance(config, SessionConfig):
            raise config
        if self._operators is None:
            return config
        # A narrower policy: its folders must still be where they were when it was made.
        asked, found = self._policy, paths.without_scratch(config.policy, scratch)
        if not isinstance(asked, Policy) or found.digest() != asked.digest():
            what, remedy = "a folder that it names was moved meanwhile", "Run it again."
            raise PolicyError(what, file=found.name, remedy=remedy)
        operators = paths.with_scratch(self._operators, scratch)
        return msgspec.structs.replace(config, operators=operators)

    def _register(self, given: Tools) -> None:
        """Make tools of functions. Raises PolicyError for the first that can't be one."""
        from cellblock.host.services.tools import registry, runner  # noqa: PLC0415 - pydantic

        tools = registry.register_functions(given)
        self._tools = tuple(one.tool for one in tools.values())
        by_name = given.items() if isinstance(given, dict) else ()
        self.unasked = frozenset(name for name, one in by_name if hasattr(one, UNASKED))

        def make(policy: Policy) -> InProcessTools:
            return runner.InProcessTools(
                asyncio.get_running_loop(),
                tools,
                timeout=policy.tool_timeout,
                max_bytes=policy.tool_max_bytes,
                own_loop=self.has_tools_loop,
            )

        self.make_tools = make

    def _folder(self) -> Path | None:
        """Return the project folder, if one was given. Raises PolicyError where it is not there."""
        if self._project is None:
            return None
        try:
            return Path(self._project).resolve(strict=True)
        except OSError as exc:
            file = self._policy if isinstance(self._policy, str) else self._policy.name
            value, remedy = repr(str(self._project)), "Name a folder that is there."
            what = f"no such folder: {exc.strerror}"
            raise PolicyError(what, file=file, key="project", value=value, remedy=remedy) from None

    def sandbox(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        input: Callable[[str], Any] | None = None,
        approve: Callable[[ApprovalRequest], Any] | None = None,
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
        return AsyncSandbox(
            inputs=inputs,
            env=env,
            input=input,
            approve=approve,
            artifacts=artifacts,
            cwd=cwd,
            pool=self,
            snapshots=snapshots,
            notebook=notebook,
        )

    async def close(self) -> None:
        """End every sandbox and the zygote; nothing of them is left."""
        for one in tuple(self.sandboxes):
            await one.close()
        was, self._open = self._open, None
        if was is not None:
            zygote = was.zygote.close()
            if zygote is None or await in_thread(zygote.wait):
                await in_thread(_remove, was.scratch)
            else:  # it goes on removing
                release_scratch(str(was.scratch))

    # --- for sandboxes ------------------------------------------------------------------------

    @property
    def _live(self) -> _OpenPool:
        if self._open is None:
            raise GuestError(_NOT_OPEN)
        return self._open

    @property
    def config(self) -> SessionConfig:
        """The policy, backend and plan of its sandboxes. Raises GuestError if it is not open."""
        return self._live.config

    def narrowed(self, policy: Policy) -> AsyncSandboxPool:
        """Return a pool under ``policy``, which is narrower than this one's; open and close it.

        Opening it raises PolicyError where a folder that the policy names has been moved.
        """
        scratch = Path(self.config.prepare.scratch)
        operators = paths.without_scratch(self.config.policy, scratch)
        return self.copy(paths.without_scratch(policy, scratch), operators)

    def copy(
        self, policy: str | Policy | None = None, operators: Policy | None = None
    ) -> AsyncSandboxPool:
        """Return a pool that is made as this one, or under another policy."""
        made = AsyncSandboxPool(
            policy or self._policy,
            tools=self._functions,
            project=self._project,
            allow_unsafe=self._allow_unsafe,
            operators=operators if policy else self._operators,
        )
        made.has_tools_loop = self.has_tools_loop
        made.answered_by, made.kept_by = self.answered_by, self.kept_by
        return made

    def readable_folder(self, path: str | Path) -> str | None:
        """Return the real path of a folder, if cells may read it."""
        plan = self.config.prepare.plan
        real = os.path.realpath(Path(self.config.project, path))
        readable = any(within(real, root) for root in (*plan.read_roots, *plan.write_roots))
        # Unlike pathlib's `is_dir`, this raises nothing for a folder that can't be looked at. With
        # the slash it is true of folders alone.
        return real if readable and os.access(f"{real}/", os.F_OK) else None

    def config_for(self, inputs: Mapping[str, Any], cwd: str | None) -> SessionConfig:
        """Return the config for one sandbox, with a folder of its own where there may be several.

        Raises InputError.
        """
        encoded = encode_inputs(inputs)
        folder = Path(self.config.prepare.scratch)
        if self.config.shareable:
            folder /= f"{next(self._numbers)}"
            folder.mkdir(mode=0o700)
        return self.config.in_folder(folder, inputs=encoded, cwd=cwd)

    def open_session(
        self,
        config: SessionConfig,
        front: SandboxFront,
        make_tools: MakeTools | None,
        on_left: Callable[[], None],
    ) -> Session:
        """Return a session whose guests are forks of the zygote."""
        live = self._live
        zygotes = ZygoteSource(live.reactor, live.zygote, place_of(config.prepare), on_left)
        return open_session(config, live.reactor, front, zygotes, make_tools)

    @property
    def is_warm(self) -> bool:
        """Whether a guest of its zygote was ready once, so that the next is in milliseconds."""
        zygote = self._open.zygote.zygote if self._open is not None else None
        return zygote is not None and zygote is self._warm

    def set_warm(self) -> None:
        """Record that a guest of its zygote is ready."""
        self._warm = self._open.zygote.zygote if self._open is not None else None


def _remove(scratch: Path) -> None:
    """Remove a scratch folder, and the layers that are named like it if nothing is in them."""
    remove_scratch(str(scratch))
    changes.end(scratch_name(scratch))


# --- one sandbox ------------------------------------------------------------------------------

_LOG: Final = logging.getLogger("cellblock")
#: Seconds that an interrupted cell has before it is killed.
INTERRUPT_TIMEOUT: Final = 2.0
#: Seconds that guests have to be gone once they were killed; then they are the zygote's to end.
GUESTS_END_TIMEOUT: Final = 5.0
#: Seconds that async tools have to end.
TOOLS_END_TIMEOUT: Final = 1.0
_LONGEST_NAME: Final = 200
#: Characters of a type's name, and of a shape.
_LONGEST_TYPE: Final = 60
_SHAPE: Final = re.compile("[0-9]+( by [0-9]+)*")
_LONGEST_WHY: Final = 500
#: Variables of a saved session that are set in one step, and bytes of them, or one that has more.
_MOST_AT_ONCE: Final = 1_000
_MOST_BYTES_AT_ONCE: Final = 4 << 20
_UNSETTABLE: Final = "can't be set: name a variable, without _ in front"
NOT_OPEN: Final = (
    "the sandbox is not open: use `with Sandbox(…) as s:` (`async with` for an AsyncSandbox), or "
    "call its open() first, and its close() in the end"
)
_WAITING: Final = "a cell of this sandbox waits for the callback that wants to run one"
OVERFULL: Final = (
    "the fork's scratch folder held far more than scratch_max_bytes, or could not be measured, "
    "and was removed: make another fork"
)
OPENED_ONCE: Final = "a sandbox is opened once; an open one goes on as it was"
FORKED: Final = "a sandbox belongs to the process that opened it; open another one in this process"


class AsyncSandbox:
    """Runs cells in a confined process, one after another and under a policy.

    Takes what ``Sandbox`` takes; async ``tools`` run on this loop. Without ``snapshots`` a killed
    cell costs the variables; ``notebook`` is the file that has made the policy narrower.

    Variables live from cell to cell, and are as before a cell that was killed. It belongs to the
    loop on which it is opened: use it there alone; calls of ``execute`` at once run in turn.
    """

    def __init__(
        self,
        policy: str | Path | Policy = "safe",
        *,
        tools: Tools = (),
        inputs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        input: Callable[[str], Any] | None = None,
        approve: Callable[[ApprovalRequest], Any] | None = None,
        project: str | Path | None = None,
        artifacts: str | Path | None = None,
        allow_unsafe: bool = False,
        cwd: str | Path | None = None,
        pool: AsyncSandboxPool | None = None,
        snapshots: bool = True,
        notebook: str = "",
    ) -> None:
        #: Whether the pool is this sandbox's own, and is closed with it.
        self._owns_pool = pool is None
        self.pool = pool or AsyncSandboxPool(
            policy, tools=tools, project=project, allow_unsafe=allow_unsafe
        )
        self.pool.is_of_one = pool is None
        self._inputs, self._ask, self._approve = dict(inputs or {}), input, approve
        self._env = dict(env or {})
        self._prompt: ProgramPrompt | None = None
        self._artifacts, self._cwd, self._snapshots = artifacts, cwd, snapshots
        self._notebook = notebook
        self._config: SessionConfig | None = None
        #: What cells write to the project, where the policy stages that.
        self.staged: Staged | None = None
        #: Files that the program put there, as they were then; since when others are cells'.
        self._uploaded: dict[str, exchange.Put] = {}
        self._began = 0.0
        #: Seconds that the guest took to list variables after the last cell: models get both that
        #: and pictures with a cell's result, by one deadline.
        self._listed = 0.0
        self._front: SandboxFront | None = None
        self._tools: InProcessTools | None = None
        self._lock = asyncio.Lock()
        self._guests_ended = asyncio.Event()
        #: Whether ``open`` was called.
        self.was_opened = self._closed = False
        self._process = os.getpid()
        #: The sandbox that this one is a fork of, and the open forks of this one.
        self.parent: AsyncSandbox | None = None
        self.forks: list[AsyncSandbox] = []
        #: Whether this is a fork that has its parent's folder; else the folder that it has in that,
        #: and the set of all of these, in which it counts for this fork alone.
        self._is_alike = False
        self._own_folder: ForksFolder | None = None
        self._forks_folders = set[ForksFolder]()
        self._removing: asyncio.Future[None] | None = None
        #: What its log and those of its forks have together, and those before it in an MCP session.
        self.log_written = Counter[str]()

    async def __aenter__(self) -> Self:
        if self.parent is None:  # a fork is open
            await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Wait until a guest is locked and ready.

        Raises PolicyError, InputError, BackendError and GuestError: what a kernel would show on
        every cell.
        """
        if self.was_opened:
            raise GuestError(OPENED_ONCE)
        self.was_opened, self._process = True, os.getpid()
        if not self._owns_pool and not self.pool.config.shareable:
            self._owns_pool, self.pool = True, self.pool.copy()
        try:
            if self._owns_pool:
                await self.pool.open()
            self._begin(self._own_config())
            await asyncio.shield(self._live.ready)
            self.pool.set_warm()
        except BaseException:
            await self.close()
            raise

    def _begin(self, config: SessionConfig, inherited: Views | None = None) -> Session:
        """Build the session and start its guest, unless that is to be ``inherited``; return it."""
        self._config, self._began = config, time.time()
        views = Views(config, _warn)
        views.how_to_keep = self.pool.kept_by
        self._loop = asyncio.get_running_loop()
        folder = default_path().parent / "output"
        kept = OutputLog(folder, views.kept_bytes(), output_log.SHORT_PAGE)
        self._kept, self._audit = kept, open_audit(views.in_force, self.log_written)
        self._front = front = SandboxFront(views, kept, self._audit, self._ask)
        front.inherited = inherited
        if self._approve is not None:
            self._prompt = ProgramPrompt(self._approve, front)
            front.approver = approver_of(config.policy, front, self._prompt, self.pool.answered_by)
        asked = approval_of(config.policy, front)
        if self.pool.unasked and asked is not None:
            front.approval = AllowNamed(self.pool.unasked, asked)
        record_start(config, front)
        make, make_tools = self.pool.make_tools, None
        if make is not None:

            def make_tools(policy: Policy) -> InProcessTools:
                self._tools = made = make(policy)
                return made

        made = self.pool.open_session(config, front, make_tools, self._guests_ended.set)
        front.session, self.staged = made, views.staged
        self.pool.sandboxes.add(self)
        made.requests.supervisor.awaits_fork = inherited is not None
        made.start(None if self.parent is None else self.parent.session_of())
        return made

    def _own_config(self) -> SessionConfig:
        cwd = None if self._cwd is None else self.pool.readable_folder(self._cwd)
        if self._cwd is not None and cwd is None:
            what, remedy = "no folder that cells can read", "Name one beneath a read root."
            if not self.pool.config.has_project:
                remedy += " Without project= there is none in the project."
            name, value = self.pool.config.policy.name, repr(os.fspath(self._cwd))
            raise PolicyError(what, file=name, key="cwd", value=value, remedy=remedy)
        config = self.pool.config_for(self._inputs, cwd)
        self._config = config = config.with_variables(self._env) if self._env else config
        if self._artifacts is not None:
            path = Path(self._artifacts).absolute()
            # Without links, but for the last part: it may not exist.
            config = config.with_artifacts(f"{os.path.realpath(path.parent)}/{path.name}")
        if not self._snapshots and config.policy.snapshots == "auto":
            off = config.policy.replace(snapshots="off")
            operators = config.operators and config.operators.replace(snapshots="off")
            config = msgspec.structs.replace(config, policy=off, operators=operators)
        return msgspec.structs.replace(config, notebook=self._notebook)

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
        timeout: float | None = None,
        on_output: OnOutput | None = None,
        may_ask: bool = True,
        cell: str = "",
    ) -> Result:
        """Run a cell and return what came of it; a cell's failure is a result, not an exception.

        ``code`` is its source, ``timeout`` the seconds that it may run, where the policy does not
        allow fewer. ``on_output`` is called with each output as it comes, in order, until the next
        cell runs; what it raises is printed. With ``may_ask`` false, a question meets what it meets
        in a front end without input, instead of an EOFError. ``cell`` names a cell of a notebook,
        whose outputs are shown in one page: what figures share is then in one of them alone.
        When this is cancelled the cell is interrupted, and killed if it goes on; variables are then
        as they were. Raises GuestError for a sandbox that is not open.
        """
        if not isinstance(code, str):
            raise TypeError(f"code is a str, not {type(code).__name__}")
        if timeout is not None and not timeout > 0:
            raise ValueError("timeout is a number of seconds above 0")
        async with self._turn():
            return await self._execute(code, timeout, on_output, may_ask=may_ask, cell=cell)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for what goes on in this sandbox, and have others wait."""
        if self._front in ANSWERING.get():
            raise GuestError(_WAITING)
        async with self._lock:
            yield

    async def _execute(
        self,
        code: str,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
        *,
        may_ask: bool = True,
        cell: str = "",
    ) -> Result:
        request = ExecuteRequest(
            code=code,
            allow_stdin=may_ask,
            stop_on_error=False,
            timeout=timeout,
            cell=cell,
            value=not cell,  # a notebook shows it, and nobody reads it
        )
        self._listed = 0.0
        done = self._live.execute(request, on_output)
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
                await asyncio.wait({done}, timeout=INTERRUPT_TIMEOUT)
            except asyncio.CancelledError:
                continue  # whoever is impatient has it killed
        if done.done() and not done.cancelled():
            done.exception()  # nobody asks for it

    # --- forks ----------------------------------------------------------------------------------

    async def fork(self, count: int = 1, *, shares_files: bool = False) -> tuple[AsyncSandbox, ...]:
        """Return sandboxes that go on from here, each for itself, under the same policy.

        They have the variables, and share their memory until it is written to. Threads, tasks,
        connections and child processes stay here (``not_copied``). Each has a scratch folder of its
        own, which is empty; it reads what is staged, and stages nothing. One that ``shares_files``
        has all files that this sandbox has, as a variant has, and can be gone on from. A fork is
        open, and ends with this sandbox, or when it is closed. Raises GuestError where that can't
        be had.
        """
        async with self._turn():
            return await self._fork(count, alike=shares_files)

    async def go_on_from(self, fork: AsyncSandbox) -> None:
        """Have the variables that a fork has now instead of those here; the fork goes on, too.

        It is one that ``shares_files`` with this sandbox; what a fork lacks, this one lacks then.
        ``%undo`` does not go back before that. Raises GuestError, and all is as it was.
        """
        if fork.parent is not self or not fork._is_alike:
            raise GuestError("what is gone on from is a fork of this sandbox that shares its files")
        async with self._turn(), fork._turn():
            await self._go_on_from(fork)

    async def try_variants(
        self,
        sources: Sequence[str],
        choose: Callable[[Sequence[Result]], int | None],
        *,
        timeout: float | None = None,
    ) -> Variants:
        """Run cells side by side, each from here, and go on from where one of them ended.

        ``choose`` gets their results in order, and returns the number of the one to go on from; for
        None, and where it raises, this sandbox is as it was. Each cell has variables of its own; in
        files they see what the others write, and all of it stays: they are cells of one sandbox.
        What a fork lacks, this one lacks then, too (``not_copied``). Raises GuestError as ``fork``.
        """
        return await self.look_at_variants(sources, choose, timeout=timeout)

    async def look_at_variants(
        self,
        sources: Sequence[str],
        choose: Callable[[Sequence[Result]], int | None],
        *,
        timeout: float | None = None,
        look: Callable[[AsyncSandbox, Result], Awaitable[None]] | None = None,
    ) -> Variants:
        """Run cells as ``try_variants``; ``look`` gets each fork, while it is open, and its result.

        One after the other, in order.
        """
        async with self._turn():
            forks = await self._fork(len(sources), alike=True, are_variants=True)
            try:
                run = (
                    fork.execute(source, timeout=timeout)
                    for fork, source in zip(forks, sources, strict=True)
                )
                results = tuple(await asyncio.gather(*run))
                for fork, result in zip(forks, results, strict=True):
                    if look is not None:
                        await look(fork, result)
                kept = choose(results)
                if kept is not None:
                    await self._go_on_from(forks[kept])
            finally:
                for fork in forks:
                    await fork.close()
        return Variants(results, kept)

    async def _go_on_from(self, fork: AsyncSandbox) -> None:
        """Have a copy of a fork's guest be this sandbox's."""
        front, theirs = self._live, fork.session_of()
        session, source = self.session_of(), theirs.requests.supervisor
        if theirs.settings.policy != session.settings.policy:
            raise GuestError("a variant that narrows its policy can't be gone on from")
        (copy,) = await self._copies(theirs, 1)
        front.ready = asyncio.get_running_loop().create_future()
        front.inherited = front.views
        session.own_builtins = theirs.own_builtins
        front.execution_count = max(front.execution_count, fork._live.execution_count)
        front.cells = dict(fork._live.cells)
        front.origin = Origin(fork.session, fork._live.execution_count)
        session.requests.continue_from(theirs.requests)
        session.requests.supervisor.adopt(copy, source, fork.session, None)
        await asyncio.shield(front.ready)

    def session_of(self) -> Session:
        """Return the session, for another sandbox. Raises GuestError where none is open."""
        if (session := self._live.session) is None:
            raise GuestError(NOT_OPEN)
        return session

    async def _copies(self, session: Session, count: int) -> list[Snapshot]:
        """Return copies of a session's guest. Raises GuestError."""
        taken: asyncio.Future[list[Snapshot]] = asyncio.get_running_loop().create_future()
        snapshots = session.requests.supervisor.snapshots
        snapshots.fork(count, taken.set_result)
        try:
            copies = await asyncio.shield(taken)
        except asyncio.CancelledError:
            taken.add_done_callback(lambda made: snapshots.let_go(*made.result()))
            raise
        if len(copies) < count:
            snapshots.let_go(*copies)
            why = snapshots.why_no_copy() or "memory or descriptors are short"
            raise GuestError(f"the guest could not be copied: {why}")
        return copies

    async def _fork(
        self, count: int, *, alike: bool = False, are_variants: bool = False
    ) -> tuple[AsyncSandbox, ...]:
        """Return forks; those that are ``alike`` have this sandbox's folder and locks."""
        session, most, root = self.session_of(), self.policy.max_branches, self
        self.check_budgets("forks and variants are", "Run one after the other in this sandbox.")
        while root.parent is not None:
            root = root.parent
        if count < 1:
            raise ValueError("there is nothing to fork: one or more")
        if _count_forks(root) + count > most:
            raise GuestError(f"max_branches allows {most} forks of a sandbox and of its forks")
        together = self.policy.forks_max_bytes
        held = session.requests.supervisor.snapshots.held_together()
        if together is not None and held > together:
            raise GuestError(
                f"forks_max_bytes allows {together:,} bytes for a sandbox and its forks, which "
                f"hold {held:,}: close one, or delete variables"
            )
        locks = session.settings.prepare.plan.locks
        if "landlock" not in locks or "container" in locks or self.policy.snapshots == "off":
            raise GuestError("forks take Landlock, no container, and snapshots that are not off")
        copies = await self._copies(session, count)
        made = await asyncio.gather(
            *(self._forked(session, copy, alike=alike, is_variant=are_variants) for copy in copies),
            return_exceptions=True,
        )
        failed = [one for one in made if isinstance(one, BaseException)]
        forks = tuple(one for one in made if isinstance(one, AsyncSandbox))
        if failed:
            for fork in forks:
                await fork.close()
            raise failed[0]
        return forks

    async def _forked(
        self, session: Session, copy: Snapshot, *, alike: bool, is_variant: bool
    ) -> AsyncSandbox:
        """Return the fork that serves by a copy."""
        parent = self._live
        arguments: dict[str, Any] = {"inputs": self._inputs, "input": self._ask}
        arguments |= {"approve": self._approve, "artifacts": self._artifacts}
        fork = AsyncSandbox(pool=self.pool, snapshots=self._snapshots, **arguments)
        fork.was_opened, fork.parent, fork._is_alike = True, self, alike
        fork.log_written = self.log_written
        fork._uploaded = self._uploaded if alike else dict(self._uploaded)
        self.forks.append(fork)
        supervisor = session.requests.supervisor
        try:
            fork._forks_folders = session.requests.forks_folders
            config = await self._fork_config(fork, session.settings, alike=alike)
            own = fork._begin(config, parent.views)
            own.own_builtins = session.own_builtins
            own.requests.continue_from(session.requests)
            own.requests.on_folder_lost = None if alike else fork._end_overfull
            front = fork._live
            front.is_variant = is_variant
            front.execution_count, front.cells = parent.execution_count, dict(parent.cells)
            front.origin = Origin(parent.audit.session, parent.execution_count)
            fork._began = self._began if alike else fork._began
            place = None if alike else place_of(config.prepare)
            own.requests.supervisor.adopt(copy, supervisor, parent.audit.session, place)
            await asyncio.shield(front.ready)
        except BaseException:
            supervisor.snapshots.let_go(copy)
            await fork.close()
            raise
        return fork

    async def _fork_config(
        self, fork: AsyncSandbox, settings: SessionSettings, *, alike: bool
    ) -> SessionConfig:
        """Return what a fork is made by, with a folder in this sandbox's own or this one's."""
        if self._config is None:
            raise GuestError(NOT_OPEN)
        if alike:
            return self._config.in_fork(None, settings)
        # Nobody can have made one of this name, or taken it for what it is not.
        name = exchange.FORK_FOLDER.format(os.urandom(16).hex())
        folder = Path(settings.prepare.scratch, name)
        # A fork's own lies in its parent's reach.
        made = await in_thread(_make_within, self._open_scratch(), folder.name)
        fork._own_folder = made
        fork._forks_folders.add(made)
        return self._config.in_fork(folder, settings)

    def _end_overfull(self) -> None:
        """End a fork whose folder is too full for any cell, or can't be measured, with the folder.

        What is there counts for nobody else, and its parent's cells reach it: else they could fill
        the disk there.
        """
        self.session_of().requests.on_folder_lost = None
        self.session_of().requests.supervisor.give_up(OVERFULL)
        self._removing = asyncio.ensure_future(self._remove_folder())

    async def _remove_folder(self) -> None:
        """Remove the scratch folder; of a fork's, what is left counts for its parent then."""
        if self._config is not None and not self._is_alike:
            await in_thread(remove_tree, self._config.prepare.scratch)
        if self._own_folder is not None:
            self._forks_folders.discard(self._own_folder)

    def check_budgets(self, what: str, instead: str) -> None:
        """Raise CellblockError where another sandbox would have what this may use, once more.

        ``what`` was to be done, as a subject with its verb, and ``instead`` is what to do.
        """
        if self.policy.has_budget:
            raise GuestError(
                f"{what} off under this policy: another sandbox would have a new budget, and those "
                f"for language models and ops.write_file are a session's. {instead}"
            )
        if (why := self._live.audit.barred()) is not None:
            raise why

    @property
    def not_copied(self) -> tuple[str, ...]:
        """What this sandbox lacks of the one that it is a fork of: its threads, for example."""
        return self._live.not_copied

    async def variables(self) -> tuple[Variable, ...]:
        """Return the variables that cells have, by name: 1,000 at most. No cell's code is run."""
        async with self._turn():
            began = time.monotonic()
            found = await self._ask_session(lambda session, done: session.variables(done))
            self._listed = time.monotonic() - began
        return variables_of(found)

    async def _ask_session(self, what: Callable[[Session, Callable[[Any], None]], None]) -> Any:
        """Return what the session answers to something that is no cell; call it in one's turn."""
        return await _to_its_end(self._live.ask(what))  # a session has one request at a time

    async def get(self, name: str) -> Any:
        """Return the value of the variable ``name`` of cells: data, an array or a table.

        No cell's code is run for it but methods of objects in tables; nothing is unpickled. Data is
        what crosses to tools (None, bool, int, float, str, bytes, lists, dicts; tuples and sets as
        lists); arrays are numpy's, tables those of pandas, polars and pyarrow: up to 16 MiB. It is
        what a cell made, of types that run nothing, and may say anything. Raises ExchangeError
        for what is no such value, or takes a library that the program has not imported (nothing is
        imported because a guest says so), and GuestError for a sandbox that is not open.
        """
        async with self._turn():
            value, why = await self._get(name)
        if value is None:
            raise ExchangeError(f"{name}: {why}")
        try:
            return await in_thread(arrays.decode, value, arrays.loaded)
        except Exception as exc:  # whatever pyarrow raises over what a guest sent
            raise ExchangeError(f"{name}: {clean_line(str(exc), _LONGEST_WHY)}") from exc

    async def _get(self, name: str) -> tuple[Value | None, str]:
        """Return a variable's value as it crosses, or None and why there is none."""
        reply = await self._ask_session(lambda session, done: session.get_variable(name, done))
        why = "" if reply is None else clean_line(reply.why, _LONGEST_WHY)
        return getattr(reply, "value", None), why or "the guest did not say"

    async def set(self, name: str, value: Any) -> None:
        """Set the variable ``name`` of cells to ``value``, such as ``get`` returns.

        Tables take a library that cells may import. Raises ExchangeError for what is no such
        value, is larger than 16 MiB or can't be made there; the name may not begin with ``_``.
        """
        if not _can_be_set(name):
            raise ExchangeError(f"{name!r} {_UNSETTABLE}")
        try:
            sent = arrays.encode(value, arrays.loaded)
        except (ImportError, TypeError, ValueError) as exc:
            raise ExchangeError(f"{name}: {exc}") from exc
        async with self._turn():
            if why := await self._set({name: sent}):
                raise ExchangeError(f"{name}: {why}")

    async def _set(self, values: Mapping[str, Value]) -> str:
        """Set variables to values as they cross, all or none; return why that can't be."""
        reply = await self._ask_session(lambda session, done: session.set_variables(values, done))
        error = getattr(reply, "error", reply)
        if error is None:
            return ""
        why = error if isinstance(error, str) else getattr(error, "evalue", "it was stopped")
        return clean_line(why, _LONGEST_WHY) or "it was stopped"

    async def images(self, result: Result) -> tuple[Image, ...]:
        """Return the pictures that a cell of this sandbox showed, as language models take them.

        The first four, as PNG, JPEG, WebP or GIF files of 1 MiB at most in base64. One that is
        larger is made smaller, in the sandbox and by Pillow; where that can't be done, in ten
        seconds for all and for ``variables`` before, it is left out. ``result.displays`` has them
        as they are.
        """
        left, found = QUERY_TIMEOUT - self._listed, list[Image | None]()
        for one in itertools.islice(pictures(result), MAX_IMAGES):
            if len(one.data) <= MAX_IMAGE:
                found.append(one)
            elif left > 0:
                async with self._turn():  # another's turn is not this guest's time
                    began = time.monotonic()
                    found.append(await self._smaller(one, left))
                    left -= time.monotonic() - began
        return tuple(one for one in found if one is not None)

    async def _smaller(self, picture: Image, seconds: float) -> Image | None:
        """Return a smaller version of a picture; None for none in so many seconds."""
        content, most = picture.content, MAX_IMAGE * 3 // 4
        reply = await self._ask_session(
            lambda session, done: session.shrink_image(content, most, done, seconds)
        )
        return image_of(getattr(reply, "image", b""), most, picture.number)

    # --- sessions in files ----------------------------------------------------------------------

    async def save(self, path: str | Path) -> SavedSession:
        """Write the variables and the cells' sources to the file ``path``, for ``load``.

        Kept are values that ``get`` returns, up to 1 GiB together; for each other variable the
        result says why not, and which cells bind it. No cell's code is run, and nothing is pickled.
        The file is the user's alone, and replaces one of that name once it is whole. Raises
        ExchangeError, and OSError for a ``path`` that can't be written.
        """
        async with self._turn():
            cells = dict(self._live.cells)
            found = await self._ask_session(lambda session, done: session.variables(done))
            if found is None:
                raise ExchangeError("the guest did not say which variables there are: try again")
            bound = dict[str, list[int]]()
            for count, source in cells.items():
                for name in Bindings(transform(source).source).bound:
                    bound.setdefault(name, []).append(count)
                await asyncio.sleep(0)  # a hostile one takes as long as when it was judged
            writer = SessionWriter(Path(path), self._written)
            try:
                variables = [
                    await self._saved(writer, number, one, tuple(bound.get(one.name, ())))
                    for number, one in enumerate(found.variables)
                ]
                policy = paths.without_scratch(self.policy, Path(self._scratch))
                session = SavedSession(
                    cellblock=__version__,
                    policy=policy.name,
                    policy_sha256=policy.digest(),
                    variables=tuple(variables),
                    unlisted=found.more,
                    cells=tuple(SavedCell(count, encodable(cells[count])) for count in cells),
                )
                await _to_its_end(in_thread(writer.finish, session))
            finally:
                writer.close()
        return session

    async def _saved(
        self, writer: SessionWriter, number: int, variable: wire.Variable, cells: tuple[int, ...]
    ) -> SavedVariable:
        """Write a variable's value, if it has one that crosses."""
        value, why = None, _UNSETTABLE
        if _can_be_set(variable.name):
            value, why = await self._get(variable.name)
        if value is not None:
            why = await _to_its_end(in_thread(writer.add, number, value))
        name, kind = clean_line(variable.name, _LONGEST_NAME), type_of(variable.type)
        return SavedVariable(name, kind, clean_line(why, _LONGEST_NAME), cells)

    async def load(self, path: str | Path, *, rerun: bool = False) -> LoadedSession:
        """Set the variables that ``save`` kept in the file ``path``, under this sandbox's policy.

        For each that it can't have the result says why, and ``to_run`` has the cells that bind
        those names. With ``rerun`` they are run, in order, each as by ``execute``, and the values
        are set once more: what such a cell sets beside does not count. Whose file it is does not
        matter: it is bounded, nothing in it is unpickled, and what is run is judged like any cell.
        Raises ExchangeError for what is no such file, and OSError.
        """
        async with self._turn():
            file = SessionFile(Path(path), self._written)
            try:
                session = await _to_its_end(in_thread(file.read))
                loaded = await self._load(file, session)
                sources = tuple(loaded.to_run.values()) if rerun else ()
                if not sources:
                    return loaded
                results = tuple([await self._execute(source) for source in sources])
                loaded = await self._load(file, session)
            finally:
                file.close()
            found = await self._ask_session(lambda session, done: session.variables(done))
        there = {one.name for one in found.variables} if found is not None else set()
        variables = tuple(
            msgspec.structs.replace(one, why="") if one.name in there else one
            for one in loaded.variables
        )
        return msgspec.structs.replace(loaded, variables=variables, results=results)

    async def _load(self, file: SessionFile, session: SavedSession) -> LoadedSession:
        """Set what variables of a file can be set: many small ones in one step."""
        whys = [
            one.why and (clean_line(one.why, _LONGEST_NAME) or "the file does not say")
            for one in session.variables
        ]
        step: dict[int, Value] = {}
        size = 0
        for number, one in enumerate(session.variables):
            if one.why:
                continue
            if not _can_be_set(one.name):
                whys[number] = _UNSETTABLE
                continue
            if len(step) >= _MOST_AT_ONCE or size + file.size(number) > _MOST_BYTES_AT_ONCE:
                await self._set_loaded(session, step, whys)
                step, size = {}, 0
            try:
                step[number] = await _to_its_end(in_thread(file.value, number))
                size += file.size(number)
            except ExchangeError as exc:
                whys[number] = str(exc)
        await self._set_loaded(session, step, whys)
        variables = list[SavedVariable]()
        for one, why in zip(session.variables, whys, strict=True):
            name, kind = clean_line(one.name, _LONGEST_NAME), type_of(one.type)
            variables.append(SavedVariable(name, kind, why, one.cells))
        fields = msgspec.structs.asdict(session) | {"variables": tuple(variables)}
        return LoadedSession(**fields)

    async def _set_loaded(
        self, session: SavedSession, step: Mapping[int, Value], whys: list[str]
    ) -> None:
        """Set variables by their numbers; where not all can be, one by one, and say why in whys."""
        names = {number: session.variables[number].name for number in step}
        if not step or not await self._set({names[at]: value for at, value in step.items()}):
            return
        for number, value in step.items():
            whys[number] = await self._set({names[number]: value})

    # --- files, by the names that cells use -------------------------------------------------------

    async def upload(self, source: exchange.Source, name: str = "") -> str:
        """Copy a file into the folder where cells begin; return its path, as cells have it.

        ``source`` is the path of a file, its content in bytes, or a file that is open for reading
        bytes. ``name`` is what it is called there, by default as now; folders in it are made, and a
        file of that name is replaced. A name that begins with ``~/`` is one in the scratch folder.
        In a project it is staged, as what cells write. Raises ExchangeError, also for more bytes
        than the policy's ``scratch_max_bytes``, and OSError for a ``source`` that can't be read, or
        to which a link leads that cells could have made.
        """
        if not name:
            named = source if isinstance(source, str | os.PathLike) else getattr(source, "name", "")
            name = Path(named).name if isinstance(named, str | os.PathLike) else ""
        if not name:
            raise ValueError("upload takes a name, where the source has none")
        most = self.policy.scratch_max_bytes
        async with self._turn():
            cells = self._cell_folder()
            place = cells.place(name)
            folder = cells.open(place, to_write=True)
            put = await in_thread(exchange.put, folder, place, source, most, self._written)
            self._uploaded[place.path] = put
        return place.path

    async def write(self, name: str, content: str | bytes) -> str:
        """Write the file ``name`` of cells, as ``upload`` does; text is written as UTF-8."""
        return await self.upload(content.encode() if isinstance(content, str) else content, name)

    async def download(self, name: str, target: str | Path, *, max_bytes: int = 2**30) -> None:
        """Copy the file that cells open as ``name`` to ``target``, which is replaced.

        In a project it is the staged file, if there is one. What is no regular file, is reached
        through a link or through ``..``, or has more than ``max_bytes``, is an ExchangeError.
        A link that cells could have made leads to no ``target``: that is an OSError.
        """
        async with self._turn():
            cells = self._cell_folder()
            place = cells.place(name)
            folder = cells.open(place)
            await in_thread(exchange.take, folder, place, target, max_bytes, self._written)

    async def read(self, name: str, *, max_bytes: int = 64 * 2**20) -> bytes:
        """Return the content of the file that cells open as ``name``; see ``download``."""
        async with self._turn():
            cells = self._cell_folder()
            place = cells.place(name)
            folder = cells.open(place)
            return await in_thread(exchange.read, folder, place, max_bytes)

    async def files(self, folder: str = "", *, changed: bool = False) -> tuple[File, ...]:
        """Return the files in the folder where cells begin, or in one beneath it.

        With ``changed``, those that cells made or changed. Links are left out, and names that begin
        with a dot. Raises ExchangeError for more than 20,000 entries: name a folder.
        """
        async with self._turn():
            cells = self._cell_folder()
            # Opened here: what a zygote lent is closed in this thread.
            listed = tuple(cells.listed(cells.place(folder)))
            files = functools.partial(self._files, cells, listed, only_changed=changed)
            return await in_thread(files)

    def _files(
        self,
        cells: exchange.CellFolder,
        listed: Iterable[tuple[str, int, frozenset[str]]],
        *,
        only_changed: bool,
    ) -> tuple[File, ...]:
        found, began = list[File](), int(self._began * 1e9)
        for folder, opened, skipped in listed:
            written = self._written_under_layer(folder)
            with closing(opened):
                if written is not None and only_changed:  # the project may be large
                    there = exchange.find(os.dup(opened), written)
                else:
                    there = exchange.walk(os.dup(opened), skipped)
                for below, status in there:
                    path = f"{folder}/{below}"
                    changed = status.st_ctime_ns >= began if written is None else below in written
                    if changed and (put := self._uploaded.get(path)) is not None:
                        changed = not exchange.is_as_put(opened, below, put)
                    if changed or not only_changed:
                        found.append(File(cells.name(path), status.st_size, changed))
        return tuple(found)

    def _written_under_layer(self, folder: str) -> frozenset[str] | None:
        """Return the files that cells wrote in a folder under a layer; None where there is none."""
        first = self
        while first.parent is not None:  # a fork reads what that one stages
            first = first.parent
        try:
            written = first.session_of().requests.open_written(folder)
        except OSError:  # cells wrote nothing there
            return frozenset()
        return None if written is None else frozenset(name for name, _ in exchange.walk(written))

    def _cell_folder(self) -> exchange.CellFolder:
        session = self.session_of()
        requests, prepare = session.requests, session.settings.prepare
        return exchange.CellFolder(prepare, requests.seen_roots(), requests.open_as_seen)

    @property
    def _prepare(self) -> wire.Prepare:
        if self._config is None:
            raise GuestError(NOT_OPEN)
        return self._config.prepare

    @property
    def _scratch(self) -> str:
        return self._prepare.scratch

    @property
    def _written(self) -> tuple[str, ...]:
        """The folders in which cells could have put links; narrowing takes back none of those."""
        own = self._prepare.plan.write_roots
        return own if self.parent is None else (*own, *self.parent._written)  # noqa: SLF001

    def _open_scratch(self) -> int:
        session = self.session_of()
        try:
            return session.requests.open_folder(self._scratch)
        except OSError as exc:
            raise ExchangeError(f"the scratch folder can't be opened: {exc.strerror}") from None

    def earlier_output(self, argument: str = "", *, of_tool: bool = False) -> str:
        """Return a page of what earlier cells said that is not in their results.

        ``argument`` is what ``%output`` takes; with none, what there is. ``of_tool`` names pages as
        the arguments of a tool, cell, stream and page, instead of as ``%output`` takes them. Where
        no page is asked for, or there, what was printed since the last cell ended is named too: no
        result has it yet.
        """
        kept = self._live.outputs.cells_kept
        shown = str(output_log.answer(kept, argument, of_tool=of_tool)["text/plain"])
        late = self._live.late_output
        if late.strip() and not shown.startswith(Heading.PAGE.partition("{")[0]):
            shown += f"\n\n{Heading.LATE}{beneath(without_styles(late))}"
        return shown

    def keep_output(self, gaps: Mapping[str, tuple[int, int]], *, of_tool: bool = False) -> str:
        """Keep what the last cell said for ``earlier_output``, though its result has it.

        For who shows a part of the result; ``gaps`` are what ``before_gaps`` says of it. Return
        where it is read, stream by stream, as ``%output`` or (``of_tool``) a tool takes it; nothing
        if nothing is kept.
        """
        kept = self._live.outputs.cells_kept
        kept.keep()
        return output_log.places(kept, gaps, of_tool=of_tool)

    def interrupt(self) -> None:
        """Interrupt the cell that runs; a second time, half a second later or more, kill it."""
        self._live.interrupt()

    async def close(self) -> None:
        """End the guest and remove what it left; nothing of the sandbox goes on after this."""
        await _to_its_end(self._close())

    async def _close(self) -> None:
        if self._closed or self._process != os.getpid():
            return
        while self.forks:
            await self.forks[-1].close()
        self._closed = True
        if self.parent is not None and self in self.parent.forks:
            self.parent.forks.remove(self)
        started = self._end(self._front) if self._front is not None else False
        if self._tools is not None and not self._tools.ended():
            await in_thread(self._tools.ended, TOOLS_END_TIMEOUT)
        if self._owns_pool:  # all goes with the pool
            await self.pool.close()
            return
        if started:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._guests_ended.wait(), GUESTS_END_TIMEOUT)
        if self._removing is not None:
            await self._removing
        await self._remove_folder()

    def _end(self, front: SandboxFront) -> bool:
        """End the session; return whether some of its processes may be left for a moment."""
        if self._prompt is not None:
            self._prompt.close()
        if front.exports is not None:
            front.exports.close()
        gone = front.session is None or front.session.close()
        front.abandon(GuestError("the sandbox was closed"))
        self._audit.close()
        self._kept.close()
        if self.staged is not None:
            self.staged.close()
        self.pool.sandboxes.discard(self)
        return not gone

    def __del__(self) -> None:
        if getattr(self, "_front", None) is None or self._closed or self._process != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._close()))

    # --- what cells wrote to the project --------------------------------------------------------

    @property
    def listable(self) -> Staged | None:
        """What is staged, without what the policy in force denies: it may have been narrowed."""
        return self._front.views.listable() if self._front is not None else None

    async def changes(self, paths: Paths = ()) -> tuple[Change, ...]:
        """Return what is staged: files that cells made, changed or deleted in the project.

        All of them, or those at or beneath ``paths``, which are absolute or beneath the project.
        After ``close`` too, for a week. Raises ChangesError for more than can be listed.
        """
        return await in_thread(changes_of, self.listable, paths)

    async def keep(self, paths: Paths = (), *, overwrite: bool = False) -> tuple[Change, ...]:
        """Make what is staged in the project: all of it, or what is at or beneath ``paths``.

        All of that, or nothing and a ChangesError. A file of yours that was changed since the
        sandbox was opened stays as it is, and so do the others, but to ``overwrite``. Each file is
        on an audit log. Returned is what was kept. After ``close`` too, for a week.
        """
        keep = functools.partial(keep_of, self.listable, paths, overwrite=overwrite)
        return await in_thread(keep)

    async def drop(self) -> None:
        """Throw away what is staged; cells still see it until the sandbox is closed."""
        if self.staged is not None:
            await in_thread(self.staged.drop)

    # --- what is in force ---------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The policy in force, with its paths."""
        if self._config is None:
            raise GuestError(NOT_OPEN)
        in_force = self._front.views.in_force if self._front is not None else None
        return in_force or self._config.policy

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
    def tools(self) -> tuple[Tool, ...]:
        """What cells may call."""
        return self._live.views.tools_in_force

    async def ports(self) -> dict[int, str]:
        """Return the address of each port that is open, by the port's number in the sandbox.

        Under ``ports = "any"`` those are open at which a cell listens. The address is for a
        browser. A program whose resolver does not know names below ``localhost`` connects to
        127.0.0.1 and sends the address's host and port as ``Host``. It is good until the sandbox,
        and its last fork, is closed. Raises GuestError for a sandbox that is not open.
        """
        return {one.number: one.url for one in self._live.views.ports()}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the policy asks for and is not enforced here; never silent (promise P7)."""
        return self._live.views.gaps


async def _to_its_end(work: Awaitable[T]) -> T:
    """Wait for ``work``, and to its end where this is cancelled."""
    future = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise


def variables_of(found: wire.Variables | None) -> tuple[Variable, ...]:
    """Return the variables in a guest's answer, without what is no name, type or shape.

    A guest may say anything, and these are shown in the host's sentences: to a model, too.
    """
    return tuple(
        Variable(
            one.name,
            type_of(one.type),
            one.shape if len(one.shape) <= _LONGEST_TYPE and _SHAPE.fullmatch(one.shape) else "",
            one.size,
        )
        for one in (found.variables if found is not None else ())
        if len(one.name) <= _LONGEST_NAME and one.name.isidentifier()
    )


def type_of(said: str) -> str:
    """Return the name of a type as a guest says it; nothing where it is none, or a long one."""
    is_name = all(part.isidentifier() for part in said.split("."))
    return said if len(said) <= _LONGEST_TYPE and is_name else ""


def _can_be_set(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")


def _make_within(above: int, name: str) -> ForksFolder:
    """Make a folder in one that is open, and close that: who waits for it may have gone."""
    with closing(above):
        os.mkdir(name, mode=0o700, dir_fd=above)
        made = os.stat(name, dir_fd=above, follow_symlinks=False)
    return ForksFolder(name, made.st_dev, made.st_ino)


def _count_forks(sandbox: AsyncSandbox) -> int:
    return sum(1 + _count_forks(fork) for fork in sandbox.forks)


def changes_of(staged: Staged | None, paths: Paths) -> tuple[Change, ...]:
    """Return what is staged, at or beneath ``paths`` if there are any. Raises ChangesError."""
    return () if staged is None else tuple(staged.changes(_names(paths)))


def keep_of(staged: Staged | None, paths: Paths, *, overwrite: bool) -> tuple[Change, ...]:
    """Keep it, and return what was kept. Raises ChangesError."""
    names = _names(paths)
    if staged is None and names:
        raise ChangesError("nothing is staged under this policy")
    if staged is None:
        return ()
    kept = keeping.keep(staged, names, by="a program", overwrite=overwrite)
    return tuple(one.change for one in kept)


def _names(paths: Paths) -> tuple[str, ...]:
    given = (paths,) if isinstance(paths, str | os.PathLike) else paths
    return tuple(os.fspath(path) for path in given)


@functools.lru_cache(maxsize=256)
def _warn(text: str) -> None:
    """Log a warning, once a process: what is not enforced is so for each sandbox."""
    _LOG.warning("\n".join(wrap(text, hanging="  ", columns=COLUMNS)))
