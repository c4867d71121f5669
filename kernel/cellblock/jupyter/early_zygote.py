"""The zygote that starts before it is known what policy a kernel is under.

A bare zygote is started first of all (``start``). One that a backend wraps is started in what
wrapped the last one, or in what a first look at the policy says. Once the policy is read, a zygote
in anything else is ended: it was told nothing yet.

It imports as fast as it imports little, like ``start``: nothing here that reads a policy.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cellblock.errors import StartError
from cellblock.host.guests import spawn
from cellblock.host.guests.spawn import WrappingCache
from cellblock.policy.folders import cache_folder, changes_folder, make_scratch

if TYPE_CHECKING:
    import socket

    from cellblock.host.guests.spawn import Recalled
    from cellblock.host.guests.zygote import Standing
    from cellblock.host.session.config import SessionConfig, Wrapping
    from cellblock.wire.messages import Prepare

    #: The host's end of a zygote's socket, and its pid.
    Zygote = tuple[socket.socket, int]


def working_folder() -> Path:
    """Return the folder that cells are run for. Raises ``StartError`` where it is gone."""
    try:
        return Path.cwd()
    except OSError as exc:
        what = f"the folder it was started in: {exc.strerror}"
        raise StartError(f"{what}. Start it in one that is there.") from None


class Ahead(Protocol):
    """A zygote that was told a policy, with guests that were forked before the launch."""

    def take(self, prepare: Prepare) -> Standing | None:
        """Return all where they are for just this; else end them, and return nothing."""

    def end(self) -> None:
        """End all."""


class EarlyZygote:
    """At most one zygote, for a kernel with this policy in this folder."""

    def __init__(self, policy: str, bare: Zygote | None) -> None:
        project = working_folder()
        self.scratch = Path(make_scratch())
        #: It, if it is started and not taken yet, and what is around it.
        self._zygote = bare
        self._around: Wrapping | Recalled | None = None
        self._due: Wrapping | None = None
        #: What it was told, where it waits for a launch.
        self._told: Prepare | None = None
        self._memory: WrappingCache | None = None
        #: It, where it has guests before the launch that it waits for.
        self.ahead: Ahead | None = None
        if bare is None:
            around = self.recollect(policy, project).recall()
            if around is not None and (folder := changes_folder()) in around.words:
                with contextlib.suppress(OSError):  # it is made again, and reported
                    # The user may have deleted it. What is missing is not mounted, and no layer
                    # that is made later is seen by the zygote.
                    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.start(around)

    def recollect(self, policy: str, project: Path) -> WrappingCache:
        """Have the wrapping kept for kernels of this policy and folder; return where that is."""
        self._memory = WrappingCache(cache_folder(), policy, str(project), str(self.scratch))
        return self._memory

    @property
    def is_started(self) -> bool:
        """Whether it is started and not taken yet."""
        return self._zygote is not None

    def start(self, around: Wrapping | Recalled | None) -> None:
        """Start it in ``around``, if that is known."""
        if around is not None:
            with contextlib.suppress(OSError):  # it is tried again, and reported
                self._zygote = spawn.start(around)
                self._around = around

    def settle(self, due: Wrapping | None) -> None:
        """End it unless it is in the wrapping that is due."""
        self._due = due
        if not is_alike(self._around, due):
            self.end()

    def prepare(self, config: SessionConfig) -> None:
        """Have it prepare for this, which the kernel may differ from that it comes to serve.

        Not where somebody is asked first, where it is not known yet which tools there are, and
        where the zygote is a container.
        """
        policy = config.policy
        equipped = policy.tools or policy.mcp or policy.llm.granted or policy.operations is not None
        is_foreseen = policy.approvals == "never" and not equipped
        if is_foreseen and (config.wrap is None or config.wrap.words):
            if not self.is_started:
                self.start(config.wrap)
            if self._zygote is not None:
                from cellblock.host.guests import zygote  # noqa: PLC0415 - slow, as said above

                self._told = zygote.first_frame(config.prepare)
                zygote.tell(self._zygote[0], self._told)

    def awaits(self, config: SessionConfig) -> bool:
        """Whether the zygote was told this, and may have guests before the launch."""
        return self._told is not None and not config.prepare.plan.relayed

    def is_told(self, first: Prepare) -> bool:
        """Whether the zygote was told just this; one that was told anything else is ended."""
        told, self._told = self._told, None
        if told is not None and told != first:
            self.end()
        return self.is_started and told == first

    def take(self) -> Zygote:
        """Return the zygote; another one if it is taken or was not started. Raises OSError."""
        zygote, self._zygote = self._zygote, None
        return zygote or spawn.start(self._due)

    def take_ahead(self, prepare: Prepare) -> Standing | None:
        """Return the zygote and its guests, where it has them already, for just this."""
        ahead, self.ahead = self.ahead, None
        return None if ahead is None else ahead.take(prepare)

    def end(self) -> None:
        """End the zygote, if it was started and is not taken."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead.end()
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            spawn.drop(*zygote)

    def remember(self) -> None:
        """Keep the wrapping for the next kernel."""
        memory, self._memory = self._memory, None
        if memory is not None and self._due is not None and (words := self._due.words):
            memory.keep(words)


def is_alike(around: Wrapping | Recalled | None, due: Wrapping | None) -> bool:
    """Return whether a zygote in ``around`` is in the wrapping that is due."""
    if around is None or due is None:
        return around is due
    # A foreseen wrapping is equal as a value; words are made anew each time.
    return around == due or (bool(around.words) and around.words == due.words)
