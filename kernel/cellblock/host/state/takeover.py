"""What a takeover has to make good: from a guest's end until a copy of it serves in its place.

A copy that is to serve leaves a twin, is told to take over, says that it has, and runs again what
it lacks; then it serves. Nothing is decided here about which copy that is (``Core._try_newest``),
only what it runs again, how long it has, and whether what it says is what it has to say.
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


#: Seconds that the first copy has to take over: half of what all have together, and so has each
#: one after it of what is left, since whoever waits has waited for those before.
PATIENCE: Final = 4.0
#: Those that each has at least.
_LEAST: Final = 0.25
#: A copy that runs cells again may need so many times as long as they took.
_SLOWER: Final = 4
#: Copies that end while they run the same cell again before it counts as what ends them.
MAX_STUMBLES: Final = 4
#: Ends that a cell brings about which pretends to have ended: it would do so again.
_ITS_OWN_DOING: Final = frozenset({"violation", "silent", "breach"})
#: Ends that say the same of it when they come before the next request was taken up.
_NOT_TAKEN_UP: Final = frozenset({"timeout", "interrupt"})


class Heard(Enum):
    """What a message of the copy's comes to."""

    nothing = "it may say that"
    progress = "it has taken over, or run a cell again"
    wrong = "it lies, fails or speaks out of turn"


class Takeover:
    """The loss of one guest, and the copies that are tried until one serves in its place.

    ``running`` is the request that was under way, ``missed`` is what ran after a snapshot that was
    chosen, ``undone`` what ``%undo`` steps back over. Under a ``plan`` a copy has more locks first;
    a fork of a ``place`` of its own, too.

    A request that had ended so lately that no snapshot holds what it did is run again, unheard:
    that is for a guest that ends in the millisecond between, and it was short (longer ones are not
    answered before their snapshot stands). So are those before it that come out the same.
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
        #: The outcome as it is when nothing can be restored, and what it is from the first failure.
        self.stopped = stopped
        self._otherwise = stopped if otherwise is None else otherwise
        self._running, self._undone, self._lost_at = running, undone, lost_at
        self.plan, self.place = plan, place
        #: Whether the zygote says that the copy has the locks of the plan.
        self.confined = plan is None
        #: What was in /dev/shm was removed.
        self.emptied = False
        #: The state that is gone back to; None before the first is tried.
        self.snapshot: Snapshot | None = None
        #: The copy of it that is to serve stands, and its process is known to be the guest's.
        self.stands = False
        #: It was told to take over: its twin stands, or none will.
        self.is_told = False
        #: What the chain has did not lead to it.
        self.leaves_chain = False
        self._resumed: messages.Resumed | None = None
        #: What ran after that state was kept; what of it is to be run again, and was.
        self._missed = list(missed)
        self._due: list[PastRequest] = []
        self._again: list[PastRequest] = []
        #: What was run again when each of those that were killed then was.
        self._stumbled: list[Any] = []
        #: Seconds that are left for all, with those for cells that are run again.
        self._left, self._again_left = 2 * PATIENCE, 0.0
        self._began = 0.0

    # --- who is tried ---------------------------------------------------------------------------

    def goes_back_to(self, snapshot: Snapshot) -> None:
        """Add what ran after a snapshot to what whoever goes on from there lacks."""
        missed = [*snapshot.after, *self._again, *self._missed]
        # What runs may have ended, but was not answered: it ends as stopped.
        self._missed = [request for request in missed if request.message is not self._running]
        self._again, self._resumed = [], None

    def begins(self, snapshot: Snapshot, copy: Copy, now: float, *, leaves_chain: bool) -> float:
        """Record that a copy is tried from now on; return the seconds that it has."""
        self.snapshot, self.stands = snapshot, copy.stands
        self.is_told, self.leaves_chain = False, leaves_chain
        snapshot.after.clear()
        self._due = self._may_run_again()
        again = _SLOWER * sum(request.seconds for request in self._due)
        self._left += max(0.0, again - self._again_left)
        self._again_left = max(again, self._again_left)
        allowed = again + max(0.0, self._left - again) / 2
        self._began = now
        return max(_LEAST, min(allowed, self._left))

    def _may_run_again(self) -> list[PastRequest]:
        """Return what of what is missing is run again: all, or what is repeatable before the rest.

        Short requests missing here ended a moment ago; if there are several, the newest copy died
        with the guest. After an attack only those that are repeatable are trusted.
        """
        suspect = _ITS_OWN_DOING if self._running is not None else _ITS_OWN_DOING | _NOT_TAKEN_UP
        trusted = self.stopped.why not in suspect
        once = [request for request in self._missed if not request.comes_out_the_same]
        lately = all(one.short and self._lost_at - one.ended < LATELY for one in once)
        if trusted and lately:
            return list(self._missed)
        due = list(takewhile(lambda one: one.repeatable, self._missed))
        return due + [one for one in self._missed[len(due) :][:1] if one.last_repeatable]

    def tells(self) -> tuple[int, list[tuple[int, str]]]:
        """Return what a copy is told: how many cells it runs again, and the sources of others.

        Those are for ``In``: what was undone is marked. The state keeps them, since another copy of
        it may serve later.
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

    # --- what it says ---------------------------------------------------------------------------

    @property
    def next(self) -> PastRequest | None:
        """The cell that the copy has to run again next, or None."""
        return self._due[0] if self._due else None

    @property
    def caught_up(self) -> bool:
        """Whether the copy has taken over, and run again all that it has to."""
        return self._resumed is not None and not self._due

    def hears(self, message: messages.FromGuest) -> Heard:
        """Take a message of the copy that was told to take over."""
        match message:
            case messages.Resumed() if self._may_resume():
                self._resumed = message
                return Heard.progress
            case messages.Done(id=number, error=error) if self._runs(number):
                if error is not None and self._due[0].comes_out_the_same:
                    return Heard.wrong  # it fails now
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
        # What a cell shows that is run again was shown before.
        return Heard.nothing if self._due else Heard.wrong

    def _may_resume(self) -> bool:
        once = self.is_told and self._resumed is None
        return once and self.stands and self.confined

    def _runs(self, number: int) -> bool:
        runs = self._resumed is not None and bool(self._due)
        return runs and number == self._due[0].message.id

    # --- how it ends ----------------------------------------------------------------------------

    def fails(self, now: float, *, killed: bool) -> bool:
        """Record that the copy did not take over; return whether its state is good all the same.

        Who was killed says nothing against its state. A copy that failed while running a cell again
        also has a good state: that of before the cell. Its twin takes over. If the copy lied or was
        late, or ``MAX_STUMBLES`` copies were killed at this cell, the twin does so without that
        cell and those behind it, which are told.
        """
        if self._resumed is not None and self._due:
            stumbled = self._due[0].message
            self._stumbled.append(stumbled)
            often = self._stumbled.count(stumbled) >= MAX_STUMBLES
            if not killed or often:  # else whoever killed it is at fault
                self._missed[0] = replace(
                    self._missed[0], repeatable=False, last_repeatable=False, ended=-math.inf
                )
            killed = True
        self.snapshot, self.stopped = None, self._otherwise
        self._left -= now - self._began
        return killed

    def ran_again(self, now: float) -> list[PastRequest]:
        """Return what the copy that serves ran again, as having ended now.

        An older snapshot lacks it, should this guest end at once. Behind the last, random numbers
        are new: what comes next is not run again from before that.
        """
        past = [replace(request, ended=now) for request in self._again]
        if past and past[-1].comes_out_the_same:
            past[-1] = replace(past[-1], repeatable=False, last_repeatable=True)
        return past

    def outcome(self) -> Stopped:
        """Return the outcome, with what became of the state."""
        resumed = self._resumed or messages.Resumed()
        return replace(
            self.stopped,
            restored=Restored(
                threads=tuple(resumed.threads),
                tasks=resumed.tasks,
                files=resumed.files,
                connections=resumed.connections,
                emptied=self.emptied,
                again=_counts([one for one in self._again if not one.comes_out_the_same]),
                missed=_counts(self._missed),
            ),
        )


def _counts(requests: Sequence[PastRequest]) -> tuple[int, ...]:
    return tuple(one.message.execution_count for one in requests if one.visible)
