"""What is said of a policy field in its row, beside its name, type, bounds, default and text.

``model.Policy`` gives each field one row, with ``row``. Whatever goes through fields reads rows,
and has no list of fields of its own: how a policy narrows and differs (``narrowing``, ``cellblock
policy diff``), what backends declare and what a gap says (``backends``), the table of ``%policy``
(``render.policy_card``), what ``cellblock learn`` writes, and the tables of the documentation.

A row is data, so that a kernel starts without what reads it. It is a tuple for the same reason: a
dataclass takes longer to define.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- how a field narrows --------------------------------------------------------------------------


class Way(Enum):
    """How most fields narrow; the value says it for the documentation."""

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
        """What is narrower."""
        return self.value


class Towards(NamedTuple):
    """A word becomes one that comes later in ``order``."""

    order: tuple[str, ...]

    @property
    def words(self) -> str:
        """What is narrower."""
        return f"{' or '.join(f'`{word}`' for word in self.order[1:])}, in this order"


class Beneath(NamedTuple):
    """Each path lies beneath one of the fields in ``granting``; ``done`` is done with those."""

    granting: tuple[str, ...]
    done: str

    @property
    def words(self) -> str:
        """What is narrower."""
        return f"paths beneath those that {self.done}"


class Never(NamedTuple):
    """The field is not narrowed: it grants nothing to cells, or is the operator's alone."""

    why: str


Narrower = Way | Towards | Beneath | Never


class EnforcedBy(Enum):
    """Who enforces a field, and so what it takes to have less of it."""

    host = "host"
    """The host: it keeps less from one cell to the next."""

    locks = "locks"
    """Locks of the guest's, on which more can be laid."""

    guest = "guest"
    """What a guest is made of: only a new one has less of it."""


# --- the row --------------------------------------------------------------------------------------


class Shown(Enum):
    """Where ``%policy`` shows a field. Fields of one place have the model's order."""

    first = "what is looked for first: files, network, processes, time, memory"
    limits = "below that, folded away"
    language = "below the limits"
    used = "last, and only if it has a value"


#: What closes a gap unless a row knows better.
ANOTHER_MACHINE: Final = (
    "use Linux 5.13 or later with Landlock switched on, or choose another backend"
)


class Row(NamedTuple):
    """What is said of a field. Texts are for users."""

    narrower: Narrower
    """How a notebook or a cell may change the field."""

    enforced_by: EnforcedBy = EnforcedBy.host
    """What it takes to have less of it."""

    host: str | Mapping[str, str] = ""
    """What the host does about the field, behind every backend alike; or that, by the field's
    value. Such a field can't have a gap."""

    gap: str = ""
    """What a cell can do where the field is not enforced. The operating system has a part in it:
    each backend declares what the field is worth."""

    remedy: str = ANOTHER_MACHINE
    """What closes a gap."""

    remedy_if_partial: str = ""
    """What closes the holes of a field that is enforced, if another machine would have them too."""

    lacked: bool = False
    """Whether a gap lets no cell do more: its user lacks something."""

    asked: Callable[[Any], bool] | None = None
    """Whether a policy asks for anything to be enforced; None: if the field is not None."""

    stays: str = ""
    """What a guest that runs keeps of the field when it narrows. A gap until there is a new one."""

    must_exist: bool | None = None
    """For a list of paths: whether they must exist."""

    shown: Shown = Shown.used
    """Where ``%policy`` shows the field."""

    for_cells: bool = True
    """Whether it matters to who writes cells: a language model is told."""

    only_with: tuple[str, tuple[str, ...] | Literal["any"]] | None = None
    """The field counts only if another one (a flat name) has one of these values, or any at all."""

    words: Callable[[Any], str] | None = None
    """What ``%policy`` says of the value, where its parts one by one would say less."""

    means: str = ""
    """What ``cellblock learn`` says above a line with this field."""

    @property
    def is_capability(self) -> bool:
        """Whether something enforces the field, so that it has a status."""
        return bool(self.gap or self.host)


T = TypeVar("T")
_KEY: Final = "row"


@overload
def row(default: T, **said: Any) -> T: ...
@overload
def row(*, default_factory: Callable[[], T], **said: Any) -> T: ...
def row(
    default: object = dataclasses.MISSING,
    *,
    default_factory: Callable[[], object] | None = None,
    **said: Any,
) -> object:
    """Return a field of a dataclass with a default and a ``Row``: ``said`` are the row's values.

    Python's own ``field`` makes it, so that pydantic sees no difference; nor does a type checker,
    to which it is the default.
    """
    metadata = {_KEY: Row(**said)}
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def rows_of(model: type) -> dict[str, Row]:
    """Return the rows of a dataclass's fields, in their order. Raises KeyError if one has none."""
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(model)}
