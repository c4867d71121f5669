"""A guest that tries its locks: one from the real launch path, which ends before any user's byte.

Every probe is an attempt and a positive control (``guest.attempts``). What was refused and what
passed is said in one frame; the host has its own witnesses, and compares it with what is declared.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from typing import TYPE_CHECKING, Final

from cellblock.guest.attempts import PROBES
from cellblock.guest.attempts.place import Place
from cellblock.wire.messages import Attempt, Prepare, Tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.wire.messages import Trial

#: Tried by guests that have a thread before their locks, and by no others.
EARLIER_THREAD: Final = "earlier_thread"
INHERITED: Final = "inherited_descriptor"
#: From here on numbers are free before and after a guest has closed what it inherits.
_ABOVE: Final = 20
#: Seconds that a thread has for its attempt.
_PATIENCE: Final = 5.0
_LONGEST: Final = 200


class Trier:
    """What one guest is to try. Made before it closes what it inherits, and takes its locks."""

    def __init__(self, trial: Trial, request: Prepare, fds: Sequence[int]) -> None:
        self._trial = trial
        self._place = Place(trial, request.scratch)
        #: A socket that stays open unless somebody closes it.
        self._bait = fcntl.fcntl(fds[0], fcntl.F_DUPFD, _ABOVE)
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._early, daemon=True)
        self._results: dict[str, Attempt] = {}

    def before_the_locks(self) -> None:
        """Start the thread that the locks would not reach, if one is asked for."""
        if self._trial.thread:
            self._thread.start()

    def tried(self) -> Tried:
        """Try everything, now that the locks are taken; never raises."""
        if self._trial.thread:
            self._go.set()
            self._thread.join(_PATIENCE)
        else:
            for name in self._trial.probes:
                self._results[name] = self._try(name)
        return Tried(results=dict(self._results))

    def _early(self) -> None:
        self._go.wait()
        self._results[EARLIER_THREAD] = tried("read_file", self._place)

    def _try(self, name: str) -> Attempt:
        return self._inherited() if name == INHERITED else tried(name, self._place)

    def _inherited(self) -> Attempt:
        try:
            open_still = stat.S_ISSOCK(os.fstat(self._bait).st_mode)
        except OSError as error:
            return _refused(error) if error.errno == errno.EBADF else _unseen(str(error))
        return Attempt(outcome="passed" if open_still else "refused")


def tried(name: str, place: Place) -> Attempt:
    """Return what comes of one probe."""
    probe = PROBES.get(name)
    if probe is None:
        return _unseen("not known to this guest")
    try:
        probe.control(place)
    except Exception as error:  # noqa: BLE001 - without its control an attempt shows nothing
        return _unseen(f"its control failed: {error}")
    try:
        probe.attempt(place)
    except OSError as error:
        if error.errno in probe.refusals:
            return _refused(error)
        return _unseen(f"refused for another reason: {error}")
    except Exception as error:  # noqa: BLE001 - as above
        return _unseen(f"it could not be made: {type(error).__name__}: {error}")
    return Attempt(outcome="passed")


def _refused(error: OSError) -> Attempt:
    return Attempt(outcome="refused", detail=errno.errorcode.get(error.errno or 0, ""))


def _unseen(why: str) -> Attempt:
    return Attempt(outcome="unwitnessed", detail=why.encode("ascii", "replace").decode()[:_LONGEST])
