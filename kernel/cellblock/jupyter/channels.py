"""The five channels: messages in, replies and publications out."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import zmq

from cellblock.jupyter import replies
from cellblock.jupyter.messages import Composer, Message, MessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cellblock.jupyter.messages import Message
    from cellblock.jupyter.reactor import ZmqReactor


# The control channel: what control needs is answered, and nothing else. No cell enters here.


class Control:
    """Answers at once, whatever runs; ``interrupt`` and ``stop`` are the kernel's."""

    def __init__(
        self, channels: Channels, interrupt: Callable[[], None], stop: Callable[[], None]
    ) -> None:
        self._channels, self._interrupt, self._stop = channels, interrupt, stop
        self._handlers = {
            "kernel_info_request": self._kernel_info,
            "interrupt_request": self._on_interrupt,
            "shutdown_request": self._shutdown,
        }

    def take(self) -> None:
        """Answer what has arrived."""
        for message in self._channels.receive("control"):
            # No busy and idle here: front ends keep one status for a kernel, and an idle that
            # answers an interrupt would say that the running cell has ended.
            self._handlers.get(message.kind, self._not_offered)(message)

    def _kernel_info(self, message: Message) -> None:
        content = {"status": "ok"} | replies.kernel_info()
        self._channels.reply("control", content, message)

    def _on_interrupt(self, message: Message) -> None:
        self._interrupt()
        self._channels.reply("control", {"status": "ok"}, message)

    def _shutdown(self, message: Message) -> None:
        content = {"status": "ok", "restart": bool(message.content.get("restart"))}
        self._channels.reply("control", content, message)
        self._channels.publish("shutdown_reply", content, message)
        self._stop()

    def _not_offered(self, message: Message) -> None:
        self._channels.not_offered("control", message)


# What front ends have yet to take of iopub, and the brake that follows from it.
#
# ZeroMQ queues for each subscriber and tells nobody how much. Now and then a message goes out
# whose first frame is tracked: when ZeroMQ lets go of that, everything before it has left for
# good.

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


#: Messages taken from one socket before the others have their turn.
_AT_ONCE = 200
#: Bytes of a subscription that is greeted.
_LONGEST_TOPIC = 200


class Channels:
    """Sockets and their protocol, without an opinion on what is said."""

    def __init__(self, sockets: dict[str, zmq.Socket[bytes]], composer: Composer) -> None:
        self._sockets, self._composer = sockets, composer
        self.outflow = Outflow(sockets["iopub"])
        self._said_starting = False
        #: Whether anybody has subscribed.
        self.has_greeted = False

    def receive(self, name: str) -> list[Message]:
        """Return what has arrived; frames that are no message of ours are dropped.

        No more than ``_AT_ONCE`` of either: a flood leaves the loop its turn.
        """
        sock = self._sockets[name]
        arrived: list[Message] = []
        for _ in range(_AT_ONCE):
            try:
                frames = sock.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            with contextlib.suppress(MessageError):
                arrived.append(self._composer.parse(frames))
        return arrived

    def beat(self) -> None:
        """Send heartbeats back as they came."""
        with contextlib.suppress(zmq.Again):
            for _ in range(_AT_ONCE):
                frames = self._sockets["hb"].recv_multipart(zmq.NOBLOCK)
                self._sockets["hb"].send_multipart(frames)

    def greet(self) -> None:
        """Greet new subscribers (JEP 65).

        Whoever reaches the port may subscribe, and every front end hears the greeting.
        """
        with contextlib.suppress(zmq.Again):
            for _ in range(_AT_ONCE):
                event = self._sockets["iopub"].recv_multipart(zmq.NOBLOCK)[0]
                if event[:1] == b"\x01" and len(event) <= _LONGEST_TOPIC:
                    topic = event[1:]
                    content = {"subscription": topic.decode("utf-8", "replace")}
                    frames = self._composer.compose("iopub_welcome", content, identities=[topic])
                    self.outflow.send(frames)
                    self.has_greeted = True
                    self._say_starting()

    def _say_starting(self) -> None:
        """Say that the kernel starts, once there is somebody to hear it and before anything ran."""
        if not self._said_starting:
            self.status("starting", None)

    def send(
        self, channel: str, kind: str, content: Any, parent: Message, *, metadata: Any = None
    ) -> str:
        """Send to the front end that ``parent`` came from; return the message's id."""
        msg_id = self._composer.new_id()
        frames = self._composer.compose(
            kind,
            content,
            parent=parent,
            identities=parent.identities,
            metadata=metadata,
            msg_id=msg_id,
        )
        send(self._sockets[channel], frames)
        return msg_id

    def reply(self, channel: str, content: Any, parent: Message, *, metadata: Any = None) -> None:
        """Answer the request ``parent``."""
        kind = parent.kind.replace("_request", "_reply")
        self.send(channel, kind, content, parent, metadata=metadata)

    def not_offered(self, channel: str, parent: Message) -> None:
        """Answer a request for what this kernel does not have."""
        if not parent.kind.endswith("_request"):
            return
        what = f"cellblock does not offer {parent.kind[:100]} on {channel}"
        error = {"ename": "NotOffered", "evalue": what, "traceback": []}
        self.reply(channel, {"status": "error", **error}, parent)

    def publish(
        self,
        kind: str,
        content: Any,
        parent: Message | None,
        *,
        buffers: Sequence[bytes] = (),
        metadata: Any = None,
    ) -> None:
        """Send to every front end."""
        frames = self._composer.compose(
            kind,
            content,
            parent=parent,
            identities=[kind.encode()],
            metadata=metadata,
            buffers=buffers,
        )
        self.outflow.send(frames)

    def status(self, state: str, parent: Message | None) -> None:
        """Publish starting, busy or idle."""
        self._said_starting = True
        self.publish("status", {"execution_state": state}, parent)
