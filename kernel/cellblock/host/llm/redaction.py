"""Keeps a key out of what others say of it: endpoints quote keys, whole or in part."""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import quote

MASK: Final = "•••"
#: Shorter ones are no secrets, and stand in any text.
_SHORTEST: Final = 8
#: What looks like a key, or like part of one.
_LOOKS: Final = re.compile(r"\bsk-[\w*.…-]{4,}|\b[Bb]earer\s+\S+|\b\S*\*{3,}\S*")


class Redactor:
    """Takes one key out of texts."""

    def __init__(self, key: str) -> None:
        plain = key.strip()
        forms = {plain, quote(plain, safe=""), base64.b64encode(plain.encode()).decode()}
        # The longest first: one may hold another.
        ordered = sorted(forms, key=len, reverse=True)
        self._forms = tuple(ordered) if len(plain) >= _SHORTEST else ()

    def text(self, text: str) -> str:
        """Return ``text`` without the key."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def error(self, text: str) -> str:
        """Return a short text in which nothing looks like a key, either."""
        return _LOOKS.sub(MASK, self.text(text))

    def safe(self, text: str) -> str:
        """Return as much of a growing text as can't become a key, without it."""
        clean = self.text(text)
        held = max((_begun(clean, form) for form in self._forms), default=0)
        return clean[: len(clean) - held]


def _begun(text: str, form: str) -> int:
    """Return how many characters at the end of ``text`` may be the beginning of ``form``."""
    most = min(len(text), len(form) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(form[:size])), 0)
