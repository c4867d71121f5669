"""A fork's first steps away from its zygote, before it takes its locks.

No lock takes back what it has from there: an end that is not the zygote's, a session, descriptors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cellblock.guest.confine import process
from cellblock.guest.confine.descriptors import close_inherited
from cellblock.guest.confine.errors import LockFailed, fatal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def stand_apart(zygote: int, keep: Collection[int]) -> None:
    """End with the zygote, lead a session, hold no descriptor but ``keep``.

    Raises ConfineError where one of that can't be had, SystemExit where the zygote has gone.
    """
    _step("end with the zygote", process.end_with_parent)
    if os.getppid() != zygote:  # before it was asked for
        raise SystemExit(1)
    _step("session", process.lead_session)
    _step("inherited descriptors", lambda: close_inherited(keep))


def stand_first(*, namespace: bool) -> None:
    """Do what a zygote does for all its guests; in a pid ``namespace`` of its own, end with it.

    Raises ConfineError.
    """
    _step("not_dumpable", process.not_dumpable)
    _step("orphans", process.adopt_orphans)
    if namespace:
        # What started it waits outside; that is what the host can kill, and we are to go with it.
        _step("end with its parent", process.end_with_parent)


def _step(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except (OSError, LockFailed) as error:
        raise fatal(name, error) from error
