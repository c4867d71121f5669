"""What stack_data and pygments make anew for every traceback, made once.

Two thirds of the time that an error took, and of the memory that it wrote to: each copy of the
guest keeps that memory as it was.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final

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
