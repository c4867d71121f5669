"""Whether one more copy of a guest can be afforded: in memory, and in the time it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from cellblock.host import room

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds above which ``auto`` takes no more of them, until the guest has become smaller. One
#: alone may be the machine's fault; after this many in a row there is a rest, as many times longer.
TOO_LONG: Final = 0.25
_SLOW: Final = 2
_REST: Final = 20
#: Bytes of a guest that is copied in milliseconds: where that takes long, everything does, and
#: nothing is spared by leaving it out.
SMALL: Final = 256 * 2**20

#: What the policy says of when copies are made.
Mode = Literal["auto", "always", "off"]
#: Why none is taken: the guest could not, memory, its time, or descriptors of the host's.
Reason = Literal["failed", "memory", "slow", "files"]


class Budget:
    """``told`` is called with why no copy is made, once for each reason."""

    def __init__(self, mode: Mode, clock: Callable[[], float], told: Callable[[str], None]) -> None:
        self._mode, self._clock, self._told = mode, clock, told
        self._said: set[Reason] = set()
        #: Copies in a row that took too long; resident bytes of their guest, and when to try again.
        self._slow = 0
        self._too_large: int | None = None
        self._rests_until = 0.0
        self._free = room.Free(clock)

    def allows(self, resident: int, drop_oldest: Callable[[], bool]) -> bool:
        """Say whether there is room for a copy of a guest of ``resident`` bytes.

        ``drop_oldest`` makes some, and says whether there was a copy to drop. Where the policy
        says ``always``, it is not asked for.
        """
        if self._mode == "always":
            return True
        if self._rests(resident):
            return False
        while not self._free.has(room.wanted(resident)):
            if not drop_oldest():
                self.say("memory", "memory is short")
                return False
        return True

    def _rests(self, resident: int) -> bool:
        if self._too_large is None:
            return False
        if resident > self._too_large * 3 // 4 and self._clock() < self._rests_until:
            return True
        self._too_large = None
        return False

    def took(self, seconds: float, resident: int) -> None:
        """Take note of how long a copy of a guest of ``resident`` bytes took to stand."""
        if self._mode != "auto" or seconds <= TOO_LONG or resident < SMALL:
            self._slow = 0
            return
        self._slow += 1
        if self._slow >= _SLOW:
            self._too_large = resident
            self._rests_until = self._clock() + _REST * seconds
            self.say("slow", f"the last one took {seconds:.1f} s")

    def say(self, reason: Reason, detail: str) -> None:
        """Tell the user, once for each reason, that a killed cell may cost something."""
        if reason not in self._said:
            self._said.add(reason)
            self._told(detail)
