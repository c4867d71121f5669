"""What a snapshot is to the host: a copy of the guest, what ran since, a state to go back to."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cellblock.host import room
from cellblock.host.gauge import Gauge
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guest_process import Guest

#: Seconds up to which a request counts as short: run again, nobody notices.
SHORT: Final = 0.1
#: Requests, and seconds that they took together, that are run again instead of being kept.
_MOST_AGAIN: Final = 20
_LONGEST_AGAIN: Final = 0.05


@dataclass(slots=True)
class Lineage:
    """The fork that a guest and its copies descend from, and the session (setsid(2)) it began."""

    number: int = 0
    session: int = -1


@dataclass(frozen=True, slots=True)
class Ran:
    """A request that ran to its end, and whether that comes out the same a second time."""

    message: Any
    seconds: float
    exact: bool = False
    #: When it did.
    ended: float = 0.0
    #: It did what must not be done twice.
    once: bool = False

    @property
    def short(self) -> bool:
        """Say whether nobody notices when it is run again."""
        return self.seconds <= SHORT and not self.once

    @property
    def visible(self) -> bool:
        """Say whether it is a cell with a number of its own."""
        return is_visible(self.message)


def is_visible(message: Any) -> bool:
    """Say whether a request is a cell with a number of its own."""
    return isinstance(message, messages.Execute) and message.store_history and not message.silent


@dataclass(eq=False, slots=True)
class Copy:
    """One copy, and what ran to its end since it was made."""

    guest: Guest
    number: int
    asked_at: float
    #: What the guest had, and the copy has from it.
    had: room.Reading
    standing: bool = False
    #: How many connections its guest had when it was made, as it says itself.
    connections: int = 0
    #: It was told to stop, and nothing is known to have set it going since.
    still: bool = False
    #: Bytes that it has come to hold since it was made, and that it wrote to of those it had.
    grew: int = 0
    rewrote: int = 0
    #: Seconds of the processor that it had used when that was read.
    used: float = 0.0
    #: Made by it, to stand in its place; how many there were of this state; the numbers of those
    #: that it has not parted with yet.
    twin: Copy | None = None
    twins: int = 0
    busy: set[int] = field(default_factory=set)
    after: list[Ran] = field(default_factory=list)
    #: Cells that were ended while its twin's state served, for ``In``.
    unseen: dict[int, str] = field(default_factory=dict)
    #: Called once it stands, and its twin if that is waited for, or never will.
    then: Callable[[], None] | None = None
    twice: bool = False
    #: Called when it serves, for what its state has and was to be answered when that was kept.
    waiting: Callable[[], None] | None = None
    #: Called once it stands beside its guest, for what ran next.
    next: Callable[[], None] | None = None

    def settle(self) -> None:
        """Tell whoever waits for it."""
        then, self.then = self.then, None
        if then is not None:
            then()

    def stop(self, *, again: bool) -> None:
        """Stop it, if it stands and has nothing to do; ``again`` if it was told that before."""
        if self.standing and not self.busy and (again or not self.still):
            self.guest.signal(signal.SIGSTOP)
            self.still = True

    def measure(self) -> None:
        """Read what it has come to hold, and wrote to, if it did anything since that was read."""
        if not self.standing or self.guest.pid is None:
            return
        used = Gauge(self.guest.pid).cpu()
        if used is not None and used != self.used:
            self.used = used
            self.grew, self.rewrote = room.taken(self.guest.pid, self.had)

    def part_with_twin(self) -> None:
        """Let go of its twin, if it has one."""
        twin, self.twin = self.twin, None
        if twin is not None:
            twin.guest.close()

    @property
    def settled(self) -> bool:
        """Say whether it stands, and nothing is being forked from it."""
        return self.standing and not self.busy and (self.twin is None or self.twin.standing)

    @property
    def visible(self) -> bool:
        """Say whether a cell ran after it that a user would call one."""
        return any(ran.visible for ran in self.after)

    @property
    def exact(self) -> bool:
        """Say whether all that ran after it can be run again instead of being kept."""
        seconds = sum(ran.seconds for ran in self.after)
        few = len(self.after) <= _MOST_AGAIN and seconds <= _LONGEST_AGAIN
        return few and all(ran.exact for ran in self.after)


@dataclass(frozen=True, slots=True)
class Step:
    """A state that can be gone back to: a copy, what to run again on it, what that undoes."""

    copy: Copy
    again: tuple[Ran, ...]
    undone: tuple[Ran, ...]
