"""The relay's process: guests' requests in, connected sockets out.

It holds no byte of a connection: a socket is handed over as soon as its connecting has begun, and
the OS kernel does the rest. A guest that asks for much waits, one that asks for nonsense or does
not read what it is answered is not served any more. It ends when the host does.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final

from cellblock.errors import WireError
from cellblock.host.guests.spawn import end_with_host, protect_host, set_process_name
from cellblock.host.services.network import addresses, relay
from cellblock.host.services.network.addresses import THIS_MACHINE
from cellblock.policy.network import LOCALHOST
from cellblock.wire import frames
from cellblock.wire import relay as protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.services.network.addresses import Allowlist

    LookUp = Callable[[str], Iterable[str]]
    import msgspec

    from cellblock.policy.network import IPAddress


# Looking listed names up: in threads, since getaddrinfo(3) waits, and each no more than it must.
#
# However often a guest asks, a name is looked up once in a while, and once at a time.

#: Names that are looked up at once, and guests' questions that may wait for one.
THREADS: Final = 8
MOST_WAITING: Final = 64
#: Seconds for which an answer is given again.
FRESH: Final = 5.0


def look_up(name: str) -> list[str]:
    """Return where a name is, as this machine sees it. Raises socket.gaierror."""
    if name == LOCALHOST:
        return list(THIS_MACHINE)
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Names:
    """Answers to the questions of guests; ``answer`` may be called from the relay's thread only."""

    def __init__(self, allowlist: Allowlist, look_up: LookUp = look_up) -> None:
        self._allowlist, self._look_up = allowlist, look_up
        self._threads = ThreadPoolExecutor(THREADS, "look-up")
        self._lock = Lock()
        #: Pipes that wait for a name that is being looked up.
        self._waiting: dict[str, list[int]] = {}
        self._known: dict[str, tuple[float, protocol.Found]] = {}

    def answer(self, name: str, pipe: int) -> bool:
        """Write ``Found`` to a pipe, now or later, and close it; False if too many wait.

        ``name`` is one that the list knows.
        """
        with self._lock:
            when, found = self._known.get(name, (-FRESH, protocol.Found()))
            if time.monotonic() - when >= FRESH:
                if sum(map(len, self._waiting.values())) >= MOST_WAITING:
                    return False
                if name not in self._waiting:
                    self._threads.submit(self._find, name)
                self._waiting.setdefault(name, []).append(pipe)
                return True
        _tell(pipe, found)
        return True

    def _find(self, name: str) -> None:
        try:
            addresses = list(self._look_up(name))
        except socket.gaierror as exc:
            error = exc.errno or socket.EAI_AGAIN
            found = protocol.Found(error=error, why=f"{name}: {exc.strerror}"[:500])
        except Exception as exc:  # noqa: BLE001 - a question always has an answer
            found = protocol.Found(error=socket.EAI_AGAIN, why=f"{name}: {type(exc).__name__}")
        else:
            found = self._judged(name, addresses)
        with self._lock:
            self._known[name] = time.monotonic(), found
            pipes = self._waiting.pop(name, [])
        for pipe in pipes:
            _tell(pipe, found)

    def _judged(self, name: str, addresses: list[str]) -> protocol.Found:
        with self._lock:
            good, bad = self._allowlist.found(name, addresses)
        if good:
            return protocol.Found(addresses=tuple(good[:64]))
        if not bad:
            return protocol.Found(error=socket.EAI_NONAME, why=f"{name} is nowhere")
        why = f"{name} is at {bad}, which is not a public address: list that with its port, too"
        return protocol.Found(error=socket.EAI_FAIL, why=why)


def _tell(pipe: int, found: protocol.Found) -> None:
    """Write what fits a pipe at once, and close it; a guest that has gone does not mind."""
    with contextlib.suppress(OSError):
        os.write(pipe, protocol.encode(found))
    os.close(pipe)


READ_SIZE: Final = 1 << 16
#: Requests that one guest gets answered in a time slot, in seconds: what is beyond waits.
MOST_IN_SLOT: Final = 200
SLOT: Final = 0.1
#: Bytes of answers that may wait for a guest: more than an honest one leaves, few descriptors.
BACKLOG: Final = 8 << 10
_BEGUN: Final = (0, errno.EINPROGRESS)
_INT: Final = array.array("i")
_ROOM: Final = socket.CMSG_SPACE(_INT.itemsize)


class Refused(Exception):
    """What a guest is answered instead of a descriptor."""

    def __init__(self, number: int, why: str = "") -> None:
        self.number, self.why = number, why
        super().__init__(why)


class Server:
    """Serves one session's guests; ``control`` is the host's end of it."""

    def __init__(self, control: socket.socket, names: Names, allowed: addresses.Allowlist) -> None:
        self._control, self._names, self._allowed = control, names, allowed
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[relay.ToRelay] = frames.Decoder(relay.ToRelay)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._guests: dict[int, tuple[int, socket.socket]] = {}
        #: Requests in this slot, by a guest's descriptor, and when it ends.
        self._asked: dict[int, int] = {}
        self._slot_ends = 0.0
        self._admitted: list[int] = []

    def serve(self) -> None:
        """Serve until the host hangs up."""
        while True:
            for fd, _ in self._poll.poll(self._rest()):
                if fd == self._control.fileno():
                    if not self._heard_host():
                        return
                elif fd in self._guests:
                    self._hear(fd)

    def _rest(self) -> int | None:
        """Begin a new slot if one has ended; return the milliseconds of this one, if any waits."""
        now = time.monotonic()
        if now >= self._slot_ends:
            for fd in self._asked:
                if fd in self._guests:
                    self._poll.register(fd, select.POLLIN)
            self._asked.clear()
            self._slot_ends = now + SLOT
        if any(asked >= MOST_IN_SLOT for asked in self._asked.values()):
            return int((self._slot_ends - now) * 1_000) + 1
        return None

    # --- the host -----------------------------------------------------------------------------

    def _heard_host(self) -> bool:
        """Admit whom the host sends; say whether it is there still."""
        try:
            data, fds, *_ = socket.recv_fds(self._control, READ_SIZE, 16)
        except OSError:
            return False
        self._admitted += fds
        for payload in self._splitter.feed(data):
            message = self._decode(payload)
            if isinstance(message, relay.Admit) and self._admitted:
                sock = socket.socket(fileno=self._admitted.pop(0))
                sock.setblocking(False)
                self._admit(message.number, sock)
        return bool(data)

    def _admit(self, number: int, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BACKLOG)
        self._guests[sock.fileno()] = number, sock
        self._poll.register(sock, select.POLLIN)

    def _say(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):  # a host that is gone is heard of
            self._control.sendall(frames.encode(message))

    # --- a guest ------------------------------------------------------------------------------

    def _hear(self, fd: int) -> None:
        """Answer one request."""
        number, sock = self._guests[fd]
        self._asked[fd] = self._asked.get(fd, 0) + 1
        if self._asked[fd] >= MOST_IN_SLOT:
            self._poll.unregister(fd)
        try:
            packet, ancillary, flags, _ = sock.recvmsg(protocol.MOST)
            if not packet:
                self._let_go(fd)
            elif ancillary or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise WireError("a packet that is too large, or has a descriptor")  # noqa: TRY301
            else:
                self._answer(sock, protocol.request(packet))
        except BlockingIOError:
            self._breach(fd, number, "it does not read what the relay answers")
        except WireError as exc:
            self._breach(fd, number, f"{exc} for the relay")
        except OSError:
            self._let_go(fd)

    def _answer(self, sock: socket.socket, request: protocol.Resolve | protocol.Connect) -> None:
        """Do what is asked for, and hand over what comes of it. Raises OSError."""
        try:
            if isinstance(request, protocol.Resolve):
                given = self._resolve(request.name.lower().removesuffix("."))
            else:
                given = self._connect(request.address, request.port)
            _hand_over(sock, protocol.Answer(nonce=request.nonce), given)
        except Refused as refused:
            said = protocol.Answer(nonce=request.nonce, errno=refused.number, why=refused.why)
            sock.send(protocol.encode(said))

    def _resolve(self, name: str) -> int:
        """Return the end of a pipe from which the answer can be read. Raises Refused."""
        if not self._allowed.knows(name):
            self._say(relay.Judged(verdict="refused", host=name))
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
        address = addresses.read(text)
        if address is None or not self._allowed.reaches(address, port):
            self._say(relay.Judged(verdict="refused", host=text, port=port))
            raise Refused(errno.EACCES, f"{_written(text, port)} is not on the list")
        names = tuple(self._allowed.names(address, port))
        self._say(relay.Judged(verdict="reached", host=str(address), port=port, names=names))
        return _begun(address, port)

    def _breach(self, fd: int, number: int, detail: str) -> None:
        self._let_go(fd)
        self._say(relay.Breach(number=number, detail=detail))

    def _let_go(self, fd: int) -> None:
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
        if exc.errno != errno.ETOOMANYREFS:  # this user's, whoever of his processes sent them
            raise
        raise Refused(errno.ENOBUFS, "too many sockets are on their way") from None
    finally:
        os.close(given)


def _begun(address: IPAddress, port: int) -> int:
    """Begin to connect to this very address, whatever any name says by now. Raises Refused."""
    version = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    try:
        with socket.socket(version, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as made:
            error = made.connect_ex((str(address), port))
            if error in _BEGUN:
                return made.detach()
    except OSError as exc:
        error = exc.errno or errno.EMFILE
    raise Refused(error)


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def main(fd: int, host: int) -> None:
    """Serve until the host, whose pid is given, hangs up."""
    end_with_host(host)
    protect_host()
    set_process_name(b"cb-relay")
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    begin = _begin(control)
    allowed = addresses.Allowlist(begin.entries)
    try:
        Server(control, Names(allowed), allowed).serve()
    finally:
        os._exit(0)  # threads may be in the middle of a look-up


def _begin(control: socket.socket) -> relay.Begin:
    """Read the first frame, and not a byte of what comes after. Raises WireError."""
    decode: frames.Decoder[relay.ToRelay] = frames.Decoder(relay.ToRelay)
    size = int.from_bytes(_exactly(control, frames.HEADER))
    message = decode(_exactly(control, size))
    if not isinstance(message, relay.Begin):
        raise WireError("the first frame must be Begin")
    return message


def _exactly(control: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = control.recv(size - len(data))
        if not part:
            raise SystemExit(0)
        data += part
    return data
