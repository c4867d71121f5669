"""A takeover: from the end of a guest until a copy of it serves in its place.

The host sends the copy ``TakeOver``. The copy answers ``Resumed``, runs the requests again that ran
after it was forked, and from then on is the session's guest::

    begins ──▶ tells ──▶ hears Resumed ──▶ hears Done of each request ──▶ caught_up ──▶ outcome
       ▲                                                │
       └────────────────── fails ◀──────────────────────┘

``Core`` chooses which copy is tried (``Core._try_newest``). This module decides which requests the
copy runs again, how much time it has, and whether its messages are the ones that it must send.
"""

from __future__ import annotations

import math
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from cellblock.host.session.types import Restored, Stopped
from cellblock.host.state.chain import LATELY, PastRequest, is_visible
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.host.state.chain import Copy, Snapshot


#: Seconds that the first copy has to take over. This is half of the time that all copies have
#: together. Each later copy has half of the time that is left, because the user has waited already.
PATIENCE: Final = 4.0
#: Seconds that each copy has at least.
_LEAST_SECONDS: Final = 0.25
#: How many times as long cells may take when a copy runs them again.
_REPLAY_FACTOR: Final = 4
#: Copies that may be killed at the same cell before that cell counts as what ends them.
MAX_STUMBLES: Final = 4
#: Ends of a guest that a cell may cause after it seemed to have ended. It would cause them again.
_ITS_OWN_DOING: Final = frozenset({"violation", "silent", "breach"})
#: Ends that such a cell may also have caused if the guest had not begun the next request.
_NOT_TAKEN_UP: Final = frozenset({"timeout", "interrupt"})


class Heard(Enum):
    """What a message of the copy means for the takeover."""

    nothing = "it may say that"
    progress = "it has taken over, or run a cell again"
    wrong = "it lies, fails or speaks out of turn"


class Takeover:
    """The loss of one guest, and the copies that are tried until one serves in its place.

    ``stopped`` is the outcome if nothing fails, ``otherwise`` the outcome from the first failure
    on. ``running`` is the request that was under way, ``missed`` are requests that ran after a
    snapshot chosen by ``%undo``, ``undone`` those that ``%undo`` steps back over. With a ``plan``
    the copy must have that plan's locks first. A fork's copy also gets a ``place`` of its own.

    A request that ended so lately that no snapshot holds its effects is run again, and its output
    is not shown. That is for a guest that ends in the millisecond between the answer and the
    snapshot. Such a request was short, because longer ones are not answered before their snapshot
    stands. Repeatable requests before it are run again, too.
    """

    def __init__(
        self,
        stopped: Stopped,
        lost_at: float,
        running: Any = None,
        *,
        otherwise: Stopped | None = None,
        missed: Sequence[PastRequest] = (),
        undone: Sequence[PastRequest] = (),
        plan: messages.Plan | None = None,
        place: messages.SessionSetup | None = None,
    ) -> None:
        #: The outcome, still without what was restored.
        self.stopped = stopped
        self._otherwise = stopped if otherwise is None else otherwise
        self._running = running
        self._undone = undone
        self._lost_at = lost_at
        self.plan = plan
        self.place = place
        #: Whether the zygote says that the copy has the locks of the plan.
        self.confined = plan is None
        #: Whether the contents of /dev/shm were removed.
        self.emptied = False
        #: The snapshot that is restored; None before the first is tried.
        self.snapshot: Snapshot | None = None
        #: Whether the copy that is tried stands, and its process is known to be the guest's.
        self.stands = False
        #: Whether the copy was told to take over. Its twin stands then, or there will be none.
        self.is_told = False
        #: Whether the snapshot is not of the chain, so that the chain is dropped when it serves.
        self.leaves_chain = False
        self._resumed: messages.Resumed | None = None
        #: Requests that ran after the snapshot: those that the copy lacks, those of them that it
        #: must still run again, and those that it has run again.
        self._missed = list(missed)
        self._due: list[PastRequest] = []
        self._again: list[PastRequest] = []
        #: For each copy that failed while it ran a request again, that request's message.
        self._stumbled: list[Any] = []
        #: Seconds left for all copies together, and how many of them are for running cells again.
        self._left = 2 * PATIENCE
        self._again_left = 0.0
        #: When the copy that is tried now began.
        self._began = 0.0

    # --- which copy is tried --------------------------------------------------------------------

    def goes_back_to(self, snapshot: Snapshot) -> None:
        """Add the requests that ran after a snapshot to those that its copy lacks."""
        missed = [*snapshot.after, *self._again, *self._missed]
        # The running request may have ended already, but was not answered. It ends as stopped.
        self._missed = [request for request in missed if request.message is not self._running]
        self._again = []
        self._resumed = None

    def begins(
        self, snapshot: Snapshot, copy: Copy, began_at: float, *, leaves_chain: bool
    ) -> float:
        """Record that ``copy`` is tried from ``began_at`` on; return the seconds that it has."""
        self.snapshot = snapshot
        self.stands = copy.stands
        self.is_told = False
        self.leaves_chain = leaves_chain
        snapshot.after.clear()
        self._due = self._may_run_again()
        again = _REPLAY_FACTOR * sum(request.seconds for request in self._due)
        self._left += max(0.0, again - self._again_left)
        self._again_left = max(again, self._again_left)
        allowed = again + max(0.0, self._left - again) / 2
        self._began = began_at
        return max(_LEAST_SECONDS, min(allowed, self._left))

    def _may_run_again(self) -> list[PastRequest]:
        """Return which of the missing requests the copy may run again.

        These are all of them if no request can have caused the end of the guest, and each that may
        come out otherwise was short and ended a moment ago. (If the newest copy died with the
        guest, there may be several such requests.) Otherwise these are the repeatable ones at the
        start, and the next one if it is ``last_repeatable``.
        """
        suspect = _ITS_OWN_DOING if self._running is not None else _ITS_OWN_DOING | _NOT_TAKEN_UP
        trusted = self.stopped.why not in suspect
        unrepeatable = [request for request in self._missed if not request.comes_out_the_same]
        lately = all(
            request.short and self._lost_at - request.ended < LATELY for request in unrepeatable
        )
        if trusted and lately:
            return list(self._missed)
        repeatable = list(takewhile(lambda request: request.repeatable, self._missed))
        return repeatable + [
            request for request in self._missed[len(repeatable) :][:1] if request.last_repeatable
        ]

    def tells(self) -> tuple[int, list[tuple[int, str]]]:
        """Return what the copy is told: how many requests it runs again, and sources for ``In``.

        The sources are those of cells that it does not run again, by number; undone cells are
        marked. The snapshot keeps them, because another copy of it may serve later.
        """
        if self.snapshot is None:
            raise RuntimeError("no copy is tried")
        self.is_told = True
        unseen = self.snapshot.unseen
        for request in self._undone:
            unseen[request.message.execution_count] = f"# undone\n{request.message.raw}"
        for request in self._missed:
            if request.visible and request not in self._due:
                unseen[request.message.execution_count] = request.message.raw
        if is_visible(self._running):
            unseen[self._running.execution_count] = self._running.raw
        return len(self._due), sorted(unseen.items())

    # --- the copy's messages --------------------------------------------------------------------

    @property
    def next(self) -> PastRequest | None:
        """The request that the copy must run again next, or None."""
        return self._due[0] if self._due else None

    @property
    def caught_up(self) -> bool:
        """Whether the copy has taken over, and has run again all that it must."""
        return self._resumed is not None and not self._due

    def hears(self, message: messages.FromGuest) -> Heard:
        """Judge a message of the copy, and note the progress that it reports."""
        match message:
            case messages.Resumed() if self._may_resume():
                self._resumed = message
                return Heard.progress
            case messages.Done(id=number, error=error) if self._runs(number):
                if error is not None and self._due[0].comes_out_the_same:
                    return Heard.wrong  # a repeatable request that fails did not come out the same
                self._again.append(self._due.pop(0))
                self._missed.pop(0)
                return Heard.progress
            case (
                messages.Resumed()
                | messages.Breach()
                | messages.InputRequest()
                | messages.SnapshotReady()
                | messages.ToolCall()
            ):
                return Heard.wrong
        # Outputs of a cell that is run again were shown before, so they are dropped.
        return Heard.nothing if self._due else Heard.wrong

    def _may_resume(self) -> bool:
        """Return whether the copy may report ``Resumed`` now."""
        first = self.is_told and self._resumed is None
        return first and self.stands and self.confined

    def _runs(self, number: int) -> bool:
        """Return whether the copy is running the request with this id again."""
        runs = self._resumed is not None and bool(self._due)
        return runs and number == self._due[0].message.id

    # --- the end of a copy, or of the takeover --------------------------------------------------

    def fails(self, failed_at: float, *, killed: bool) -> bool:
        """Record that the copy did not take over; return whether its state is good all the same.

        A copy that was ``killed`` says nothing against its state. Neither does a copy that failed
        while it ran a cell again: the state before that cell is good. In both cases its twin takes
        over next. If the copy lied or was late, or ``MAX_STUMBLES`` copies were killed at this
        cell, the twin leaves out that cell and those after it, and the user is told so.
        """
        if self._resumed is not None and self._due:
            message = self._due[0].message
            self._stumbled.append(message)
            often = self._stumbled.count(message) >= MAX_STUMBLES
            if not killed or often:  # else whoever killed the copy is to blame, not the cell
                self._missed[0] = replace(
                    self._missed[0], repeatable=False, last_repeatable=False, ended=-math.inf
                )
            killed = True
        self.snapshot = None
        self.stopped = self._otherwise
        self._left -= failed_at - self._began
        return killed

    def ran_again(self, ended_at: float) -> list[PastRequest]:
        """Return the requests that the copy ran again, with ``ended_at`` as the time of their end.

        They are recorded anew: if this guest ends before the next snapshot, they must run again,
        because the old snapshot lacks them. After the last of them the guest has new random
        numbers, so later requests can't be run again from the old snapshot.
        """
        past = [replace(request, ended=ended_at) for request in self._again]
        if past and past[-1].comes_out_the_same:
            past[-1] = replace(past[-1], repeatable=False, last_repeatable=True)
        return past

    def outcome(self) -> Stopped:
        """Return the outcome, with what the restored state lacks."""
        resumed = self._resumed or messages.Resumed()
        return replace(
            self.stopped,
            restored=Restored(
                threads=tuple(resumed.threads),
                tasks=resumed.tasks,
                files=resumed.files,
                connections=resumed.connections,
                emptied=self.emptied,
                again=_counts(
                    [request for request in self._again if not request.comes_out_the_same]
                ),
                missed=_counts(self._missed),
            ),
        )


def _counts(requests: Sequence[PastRequest]) -> tuple[int, ...]:
    """Return the cell numbers of the requests that are visible cells."""
    return tuple(request.message.execution_count for request in requests if request.visible)
