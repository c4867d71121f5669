"""A session's relay: one for the list of addresses that is in force, or none."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from cellblock.host.guests.worker_process import Worker
from cellblock.wire.messages import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.session.types import Reactor


class SessionRelay:
    """Has a relay for ``addresses``, while there are any.

    ``breach`` gets what a guest did against the relay's rules, ``told`` what guests asked for.
    """

    def __init__(
        self,
        reactor: Reactor,
        addresses: tuple[str, ...],
        breach: Callable[[str], None],
        told: Callable[[RelayCounts], None],
    ) -> None:
        self._reactor, self._breach, self._told = reactor, breach, told
        self._addresses: tuple[str, ...] = ()
        self._reach: Relay | None = None
        self.hold_to(addresses)

    def hold_to(self, addresses: tuple[str, ...]) -> None:
        """Have a relay for these, and for nobody who serves now: a way is for one list."""
        if addresses == self._addresses:
            return
        self.account()
        if self._reach is not None:
            self._reach.close()
        self._addresses = addresses
        self._reach = self._started() if addresses else None

    def _started(self) -> Relay:

        reach = Relay(self._reactor, self._addresses, self._breach)
        reach.start()
        return reach

    def way(self) -> list[int]:
        """Return the descriptor at which a new guest asks, if there is a relay. Raises OSError."""
        return [] if self._reach is None else [self._reach.admit()]

    def made_connections(self, before: Callable[[], bool]) -> bool:
        """Say whether the guest got a connection since the last question, or had one before."""
        return self._reach is not None and (self._reach.reached() or before())

    def account(self) -> None:
        """Tell what was asked for since the last account."""
        if self._reach is not None:
            self._told(self._reach.account())


# What a session and its relay say to each other, over a socket of their own.


class Begin(Struct, tag="begin", frozen=True, kw_only=True):
    """First: the policy's entries."""

    entries: tuple[str, ...]


class Admit(Struct, tag="admit", frozen=True, kw_only=True):
    """Serve a guest: the relay's end of its socket travels with this frame (SCM_RIGHTS)."""

    number: int


class Judged(Struct, tag="judged", frozen=True, kw_only=True):
    """A guest asked for a connection, or was refused a name (port 0); told before it is answered.

    ``names`` are the listed ones that led there; ``host`` is a guest's own word if it is refused.
    """

    verdict: Literal["reached", "refused"]
    host: str
    port: int = 0
    names: tuple[str, ...] = ()


class Breach(Struct, tag="breach", frozen=True, kw_only=True):
    """A guest said what is no request, or does not read; it is not served any more."""

    number: int
    detail: str


ToRelay = Begin | Admit
FromRelay = Judged | Breach


# A session's end of its relay: guests are admitted, what they asked for is on the record.

_MODULE: Final = "cellblock.host.services.network.relay_server"
#: Relays in a row that may end before one has served.
MOST_STARTS: Final = 3
#: Addresses of an account that are told; of the others, how often.
MOST_TOLD: Final = 50


@dataclass(frozen=True, slots=True)
class RelayCounts:
    """What guests asked for since the last one: how often, by address as it is written."""

    reached: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    #: Requests for addresses that are not told.
    others: int = 0

    def __bool__(self) -> bool:
        return bool(self.reached or self.refused or self.others)


class Relay:
    """One relay, replaced if it ends. ``breach`` gets what a guest did against the rules."""

    def __init__(
        self, reactor: Reactor, entries: tuple[str, ...], breach: Callable[[str], None]
    ) -> None:
        self._reactor, self._entries, self._breach = reactor, entries, breach
        self._worker: Worker[FromRelay] | None = None
        self._starts = self._admitted = 0
        #: The guest that is served, by number, and the relay's end of its socket.
        self._serving: tuple[int, int] | None = None
        #: It got a connection.
        self._used = False
        self._reached, self._refused = Counter[str](), Counter[str]()
        self._others = 0

    def start(self) -> None:
        """Have a relay come up; what fails is tried again when a guest is admitted."""
        with contextlib.suppress(OSError):
            self._running()

    def admit(self) -> int:
        """Return the descriptor at which a new guest asks, or a snapshot that is to take over.

        Whoever was before it is not served any more. Raises OSError where none can be made, or no
        relay.
        """
        worker = self._running()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._drop()
            self._admitted += 1
            self._serving, self._used = (self._admitted, ours.detach()), False
            worker.send_with(Admit(number=self._admitted), [self._serving[1]])
            return theirs.detach()

    def reached(self) -> bool:
        """Say whether the guest was connected to anybody since this was asked last."""
        if self._worker is not None:
            self._worker.hear()
        used, self._used = self._used, False
        return used

    def account(self) -> RelayCounts:
        """Return what was asked for since the last account: all that a cell did which has ended."""
        if self._worker is not None:
            self._worker.hear()
        told = RelayCounts(dict(self._reached), dict(self._refused), self._others)
        self._reached.clear()
        self._refused.clear()
        self._others = 0
        return told

    def close(self) -> None:
        """End the relay; connections that were handed in end with their guests."""
        self._starts = MOST_STARTS
        self._drop()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _drop(self) -> None:
        if self._serving is not None:
            os.close(self._serving[1])
            self._serving = None

    def _running(self) -> Worker[FromRelay]:
        if self._worker is None:
            self._worker = Worker(
                self._reactor, _MODULE, FromRelay, self._on_message, self._on_lost
            )
            self._worker.send(Begin(entries=self._entries))
        return self._worker

    def _on_message(self, message: FromRelay) -> None:
        self._starts = 0
        if isinstance(message, Judged):
            self._judged(message)
        elif self._serving is not None and self._serving[0] == message.number:
            self._breach(message.detail)

    def _judged(self, message: Judged) -> None:
        self._used = self._used or message.verdict == "reached"
        tally = self._reached if message.verdict == "reached" else self._refused
        told = written(message)
        if told in tally or len(tally) < MOST_TOLD:
            tally[told] += 1
        else:
            self._others += 1

    def _on_lost(self, _why: str) -> None:
        """Serve the same guest by another relay; names have to be looked up again there."""
        self._worker = None
        self._starts += 1
        if self._serving is None:
            return
        number, fd = self._serving
        try:
            if self._starts >= MOST_STARTS:
                raise OSError  # noqa: TRY301 - as where none can be started
            self._running().send_with(Admit(number=number), [fd])
        except OSError:
            self._drop()  # so that nobody waits for an answer


def written(message: Judged) -> str:
    """Return an address as a record has it: ``93.184.216.34:443 (example.org)``."""
    host = f"[{message.host}]" if ":" in message.host else message.host
    place = f"{host}:{message.port}" if message.port else host
    return f"{place} ({', '.join(message.names)})" if message.names else place
