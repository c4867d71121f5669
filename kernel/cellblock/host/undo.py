"""``%undo`` by itself: what the host does without asking the guest."""

from __future__ import annotations

import re
from typing import Final

#: As ``guest.asking`` reads it; whatever else a cell says, the guest answers.
_ALONE: Final = re.compile(r"\s*%undo(?:[ \t]+([0-9]{1,9}))?[ \t]*(?:#[^\n]*)?\s*")


def asked_for(cell: str) -> int:
    """Return how many cells a cell steps back over that does nothing else; 0 for any other."""
    found = _ALONE.fullmatch(cell)
    return int(found[1] or 1) if found else 0
