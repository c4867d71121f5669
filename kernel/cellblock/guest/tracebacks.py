"""What a user sees of an exception: their frames, not ours."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import traceback
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


# What stack_data and pygments make anew for every traceback, made once.
#
# Two thirds of the time that an error took, and of the memory that it wrote to: each copy of the
# guest keeps that memory as it was.

#: Themes whose tables are kept.
_THEMES: Final = 4
_ORIGINAL: Final[list[Any]] = []


def make_once() -> None:
    """Have lexers, styles and formatters share their tables, from the first error on."""
    from pygments.lexer import RegexLexerMeta  # noqa: PLC0415 - not before the first error

    if RegexLexerMeta.__call__ is _call_lexer:
        return
    _ORIGINAL.append(RegexLexerMeta.__call__)
    RegexLexerMeta.__call__ = _call_lexer
    _find_python_first()
    _share_styles()
    _share_formatters()


def _call_lexer(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Let a lexer class without tokens of its own use those of the class it derives from.

    stack_data derives one from pygments' Python lexer for every frame, and pygments then compiles
    the whole grammar again.
    """
    own = cls.__dict__
    if own.keys().isdisjoint({"_tokens", "tokens"}) and "_tokens" in vars(cls.__base__):
        for name in ("_tokens", "_all_tokens"):
            setattr(cls, name, vars(cls.__base__)[name])
    return _ORIGINAL[0](cls, *args, **kwargs)


def _find_python_first() -> None:
    """Put Python's lexer before the hundreds that are looked through for it."""
    from pygments import lexers  # noqa: PLC0415
    from pygments.lexers.python import PythonLexer  # noqa: PLC0415

    PythonLexer()
    name, known = PythonLexer.__name__, lexers.LEXERS
    # At once: an interrupt may come at any time.
    lexers.LEXERS = {name: known[name], **known}


def _share_styles() -> None:
    """Derive the style that marks what raised once from each theme's."""
    stack_data: Any = importlib.import_module("stack_data")
    stack_data.style_with_executing_node = lru_cache(_THEMES)(stack_data.style_with_executing_node)


def _share_formatters() -> None:
    """Let formatters of the same style, and no other options, share what they made of it."""
    from pygments.formatters.terminal256 import Terminal256Formatter  # noqa: PLC0415

    begin: Any = Terminal256Formatter.__init__

    @lru_cache(_THEMES)
    def tables(style: type) -> dict[str, Any]:
        made = Terminal256Formatter.__new__(Terminal256Formatter)
        begin(made, style=style)
        made_of_it: dict[str, Any] = vars(made)
        return made_of_it

    def share(self: Any, **options: Any) -> None:
        style = options.get("style")
        if type(self) is Terminal256Formatter and len(options) == 1 and isinstance(style, type):
            vars(self).update(tables(style))
        else:
            begin(self, **options)

    Terminal256Formatter.__init__ = share


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
        make_once()
        _tell_of_cells(shell, error)
        return list(
            shell.InteractiveTB.structured_traceback(
                type(error),
                error,
                error.__traceback__,
                tb_offset=0,
            ),
        )
    except Exception:
        return [type(error).__name__ + ": <the traceback could not be formatted>"]


def _by_python(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def _has_group(error: BaseException) -> bool:
    return any(isinstance(one, BaseExceptionGroup) for one in _chain(error))


def describe(error: BaseException) -> str:
    """Return ``str(error)``, whatever it does."""
    try:
        return str(error)
    except Exception:
        return "<the message could not be formatted>"
