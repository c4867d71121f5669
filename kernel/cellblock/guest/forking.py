"""Forking a running guest, with what its libraries must know of it.

``os.fork`` would do, but for two things: it raises an audit event, which ends a guest in which
cells may not fork, and from 3.12 on it warns of threads, whose loss is known and told here. The
C functions beneath it are the same (PyOS_BeforeFork and its like, the C library's own fork).
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_PYTHON = ctypes.PyDLL(None, use_errno=True)
_before: Final = _PYTHON.PyOS_BeforeFork
_in_parent: Final = _PYTHON.PyOS_AfterFork_Parent
_in_child: Final = _PYTHON.PyOS_AfterFork_Child
_fork: Final = _PYTHON.fork
for _function in (_before, _in_parent, _in_child):
    _function.restype = None


def fork() -> int:
    """Fork as ``os.fork`` does. Raises OSError."""
    _before()
    pid: int = _fork()
    if pid == 0:
        _in_child()
        return 0
    errno = ctypes.get_errno()
    _in_parent()
    if pid < 0:
        raise OSError(errno, os.strerror(errno))
    return pid
