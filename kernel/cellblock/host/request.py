"""What is under way: one message to a guest, whom to tell, and how far it got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.host.outcome import Stopped
from cellblock.wire import messages

#: Guests in a row that may be lost by themselves, with nothing run in between: a state that ends
#: every guest which has it is not restored for ever. What a cell ends does not count: the user can
#: run another, or step back.
MAX_LOSSES: Final = 8

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.outcome import Why


class Request:
    """Bookkeeping of a session's one request. ``seconds`` are a limit of its own, if it has one."""

    def __init__(
        self, message: Any, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        self.message, self.done, self.seconds = message, done, seconds
        #: The guest has read it: seen before anything else was sent after it.
        self.taken = False
        #: The guest says that it has read it and is busy with something else.
        self.heard = False
        #: The guest has taken it up.
        self.began = False
        self.began_at = 0.0
        #: It called a tool, or may have used a connection: what that did is not done again.
        self.called = False
        #: Its end was told; it is answered when a snapshot keeps what it did.
        self.ended = False
        #: How many cells it asked to step back over.
        self.undo = 0
        #: What it is answered with when that is done.
        self.reply: Any = None
        #: How often it was sent to another guest, because one was lost before it began.
        self.retried = 0
        #: The limit that it was interrupted for.
        self.over: Why | None = None
        self.interrupted_at: float | None = None
        #: It had not begun then, and what kept its guest from it was interrupted.
        self.nudged = False
        #: Questions that it put since the last one that was answered.
        self.questions = 0

    def renew(self) -> None:
        """Make it ready for another guest, which has all of its time."""
        self.over, self.nudged = None, False
        self.retried += 1

    def may_be_sent_again(self, lost: Why) -> bool:
        """Say whether another guest may get it: twice at most, where it may be what ends guests.

        What breaks the protocol before it has taken a cell up does so by itself, and so does every
        copy of it; a query is taken up unsaid.
        """
        told = isinstance(self.message, messages.Execute | messages.CommIn)
        most = MAX_LOSSES + 1 if told and lost == "violation" else 1
        return not self.began and self.interrupted_at is None and self.retried < most

    def stopped(self, why: Why, *, kept: bool = False) -> Stopped:
        """Return how it ended that is over a limit."""
        seconds = self.seconds if why == "timeout" else None
        return Stopped(why, kept=kept, seconds=seconds)
