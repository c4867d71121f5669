"""Forking a running guest.

By ``os.fork``, because only there nothing of Python's runs between the C library's fork and the
interpreter's repairs in the child: a request to give up the GIL, made by a thread that the child
does not have, would be waited for in between for ever. Its audit event ends a guest in which cells
may not fork; the hook asks here whether the fork is ours.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _forks() -> tuple[Callable[[], int], Callable[[], bool]]:
    due: list[bool] = []  # in a closure: there is no table to edit

    def fork() -> int:
        """Fork as ``os.fork`` does, without its warning of threads. Raises OSError.

        Their loss is known, and told to the user when a copy takes over.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            due.append(True)
            try:
                return os.fork()
            finally:
                due.clear()

    def is_due() -> bool:
        """Say whether a fork that is under way is a snapshot's."""
        return bool(due)

    return fork, is_due


fork, is_due = _forks()
