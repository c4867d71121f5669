"""One sanitiser for each type that can carry scripts and remote references (requirement 6.1).

Each returns text from which nothing runs or loads. What none of it should be shown of, it refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.output import html, latex, markdown, svg

if TYPE_CHECKING:
    from collections.abc import Callable

_SANITISERS: Final[dict[str, Callable[[str], str]]] = {
    "image/svg+xml": svg.clean,
    "text/html": html.clean,
    "text/latex": latex.clean,
    "text/markdown": markdown.clean,
}


def sanitise(mime: str, text: str) -> str:
    """Return what may be shown of ``text``. Raises ``RefusedError``."""
    return _SANITISERS[mime](text)
