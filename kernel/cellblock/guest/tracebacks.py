"""What a user sees of an exception: their frames, not ours."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cellblock.guest import colouring

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Frames of these files are the kernel's own.
OWN = str(Path(__file__).resolve().parents[1]) + "/"
_CHAIN = 32


def trim(error: BaseException) -> BaseException:
    """Drop the kernel's frames from ``error`` and from what it was raised from."""
    for one in _chain(error):
        one.__traceback__ = _users(one.__traceback__)
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and what it was raised from, each once and not without end."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _CHAIN:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _users(tb: TracebackType | None) -> TracebackType | None:
    kept = []
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(OWN):
            kept.append(tb)
        tb = tb.tb_next
    chain: TracebackType | None = None
    for link in reversed(kept):
        # An interrupt may hit an instruction that belongs to no line.
        line = link.tb_lineno or link.tb_frame.f_code.co_firstlineno
        chain = TracebackType(chain, link.tb_frame, link.tb_lasti, line)
    return chain


def _tell_of_cells(shell: Any, error: BaseException) -> None:
    """Tell ``inspect`` that cells are of no module.

    It would look through all that are imported, several times for each frame: half of the time
    that an error takes, and half of the memory that it writes to.
    """
    frames = (frame for one in _chain(error) for frame, _ in traceback.walk_tb(one.__traceback__))
    for name in {frame.f_code.co_filename for frame in frames}:
        if shell.compile.format_code_name(name) is not None:
            # Looked up as it is and as a path; no module is called "".
            inspect.modulesbyfile.setdefault(name, "")
            with contextlib.suppress(OSError):  # the folder may be gone
                inspect.modulesbyfile.setdefault(str(Path.cwd() / name), "")


def render(shell: Any, error: BaseException) -> list[str]:
    """Return the lines that IPython's current ``%xmode`` makes of ``error``.

    Exception groups are beyond IPython's formatters and take Python's own; so does a MemoryError,
    for which there may be no room.
    """
    try:
        if isinstance(error, MemoryError):
            return _by_python(error)
        if isinstance(error, SyntaxError) and error.__traceback__ is None:
            return list(shell.SyntaxTB.structured_traceback(type(error), error, []))
        if _has_group(error):
            return _by_python(error)
        custom = getattr(error, "_render_traceback_", None)
        if custom is not None:
            return [str(line) for line in custom()]
        colouring.make_once()
        _tell_of_cells(shell, error)
        return list(
            shell.InteractiveTB.structured_traceback(
                type(error),
                error,
                error.__traceback__,
                tb_offset=0,
            ),
        )
    except Exception:  # noqa: BLE001 - a user's __repr__ or __str__ may raise anything
        return [type(error).__name__ + ": <the traceback could not be formatted>"]


def _by_python(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def _has_group(error: BaseException) -> bool:
    return any(isinstance(one, BaseExceptionGroup) for one in _chain(error))


def describe(error: BaseException) -> str:
    """Return ``str(error)``, whatever it does."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return "<the message could not be formatted>"
