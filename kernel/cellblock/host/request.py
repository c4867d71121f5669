"""What is under way: one message to a guest, whom to tell, and how far it got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.host.outcome import Stopped

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
        #: It was sent to a second guest, because the first was lost before it began.
        self.retried = False
        #: The limit that it was interrupted for.
        self.over: Why | None = None
        self.interrupted_at: float | None = None
        #: It had not begun then, and what kept its guest from it was interrupted.
        self.nudged = False
        #: Questions that it put since the last one that was answered.
        self.questions = 0

    def renew(self) -> None:
        """Make it ready for a second guest, which has all of its time."""
        self.retried, self.over, self.nudged = True, None, False

    def stopped(self, why: Why, *, kept: bool = False) -> Stopped:
        """Return how it ended that is over a limit."""
        seconds = self.seconds if why == "timeout" else None
        return Stopped(why, kept=kept, seconds=seconds)
