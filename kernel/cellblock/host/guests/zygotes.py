"""Where a session has its guests from: a zygote of its own, or one that a pool's sessions share."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from cellblock.host.guests import zygote
from cellblock.host.guests.zygote import Zygote, translation_for
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.host.guests.process import Guest
    from cellblock.host.session.types import Reactor

    Hear = Callable[[Any, int | None], None]
    Spawn = Callable[[], tuple[socket.socket, int]]


class Forker(Protocol):
    """A zygote as a keeper sees it; see ``Zygote``."""

    @property
    def folder(self) -> int | None:
        """A descriptor of its guests' folder, where that is nowhere outside."""

    def fork(self, guest: Guest) -> None:
        """Have a guest forked, under a number of its own."""

    def allow(self, lineage: int, pid: int | None) -> None:
        """Let the next fork of ``pid`` through, a guest or one of its copies; None is whoever."""

    def members(self, lineage: int, session: int, pids: tuple[int, ...]) -> None:
        """Say which processes there are to be in a guest's session."""

    def confine(self, guest: Guest, plan: messages.Plan, ticket: int) -> None:
        """Have the locks of a narrower plan made for a copy; ``Confined`` says what came of it."""

    def read_rest(self) -> None:
        """Take what it has said until now."""

    def serves(self, guest: Guest) -> None:
        """Take note that a snapshot is to serve."""

    def quit(self) -> bool:
        """Have all guests end that came from here, and leave their folder for the next zygote's.

        Say whether that is done, or asked of who is there to do it.
        """

    def end(self) -> bool:
        """Have all guests end that came from here; say whether they are gone, and their folder."""

    def kill(self) -> bool:
        """Let go of one that broke."""


class Zygotes(Protocol):
    """Whoever has zygotes."""

    def one(
        self, prepare: messages.Prepare, on_message: Hear, on_lost: Callable[[], None]
    ) -> Forker:
        """Return a zygote that prepares for this, or has. Raises OSError.

        ``on_message`` gets what it says of the keeper's own guests, with their pidfds.
        """


class Own:
    """A zygote for one keeper alone."""

    def __init__(self, reactor: Reactor, spawn: Spawn) -> None:
        self._reactor, self._spawn = reactor, spawn

    def one(
        self, prepare: messages.Prepare, on_message: Hear, on_lost: Callable[[], None]
    ) -> Zygote:
        """Start one. Raises OSError."""
        return _started(self._reactor, self._spawn, prepare, on_message, on_lost)


def _started(
    reactor: Reactor,
    spawn: Spawn,
    prepare: messages.Prepare,
    on_message: Hear,
    on_lost: Callable[[], None],
) -> Zygote:
    sock, pid = spawn()
    translation = translation_for(prepare.plan)
    zygote = Zygote(sock, pid, reactor, on_message, on_lost, translation)
    zygote.prepare(prepare)
    return zygote


class Shared:
    """One zygote of which several keepers have their guests; another when it is lost.

    It prepares for ``prepare``; what a keeper has for itself goes along with each fork.
    """

    def __init__(self, reactor: Reactor, spawn: Spawn, prepare: messages.Prepare) -> None:
        self._reactor, self._spawn, self._prepare = reactor, spawn, prepare
        self._zygote: Zygote | None = None
        self._seats: list[Seat] = []
        self._numbers = itertools.count(1)
        #: Who is told when nothing is left of a seat's guests.
        self._leaving: dict[int, Callable[[], None]] = {}

    @property
    def zygote(self) -> Zygote | None:
        """The one behind the guests, or None."""
        return self._zygote

    def warm(self) -> None:
        """Have one started and preparing. Raises OSError."""
        if self._zygote is None:
            self._zygote = _started(
                self._reactor, self._spawn, self._prepare, self._on_message, self._on_lost
            )

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...] = ()) -> None:
        """Have guests know these tools and folders of packages.

        They are the same for all seats, once the zygote is started.
        """
        self._prepare = msgspec.structs.replace(self._prepare, tools=tools, paths=paths)

    def leave(self, forks: tuple[int, ...], left: Callable[[], None]) -> None:
        """Have what descends from these forks ended; ``left`` is called when it is."""
        zygote = self._zygote
        if zygote is None:  # they went with it
            self._reactor.call_later(0, left)
            return
        number = next(self._numbers)
        self._leaving[number] = left
        zygote.leave(number, forks)

    def close(self) -> Zygote | None:
        """Take leave of the zygote, which ends with all guests; whoever waits, waits for that."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.hang_up()
        self._all_left()
        return zygote

    def join(self, seat: Seat) -> None:
        """Take note of a keeper's seat."""
        self._seats.append(seat)

    def part(self, seat: Seat) -> None:
        """Forget one."""
        if seat in self._seats:
            self._seats.remove(seat)

    def _on_message(self, message: Any, pidfd: int | None) -> None:
        match message:
            case messages.Forked(id=number, pid=pid):
                seat = next((seat for seat in self._seats if seat.has(number)), None)
                if seat is None:
                    zygote.kill(pid, pidfd)
                else:
                    seat.hear(message, pidfd)
            case messages.Left(id=number):
                self._leaving.pop(number, _nothing)()
            case _:
                for seat in tuple(self._seats):
                    seat.hear(message, None)

    def _on_lost(self) -> None:
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.kill()
        for seat in tuple(self._seats):
            seat.lose()
        self._all_left()

    def _all_left(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for left in leaving.values():
            left()


def _nothing() -> None: ...


class Seat:
    """One keeper's part in a shared zygote: ``Zygotes`` to it, and its ``Forker``.

    ``place`` is what its guests have for themselves, None where they have all that was prepared
    for. ``on_left`` is called once the keeper has ended and nothing is left of its guests.
    """

    def __init__(
        self,
        shared: Shared,
        place: messages.Place | None,
        on_left: Callable[[], None] = _nothing,
    ) -> None:
        self._shared, self._place, self._on_left = shared, place, on_left
        self._forks: set[int] = set()
        self._on_message: Hear | None = None
        self._on_lost: Callable[[], None] = _nothing

    def one(
        self, prepare: messages.Prepare, on_message: Hear, on_lost: Callable[[], None]
    ) -> Forker:
        """Have a part in the zygote there is, or a new one. Raises OSError."""
        self._shared.equip(prepare.tools, prepare.paths)
        self._shared.warm()
        self._on_message, self._on_lost = on_message, on_lost
        self._forks.clear()
        self._shared.join(self)
        return self

    # --- as the keeper's zygote ---------------------------------------------------------------

    @property
    def folder(self) -> int | None:
        """A descriptor of the guests' folder, where that is nowhere outside."""
        return self._shared.zygote.folder if self._shared.zygote is not None else None

    def fork(self, guest: Guest) -> None:
        """Have a guest forked in its place."""
        if (zygote := self._shared.zygote) is not None:
            zygote.fork(guest, place=self._place)
            self._forks.add(guest.number)

    def allow(self, lineage: int, pid: int | None) -> None:
        """Let the next fork of ``pid`` through, a guest or one of its copies; None is whoever."""
        if (zygote := self._shared.zygote) is not None:
            zygote.allow(lineage, pid)

    def members(self, lineage: int, session: int, pids: tuple[int, ...]) -> None:
        """Say which processes there are to be in a guest's session."""
        if (zygote := self._shared.zygote) is not None:
            zygote.members(lineage, session, pids)

    def confine(self, guest: Guest, plan: messages.Plan, ticket: int) -> None:
        """Have the locks of a narrower plan made for a copy; ``Confined`` says what came of it."""
        if (zygote := self._shared.zygote) is not None:
            zygote.confine(guest, plan, ticket)

    def read_rest(self) -> None:
        """Take what it has said until now."""
        if (zygote := self._shared.zygote) is not None:
            zygote.read_rest()

    def serves(self, guest: Guest) -> None:
        """Take note that a snapshot is to serve."""
        if (zygote := self._shared.zygote) is not None:
            zygote.serves(guest)

    def end(self) -> bool:
        """Have the keeper's guests ended; they are not gone yet."""
        self._shared.part(self)
        self._shared.leave(tuple(self._forks), self._on_left)
        return False

    def quit(self) -> bool:
        """Have the keeper's guests ended by the zygote, which others still have."""
        self.end()
        return True

    def kill(self) -> bool:
        """Do nothing: who shares it has let go of it."""
        return True

    # --- as the shared zygote's ---------------------------------------------------------------

    def has(self, number: int) -> bool:
        """Say whether a fork is the keeper's."""
        return number in self._forks

    def hear(self, message: Any, pidfd: int | None) -> None:
        """Pass on what the zygote says."""
        if self._on_message is not None:
            self._on_message(message, pidfd)

    def lose(self) -> None:
        """Pass on that it is lost."""
        self._shared.part(self)
        self._on_lost()
