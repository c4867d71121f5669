"""Text as the wire can carry it."""

from __future__ import annotations


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates, which UTF-8 has no form for, spelled out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text
