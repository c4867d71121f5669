"""The five channels of a kernel: the connection file, its sockets, messages in and out.

What front ends have yet to take of iopub is counted, and the guest waits while that is too much.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import os
import re
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import zmq
from msgspec import Struct

from cellblock.errors import StartError
from cellblock.jupyter.messages import Message, MessageCodec, MessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cellblock.jupyter.reactor import ZmqReactor, ZmqTimer

# --- the connection file and its sockets ------------------------------------------------------

#: Kinds as in "Messaging in Jupyter", introduction; iopub is XPUB so that subscribers are greeted.
KINDS = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "iopub": zmq.XPUB,
    "hb": zmq.ROUTER,
}
_LINGER_MS = 1_000
#: Milliseconds for which a subscriber may take nothing of what is sent before the OS kernel cuts it
#: off (TCP_USER_TIMEOUT, tcp(7)), and messages that may wait for one where it does not (ipc).
_STALLED_MS = 120_000
_STALLED_MESSAGES = 100_000
#: Bytes in one frame from a front end; a guest could be sent a tenth of it (``wire.frames``).
_LONGEST_FRAME = 256 << 20


class Connection(Struct, frozen=True):
    """The content of a connection file, the key that messages are signed with, and its digest."""

    path: Path
    info: dict[str, Any]
    key: bytes = b""
    digest: str = "sha256"


def read_connection(path: Path) -> Connection:
    """Return the connection described at ``path``; raises ``StartError``.

    A key that can't check messages is refused: it would let everybody in.
    """
    wrong = ""
    try:
        info = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        key = info.get("key", "")
        scheme = str(info.get("signature_scheme", "hmac-sha256"))
        method, _, digest = scheme.partition("-")
        if not isinstance(key, str):
            wrong = "its key is not text"
        elif method != "hmac":
            wrong = f"signature_scheme {scheme[:100]!r} is not hmac with a digest"
        else:
            hmac.digest(b"key", b"", digest)
    except (OSError, ValueError, msgspec.MsgspecError) as exc:
        wrong = str(exc) or type(exc).__name__
    if wrong:
        raise StartError(f"connection file {path}: {wrong}")
    return Connection(path, info, key.encode(), digest)


def bind(context: zmq.Context[Any], connection: Connection) -> dict[str, zmq.Socket[bytes]]:
    """Bind every socket; ports given as 0 are chosen here and written back to the file.

    Raises ``StartError``.
    """
    info = connection.info
    chosen = dict[str, int]()
    sockets: dict[str, zmq.Socket[bytes]] = {}
    try:
        for name, kind in KINDS.items():
            sockets[name] = sock = _socket(context, kind, info)
            port = _bind(sock, info, int(info.get(f"{name}_port", 0)))
            if port != info.get(f"{name}_port"):
                chosen[f"{name}_port"] = port
        if chosen:
            _rewrite(connection.path, info | chosen)
    except (zmq.ZMQError, OSError, ValueError, TypeError, KeyError) as exc:
        raise StartError(f"connection file {connection.path}: {exc}") from None
    return sockets


def _socket(context: zmq.Context[Any], kind: int, info: dict[str, Any]) -> zmq.Socket[bytes]:
    sock: zmq.Socket[bytes] = context.socket(kind)
    sock.linger = _LINGER_MS
    # Queues to front ends grow rather than drop: a lost idle status would hang one. Backpressure
    # bounds what a guest adds. What comes in waits with its sender, and a frame that announces
    # more than this is not read.
    sock.sndhwm = 0
    sock.maxmsgsize = _LONGEST_FRAME
    if kind == zmq.ROUTER:
        sock.router_handover = 1
    else:
        sock.xpub_verbose = 1  # or the second front end would not be greeted
        sock.set(zmq.TCP_MAXRT, _STALLED_MS)
        sock.sndhwm = _STALLED_MESSAGES
    if secret := info.get("curve_secretkey"):  # CURVE, ZeroMQ RFC 26
        sock.curve_secretkey = str(secret).encode()
        sock.curve_publickey = str(info["curve_publickey"]).encode()
        sock.curve_server = True
    return sock


def _bind(sock: zmq.Socket[bytes], info: dict[str, Any], port: int) -> int:
    transport = info.get("transport", "tcp")
    ip = info.get("ip", "127.0.0.1")
    if transport == "tcp" and port == 0:
        return int(sock.bind_to_random_port(f"tcp://{ip}"))
    if transport == "tcp":
        sock.bind(f"tcp://{ip}:{port}")
        return port
    free = (number for number in itertools.count(1) if not Path(f"{ip}-{number}").exists())
    port = port or next(free)
    sock.bind(f"ipc://{ip}-{port}")
    return port


def _rewrite(path: Path, info: dict[str, Any]) -> None:
    """Replace the connection file in one step, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(info)))
    temporary.replace(path)


# --- iopub, counted ---------------------------------------------------------------------------

#: Bytes between tracked messages.
MARK_EVERY = 256 << 10
#: Bytes that a message costs in a queue, whatever is in it.
OVERHEAD = 1_000
#: Bytes that may wait before the guest has to, and that may be left when it goes on.
HIGH = 16 << 20
LOW = 8 << 20
#: Seconds between looks at what is left.
LOOK = 0.005
#: Seconds for which front ends may take nothing before the guest goes on without them.
PATIENCE = 10.0
#: A plain number: zmq's own flags take longer to be combined than a frame to be sent.
_MORE = int(zmq.SNDMORE)
#: Bytes of a frame from which on a copy costs more than to tell when it was sent.
_LARGE = 1 << 16


def send(sock: zmq.Socket[bytes], frames: Sequence[Any]) -> None:
    """Send one message, in half the time of ``send_multipart``; a large content is not copied."""
    for frame in frames[:-1]:
        sock.send(frame, _MORE)
    last = frames[-1]
    sock.send(last if len(last) < _LARGE else zmq.Frame(last, copy=False))


class IopubQueue:
    """Sends to iopub, and counts what front ends have yet to take.

    ZeroMQ queues for each subscriber and tells nobody how much. Now and then a message goes out
    whose first frame is tracked: when ZeroMQ lets go of that, everything before it has left.
    """

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
        """Return whether more than ``limit`` bytes wait."""
        return self._sent - self._taken > limit and self.waiting() > limit


class Backpressure:
    """Holds the guest while front ends are behind, but not for ever.

    ``letting_go`` means that the guest goes on though front ends stall: output beyond ``HIGH`` is
    then left out, but never the messages that say how a cell ended.
    """

    def __init__(
        self, reactor: ZmqReactor, queue: IopubQueue, hold: Callable[[bool], None]
    ) -> None:
        self._reactor = reactor
        self._queue = queue
        self._hold = hold
        #: Since when the guest is held and nothing was taken, and what was left then.
        self._since: float | None = None
        self._least = 0
        self.letting_go = False

    def check(self) -> None:
        """Hold the guest when too much waits; called after each of its messages."""
        if self._since is None and not self.letting_go and self._queue.over(HIGH):
            self._since, self._least = time.monotonic(), self._queue.waiting()
            self._hold(True)
            self._reactor.call_later(LOOK, self._look)

    def _look(self) -> None:
        if self._since is None:
            return
        waiting = self._queue.waiting()
        now = time.monotonic()
        if waiting < self._least:
            self._since = now
            self._least = waiting
        if waiting <= LOW:
            self._since = None
            self._hold(False)
        elif now - self._since > PATIENCE:
            self.let_go()
        else:
            self._reactor.call_later(LOOK, self._look)

    def let_go(self) -> None:
        """Let the guest go on at once: it is interrupted, or front ends have stalled."""
        if self._since is not None:
            self._since = None
            self.letting_go = True
            self._hold(False)

    def admits(self) -> bool:
        """Return whether output may still be published."""
        if self.letting_go and not self._queue.over(LOW):
            self.letting_go = False
        return not self.letting_go or not self._queue.over(HIGH)


# --- output that Output widgets capture -------------------------------------------------------

#: Seconds that a reply waits for the next message about captured output.
ECHO_WAIT = 1.0
_CAPTURED = frozenset({"display_data", "error", "execute_result", "stream"})


class CaptureEchoes:
    """Holds the reply to a cell until its front end has said what it will of captured output.

    After each message that an Output widget captures, nbclient sends the widget's outputs to its
    comm: on the socket where its event loop waits for the cell's reply, but past that loop. Such a
    send takes the wake-up for a reply that has just arrived (ZMQ_FD is edge-triggered), no later
    message brings it back, and the reply lies there until nbclient's timeout. That is a defect of
    jupyter_client (its pull request 1059). A reply that is sent after these messages is heard.
    """

    def __init__(self, reactor: ZmqReactor) -> None:
        self._reactor = reactor
        self._identities: list[bytes] = []
        self._capturing: set[str] = set()
        #: Messages that are still to come, and whether any came.
        self._due = 0
        self._heard = False
        self._answer: Callable[[], None] | None = None
        self._timer: ZmqTimer | None = None
        #: Who was waited for and sent none: not every front end does.
        self._silent: list[bytes] | None = None

    def begin(self, request: Message) -> None:
        """Count for another cell: a widget captures the output of one request."""
        self._identities = request.identities
        self._due = 0
        self._heard = False
        self._capturing.clear()
        # Front ends that people look at name the cell; their sends take no wake-ups.
        if "cellId" in request.metadata:
            self._silent = request.identities

    def published(self, kind: str, content: Any) -> None:
        """Count a message that is captured; note where a capture begins and ends."""
        if kind == "comm_msg":
            state = content["data"].get("state")
            if isinstance(state, dict) and "msg_id" in state:
                change = self._capturing.add if state["msg_id"] else self._capturing.discard
                change(content["comm_id"])
        elif self._capturing:
            self._due += kind in _CAPTURED or (kind == "clear_output" and not content["wait"])

    def answer(self, answer: Callable[[], None]) -> None:
        """Call ``answer``, the reply to the cell, when nothing more is to come."""
        if self._due > 0 and self._identities != self._silent:
            self._answer = answer
            self._timer = self._reactor.call_later(ECHO_WAIT, self._give_up)
        else:
            answer()

    def arrived(self, message: Message) -> None:
        """Count a message from a front end."""
        if message.kind != "comm_msg" or message.identities != self._identities:
            return
        self._due = self._due - 1
        self._heard = True
        answer = self._answer
        self._answer = None
        if answer is not None and self._timer is not None:
            self._timer.cancel()
            self.answer(answer)

    def _give_up(self) -> None:
        answer = self._answer
        self._answer = None
        if not self._heard:
            self._silent = self._identities
        if answer is not None:
            answer()


# --- messages in, replies and publications out ------------------------------------------------

#: Messages taken from one socket before the others have their turn.
_AT_ONCE = 200
#: Bytes of a subscription that is greeted.
_LONGEST_TOPIC = 200


class Channels:
    """Receives requests, and sends replies and publications."""

    def __init__(
        self, sockets: dict[str, zmq.Socket[bytes]], codec: MessageCodec, reactor: ZmqReactor
    ) -> None:
        self._sockets = sockets
        self._codec = codec
        self.iopub = IopubQueue(sockets["iopub"])
        self.echoes = CaptureEchoes(reactor)
        self._said_starting = False
        #: Whether anybody has subscribed.
        self.has_greeted = False

    def _arrived(self, name: str) -> Iterator[list[bytes]]:
        """Yield the messages that have arrived, not all of a flood: the loop has its turn."""
        with contextlib.suppress(zmq.Again):
            for _ in range(_AT_ONCE):
                yield self._sockets[name].recv_multipart(zmq.NOBLOCK)

    def receive(self, name: str) -> list[Message]:
        """Return the messages that have arrived; frames that are none of ours are dropped."""
        messages: list[Message] = []
        for frames in self._arrived(name):
            with contextlib.suppress(MessageError):
                messages.append(self._codec.parse(frames))
        return messages

    def beat(self) -> None:
        """Send heartbeats back as they came."""
        for frames in self._arrived("hb"):
            self._sockets["hb"].send_multipart(frames)

    def greet(self) -> None:
        """Greet new subscribers (JEP 65).

        Whoever reaches the port may subscribe, and every front end hears the greeting.
        """
        for event, *_ in self._arrived("iopub"):
            if event[:1] == b"\x01" and len(event) <= _LONGEST_TOPIC:
                topic = event[1:]
                content = {"subscription": topic.decode("utf-8", "replace")}
                self.iopub.send(self._codec.compose("iopub_welcome", content, identities=[topic]))
                self.has_greeted = True
                if not self._said_starting:  # there is somebody to hear it
                    self.status("starting", None)

    def send(
        self, channel: str, kind: str, content: Any, parent: Message, *, metadata: Any = None
    ) -> str:
        """Send to the front end that ``parent`` came from; return the message's id."""
        msg_id = self._codec.new_id()
        to = parent.identities
        frames = self._codec.compose(
            kind, content, parent=parent, identities=to, metadata=metadata, msg_id=msg_id
        )
        send(self._sockets[channel], frames)
        return msg_id

    def reply(self, channel: str, content: Any, parent: Message, *, metadata: Any = None) -> None:
        """Answer the request ``parent``."""
        kind = parent.kind.replace("_request", "_reply")
        self.send(channel, kind, content, parent, metadata=metadata)

    def ports(self) -> dict[str, int]:
        """Return ``connect_reply``: each channel's port, or over ipc the number of its socket."""
        ends = {name: sock.getsockopt(zmq.LAST_ENDPOINT) for name, sock in self._sockets.items()}
        number = re.compile(rb"(\d+)\0?$")
        return {
            f"{name}_port": int(found[1])
            for name, end in ends.items()
            if isinstance(end, bytes) and (found := number.search(end))
        }

    def not_offered(self, channel: str, parent: Message) -> None:
        """Answer a request for what this kernel does not have."""
        if parent.kind.endswith("_request"):
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
        to = [kind.encode()]
        frames = self._codec.compose(
            kind, content, parent=parent, identities=to, metadata=metadata, buffers=buffers
        )
        self.iopub.send(frames)
        self.echoes.published(kind, content)

    def status(self, state: str, parent: Message | None) -> None:
        """Publish starting, busy or idle."""
        self._said_starting = True
        self.publish("status", {"execution_state": state}, parent)
