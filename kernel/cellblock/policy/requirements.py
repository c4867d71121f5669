"""Packages by name and versions: what a policy lists, what a cell asks for, what a wheel needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_LONGEST = 200


def parse(text: str) -> Requirement:
    """Return ``name[extra] <3``, checked: no address, no file, no condition. Raises ValueError."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - 15 ms

    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError("not the name of a package")
    try:
        found = Requirement(text)
    except InvalidRequirement:
        raise ValueError("not the name of a package") from None
    if found.url is not None:
        raise ValueError("an address: packages come from the policy's index")
    if found.marker is not None:
        raise ValueError("a condition")
    return found


def canonical(name: str) -> str:
    """Return a package's name in the one spelling that is compared (PEP 503)."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - as above

    return str(canonicalize_name(name))
