"""The worker process that continues browsers' connections to servers in a session's network.

It enters the session's network, and gives up the rights that this took. Sockets that it makes from
then on reach the session's loopback, and nothing else. The sockets that it accepts connections at
are in the user's network: the host (``ports``) made them and sent them.

A connection begins with the browser's request, of which this process looks at the lines up to
``Host``. A request for another host is answered here (421), since it does not come from a page that
the user opened: a stranger's page can let its own name lead to the loopback (DNS rebinding), and
pages and cookies of the plain ``localhost`` are Jupyter's. A request for the right host goes
through unchanged, as does all that follows. Nothing that a guest writes is read.

The states of a connection, each with an end in time::

    asking      --> connecting  --> joined      --> half closed
    ASKING_         CONNECTING_     no limit        LEFT_SECONDS
    SECONDS         SECONDS                         without a byte

The number of connections is bounded, and so is that of connections still asking.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import select
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine import arch, libc, process
from cellblock.guest.confine.libc import LockFailed
from cellblock.host.guests.spawn import end_with_host, protect_host, set_process_name
from cellblock.host.services.ports import Enter, NotEntered, Open, Shut, ToPorts
from cellblock.host.services.relay import (
    FILES_EACH,
    KEEP_ALIVE,
    READ_SIZE,
    SPARE_FILES,
    Flow,
    Pipes,
    Sockets,
    bound_buffers,
    is_connected,
    joined,
    move,
    raise_file_limit,
)
from cellblock.policy.network import LOOPBACK
from cellblock.wire import frames

if TYPE_CHECKING:
    from collections.abc import Callable

# --- the network ----------------------------------------------------------------------------------

# <linux/sockios.h>, <linux/nsfs.h>, <linux/sched.h>
SIOCGSKNS: Final = 0x894C
NS_GET_USERNS: Final = 0xB701
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWNET: Final = 0x4000_0000


def enter(network: int) -> None:
    """Enter the network of a socket, and drop all capabilities in it. Raises OSError, LockFailed.

    That takes capabilities in the user namespace which owns the network, so that is entered first.
    """
    network_fd = fcntl.ioctl(network, SIOCGSKNS)
    owner = fcntl.ioctl(network_fd, NS_GET_USERNS)
    try:
        own = Path("/proc/self/ns/user").stat()
        if not os.path.samestat(os.fstat(owner), own):
            libc.setns(owner, CLONE_NEWUSER)
        libc.setns(network_fd, CLONE_NEWNET)
    finally:
        os.close(owner)
        os.close(network_fd)
    if (machine := arch.current()) is not None:
        process.drop_capabilities(machine)


# --- the head of a request ------------------------------------------------------------------------

#: Bytes within which a request must have its ``Host`` line: browsers send that as the second.
MOST_HEAD: Final = 8 << 10
_REQUEST_LINE: Final = re.compile(rb"[A-Z]{1,20} [!-~]+ HTTP/1\.[01]")


def is_for(head: bytes, hosts: tuple[str, ...]) -> bool | None:
    """Return whether a request is for one of ``hosts``; None until it has sent its ``Host`` line.

    ``head`` is what has come so far. Anything that is not HTTP is for none of them.
    """
    *lines, _ = head.split(b"\r\n")
    if lines and not _REQUEST_LINE.fullmatch(lines[0]):
        return False
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon:
            return False  # the head has ended without Host, or is malformed
        if name.lower() == b"host":
            return value.strip().lower().decode("latin-1") in hosts
    return None if head[:1].isupper() and len(head) < MOST_HEAD else False


def _answer(status: str, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


ELSEWHERE: Final = _answer(
    "421 Misdirected Request",
    "cellblock: this is not the address of a cell's server. Open the one that %ports shows.",
)


def nobody_listens(port: int) -> bytes:
    """Return the answer to a browser if no cell listens at the port."""
    text = f"cellblock: nothing listens at port {port} in this session. Run the cell that serves it"
    return _answer("502 Bad Gateway", f"{text}, then reload.")


# --- connections ----------------------------------------------------------------------------------

#: Connections of one session. Further ones wait until one of these has ended.
MAX_CONNECTIONS: Final = 256
#: Connections that are still asking. Beyond that, the oldest of them is ended for a new one.
MOST_ASKING: Final = 64
#: Seconds for a request to send its ``Host`` line, and for a server to accept a connection.
ASKING_SECONDS: Final = 10.0
CONNECTING_SECONDS: Final = 10.0
#: Seconds without a byte after which a connection ends of which one side has stopped sending.
LEFT_SECONDS: Final = 60.0
_LONGEST_WHY: Final = 500
#: Seconds without accepting connections after accept(2) has failed, for lack of descriptors say.
REST_SECONDS: Final = 0.1


@dataclass(eq=False, slots=True)
class Served:
    """A port, the sockets at which browsers connect to it, and the hosts that they may ask for."""

    port: int
    hosts: tuple[str, ...]
    listeners: list[socket.socket]


@dataclass(eq=False, slots=True)
class Connection:
    """A browser's connection: ``near`` is the browser's socket, ``far`` the one to the server.

    ``far`` is None until the browser's request names its host. ``flows`` is empty until both are
    joined.
    """

    served: Served
    near: socket.socket
    #: The monotonic time at which the connection ends if its state is the same; None if joined.
    ends: float | None
    targets: list[str] = field(default_factory=lambda: list(LOOPBACK))
    far: socket.socket | None = None
    flows: tuple[Flow, ...] = ()
    #: Whether a side has stopped sending, and how many bytes had been moved at the last look.
    has_left: bool = False
    moved: int = 0

    @property
    def is_asking(self) -> bool:
        """Whether the request's ``Host`` line has yet to come."""
        return self.far is None


class Server:
    """The server of one session's ports: one thread around an epoll.

    ``control`` is the socket to the host. ``enter`` enters the network of a descriptor; nothing is
    served before it has returned.
    """

    def __init__(self, control: socket.socket, enter: Callable[[int], None] = enter) -> None:
        self._control = control
        self._pipes = Pipes()
        self._enter_network = enter
        self._has_entered = False
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[ToPorts] = frames.Decoder(ToPorts)
        self._epoll = select.epoll()
        self._epoll.register(control.fileno(), select.EPOLLIN)
        #: Descriptors that came before their message was complete, in order.
        self._received: list[int] = []
        self._served: dict[int, Served] = {}
        self._listeners: dict[int, tuple[socket.socket, Served]] = {}
        #: All connections, oldest first.
        self._all: dict[Connection, None] = {}
        self._sockets: Sockets[Connection] = Sockets(self._epoll)
        #: Whether the listeners are in the epoll, and the monotonic time before which they are not,
        #: after accept(2) has failed.
        self._is_accepting = True
        self._rests_until = 0.0
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(MAX_CONNECTIONS, max(1, (files - SPARE_FILES) // FILES_EACH))

    def serve(self) -> None:
        """Serve until the host hangs up."""
        while True:
            for fd, events in self._epoll.poll(self._next_look()):
                if fd == self._control.fileno():
                    if not self._read_control():
                        return
                elif fd in self._listeners:
                    self._accept(fd)
                elif (connection := self._sockets.owner(fd)) is not None:
                    connection.has_left |= bool(connection.flows and events & select.EPOLLRDHUP)
                    self._serve(connection, events)
            self._apply_time()
            self._sockets.close_forgotten()

    # --- time ---------------------------------------------------------------------------------

    def _next_look(self) -> float | None:
        """Return the seconds until a time is due, None without one: the timeout of the epoll."""
        times_due = [each.ends for each in self._all if each.ends is not None]
        times_due += (
            [self._rests_until] if not self._is_accepting and len(self._all) < self._most else []
        )
        return max(0.0, min(times_due) - time.monotonic()) if times_due else None

    def _apply_time(self) -> None:
        """End connections whose time is over, and accept new ones or not."""
        now_seconds = time.monotonic()
        for connection in [each for each in self._all if each.ends is not None]:
            if connection.ends is not None and connection.ends <= now_seconds:
                self._end(connection, reset=True)
        is_accepting = len(self._all) < self._most and now_seconds >= self._rests_until
        if is_accepting != self._is_accepting:
            self._is_accepting = is_accepting
            for fd in self._listeners:
                if is_accepting:
                    self._epoll.register(fd, select.EPOLLIN)
                else:
                    self._epoll.unregister(fd)

    # --- the host -----------------------------------------------------------------------------

    def _read_control(self) -> bool:
        """Handle messages of the host. Return False if it has hung up, or nothing can be served."""
        try:
            data, fds, *_ = socket.recv_fds(self._control, READ_SIZE, 16)
        except OSError:
            return False
        for fd in fds:
            os.set_inheritable(fd, False)
        self._received += fds
        for payload in self._splitter.feed(data):
            match self._decode(payload):
                case Enter():
                    if not self._enter(self._received.pop(0)):
                        return False
                case Open() as message:
                    if not self._has_entered:
                        return False
                    self._open(message)
                case Shut(port=port):
                    self._shut(port)
        return bool(data)

    def _enter(self, network: int) -> bool:
        try:
            self._enter_network(network)
        except (OSError, LockFailed) as error:
            self._control.sendall(frames.encode(NotEntered(why=str(error)[:_LONGEST_WHY])))
            return False
        finally:
            os.close(network)
        self._has_entered = True
        return True

    def _open(self, message: Open) -> None:
        fds, self._received = (
            self._received[: message.listeners],
            self._received[message.listeners :],
        )
        listeners = [socket.socket(fileno=fd) for fd in fds]
        served = Served(message.port, message.hosts, listeners)
        self._served[message.port] = served
        for listener in listeners:
            listener.setblocking(False)
            self._listeners[listener.fileno()] = listener, served
            if self._is_accepting:
                self._epoll.register(listener, select.EPOLLIN)

    def _shut(self, port: int) -> None:
        served = self._served.pop(port, None)
        if served is None:
            return
        for listener in served.listeners:
            if self._is_accepting:
                self._epoll.unregister(listener)
            del self._listeners[listener.fileno()]
            self._sockets.close_later(listener)
        for connection in [each for each in self._all if each.served is served]:
            self._end(connection, reset=True)

    # --- a connection -------------------------------------------------------------------------

    def _accept(self, fd: int) -> None:
        listener, served = self._listeners[fd]
        if len(self._all) >= self._most:
            return  # _apply_time stops accepting at the end of this round
        try:
            near, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # there are no descriptors, or the browser has gone
            self._rests_until = time.monotonic() + REST_SECONDS
            return
        near.setblocking(False)
        bound_buffers(near)
        for level, option, value in KEEP_ALIVE:
            near.setsockopt(level, option, value)
        asking = [each for each in self._all if each.is_asking]
        if len(asking) >= MOST_ASKING:
            self._end(asking[0], reset=True)
        connection = Connection(served, near, time.monotonic() + ASKING_SECONDS)
        self._all[connection] = None
        # Edge-triggered: _look_at_request peeks at the data and leaves it in the socket, so a
        # level-triggered event would come again at once.
        events = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
        self._sockets.add(near, connection, events)

    def _serve(self, connection: Connection, events: int) -> None:
        if connection.is_asking:
            self._look_at_request(connection, events)
        elif not connection.flows:
            self._go_on_connecting(connection, events)
        elif not move(connection.flows) or events & (select.EPOLLERR | select.EPOLLPRI):
            self._end(connection, reset=True)
            return
        if connection.flows:
            self._wait_for_more(connection)

    def _look_at_request(self, connection: Connection, events: int) -> None:
        """Connect to the server if the request is for the right host, or answer it here."""
        try:
            head = connection.near.recv(MOST_HEAD, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            head = b""
        is_ours = is_for(head, connection.served.hosts)
        if is_ours:
            self._try_next(connection)
        elif is_ours is not None:
            self._end_with(connection, ELSEWHERE)
        elif events & select.EPOLLRDHUP:
            self._end(connection)

    def _try_next(self, connection: Connection) -> None:
        """Connect to the next address of the session's loopback, or answer that nobody listens."""
        self._forget_far(connection)
        while connection.targets:
            target = connection.targets.pop(0)
            family = socket.AF_INET6 if ":" in target else socket.AF_INET
            try:
                far = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            except OSError:
                continue
            bound_buffers(far)
            error = far.connect_ex((target, connection.served.port))
            if error not in (0, errno.EINPROGRESS):
                far.close()
                continue
            connection.far = far
            connection.ends = time.monotonic() + CONNECTING_SECONDS
            self._sockets.wait(connection.near, 0)
            self._sockets.add(far, connection, select.EPOLLOUT)
            return
        self._end_with(connection, nobody_listens(connection.served.port))

    def _go_on_connecting(self, connection: Connection, events: int) -> None:
        """Join both sockets if the server has accepted, or try the next address."""
        far = connection.far
        if far is None:
            return
        if far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._try_next(connection)
        elif is_connected(far):
            connection.ends = None
            connection.flows = joined(connection.near, far, self._pipes)
        elif events & (select.EPOLLHUP | select.EPOLLERR):
            self._end(connection, reset=True)  # the browser has gone

    def _wait_for_more(self, connection: Connection) -> None:
        """Wait for the events that move more bytes of a joined connection, or end it."""
        up, down = connection.flows
        if up.is_done and down.is_done:
            self._end(connection)
            return
        for out, back in ((up, down), (down, up)):
            # At each socket: more to read for one direction, or room to write for the other.
            events = select.EPOLLIN | select.EPOLLPRI if out.reads else 0
            events |= select.EPOLLOUT if back.held else 0
            # A side may stop sending while nothing is read from it.
            events |= 0 if connection.has_left else select.EPOLLRDHUP
            self._sockets.wait(out.source, events, without_hang_up=True)
        moved = up.moved + down.moved
        if connection.has_left and (connection.ends is None or moved != connection.moved):
            connection.ends = time.monotonic() + LEFT_SECONDS
        connection.moved = moved

    def _end_with(self, connection: Connection, answer: bytes) -> None:
        """Answer a browser in the server's place, and end its connection."""
        near = connection.near
        with contextlib.suppress(OSError):
            # Closing a socket with unread data resets the connection, and the answer is lost.
            near.recv(READ_SIZE)
            near.send(answer)
            near.shutdown(socket.SHUT_WR)
        self._end(connection)

    def _end(self, connection: Connection, *, reset: bool = False) -> None:
        """End a connection. With ``reset``, both sides get an error rather than an orderly end."""
        for flow in connection.flows:
            flow.close()
        self._forget_far(connection, reset=reset)
        self._sockets.forget(connection.near, reset=reset)
        self._all.pop(connection, None)

    def _forget_far(self, connection: Connection, *, reset: bool = False) -> None:
        if connection.far is not None:
            self._sockets.forget(connection.far, reset=reset)
            connection.far = None


def main(fd: int, host: int) -> None:
    """Serve until the host, whose pid is given, hangs up."""
    end_with_host(host)
    protect_host()
    set_process_name(b"cb-ports")
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    raise_file_limit()

    def enter_for_good(network: int) -> None:
        enter(network)
        # A change of credentials clears the signal at the parent's end, and may make the process
        # dumpable again (prctl(2)).
        end_with_host(host)
        protect_host()

    try:
        Server(control, enter_for_good).serve()
    finally:
        os._exit(0)
