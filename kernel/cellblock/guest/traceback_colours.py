"""Makes stack_data and pygments build their tables once instead of for each traceback.

That was two thirds of the time that an error took, and of the memory that it wrote to, which each
copy of the guest keeps as it was. Imported with the first error.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import stack_data
from pygments import lexers
from pygments.formatters.terminal256 import Terminal256Formatter
from pygments.lexer import RegexLexerMeta
from pygments.lexers.python import PythonLexer

#: Number of themes whose tables are kept.
_THEMES: Final = 4
_make_lexer: Final[Any] = RegexLexerMeta.__call__
_make_formatter: Final[Any] = Terminal256Formatter.__init__


def make_once() -> None:
    """Make lexers, styles and formatters share their tables from now on."""
    if RegexLexerMeta.__call__ is _lexer_of:
        return
    RegexLexerMeta.__call__ = _lexer_of
    PythonLexer()
    # Put Python's lexer first: pygments looks through hundreds to find it. Assigned as a whole, so
    # that an interrupt leaves no half of it.
    name = PythonLexer.__name__
    table = lexers.LEXERS
    lexers.LEXERS = {name: table[name], **table}
    # The style that marks the failing expression is derived from each theme's style once.
    module: Any = stack_data
    module.style_with_executing_node = lru_cache(_THEMES)(module.style_with_executing_node)
    Terminal256Formatter.__init__ = _share_tables


def _lexer_of(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a lexer. If its class defines no tokens, it uses the compiled ones of its base class.

    For each frame stack_data derives a class from pygments' Python lexer, for which pygments would
    compile the whole grammar again.
    """
    namespace = cls.__dict__
    if namespace.keys().isdisjoint({"_tokens", "tokens"}) and "_tokens" in vars(cls.__base__):
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
    """Initialise a formatter, with shared tables if a style is its only option."""
    style = options.get("style")
    if type(self) is Terminal256Formatter and len(options) == 1 and isinstance(style, type):
        vars(self).update(_tables(style))
    else:
        _make_formatter(self, **options)
