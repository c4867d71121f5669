"""A session's end of its relay: starts the process, admits guests, counts what they asked for."""

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


# Messages between the two, over a socket of their own.


class Begin(Struct, tag="begin", frozen=True, kw_only=True):
    """First: the policy's entries."""

    entries: tuple[str, ...]


class Admit(Struct, tag="admit", frozen=True, kw_only=True):
    """Serve a guest. The relay's end of its socket comes with this frame (SCM_RIGHTS)."""

    number: int


class Judged(Struct, tag="judged", frozen=True, kw_only=True):
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


class Breach(Struct, tag="breach", frozen=True, kw_only=True):
    """A guest sent nonsense, or does not read its answers. It is not served any more."""

    number: int
    detail: str


ToRelay = Begin | Admit
FromRelay = Judged | Breach

_MODULE: Final = "cellblock.host.services.relay_server"
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

    # --- the process --------------------------------------------------------------------------

    def _running(self) -> Worker[FromRelay]:
        if self._worker is None:
            self._worker = Worker(
                self._reactor, _MODULE, FromRelay, self._on_message, self._on_lost
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
