"""A guest's client of the relay: Python's own ``socket``, patched under a list of addresses.

The filter lets a guest make TCP sockets and connect none: the host makes the connections, and hands
them in. ``connect`` asks the relay, which answers with a socket that is connecting, and that takes
the place of the one it was asked for. Names are looked up by the relay, too. What opens sockets in
native code meets the refusal.

Nothing is decided here: this is the hostile side. Source: unix(7), recvmsg(2), connect(2),
getaddrinfo(3).
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import socket
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.descriptors import closing
from cellblock.errors import WireError
from cellblock.guest.host_services import Turns
from cellblock.wire import relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


#: MSG_CMSG_CLOEXEC (recvmsg(2)), which Python's socket module does not name.
_CLOSE_ON_EXEC: Final = 0x40000000
#: Milliseconds that the relay has for an answer, which it gives at once.
_TIMEOUT: Final = 10_000


class Network:
    """The client of this guest; made in the zygote, begun in the guest."""

    def __init__(self) -> None:
        self._sock: Any = None
        self._turns: Turns | None = None
        self._none_listed = False

    def begin(self, fd: int) -> None:
        """Use this descriptor from now on."""
        self._sock = _socket.socket(fileno=fd)
        self._turns = Turns()

    def reset_after_fork(self, fds: list[int]) -> None:
        """Use this descriptor in a copy, and don't wait for the original's threads."""
        if self._sock is None or self._turns is None:
            return
        for fd in fds:
            os.dup2(fd, self._sock.fileno(), inheritable=False)
            os.close(fd)
        self._turns.close()
        self._turns = Turns()

    def end(self) -> None:
        """Refuse everything: the list has become empty."""
        self._none_listed = True

    def connecting(self, address: str, port: int) -> int:
        """Return the descriptor of a socket that is connecting. Raises OSError."""
        nonce = os.urandom(relay.NONCE)
        return self._ask(relay.Connect(nonce=nonce, address=address, port=port))

    def resolve(self, name: str) -> tuple[str, ...]:
        """Return where a listed name is. Raises socket.gaierror."""
        try:
            pipe = self._ask(relay.Resolve(nonce=os.urandom(relay.NONCE), name=name))
        except PermissionError as exc:
            raise socket.gaierror(socket.EAI_FAIL, exc.strerror) from None
        try:
            found = relay.found(_read_all(pipe))
        except WireError:
            raise socket.gaierror(socket.EAI_AGAIN, "cellblock's relay has ended") from None
        finally:
            os.close(pipe)
        if found.error:
            raise socket.gaierror(found.error, found.why)
        return found.addresses

    def _ask(self, request: relay.Resolve | relay.Connect) -> int:
        if self._none_listed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if self._sock is None or self._turns is None:
            raise OSError(errno.ENETDOWN, "cellblock's relay is not there")
        with self._turns:
            # Answers to whom was interrupted, or is no more, would keep this one from coming.
            while self._has_answer(0):
                _close(self._receive()[1])
            self._sock.send(relay.encode(request))
            while True:
                answer, fds = self._receive()
                if answer.nonce == request.nonce:
                    break
                _close(fds)
        if answer.errno:
            raise OSError(answer.errno, answer.why or os.strerror(answer.errno))
        if not fds:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return fds[0]

    def _has_answer(self, milliseconds: int) -> bool:
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        return bool(poll.poll(milliseconds))

    def _receive(self) -> tuple[relay.Answer, list[int]]:
        if not self._has_answer(_TIMEOUT):
            raise TimeoutError(errno.ETIMEDOUT, "cellblock's relay does not answer")
        packet, fds, *_ = socket.recv_fds(self._sock, relay.MOST, 1, _CLOSE_ON_EXEC)
        try:
            return relay.answer(packet), fds
        except WireError:
            _close(fds)
            raise OSError(errno.ENETDOWN, "cellblock's relay has ended") from None


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _read_all(pipe: int) -> bytes:
    """Wait for what comes through a pipe; it does not block, for it was the relay's."""
    data, poll = b"", select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll() and (part := os.read(pipe, relay.MOST_FOUND)):
        data += part
    return data


_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
#: What may be set before a socket is connected, and would be lost with it.
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
)
_LONGEST_NAME: Final = 253
#: Bytes of one ``sendmsg``, which the filter does not let through, that are sent as ``send``.
_MOST_SENT: Final = 1 << 20


def patch_sockets() -> Network:
    """Make Python's sockets connect by the relay. For the zygote, before any fork."""
    network = Network()
    patched: Any = socket.socket
    patched.connect = _connect(network, patched.connect)
    patched.connect_ex = _connect_ex(network, patched.connect_ex)
    patched.sendmsg = _sendmsg(patched.sendmsg)
    socket.getaddrinfo = _getaddrinfo(network, socket.getaddrinfo)
    socket.gethostbyname = _gethostbyname
    socket.gethostbyname_ex = _gethostbyname_ex
    return network


def _connect(network: Network, original: Callable[..., None]) -> Callable[..., None]:
    def connect(self: socket.socket, address: Any) -> None:
        """Connect the socket to a remote address, by way of cellblock's relay."""
        if self.family not in _INTERNET or not isinstance(address, tuple):
            return original(self, address)
        error = _start(network, self, address)
        if error == errno.EINPROGRESS and self.gettimeout() != 0:
            error = _wait(self)
            if error == errno.ETIMEDOUT and self.gettimeout() is not None:
                raise TimeoutError("timed out")
        if error:
            raise OSError(error, os.strerror(error))
        return None

    return connect


def _connect_ex(network: Network, original: Callable[..., int]) -> Callable[..., int]:
    def connect_ex(self: socket.socket, address: Any) -> int:
        """Connect as ``connect`` does, but return an error's number instead of raising it."""
        if self.family not in _INTERNET or not isinstance(address, tuple):
            return original(self, address)
        try:
            error = _start(network, self, address)
        except socket.gaierror:
            raise
        except OSError as exc:
            return exc.errno or errno.ENETDOWN
        if error == errno.EINPROGRESS and self.gettimeout() != 0:
            return _wait(self) or 0
        return error

    return connect_ex


def _start(network: Network, sock: socket.socket, address: Any) -> int:
    """Start to connect a socket; return EINPROGRESS, or the error of what it is already.

    Raises OSError where it may not, or can't.
    """
    if state := _connect_error(sock):
        return state
    host, port = address[:2]
    (found, *_) = socket.getaddrinfo(host, port, sock.family, socket.SOCK_STREAM)
    with closing(network.connecting(str(found[4][0]), int(found[4][1]))) as given:
        _replace(given, sock)
    return errno.EINPROGRESS


def _connect_error(sock: socket.socket) -> int:
    """Return what connect(2) would of a socket that is not fresh, else 0; see tcp_poll."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLOUT)
    events = dict(poll.poll(0)).get(sock.fileno(), 0)
    if not events:
        return errno.EALREADY
    if events & select.POLLHUP:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.EISCONN


def _replace(given: int, sock: socket.socket) -> None:
    """Replace a socket by one that was handed in, with the options of the former."""
    fresh = _socket.socket(fileno=given)
    try:
        for level, option in _OPTIONS:
            value = sock.getsockopt(level, option)
            if value != fresh.getsockopt(level, option):
                fresh.setsockopt(level, option, value)
    finally:
        fresh.detach()
    os.set_blocking(given, sock.gettimeout() is None)
    os.dup2(given, sock.fileno(), inheritable=sock.get_inheritable())


def _wait(sock: socket.socket) -> int:
    """Wait until a socket is connected, or is not going to be; return an error's number."""
    seconds = sock.gettimeout()
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLOUT)
    if not poll.poll(None if seconds is None else seconds * 1_000):
        return errno.ETIMEDOUT
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _sendmsg(original: Callable[..., int]) -> Callable[..., int]:
    def sendmsg(
        self: socket.socket,
        buffers: Iterable[Any],
        ancdata: Iterable[Any] = (),
        flags: int = 0,
        address: Any = None,
    ) -> int:
        """Send buffers; of many, as much as is sent at once."""
        ancdata = list(ancdata)
        if ancdata or address is not None:
            return original(self, buffers, ancdata, flags, address)
        joined = bytearray()
        for buffer in buffers:
            joined += buffer
            if len(joined) >= _MOST_SENT:
                break
        return self.send(bytes(joined), flags)

    return sendmsg


def _getaddrinfo(network: Network, original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def getaddrinfo(
        host: Any,
        port: Any,
        family: int = 0,
        type: int = 0,  # noqa: A002 - its callers' name for it
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Resolve host and port into list of address info entries, by way of cellblock's relay."""
        # Without netlink the C library does not know which families there are.
        numeric = (flags & ~socket.AI_ADDRCONFIG) | socket.AI_NUMERICHOST
        rest = family, type, proto
        try:
            return original(host, port, *rest, numeric if host is not None else flags)
        except socket.gaierror as exc:
            if exc.errno != socket.EAI_NONAME or flags & socket.AI_NUMERICHOST:
                raise
        found = []
        for address in network.resolve(_encoded(host)):
            if family in (0, socket.AF_INET6 if ":" in address else socket.AF_INET):
                found += original(address, port, *rest, numeric)
        return found or _nowhere(host)

    return getaddrinfo


def _encoded(host: Any) -> str:
    name = host.decode("ascii") if isinstance(host, bytes | bytearray) else str(host)
    if not name.isascii():
        name = name.encode("idna").decode("ascii")
    return name if 0 < len(name) <= _LONGEST_NAME else _nowhere(host)


def _nowhere(host: Any) -> NoReturn:
    raise socket.gaierror(socket.EAI_NONAME, f"{host!r} has no such address")


def _gethostbyname(hostname: str) -> str:
    """Return the IPv4 address of a host."""
    return str(socket.getaddrinfo(hostname, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def _gethostbyname_ex(hostname: str) -> tuple[str, list[str], list[str]]:
    """Return a host's name, other names and IPv4 addresses."""
    found = socket.getaddrinfo(hostname, None, socket.AF_INET, socket.SOCK_STREAM)
    return hostname, [], [str(address[0]) for *_, address in found]
