"""The five channels: messages in, replies and publications out."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import zmq

from cellblock.jupyter.messages import Composer, Message, MessageError
from cellblock.jupyter.outflow import Outflow, send

if TYPE_CHECKING:
    from collections.abc import Sequence


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
