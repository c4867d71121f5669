"""A guest's way to the relay: it asks for connections, and for where names are.

The filter lets a guest make TCP sockets and connect none: under a list of addresses the host makes
connections, and hands them in. What asks here is Python's own ``socket`` (``guest.sockets``).

Nothing is decided here: this is the hostile side. Source: unix(7), recvmsg(2).
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import socket
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import WireError
from cellblock.guest.turns import Turns
from cellblock.wire import relay

if TYPE_CHECKING:
    from collections.abc import Iterable

#: MSG_CMSG_CLOEXEC (recvmsg(2)), which Python's socket module does not name.
_CLOSE_ON_EXEC: Final = 0x40000000
#: Milliseconds that the relay has for an answer, which it gives at once.
_PATIENCE: Final = 10_000


class Network:
    """This guest's way to the relay; made in the zygote, begun in the guest."""

    def __init__(self) -> None:
        self._sock: Any = None
        self._turns: Turns | None = None
        self._none_listed = False

    def begin(self, fd: int) -> None:
        """Ask at this descriptor from now on."""
        self._sock = _socket.socket(fileno=fd)
        self._turns = Turns()

    def renew(self, fds: list[int]) -> None:
        """Ask at this one instead, and wait for nobody who asked before: as a copy that serves."""
        if self._sock is None or self._turns is None:
            return
        for fd in fds:
            os.dup2(fd, self._sock.fileno(), inheritable=False)
            os.close(fd)
        self._turns.close()
        self._turns = Turns()

    def end(self) -> None:
        """Ask nobody any more: the list has become empty."""
        self._none_listed = True

    def connecting(self, address: str, port: int) -> int:
        """Return the descriptor of a socket that is connecting. Raises OSError."""
        return self._ask(relay.Connect(nonce=_nonce(), address=address, port=port))

    def resolve(self, name: str) -> tuple[str, ...]:
        """Return where a listed name is. Raises socket.gaierror."""
        try:
            pipe = self._ask(relay.Resolve(nonce=_nonce(), name=name))
        except PermissionError as exc:
            raise socket.gaierror(socket.EAI_FAIL, exc.strerror) from None
        try:
            found = relay.found(_all(pipe))
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
            while self._is_answered(0):
                _close(self._answer()[1])
            self._sock.send(relay.encode(request))
            while True:
                answer, fds = self._answer()
                if answer.nonce == request.nonce:
                    break
                _close(fds)
        if answer.errno:
            raise OSError(answer.errno, answer.why or os.strerror(answer.errno))
        if not fds:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return fds[0]

    def _is_answered(self, milliseconds: int) -> bool:
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        return bool(poll.poll(milliseconds))

    def _answer(self) -> tuple[relay.Answer, list[int]]:
        if not self._is_answered(_PATIENCE):
            raise TimeoutError(errno.ETIMEDOUT, "cellblock's relay does not answer")
        packet, fds, *_ = socket.recv_fds(self._sock, relay.MOST, 1, _CLOSE_ON_EXEC)
        try:
            return relay.answer(packet), fds
        except WireError:
            _close(fds)
            raise OSError(errno.ENETDOWN, "cellblock's relay has ended") from None


def _nonce() -> bytes:
    return os.urandom(relay.NONCE)


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _all(pipe: int) -> bytes:
    """Wait for what comes through a pipe; it does not block, for it was the relay's."""
    data, poll = b"", select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll() and (part := os.read(pipe, relay.MOST_FOUND)):
        data += part
    return data
