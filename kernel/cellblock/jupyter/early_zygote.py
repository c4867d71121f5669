"""The zygote that starts before it is known what policy a kernel is under.

It is started first of all, in the command that started the last zygote of a kernel with this policy
in this folder (``spawn.WrappingCache``): its imports are the longest part of a kernel's start. Once
the policy is read, it is kept if that asks for just this command. Else it is ended, for it was told
nothing yet, and another one is started. So is one where no command is known: ``cellblock install``
and ``cellblock doctor`` see to it that one is (``jupyter.preparation``).

The worker of the operator's tools waits here, too, where a policy has any, from when it is read.

A zygote waits for what is imported here, so that is little: nothing that reads a policy.
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
        """A zygote of a kernel that waits, which was told a policy."""

        def take(self, prepare: Prepare) -> Standing | None:
            """Return it if it was told just this; else end it, and return nothing."""

        def end(self) -> None:
            """End it."""


def working_folder() -> str:
    """Return the folder that cells are run for. Raises ``StartError`` where it is gone."""
    try:
        return os.getcwd()
    except OSError as exc:
        what = f"the folder it was started in: {exc.strerror}"
        raise StartError(f"{what}. Start it in one that is there.") from None


def words_of(wrap: Wrapping | None) -> tuple[str, ...] | None:
    """Return what stands before a zygote's command that is wrapped so: nothing, if it is bare.

    None where no later kernel can repeat it (a container's name, say).
    """
    return () if wrap is None else wrap.words or None


class EarlyZygote:
    """At most one zygote, for a kernel with this policy in this folder."""

    def __init__(self, policy: str) -> None:
        project = working_folder()
        self.scratch = make_scratch()
        cache = WrappingCache(cache_folder(), policy, project, self.scratch)
        self._cache: WrappingCache | None = cache
        #: The zygote, until it is taken; what stands before its command; what is to go around one.
        self._zygote: Zygote | None = None
        self._words = cache.recall()
        self._due: Wrapping | None = None
        #: The zygote of a kernel that waits, once it was told the policy.
        self.ahead: Ahead | None = None
        #: The worker of the operator's tools, until it is taken.
        self.worker: Started | None = None
        if (words := self._words) is not None:
            if (folder := changes_folder()) in words:
                with contextlib.suppress(OSError):  # it is made again, and reported
                    # The user may have deleted it. What is missing is not mounted, and no layer
                    # that is made later is seen by the zygote.
                    os.makedirs(folder, mode=0o700, exist_ok=True)
            with contextlib.suppress(OSError):  # it is tried again, and reported
                self._zygote = spawn.start(spawn.Recalled(words) if words else None)

    def settle(self, due: Wrapping | None) -> None:
        """Keep the zygote if it was started in what is ``due``; else end it, and start another."""
        words = words_of(due)
        self._due = due
        if self._words is None or self._words != words:
            self.end()
            self._words = words
            with contextlib.suppress(OSError):  # as above
                self._zygote = spawn.start(due)

    def launch(self, policy: str) -> None:
        """Be the zygote of a kernel with this policy in the folder that it was launched in."""
        self._cache = WrappingCache(cache_folder(), policy, working_folder(), self.scratch)

    def take(self) -> Zygote:
        """Return the zygote; another one if it is taken or was not started. Raises OSError."""
        zygote = self._zygote
        self._zygote = None
        return zygote or spawn.start(self._due)

    def take_ahead(self, prepare: Prepare) -> Standing | None:
        """Return the zygote that was told a policy, if that was just this."""
        ahead = self.ahead
        self.ahead = None
        return None if ahead is None else ahead.take(prepare)

    def take_worker(self) -> Started | None:
        """Return the worker of the operator's tools, if it was started and is not taken."""
        worker = self.worker
        self.worker = None
        return worker

    def end(self) -> None:
        """End the zygote and the worker, if they were started and are not taken."""
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
        """Keep the command for the next kernel, once; what was the same twice counts as sure."""
        cache = self._cache
        self._cache = None
        if cache is not None and self._words is not None and self._words == words_of(self._due):
            cache.keep(self._words)
