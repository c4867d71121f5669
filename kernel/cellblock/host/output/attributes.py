"""What an HTML attribute of a known name may say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.output import css, names

if TYPE_CHECKING:
    from collections.abc import Callable


def attribute(name: str, value: str) -> str | None:
    """Return the value of an attribute that ``allow_html`` has, None to drop it."""
    check = _CHECKS.get(name)
    return check(value) if check else value


def _style(value: str) -> str | None:
    return css.declarations(value) or None


def _target(value: str) -> str | None:
    return value if value == "_blank" else None


def _length(value: str) -> str | None:
    return None if css.is_huge(value) else value


def _ids(value: str) -> str | None:
    return " ".join(filter(None, map(names.safe_id, value.split()))) or None


_CHECKS: Final[dict[str, Callable[[str], str | None]]] = {
    "border": _length,
    "cellpadding": _length,
    "cellspacing": _length,
    "class": names.safe_classes,
    "for": names.safe_id,
    "headers": _ids,
    "height": _length,
    "href": names.link,
    "id": names.safe_id,
    "src": names.raster,
    "style": _style,
    "target": _target,
    "width": _length,
}
