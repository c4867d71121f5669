"""The differences of two policies, field by field, and whether cells may do more under the second.

For ``cellblock policy diff``. A missing table grants nothing, so it is shown as ``NOT_GRANTED``
rather than compared field by field, where missing limits would look like no limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from cellblock.policy.model import FIELDS, ROWS, SECTIONS
from cellblock.policy.narrowing import wider
from cellblock.policy.rows import Never

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cellblock.policy.model import Policy

Direction = Literal["more", "less", "other"]
#: The value of a table that a policy does not have.
NOT_GRANTED: Final = "not granted"
#: Sections whose tables are grants. ``llm`` itself is a grant if it has an address.
_GRANTING: Final = ("ops", "mcp", "credentials")


class Difference(NamedTuple):
    """One field, or one table that one of two policies does not grant."""

    field: str
    """Its name; that of a field in a table has dots: ``ops.http.hosts``."""

    old: Any
    new: Any

    cells: Direction
    """Whether cells may do more or less under the second policy."""


def differences(old: Policy, new: Policy) -> list[Difference]:
    """Return the differences of two policies in the model's order, without their names."""
    return [each for field in FIELDS if field != "name" for each in _of_field(field, old, new)]


def _of_field(field: str, old: Policy, new: Policy) -> Iterator[Difference]:
    """Yield the differences in one field, those of a table key by key."""
    before, after = old.as_dict()[field], new.as_dict()[field]
    if before == after:
        return
    if field == "llm" and old.llm.granted != new.llm.granted:
        before, after = (table if table["base_url"] else NOT_GRANTED for table in (before, after))
        yield Difference(field, before, after, "more" if new.llm.granted else "less")
    elif field in _GRANTING:
        for name in {**before, **after}:
            tables = before.get(name, NOT_GRANTED), after.get(name, NOT_GRANTED)
            yield from _of_table(f"{field}.{name}", *tables)
    elif field in SECTIONS:
        yield from _of_table(field, before, after, grants=field == "llm")
    else:
        yield Difference(field, before, after, _direction(field, old, new))


def _of_table(
    name: str,
    old: Mapping[str, Any] | str,
    new: Mapping[str, Any] | str,
    *,
    grants: bool = True,
) -> Iterator[Difference]:
    """Yield the differences of two tables. ``grants``: their keys grant something to cells."""
    if isinstance(old, str) or isinstance(new, str):
        if old != new:
            yield Difference(name, old, new, "more" if isinstance(old, str) else "less")
        return
    for key, value in new.items():
        if (before := old[key]) != value:
            cells: Direction = _of_values(before, value) if grants else "other"
            yield Difference(f"{name}.{key}", before, value, cells)


def _of_values(old: object, new: object) -> Direction:
    """Compare two values in a table of grants: longer lists and higher numbers grant more."""
    match old, new:
        case tuple(), tuple():
            more, less = set(new) - set(old), set(old) - set(new)
            return "other" if more and less else "more" if more else "less" if less else "other"
        case int() | float(), int() | float():
            return "more" if new > old else "less"
        case None, int() | float():
            return "less"
        case int() | float(), None:
            return "more"
        case _:
            return "other"


def _direction(field: str, old: Policy, new: Policy) -> Direction:
    """Compare a field by the rules of narrowing."""
    if isinstance(ROWS[field].narrower, Never):
        return "other"
    allows_more = wider(field, old, new)
    allows_less = wider(field, new, old)
    return "other" if bool(allows_more) == bool(allows_less) else "more" if allows_more else "less"
