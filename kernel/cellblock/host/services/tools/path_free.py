"""Removes this machine's paths from error messages that cells are shown."""

from __future__ import annotations

import re
from typing import Final

from cellblock.render.text import encodable

#: Characters of a message.
MAX_MESSAGE: Final = 2_000
#: A text that may be an absolute path of this machine, or (``stays``) one that only looks like it.
#: Possessive quantifiers keep the time linear in the length of the message.
_PATH: Final = re.compile(
    r"""
    (?P<stays>
        # Addresses of the web, up to what may carry a path: a query, an empty name.
        (?<!\w)(?:https?|wss?|ftp|s3|gs)://(?:\[[0-9a-f:.]+\]|[\w.@%-]+)(?::\d+)?
            (?:/[\w.@%~+!$*()&-]+)*+/?
        # Requests, but not verbs, nor for what some machine has.
        | \b(?-i:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)[ ]
            (?!/(?:s?bin|boot|dev|etc|home|lib\d*|media|mnt\w*|opt|proc|root|run|srv|sys|tmp|usr
                |var|app|data|library|nix|private|snap|users|volumes|work\w*)\b)
            (?:/[\w.@%~+!$*()&-]+)++/?
        | </\w+>
    )
    # In quotes, spaces and all; an apostrophe before a letter ends nothing.
    | (?<=["'`])/(?:[^"'`\n]|'(?=\w))++(?=["'`]|\Z)
    # Not behind a word, nor behind one dot or two, where it is relative; but behind what a line
    # break is written as, or a colour.
    | (?:(?<!\w)(?<!(?<![\w.])\.)(?<!(?<![\w.])\.\.)|(?<=\\[nrt])|\x1b\[[0-9;]*+m(?=/))
        (?:file://[\w.-]*+)?
        /(?:[^\s"'`<>|:]|'(?=\w)|:(?!\d{1,7}+(?::\d{1,7}+)?+(?![\w/-])))*+
        # A name with a space in it goes on with another slash.
        (?:(?<![.,:;!?)\]}])[ ][^\s"'`<>|:/]++/(?:[^\s"'`<>|:]|'(?=\w))*+)*+
    """,
    re.VERBOSE | re.IGNORECASE,
)
#: Punctuation that ends a sentence rather than a path.
_PUNCTUATION_AFTER: Final = ".,:;!?)]}"


def without_paths(text: str) -> str:
    """Return a text of bounded length with ``<path>`` for each absolute path of this machine.

    Web addresses stay. If a path is not in quotes and its last name has spaces, the part of the
    name after the first space may stay.
    """
    return _PATH.sub(_replacement, encodable(text[: 2 * MAX_MESSAGE]))[:MAX_MESSAGE]


def _replacement(match: re.Match[str]) -> str:
    """Return the replacement of a match: ``<path>``, or the match itself if it is no path."""
    text = match[0]
    path = text.rstrip(_PUNCTUATION_AFTER)
    if match["stays"] or not re.search(r"\w", path):
        return text
    return f"<path>{text[len(path) :]}"
