"""What a user sees of an exception: their frames, not ours."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final

#: Frames of these files are the kernel's own.
OWN = str(Path(__file__).resolve().parents[1]) + "/"
_CHAIN = 32


def trim(error: BaseException) -> BaseException:
    """Drop the kernel's frames from ``error`` and from what it was raised from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _CHAIN:
        seen.add(id(current))
        current.__traceback__ = _users(current.__traceback__)
        current = current.__cause__ or current.__context__
    return error


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


def _share_lexer_tables() -> None:
    """Let a lexer class without tokens of its own use those of the class it derives from.

    stack_data derives one from pygments' Python lexer for every traceback, and pygments then
    compiles the whole grammar again: half the time that an error takes.
    """
    from pygments.lexer import RegexLexerMeta  # noqa: PLC0415 - not before the first error
    from pygments.lexers.python import PythonLexer  # noqa: PLC0415

    if RegexLexerMeta.__call__ is _call_lexer:
        return
    _ORIGINAL.append(RegexLexerMeta.__call__)
    RegexLexerMeta.__call__ = _call_lexer
    PythonLexer()


_ORIGINAL: Final[list[Any]] = []


def _call_lexer(cls: Any, *args: Any, **kwargs: Any) -> Any:
    own = cls.__dict__
    if own.keys().isdisjoint({"_tokens", "tokens"}) and "_tokens" in vars(cls.__base__):
        for name in ("_tokens", "_all_tokens"):
            setattr(cls, name, vars(cls.__base__)[name])
    return _ORIGINAL[0](cls, *args, **kwargs)


def render(shell: Any, error: BaseException) -> list[str]:
    """Return the lines that IPython's current ``%xmode`` makes of ``error``.

    Exception groups are beyond IPython's formatters and take Python's own; so does a MemoryError,
    for which there may be no room.
    """
    try:
        if isinstance(error, MemoryError):
            return _by_python(error)
        _share_lexer_tables()
        if isinstance(error, SyntaxError) and error.__traceback__ is None:
            return list(shell.SyntaxTB.structured_traceback(type(error), error, []))
        if _has_group(error):
            return _by_python(error)
        custom = getattr(error, "_render_traceback_", None)
        if custom is not None:
            return [str(line) for line in custom()]
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


def _has_group(error: BaseException | None) -> bool:
    for _ in range(_CHAIN):
        if error is None or isinstance(error, BaseExceptionGroup):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, BaseExceptionGroup)


def describe(error: BaseException) -> str:
    """Return ``str(error)``, whatever it does."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return "<the message could not be formatted>"
