"""``Channels``: the five sockets of a kernel, and the messages in and out.

In order:

- ``read_connection`` and ``bind``: the connection file and its sockets
- ``IopubQueue``: counts the bytes that front ends have not read yet
- ``Backpressure``: makes the guest wait while these are too many (ADR 0040)
- ``CaptureEchoes``: delays a cell's reply where nbclient would lose it
- ``Channels``: receives requests, sends replies and publications
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

#: The types of sockets, as in "Messaging in Jupyter", introduction. iopub is XPUB, not PUB, so that
#: the host sees subscriptions and can greet subscribers.
KINDS = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "iopub": zmq.XPUB,
    "hb": zmq.ROUTER,
}
_LINGER_MS = 1_000
#: Milliseconds for which a subscriber may read nothing before the OS kernel ends its connection
#: (TCP_USER_TIMEOUT, tcp(7)).
_STALLED_MS = 120_000
#: Messages that may wait for a subscriber where there is no such timeout (ipc).
_STALLED_MESSAGES = 100_000
#: Bytes of one frame from a front end. A guest can be sent a tenth of that (``wire.frames``).
_LONGEST_FRAME = 256 << 20


class Connection(Struct, frozen=True):
    """A connection file: its content, and the key and digest that messages are signed with."""

    path: Path
    info: dict[str, Any]
    key: bytes = b""
    digest: str = "sha256"


def read_connection(path: Path) -> Connection:
    """Read a connection file. Raises ``StartError`` if it can't be read or used.

    That includes a key or signature scheme with which no message can be checked: anybody could send
    messages then.
    """
    problem = ""
    try:
        info = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        key = info.get("key", "")
        scheme = str(info.get("signature_scheme", "hmac-sha256"))
        method, _, digest = scheme.partition("-")
        if not isinstance(key, str):
            problem = "its key is not text"
        elif method != "hmac":
            problem = f"signature_scheme {scheme[:100]!r} is not hmac with a digest"
        else:
            hmac.digest(b"key", b"", digest)
    except (OSError, ValueError, msgspec.MsgspecError) as exc:
        problem = str(exc) or type(exc).__name__
    if problem:
        raise StartError(f"connection file {path}: {problem}")
    return Connection(path, info, key.encode(), digest)


def bind(context: zmq.Context[Any], connection: Connection) -> dict[str, zmq.Socket[bytes]]:
    """Bind all sockets. Ports that the file gives as 0 are chosen, and written into the file.

    Raises ``StartError``.
    """
    info = connection.info
    chosen_ports = dict[str, int]()
    sockets: dict[str, zmq.Socket[bytes]] = {}
    try:
        for name, kind in KINDS.items():
            sockets[name] = sock = _socket(context, kind, info)
            port = _bind(sock, info, int(info.get(f"{name}_port", 0)))
            if port != info.get(f"{name}_port"):
                chosen_ports[f"{name}_port"] = port
        if chosen_ports:
            _rewrite(connection.path, info | chosen_ports)
    except (zmq.ZMQError, OSError, ValueError, TypeError, KeyError) as exc:
        raise StartError(f"connection file {connection.path}: {exc}") from None
    return sockets


def _socket(context: zmq.Context[Any], kind: int, info: dict[str, Any]) -> zmq.Socket[bytes]:
    """Make a socket with its options set; not bound yet."""
    sock: zmq.Socket[bytes] = context.socket(kind)
    sock.linger = _LINGER_MS
    # Queues to front ends have no limit: ZeroMQ would drop messages beyond it, and a front end that
    # misses an idle status hangs. Backpressure bounds what a guest adds to them.
    sock.sndhwm = 0
    # A frame that announces more is not read.
    sock.maxmsgsize = _LONGEST_FRAME
    if kind == zmq.ROUTER:
        sock.router_handover = 1
    else:
        sock.xpub_verbose = 1  # report each subscription, so that a second front end is greeted too
        sock.set(zmq.TCP_MAXRT, _STALLED_MS)
        sock.sndhwm = _STALLED_MESSAGES
    if secret := info.get("curve_secretkey"):  # CURVE, ZeroMQ RFC 26
        sock.curve_secretkey = str(secret).encode()
        sock.curve_publickey = str(info["curve_publickey"]).encode()
        sock.curve_server = True
    return sock


def _bind(sock: zmq.Socket[bytes], info: dict[str, Any], port: int) -> int:
    """Bind a socket to a port, or to a free one for 0; return the port."""
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


# --- iopub, with a count of what waits --------------------------------------------------------

#: Bytes between tracked messages.
MARK_EVERY = 256 << 10
#: Bytes that a message costs in a queue beside its content.
OVERHEAD = 1_000
#: Bytes that may wait for front ends before the guest must wait.
HIGH = 16 << 20
#: Bytes that may still wait when the guest goes on.
LOW = 8 << 20
#: Seconds between two checks of how much waits.
LOOK = 0.005
#: Seconds for which front ends may read nothing before the guest goes on without them.
PATIENCE = 10.0
#: As a plain number: combining zmq's own flags takes longer than sending a frame.
_MORE = int(zmq.SNDMORE)
#: Bytes from which on a frame is not copied. Smaller ones are cheaper to copy than to track.
_LARGE = 1 << 16


def send(sock: zmq.Socket[bytes], frames: Sequence[Any]) -> None:
    """Send one message. Takes half the time of ``send_multipart``, and copies no large content."""
    for frame in frames[:-1]:
        sock.send(frame, _MORE)
    last = frames[-1]
    sock.send(last if len(last) < _LARGE else zmq.Frame(last, copy=False))


class IopubQueue:
    """The iopub socket, with a count of the bytes that front ends have not read yet.

    ZeroMQ has a queue for each subscriber and does not tell how long it is. So every ``MARK_EVERY``
    bytes a message is sent whose first frame is tracked. When ZeroMQ releases this frame,
    everything before it has left all queues.
    """

    def __init__(self, sock: zmq.Socket[bytes]) -> None:
        self._sock = sock
        # Positions in the stream of all bytes: sent last, tracked last, known to be read.
        self._sent = self._marked = self._taken = 0
        #: Tracked messages that are not known to be read, with their positions.
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
        """Return the bytes that a front end has not read yet, at most ``MARK_EVERY`` too many."""
        while self._marks and self._marks[0][1].done:
            self._taken, _ = self._marks.popleft()
        return self._sent - self._taken

    def over(self, limit: int) -> bool:
        """Return whether more than ``limit`` bytes wait."""
        return self._sent - self._taken > limit and self.waiting() > limit


class Backpressure:
    """Makes the guest wait while front ends are behind, at most ``PATIENCE`` seconds (ADR 0040).

        free ── more than HIGH waits ──► holding ── LOW or less waits ──► free
                                            │
                              nothing read for PATIENCE, or an interrupt
                                            ▼
        letting go: the guest runs, outputs beyond HIGH are dropped ── LOW or less waits ──► free

    The messages that end a cell, such as its reply and status, are never dropped.
    """

    def __init__(
        self, reactor: ZmqReactor, queue: IopubQueue, hold: Callable[[bool], None]
    ) -> None:
        self._reactor = reactor
        self._queue = queue
        self._hold = hold
        #: Since when front ends have read nothing while the guest is held; None if it is not held.
        self._since: float | None = None
        #: The bytes that waited then.
        self._least = 0
        self.letting_go = False

    def check(self) -> None:
        """Hold the guest if too much waits. Called after each of its messages."""
        if self._since is None and not self.letting_go and self._queue.over(HIGH):
            self._since = time.monotonic()
            self._least = self._queue.waiting()
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
        """Let the guest go on at once: it was interrupted, or front ends have stalled."""
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

#: Seconds that a reply waits for the front end's next message about captured output.
ECHO_WAIT = 1.0
_CAPTURED = frozenset({"display_data", "error", "execute_result", "stream"})


class CaptureEchoes:
    """Delays a cell's reply until nbclient has sent its messages about captured output.

    After each output that an Output widget captures, nbclient sends a comm message with the
    widget's outputs. It does so on the socket on which its event loop waits for the cell's reply,
    but outside of that loop. The send consumes the wake-up for a reply that has just arrived
    (ZMQ_FD is edge-triggered). No later message wakes the loop, and the reply is not read before
    nbclient's timeout. That is a defect of jupyter_client (its pull request 1059). A reply that is
    sent after these messages is read.
    """

    def __init__(self, reactor: ZmqReactor) -> None:
        self._reactor = reactor
        #: The connection of the front end that sent the running cell.
        self._identities: list[bytes] = []
        #: Ids of the widgets that capture outputs.
        self._capturing: set[str] = set()
        #: Messages that the front end has yet to send.
        self._due = 0
        #: Whether it has sent any.
        self._heard = False
        #: Sends the reply that waits.
        self._answer: Callable[[], None] | None = None
        self._timer: ZmqTimer | None = None
        #: The front end that sends no messages about captured output: a reply has waited for them
        #: in vain, or the front end is interactive.
        self._silent: list[bytes] | None = None

    def begin(self, request: Message) -> None:
        """Start to count the messages that are due for another cell's captured outputs.

        The widgets that captured for the last cell are forgotten: one captures the outputs of one
        request.
        """
        self._identities = request.identities
        self._due = 0
        self._heard = False
        self._capturing.clear()
        # Interactive front ends name the cell. They do not lose replies this way.
        if "cellId" in request.metadata:
            self._silent = request.identities

    def published(self, kind: str, content: Any) -> None:
        """Count a published message if it is captured; note where a capture begins and ends."""
        if kind == "comm_msg":
            state = content["data"].get("state")
            if isinstance(state, dict) and "msg_id" in state:
                change = self._capturing.add if state["msg_id"] else self._capturing.discard
                change(content["comm_id"])
        elif self._capturing:
            self._due += kind in _CAPTURED or (kind == "clear_output" and not content["wait"])

    def answer(self, answer: Callable[[], None]) -> None:
        """Call ``answer``, which sends the cell's reply, when no more messages are due."""
        if self._due > 0 and self._identities != self._silent:
            self._answer = answer
            self._timer = self._reactor.call_later(ECHO_WAIT, self._give_up)
        else:
            answer()

    def arrived(self, message: Message) -> None:
        """Count a message from a front end, and go on with a reply that waits."""
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

#: Messages read from one socket before the others have their turn.
_AT_ONCE = 200
#: Bytes of a subscription that is greeted.
_LONGEST_TOPIC = 200


class Channels:
    """The sockets of a kernel: receives requests, sends replies and publications.

    It is the ``Publisher`` of the kernel's outputs.
    """

    def __init__(
        self, sockets: dict[str, zmq.Socket[bytes]], codec: MessageCodec, reactor: ZmqReactor
    ) -> None:
        self._sockets = sockets
        self._codec = codec
        self.iopub = IopubQueue(sockets["iopub"])
        self.echoes = CaptureEchoes(reactor)
        #: Whether a status was published, of which "starting" is the first.
        self._said_starting = False
        #: Whether anybody has subscribed to iopub.
        self.has_greeted = False

    def _arrived_frames(self, name: str) -> Iterator[list[bytes]]:
        """Yield the frames of messages that have arrived, at most ``_AT_ONCE`` of a flood."""
        with contextlib.suppress(zmq.Again):
            for _ in range(_AT_ONCE):
                yield self._sockets[name].recv_multipart(zmq.NOBLOCK)

    def receive(self, name: str) -> list[Message]:
        """Return the messages that have arrived. Frames that are no valid message are dropped."""
        messages: list[Message] = []
        for frames in self._arrived_frames(name):
            with contextlib.suppress(MessageError):
                messages.append(self._codec.parse(frames))
        return messages

    def beat(self) -> None:
        """Send heartbeats back."""
        for frames in self._arrived_frames("hb"):
            self._sockets["hb"].send_multipart(frames)

    def greet(self) -> None:
        """Greet new subscribers (JEP 65).

        Anybody who reaches the port may subscribe, and all front ends receive the greeting, so the
        topic in it is bounded.
        """
        for event, *_ in self._arrived_frames("iopub"):
            if event[:1] == b"\x01" and len(event) <= _LONGEST_TOPIC:
                topic = event[1:]
                content = {"subscription": topic.decode("utf-8", "replace")}
                self.iopub.send(self._codec.compose("iopub_welcome", content, identities=[topic]))
                self.has_greeted = True
                if not self._said_starting:
                    self.status("starting", None)  # earlier nobody would have received it

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
        """Return the content of ``connect_reply``: each channel's port, or its number over ipc."""
        ends = {name: sock.getsockopt(zmq.LAST_ENDPOINT) for name, sock in self._sockets.items()}
        number = re.compile(rb"(\d+)\0?$")
        return {
            f"{name}_port": int(match[1])
            for name, end in ends.items()
            if isinstance(end, bytes) and (match := number.search(end))
        }

    def not_offered(self, channel: str, parent: Message) -> None:
        """Answer a request that this kernel does not support; other messages are ignored."""
        if parent.kind.endswith("_request"):
            text = f"cellblock does not offer {parent.kind[:100]} on {channel}"
            error = {"ename": "NotOffered", "evalue": text, "traceback": []}
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
        """Publish a message to all front ends."""
        to = [kind.encode()]
        frames = self._codec.compose(
            kind, content, parent=parent, identities=to, metadata=metadata, buffers=buffers
        )
        self.iopub.send(frames)
        self.echoes.published(kind, content)

    def status(self, state: str, parent: Message | None) -> None:
        """Publish a status: "starting", "busy" or "idle"."""
        self._said_starting = True
        self.publish("status", {"execution_state": state}, parent)
