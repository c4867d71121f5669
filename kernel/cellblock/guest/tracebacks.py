"""What a user sees of an exception: their frames, not ours."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Frames of these files are the kernel's own.
OWN = str(Path(__file__).resolve().parents[1]) + "/"
_LONGEST_CHAIN = 32


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and what it was raised from, each once and not without end."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def trim(error: BaseException) -> BaseException:
    """Drop the kernel's frames from ``error`` and from what it was raised from."""
    for one in chain(error):
        one.__traceback__ = _without_own_frames(one.__traceback__)
    return error


def _without_own_frames(tb: TracebackType | None) -> TracebackType | None:
    kept = []
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(OWN):
            kept.append(tb)
        tb = tb.tb_next
    result: TracebackType | None = None
    for link in reversed(kept):
        # An interrupt may hit an instruction that belongs to no line.
        line = link.tb_lineno or link.tb_frame.f_code.co_firstlineno
        result = TracebackType(result, link.tb_frame, link.tb_lasti, line)
    return result


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
        if any(isinstance(one, BaseExceptionGroup) for one in chain(error)):
            return _by_python(error)
        custom = getattr(error, "_render_traceback_", None)
        if custom is not None:
            return [str(line) for line in custom()]
        # With pygments, which no guest needs before its first error.
        from cellblock.guest import traceback_colours  # noqa: PLC0415

        traceback_colours.make_once()
        _register_cells(shell, error)
        formatter = shell.InteractiveTB
        tb = error.__traceback__
        return list(formatter.structured_traceback(type(error), error, tb, tb_offset=0))
    except Exception:
        return [type(error).__name__ + ": <the traceback could not be formatted>"]


def _by_python(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def _register_cells(shell: Any, error: BaseException) -> None:
    """Have ``inspect`` know that cells are of no module.

    It would look through all that are imported, several times for each frame: half of the time
    that an error takes, and half of the memory that it writes to.
    """
    frames = (frame for one in chain(error) for frame, _ in traceback.walk_tb(one.__traceback__))
    for name in {frame.f_code.co_filename for frame in frames}:
        if shell.compile.format_code_name(name) is not None:
            # Looked up as it is and as a path; no module is called "".
            inspect.modulesbyfile.setdefault(name, "")
            with contextlib.suppress(OSError):  # the folder may be gone
                inspect.modulesbyfile.setdefault(str(Path.cwd() / name), "")


def describe(error: BaseException) -> str:
    """Return ``str(error)``, whatever it does."""
    try:
        return str(error)
    except Exception:
        return "<the message could not be formatted>"
