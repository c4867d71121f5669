"""A bundle's metadata: what exporters write into attributes, and keys that are prototypes."""

from __future__ import annotations

import re
from typing import Any, Final

#: nbconvert takes ``filenames`` for the addresses of a bundle's images; the others are what every
#: object of a front end has, and copying them changes its copy's kind.
_DROPPED: Final = frozenset(("__proto__", "constructor", "filenames", "prototype"))
_SIZES: Final = frozenset(("height", "width"))
_SIZE: Final = re.compile(r"\d{1,5}(?:\.\d{1,3})?(?:px|em|%)?", re.ASCII)


def settle(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata without those keys, at any depth, and with sizes that are sizes."""
    return {
        key: _settled(value)
        for key, value in metadata.items()
        if key not in _DROPPED and (key not in _SIZES or _is_size(value))
    }


def _settled(value: Any) -> Any:
    if type(value) is dict:
        return settle(value)
    return [_settled(item) for item in value] if type(value) is list else value


def _is_size(value: Any) -> bool:
    return type(value) in (int, float) or (type(value) is str and bool(_SIZE.fullmatch(value)))
