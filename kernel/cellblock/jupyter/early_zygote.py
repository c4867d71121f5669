"""``EarlyZygote``: the zygote of a kernel, started before the policy is read.

A zygote's imports are the longest part of a kernel's start, so it is spawned first of all. The
command, which depends on the policy's backend, is the one that started the last zygote of a kernel
with this policy in this folder (``spawn.WrappingCache``; ADR 0007). When the policy is read,
``settle`` keeps the zygote if the policy asks for exactly this command. If not, it ends the zygote,
which has been told nothing yet, and starts another. It also starts one if no command was known;
``cellblock install`` and ``cellblock doctor`` make one known (``jupyter.preparation``).

``settle`` is the step from guess to certainty; ``take`` hands the zygote over to the session. The
worker of the operator's tools waits here in the same way.

This module must import little, and nothing that reads a policy: the zygote is not spawned before
these imports are done.
"""

from __future__ import annotations

import contextlib
import os

from cellblock.errors import StartError
from cellblock.host.guests import spawn
from cellblock.host.guests.spawn import WrappingCache
from cellblock.policy.folders import cache_folder, changes_folder, make_scratch

TYPE_CHECKING = False  # a zygote is started before typing is imported
if TYPE_CHECKING:
    import socket
    from typing import Protocol

    from cellblock.host.guests.worker_process import Started
    from cellblock.host.guests.zygote import Standing
    from cellblock.host.session.config import Wrapping
    from cellblock.wire.messages import Prepare

    #: The host's end of a zygote's socket, and its pid.
    Zygote = tuple[socket.socket, int]

    class Ahead(Protocol):
        """The interface of ``warm.ToldZygote``.

        It is a waiting kernel's zygote that already has a policy, and guests.
        """

        def take(self, prepare: Prepare) -> Standing | None:
            """Return the zygote and its guests if it was told exactly this; else end it."""

        def end(self) -> None:
            """End the zygote and its guests."""


def working_folder() -> str:
    """Return the current folder, where cells run. Raises ``StartError`` if it was removed."""
    try:
        return os.getcwd()
    except OSError as exc:
        problem = f"the folder it was started in: {exc.strerror}"
        raise StartError(f"{problem}. Start it in one that is there.") from None


def words_of(wrap: Wrapping | None) -> tuple[str, ...] | None:
    """Return the words that a wrapping puts before a zygote's command; () without a wrapping.

    Return None if a later kernel can't repeat the words, such as a container's name.
    """
    return () if wrap is None else wrap.words or None


class EarlyZygote:
    """At most one zygote, for a kernel with this policy in the current folder."""

    def __init__(self, policy: str) -> None:
        project = working_folder()
        self.scratch = make_scratch()
        cache = WrappingCache(cache_folder(), policy, project, self.scratch)
        self._cache: WrappingCache | None = cache
        #: The zygote, until it is taken.
        self._zygote: Zygote | None = None
        #: The words before its command; None if it has not been started.
        self._words = cache.recall()
        #: The wrapping that the policy asks for, once it is read.
        self._due: Wrapping | None = None
        #: The zygote of a waiting kernel, once it was told a policy.
        self.ahead: Ahead | None = None
        #: The worker of the operator's tools, until it is taken.
        self.worker: Started | None = None
        # Errors are ignored here, since all this is tried again later, and reported then.
        if (words := self._words) is not None:
            if (folder := changes_folder()) in words:
                with contextlib.suppress(OSError):
                    # The user may have deleted the folder of staged changes. A missing folder is
                    # not mounted, and then the zygote can't see layers that are made later.
                    os.makedirs(folder, mode=0o700, exist_ok=True)
            with contextlib.suppress(OSError):
                self._zygote = spawn.start(spawn.Recalled(words) if words else None)

    def settle(self, due: Wrapping | None) -> None:
        """Keep the zygote if it is wrapped as the policy asks (``due``); else start another."""
        words = words_of(due)
        self._due = due
        if self._words is None or self._words != words:
            self.end()
            self._words = words
            with contextlib.suppress(OSError):  # ``take`` tries again, and reports the error
                self._zygote = spawn.start(due)

    def launch(self, policy: str) -> None:
        """Note that a waiting kernel was launched, with this policy, in the current folder.

        ``remember`` then keeps the command for that policy and folder.
        """
        self._cache = WrappingCache(cache_folder(), policy, working_folder(), self.scratch)

    def take(self) -> Zygote:
        """Return the zygote, or start another if it was taken already. Raises OSError."""
        zygote = self._zygote
        self._zygote = None
        return zygote or spawn.start(self._due)

    def take_ahead(self, prepare: Prepare) -> Standing | None:
        """Return the zygote that was told a policy, with its guests, if that was exactly this."""
        ahead = self.ahead
        self.ahead = None
        return None if ahead is None else ahead.take(prepare)

    def take_worker(self) -> Started | None:
        """Return the worker of the operator's tools, if it was started and not yet taken."""
        worker = self.worker
        self.worker = None
        return worker

    def end(self) -> None:
        """End the zygote and the worker, if they were started and not taken."""
        if (worker := self.take_worker()) is not None:
            worker.drop()
        ahead = self.ahead
        self.ahead = None
        if ahead is not None:
            ahead.end()
        zygote = self._zygote
        self._zygote = None
        if zygote is not None:
            spawn.drop(*zygote)

    def remember(self) -> None:
        """Keep the command for the next kernel, if the policy asked for exactly this command.

        Only the first call does. The cache counts a command that was kept twice as certain.
        """
        cache = self._cache
        self._cache = None
        if cache is not None and self._words is not None and self._words == words_of(self._due):
            cache.keep(self._words)
