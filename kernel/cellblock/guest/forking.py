"""Forking a running guest.

By ``os.fork``, because only there nothing of Python's runs between the C library's fork and the
interpreter's repairs in the child: a request to give up the GIL, made by a thread that the child
does not have, would be waited for in between for ever.
"""

from __future__ import annotations

import os
import warnings

from cellblock.guest.deeds import permitted


def fork() -> int:
    """Fork as ``os.fork`` does, without its warning of threads. Raises OSError.

    Their loss is known, and told to the user when a copy takes over.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return int(permitted(os.fork))
