"""From an ``execute_request`` to what it asks for."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from cellblock.host.cell.cell import Asked

if TYPE_CHECKING:
    from cellblock.jupyter.messages import Message

#: User expressions that are answered, characters of a name, and of all texts.
MOST_EXPRESSIONS = 100
LONGEST_NAME = 1_000
LONGEST_EXPRESSIONS = 400_000


def asked(message: Message) -> Asked:
    """Return what a request asks for; anything but text is no source, and runs as none."""
    content = message.content
    silent, code = bool(content.get("silent", False)), content.get("code")
    return Asked(
        code=code if isinstance(code, str) else "",
        silent=silent,
        store=bool(content.get("store_history", True)) and not silent,
        allow_stdin=bool(content.get("allow_stdin")),
        stop_on_error=bool(content.get("stop_on_error", True)),
        expressions=_expressions(content.get("user_expressions")),
    )


def _expressions(given: Any) -> dict[str, str]:
    """Return user_expressions, as many and as long as are answered."""
    pairs = islice(given.items(), MOST_EXPRESSIONS) if isinstance(given, dict) else ()
    left, taken = LONGEST_EXPRESSIONS, dict[str, str]()
    for name, text in pairs:
        if isinstance(text, str) and len(name) <= LONGEST_NAME and len(text) <= left:
            taken[name] = text
            left -= len(text)
    return taken
