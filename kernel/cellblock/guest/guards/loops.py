"""Takes sockets, processes and foreign descriptors out of asyncio's event loops.

A cell may hold its loop: ``get_running_loop`` is honest. So what the loop could do for it is
refused in the loop's own classes, and the loop's sockets and selector are kept where only asyncio
and the guest find them.
"""

from __future__ import annotations

import weakref
from asyncio import base_events, selector_events, unix_events
from typing import TYPE_CHECKING, Any

from cellblock.guest.guards import trust
from cellblock.guest.guards.access import refusal
from cellblock.guest.guards.immutable import freeze
from cellblock.guest.guards.violations import OperationViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Judge = Callable[[int, str], bool]

#: Refused to everyone: nothing in a guest needs them.
_REFUSED = (
    "connect_accepted_socket connect_read_pipe connect_write_pipe create_connection "
    "create_datagram_endpoint create_server create_unix_connection create_unix_server getaddrinfo "
    "getnameinfo sendfile sock_accept sock_connect sock_recv sock_recv_into sock_recvfrom "
    "sock_recvfrom_into sock_sendall sock_sendfile sock_sendto start_tls subprocess_exec "
    "subprocess_shell"
)
#: Likewise, by how their names begin: each takes the loop's word for what a descriptor is.
_REFUSED_PRIVATE = (
    "_accept_",
    "_connect_",
    "_create_",
    "_make_",
    "_sendfile_",
    "_sock_",
    "_start_",
    "_stop_",
)
#: For asyncio itself and the guest, which waits for its channel.
_INTERNAL = (
    "_add_reader _add_writer _make_self_pipe _remove_reader _remove_writer add_reader "
    "add_signal_handler add_writer remove_reader remove_signal_handler remove_writer"
)
_HIDDEN = ("_csock", "_selector", "_ssock")
_CLASSES = (
    base_events.BaseEventLoop,
    selector_events.BaseSelectorEventLoop,
    unix_events._UnixSelectorEventLoop,  # noqa: SLF001 - what SelectorEventLoop is
)


def harden() -> None:
    """Harden the loop classes. Call once, before any loop is made."""
    is_own, _, says = trust.operators()
    names = ("base_events", "selector_events", "unix_events")
    is_asyncio = trust.from_files(*(f"asyncio.{name}" for name in names))

    def is_internal(depth: int, name: str) -> bool:
        # asyncio also runs what it was handed: a task factory, an exception handler.
        return (is_asyncio(depth + 1) and says(depth + 1, (name,))) or is_own(depth + 1)

    for kind in _CLASSES:
        for name, value in list(kind.__dict__.items()):
            if name in _INTERNAL.split():
                setattr(kind, name, _restrict(name, value, is_internal))
            elif name in _REFUSED.split() or name.startswith(_REFUSED_PRIVATE):
                setattr(kind, name, _refuse(name))
    for name in _HIDDEN:
        setattr(selector_events.BaseSelectorEventLoop, name, hidden(name, is_internal))
    _keep_from_subclasses(is_own)
    for kind in _CLASSES:
        freeze(kind)


def _keep_from_subclasses(is_own: Callable[[int], bool]) -> None:
    """Refuse loops of cells' own classes: their attributes would take the place of hidden ones."""
    base = base_events.BaseEventLoop
    known = weakref.WeakSet[type](_descendants(base))
    make = base.__init__

    def __init_subclass__(cls: type, /, **keys: object) -> None:  # noqa: N807 - it is that method
        super(base, cls).__init_subclass__(**keys)  # type: ignore[misc]
        if not is_own(1):
            raise _no_operation("a class of loops")
        known.add(cls)

    def __init__(self: Any) -> None:  # noqa: N807 - as above
        if type(self) not in known:
            raise _no_operation("a class of loops")
        make(self)

    setattr(base, "__init_subclass__", classmethod(__init_subclass__))  # noqa: B010
    setattr(base, "__init__", __init__)  # noqa: B010


def _descendants(kind: type) -> Iterator[type]:
    yield kind
    below: type
    for below in kind.__subclasses__():
        yield from _descendants(below)


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*_args: object, **_kwargs: object) -> None:
        raise _no_operation(f"loop.{name}")

    refused.__name__ = refused.__qualname__ = name
    return refused


def _no_operation(what: str) -> OperationViolation:
    why, remedy = "reaches processes, sockets or descriptors", "Ask the host for an operation."
    return OperationViolation("operation-not-allowed", what, why, remedy)


def _restrict(name: str, real: Callable[..., Any], is_internal: Judge) -> Callable[..., Any]:
    def restricted(self: Any, *args: Any) -> Any:
        if not is_internal(1, name):
            raise refusal(name)
        return real(self, *args)

    restricted.__name__ = restricted.__qualname__ = name
    return restricted


def hidden(name: str, admitted: Judge) -> property:
    """Return an attribute whose values only the ``admitted`` see, not in ``__dict__`` either."""
    values: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def read(self: Any) -> Any:
        if not admitted(1, name):
            raise refusal(name)
        return values[self]

    def write(self: Any, value: Any) -> None:
        if not admitted(1, name):
            raise refusal(name)
        values[self] = value

    return property(read, write)
