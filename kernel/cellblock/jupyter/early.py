"""The zygote that is started early: in what, and whether that was right.

It imports what guests need, which takes longest of all. Where nothing goes around it, it is
started first; where something does, in what went around the last one, or in what a first look at
the policy says. What is foreseen so is compared with what the policy asks for, once that is read,
and a zygote in anything else is ended: it was told nothing yet.
"""

from __future__ import annotations

import contextlib
import os

from cellblock.host.guests import spawn
from cellblock.policy.home import cache_folder

TYPE_CHECKING = False  # a zygote is started before typing is imported
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.host.guests.wrapping_cache import Memory, Recalled
    from cellblock.host.session.config import Wrapping

#: The backends that wrap a zygote, those that do not, and how much of a policy is looked through
#: for them; what the strongest is known by to be here.
WRAPPING = (b"bubblewrap", b"docker", b"seatbelt")
BARE = (b"landlock", b"noop")
WRAPPER = "bwrap"
_LOOKED_AT = 1 << 16


class Early:
    """At most one zygote, for a kernel with this policy in this folder."""

    def __init__(self, policy: str, project: str) -> None:
        self._policy, self._project = policy, project
        self._wrapped = may_be_wrapped(policy)
        #: What is started, its end of the socket and a pid; whoever takes it pops it.
        self.zygotes: list[tuple[socket.socket, int]] = []
        self._around: Wrapping | Recalled | None = None
        self._memory: Memory | None = None
        self._due: Wrapping | None = None

    def start_bare(self) -> None:
        """Start it at once, where nothing goes around it. Raises OSError."""
        if not self._wrapped:
            self.zygotes.append(spawn.start())

    def start_as_before(self, scratch: str) -> None:
        """Start it in what went around the last one, if that is known and stood the test."""
        if self._wrapped:
            from cellblock.host.guests.wrapping_cache import Memory  # noqa: PLC0415 - as needed

            self._memory = Memory(cache_folder(), self._policy, self._project, scratch)
            self._start(self._memory.recall())

    def start_in(self, foreseen: Callable[[], Wrapping | None]) -> None:
        """Start it in what is foreseen, if it is not started yet."""
        if not self.zygotes:
            self._start(foreseen())

    def _start(self, around: Wrapping | Recalled | None) -> None:
        if around is not None:
            with contextlib.suppress(OSError):  # it is tried again, and told
                self.zygotes.append(spawn.start(around))
                self._around = around

    def settle(self, due: Wrapping | None) -> None:
        """End it unless it is in what is due."""
        self._due = due
        if self.zygotes and not _alike(self._around, due):
            spawn.drop(*self.zygotes.pop())

    def remember(self) -> None:
        """Keep what was due for the next kernel."""
        memory, self._memory = self._memory, None
        if memory is not None and self._due is not None and (words := self._due.words):
            memory.keep(words)


def _alike(around: Wrapping | Recalled | None, due: Wrapping | None) -> bool:
    if around is None or due is None:
        return around is due
    # Views tell it sooner, where it was foreseen: words are made anew each time.
    return around == due or (bool(around.words) and around.words == due.words)


def may_be_wrapped(policy: str) -> bool:
    """Guess whether a zygote that starts now would have to be ended for a wrapped one.

    Nothing that reads a policy is imported yet: names of backends are looked for in its file, and
    without one the strongest is looked for. A wrong guess costs time, and nothing else.
    """
    text = _looked_through(policy)
    if any(name in text for name in (*WRAPPING, *BARE)):
        return any(name in text for name in WRAPPING)
    return any(os.access(f"{folder}/{WRAPPER}", os.X_OK) for folder in os.get_exec_path())


def _looked_through(policy: str) -> bytes:
    """Return the beginning of a policy's file; nothing for a preset."""
    try:
        with open(os.path.expanduser(policy), "rb", opener=_at_once) as file:  # noqa: PTH111
            return file.read(_LOOKED_AT)
    except (OSError, ValueError):
        return b""


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would be waited for
