"""A call that a worker runs: how long it may, whether it was told to stop, and its one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.tools.provider import Answer

if TYPE_CHECKING:
    from cellblock.host.session.types import Timer
    from cellblock.host.tools.provider import Call

#: Bytes that a call holds beside its arguments.
_EACH: Final = 4_096
#: Kinds of the answers of calls that were told to stop, and did.
_STOPPED: Final = ("Cancelled", "CancelledError")


class Begun:
    """One call. ``limit`` is in seconds, and ``setting`` what sets it.

    ``waited_for``: somebody still wants its answer. ``told`` to stop: once. ``unheard`` are the
    seconds for which it was left alone after it was due.
    """

    __slots__ = ("_setting", "call", "limit", "timer", "told", "unheard", "waited_for")

    def __init__(self, call: Call, limit: float | None, setting: str) -> None:
        self.call, self.limit, self._setting = call, limit, setting
        self.waited_for, self.told, self.unheard = True, False, 0.0
        self.timer: Timer | None = None

    @property
    def size(self) -> int:
        """Bytes that it holds, about."""
        return len(bytes(self.call.arguments)) + _EACH

    def stop(self) -> None:
        """Have its time not run out any more."""
        if self.timer is not None:
            self.timer.cancel()

    def answer(self, answer: Answer) -> None:
        """Give its answer to whoever waits for it; one that was told to stop says why it did."""
        self.stop()
        if self.waited_for:
            self.waited_for = False
            stopped = self.told and answer.kind in _STOPPED
            self.call.answer(self.too_long() if stopped else answer)

    def too_long(self) -> Answer:
        """Return the answer of a call whose time is over."""
        said = f"it took longer than {self.limit or 0:g} s ({self._setting})"
        return Answer(kind="TimeoutError", message=said)
