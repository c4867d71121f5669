"""A session's relay: one for the list of addresses that is in force, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.relay.reach import Account, Reach
    from cellblock.host.session.types import Reactor


class Link:
    """Has a relay for ``addresses``, while there are any.

    ``breach`` gets what a guest did against the relay's rules, ``told`` what guests asked for.
    """

    def __init__(
        self,
        reactor: Reactor,
        addresses: tuple[str, ...],
        breach: Callable[[str], None],
        told: Callable[[Account], None],
    ) -> None:
        self._reactor, self._breach, self._told = reactor, breach, told
        self._addresses: tuple[str, ...] = ()
        self._reach: Reach | None = None
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

    def _started(self) -> Reach:
        from cellblock.host.relay.reach import Reach  # noqa: PLC0415 - most sessions have none

        reach = Reach(self._reactor, self._addresses, self._breach)
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
