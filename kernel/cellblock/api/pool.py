"""Sandboxes of one policy, whose guests are forks of one warm zygote."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import traceback
import weakref
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from cellblock.errors import GuestError, PolicyError
from cellblock.guest import remove_tree
from cellblock.host.guests import spawn
from cellblock.host.guests.zygote import place_of
from cellblock.host.guests.zygotes import Seat, Shared
from cellblock.host.session import history as given_inputs
from cellblock.host.session.build import placed, shareable
from cellblock.host.session.config import Ground, Terms, lay, make_scratch
from cellblock.host.session.settings import own_tools
from cellblock.policy import paths
from cellblock.policy.model import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from cellblock.api.results import Wish
    from cellblock.api.sandbox import AsyncSandbox
    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.services.tools.in_process import Functions
    from cellblock.host.services.tools.registry import Registered
    from cellblock.wire import messages

    Tools = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]]


# A session's loop over asyncio's.


class AsyncioReactor:
    """``host.reactor.Reactor`` on a loop that somebody runs; to be used in its thread alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Whom to call, and which of reading and writing is watched, by descriptor.
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
        """Do nothing: how asyncio waits is its own business."""

    def _call(self, fd: int) -> None:
        if (watched := self._watched.get(fd)) is not None:
            _attempt(watched[0])


def _attempt(action: Callable[[], None]) -> None:
    """Call ``action``; a fault of ours is told on stderr and ends no session (promise P6)."""
    try:
        action()
    except Exception:  # noqa: BLE001 - the loop goes on
        traceback.print_exc()


_NOT_OPEN: Final = "the pool is not open: use `async with AsyncSandboxPool(…) as pool:`"
ASK: Final = "Pass allow_unsafe=True"
#: What IPython imports at a guest's first cell, and at its first result: once for all, instead.
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
        self._tools: dict[str, Registered] = {}
        self._ground: Ground | None = None
        self._shared: Shared | None = None
        self._reactor: AsyncioReactor | None = None
        self._scratch: Path | None = None
        self._numbers = itertools.count(1)
        self._apart = False
        #: Those that nobody dropped.
        self._open: weakref.WeakSet[AsyncSandbox] = weakref.WeakSet()
        #: The zygote of which a guest was ready.
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
            shared = Shared(reactor, partial(spawn.start, ground.wrap), _warmed(ground.told))
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
        """Return the ground. Raises what keeps it from being one."""
        project = self._folder()
        if self._given:
            from cellblock.host.services.tools.in_process import registered  # noqa: PLC0415 - pydantic

            self._tools = registered(self._given)
        terms = Terms(self._asked, project, scratch, self._allow_unsafe, ask=ASK)
        ground = lay(terms)
        if not isinstance(ground, Ground):
            raise ground
        return ground if self._operators is None else self._as_asked(ground, scratch)

    def _as_asked(self, ground: Ground, scratch: Path) -> Ground:
        """Return the ground of a narrower policy. Raises PolicyError where it is another by now."""
        asked, operators = self._asked, self._operators
        assert isinstance(asked, Policy)  # noqa: S101 - for the type checker
        assert operators is not None  # noqa: S101 - as above
        if paths.unplaced(ground.policy, scratch).digest() != asked.digest():
            what, remedy = "a folder that it names was moved meanwhile", "Run it again."
            raise PolicyError(what, file=asked.name, key="", value="", remedy=remedy)
        return dataclasses.replace(ground, operators=paths.in_scratch(operators, scratch))

    def _folder(self) -> Path:
        """Return the project folder. Raises PolicyError where there is none."""
        try:
            return Path(self._project or Path.cwd()).resolve(strict=True)
        except OSError as exc:
            file = self._asked if isinstance(self._asked, str) else self._asked.name
            value, remedy = repr(str(self._project or "")), "Name a folder that is there."
            what = f"no such folder: {exc.strerror}"
            raise PolicyError(what, file=file, key="project", value=value, remedy=remedy) from None

    def sandbox(  # noqa: PLR0913 - what a sandbox is made of
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
        from cellblock.api.sandbox import AsyncSandbox  # noqa: PLC0415 - it imports this

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
        """What sandboxes stand on. Raises GuestError where the pool is not open."""
        if self._ground is None:
            raise GuestError(_NOT_OPEN)
        return self._ground

    @property
    def reactor(self) -> AsyncioReactor:
        """The loop that they are on. Raises GuestError where the pool is not open."""
        if self._reactor is None:
            raise GuestError(_NOT_OPEN)
        return self._reactor

    @property
    def is_open(self) -> bool:
        """Whether there is ground to stand on."""
        return self._ground is not None

    @property
    def shared(self) -> bool:
        """Whether several sandboxes may have its zygote."""
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
        """Have async tools run on a loop of their own: whoever holds that up holds up no cell."""
        self._apart = True

    def ground_for(self, inputs: Mapping[str, Any], cwd: str | None) -> Ground:
        """Return the ground for one sandbox, with a folder of its own where there may be several.

        Raises InputError.
        """
        encoded = given_inputs.encoded(inputs)
        folder = Path(self.ground.told.scratch)
        if self.shared:
            folder /= f"{next(self._numbers)}"
            folder.mkdir(mode=0o700)
        return placed(self.ground, folder, inputs=encoded, cwd=cwd)

    def seat(self, ground: Ground, on_left: Callable[[], None]) -> Seat:
        """Return a sandbox's part in the zygote."""
        if self._shared is None:
            raise GuestError(_NOT_OPEN)
        return Seat(self._shared, place_of(ground.told), on_left)

    def functions(self, policy: Policy) -> Functions:
        """Return the source of the tools that were given."""
        from cellblock.host.services.tools.in_process import Functions  # noqa: PLC0415 - as above

        return Functions(
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
        """Take note that a guest of its zygote is ready."""
        self._warm = self._shared.zygote if self._shared is not None else None

    def opened(self, one: AsyncSandbox) -> None:
        """Take note of a sandbox that is to be closed with the pool."""
        self._open.add(one)

    def closed(self, one: AsyncSandbox) -> None:
        """Take note that one was closed."""
        self._open.discard(one)


def _warmed(told: messages.Prepare) -> messages.Prepare:
    return msgspec.structs.replace(told, preload=(*told.preload, *_LATE))
