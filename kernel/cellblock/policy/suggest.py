"""Did you mean: remedies for a misspelt name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FEW = 12


def closest(name: str, known: Iterable[str], *, what: str) -> str:
    """Return a sentence that names the closest of ``known``, or all when they are few."""
    import difflib  # noqa: PLC0415  # only when something is wrong already

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    if len(names) <= _FEW:
        return f"Known {what}: {', '.join(names)}."
    return f"See `cellblock policy schema` for the known {what}."
