"""The bounds and words that a policy's fields may use, as data. Sorted; a diff here is a review."""

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
    """A table of a policy's file: pydantic takes nothing that its fields don't say."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {
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


def frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of a file's values with tuples for lists."""
    return {key: tuple(own) if isinstance(own, list) else own for key, own in values.items()}


Seconds = Annotated[float, Range(0.1)]
Count = Annotated[int, Range(1)]
Bytes = Annotated[int, Range(1)]
Depth = Annotated[int, Range(0, 50)]
#: An interpreter with IPython in it takes 20 to 24 MiB.
Memory = Annotated[int, Range(32 * MIB)]
#: Of one call's arguments, or its value: a frame has to hold it.
ToolBytes = Annotated[int, Range(1, 16 * MIB)]
InFlight = Annotated[int, Range(1, 10_000)]
#: Lower ones take a right that no cell has.
Port = Annotated[int, Range(1_024, 65_535)]
#: Ports of a session that are open at a time: the host listens at each.
MAX_PORTS: Final = 32
#: Entries of ``devices``.
MAX_DEVICES: Final = 64


PRESETS: Final = ("safe", "data", "unsafe")

#: Former names, which files may use: Reyn called mode ``safe`` pure and mode ``unsafe`` trusted.
FORMER_NAMES: Final = {"pure": "safe", "trusted": "unsafe"}

#: Where cells are to run, and whether what they say is looked at: a backend and a preset in one
#: word (mellea's execution tiers). ``auto`` takes none but what runs on this machine itself.
TIERS: Final = {
    "local": ("safe", "auto"),
    "local_unsafe": ("unsafe", "auto"),
    "docker": ("safe", "docker"),
    "docker_unsafe": ("unsafe", "docker"),
}


def base_of(file: str) -> str:
    """Return the preset that a policy is called by, in place of a file; empty for a file."""
    name = FORMER_NAMES.get(file, file)
    return name if name in PRESETS else TIERS.get(name, ("",))[0]


#: Folders that are known only when a kernel starts.
PLACEHOLDERS: Final = ("{checkout}", "{project}", "{scratch}")

#: Set by Jupyter servers for a session's kernel: the notebook's folder and name.
SESSION_NAME: Final = "JPY_SESSION_NAME"

#: Set to sandbox values in every guest, so a policy can't pass the host's.
FIXED_ENVIRONMENT: Final = ("HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR")

#: Comm targets that widgets speak through; ``widget_modules`` decides about them.
WIDGET_TARGETS: Final = ("jupyter.widget", "jupyter.widget.control")
#: How the comm targets of the host's own begin: no cell opens one, whatever a policy says.
HOST_TARGETS: Final = "cellblock."
#: The target on which an extension of JupyterLab's speaks with the host.
LAB_TARGET: Final = "cellblock.lab"


#: How many bytes are in what a file may say a size in.
_UNITS: Final = {"B": 1} | {
    f"{letter}{middle}B": base ** (1 + power)
    for power, letter in enumerate("KMGT")
    for middle, base in (("i", 1024), ("", 1000))
}
#: Digits are few, since cells may write a size, too: a float has no more than 308.
_SIZE: Final = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?) ?({'|'.join(_UNITS)})")
#: The same for JSON schema.
SIZE_PATTERN: Final = f"^{_SIZE.pattern}$"


def is_size(field: str) -> bool:
    """Whether a field, by its name in its table, is a number of bytes."""
    return field.endswith("_bytes") or field == "max_file_size"


def size_of(text: str) -> int | None:
    """Return the bytes of a size as files have it, ``8 GiB``; None for any other text."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])


def size_text(value: int) -> str:
    """Return bytes as a file can have them: ``8 GiB`` if that is exact."""
    for letter in "TGMK":
        if value and value % _UNITS[f"{letter}iB"] == 0:
            return f"{value // _UNITS[f'{letter}iB']} {letter}iB"
    return f"{value} B"


def tool_name(entry: str) -> str:
    """Return what cells call a tool, of its entry in ``tools``."""
    return entry.rpartition(":")[2].rpartition(".")[2]


def is_of_server(name: str, servers: Iterable[str]) -> bool:
    """Whether cells call a tool of an MCP server's by this name."""
    return any(name.startswith(f"{server}_") for server in servers)


#: Names that are listed rather than referred to.
_FEW: Final = 12


def closest(name: str, known: Iterable[str], *, what: str) -> str:
    """Return a sentence that names the closest of ``known``, or all when they are few."""
    import difflib  # noqa: PLC0415 - only when something is wrong already

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    if len(names) <= _FEW:
        return f"Known {what}: {', '.join(names)}."
    return f"See `cellblock policy schema` for the known {what}."
