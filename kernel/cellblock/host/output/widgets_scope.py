"""What some kinds of keys have to know beside their value: the other widgets, the request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Scope:
    """What some kinds have to know."""

    #: Model name of an admitted widget, ``""`` for one of an operator's module, else None.
    model_of: Callable[[str], str | None]
    #: Cleans a mime bundle as it would be for an output.
    show: Callable[[Any], dict[str, Any]]
    #: Id of the request whose output is shown now.
    parent: str
