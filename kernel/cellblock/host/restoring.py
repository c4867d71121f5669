"""One restoration: from a guest's end until a snapshot of it serves in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import GuestError
from cellblock.host.copies import is_visible
from cellblock.host.outcome import Restored, Stopped
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cellblock.host.copies import Copy, Ran
    from cellblock.host.guest_process import Guest
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.wire.messages import Plan

#: Seconds that the first copy has to take over, and to catch up; after each one that does not, the
#: next has half as many, since whoever waits has waited for those before.
PATIENCE: Final = 4.0
#: Copies that may end without that before it counts as the same: their state may be what ends them.
_MOST_KILLED: Final = 8
#: Ends that a cell brings about which pretends to have ended: it would do so again.
_ITS_OWN_DOING: Final = frozenset({"violation", "silent", "breach"})
#: Seconds after which a snapshot of what ended stands, or something keeps it from standing.
_LATELY: Final = 1.0
#: Ends that say the same of it when they come before the next request was taken up.
_NOT_TAKEN_UP: Final = frozenset({"timeout", "interrupt"})


class Restoring:
    """What was lost, what takes over, and what has to be done again.

    ``running`` is the request that was under way. A request that had ended so lately that no
    snapshot holds what it did is run once more by whoever takes over, unheard: that is for a
    guest that ends in the millisecond between, and it was short (longer ones are not answered
    before their snapshot stands). So are those before it that come out the same.
    """

    def __init__(  # noqa: PLR0913 - what a restoration is made of
        self,
        stopped: Stopped,
        running: Any,
        missed: Sequence[Ran] = (),
        undone: Sequence[Ran] = (),
        *,
        now: float,
        plan: Plan | None = None,
    ) -> None:
        #: The outcome as it is when nothing can be restored.
        self.stopped = stopped
        self._running, self._undone = running, undone
        self._now = now
        #: Locks that a copy has to have before it serves, and whether the zygote says that it has.
        self.plan, self.confined = plan, plan is None
        #: What ran after the copy was made, and what of that is to be run again, and was.
        self._missed = list(missed)
        self._due: list[Ran] = []
        self._again: list[Ran] = []
        self._resumed: messages.Resumed | None = None
        self._timer: Timer | None = None
        self._patience, self._tries = PATIENCE, 0

    def since(self, copy: Copy) -> None:
        """Take note of the copy that is tried, and of what ran after it."""
        missed = [*copy.after, *self._again, *self._missed]
        # What runs may have ended, but was not answered: it ends as stopped.
        self._missed = [ran for ran in missed if ran.message is not self._running]
        self._again, self._resumed = [], None

    @property
    def again(self) -> tuple[Ran, ...]:
        """What was run again."""
        return tuple(self._again)

    def began(self, reactor: Reactor, failed: Callable[[], None]) -> None:
        """Watch the time of the copy that is tried."""
        self.unwatch()
        self._tries += 1
        if self._tries > _MOST_KILLED:
            self._patience /= 2

        def late() -> None:
            self._patience /= 2
            failed()

        self._timer = reactor.call_later(self._patience, late)

    def unwatch(self) -> None:
        """Stop watching its time: it has failed, or serves."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def inputs(self) -> list[tuple[int, str]]:
        """Return the cells that the copy has not seen, for ``In``: what was undone is marked."""
        self._due = list(self._missed) if self._can_catch_up() else []
        found = dict[int, str]()
        for ran in self._undone:
            found[ran.message.execution_count] = f"# undone\n{ran.message.raw}"
        for ran in self._missed:
            if ran.visible and ran not in self._due:
                found[ran.message.execution_count] = ran.message.raw
        if is_visible(self._running):
            found[self._running.execution_count] = self._running.raw
        return sorted(found.items())

    def _can_catch_up(self) -> bool:
        """Say whether what is missing may be run again: what comes out the same, or was short.

        What was short had just ended, or a snapshot that stands twice would hold it: the newest
        has ended with its guest where there is more than one. After an attack they are suspects.
        """
        suspect = _ITS_OWN_DOING if self._running is not None else _ITS_OWN_DOING | _NOT_TAKEN_UP
        trusted = self.stopped.why not in suspect
        kept = [ran for ran in self._missed if not ran.exact]
        lately = all(ran.short and self._now - ran.ended < _LATELY for ran in kept)
        return not kept or (trusted and lately)

    def heard(self, message: messages.FromGuest, guest: Guest) -> bool:
        """Act on what the copy says; say whether it serves now. Raises GuestError."""
        match message:
            case messages.Standing() if guest.vouch():
                return False
            case messages.Resumed() if not self.confined:
                raise GuestError("it goes on without its locks")
            case messages.Resumed() if self._resumed is None and guest.pidfd is not None:
                self._resumed = message
                return not self._due
            case messages.Done(id=number) if self._due and number == self._due[0].message.id:
                self._again.append(self._due.pop(0))
                self._missed.pop(0)
                return not self._due
            case (
                messages.Breach()
                | messages.InputRequest()
                | messages.Standing()
                | messages.ToolCall()
            ):
                raise GuestError("it does not catch up")
            case _ if not self._due:
                raise GuestError("it speaks out of turn")
        return False

    def go_on(self, guest: Guest) -> None:
        """Have the next request that is missing run again. Raises GuestError."""
        if self._resumed is not None and self._due:
            guest.send(self._due[0].message)

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
                again=_counts([ran for ran in self._again if not ran.exact]),
                missed=_counts(self._missed),
            ),
        )


def _counts(those: Sequence[Ran]) -> tuple[int, ...]:
    return tuple(ran.message.execution_count for ran in those if ran.visible)
