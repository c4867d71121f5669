"""Hides the guest's copies from ``os.wait`` and the like, and from psutil.

Copies are child processes of the guest. A cell that waits for any child would otherwise get a copy
that was dropped, or wait for ever for one that is kept. Under ipykernel it gets ChildProcessError.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.audit_hook import effects
from cellblock.guest.violations import run_exempt

if TYPE_CHECKING:
    from collections.abc import Collection

#: Most seconds between two looks while a cell waits for any child.
_LOOK: Final = 0.02
#: What ``os.waitpid`` and ``os.wait4`` return when no child has ended.
_NOTHING: Final = (0, 0, resource.struct_rusage((0,) * 16))
_TASKS: Final = Path("/proc/self/task")
#: The guest's copies, by their pids.
_hidden: Collection[int] = ()


def hide_copies(copies: Collection[int]) -> None:
    """Make functions that wait for any child skip ``copies``, which may change later."""
    global _hidden  # noqa: PLW0603 - there is one guest in a process
    _hidden = copies
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return
    waitpid = _hiding(os.waitpid, _NOTHING[:2], os.waitid, copies)
    wait4 = _hiding(os.wait4, _NOTHING, os.waitid, copies)
    os.wait = functools.wraps(os.wait)(lambda: waitpid(-1, 0))
    os.wait3 = functools.wraps(os.wait3)(lambda options: wait4(-1, options))
    os.waitpid, os.wait4, os.waitid = waitpid, wait4, _hiding_id(os.waitid, copies)


def patch_psutil(module: Any) -> None:
    """Leave copies out of a process's children. A cell that ends all children can't end a copy."""
    children = module.Process.children

    @functools.wraps(children)
    def without_copies(process: Any, recursive: bool = False) -> Any:  # noqa: FBT002 - psutil's
        return [child for child in children(process, recursive) if child.pid not in _hidden]

    module.Process.children = without_copies


def _hiding(wait: Any, nothing: Any, waitid: Any, copies: Collection[int]) -> Any:
    """Wrap ``os.waitpid`` or ``os.wait4``; ``nothing`` is what it returns if no child ended."""

    @functools.wraps(wait)
    def hiding(pid: int, options: int) -> Any:
        if pid > 0 or not copies:
            return wait(pid, options)
        target = (os.P_ALL, 0) if pid == -1 else (os.P_PGID, -pid)
        while (child := _wait_for_other(waitid, target, options | os.WEXITED, copies)) is not None:
            with contextlib.suppress(ChildProcessError):  # another thread was faster
                result = wait(child.si_pid, options | os.WNOHANG)
                if result[0]:
                    return result
        return nothing

    return hiding


def _hiding_id(waitid: Any, copies: Collection[int]) -> Any:
    """Wrap ``os.waitid``."""

    @functools.wraps(waitid)
    def hiding(idtype: int, number: int, options: int, /) -> Any:
        if idtype not in {os.P_ALL, os.P_PGID} or not copies:
            return waitid(idtype, number, options)
        while (child := _wait_for_other(waitid, (idtype, number), options, copies)) is not None:
            with contextlib.suppress(ChildProcessError):
                result = waitid(os.P_PID, child.si_pid, options | os.WNOHANG)
                if result is not None:
                    return result
        return None

    return hiding


def _wait_for_other(
    waitid: Any, target: tuple[int, int], options: int, copies: Collection[int]
) -> Any:
    """Wait for a child that is not a copy, and return what ``waitid`` says, without reaping it.

    Reaps copies on the way. Return None if ``options`` say not to wait. Looks repeatedly, because a
    call that waits for any child would not return while a copy lives. Raises ChildProcessError if
    there is no other child.
    """
    pause = _LOOK / 64
    while True:
        child = waitid(*target, options | os.WNOHANG | os.WNOWAIT)
        if child is None:
            _check_others(copies)
            if options & os.WNOHANG:
                return None
            time.sleep(pause)
            pause = min(2 * pause, _LOOK)
        elif child.si_pid not in copies:
            return child
        else:
            with contextlib.suppress(ChildProcessError):
                waitid(os.P_PID, child.si_pid, (options | os.WNOHANG) & ~os.WNOWAIT)


def _check_others(copies: Collection[int]) -> None:
    """Raise ChildProcessError if there is no child but ``copies``.

    Asks /proc, or if that can't be read the record of what cells started.
    """
    try:
        other_children = run_exempt(_children) - set(copies)
    except OSError:
        other_children = effects.may_have_children()
    if not other_children:
        raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))


def _children() -> set[int]:
    lists = [(_TASKS / task / "children").read_text("ascii") for task in os.listdir(_TASKS)]
    return {int(pid) for text in lists for pid in text.split()}
