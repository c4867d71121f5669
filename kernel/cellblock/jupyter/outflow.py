"""What front ends have yet to take of iopub, and the brake that follows from it.

ZeroMQ queues for each subscriber and tells nobody how much. Now and then a message goes out whose
first frame is tracked: when ZeroMQ lets go of that, everything before it has left for good.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cellblock.jupyter.reactor import ZmqReactor

#: Bytes between tracked messages.
MARK_EVERY = 256 << 10
#: Bytes that a message costs in a queue, whatever is in it.
OVERHEAD = 1_000
#: Bytes that may wait before the guest has to, and that may be left when it goes on.
HIGH, LOW = 16 << 20, 8 << 20
#: Seconds between looks at what is left.
LOOK = 0.005
#: Seconds for which front ends may take nothing before the guest goes on without them.
PATIENCE = 10.0
#: A plain number: zmq's own flags take longer to be combined than a frame to be sent.
_MORE = int(zmq.SNDMORE)


def send(sock: zmq.Socket[bytes], frames: Sequence[zmq.Frame | bytes]) -> None:
    """Send one message, in half the time of ``send_multipart``."""
    for frame in frames[:-1]:
        sock.send(frame, _MORE)
    sock.send(frames[-1])


class Outflow:
    """The way to iopub, counted."""

    def __init__(self, sock: zmq.Socket[bytes]) -> None:
        self._sock = sock
        self._sent = self._marked = self._taken = 0
        self._marks: deque[tuple[int, zmq.MessageTracker]] = deque()

    def send(self, frames: list[bytes]) -> None:
        """Publish one message."""
        self._sent += sum(map(len, frames)) + OVERHEAD
        if self._sent - self._marked < MARK_EVERY:
            send(self._sock, frames)
            return
        self._marked = self._sent
        mark = zmq.Frame(frames[0], track=True, copy=False, copy_threshold=0)
        self._marks.append((self._sent, mark.tracker))
        send(self._sock, [mark, *frames[1:]])

    def waiting(self) -> int:
        """Return the bytes that some front end has yet to take, a mark's worth more at most."""
        while self._marks and self._marks[0][1].done:
            self._taken, _ = self._marks.popleft()
        return self._sent - self._taken

    def over(self, limit: int) -> bool:
        """Say whether more than ``limit`` bytes wait."""
        return self._sent - self._taken > limit and self.waiting() > limit


class Brake:
    """Has the guest wait while front ends are behind, but not for ever.

    ``letting_go`` means that the guest goes on though front ends stall: output beyond ``HIGH`` is
    then left out, and what tells how cells end is not.
    """

    def __init__(self, reactor: ZmqReactor, outflow: Outflow, hold: Callable[[bool], None]) -> None:
        self._reactor, self._outflow, self._hold = reactor, outflow, hold
        self._since: float | None = None
        self._least = 0
        self.letting_go = False

    def check(self) -> None:
        """Hold the guest when too much waits; called after every message of its."""
        if self._since is None and not self.letting_go and self._outflow.over(HIGH):
            self._since, self._least = time.monotonic(), self._outflow.waiting()
            self._hold(True)
            self._reactor.call_later(LOOK, self._look)

    def _look(self) -> None:
        if self._since is None:
            return
        waiting = self._outflow.waiting()
        if waiting < self._least:
            self._since, self._least = time.monotonic(), waiting
        if waiting <= LOW:
            self._since = None
            self._hold(False)
        elif time.monotonic() - self._since > PATIENCE:
            self.let_go()
        else:
            self._reactor.call_later(LOOK, self._look)

    def let_go(self) -> None:
        """Hear the guest again at once: it is interrupted, or front ends have stalled."""
        if self._since is not None:
            self._since = None
            self.letting_go = True
            self._hold(False)

    def admits(self) -> bool:
        """Say whether output may still be published."""
        if self.letting_go and not self._outflow.over(LOW):
            self.letting_go = False
        return not self.letting_go or not self._outflow.over(HIGH)
