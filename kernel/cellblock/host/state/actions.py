"""What the core has done outside: each action is a value, carried out in the order it was given.

Processes have numbers, which the core gives out: a process keeps its number while it waits, takes
over and serves. ``Snapshots`` (``host.snapshots.driver``) has the host's end of each.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.session.types import Stopped
    from cellblock.host.state.chain import PastRequest
    from cellblock.wire import messages


class Cause(Enum):
    """What the core asked to be reminded of."""

    idle = "nothing came for a while"
    late = "a fork has not stood"
    kept_waiting = "a copy has not said what became of a fork"
    too_long = "a copy has not taken over"
    sweep = "unknown processes may be left"
    look = "copies may have gone on by themselves"


class Reminder(Struct, frozen=True):
    """A moment that comes later. The core decides then whether it still matters."""

    cause: Cause
    #: The process that it is about, or which of the reminders of idle time it is.
    number: int = 0


class Remind(Struct, frozen=True):
    """Call ``Core.reminded`` after some seconds."""

    seconds: float
    of: Reminder


# --- to processes -------------------------------------------------------------------------------


class Fork(Struct, frozen=True):
    """Have ``maker``, the guest or a copy, fork once; the new process has this number."""

    maker: int
    number: int


class Stop(Struct, frozen=True):
    """Stop a copy (SIGSTOP): it needs no processor to wait, and can do nothing else."""

    number: int


class Continue(Struct, frozen=True):
    """Let a copy go on (SIGCONT), since it must fork."""

    number: int


class Wake(Struct, frozen=True):
    """Let a copy go on for good, since it is to serve. The zygote tells of its end from now on."""

    number: int


class Drop(Struct, frozen=True):
    """End a copy."""

    number: int


class Protect(Struct, frozen=True):
    """Keep cells from signalling a copy. Given before the guest is sent another cell."""

    number: int


class EndUnknown(Struct, frozen=True):
    """End what is neither guest nor copy in the guest's sessions."""


class EndAll(Struct, frozen=True):
    """End everything in the sessions of a guest that is no more."""


class TakeOver(Struct, frozen=True):
    """Tell a copy to take over."""

    number: int
    #: How many cells it will be told to run again.
    again: int
    #: The cells that it has not seen, by count.
    inputs: list[tuple[int, str]]
    #: Locks that it must take first; of a fork, what it has for itself.
    plan: messages.Plan | None
    place: messages.SessionSetup | None
    fork: bool


class Replay(Struct, frozen=True):
    """Have a copy that takes over run a cell again."""

    number: int
    request: PastRequest


# --- to the session -----------------------------------------------------------------------------


class Tell(Struct, frozen=True):
    """Call somebody who waits."""

    then: Callable[..., object]
    with_: tuple[Any, ...] = ()


class Unwatch(Struct, frozen=True):
    """Stop watching what the guest runs: it is lost."""


class EndGuest(Struct, frozen=True):
    """End the process that was the guest, if there was one.

    If it ``empties``, /dev/shm is emptied then: who takes over would have less memory by what lies
    there. ``has_failed`` says that it never served, and was started for that.
    """

    number: int | None
    empties: bool
    has_failed: bool


class Serve(Struct, frozen=True):
    """Have the process that has taken over serve, and say so to the core (``Core.serves``)."""

    number: int


class Restored(Struct, frozen=True):
    """Tell the session what became of its state, and send what waits."""

    number: int
    outcome: Stopped


class StartAnew(Struct, frozen=True):
    """Start a new guest: no copy is left of the one that was lost."""

    stopped: Stopped


Action = (
    Remind
    | Fork
    | Stop
    | Continue
    | Wake
    | Drop
    | Protect
    | EndUnknown
    | EndAll
    | TakeOver
    | Replay
    | Tell
    | Unwatch
    | EndGuest
    | Serve
    | Restored
    | StartAnew
)
