"""The bounds and words that a policy's fields may use, as data.

Tables are sorted: a diff here is a review.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
#: The most characters of a policy's name.
MAX_NAME: Final = 64


class Table:
    """A table of a policy's file. pydantic refuses keys that are not its fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {
        "extra": "forbid",
        "strict": True,
        "use_attribute_docstrings": True,
    }


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds of a number, for pydantic, without importing it."""

    least: float
    most: float = 2**53

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        schema = handler(source) | {"ge": self.least, "le": self.most}
        return schema | {"allow_inf_nan": False} if schema["type"] == "float" else schema


def frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of a file's values, with lists as tuples."""
    return {key: tuple(each) if isinstance(each, list) else each for key, each in values.items()}


Seconds = Annotated[float, Range(0.1)]
Count = Annotated[int, Range(1)]
Bytes = Annotated[int, Range(1)]
Depth = Annotated[int, Range(0, 50)]
#: An interpreter with IPython in it takes 20 to 24 MiB.
Memory = Annotated[int, Range(32 * MIB)]
#: Bytes of a call's arguments, or of its value: they must fit into a frame.
ToolBytes = Annotated[int, Range(1, 16 * MIB)]
InFlight = Annotated[int, Range(1, 10_000)]
#: Lower ports need a capability that no cell has.
Port = Annotated[int, Range(1_024, 65_535)]
#: Ports of a session that are open at a time: the host listens at each.
MAX_PORTS: Final = 32
#: Entries of ``devices``.
MAX_DEVICES: Final = 64


PRESETS: Final = ("safe", "data", "unsafe")

#: Former names, which files may use: Reyn called mode ``safe`` pure and mode ``unsafe`` trusted.
FORMER_NAMES: Final = {"pure": "safe", "trusted": "unsafe"}

#: A preset and a backend in one word (mellea's execution tiers). ``auto`` chooses only among
#: backends that run on this machine itself.
TIERS: Final = {
    "local": ("safe", "auto"),
    "local_unsafe": ("unsafe", "auto"),
    "docker": ("safe", "docker"),
    "docker_unsafe": ("unsafe", "docker"),
}


def base_of(file: str) -> str:
    """Return the preset that a policy's name stands for; empty for the path of a file."""
    name = FORMER_NAMES.get(file, file)
    return name if name in PRESETS else TIERS.get(name, ("",))[0]


#: Placeholders for folders that are known only when a kernel starts.
PLACEHOLDERS: Final = ("{checkout}", "{project}", "{scratch}")

#: The variable that Jupyter servers set for a session's kernel: the notebook's folder and name.
SESSION_NAME: Final = "JPY_SESSION_NAME"

#: Variables that have the sandbox's values in every guest, so a policy can't pass the host's.
FIXED_ENVIRONMENT: Final = ("HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR")

#: The comm targets of widgets; ``widget_modules`` decides about them.
WIDGET_TARGETS: Final = ("jupyter.widget", "jupyter.widget.control")
#: The prefix of the host's own comm targets: no cell may open one, whatever a policy says.
HOST_TARGETS: Final = "cellblock."
#: The comm target between JupyterLab's extension and the host.
LAB_TARGET: Final = "cellblock.lab"


#: The units of a size in a file, and the bytes of each.
_UNITS: Final = {"B": 1} | {
    f"{letter}{middle}B": base ** (1 + power)
    for power, letter in enumerate("KMGT")
    for middle, base in (("i", 1024), ("", 1000))
}
#: The number of digits is bounded, since cells may write a size, too, and a float has at most 308.
_SIZE: Final = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?) ?({'|'.join(_UNITS)})")
#: The same for JSON schema.
SIZE_PATTERN: Final = f"^{_SIZE.pattern}$"


def is_size(field: str) -> bool:
    """Return whether a field, by its name in its table, is a number of bytes."""
    return field.endswith("_bytes") or field == "max_file_size"


def size_of(text: str) -> int | None:
    """Return the bytes of a size as files write it, ``8 GiB``; None for any other text."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])


def size_text(value: int) -> str:
    """Return a number of bytes as files write it, in the largest unit in which it is whole."""
    for letter in "TGMK":
        if value and value % _UNITS[f"{letter}iB"] == 0:
            return f"{value // _UNITS[f'{letter}iB']} {letter}iB"
    return f"{value} B"


def tool_name(entry: str) -> str:
    """Return the name by which cells call a tool, from its entry in ``tools``."""
    return entry.rpartition(":")[2].rpartition(".")[2]


def is_of_server(name: str, servers: Iterable[str]) -> bool:
    """Return whether this is a name by which cells call a tool of one of these MCP servers."""
    return any(name.startswith(f"{server}_") for server in servers)


#: The most names that a message lists in full.
_FEW: Final = 12


def closest(name: str, known: Iterable[str], *, what: str) -> str:
    """Return a sentence that names the closest of ``known``, or lists all if they are few.

    Otherwise it refers to the schema. ``what`` is a plural noun for them.
    """
    import difflib  # noqa: PLC0415 - only when something is wrong already

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    if not names:
        return f"There are no {what}."
    if len(names) <= _FEW:
        return f"Known {what}: {', '.join(names)}."
    return f"See `cellblock policy schema` for the known {what}."
