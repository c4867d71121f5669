"""The actions by which the core has an effect outside. Each action is a value.

``Snapshots`` (``host.snapshots.driver``) carries them out in the order in which the core gave them.
The core numbers the processes; a process keeps its number while it waits, takes over and serves.
The driver knows which socket and pid belong to each number.
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
    """Why the core asked to be reminded."""

    idle = "nothing came for a while"
    late = "a fork has not stood"
    kept_waiting = "a copy has not said what became of a fork"
    too_long = "a copy has not taken over"
    sweep = "unknown processes may be left"
    look = "copies may have gone on by themselves"


class Reminder(Struct, frozen=True):
    """A reminder for later. When it comes the core decides whether it still matters."""

    cause: Cause
    #: The number of the process that the reminder is about, or of this reminder of idle time.
    number: int = 0


class Remind(Struct, frozen=True):
    """Call ``Core.reminded`` after some seconds."""

    seconds: float
    of: Reminder


# --- actions on processes -----------------------------------------------------------------------


class Fork(Struct, frozen=True):
    """Have ``maker``, the guest or a copy, fork a process, which gets this number."""

    maker: int
    number: int


class Stop(Struct, frozen=True):
    """Stop a copy (SIGSTOP): it needs no processor time to wait, and must do nothing else."""

    number: int


class Continue(Struct, frozen=True):
    """Let a copy go on (SIGCONT), because it must fork."""

    number: int


class Wake(Struct, frozen=True):
    """Let a copy go on for good, to take over. From now on the zygote reports its end."""

    number: int


class Drop(Struct, frozen=True):
    """End a copy."""

    number: int


class Protect(Struct, frozen=True):
    """Keep cells from signalling a copy. This comes before the guest is sent another cell."""

    number: int


class EndUnknown(Struct, frozen=True):
    """End the processes in the guest's OS sessions that are neither guest nor copy."""


class EndAll(Struct, frozen=True):
    """End all processes in the OS sessions of a guest that is gone."""


class TakeOver(Struct, frozen=True):
    """Tell a copy to take over."""

    number: int
    #: How many requests the copy will be told to run again.
    again: int
    #: Numbers and sources of the cells that its state has not seen.
    inputs: list[tuple[int, str]]
    #: The locks that the copy must take first, or None.
    plan: messages.Plan | None
    #: For a fork with folders and an environment of its own: these, else None; and whether this is
    #: a fork.
    place: messages.SessionSetup | None
    fork: bool


class Replay(Struct, frozen=True):
    """Have a copy that takes over run a request again."""

    number: int
    request: PastRequest


# --- actions on the session ---------------------------------------------------------------------


class Tell(Struct, frozen=True):
    """Call ``then`` with these arguments, for somebody who waits."""

    then: Callable[..., object]
    with_: tuple[Any, ...] = ()


class Unwatch(Struct, frozen=True):
    """Stop watching the guest's requests: the guest is lost."""


class EndGuest(Struct, frozen=True):
    """End the process that was the guest, if there was one.

    With ``empties``, /dev/shm is emptied then, because its contents would count against the memory
    of the copy that takes over. ``has_failed`` says that the guest was started and never served.
    """

    number: int | None
    empties: bool
    has_failed: bool


class Serve(Struct, frozen=True):
    """Have the process that has taken over serve, and report that to the core (``Core.served``)."""

    number: int


class Restored(Struct, frozen=True):
    """Tell the session what its restored state lacks, and send what waits."""

    number: int
    outcome: Stopped


class StartAnew(Struct, frozen=True):
    """Start a new guest, because no copy of the lost guest is left."""

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
