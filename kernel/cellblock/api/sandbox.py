"""Sandboxes on an asyncio loop: ``AsyncSandbox``, and ``AsyncSandboxPool``, which shares a zygote.

The MCP server, ``cellblock run``, the integrations and ``api.blocking`` are built on these two
classes; programs with a loop use them directly. They are in one module because every sandbox has a
pool: one that is created without a pool makes a pool for itself alone.

- A **pool** owns the policy as it was resolved (``SessionConfig``), the zygote that the guests are
  forked from, and the scratch folder that holds its sandboxes' folders.
- A **sandbox** owns one session with its front, output log and audit log, its folder in the pool's
  scratch folder, and its forks.

A sandbox is opened once, and is used on the loop that opened it. A lock makes the calls that need
the guest (``execute``, ``variables``, ``get``, ``upload``, ``fork`` …) run one after the other.
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
from cellblock.descriptors import closing, give_rights, remove_tree
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
        """Call ``action`` after ``seconds``. If it raises, asyncio logs that and goes on (P6)."""
        return self._loop.call_later(seconds, action)

    def expect(self) -> None:
        """Do nothing: asyncio has no busy polling."""

    def _call(self, fd: int) -> None:
        if (watched := self._watched.get(fd)) is not None:
            watched[0]()


# --- pools ------------------------------------------------------------------------------------

_NOT_OPEN: Final = "the pool is not open: use `async with AsyncSandboxPool(…) as pool:`"
UNSAFE_REMEDY: Final = "Pass allow_unsafe=True"
#: Modules that IPython imports at a guest's first cell and first result. A pool's zygote imports
#: them, so that its guests need not.
_PRELOAD: Final = ("hashlib", "IPython.core.logger")


@dataclasses.dataclass(frozen=True, slots=True)
class _OpenPool:
    """The parts that a pool has while it is open."""

    config: SessionConfig
    reactor: AsyncioReactor
    zygote: SharedZygote
    scratch: Path


class AsyncSandboxPool:
    """A maker of sandboxes that share a zygote, so that each starts in milliseconds.

    Every sandbox has a guest, a session, a scratch folder and an audit log of its own. ``policy``
    is the name of a preset, a TOML file or a ``Policy``. ``tools`` are functions that cells may
    call, in addition to the tools of the policy. ``project`` is the folder that ``{project}``
    stands for in the policy; without it, cells have a private folder and none of the user's files,
    whatever the policy says about ``{project}``. ``allow_unsafe`` permits a policy of mode unsafe.
    ``operators`` is the operator's policy if ``policy`` is a narrower version of it; ``narrowed``
    sets it. Use a pool only on the loop that opened it.

    If the backend can't give each guest a folder of its own (``docker``), every sandbox starts its
    own zygote, and the pool only supplies the arguments.
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
        #: The policy that ``policy`` is a narrower version of, or None: see ``narrowed``.
        self._operators = operators
        self._functions = tools
        #: Names of the functions whose calls need no approval (``UNASKED``).
        self.unasked = frozenset[str]()
        self._tools: tuple[Tool, ...] = ()
        self._project = project
        self._allow_unsafe = allow_unsafe
        #: Makes the runner of ``tools`` under a policy; None if the program gave no tools.
        self.make_tools: Callable[[Policy], InProcessTools] | None = None
        #: Whether the pool belongs to one sandbox, so that no other uses its zygote.
        self.is_of_one = False
        #: Whether async tools run on a loop of their own, where a tool that blocks blocks no cell.
        self.has_tools_loop = False
        #: The words for whoever answers approvals, and for whoever keeps staged files.
        self.answered_by = PROGRAM
        self.kept_by = BY_PROGRAM
        self._open: _OpenPool | None = None
        self._numbers = itertools.count(1)
        #: The open sandboxes. A weak set: a sandbox that its program forgot may be collected.
        self.sandboxes: weakref.WeakSet[AsyncSandbox] = weakref.WeakSet()
        #: The zygote that a guest became ready from; see ``is_warm``.
        self._warm: Zygote | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Read the policy and start the zygote, without waiting until the zygote is ready.

        Does nothing if the pool is open. Raises PolicyError, BackendError and StartError: the
        errors that a kernel would show on every cell.
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
        """Return the configuration that the pool's sessions share. Called in a worker thread.

        Raises PolicyError, BackendError or StartError if there can be none.
        """
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
        # The policy is a narrower version of the operator's, with paths that were resolved when it
        # was made. Its folders must still be where they were then.
        narrower = self._policy
        resolved = paths.without_scratch(config.policy, scratch)
        if not isinstance(narrower, Policy) or resolved.digest() != narrower.digest():
            problem = "a folder that it names was moved meanwhile"
            remedy = "Run it again."
            raise PolicyError(problem, file=resolved.name, remedy=remedy)
        operators = paths.with_scratch(self._operators, scratch)
        return msgspec.structs.replace(config, operators=operators)

    def _register(self, functions: Tools) -> None:
        """Make tools of functions. Raises PolicyError for the first that can't be a tool."""
        from cellblock.host.services.tools import registry, runner  # noqa: PLC0415 - pydantic

        tools = registry.register_functions(functions)
        self._tools = tuple(registered.tool for registered in tools.values())
        by_name = functions.items() if isinstance(functions, dict) else ()
        self.unasked = frozenset(name for name, function in by_name if hasattr(function, UNASKED))

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
        """Return the real path of the project folder, or None without ``project``.

        Raises PolicyError if the folder does not exist.
        """
        if self._project is None:
            return None
        try:
            return Path(self._project).resolve(strict=True)
        except OSError as exc:
            file = self._policy if isinstance(self._policy, str) else self._policy.name
            value = repr(str(self._project))
            remedy = "Name a folder that is there."
            problem = f"no such folder: {exc.strerror}"
            raise PolicyError(
                problem, file=file, key="project", value=value, remedy=remedy
            ) from None

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
        """Return a sandbox that the caller must open; ``AsyncSandbox`` explains the arguments.

        ``cwd`` is the folder that the cells run in; it must lie in a folder that they may read.
        ``notebook`` is the notebook file whose metadata made the policy narrower, if any did. With
        ``snapshots`` false, a cell that is killed takes the variables with it, and each cell is a
        millisecond or two faster; a policy with ``snapshots = "always"`` overrides that.
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
        """Close every sandbox, end the zygote and remove the scratch folder."""
        for sandbox in tuple(self.sandboxes):
            await sandbox.close()
        was_open, self._open = self._open, None
        if was_open is not None:
            zygote = was_open.zygote.close()
            if zygote is None or await in_thread(zygote.wait):
                await in_thread(_remove, was_open.scratch)
            else:
                # The zygote is still ending guests and removing their folders. Without its lock,
                # a later sweep removes the scratch folder.
                release_scratch(str(was_open.scratch))

    # --- for sandboxes ------------------------------------------------------------------------

    @property
    def _live(self) -> _OpenPool:
        if self._open is None:
            raise GuestError(_NOT_OPEN)
        return self._open

    @property
    def config(self) -> SessionConfig:
        """The policy, backend and plan of the sandboxes. Raises GuestError unless it is open."""
        return self._live.config

    def narrowed(self, policy: Policy) -> AsyncSandboxPool:
        """Return a pool under ``policy``, a narrower version of this pool's policy.

        The caller opens and closes the new pool. Opening raises PolicyError if a folder that the
        policy names has been moved since.
        """
        scratch = Path(self.config.prepare.scratch)
        operators = paths.without_scratch(self.config.policy, scratch)
        return self.copy(paths.without_scratch(policy, scratch), operators)

    def copy(
        self, policy: str | Policy | None = None, operators: Policy | None = None
    ) -> AsyncSandboxPool:
        """Return a closed pool with this pool's arguments, or with another policy."""
        pool = AsyncSandboxPool(
            policy or self._policy,
            tools=self._functions,
            project=self._project,
            allow_unsafe=self._allow_unsafe,
            operators=operators if policy else self._operators,
        )
        pool.has_tools_loop = self.has_tools_loop
        pool.answered_by, pool.kept_by = self.answered_by, self.kept_by
        return pool

    def readable_folder(self, path: str | Path) -> str | None:
        """Return the real path of a folder, or None if cells may not read it or it isn't there.

        ``path`` is absolute, or relative to the project.
        """
        plan = self.config.prepare.plan
        real = os.path.realpath(Path(self.config.project, path))
        readable = any(within(real, root) for root in (*plan.read_roots, *plan.write_roots))
        # Unlike pathlib's `is_dir`, `access` does not raise for a folder whose parent can't be
        # searched. The slash at the end makes it fail for anything but a folder.
        return real if readable and os.access(f"{real}/", os.F_OK) else None

    def config_for(self, inputs: Mapping[str, Any], cwd: str | None) -> SessionConfig:
        """Return the configuration of one sandbox, and make its folder if the zygote is shared.

        Raises InputError if ``inputs`` are not JSON data.
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
        """Return a session whose guests are forked from the pool's zygote.

        ``on_left`` is called when the session has ended and its guests are gone.
        """
        live = self._live
        zygotes = ZygoteSource(live.reactor, live.zygote, place_of(config.prepare), on_left)
        return open_session(config, live.reactor, front, zygotes, make_tools)

    @property
    def is_warm(self) -> bool:
        """Whether the zygote has had a guest ready, so that the next one takes milliseconds.

        A zygote that replaced one that died is not warm before its first guest is ready.
        """
        zygote = self._open.zygote.zygote if self._open is not None else None
        return zygote is not None and zygote is self._warm

    def set_warm(self) -> None:
        """Record that a guest of the present zygote became ready."""
        self._warm = self._open.zygote.zygote if self._open is not None else None


def _remove(scratch: Path) -> None:
    """Remove a scratch folder, and its layers (which have the same name) if nothing is staged."""
    remove_scratch(str(scratch))
    changes.end(scratch_name(scratch))


# --- one sandbox ------------------------------------------------------------------------------

_LOG: Final = logging.getLogger("cellblock")
#: Seconds that an interrupted cell has before it is killed.
INTERRUPT_TIMEOUT: Final = 2.0
#: Seconds that ``close`` waits for killed guests to be gone; after that the zygote ends them.
GUESTS_END_TIMEOUT: Final = 5.0
#: Seconds that ``close`` waits for async tools to end.
TOOLS_END_TIMEOUT: Final = 1.0
#: Characters of a variable's name that are shown, and of a reason in a session file.
_LONGEST_NAME: Final = 200
#: Characters of a type's name, and of a shape, that are shown.
_LONGEST_TYPE: Final = 60
_SHAPE_TEXT: Final = re.compile("[0-9]+( by [0-9]+)*")
#: Characters of a reason that a guest gives.
_LONGEST_WHY: Final = 500
#: The most variables of a saved session that one request sets, and the most bytes of their values.
#: A larger value has a request of its own.
_MOST_AT_ONCE: Final = 1_000
_MOST_BYTES_AT_ONCE: Final = 4 << 20
_UNSETTABLE: Final = "can't be set: name a variable, without _ in front"
NOT_OPEN: Final = (
    "the sandbox is not open: use `with Sandbox(…) as s:` (`async with` for an AsyncSandbox), or "
    "call its open() first, and its close() at the end"
)
_WAITS_FOR_CALLBACK: Final = "a cell of this sandbox waits for the callback that wants to run one"
OVERFULL: Final = (
    "the fork's scratch folder held far more than scratch_max_bytes, or could not be measured, "
    "and was removed: make another fork"
)
OPENED_ONCE: Final = "a sandbox is opened once; an open one goes on as it was"
FORKED: Final = "a sandbox belongs to the process that opened it; open another one in this process"


class AsyncSandbox:
    """A sandbox: runs cells one after another in a confined process, under a policy.

    The arguments are those of ``Sandbox``, but async ``tools`` run on this loop. With ``snapshots``
    false, a cell that is killed takes the variables with it. ``notebook`` is the notebook file
    whose metadata made the policy narrower, if any did.

    Variables live from cell to cell. If a cell is killed, they are restored to what they were
    before it. Use a sandbox only on the loop that opened it. Concurrent calls of ``execute`` run
    one after the other.
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
        self._inputs = dict(inputs or {})
        self._ask = input
        self._approve = approve
        self._env = dict(env or {})
        self._prompt: ProgramPrompt | None = None
        self._artifacts = artifacts
        self._cwd = cwd
        self._snapshots = snapshots
        self._notebook = notebook
        self._config: SessionConfig | None = None
        #: The files that cells wrote to the project, if the policy stages them.
        self.staged: Staged | None = None
        #: Files that ``upload`` wrote, by path, as they were then: ``files`` doesn't count them as
        #: changed by cells until they differ from that.
        self._uploaded: dict[str, exchange.Put] = {}
        #: When the session began, in seconds since 1970: files older than that are not cells'.
        self._began = 0.0
        #: Seconds that the guest took to list variables after the last cell. A model gets that list
        #: and the pictures with the cell's result, so both share one deadline (``images``).
        self._listed = 0.0
        self._front: SandboxFront | None = None
        self._tools: InProcessTools | None = None
        #: Held by the call that uses the guest (``_turn``).
        self._lock = asyncio.Lock()
        self._guests_ended = asyncio.Event()
        #: Whether ``open`` was called.
        self.was_opened = self._closed = False
        self._process = os.getpid()
        #: The sandbox that this one was forked from, and the open forks of this one.
        self.parent: AsyncSandbox | None = None
        self.forks: list[AsyncSandbox] = []
        #: Whether this is a fork that uses its parent's scratch folder.
        self._shares_folder = False
        #: If not: the fork's folder, which lies in its parent's scratch folder, and the set of all
        #: forks' folders there. What is in a folder of that set counts for its fork alone.
        self._own_folder: ForksFolder | None = None
        self._forks_folders = set[ForksFolder]()
        self._removing: asyncio.Future[None] | None = None
        #: Bytes written to the audit logs of this sandbox and its forks, and of the sandboxes
        #: before it in an MCP session: together they have one bound.
        self.log_written = Counter[str]()

    async def __aenter__(self) -> Self:
        if self.parent is None:  # a fork is made open
            await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Start the session, and wait until a guest is locked and ready.

        Raises PolicyError, InputError, BackendError and GuestError: the errors that a kernel would
        show on every cell. The sandbox is closed then.
        """
        if self.was_opened:
            raise GuestError(OPENED_ONCE)
        self.was_opened = True
        self._process = os.getpid()
        if not self._owns_pool and not self.pool.config.shareable:
            # Sandboxes can't share a zygote under this backend: this one gets a pool of its own.
            self._owns_pool = True
            self.pool = self.pool.copy()
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
        """Build the session and its front, and start a guest; return the session.

        With ``inherited``, the views of the parent, no guest is started: the caller lets the
        session adopt a copy of the parent's guest.
        """
        self._config = config
        self._began = time.time()
        views = Views(config, _warn)
        views.how_to_keep = self.pool.kept_by
        self._loop = asyncio.get_running_loop()
        folder = default_path().parent / "output"
        log = OutputLog(folder, views.kept_bytes(), output_log.SHORT_PAGE)
        self._output_log = log
        self._audit = open_audit(views.in_force, self.log_written)
        self._front = front = SandboxFront(views, log, self._audit, self._ask)
        front.inherited = inherited
        if self._approve is not None:
            self._prompt = ProgramPrompt(self._approve, front)
            front.approver = approver_of(config.policy, front, self._prompt, self.pool.answered_by)
        approval = approval_of(config.policy, front)
        if self.pool.unasked and approval is not None:
            front.approval = AllowNamed(self.pool.unasked, approval)
        record_start(config, front)
        make = self.pool.make_tools
        make_tools = None
        if make is not None:

            def make_tools(policy: Policy) -> InProcessTools:
                self._tools = tools = make(policy)
                return tools

        session = self.pool.open_session(config, front, make_tools, self._guests_ended.set)
        front.session = session
        self.staged = views.staged
        self.pool.sandboxes.add(self)
        session.requests.supervisor.awaits_fork = inherited is not None
        session.start(None if self.parent is None else self.parent.session_of())
        return session

    def _own_config(self) -> SessionConfig:
        """Return the pool's configuration with this sandbox's folder, inputs and options.

        Raises PolicyError for a ``cwd`` that cells can't read, and InputError for the inputs.
        """
        cwd = None if self._cwd is None else self.pool.readable_folder(self._cwd)
        if self._cwd is not None and cwd is None:
            problem = "not a folder that cells can read"
            remedy = "Name one beneath a read root."
            if not self.pool.config.has_project:
                remedy += " Without project= there is none in the project."
            name = self.pool.config.policy.name
            value = repr(os.fspath(self._cwd))
            raise PolicyError(problem, file=name, key="cwd", value=value, remedy=remedy)
        config = self.pool.config_for(self._inputs, cwd)
        self._config = config = config.with_variables(self._env) if self._env else config
        if self._artifacts is not None:
            path = Path(self._artifacts).absolute()
            # Only the links in its parent are resolved: the folder itself need not exist yet.
            config = config.with_artifacts(f"{os.path.realpath(path.parent)}/{path.name}")
        if not self._snapshots and config.policy.snapshots == "auto":
            without_snapshots = config.policy.replace(snapshots="off")
            operators = config.operators and config.operators.replace(snapshots="off")
            config = msgspec.structs.replace(config, policy=without_snapshots, operators=operators)
        return msgspec.structs.replace(config, notebook=self._notebook)

    @property
    def _live(self) -> SandboxFront:
        """The front. Raises GuestError if the sandbox is not open, or open in another process."""
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
        """Run a cell and return its result. A cell that fails has a result too, not an exception.

        ``code`` is the cell's source. ``timeout`` is the number of seconds that it may run; a
        shorter timeout of the policy stays in force. ``on_output`` is called with each output when
        it arrives, in order, until the next cell runs; exceptions that it raises are printed. With
        ``may_ask`` false, ``input()`` fails as under a front end without input, instead of with
        EOFError. ``cell`` names the cell in its notebook, if the outputs of all cells are shown
        on one page: a library that several figures need is then part of one output only.

        If the call is cancelled, the cell is interrupted, and killed if it goes on; after a kill,
        the variables are what they were before the cell. Raises GuestError if the sandbox is not
        open, TypeError and ValueError for a wrong ``code`` or ``timeout``.
        """
        if not isinstance(code, str):
            raise TypeError(f"code must be a str, not {type(code).__name__}")
        if timeout is not None and not timeout > 0:
            raise ValueError("timeout must be a number of seconds above 0")
        async with self._turn():
            return await self._execute(code, timeout, on_output, may_ask=may_ask, cell=cell)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Have the guest to itself: wait for the calls before this one, and make later ones wait.

        Raises GuestError in a callback that a cell of this sandbox waits for: the cell's turn would
        never end.
        """
        if self._front in ANSWERING.get():
            raise GuestError(_WAITS_FOR_CALLBACK)
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
        """Run a cell. Called in this sandbox's turn."""
        request = ExecuteRequest(
            code=code,
            allow_stdin=may_ask,
            stop_on_error=False,
            timeout=timeout,
            cell=cell,
            value=not cell,  # of a notebook's cell the value is shown, but no program reads it
        )
        self._listed = 0.0
        future = self._live.execute(request, on_output)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await self._give_up(future)
            raise

    async def _give_up(self, future: asyncio.Future[Result]) -> None:
        """Interrupt a cell whose caller was cancelled; a second interrupt kills it."""
        while not future.done() and not self._closed:
            self._live.interrupt()
            try:
                await asyncio.wait({future}, timeout=INTERRUPT_TIMEOUT)
            except asyncio.CancelledError:
                continue  # cancelled once more: don't wait for the timeout, interrupt again now
        if future.done() and not future.cancelled():
            future.exception()  # read, so that asyncio does not log it as never retrieved

    # --- forks ----------------------------------------------------------------------------------

    async def fork(self, count: int = 1, *, shares_files: bool = False) -> tuple[AsyncSandbox, ...]:
        """Return ``count`` sandboxes that continue from this one, each independently.

        A fork has this sandbox's policy and variables; their memory is shared until one of the two
        writes to it. Threads, tasks, connections and child processes are not copied
        (``not_copied``). A fork has an empty scratch folder of its own. It reads the files that
        this sandbox staged, and stages none. With ``shares_files`` it uses this sandbox's files
        instead, like a variant; only such a fork can be given to ``go_on_from``. A fork is returned
        open. It ends when it is closed, or with this sandbox.

        Raises GuestError if the policy, the backend or a limit does not allow forks, or if there is
        not enough memory for them.
        """
        async with self._turn():
            return await self._fork(count, shares_folder=shares_files)

    async def go_on_from(self, fork: AsyncSandbox) -> None:
        """Replace this sandbox's variables by those that a fork has now. The fork stays open.

        The fork must have been made with ``shares_files``. This sandbox then lacks what the fork
        lacks (``not_copied``), and ``%undo`` can't go back beyond this point. If it raises
        GuestError, nothing has changed.
        """
        if fork.parent is not self or not fork._shares_folder:
            raise GuestError("go_on_from() takes a fork of this sandbox that shares its files")
        async with self._turn(), fork._turn():
            await self._go_on_from(fork)

    async def try_variants(
        self,
        sources: Sequence[str],
        choose: Callable[[Sequence[Result]], int | None],
        *,
        timeout: float | None = None,
    ) -> Variants:
        """Run cells side by side, each in a fork, and continue from the state that one leaves.

        ``sources`` are the cells. ``choose`` is called with their results in the same order, and
        returns the index of the result to continue from. If it returns None or raises, this
        sandbox's variables stay as they were. Each cell has its own variables, but they share
        files: each sees what the others write, and everything that they write stays. After a choice
        this sandbox lacks what forks lack (``not_copied``). Raises GuestError like ``fork``.
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
        """Run cells like ``try_variants``, and await ``look(fork, result)`` for each cell.

        ``look`` is called for one fork after the other, in order, while the forks are open and
        before ``choose`` is called.
        """
        async with self._turn():
            forks = await self._fork(len(sources), shares_folder=True, are_variants=True)
            try:
                calls = (
                    fork.execute(source, timeout=timeout)
                    for fork, source in zip(forks, sources, strict=True)
                )
                results = tuple(await asyncio.gather(*calls))
                for fork, result in zip(forks, results, strict=True):
                    if look is not None:
                        await look(fork, result)
                chosen = choose(results)
                if chosen is not None:
                    await self._go_on_from(forks[chosen])
            finally:
                for fork in forks:
                    await fork.close()
        return Variants(results, chosen)

    async def _go_on_from(self, fork: AsyncSandbox) -> None:
        """Replace this sandbox's guest by a copy of the fork's guest. Raises GuestError.

        Called with this sandbox's turn, and with the fork's unless the fork is a variant.
        """
        front = self._live
        theirs = fork.session_of()
        session = self.session_of()
        source = theirs.requests.supervisor
        if theirs.settings.policy != session.settings.policy:
            raise GuestError("a sandbox can't go on from a variant that narrowed its policy")
        (copy,) = await self._copies(theirs, 1)
        # Done again when the copy serves (`on_forked`) or when it could not (`on_restart`).
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
        """Return the session, for forks and the MCP server. Raises GuestError unless it is open."""
        if (session := self._live.session) is None:
            raise GuestError(NOT_OPEN)
        return session

    async def _copies(self, session: Session, count: int) -> list[Snapshot]:
        """Return ``count`` copies of a session's guest. Raises GuestError if they can't be made."""
        copied: asyncio.Future[list[Snapshot]] = asyncio.get_running_loop().create_future()
        snapshots = session.requests.supervisor.snapshots
        snapshots.fork(count, copied.set_result)
        try:
            copies = await asyncio.shield(copied)
        except asyncio.CancelledError:
            # The copies are made all the same, and nobody else would release them.
            copied.add_done_callback(lambda future: snapshots.let_go(*future.result()))
            raise
        if len(copies) < count:
            snapshots.let_go(*copies)
            reason = (
                snapshots.why_no_copy() or "too little memory, or too few descriptors, are left"
            )
            raise GuestError(f"the guest could not be copied: {reason}")
        return copies

    async def _fork(
        self, count: int, *, shares_folder: bool = False, are_variants: bool = False
    ) -> tuple[AsyncSandbox, ...]:
        """Return open forks. With ``shares_folder``, they use this sandbox's folder and locks.

        Called in this sandbox's turn. Raises ValueError, and GuestError as ``fork`` does.
        """
        session = self.session_of()
        max_forks = self.policy.max_branches
        root = self
        self.check_budgets("forks and variants are", "Run one after the other in this sandbox.")
        while root.parent is not None:
            root = root.parent
        if count < 1:
            raise ValueError("fork at least one")
        if _count_forks(root) + count > max_forks:
            raise GuestError(f"max_branches allows {max_forks} forks of a sandbox and of its forks")
        max_bytes = self.policy.forks_max_bytes
        held_bytes = session.requests.supervisor.snapshots.held_together()
        if max_bytes is not None and held_bytes > max_bytes:
            raise GuestError(
                f"forks_max_bytes allows {max_bytes:,} bytes for a sandbox and its forks, which "
                f"hold {held_bytes:,}: close one, or delete variables"
            )
        locks = session.settings.prepare.plan.locks
        if "landlock" not in locks or "container" in locks or self.policy.snapshots == "off":
            raise GuestError("forks need Landlock, no container, and snapshots that are not off")
        copies = await self._copies(session, count)
        outcomes = await asyncio.gather(
            *(
                self._forked(session, copy, shares_folder=shares_folder, is_variant=are_variants)
                for copy in copies
            ),
            return_exceptions=True,
        )
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        forks = tuple(outcome for outcome in outcomes if isinstance(outcome, AsyncSandbox))
        if failed:
            for fork in forks:
                await fork.close()
            raise failed[0]
        return forks

    async def _forked(
        self, session: Session, copy: Snapshot, *, shares_folder: bool, is_variant: bool
    ) -> AsyncSandbox:
        """Return the fork whose guest is ``copy``, once the copy serves it.

        If that fails, the copy is released and the fork is closed.
        """
        parent = self._live
        arguments: dict[str, Any] = {"inputs": self._inputs, "input": self._ask}
        arguments |= {"approve": self._approve, "artifacts": self._artifacts}
        fork = AsyncSandbox(pool=self.pool, snapshots=self._snapshots, **arguments)
        fork.was_opened = True
        fork.parent = self
        fork._shares_folder = shares_folder
        fork.log_written = self.log_written
        fork._uploaded = self._uploaded if shares_folder else dict(self._uploaded)
        self.forks.append(fork)
        supervisor = session.requests.supervisor
        try:
            fork._forks_folders = session.requests.forks_folders
            config = await self._fork_config(fork, session.settings, shares_folder=shares_folder)
            own_session = fork._begin(config, parent.views)
            own_session.own_builtins = session.own_builtins
            own_session.requests.continue_from(session.requests)
            own_session.requests.on_folder_lost = None if shares_folder else fork._end_overfull
            front = fork._live
            front.is_variant = is_variant
            front.execution_count = parent.execution_count
            front.cells = dict(parent.cells)
            front.origin = Origin(parent.audit.session, parent.execution_count)
            fork._began = self._began if shares_folder else fork._began
            own_place = None if shares_folder else place_of(config.prepare)
            own_session.requests.supervisor.adopt(copy, supervisor, parent.audit.session, own_place)
            await asyncio.shield(front.ready)
        except BaseException:
            supervisor.snapshots.let_go(copy)
            await fork.close()
            raise
        return fork

    async def _fork_config(
        self, fork: AsyncSandbox, settings: SessionSettings, *, shares_folder: bool
    ) -> SessionConfig:
        """Return a fork's configuration, after making its folder unless it shares this sandbox's.

        The folder lies in this sandbox's scratch folder. Raises GuestError, and ExchangeError if
        the scratch folder can't be opened.
        """
        if self._config is None:
            raise GuestError(NOT_OPEN)
        if shares_folder:
            return self._config.in_fork(None, settings)
        # A random name: no cell can have made a folder of this name beforehand.
        name = exchange.FORK_FOLDER.format(os.urandom(16).hex())
        folder = Path(settings.prepare.scratch, name)
        # Cells of this sandbox can replace the folder by another or by a link. So it is made
        # through the scratch folder's descriptor, and recognised by device and inode, not by path.
        own_folder = await in_thread(_make_within, self._open_scratch(), folder.name)
        fork._own_folder = own_folder
        fork._forks_folders.add(own_folder)
        return self._config.in_fork(folder, settings)

    def _end_overfull(self) -> None:
        """End a fork whose folder is far too full, or can't be measured, and remove the folder.

        Called by the fork's requests (``on_folder_lost``). The files in the folder count for the
        fork alone, but cells of the parent can write there too. If the fork went on, they could
        fill the disk there without reaching a limit of their own.
        """
        self.session_of().requests.on_folder_lost = None
        self.session_of().requests.supervisor.give_up(OVERFULL)
        self._removing = asyncio.ensure_future(self._remove_folder())

    async def _remove_folder(self) -> None:
        """Remove the scratch folder, unless it is the parent's.

        Files that could not be removed from a fork's folder count for its parent from then on.
        """
        if self._config is not None and not self._shares_folder:
            await in_thread(remove_tree, self._config.prepare.scratch)
        if self._own_folder is not None:
            self._forks_folders.discard(self._own_folder)

    def check_budgets(self, what: str, instead: str) -> None:
        """Raise CellblockError if another sandbox would evade a budget or the bound of the log.

        The message begins with ``what``, a subject with its verb ("forks are"), and ends with
        ``instead``, the sentence that says what to do. Raises GuestError under a policy with a
        budget, because another sandbox would have that budget again, and AuditError if the audit
        log is full or can't be written.
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
        """What a fork lacks that its parent has, such as threads; empty if this is no fork."""
        return self._live.not_copied

    async def variables(self) -> tuple[Variable, ...]:
        """Return the variables of the cells, sorted by name, 1,000 at most. Runs no cell's code."""
        async with self._turn():
            began = time.monotonic()
            reply = await self._ask_session(lambda session, done: session.variables(done))
            self._listed = time.monotonic() - began
        return variables_of(reply)

    async def _ask_session(self, send: Callable[[Session, Callable[[Any], None]], None]) -> Any:
        """Return the session's reply to a request that runs no cell; None if it has none.

        ``send`` sends the request, and is called with the session and the callback for the reply.
        Called in this sandbox's turn.
        """
        # To its end even if cancelled: the session takes one request at a time, and the next call
        # must not send its request before this one is answered.
        return await _to_its_end(self._live.ask(send))

    async def get(self, name: str) -> Any:
        """Return the value of the cells' variable ``name``: data, an array or a table.

        Data means None, bool, int, float, str, bytes, and lists and dicts of these; tuples and sets
        arrive as lists. Arrays are numpy's, and tables are those of pandas, polars and pyarrow. A
        value has at most 16 MiB. Reading the value unpickles nothing, and runs no cell's code
        except methods of objects in tables. The value's types are safe, but not its content, which
        a cell chose.

        Raises ExchangeError for any other value, and for one that needs a library which the program
        has not imported: the host imports nothing because a guest says so. Raises GuestError if the
        sandbox is not open.
        """
        async with self._turn():
            value, why = await self._get(name)
        if value is None:
            raise ExchangeError(f"{name}: {why}")
        try:
            return await in_thread(arrays.decode, value, arrays.loaded)
        except Exception as exc:  # pyarrow raises many types for bytes that a guest made up
            raise ExchangeError(f"{name}: {clean_line(str(exc), _LONGEST_WHY)}") from exc

    async def _get(self, name: str) -> tuple[Value | None, str]:
        """Return a variable's encoded value and "", or None and the reason why there is none."""
        reply = await self._ask_session(lambda session, done: session.get_variable(name, done))
        why = "" if reply is None else clean_line(reply.why, _LONGEST_WHY)
        return getattr(reply, "value", None), why or "the guest did not say"

    async def set(self, name: str, value: Any) -> None:
        """Set the cells' variable ``name`` to ``value``, which is of a type that ``get`` returns.

        A table needs a library that cells may import. ``name`` may not begin with ``_``. Raises
        ExchangeError for other names, for values of other types or over 16 MiB, and if the guest
        can't make the value.
        """
        if not _can_be_set(name):
            raise ExchangeError(f"{name!r} {_UNSETTABLE}")
        try:
            encoded = arrays.encode(value, arrays.loaded)
        except (ImportError, TypeError, ValueError) as exc:
            raise ExchangeError(f"{name}: {exc}") from exc
        async with self._turn():
            if why := await self._set({name: encoded}):
                raise ExchangeError(f"{name}: {why}")

    async def _set(self, values: Mapping[str, Value]) -> str:
        """Set variables to encoded values, all or none; return "", or why none was set."""
        reply = await self._ask_session(lambda session, done: session.set_variables(values, done))
        error = getattr(reply, "error", reply)
        if error is None:
            return ""
        why = error if isinstance(error, str) else getattr(error, "evalue", "it was stopped")
        return clean_line(why, _LONGEST_WHY) or "it was stopped"

    async def images(self, result: Result) -> tuple[Image, ...]:
        """Return the pictures that a cell of this sandbox showed, as language models accept them.

        These are the first four, as PNG, JPEG, WebP or GIF files of at most 1 MiB in base64. Larger
        pictures are scaled down in the sandbox by Pillow. That may take ten seconds for all of them
        together, less the time that ``variables`` took after the cell; a picture that can't be
        scaled down within that time is left out. ``result.displays`` has all pictures unchanged.
        """
        seconds_left = QUERY_TIMEOUT - self._listed
        images = list[Image | None]()
        for picture in itertools.islice(pictures(result), MAX_IMAGES):
            if len(picture.data) <= MAX_IMAGE:
                images.append(picture)
            elif seconds_left > 0:
                async with self._turn():
                    # Measured from here: waiting for other calls is not the guest's time.
                    began = time.monotonic()
                    images.append(await self._smaller(picture, seconds_left))
                    seconds_left -= time.monotonic() - began
        return tuple(picture for picture in images if picture is not None)

    async def _smaller(self, picture: Image, seconds: float) -> Image | None:
        """Return a smaller version of a picture, or None if the guest makes none in ``seconds``."""
        content = picture.content
        most = MAX_IMAGE * 3 // 4  # bytes of a file that has MAX_IMAGE characters in base64
        reply = await self._ask_session(
            lambda session, done: session.shrink_image(content, most, done, seconds)
        )
        return image_of(getattr(reply, "image", b""), most, picture.number)

    # --- sessions in files ----------------------------------------------------------------------

    async def save(self, path: str | Path) -> SavedSession:
        """Write the variables and the cells' sources to the file ``path``, for ``load``.

        It saves the values that ``get`` can return, up to 1 GiB together. For every other variable
        the result says why its value was not saved, and which cells bind its name. Saving runs no
        cell's code and pickles nothing. Only the user can read the file; it replaces an older file
        only when it is complete. Raises ExchangeError, and OSError if ``path`` can't be written.
        """
        async with self._turn():
            cells = dict(self._live.cells)
            reply = await self._ask_session(lambda session, done: session.variables(done))
            if reply is None:
                raise ExchangeError("the guest did not say which variables there are: try again")
            binding_cells = dict[str, list[int]]()
            for count, source in cells.items():
                for name in Bindings(transform(source).source).bound:
                    binding_cells.setdefault(name, []).append(count)
                # Other sandboxes on this loop get their turn: parsing a source that was written to
                # be slow takes as long as when it was judged.
                await asyncio.sleep(0)
            writer = SessionWriter(Path(path), self._written)
            try:
                variables = [
                    await self._saved(
                        writer, number, variable, tuple(binding_cells.get(variable.name, ()))
                    )
                    for number, variable in enumerate(reply.variables)
                ]
                policy = paths.without_scratch(self.policy, Path(self._scratch))
                session = SavedSession(
                    cellblock=__version__,
                    policy=policy.name,
                    policy_sha256=policy.digest(),
                    variables=tuple(variables),
                    unlisted=reply.more,
                    cells=tuple(SavedCell(count, encodable(cells[count])) for count in cells),
                )
                await _to_its_end(in_thread(writer.finish, session))
            finally:
                writer.close()
        return session

    async def _saved(
        self, writer: SessionWriter, number: int, variable: wire.Variable, cells: tuple[int, ...]
    ) -> SavedVariable:
        """Write a variable's value if it can be sent, and return the variable's entry."""
        value = None
        why = _UNSETTABLE
        if _can_be_set(variable.name):
            value, why = await self._get(variable.name)
        if value is not None:
            why = await _to_its_end(in_thread(writer.add, number, value))
        name = clean_line(variable.name, _LONGEST_NAME)
        kind = type_of(variable.type)
        return SavedVariable(name, kind, clean_line(why, _LONGEST_NAME), cells)

    async def load(self, path: str | Path, *, rerun: bool = False) -> LoadedSession:
        """Set the variables that ``save`` wrote to the file ``path``, under this sandbox's policy.

        For each variable that can't be set, the result says why, and its ``to_run`` has the cells
        that bind the missing names. With ``rerun``, these cells are executed in order, and then the
        saved values are set again, so that a cell's other assignments don't replace them.

        The file may come from anybody: its size is bounded, nothing in it is unpickled, and cells
        that are run again are judged like any other. Raises ExchangeError if it is not a saved
        session, and OSError.
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
            reply = await self._ask_session(lambda session, done: session.variables(done))
        names = {variable.name for variable in reply.variables} if reply is not None else set()
        variables = tuple(
            msgspec.structs.replace(variable, why="") if variable.name in names else variable
            for variable in loaded.variables
        )
        return msgspec.structs.replace(loaded, variables=variables, results=results)

    async def _load(self, file: SessionFile, session: SavedSession) -> LoadedSession:
        """Set the variables of a file that can be set, and say why not for the others.

        Small values are set in batches, by one request each.
        """
        reasons = [
            variable.why and (clean_line(variable.why, _LONGEST_NAME) or "the file does not say")
            for variable in session.variables
        ]
        batch: dict[int, Value] = {}
        size = 0
        for number, variable in enumerate(session.variables):
            if variable.why:
                continue
            if not _can_be_set(variable.name):
                reasons[number] = _UNSETTABLE
                continue
            if len(batch) >= _MOST_AT_ONCE or size + file.size(number) > _MOST_BYTES_AT_ONCE:
                await self._set_loaded(session, batch, reasons)
                batch = {}
                size = 0
            try:
                batch[number] = await _to_its_end(in_thread(file.value, number))
                size += file.size(number)
            except ExchangeError as exc:
                reasons[number] = str(exc)
        await self._set_loaded(session, batch, reasons)
        variables = list[SavedVariable]()
        for variable, why in zip(session.variables, reasons, strict=True):
            name = clean_line(variable.name, _LONGEST_NAME)
            kind = type_of(variable.type)
            variables.append(SavedVariable(name, kind, why, variable.cells))
        fields = msgspec.structs.asdict(session) | {"variables": tuple(variables)}
        return LoadedSession(**fields)

    async def _set_loaded(
        self, session: SavedSession, batch: Mapping[int, Value], reasons: list[str]
    ) -> None:
        """Set a batch of variables, which has values by the variables' numbers in the session.

        The guest sets all or none. If it sets none, each variable is set by itself, and its entry
        in ``reasons`` is set to the reason if it can't be, else to "".
        """
        names = {number: session.variables[number].name for number in batch}
        if not batch or not await self._set(
            {names[index]: value for index, value in batch.items()}
        ):
            return
        for number, value in batch.items():
            reasons[number] = await self._set({names[number]: value})

    # --- files, by the names that cells use -------------------------------------------------------

    async def upload(self, source: exchange.Source, name: str = "") -> str:
        """Copy a file into the folder where cells begin, and return its path as cells see it.

        ``source`` is a path, the content as bytes, or a file that is open for reading bytes.
        ``name`` is the name that cells open it by; by default the source's own. Missing folders in
        it are made, and an existing file is replaced. A name that begins with ``~/`` lies in the
        scratch folder. In a project, the file is staged like files that cells write.

        Raises ExchangeError, also if the file has more bytes than the policy's
        ``scratch_max_bytes``. Raises OSError if ``source`` can't be read, or is reached through a
        link that cells could have made.
        """
        if not name:
            path = source if isinstance(source, str | os.PathLike) else getattr(source, "name", "")
            name = Path(path).name if isinstance(path, str | os.PathLike) else ""
        if not name:
            raise ValueError("the source has no name: give upload() one with name=")
        max_bytes = self.policy.scratch_max_bytes
        async with self._turn():
            cells = self._cell_folder()
            place = cells.place(name)
            folder = cells.open(place, to_write=True)
            put = await in_thread(exchange.put, folder, place, source, max_bytes, self._written)
            self._uploaded[place.path] = put
        return place.path

    async def write(self, name: str, content: str | bytes) -> str:
        """Write ``content`` to the file ``name`` like ``upload``; text is written as UTF-8."""
        return await self.upload(content.encode() if isinstance(content, str) else content, name)

    async def download(self, name: str, target: str | Path, *, max_bytes: int = 2**30) -> None:
        """Copy the file that cells open as ``name`` to ``target``, replacing an existing file.

        In a project, that is the staged file if there is one. Raises ExchangeError if it is not a
        regular file, is reached through a link or ``..``, or has more than ``max_bytes``. Raises
        OSError if ``target`` can't be written, or is reached through a link that cells could have
        made.
        """
        async with self._turn():
            cells = self._cell_folder()
            place = cells.place(name)
            folder = cells.open(place)
            await in_thread(exchange.take, folder, place, target, max_bytes, self._written)

    async def read(self, name: str, *, max_bytes: int = 64 * 2**20) -> bytes:
        """Return the content of the file that cells open as ``name``. Raises like ``download``."""
        async with self._turn():
            cells = self._cell_folder()
            place = cells.place(name)
            folder = cells.open(place)
            return await in_thread(exchange.read, folder, place, max_bytes)

    async def files(self, folder: str = "", *, changed: bool = False) -> tuple[File, ...]:
        """Return the files in the folder where cells begin, or in ``folder`` beneath it.

        With ``changed``, only the files that cells made or changed. Links are left out, and so are
        names that begin with a dot. Raises ExchangeError if there are more than 20,000 entries; a
        ``folder`` narrows the search.
        """
        async with self._turn():
            cells = self._cell_folder()
            # Folders are opened on the loop's thread, because a descriptor that the zygote lends
            # must be closed there. Only the walk runs in a worker thread.
            folders = tuple(cells.listed(cells.place(folder)))
            files = functools.partial(self._files, cells, folders, only_changed=changed)
            return await in_thread(files)

    def _files(
        self,
        cells: exchange.CellFolder,
        folders: Iterable[tuple[str, int, frozenset[str]]],
        *,
        only_changed: bool,
    ) -> tuple[File, ...]:
        """Return the files in open folders, and close the folders. Called in a worker thread.

        ``folders`` has for each folder its path, its descriptor and the names that are skipped.
        Under a layer, the layer says which files cells changed. Elsewhere these are the files that
        changed on disk since the session began, except uploaded files that are still as ``upload``
        wrote them.
        """
        files = list[File]()
        began = int(self._began * 1e9)
        for folder, folder_fd, skipped in folders:
            written_names = self._written_under_layer(folder)
            with closing(folder_fd):
                if written_names is not None and only_changed:
                    # The project may be large, and the layer knows which few files to look at.
                    entries = exchange.find(os.dup(folder_fd), written_names)
                else:
                    entries = exchange.walk(os.dup(folder_fd), skipped)
                for below, status in entries:
                    path = f"{folder}/{below}"
                    changed = (
                        status.st_ctime_ns >= began
                        if written_names is None
                        else below in written_names
                    )
                    if changed and (put := self._uploaded.get(path)) is not None:
                        changed = not exchange.is_as_put(folder_fd, below, put)
                    if changed or not only_changed:
                        files.append(File(cells.name(path), status.st_size, changed))
        return tuple(files)

    def _written_under_layer(self, folder: str) -> frozenset[str] | None:
        """Return the files that cells wrote in a folder, if a layer covers it, else None."""
        root = self
        while root.parent is not None:  # forks stage nothing: they read what the root stages
            root = root.parent
        try:
            folder_fd = root.session_of().requests.open_written(folder)
        except OSError:  # cells wrote nothing there
            return frozenset()
        return (
            None if folder_fd is None else frozenset(name for name, _ in exchange.walk(folder_fd))
        )

    def _cell_folder(self) -> exchange.CellFolder:
        session = self.session_of()
        requests = session.requests
        prepare = session.settings.prepare
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
        """The folders in which cells could have put links, including cells of a fork's parent.

        These are the write roots at the start: narrowing the policy removes no link that is there.
        """
        own = self._prepare.plan.write_roots
        return own if self.parent is None else (*own, *self.parent._written)  # noqa: SLF001

    def _open_scratch(self) -> int:
        session = self.session_of()
        try:
            return session.requests.open_folder(self._scratch)
        except OSError as exc:
            raise ExchangeError(f"the scratch folder can't be opened: {exc.strerror}") from None

    def earlier_output(self, argument: str = "", *, of_tool: bool = False) -> str:
        """Return a page of earlier cells' output that their results left out.

        ``argument`` is the argument of ``%output``; if empty, the answer lists the pages. With
        ``of_tool``, the text refers to pages by a tool's arguments (cell, stream and page) instead
        of by ``%output``. If the answer is not a page, it also has what was printed since the last
        cell ended, which no result has yet.
        """
        log = self._live.outputs.cells_kept
        text = str(output_log.answer(log, argument, of_tool=of_tool)["text/plain"])
        late = self._live.late_output
        if late.strip() and not text.startswith(Heading.PAGE.partition("{")[0]):
            text += f"\n\n{Heading.LATE}{beneath(without_styles(late))}"
        return text

    def keep_output(self, gaps: Mapping[str, tuple[int, int]], *, of_tool: bool = False) -> str:
        """Keep the last cell's output for ``earlier_output``, although its result has it.

        For callers that show only a part of the result; ``gaps`` is what ``before_gaps`` returned
        for that part. Return the text that says where each stream goes on, with ``%output`` or
        (``of_tool``) with a tool's arguments; "" if nothing is kept.
        """
        log = self._live.outputs.cells_kept
        log.keep()
        return output_log.places(log, gaps, of_tool=of_tool)

    def interrupt(self) -> None:
        """Interrupt the running cell. A second call, at least half a second later, kills it."""
        self._live.interrupt()

    async def close(self) -> None:
        """End the forks, the guest and the tools, and remove the scratch folder.

        Returns when all that is done. Does nothing if the sandbox is closed.
        """
        await _to_its_end(self._close())

    async def _close(self) -> None:
        # A process that was forked from this one must not end the guest of its parent.
        if self._closed or self._process != os.getpid():
            return
        while self.forks:
            await self.forks[-1].close()
        self._closed = True
        if self.parent is not None and self in self.parent.forks:
            self.parent.forks.remove(self)
        may_go_on = self._end(self._front) if self._front is not None else False
        if self._tools is not None and not self._tools.ended():
            await in_thread(self._tools.ended, TOOLS_END_TIMEOUT)
        if self._owns_pool:  # which removes the scratch folder, this sandbox's too
            await self.pool.close()
            return
        if may_go_on:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._guests_ended.wait(), GUESTS_END_TIMEOUT)
        if self._removing is not None:
            await self._removing
        await self._remove_folder()

    def _end(self, front: SandboxFront) -> bool:
        """End the session. Return whether its processes may go on for a moment."""
        if self._prompt is not None:
            self._prompt.close()
        if front.exports is not None:
            front.exports.close()
        all_gone = front.session is None or front.session.close()
        front.abandon(GuestError("the sandbox was closed"))
        self._audit.close()
        self._output_log.close()
        if self.staged is not None:
            self.staged.close()
        self.pool.sandboxes.discard(self)
        return not all_gone

    def __del__(self) -> None:
        if getattr(self, "_front", None) is None or self._closed or self._process != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._close()))

    # --- what cells wrote to the project --------------------------------------------------------

    @property
    def listable(self) -> Staged | None:
        """The staged files, without those that the policy in force denies; None if none are staged.

        The policy may have been narrowed since cells wrote them.
        """
        return self._front.views.listable() if self._front is not None else None

    async def changes(self, paths: Paths = ()) -> tuple[Change, ...]:
        """Return the staged changes: files that cells made, changed or deleted in the project.

        With ``paths``, only the changes at or beneath them; a path is absolute or relative to the
        project. Works after ``close`` too, for a week. Raises ChangesError if there are more than
        can be listed.
        """
        return await in_thread(changes_of, self.listable, paths)

    async def keep(self, paths: Paths = (), *, overwrite: bool = False) -> tuple[Change, ...]:
        """Apply staged changes to the project: all of them, or those at or beneath ``paths``.

        It applies all of these changes and returns them, or applies none and raises ChangesError.
        If one of the files in the project was changed since the sandbox was opened, none is
        applied, unless ``overwrite`` is true. Each file is recorded in an audit log. Works after
        ``close`` too, for a week.
        """
        keep = functools.partial(keep_of, self.listable, paths, overwrite=overwrite)
        return await in_thread(keep)

    async def drop(self) -> None:
        """Discard the staged changes. Cells still see them until the sandbox is closed."""
        if self.staged is not None:
            await in_thread(self.staged.drop)

    # --- what is in force ---------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The policy in force, with resolved paths."""
        if self._config is None:
            raise GuestError(NOT_OPEN)
        in_force = self._front.views.in_force if self._front is not None else None
        return in_force or self._config.policy

    @property
    def session(self) -> str:
        """The name of the session's audit log (``cellblock audit show``); empty without a log."""
        return self._live.audit.session

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._live.views.backend

    @property
    def enforcement(self) -> Mapping[str, Enforcement]:
        """How far each capability is enforced in this sandbox, by capability."""
        return self._live.views.enforcement

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that cells may call."""
        return self._live.views.tools_in_force

    async def ports(self) -> dict[int, str]:
        """Return the address of each open port, by the port's number in the sandbox.

        Under ``ports = "any"``, every port on which a cell listens is open. The address is a URL
        for a browser. A program whose resolver does not know names below ``localhost`` connects to
        127.0.0.1 and sends the host and port of the address in the ``Host`` header. An address is
        valid until the sandbox and its last fork are closed. Raises GuestError if the sandbox is
        not open.
        """
        return {port.number: port.url for port in self._live.views.ports()}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The capabilities that the policy asks for and that are not enforced here (promise P7)."""
        return self._live.views.gaps


async def _to_its_end(work: Awaitable[T]) -> T:
    """Await ``work`` and return its result. If cancelled, raise only when ``work`` has ended."""
    future = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise


def variables_of(reply: wire.Variables | None) -> tuple[Variable, ...]:
    """Return the variables in a guest's reply, without texts that are no names, types or shapes.

    A guest may send any text, and these are shown to people and models within sentences of the
    host's. A variable without a proper name is dropped; a type or shape that is none becomes "".
    """
    return tuple(
        Variable(
            variable.name,
            type_of(variable.type),
            variable.shape
            if len(variable.shape) <= _LONGEST_TYPE and _SHAPE_TEXT.fullmatch(variable.shape)
            else "",
            variable.size,
        )
        for variable in (reply.variables if reply is not None else ())
        if len(variable.name) <= _LONGEST_NAME and variable.name.isidentifier()
    )


def type_of(name: str) -> str:
    """Return the name of a type that a guest sent, or "" if it is not a name or too long."""
    is_name = all(part.isidentifier() for part in name.split("."))
    return name if len(name) <= _LONGEST_TYPE and is_name else ""


def _can_be_set(name: str) -> bool:
    """Return whether a program may set a variable of this name."""
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")


def _make_within(parent_fd: int, name: str) -> ForksFolder:
    """Make the folder ``name`` in the open folder ``parent_fd``, and close ``parent_fd``.

    Called in a worker thread. The descriptor is closed here because the caller may have been
    cancelled meanwhile.
    """
    with closing(parent_fd):
        give_rights(parent_fd)  # cells may have taken away rights in it
        os.mkdir(name, mode=0o700, dir_fd=parent_fd)
        status = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    return ForksFolder(name, status.st_dev, status.st_ino)


def _count_forks(sandbox: AsyncSandbox) -> int:
    return sum(1 + _count_forks(fork) for fork in sandbox.forks)


def changes_of(staged: Staged | None, paths: Paths) -> tuple[Change, ...]:
    """Return the staged changes, or those at or beneath ``paths``. Raises ChangesError."""
    return () if staged is None else tuple(staged.changes(_path_texts(paths)))


def keep_of(staged: Staged | None, paths: Paths, *, overwrite: bool) -> tuple[Change, ...]:
    """Apply staged changes to the project, and return them. Raises ChangesError."""
    names = _path_texts(paths)
    if staged is None and names:
        raise ChangesError("nothing is staged under this policy")
    if staged is None:
        return ()
    entries = keeping.keep(staged, names, by="a program", overwrite=overwrite)
    return tuple(entry.change for entry in entries)


def _path_texts(paths: Paths) -> tuple[str, ...]:
    several = (paths,) if isinstance(paths, str | os.PathLike) else paths
    return tuple(os.fspath(path) for path in several)


@functools.lru_cache(maxsize=256)
def _warn(text: str) -> None:
    """Log a warning, once in a process: a gap is the same for each of its sandboxes."""
    _LOG.warning("\n".join(wrap(text, hanging="  ", columns=COLUMNS)))
