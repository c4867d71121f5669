"""Rows: the properties of a policy field besides its name, type, bounds, default and docstring.

``model.Policy`` gives each field one row, with the function ``row``. Code that goes through all
fields reads the rows, and has no list of fields of its own: narrowing and ``cellblock policy diff``
(``narrowing``), enforcement and the texts of gaps (``backends``), the table of ``%policy``
(``render.policy_card``), ``cellblock learn``, and the tables of the documentation.

A row contains only data, so that a kernel starts without importing the code that uses the row. It
is a named tuple because a dataclass takes longer to define.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- how a field narrows --------------------------------------------------------------------------


class Way(Enum):
    """The ways in which most fields can be narrowed.

    The value is the documentation's text about the values that are narrower.
    """

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
        """The documentation's text about the values that are narrower."""
        return self.value


class Towards(NamedTuple):
    """A field whose value may be narrowed to a word that comes later in ``order``."""

    order: tuple[str, ...]

    @property
    def words(self) -> str:
        """The documentation's text about the values that are narrower."""
        return f"{' or '.join(f'`{word}`' for word in self.order[1:])}, in this order"


class Beneath(NamedTuple):
    """A list of paths that may be narrowed to paths beneath those of the fields ``granting``.

    ``done`` is a verb, such as "can be written". It completes the text "paths beneath those that".
    """

    granting: tuple[str, ...]
    done: str

    @property
    def words(self) -> str:
        """The documentation's text about the values that are narrower."""
        return f"paths beneath those that {self.done}"


class Never(NamedTuple):
    """A field that can't be narrowed: it gives cells no rights, or only the operator may set it.

    ``why`` is the reason that users are shown.
    """

    why: str


Narrower = Way | Towards | Beneath | Never


class EnforcedBy(Enum):
    """The part of cellblock that enforces a field. It decides how a narrowing takes effect."""

    host = "host"
    """The host enforces the field. It uses a narrower value from the next cell on."""

    locks = "locks"
    """The guest's locks enforce the field. For a narrower value, a guest takes more locks."""

    guest = "guest"
    """The field is part of the guest's set-up, so a narrower value needs a new guest."""


# --- the row --------------------------------------------------------------------------------------


class Shown(Enum):
    """The place in ``%policy`` that shows a field.

    Fields in the same place are shown in the order of ``model.Policy``.
    """

    first = "the first thing that readers look for: files, network, processes, time, memory"
    limits = "below that, folded away"
    language = "below the limits"
    used = "last, and only if it has a value"


#: The remedy for a gap, unless the row has another one.
ANOTHER_MACHINE: Final = (
    "use Linux 5.13 or later with Landlock switched on, or choose another backend"
)


class Row(NamedTuple):
    """The properties of a field. All texts are shown to users."""

    narrower: Narrower
    """How a notebook or a cell may narrow the field."""

    enforced_by: EnforcedBy = EnforcedBy.host
    """The part of cellblock that enforces the field. It decides how a narrowing takes effect."""

    host: str | Mapping[str, str] = ""
    """How the host enforces the field, which is the same under every backend. It is one text, or a
    text for each value of the field. A field with this text can't have a gap."""

    gap: str = ""
    """What a cell can do if the field is not enforced. A field with this text depends on the
    operating system, and every backend must declare its status."""

    remedy: str = ANOTHER_MACHINE
    """What the operator can do to close a gap."""

    remedy_if_partial: str = ""
    """The remedy if the field is enforced with holes. It is for holes that another machine would
    have too. If empty, ``remedy`` is shown."""

    lacked: bool = False
    """Whether a gap only means that the user lacks something. Such a gap gives cells no more
    rights."""

    asked: Callable[[Any], bool] | None = None
    """A function that returns whether a policy asks for enforcement of the field. If None, every
    value of the field except None asks for it."""

    stays: str = ""
    """What a running guest keeps when the field is narrowed. It is shown as a gap until there is a
    new guest."""

    must_exist: bool | None = None
    """Whether the paths must exist, for a field that is a list of paths. None for other fields."""

    shown: Shown = Shown.used
    """The place in ``%policy`` that shows the field."""

    for_cells: bool = True
    """Whether the author of cells needs the field. If so, language models are shown it."""

    only_with: tuple[str | tuple[str, ...], tuple[str, ...] | Literal["any"]] | None = None
    """Another field, by its flat name, and the values of it with which this field has an effect.
    "any" means every value that is not empty. Of several other fields, one is enough. If None, the
    field always has an effect."""

    words: Callable[[Any], str] | None = None
    """A function that returns the text of ``%policy`` for a value. If None, the value is shown as
    it is, and a table by its keys."""

    means: str = ""
    """The comment that ``cellblock learn`` writes above a line with this field."""

    @property
    def is_capability(self) -> bool:
        """Whether something enforces the field, so that the field has a status."""
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

    ``dataclasses.field`` makes the field, so pydantic treats it like any other. A type checker sees
    only the default.
    """
    metadata = {_KEY: Row(**properties)}
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def rows_of(model: type) -> dict[str, Row]:
    """Return the rows of a dataclass by field name, in the order of the fields.

    Raises KeyError if a field has no row.
    """
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(model)}
