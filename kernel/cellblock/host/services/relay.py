"""The relay: both ends of the process that connects guests to listed addresses.

The host's end (``Relay``) starts it, admits guests, and counts what they asked for. The process
takes requests of guests in and hands connected sockets out. It holds no byte of a connection: a
socket is handed over as soon as connecting has begun, and the OS kernel does the rest. A guest that
asks for much waits. One that sends nonsense, or does not read its answers, is not served any more.
The process ends with the host.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from threading import Lock, Semaphore, Thread
from typing import TYPE_CHECKING, Final, Literal

from cellblock.descriptors import refuse_descriptors
from cellblock.errors import WireError
from cellblock.host.guests.spawn import end_with_host, protect_host, set_process_name
from cellblock.host.guests.worker_process import Worker
from cellblock.host.services.addresses import LOOPBACK, Allowlist, read
from cellblock.policy.network import LOCALHOST
from cellblock.wire import frames
from cellblock.wire import relay as protocol
from cellblock.wire.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

    from cellblock.host.reactor import Reactor
    from cellblock.policy.network import IPAddress

    LookUp = Callable[[str], Iterable[str]]


# --- messages between host and relay, over a socket of their own ------------------------------


class Begin(Message, frozen=True, kw_only=True):
    """First: the policy's entries."""

    entries: tuple[str, ...]


class Admit(Message, frozen=True, kw_only=True):
    """Serve a guest. The relay's end of its socket comes with this frame (SCM_RIGHTS)."""

    number: int


class Judged(Message, frozen=True, kw_only=True):
    """A guest asked for a connection, or was refused a name (port 0). Sent before its answer.

    ``names`` are the listed ones that led there. A refused ``host`` is as the guest wrote it.
    """

    verdict: Literal["reached", "refused"]
    host: str
    port: int = 0
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the address as records have it: ``93.184.216.34:443 (example.org)``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"{host}:{self.port}" if self.port else host
        return f"{place} ({', '.join(self.names)})" if self.names else place


class Breach(Message, frozen=True, kw_only=True):
    """A guest sent nonsense, or does not read its answers. It is not served any more."""

    number: int
    detail: str


ToRelay = Begin | Admit
FromRelay = Judged | Breach


# --- the host's end ---------------------------------------------------------------------------

#: Relays in a row that may end before one has served.
MAX_FAILED_STARTS: Final = 3
#: Addresses of each verdict that are counted by themselves.
MAX_COUNTED: Final = 50


@dataclass(slots=True)
class RelayCounts:
    """How often guests asked for an address since the last report; ``others`` in all."""

    reached: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    others: int = 0

    def __bool__(self) -> bool:
        return bool(self.reached or self.refused or self.others)


class Relay:
    """A relay for ``addresses``, as long as there are any; replaced if it ends.

    ``breach`` gets what a guest did against the protocol, ``report`` what guests asked for.
    """

    def __init__(
        self,
        reactor: Reactor,
        addresses: tuple[str, ...],
        breach: Callable[[str], None],
        report: Callable[[RelayCounts], None] = lambda _counts: None,
    ) -> None:
        self._reactor, self._breach, self._report = reactor, breach, report
        self._addresses: tuple[str, ...] = ()
        self._worker: Worker[FromRelay] | None = None
        self._failed_starts = self._admitted = 0
        #: The guest that is served: its number, and the relay's end of its socket.
        self._serving: tuple[int, int] | None = None
        #: Whether it got a connection.
        self._used = False
        self._counts = RelayCounts()
        self.narrow_to(addresses)

    def narrow_to(self, addresses: tuple[str, ...]) -> None:
        """Replace the list. The guest that is served is not served any more."""
        if addresses == self._addresses:
            return
        self.account()
        self.close()
        self._addresses, self._failed_starts, self._used = addresses, 0, False
        if addresses:
            with contextlib.suppress(OSError):  # tried again when a guest is admitted
                self._running()

    def admit(self) -> list[int]:
        """Return the descriptor at which a new guest, or restored snapshot, asks; [] without list.

        The guest before it is not served any more. Raises OSError.
        """
        if not self._addresses:
            return []
        worker = self._running()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        refuse_descriptors(ours)
        with theirs:
            self._drop_guest()
            self._admitted += 1
            self._serving, self._used = (self._admitted, ours.detach()), False
            worker.send_with(Admit(number=self._admitted), [self._serving[1]])
            return [theirs.detach()]

    def made_connections(self, before: Callable[[], bool]) -> bool:
        """Whether the guest got a connection since the last question, or had one ``before``."""
        if not self._addresses:
            return False
        self._read()
        used, self._used = self._used, False
        return used or before()

    def account(self) -> None:
        """Report what was asked for since the last report: all that an ended cell did."""
        if self._addresses:
            self._read()
            self._report(self._counts)
            self._counts = RelayCounts()

    def close(self) -> None:
        """End the relay; connections that were handed over end with their guests."""
        self._addresses = ()
        self._drop_guest()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _drop_guest(self) -> None:
        if self._serving is not None:
            os.close(self._serving[1])
            self._serving = None

    def _running(self) -> Worker[FromRelay]:
        if self._worker is None:
            self._worker = Worker(
                self._reactor, __name__, FromRelay, self._on_message, self._on_lost
            )
            self._worker.send(Begin(entries=self._addresses))
        return self._worker

    def _read(self) -> None:
        if self._worker is not None:
            self._worker.read_rest()

    def _on_message(self, message: FromRelay) -> None:
        self._failed_starts = 0
        if isinstance(message, Breach):
            if self._serving is not None and self._serving[0] == message.number:
                self._breach(message.detail)
            return
        self._used = self._used or message.verdict == "reached"
        counts = self._counts.reached if message.verdict == "reached" else self._counts.refused
        address = str(message)
        if address in counts or len(counts) < MAX_COUNTED:
            counts[address] += 1
        else:
            self._counts.others += 1

    def _on_lost(self, _why: str) -> None:
        """Serve the same guest by another relay, where names have to be looked up again."""
        self._worker = None
        self._failed_starts += 1
        if self._serving is None:
            return
        number, fd = self._serving
        if self._failed_starts < MAX_FAILED_STARTS:
            with contextlib.suppress(OSError):
                self._running().send_with(Admit(number=number), [fd])
                return
        self._drop_guest()  # so that nobody waits for an answer


# --- the process ------------------------------------------------------------------------------

#: Names that are looked up at once, and requests that may wait for an answer.
MAX_LOOK_UPS: Final = 8
MAX_WAITING: Final = 64
#: Seconds for which an answer is used again.
CACHE_SECONDS: Final = 5.0


def look_up(name: str) -> list[str]:
    """Return the addresses of a name, as this machine's resolver has them. Raises gaierror."""
    if name == LOCALHOST:
        return list(LOOPBACK)
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Names:
    """Looks listed names up, in threads, since getaddrinfo(3) blocks.

    However often a guest asks, a name is looked up once at a time, and once in ``CACHE_SECONDS``.
    """

    def __init__(self, allowlist: Allowlist, look_up: LookUp) -> None:
        self._allowlist, self._look_up = allowlist, look_up
        self._lock, self._room = Lock(), Semaphore(MAX_LOOK_UPS)
        #: Pipes that wait for a name that is being looked up.
        self._waiting: dict[str, list[int]] = {}
        self._known: dict[str, tuple[float, protocol.Found]] = {}

    def answer(self, name: str, pipe: int) -> bool:
        """Write ``Found`` for a listed name to a pipe, now or later; False if too many wait.

        Closes the pipe. Called from the relay's thread only.
        """
        is_new = False
        with self._lock:
            when, found = self._known.get(name, (-CACHE_SECONDS, protocol.Found()))
            is_fresh = time.monotonic() - when < CACHE_SECONDS
            if not is_fresh:
                if sum(map(len, self._waiting.values())) >= MAX_WAITING:
                    return False
                is_new = name not in self._waiting
                self._waiting.setdefault(name, []).append(pipe)
        if is_fresh:
            _write(pipe, found)
        elif is_new:
            Thread(target=self._find, args=[name], name="look-up", daemon=True).start()
        return True

    def _find(self, name: str) -> None:
        try:
            with self._room:
                addresses = list(self._look_up(name))
            found = self._judge(name, addresses)
        except socket.gaierror as error:
            why = f"{name}: {error.strerror}"[:500]
            found = protocol.Found(error=error.errno or socket.EAI_AGAIN, why=why)
        except Exception as error:  # whatever it is, the request has an answer
            found = protocol.Found(error=socket.EAI_AGAIN, why=f"{name}: {type(error).__name__}")
        with self._lock:
            self._known[name] = time.monotonic(), found
            pipes = self._waiting.pop(name, [])
        for pipe in pipes:
            _write(pipe, found)

    def _judge(self, name: str, addresses: list[str]) -> protocol.Found:
        with self._lock:
            good, bad = self._allowlist.found(name, addresses)
        if good:
            return protocol.Found(addresses=tuple(good[:64]))
        if not bad:
            return protocol.Found(error=socket.EAI_NONAME, why=f"{name} is nowhere")
        why = f"{name} is at {bad}, which is not a public address: list that with its port, too"
        return protocol.Found(error=socket.EAI_FAIL, why=why)


def _write(pipe: int, found: protocol.Found) -> None:
    """Write as much as fits a pipe at once, and close it; the guest may have gone."""
    with contextlib.suppress(OSError):
        os.write(pipe, protocol.encode(found))
    os.close(pipe)


READ_SIZE: Final = 1 << 16
#: Requests of one guest that are answered in a slot of so many seconds; the others wait.
MAX_PER_SLOT: Final = 200
SLOT_SECONDS: Final = 0.1
#: Bytes of answers that may wait for a guest: more than an honest one needs, and few descriptors.
BACKLOG: Final = 8 << 10


class Refused(Exception):
    """A request is answered with an error number instead of a descriptor."""

    def __init__(self, number: int, why: str = "") -> None:
        self.number, self.why = number, why
        super().__init__(why)


class Server:
    """Serves one session's guests. ``control`` is the socket to the host, which sends the list."""

    def __init__(self, control: socket.socket, look_up: LookUp = look_up) -> None:
        self._control, self._look_up = control, look_up
        self._allowed = Allowlist(())
        self._names = Names(self._allowed, look_up)
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[ToRelay] = frames.Decoder(ToRelay)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        #: Guests by descriptor: number and socket.
        self._guests: dict[int, tuple[int, socket.socket]] = {}
        #: Requests in this slot, by a guest's descriptor, and when it ends.
        self._asked: dict[int, int] = {}
        self._slot_ends = 0.0
        #: Descriptors that came before their ``Admit`` was complete.
        self._received: list[int] = []

    def serve(self) -> None:
        """Serve until the host hangs up."""
        while True:
            for fd, _ in self._poll.poll(self._begin_slot()):
                if fd == self._control.fileno():
                    if not self._read_control():
                        return
                elif fd in self._guests:
                    self._read_request(fd)

    def _begin_slot(self) -> int | None:
        """Begin a slot if the last has ended; return its milliseconds if a guest waits for it."""
        now = time.monotonic()
        if now >= self._slot_ends:
            for fd in self._asked:
                if fd in self._guests:
                    self._poll.register(fd, select.POLLIN)
            self._asked.clear()
            self._slot_ends = now + SLOT_SECONDS
        if any(asked >= MAX_PER_SLOT for asked in self._asked.values()):
            return int((self._slot_ends - now) * 1_000) + 1
        return None

    def _read_control(self) -> bool:
        """Handle messages of the host; return whether it is still there."""
        try:
            data, fds, *_ = socket.recv_fds(self._control, READ_SIZE, 16)
        except OSError:
            return False
        self._received += fds
        for payload in self._splitter.feed(data):
            message = self._decode(payload)
            if isinstance(message, Begin):
                self._allowed = Allowlist(message.entries)
                self._names = Names(self._allowed, self._look_up)
            elif self._received:
                sock = socket.socket(fileno=self._received.pop(0))
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BACKLOG)
                self._guests[sock.fileno()] = message.number, sock
                self._poll.register(sock, select.POLLIN)
        return bool(data)

    def _report(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):  # the host has gone: the next read says so
            self._control.sendall(frames.encode(message))

    # --- a guest ------------------------------------------------------------------------------

    def _read_request(self, fd: int) -> None:
        number, sock = self._guests[fd]
        self._asked[fd] = self._asked.get(fd, 0) + 1
        if self._asked[fd] >= MAX_PER_SLOT:
            self._poll.unregister(fd)
        try:
            packet, ancillary, flags, _ = sock.recvmsg(protocol.MOST)
            if not packet:
                self._drop_guest(fd)
            elif ancillary or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                detail = "a packet that is too large, or has a descriptor for the relay"
                self._breach(fd, number, detail)
            else:
                self._answer(sock, protocol.request(packet))
        except BlockingIOError:
            self._breach(fd, number, "it does not read what the relay answers")
        except WireError as exc:
            self._breach(fd, number, f"{exc} for the relay")
        except OSError:
            self._drop_guest(fd)

    def _answer(self, sock: socket.socket, request: protocol.Resolve | protocol.Connect) -> None:
        """Do what is asked for, and hand over the descriptor. Raises OSError."""
        try:
            if isinstance(request, protocol.Resolve):
                given = self._resolve(request.name.lower().removesuffix("."))
            else:
                given = self._connect(request.address, request.port)
            _hand_over(sock, protocol.Answer(nonce=request.nonce), given)
        except Refused as refused:
            answer = protocol.Answer(nonce=request.nonce, errno=refused.number, why=refused.why)
            sock.send(protocol.encode(answer))

    def _resolve(self, name: str) -> int:
        """Return the end of a pipe from which the answer can be read. Raises Refused."""
        if not self._allowed.knows(name):
            self._report(Judged(verdict="refused", host=name))
            raise Refused(errno.EACCES, f"{name} is not on the list")
        try:
            ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as exc:
            raise Refused(exc.errno or errno.EMFILE) from None
        if not self._names.answer(name, theirs):
            os.close(ours)
            os.close(theirs)
            raise Refused(errno.EAGAIN, "too many names are being looked up")
        return ours

    def _connect(self, text: str, port: int) -> int:
        """Begin to connect; return the socket's descriptor. Raises Refused."""
        address = read(text)
        if address is None or not self._allowed.reaches(address, port):
            judged = Judged(verdict="refused", host=text, port=port)
            self._report(judged)
            place = f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
            raise Refused(errno.EACCES, f"{place} is not on the list")
        names = tuple(self._allowed.names(address, port))
        self._report(Judged(verdict="reached", host=str(address), port=port, names=names))
        return _begin_connecting(address, port)

    def _breach(self, fd: int, number: int, detail: str) -> None:
        self._drop_guest(fd)
        self._report(Breach(number=number, detail=detail))

    def _drop_guest(self, fd: int) -> None:
        _, sock = self._guests.pop(fd)
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)
        self._asked.pop(fd, None)
        sock.close()


def _hand_over(sock: socket.socket, answer: protocol.Answer, given: int) -> None:
    """Give a descriptor away. Raises Refused, OSError."""
    try:
        socket.send_fds(sock, [protocol.encode(answer)], [given])
    except OSError as exc:
        if exc.errno != errno.ETOOMANYREFS:  # a limit of this user's, over all his processes
            raise
        raise Refused(errno.ENOBUFS, "too many sockets are on their way") from None
    finally:
        os.close(given)


def _begin_connecting(address: IPAddress, port: int) -> int:
    """Begin to connect to this very address, whatever any name means by now. Raises Refused."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
            error = sock.connect_ex((str(address), port))
            if error in (0, errno.EINPROGRESS):
                return sock.detach()
    except OSError as exc:
        error = exc.errno or errno.EMFILE
    raise Refused(error)


def main(fd: int, host: int) -> None:
    """Serve until the host, whose pid is given, hangs up."""
    end_with_host(host)
    protect_host()
    set_process_name(b"cb-relay")
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    try:
        Server(control).serve()
    finally:
        os._exit(0)  # threads may be in the middle of a look-up
