"""The host's end of one guest: its channel, its output pipes, its process and its end.

``Guest`` is used for copies of a guest as well, and for spare guests. It turns the guest's bytes
into messages (``MessageReader``), puts the text from its pipes between them in the right order
(``pipes``), and signals its process, always by a descriptor that was checked. It knows nothing of
requests: the supervisor, the snapshots and the spare guest set its callbacks.
"""

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

#: Seconds between looks at a frame that is not complete, and the number of looks that its rest may
#: take to come. That is long, because a thread of the guest that sends may have to wait for another
#: thread that keeps the interpreter to itself.
FRAME_LOOK = 1.0
FRAME_LOOKS = 8

#: One decoder for all guests: it has no state, and making it takes a fifth of a millisecond.
_decode: frames.Decoder[FromGuest] = frames.Decoder(FromGuest)


class MessageReader:
    """Turns a guest's bytes into messages.

    ``lose`` is called with the reason if the guest must be ended, because it begins a frame and
    does not end it.
    """

    def __init__(self, reactor: Reactor, lose: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._lose = lose
        self._splitter = frames.Splitter()
        self._look: Timer | None = None

    def room(self) -> memoryview:
        """Return the buffer for the rest of a large message; empty if none has begun."""
        return self._splitter.room()

    def messages(self, data: bytes | int) -> Iterator[FromGuest]:
        """Yield the messages that ``data`` completes. Text that came in pieces is joined.

        ``data`` are bytes, or the number of bytes that were read into ``room``. Raises WireError
        for bytes that can't be decoded, after yielding all messages before them.
        """
        feed: Any = self._splitter.filled if isinstance(data, int) else self._splitter.feed
        # No variable may keep a payload alive: it is as large as the message made from it.
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
        """Watch that a frame which is not complete goes on, or ends, in time."""
        if self._splitter.partial and self._look is None:
            self._look_later(FRAME_LOOKS)

    def unwatch(self) -> None:
        """Stop watching frames: the guest is not listened to, or has ended."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_later(self, looks: int) -> None:
        """Look again later, ``looks`` more times at most.

        Looks are counted instead of seconds, because the host itself may be slow.
        """
        taken_before = self._splitter.taken

        def look() -> None:
            self._look = None
            if not self._splitter.partial:
                return
            if taken_before != self._splitter.taken:
                self._look_later(FRAME_LOOKS)
            elif looks:
                self._look_later(looks - 1)
            else:
                self._lose("protocol violation: a frame that does not end")

        self._look = self._reactor.call_later(FRAME_LOOK, look)


def _stream_of(message: FromGuest) -> tuple[StreamName, int, int] | None:
    """Return what text must have in common to be joined: stream, cell and subshell. Else None."""
    if not isinstance(message, Stream):
        return None
    return message.name, message.cell, message.subshell


# --- programs of a guest ---------------------------------------------------------------------

#: Processes that an interrupt looks at, and how many times it looks for more. Each look finds what
#: the interrupted ones had started by then. A program that catches the interrupt may start more, as
#: in a terminal.
_MOST_PROGRAMS = 1_000
_MOST_LOOKS = 10


def children(pid: int) -> list[int]:
    """Return the processes that any thread of ``pid`` has started, as far as that can be seen.

    This is called several times per cell, so it does without ``Path``, which takes twice as long.
    ``Path`` also interns each number, which lets Python's table of interned strings grow by half a
    MiB.
    """
    pids: list[int] = []
    folder = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        for task in os.listdir(folder):
            # A thread that ended meanwhile must not hide the children of the others.
            with (
                contextlib.suppress(OSError, ValueError),
                open(f"{folder}/{task}/children", "rb") as file,
            ):
                pids += map(int, file.read().split())
    return pids


def _interrupt(pid: int, group: int, session: int) -> None:
    """Send SIGINT to a process if it is in this group of this session.

    Its pid could be another process's by now. So the process is opened first, and then its group
    and session are looked at.
    """
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if (os.getpgid(pid), os.getsid(pid)) == (group, session):
                signal.pidfd_send_signal(pidfd, signal.SIGINT)
        finally:
            os.close(pidfd)


def _kill(pid: int, is_meant: Callable[[int], bool]) -> None:
    """Kill a process if ``is_meant`` says so. It is opened first, as in ``_interrupt``."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if is_meant(pid):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if the process is gone.

    This reads the process's ``status``, which never waits. Reading its ``stat`` may wait for the
    process.
    """
    match = _PARENT.search(_status(pid))
    return int(match[1]) if match else None


def _is_in(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except OSError:
        return False


# --- a guest ----------------------------------------------------------------------------------

#: Bytes of one read. A larger buffer would be mapped anew for every read, which costs 40 µs.
READ_SIZE = 1 << 16
#: Bytes that may wait in the host for a guest that does not read.
MAX_PENDING = 2 * frames.MAX_FRAME
#: Reads of the last messages of a guest that ended. A socket holds less than these (socket(7),
#: wmem_max).
LAST_READS = 64
#: Seconds of the host's processor time that a throttled guest (one that has nothing to do) may take
#: before it is not listened to for a while, and how many times as long that while is.
AT_ONCE = 0.005
REST = 4
#: Seconds after an interrupt at which the guest's waits are cut short once more.
_WAKES = (0.02, 0.1, 0.5)
#: struct ucred: pid, uid, gid (unix(7)).
_UCRED: Final = struct.Struct("=iII")


#: Find in a process's status its parent, and its session as the innermost pid namespace numbers it
#: (proc(5)).
_PARENT: Final = re.compile(rb"^PPid:\s+(\d+)$", re.MULTILINE)
_SESSIONS: Final = re.compile(rb"^NSsid:.*?(\d+)$", re.MULTILINE)


def _status(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # not by ``Path``: see ``children``
            return file.read()
    except OSError:
        return b""


class Lineage(Struct):
    """A guest that was forked from a zygote, and all that descends from it.

    A guest and its copies share one object, because the OS session that the guest began
    (``session``, setsid(2)) is known only when the zygote has reported the guest's pid, which may
    be after the first copy was asked for. The forks of a sandbox share it, too: each of the
    ``users`` has a guest and copies of this lineage.

    ``sessions`` are the OS sessions that guests, forks and programs of the lineage began, each with
    the number of the user whose it is. The first user's number is ``number``, the lineage's own.
    The sessions are numbered as the zygote sees them; if it is in a pid ``namespace`` of its own,
    the host's numbers differ. ``mounts`` names the mounts of the lineage, if they are its own.
    ``uses_device`` are the guests that have used a device, by the zygote's pids.
    """

    number: int = 0
    session: int = -1
    users: list[LineageUser] = []
    sessions: Mapping[int, int] = {}
    namespace: bool = False
    mounts: str = ""
    uses_device: set[int] = set()

    def user_of(self, pid: int) -> int | None:
        """Return the user in whose OS session a process is, by the host's pid; or None."""
        try:
            session = os.getsid(pid)
        except OSError:
            return None
        if session == self.session:
            return self.number
        # Only if there are other sessions, which programs rarely begin. This reads a file, several
        # times a second, for each child of the zygote: perhaps hundreds of other sandboxes' guests.
        if self.namespace and len(self.sessions) > 1:
            match = _SESSIONS.search(_status(pid))
            session = int(match[1]) if match else -1
        return self.sessions.get(session)

    def pids(self) -> list[int]:
        """Return the processes of all users: guests and copies."""
        return [pid for user in self.users for pid in user.pids()]

    def others(self, than: LineageUser) -> list[int]:
        """Return the processes of the other users: guests and copies."""
        return [pid for user in self.users if user is not than for pid in user.pids()]


class LineageUser(Protocol):
    """A user of a lineage: a session, with its guest and the copies of it."""

    def pids(self) -> list[int]:
        """Return the pids of guest and copies."""

    def is_settled(self) -> bool:
        """Return whether no copy is being forked."""

    def guest_pid(self) -> int | None:
        """Return the pid of the guest, or None."""

    def held_in_tree(self) -> int:
        """Return the bytes of memory that this user adds to those of the other users."""

    def shown(self) -> int:
        """Return the bytes that the guest and the programs of its cells show as resident."""

    def programs(self) -> list[int]:
        """Return the pids of programs that cells have started. Copies may be among them."""


def _ignore(_: object) -> None: ...


class Guest:
    """One guest, or a copy of one: its channel, its output, its process.

    ``on_message`` is called with every message, ``on_text`` with text that the guest writes.
    ``on_lost`` is called once, when the channel ends: with a reason if that is the guest's fault,
    else with "". The owner of the guest sets the three before it is forked. With ``check_sender``
    the guest's first message comes with its sender's pid. Raises OSError if no descriptors are
    left.
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
        self.on_message = on_message
        self.on_text = on_text
        self.on_lost = on_lost
        self._check_sender = check_sender
        self.pid: int | None = None
        #: Refers to the process even if its pid is another's by now; None if there is none.
        self.pidfd: int | None = None
        self.lineage = Lineage()
        #: The OS session that the guest is in; -1 until it is known.
        self.session = -1
        #: Whether the host has ended the guest.
        self.ended = False
        #: Whether the guest is not listened to, because front ends are behind.
        self.held = False
        #: Whether the guest gets only a part of the host's time; the seconds of it that the guest
        #: took since its last rest; and the timer of the rest, during which it is not listened to.
        self._throttled = False
        self._took = 0.0
        self._rest_timer: Timer | None = None
        self._wakes: list[Timer] = []
        self._pending = bytearray()
        self._reader = MessageReader(reactor, self._lose)
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        refuse_descriptors(self._sock)
        #: The guest's ends of channel and pipes, open in the host until the guest is forked.
        self.child_fds: list[int] = [theirs.detach()]
        try:
            self._pipes = Pipes(reactor, self._on_written, self._count_time, self._end_writers)
        except OSError:
            self._sock.close()
            self.close_child_fds()
            raise
        self.child_fds += self._pipes.child_fds
        self._sock.setblocking(False)
        # Otherwise out-of-band bytes make the socket readable for ever, with nothing to read
        # (unix(7)).
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, check_sender)
        reactor.watch(self._sock.fileno(), self._readable)

    def close_child_fds(self) -> None:
        """Close the host's copies of the guest's ends, after they were sent to the zygote."""
        for fd in self.child_fds:
            os.close(fd)
        self.child_fds = []

    # --- to the guest -------------------------------------------------------------------------

    def send(self, message: msgspec.Struct) -> None:
        """Send or queue ``message``. Raises GuestError if the guest is gone or does not read."""
        if self.closed:
            raise GuestError("the guest is gone")
        frame = frames.encode(message)
        if len(self._pending) + len(frame) > MAX_PENDING:
            raise GuestError("the guest does not read")
        self._pending += frame
        self._flush()

    def send_with(self, message: msgspec.Struct, fds: list[int]) -> bool:
        """Send a short message with descriptors at once; return False if that was not possible."""
        if self._pending or self.closed:
            return False
        frame = bytes(frames.encode(message))
        try:
            byte_count = socket.send_fds(self._sock, [frame], fds)
        except OSError:
            return False
        self._pending += frame[byte_count:]
        self._watch()
        return True

    def _flush(self) -> None:
        try:
            byte_count = self._sock.send(self._pending)
            del self._pending[:byte_count]
        except BlockingIOError:
            pass
        except OSError:
            self._lose("")
            return
        self._watch()

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent to the guest any more: it is ending, or has ended."""
        return self._sock.fileno() < 0

    @property
    def backlog(self) -> int:
        """How many bytes wait in the host to be sent to the guest."""
        return len(self._pending)

    def unread(self) -> int:
        """Return how many bytes for the guest it has not read yet (SIOCOUTQ, unix(7))."""
        try:
            out = fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, b"\0" * 4)
        except (OSError, ValueError):
            return 0
        return len(self._pending) + int(struct.unpack("i", out)[0])

    # --- from the guest -----------------------------------------------------------------------

    def hold(self, *, held: bool) -> None:
        """Stop reading from the guest, so that it must wait when its socket is full; or go on."""
        if not self.closed and held != self.held:
            self.held = held
            self._reader.unwatch()
            self._listen()

    def throttle(self, *, on: bool) -> None:
        """Limit the part of the host's time that the guest gets from now on, or lift the limit."""
        self._throttled = on
        self._took = 0.0
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._end_rest()

    def _count_time(self, seconds: float) -> None:
        """Count host time spent on a throttled guest; stop listening for a while if it is much."""
        if not self._throttled or self._rest_timer is not None:
            return
        self._took += seconds
        if self._took >= AT_ONCE and not self.closed and not self.held:
            self._rest_timer = self._reactor.call_later(REST * self._took, self._end_rest)
            self._took = 0.0
            self._listen()

    def _end_rest(self) -> None:
        self._rest_timer = None
        if not self.closed:
            self._listen()

    def _listen(self) -> None:
        """Begin or stop reading channel and pipes, as ``held`` and the rest require."""
        self._watch()
        self._pipes.hold(held=self.held or self._rest_timer is not None)

    def _watch(self) -> None:
        reads = not self.held and self._rest_timer is None
        writes = bool(self._pending)
        self._reactor.watch(self._sock.fileno(), self._readable, read=reads, write=writes)

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
            data = b""
            flags = 0
        if self._check_sender and data:
            self._take_credentials(ancillary)
        if flags & socket.MSG_CTRUNC:
            # The OS kernel has closed the descriptors, because no space was given for any
            # (unix(7)).
            self._lose("protocol violation: descriptors or credentials on the channel")
        elif data:
            began = thread_time()
            self._take(data)
            self._count_time(thread_time() - began)
        else:
            self._lose("")

    def _take(self, data: bytes | int) -> None:
        """Pass on the messages in ``data``, each after the text that was written before it.

        Messages have marks, which the guest also writes into its pipes (``pipes``).
        """
        try:
            for message in self._reader.messages(data):
                mark: int | None = getattr(message, "mark", None)
                if isinstance(message, QueryReply):
                    # A reply has no mark. What a cell's hook printed on the way to it comes first.
                    self._pipes.drain()
                if mark is not None:
                    self._pipes.drain(before=mark or None)
                    if self.closed:  # because of what the guest has written
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
        """Pass on the text that the guest has written by now, unless it is held."""
        if not self.held and self._rest_timer is None:
            self._pipes.drain()

    def drain(self) -> None:
        """Pass on all text that the guest has written. It is ending, or has ended."""
        self._pipes.drain_rest()

    def read_rest(self) -> None:
        """Pass on the messages that a guest sent before it ended.

        Only as much is read as a socket holds: processes that the guest started may still have its
        channel, and send more.
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
        return sum(ready for _, ready in poll.poll(0))

    # --- the guest's process ------------------------------------------------------------------

    def _take_credentials(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        """Note which process sent the first message. Later credentials are a violation."""
        self._check_sender = False
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                self.pid = int(_UCRED.unpack(payload)[0])

    def sender_is_ours(self) -> bool:
        """Open the process that sent the first message; return whether it is a copy of the guest.

        Its pid alone could be another process's by now. It is a copy if it is in one of the
        lineage's OS sessions, in which there are no other processes, while the other end of its
        channel is still open.
        """
        if self.pid is None or self.pidfd is not None:  # a second pidfd would leak the first
            return False
        pid = self.pid
        self.pid = None  # until it is checked, nothing may signal it
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            with contextlib.suppress(OSError):
                if self.lineage.user_of(pid) is not None and not self._poll(0):
                    self.pid = pid
                    self.pidfd = pidfd
                    return True
            os.close(pidfd)
        return False

    def signal(self, number: int) -> None:
        """Send the guest a signal. Do nothing if it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pidfd is not None:
                signal.pidfd_send_signal(self.pidfd, number)
            elif self.pid is not None:
                os.kill(self.pid, number)

    def interrupt(self) -> None:
        """Send SIGINT to the guest and to programs that its cell waits for.

        CPython looks for signals between instructions, and when a signal has cut a wait short. A
        signal that comes between the last look and the wait would be noticed only when the wait
        ends. So SIGURG cuts waits short a few more times.
        """
        self.stop_waking()
        with contextlib.suppress(OSError):
            self._interrupt_all()
        for seconds in _WAKES:
            wake = self._reactor.call_later(seconds, lambda: self.signal(signal.SIGURG))
            self._wakes.append(wake)

    def _interrupt_all(self) -> None:
        """Send SIGINT to the guest, and to the programs of its cells in its process group.

        These are the processes that a terminal would interrupt. Copies of the guest are in the
        group, too, and are left out. The guest is interrupted first: a program that it waits for
        must not end before the guest knows of the interrupt. The programs are looked up before
        that, because the guest may stop waiting for them at once.
        """
        if (pid := self.pid) is None:
            self.signal(signal.SIGINT)
            return
        interrupted = set[int]()
        try:
            group = os.getpgid(pid)
            session = os.getsid(pid)
            programs = self._programs(pid, session)
        finally:
            self.signal(signal.SIGINT)
        for _ in range(_MOST_LOOKS):
            for program in programs:
                _interrupt(program, group, session)
            interrupted |= programs
            programs = self._programs(pid, session) - interrupted
            if not programs:
                return

    def _end_writers(self, times: int) -> None:
        """Kill the programs of cells, and from the second time on also the guest.

        ``held_up`` calls this in another thread, while the event loop's thread waits in a read of
        the guest's pipe. Nothing here waits for a process. The event loop, which waits, changes
        nothing of this object meanwhile.
        """
        pid = self.pid
        guests = {*self.lineage.pids()}
        zygote = None if pid is None else parent_of(pid)
        if pid is None or zygote is None:
            return
        user = self.lineage.user_of(pid)
        waiting = children(zygote)
        while waiting:
            program_pid = waiting.pop()
            waiting += children(program_pid)
            if program_pid not in guests:
                _kill(program_pid, lambda pid: self.lineage.user_of(pid) == user)
        if times > 1:
            self.signal(signal.SIGKILL)

    def _programs(self, pid: int, session: int) -> set[int]:
        """Return the guest's descendants in its OS session, including orphans.

        Orphans become children of the zygote, whose children are looked at last, so that a process
        which is orphaned meanwhile is found there.
        """
        programs = set[int]()
        skipped = {pid, *self.lineage.pids()}
        self._add_descendants(pid, session, programs, skipped)
        zygote = parent_of(pid)
        if zygote is not None:
            self._add_descendants(zygote, session, programs, skipped)
        return programs

    @staticmethod
    def _add_descendants(pid: int, session: int, programs: set[int], skipped: set[int]) -> None:
        """Add the descendants of ``pid`` in ``session`` to ``programs``, but none ``skipped``."""
        waiting = children(pid)
        while waiting and len(programs) < _MOST_PROGRAMS:
            child = waiting.pop()
            if child not in skipped and _is_in(child, session):
                programs.add(child)
                waiting += children(child)

    def stop_waking(self) -> None:
        """Stop cutting waits short. Called when what was interrupted has ended."""
        for wake in self._wakes:
            wake.cancel()
        self._wakes.clear()

    def ignores_interrupts(self) -> bool:
        """Return whether interrupts can't reach the guest.

        They can't if the guest ignores SIGINT, blocks it in every thread, or is stopped (SigIgn and
        ShdPnd of proc(5)). A guest that catches SIGINT is reached, whatever it does then.
        """
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        masks = int(fields.get("SigIgn", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
        return bool(masks & 1 << signal.SIGINT - 1)

    # --- the guest's end ----------------------------------------------------------------------

    def _lose(self, reason: str) -> None:
        self.drain()
        if reason:
            self.close()
        else:
            # The guest ends by itself, and its exit status says how. Killing it would hide that.
            self._hang_up()
        self.on_lost(reason)

    def reaped(self) -> None:
        """Forget the guest's process, which has ended or is ending. It gets no more signals."""
        self.pid = None
        pidfd = self.pidfd
        self.pidfd = None
        if pidfd is not None:
            os.close(pidfd)

    def close(self) -> None:
        """Kill the guest and close its descriptors."""
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
