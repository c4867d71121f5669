"""Bounds of a policy's numbers, their units, and how strictly pydantic reads a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30

#: How pydantic reads the classes of a policy.
CHECKED: Final[Mapping[str, object]] = {
    "extra": "forbid",
    "strict": True,
    "use_attribute_docstrings": True,
}


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds, both included, that pydantic understands and that cost no import."""

    least: float
    most: float = 2**53

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        schema = handler(source) | {"ge": self.least, "le": self.most}
        return schema | {"allow_inf_nan": False} if schema["type"] == "float" else schema
