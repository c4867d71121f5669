"""Rows: the properties of a policy field, besides its name, type, bounds, default and text.

``model.Policy`` gives each field one row, by ``row``. Code that goes through all fields reads the
rows, and has no list of fields of its own: narrowing and ``cellblock policy diff`` (``narrowing``),
enforcement and the texts of gaps (``backends``), the table of ``%policy``
(``render.policy_card``), the output of ``cellblock learn``, and the tables of the documentation.

A row is data, so that a kernel starts without importing the code that reads it. It is a tuple
rather than a dataclass, which takes longer to define.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- how a field narrows --------------------------------------------------------------------------


class Way(Enum):
    """The ways in which most fields narrow. The value is the text in the documentation."""

    fewer = "fewer entries"
    fewer_tables = "fewer tables, each as it is"
    more = "more entries"
    lower = "a lower number"
    lower_each = "lower numbers"
    off = "false"
    denied = "more paths, or folders around them"
    addresses = "false, or fewer addresses (a list instead of `true`: a new guest)"
    ports = "fewer ports, or a list instead of `any`"
    devices = "fewer devices, or some of those that `nvidia` or `dri` stands for"

    @property
    def words(self) -> str:
        """The documentation's text about narrower values."""
        return self.value


class Towards(NamedTuple):
    """The field narrows to a word that comes later in ``order``."""

    order: tuple[str, ...]

    @property
    def words(self) -> str:
        """The documentation's text about narrower values."""
        return f"{' or '.join(f'`{word}`' for word in self.order[1:])}, in this order"


class Beneath(NamedTuple):
    """The field narrows to paths beneath those of the fields in ``granting``.

    ``done`` completes "paths beneath those that …", as "may be read".
    """

    granting: tuple[str, ...]
    done: str

    @property
    def words(self) -> str:
        """The documentation's text about narrower values."""
        return f"paths beneath those that {self.done}"


class Never(NamedTuple):
    """The field can't be narrowed: it grants nothing to cells, or only the operator may set it."""

    why: str


Narrower = Way | Towards | Beneath | Never


class EnforcedBy(Enum):
    """What enforces a field, and so what a narrowing of it takes."""

    host = "host"
    """The host, which applies the narrower value from the next cell on."""

    locks = "locks"
    """The guest's locks, to which more can be added."""

    guest = "guest"
    """The guest's set-up, so that only a new guest can have the narrower value."""


# --- the row --------------------------------------------------------------------------------------


class Shown(Enum):
    """Where ``%policy`` shows a field. Fields of one place have the model's order."""

    first = "what is looked for first: files, network, processes, time, memory"
    limits = "below that, folded away"
    language = "below the limits"
    used = "last, and only if it has a value"


#: The remedy of a gap, unless the row has another.
ANOTHER_MACHINE: Final = (
    "use Linux 5.13 or later with Landlock switched on, or choose another backend"
)


class Row(NamedTuple):
    """The properties of a field. Texts are for users."""

    narrower: Narrower
    """How a notebook or a cell may change the field."""

    enforced_by: EnforcedBy = EnforcedBy.host
    """What enforces the field, and so what a narrowing of it takes."""

    host: str | Mapping[str, str] = ""
    """How the host enforces the field, the same under each backend; or a text for each value of the
    field. Such a field can't have a gap."""

    gap: str = ""
    """What a cell can do if the field is not enforced. Such a field depends on the operating
    system, and each backend declares its status."""

    remedy: str = ANOTHER_MACHINE
    """What closes a gap."""

    remedy_if_partial: str = ""
    """What closes the holes of an enforced field that would be the same on another machine."""

    lacked: bool = False
    """Whether a gap lets cells do no more, but means that the user lacks something."""

    asked: Callable[[Any], bool] | None = None
    """Returns whether a value asks for enforcement. None: every value but None does."""

    stays: str = ""
    """What a running guest keeps of the field when it narrows: a gap until there is a new guest."""

    must_exist: bool | None = None
    """For a list of paths: whether they must exist."""

    shown: Shown = Shown.used
    """Where ``%policy`` shows the field."""

    for_cells: bool = True
    """Whether the field matters to the author of cells, so that a language model is told."""

    only_with: tuple[str, tuple[str, ...] | Literal["any"]] | None = None
    """Another field (a flat name), and the values that it must have for this one to count."""

    words: Callable[[Any], str] | None = None
    """Returns the text for a value in ``%policy``, if listing its parts would tell less."""

    means: str = ""
    """The comment that ``cellblock learn`` writes above a line with this field."""

    @property
    def is_capability(self) -> bool:
        """Whether the field is enforced by something, and so has a status."""
        return bool(self.gap or self.host)


T = TypeVar("T")
_KEY: Final = "row"


@overload
def row(default: T, **properties: Any) -> T: ...
@overload
def row(*, default_factory: Callable[[], T], **properties: Any) -> T: ...
def row(
    default: object = dataclasses.MISSING,
    *,
    default_factory: Callable[[], object] | None = None,
    **properties: Any,
) -> object:
    """Return a dataclass field with a default and a ``Row`` of these ``properties``.

    It is made by ``dataclasses.field``, so pydantic treats it as any other. To a type checker it is
    the default.
    """
    metadata = {_KEY: Row(**properties)}
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def rows_of(model: type) -> dict[str, Row]:
    """Return the rows of a dataclass's fields, in their order. Raises KeyError if one has none."""
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(model)}
