"""Bounds of a policy's numbers, their units, and how strictly pydantic reads a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

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


Seconds = Annotated[float, Range(0.1)]
Count = Annotated[int, Range(1)]
Bytes = Annotated[int, Range(1)]
Depth = Annotated[int, Range(0, 50)]
#: An interpreter with IPython in it takes 20 to 24 MiB.
Memory = Annotated[int, Range(32 * MIB)]
#: Of one call's arguments, or its value: a frame has to hold it.
ToolBytes = Annotated[int, Range(1, 16 * MIB)]
InFlight = Annotated[int, Range(1, 10_000)]
