"""The host's end of one guest: its channel, its output pipes, its process, and how it ends."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import select
import signal
import socket
import struct
import termios
import traceback
from itertools import groupby
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from cellblock.descriptors import refuse_descriptors
from cellblock.errors import GuestError, WireError
from cellblock.host.guests.pipes import Pipes
from cellblock.wire import frames
from cellblock.wire.messages import FromGuest, QueryReply, Stream, StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import msgspec

    from cellblock.host.reactor import Reactor, Timer


# --- messages from bytes ----------------------------------------------------------------------

#: Seconds between looks at a frame that is not whole, and looks that it may take. Long, because a
#: thread that sends is held up by one that keeps the interpreter to itself.
FRAME_LOOK, FRAME_LOOKS = 1.0, 8

#: One for all: it has no state, and takes a fifth of a millisecond to make.
_decode: frames.Decoder[FromGuest] = frames.Decoder(FromGuest)


class MessageReader:
    """Turns a guest's bytes into messages.

    ``lose`` gets the reason to end a guest that begins a frame and does not end it.
    """

    def __init__(self, reactor: Reactor, lose: Callable[[str], None]) -> None:
        self._reactor, self._lose = reactor, lose
        self._splitter = frames.Splitter()
        self._look: Timer | None = None

    def room(self) -> memoryview:
        """Return where a large message's rest is to be read into; empty where none has begun."""
        return self._splitter.room()

    def messages(self, data: bytes | int) -> Iterator[FromGuest]:
        """Yield what ``data`` completes; join text that came in pieces, a flood of it too.

        A number says how much was read into ``room``. Raises WireError, after all that came before
        what is not decodable.
        """
        feed: Any = self._splitter.filled if isinstance(data, int) else self._splitter.feed
        # No name is kept for a payload: it is as large as what is made of it.
        decoded: Iterator[Any] = map(_decode, feed(data))
        for stream, group in groupby(decoded, _stream_of):
            if stream is None:
                yield from group
                continue
            text = io.StringIO()
            try:
                for message in group:
                    text.write(message.text)
            finally:
                if joined := text.getvalue():
                    yield Stream(name=stream[0], text=joined, cell=stream[1], subshell=stream[2])

    def watch(self) -> None:
        """See to it that a frame which is not whole ends, or goes on, in time."""
        if self._splitter.partial and self._look is None:
            self._look_later(FRAME_LOOKS)

    def unwatch(self) -> None:
        """Wait for no frame's end: the guest is not listened to, or has ended."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_later(self, looks: int) -> None:
        """Count looks and not seconds: the host may be slow."""
        taken = self._splitter.taken

        def look() -> None:
            self._look = None
            if not self._splitter.partial:
                return
            if taken != self._splitter.taken:
                self._look_later(FRAME_LOOKS)
            elif looks:
                self._look_later(looks - 1)
            else:
                self._lose("protocol violation: a frame that does not end")

        self._look = self._reactor.call_later(FRAME_LOOK, look)


def _stream_of(message: FromGuest) -> tuple[StreamName, int, int] | None:
    """Return what text has to have in common to be joined: its stream, its cell, its subshell."""
    if not isinstance(message, Stream):
        return None
    return message.name, message.cell, message.subshell


# --- programs of a guest ---------------------------------------------------------------------

#: Processes that are looked at for an interrupt, and how often: each look finds what those that
#: were interrupted had started until then. Who catches it may start more, as in a terminal.
_MOST_PROGRAMS, _MOST_LOOKS = 1_000, 10


def children(pid: int) -> list[int]:
    """Return the processes that any thread of ``pid`` has started, as far as that can be seen.

    Asked for several times a cell, so by no ``Path``: that takes twice as long, and interns each
    number, for which Python's table of such strings grows by half a MiB.
    """
    found: list[int] = []
    folder = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        for task in os.listdir(folder):
            # A thread that has ended meanwhile hides no other thread's.
            with (
                contextlib.suppress(OSError, ValueError),
                open(f"{folder}/{task}/children", "rb") as file,
            ):
                found += map(int, file.read().split())
    return found


def _interrupt(pid: int, group: int, session: int) -> None:
    """Send SIGINT to a process if it is in this group of this session.

    Its number could be another's by now, so it is opened before it is asked where it is.
    """
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if (os.getpgid(pid), os.getsid(pid)) == (group, session):
                signal.pidfd_send_signal(pidfd, signal.SIGINT)
        finally:
            os.close(pidfd)


def _kill(pid: int, is_meant: Callable[[int], bool]) -> None:
    """Kill a process if it is meant; its number could be another's by now, as in ``_interrupt``."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if is_meant(pid):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None when it is gone. It waits for nobody, as a stat does."""
    found = _PARENT.search(_status(pid))
    return int(found[1]) if found else None


def _is_in(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except OSError:
        return False


# --- a guest ----------------------------------------------------------------------------------

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
#: struct ucred: pid, uid, gid (unix(7)).
_UCRED: Final = struct.Struct("=iII")


#: Of a process's status: its parent, and what the innermost pid namespace calls its session
#: (proc(5)).
_PARENT: Final = re.compile(rb"^PPid:\s+(\d+)$", re.MULTILINE)
_SESSIONS: Final = re.compile(rb"^NSsid:.*?(\d+)$", re.MULTILINE)


def _status(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # as ``children``
            return file.read()
    except OSError:
        return b""


class Lineage(Struct):
    """The fork of a zygote that a guest and its copies descend from.

    ``session`` is what that fork began (setsid(2)). It is known when the zygote has told the
    fork's pid, which may be after the first copy was asked for: so all share one of these. So do
    the forks of a sandbox: each of their ``users`` has a guest and copies of that lineage.

    ``sessions`` are that one, those that forks began and those that programs began, by the numbers
    that the zygote has for them; in a pid ``namespace`` of its own these are not ours. Each is a
    user's, by a number: the first user's is the lineage's own, and is that of the first session.
    ``mounts`` names the mounts that they have, where those are a session's own. ``uses_device``
    are guests, by the zygote's numbers, that were seen to ask a device something.
    """

    number: int = 0
    session: int = -1
    users: list[LineageUser] = []
    sessions: Mapping[int, int] = {}
    namespace: bool = False
    mounts: str = ""
    uses_device: set[int] = set()

    def user_of(self, pid: int) -> int | None:
        """Return in whose session a process of ours is; None if it is in none of these."""
        try:
            session = os.getsid(pid)
        except OSError:
            return None
        if session == self.session:
            return self.number
        # Programs rarely begin sessions. Of each of the zygote's children, which may be hundreds of
        # other sandboxes' guests, that would be a file to read, several times a second.
        if self.namespace and len(self.sessions) > 1:
            found = _SESSIONS.search(_status(pid))
            session = int(found[1]) if found else -1
        return self.sessions.get(session)

    def pids(self) -> list[int]:
        """Return the processes of all users: guests and copies."""
        return [pid for user in self.users for pid in user.pids()]

    def others(self, than: LineageUser) -> list[int]:
        """Return the processes of the other users: guests and copies."""
        return [pid for user in self.users if user is not than for pid in user.pids()]


class LineageUser(Protocol):
    """Who has a guest, and copies of it."""

    def pids(self) -> list[int]:
        """Return their processes."""

    def is_settled(self) -> bool:
        """Whether no copy is being forked."""

    def guest_pid(self) -> int | None:
        """Return the process of its guest, or None."""

    def held_in_tree(self) -> int:
        """Return the bytes that it adds to those of the other users."""

    def shown(self) -> int:
        """Return the bytes that its guest shows, and the programs that its cells have started."""

    def programs(self) -> list[int]:
        """Return what its cells have started, and copies of its guest, perhaps."""


def _ignore(_: object) -> None: ...


class Guest:
    """One guest, or a copy of one: messages in, messages out, raw text, its end.

    ``on_message`` gets every decoded message, ``on_text`` what it writes. ``on_lost`` is called
    once, when the channel ends, with the reason where that is the guest's fault. Who has the guest
    sets the three before it is forked. With ``check_sender`` its first message comes with its
    sender's pid. Raises OSError where no descriptors are left.
    """

    def __init__(
        self,
        reactor: Reactor,
        on_message: Callable[[FromGuest], None] = _ignore,
        on_text: Callable[[Stream], None] = _ignore,
        on_lost: Callable[[str], None] = _ignore,
        *,
        check_sender: bool = False,
    ) -> None:
        self._reactor = reactor
        self.on_message, self.on_text, self.on_lost = on_message, on_text, on_lost
        self._check_sender = check_sender
        self.pid: int | None = None
        #: Stands for the process even when its pid is another's by now; None where there is none.
        self.pidfd: int | None = None
        self.lineage = Lineage()
        #: The session that it is in; -1 until it is known.
        self.session = -1
        #: The host has ended it.
        self.ended = False
        #: It is not listened to, because front ends do not read.
        self.held = False
        #: It gets a part of the host's time: seconds that it took since it was last left alone,
        #: and how long it is left alone.
        self._throttled = False
        self._took = 0.0
        self._rest: Timer | None = None
        self._wakes: list[Timer] = []
        self._pending = bytearray()
        self._reader = MessageReader(reactor, self._lose)
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        refuse_descriptors(self._sock)
        #: Its own ends of channel and pipes, and what else it inherits, until it is forked.
        self.child_fds: list[int] = [theirs.detach()]
        try:
            self._pipes = Pipes(reactor, self._on_written, self._count, self._end_writers)
        except OSError:
            self._sock.close()
            self.close_child_fds()
            raise
        self.child_fds += self._pipes.child_fds
        self._sock.setblocking(False)
        # Out-of-band bytes would make the socket readable for ever with nothing to read (unix(7)).
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, check_sender)
        reactor.watch(self._sock.fileno(), self._readable)

    def close_child_fds(self) -> None:
        """Close our copies of the guest's ends, once they were sent."""
        for fd in self.child_fds:
            os.close(fd)
        self.child_fds = []

    # --- to the guest -------------------------------------------------------------------------

    def send(self, message: msgspec.Struct) -> None:
        """Queue ``message``. Raises GuestError when the guest stopped reading long ago."""
        if self.closed:
            raise GuestError("the guest is gone")
        frame = frames.encode(message)
        if len(self._pending) + len(frame) > MAX_PENDING:
            raise GuestError("the guest does not read")
        self._pending += frame
        self._flush()

    def send_with(self, message: msgspec.Struct, fds: list[int]) -> bool:
        """Send a short message and descriptors at once, or nothing; return which it was."""
        if self._pending or self.closed:
            return False
        frame = bytes(frames.encode(message))
        try:
            sent = socket.send_fds(self._sock, [frame], fds)
        except OSError:
            return False
        self._pending += frame[sent:]
        self._watch()
        return True

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

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent to it any more: it is ending, or has ended."""
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

    # --- from the guest -----------------------------------------------------------------------

    def hold(self, *, held: bool) -> None:
        """Leave what it says where it is, so that it has to wait, or listen again."""
        if not self.closed and held != self.held:
            self.held = held
            self._reader.unwatch()
            self._listen()

    def throttle(self, *, on: bool) -> None:
        """Spend a part of the host's time on it at most, from now on; or listen at once again."""
        self._throttled, self._took = on, 0.0
        if self._rest is not None:
            self._rest.cancel()
            self._end_rest()

    def _count(self, seconds: float) -> None:
        """Count what a throttled guest took; leave it alone for a while where that is much."""
        if not self._throttled or self._rest is not None:
            return
        self._took += seconds
        if self._took >= AT_ONCE and not self.closed and not self.held:
            self._rest = self._reactor.call_later(REST * self._took, self._end_rest)
            self._took = 0.0
            self._listen()

    def _end_rest(self) -> None:
        self._rest = None
        if not self.closed:
            self._listen()

    def _listen(self) -> None:
        """Listen to channel and pipes, or don't, as things are."""
        self._watch()
        self._pipes.hold(held=self.held or self._rest is not None)

    def _watch(self) -> None:
        read, write = not self.held and self._rest is None, bool(self._pending)
        self._reactor.watch(self._sock.fileno(), self._readable, read=read, write=write)

    def _readable(self) -> None:
        if self._pending:
            self._flush()
        if self.held or self.closed:
            return
        ancillary: list[tuple[int, int, bytes]] = []
        data: bytes | int
        try:
            space = socket.CMSG_SPACE(_UCRED.size) if self._check_sender else 0
            with self._reader.room() as room:
                if room:
                    data, ancillary, flags, _ = self._sock.recvmsg_into([room], space)
                else:
                    data, ancillary, flags, _ = self._sock.recvmsg(READ_SIZE, space)
        except BlockingIOError:
            return
        except OSError:
            data, flags = b"", 0
        if self._check_sender and data:
            self._take_credentials(ancillary)
        if flags & socket.MSG_CTRUNC:
            # The OS kernel has closed them: no space was given for any (unix(7)).
            self._lose("protocol violation: descriptors or credentials on the channel")
        elif data:
            began = thread_time()
            self._take(data)
            self._count(thread_time() - began)
        else:
            self._lose("")

    def _take(self, data: bytes | int) -> None:
        try:
            for message in self._reader.messages(data):
                mark: int | None = getattr(message, "mark", None)
                if isinstance(message, QueryReply):
                    # It has no mark. What a hook of a cell's printed on the way to it comes first.
                    self._pipes.drain()
                if mark is not None:
                    self._pipes.drain(before=mark or None)
                    if self.closed:  # for what it has written
                        return
                self.on_message(message)
                if self.closed:
                    return
                if mark is not None:
                    self._pipes.passed(mark)
            if not self.held:
                self._reader.watch()
        except WireError as exc:
            self._lose(f"protocol violation: {exc}")
        except Exception as exc:  # noqa: BLE001 - what nobody foresaw costs the guest, not the kernel
            traceback.print_exc()
            self._lose(f"protocol violation: {type(exc).__name__} over a message")

    def _on_written(self, text: Stream) -> None:
        self.on_text(text)

    def read_output(self) -> None:
        """Pass on what it has written by now, unless it is held."""
        if not self.held and self._rest is None:
            self._pipes.drain()

    def drain(self) -> None:
        """Pass on all that it has written: it ends, or has ended."""
        self._pipes.drain_rest()

    def read_rest(self) -> None:
        """Take what it said before it ended: what the OS kernel holds of it, and no more.

        Processes of its own may have its channel still, and speak on.
        """
        self.hold(held=False)
        self._pending.clear()
        for _ in range(LAST_READS):
            if self.closed or not self._poll(select.POLLIN) & select.POLLIN:
                return
            self._readable()

    def _poll(self, events: int) -> int:
        poll = select.poll()
        poll.register(self._sock, events)
        return sum(found for _, found in poll.poll(0))

    # --- its process --------------------------------------------------------------------------

    def _take_credentials(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        """Learn which process sent the first message; from then on its like is a violation."""
        self._check_sender = False
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                self.pid = int(_UCRED.unpack(payload)[0])

    def sender_is_ours(self) -> bool:
        """Open the process that sent the first message; return whether it is our guest's.

        Its number alone could be another's by now. It is ours if it is in the guest's session,
        which nothing of anybody else's is in, while the other end of its channel is open.
        """
        if self.pid is None or self.pidfd is not None:  # each one is a descriptor of ours
            return False
        pid, self.pid = self.pid, None  # not ours to signal, yet
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            with contextlib.suppress(OSError):
                if self.lineage.user_of(pid) is not None and not self._poll(0):
                    self.pid, self.pidfd = pid, pidfd
                    return True
            os.close(pidfd)
        return False

    def signal(self, number: int) -> None:
        """Send the guest a signal; harmless when it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pidfd is not None:
                signal.pidfd_send_signal(self.pidfd, number)
            elif self.pid is not None:
                os.kill(self.pid, number)

    def interrupt(self) -> None:
        """Send SIGINT, to programs that it waits for too, and see that it is not slept through.

        CPython looks for signals between instructions, and when one has cut a wait short. One that
        comes between the last look and the wait would be heard of at the wait's end.
        """
        self.stop_waking()
        with contextlib.suppress(OSError):
            self._interrupt_all()
        for seconds in _WAKES:
            wake = self._reactor.call_later(seconds, lambda: self.signal(signal.SIGURG))
            self._wakes.append(wake)

    def _interrupt_all(self) -> None:
        """Send SIGINT to the guest, and to what cells have started in its process group.

        Those are whom a terminal interrupts. Copies of the guest are there, too, and not meant. The
        guest comes first, as what it waits for is to end because of the interrupt, not before it;
        and the others are known by then, as it does not wait for long.
        """
        if (pid := self.pid) is None:
            self.signal(signal.SIGINT)
            return
        told = set[int]()
        try:
            group, session = os.getpgid(pid), os.getsid(pid)
            found = self._programs(pid, session)
        finally:
            self.signal(signal.SIGINT)
        for _ in range(_MOST_LOOKS):
            for program in found:
                _interrupt(program, group, session)
            told |= found
            found = self._programs(pid, session) - told
            if not found:
                return

    def _end_writers(self, times: int) -> None:
        """Kill what cells have started, and the second time the guest itself.

        Called in another thread, while that of the loop waits for one of them (``held_up``).
        Nothing here waits for a process, and nothing of the guest's is changed meanwhile.
        """
        pid, guests = self.pid, {*self.lineage.pids()}
        zygote = None if pid is None else parent_of(pid)
        if pid is None or zygote is None:
            return
        user, waiting = self.lineage.user_of(pid), children(zygote)
        while waiting:
            other = waiting.pop()
            waiting += children(other)
            if other not in guests:
                _kill(other, lambda pid: self.lineage.user_of(pid) == user)
        if times > 1:
            self.signal(signal.SIGKILL)

    def _programs(self, pid: int, session: int) -> set[int]:
        """Return the guest's descendants in its session, with those whose parent has ended.

        Those come to the zygote. Its children are looked at last: whoever comes to it meanwhile is
        found there.
        """
        found, passed = set[int](), {pid, *self.lineage.pids()}
        self._add_descendants(pid, session, found, passed)
        zygote = parent_of(pid)
        if zygote is not None:
            self._add_descendants(zygote, session, found, passed)
        return found

    @staticmethod
    def _add_descendants(pid: int, session: int, found: set[int], passed: set[int]) -> None:
        """Add to ``found`` what descends from ``pid``, but for whom is ``passed`` over."""
        waiting = children(pid)
        while waiting and len(found) < _MOST_PROGRAMS:
            child = waiting.pop()
            if child not in passed and _is_in(child, session):
                found.add(child)
                waiting += children(child)

    def stop_waking(self) -> None:
        """Cut no wait short any more: what was interrupted has ended."""
        for wake in self._wakes:
            wake.cancel()
        self._wakes.clear()

    def ignores_interrupts(self) -> bool:
        """Return whether interrupts can't reach it: ignored, blocked in every thread, or stopped.

        Source: SigIgn and ShdPnd of proc(5). One that catches them is reached, whatever it does.
        """
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        masks = int(fields.get("SigIgn", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
        return bool(masks & 1 << signal.SIGINT - 1)

    # --- its end ------------------------------------------------------------------------------

    def _lose(self, reason: str) -> None:
        self.drain()
        if reason:
            self.close()
        else:
            # It is ending by itself: its exit status says how, so it is not killed here.
            self._hang_up()
        self.on_lost(reason)

    def reaped(self) -> None:
        """Forget its process, which has ended or soon will: it gets no more signals."""
        self.pid, pidfd, self.pidfd = None, self.pidfd, None
        if pidfd is not None:
            os.close(pidfd)

    def close(self) -> None:
        """End the guest and let go of its descriptors."""
        self.ended = True
        self.signal(signal.SIGKILL)
        self.reaped()
        self._hang_up()

    def _hang_up(self) -> None:
        self._reader.unwatch()
        if not self.closed:
            self._reactor.unwatch(self._sock.fileno())
            self._sock.close()
        self._pipes.close()
        self.close_child_fds()
