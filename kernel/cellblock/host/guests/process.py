"""The host's end of a guest: channel, pipes, and how it ends."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import traceback
from functools import partial
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Final

from cellblock.errors import GuestError, WireError
from cellblock.host.output.text import split_tail
from cellblock.host.snapshots.copies import Lineage
from cellblock.wire import frames, messages
from cellblock.wire.messages import FromGuest, Stream, StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import msgspec

    from cellblock.host.session.types import Reactor, Timer


# What a guest's bytes say: whole messages, and whether a frame that has begun ever ends.

#: Seconds between looks at a frame that is not whole, and looks that it may take. Long, because a
#: thread that sends is held up by one that keeps the interpreter to itself.
FRAME_LOOK, FRAME_LOOKS = 1.0, 8

_STDOUT: Final[StreamName] = "stdout"
#: One for all: it has no state, and takes a fifth of a millisecond to make.
_decode: frames.Decoder[FromGuest] = frames.Decoder(FromGuest)


class Incoming:
    """``lose`` gets the reason to end a guest that does not end its frame."""

    def __init__(self, reactor: Reactor, lose: Callable[[str], None]) -> None:
        self._reactor, self._lose = reactor, lose
        self._splitter = frames.Splitter()
        #: How many frames had ended at the last look, and how many looks there are left.
        self._looks: tuple[int, int] | None = None

    def messages(self, data: bytes) -> Iterator[FromGuest]:
        """Yield what ``data`` completes; text that came in pieces is joined, a flood of it too."""
        name, parts = _STDOUT, list[str]()
        try:
            # No name is kept for a payload: it is as large as what is made of it.
            for message in map(_decode, self._splitter.feed(data)):
                stream = message if isinstance(message, Stream) else None
                if parts and (stream is None or stream.name != name):
                    yield Stream(name=name, text="".join(parts))
                    parts = []
                if stream is None:
                    yield message
                else:
                    name = stream.name
                    parts.append(stream.text)
        except WireError:
            if parts:
                yield Stream(name=name, text="".join(parts))
            raise
        if parts:
            yield Stream(name=name, text="".join(parts))

    def watch(self) -> None:
        """See to it that a frame which is not whole ends, or goes on, in time."""
        if self._splitter.partial and self._looks is None:
            self._look_later((self._splitter.taken, FRAME_LOOKS))

    def unwatch(self) -> None:
        """Wait for no frame's end: the guest is not heard, or is no more."""
        self._looks = None

    def _look_later(self, looks: tuple[int, int]) -> None:
        self._looks = looks
        self._reactor.call_later(FRAME_LOOK, lambda: self._look(looks))

    def _look(self, looks: tuple[int, int]) -> None:
        """End a guest whose frame takes too long; looks, not seconds: the host may be slow."""
        if looks is not self._looks:
            return
        taken, left = looks
        if not self._splitter.partial:
            self._looks = None
        elif taken != self._splitter.taken:
            self._look_later((self._splitter.taken, FRAME_LOOKS))
        elif left:
            self._look_later((taken, left - 1))
        else:
            self._lose("protocol violation: a frame that does not end")


# The host's end of a guest's raw output: what is written below Python.

PIPE_READ: Final = 1 << 16


class Pipe:
    """One of a guest's raw output descriptors, for what is written below Python."""

    def __init__(self, fd: int, on_text: Callable[[str], None], reactor: Reactor) -> None:
        self._fd, self._on_text, self._reactor = fd, on_text, reactor
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._cut = ""
        os.set_blocking(fd, False)
        reactor.watch(fd, self.drain)

    def hold(self, *, held: bool) -> None:
        """Leave what is written where it is, or take it again."""
        if self._fd >= 0 and held:
            self._reactor.unwatch(self._fd)
        elif self._fd >= 0:
            self._reactor.watch(self._fd, self.drain)

    def drain(self) -> None:
        """Pass on what is there."""
        if self._fd < 0:
            return
        try:
            data = os.read(self._fd, PIPE_READ)
        except BlockingIOError:
            return
        if not data:
            self.close()
        else:
            # A read ends anywhere: half a sequence waits for the rest of it.
            text, self._cut = split_tail(self._cut + self._decode(data))
            if text:
                self._on_text(text)

    def close(self) -> None:
        """Stop listening."""
        if self._fd >= 0:
            self._reactor.unwatch(self._fd)
            os.close(self._fd)
            self._fd = -1


# Who speaks on a channel: what the OS kernel says of the process behind it.
#
# Source: unix(7), pidfd_open(2), setsid(2), proc(5).

#: struct ucred: pid, uid, gid.
_UCRED: Final = struct.Struct("=iII")
#: Bytes of what comes beside a message, where it says who sent that.
ROOM: Final = socket.CMSG_SPACE(_UCRED.size)


def ask(sock: socket.socket, *, asked: bool) -> None:
    """Have the OS kernel say who sent a message, from now on, or not any more."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, asked)


def sender(ancillary: Iterable[tuple[int, int, bytes]]) -> int | None:
    """Return the process that sent what came with this; None where it does not say so."""
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(_UCRED.unpack(payload)[0])
    return None


def hold_of(pid: int, session: int, sock: socket.socket) -> int | None:
    """Return a descriptor of a process, if it is in that session and its channel is open.

    Its number alone could be another's by now. Whatever holds the other end is of the guest's
    session, which nothing of anybody else's is in.
    """
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        if _is_ours(pid, session, sock):
            return pidfd
        os.close(pidfd)
    return None


def _is_ours(pid: int, session: int, sock: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(pid) == session and not _hung_up(sock)
    return False


def _hung_up(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))


def deaf(pid: int | None) -> bool:
    """Say whether interrupts can't reach a process: ignored, blocked in every thread, or stopped.

    Source: SigIgn and ShdPnd. One that catches them is not deaf, whatever it does.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    masks = int(fields.get("SigIgn", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    return bool(masks & 1 << signal.SIGINT - 1)


READ_SIZE = 1 << 16  # more is mapped anew for every read, which costs 40 µs
#: Bytes that may wait to be sent to a guest that does not read.
MAX_PENDING = 2 * frames.MAX_FRAME
#: Reads of what an ended guest has said: a socket holds less (socket(7), wmem_max).
LAST_READS = 64
#: Of a guest of which nothing is asked: seconds of the host's processor that it may take at once,
#: and for each of them how many it is not listened to then.
AT_ONCE, REST = 0.005, 4
#: Seconds after an interrupt at which waits are cut short once more.
_WAKES = (0.02, 0.1, 0.5)

#: In the order of their descriptors.
_STREAMS: tuple[messages.StreamName, ...] = ("stdout", "stderr")


class Guest:
    """One guest: messages in, messages out, raw text, its end.

    ``on_message`` gets every decoded message; ``on_lost`` is called once, with the reason, when
    the channel breaks or something undecodable arrives. Raises OSError where no descriptors are
    left.
    """

    def __init__(
        self,
        reactor: Reactor,
        on_message: Callable[[messages.FromGuest], None],
        on_text: Callable[[messages.StreamName, str], None],
        on_lost: Callable[[str], None],
        *,
        vouched: bool = False,
    ) -> None:
        self._reactor = reactor
        self.on_message, self.on_text, self.on_lost = on_message, on_text, on_lost
        #: The OS kernel is to say who sends the first message.
        self._vouched = vouched
        self.pid: int | None = None
        #: Stands for the process even when its pid is another's by now; None where there is none.
        self.pidfd: int | None = None
        self.ready = False
        #: Nobody listens to it.
        self.held = False
        #: Which fork it is, so that its pid finds it.
        self.number = 0
        self.lineage = Lineage()
        #: It is a copy that took over, or may.
        self.copied = False
        #: Something is asked of it, or was never yet.
        self._asked = True
        #: Seconds of the host's processor that it took since it was last left alone, and how long
        #: it is.
        self._took = 0.0
        self._rest: Timer | None = None
        self._wakes: list[Timer] = []
        self._pending = bytearray()
        self._incoming = Incoming(reactor, self._lose)
        self.theirs: list[int] = []
        self.pipes: list[Pipe] = []
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.theirs.append(theirs.detach())
        try:
            self._open_pipes()
        except OSError:
            self._hang_up()
            raise
        self._sock.setblocking(False)
        # Out-of-band bytes would make the socket readable for ever with nothing to read (unix(7)).
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        if vouched:
            ask(self._sock, asked=True)
        reactor.watch(self._sock.fileno(), self._readable)

    def _open_pipes(self) -> None:
        for name in _STREAMS:
            read, write = os.pipe()
            self.theirs.append(write)
            self.pipes.append(Pipe(read, partial(self._on_written, name), self._reactor))

    def _on_written(self, name: messages.StreamName, text: str) -> None:
        began = thread_time()
        self.on_text(name, text)
        self._count(thread_time() - began)

    def release_theirs(self) -> None:
        """Close our copies of the guest's ends, once the zygote has them."""
        for fd in self.theirs:
            os.close(fd)
        self.theirs = []

    def send(self, message: msgspec.Struct) -> None:
        """Queue ``message``; raises ``GuestError`` when the guest stopped reading long ago."""
        if self._sock.fileno() < 0:
            raise GuestError("the guest is gone")
        frame = frames.encode(message)
        if len(self._pending) + len(frame) > MAX_PENDING:
            raise GuestError("the guest does not read")
        self._pending += frame
        self._flush()

    def send_with(self, message: msgspec.Struct, fds: list[int]) -> bool:
        """Send a short message and descriptors; say whether it went out at once, or not at all."""
        if self._pending or self._sock.fileno() < 0:
            return False
        frame = bytes(frames.encode(message))
        try:
            sent = socket.send_fds(self._sock, [frame], fds)
        except OSError:
            return False
        self._pending += frame[sent:]
        self._watch()
        return True

    @property
    def closed(self) -> bool:
        """Say whether nothing can be sent to it any more: it is ending, or has ended."""
        return self._sock.fileno() < 0

    @property
    def backlog(self) -> int:
        """How many bytes wait here for it."""
        return len(self._pending)

    def unread(self) -> int:
        """Return how many bytes sent to the guest it has not read yet (SIOCOUTQ, unix(7))."""
        try:
            out = fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, b"\0" * 4)
        except (OSError, ValueError):
            return 0
        return len(self._pending) + int(struct.unpack("i", out)[0])

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._pending)
            del self._pending[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._lose("")
            return
        self._watch()

    def _watch(self) -> None:
        read, write = not self.held and self._rest is None, bool(self._pending)
        self._reactor.watch(self._sock.fileno(), self._readable, read=read, write=write)

    def hold(self, *, held: bool) -> None:
        """Leave what it says where it is, so that it has to wait, or listen again."""
        if self._sock.fileno() < 0 or held == self.held:
            return
        self.held = held
        self._incoming.unwatch()
        self._watch()
        for pipe in self.pipes:
            pipe.hold(held=held)

    def throttle(self, *, on: bool) -> None:
        """Spend a part of the host's time on it at most, from now on; or listen at once again."""
        self._asked, self._took = not on, 0.0
        if self._rest is not None:
            self._rest.cancel()
            self._listen()

    def _count(self, seconds: float) -> None:
        """Count time that it took; where that is much, and nothing is asked of it, let it wait."""
        if self._asked or self._rest is not None:
            return
        self._took += seconds
        if self._took >= AT_ONCE and not self.closed and not self.held:
            self._rest = self._reactor.call_later(REST * self._took, self._listen)
            self._took = 0.0
            self._watch()
            for pipe in self.pipes:
                pipe.hold(held=True)

    def _listen(self) -> None:
        self._rest = None
        if not self.closed and not self.held:
            self._watch()
            for pipe in self.pipes:
                pipe.hold(held=False)

    def _readable(self) -> None:
        if self._pending:
            self._flush()
        if self.held or self._sock.fileno() < 0:
            return
        try:
            room = ROOM if self._vouched else 0
            data, ancillary, flags, _ = self._sock.recvmsg(READ_SIZE, room)
        except BlockingIOError:
            return
        except OSError:
            data, flags = b"", 0
        if self._vouched and data:
            self._take_credentials(ancillary)
        if flags & socket.MSG_CTRUNC:
            # The OS kernel has closed them: no room was given for any (unix(7)).
            self._lose("protocol violation: descriptors or credentials on the channel")
        elif data:
            began = thread_time()
            self._take(data)
            self._count(thread_time() - began)
        else:
            self._lose("")

    def read_rest(self) -> None:
        """Take what it said before it ended: what the OS kernel holds of it, and no more.

        Processes of its own may have its channel still, and speak on.
        """
        self.hold(held=False)
        self._pending.clear()
        for _ in range(LAST_READS):
            if self._sock.fileno() < 0 or not self._speaks():
                return
            self._readable()

    def _speaks(self) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return any(events & select.POLLIN for _, events in poll.poll(0))

    def _take_credentials(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        """Learn which process sent the first message; from then on its like is a violation."""
        self._vouched = False
        ask(self._sock, asked=False)
        if (pid := sender(ancillary)) is not None:
            self.pid = pid

    def vouch(self) -> bool:
        """Get hold of the process that sent the first message; say whether it is our guest's."""
        if self.pid is None or self.pidfd is not None:  # each one is a descriptor of ours
            return False
        self.pidfd = hold_of(self.pid, self.lineage.session, self._sock)
        if self.pidfd is None:
            self.pid = None  # not ours to signal
        return self.pidfd is not None

    def _take(self, data: bytes) -> None:
        try:
            for message in self._incoming.messages(data):
                self.on_message(message)
                if self._sock.fileno() < 0:
                    return
            if not self.held:
                self._incoming.watch()
        except WireError as exc:
            self._lose(f"protocol violation: {exc}")
        except Exception as exc:  # noqa: BLE001 - what nobody foresaw costs the guest, not the kernel
            traceback.print_exc()
            self._lose(f"protocol violation: {type(exc).__name__} over a message")

    def _lose(self, reason: str) -> None:
        if reason:
            self.close()
        else:
            # It is ending by itself: its exit status says how, so it is not killed here.
            self.drain()
            self._hang_up()
        self.on_lost(reason)

    def signal(self, number: int) -> None:
        """Send the guest a signal; harmless when it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pidfd is not None:
                signal.pidfd_send_signal(self.pidfd, number)
            elif self.pid is not None:
                os.kill(self.pid, number)

    def interrupt(self) -> None:
        """Send SIGINT, and see to it that it is not slept through.

        CPython looks for signals between instructions, and when one has cut a wait short. One that
        comes between the last look and the wait would be heard of at the wait's end.
        """
        self.stop_waking()
        self.signal(signal.SIGINT)
        for seconds in _WAKES:
            wake = self._reactor.call_later(seconds, lambda: self.signal(signal.SIGURG))
            self._wakes.append(wake)

    def stop_waking(self) -> None:
        """Cut no wait short any more: what was interrupted has ended."""
        for wake in self._wakes:
            wake.cancel()
        self._wakes.clear()

    def reaped(self) -> None:
        """Take note that its process is no more, or soon will be: it gets no more signals."""
        self.pid, pidfd, self.pidfd = None, self.pidfd, None
        if pidfd is not None:
            os.close(pidfd)

    def ignores_interrupts(self) -> bool:
        """Say whether interrupts can't reach it."""
        return deaf(self.pid)

    def drain(self) -> None:
        """Pass on raw output that arrived before the cell's end was told."""
        for pipe in self.pipes:
            pipe.drain()

    def close(self) -> None:
        """End the guest and let go of its descriptors."""
        self.signal(signal.SIGKILL)
        self.reaped()
        self._hang_up()

    def _hang_up(self) -> None:
        self._incoming.unwatch()
        if self._sock.fileno() >= 0:
            self._reactor.unwatch(self._sock.fileno())
            self._sock.close()
        for pipe in self.pipes:
            pipe.close()
        self.release_theirs()
