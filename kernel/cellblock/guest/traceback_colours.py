"""What stack_data and pygments make anew for every traceback, made once.

Two thirds of the time that an error took, and of the memory that it wrote to: each copy of the
guest keeps that memory as it was. Imported with the first error.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import stack_data
from pygments import lexers
from pygments.formatters.terminal256 import Terminal256Formatter
from pygments.lexer import RegexLexerMeta
from pygments.lexers.python import PythonLexer

#: Themes whose tables are kept.
_THEMES: Final = 4
_make_lexer: Final[Any] = RegexLexerMeta.__call__
_make_formatter: Final[Any] = Terminal256Formatter.__init__


def make_once() -> None:
    """Have lexers, styles and formatters share their tables from now on."""
    if RegexLexerMeta.__call__ is _lexer_of:
        return
    RegexLexerMeta.__call__ = _lexer_of
    PythonLexer()
    # Before the hundreds that are looked through for it. At once: an interrupt may come any time.
    name, known = PythonLexer.__name__, lexers.LEXERS
    lexers.LEXERS = {name: known[name], **known}
    # The style that marks what raised is derived once from each theme's.
    module: Any = stack_data
    module.style_with_executing_node = lru_cache(_THEMES)(module.style_with_executing_node)
    Terminal256Formatter.__init__ = _share_tables


def _lexer_of(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Let a lexer class without tokens of its own use those of the class it derives from.

    stack_data derives one from pygments' Python lexer for every frame, and pygments then compiles
    the whole grammar again.
    """
    own = cls.__dict__
    if own.keys().isdisjoint({"_tokens", "tokens"}) and "_tokens" in vars(cls.__base__):
        for name in ("_tokens", "_all_tokens"):
            setattr(cls, name, vars(cls.__base__)[name])
    return _make_lexer(cls, *args, **kwargs)


@lru_cache(_THEMES)
def _tables(style: type) -> dict[str, Any]:
    formatter = Terminal256Formatter.__new__(Terminal256Formatter)
    _make_formatter(formatter, style=style)
    tables: dict[str, Any] = vars(formatter)
    return tables


def _share_tables(self: Any, **options: Any) -> None:
    """Let formatters of the same style, and no other options, share what they made of it."""
    style = options.get("style")
    if type(self) is Terminal256Formatter and len(options) == 1 and isinstance(style, type):
        vars(self).update(_tables(style))
    else:
        _make_formatter(self, **options)
