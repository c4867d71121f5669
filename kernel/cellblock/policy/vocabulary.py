"""The bounds, names and units that a policy's fields may use, as data.

Most tables are sorted, so that a reviewer sees every change of them in a diff.
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
#: A policy's name has at most this many characters.
MAX_NAME: Final = 64


class Table:
    """A table in a policy file. pydantic refuses keys that are not fields of the class."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {
        "extra": "forbid",
        "strict": True,
        "use_attribute_docstrings": True,
    }


@dataclass(frozen=True, slots=True)
class Range:
    """The inclusive bounds of a number. pydantic reads them; this module does not import it."""

    least: float
    most: float = 2**53

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        schema = handler(source) | {"ge": self.least, "le": self.most}
        return schema | {"allow_inf_nan": False} if schema["type"] == "float" else schema


def frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a table in a policy file, with lists as tuples."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }


Seconds = Annotated[float, Range(0.1)]
Count = Annotated[int, Range(1)]
Bytes = Annotated[int, Range(1)]
Depth = Annotated[int, Range(0, 50)]
#: Not less, because an interpreter with IPython in it takes 20 to 24 MiB.
Memory = Annotated[int, Range(32 * MIB)]
#: Bytes of a call's arguments or of its result. Not more, because they must fit into one frame.
ToolBytes = Annotated[int, Range(1, 16 * MIB)]
InFlight = Annotated[int, Range(1, 10_000)]
#: Not lower, because lower ports need a capability of Linux that no cell has.
Port = Annotated[int, Range(1_024, 65_535)]
#: A session has at most this many open ports at a time, because the host listens at each of them.
MAX_PORTS: Final = 32
#: ``devices`` has at most this many entries.
MAX_DEVICES: Final = 64


PRESETS: Final = ("safe", "data", "unsafe")

#: Former names of presets and modes, which policy files may still use. They come from Reyn, where
#: mode ``safe`` was called pure and mode ``unsafe`` trusted.
FORMER_NAMES: Final = {"pure": "safe", "trusted": "unsafe"}

#: Tiers: one word for a preset and a backend. The words are those of mellea's execution tiers.
#: ``auto`` never chooses backend ``docker``.
TIERS: Final = {
    "local": ("safe", "auto"),
    "local_unsafe": ("unsafe", "auto"),
    "docker": ("safe", "docker"),
    "docker_unsafe": ("unsafe", "docker"),
}


def base_of(file: str) -> str:
    """Return the preset of a preset's name, a former name or a tier. Empty for a file's path."""
    name = FORMER_NAMES.get(file, file)
    return name if name in PRESETS else TIERS.get(name, ("",))[0]


#: Placeholders in paths. Their folders are not known before a kernel starts.
PLACEHOLDERS: Final = ("{checkout}", "{project}", "{scratch}")

#: The environment variable in which Jupyter servers tell a kernel its notebook's folder and name.
SESSION_NAME: Final = "JPY_SESSION_NAME"

#: Environment variables that a policy can't pass on from the host, because every guest has its own
#: values for them.
FIXED_ENVIRONMENT: Final = ("HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR")

#: The comm targets of widgets. The policy's ``widget_modules`` decides about them.
WIDGET_TARGETS: Final = ("jupyter.widget", "jupyter.widget.control")
#: The prefix of the host's own comm targets. No cell may open such a comm, under any policy.
HOST_TARGETS: Final = "cellblock."
#: The comm target between JupyterLab's extension and the host.
LAB_TARGET: Final = "cellblock.lab"


#: The units of a size in a policy file, and the number of bytes of each unit.
_UNITS: Final = {"B": 1} | {
    f"{letter}{middle}B": base ** (1 + power)
    for power, letter in enumerate("KMGT")
    for middle, base in (("i", 1024), ("", 1000))
}
#: A size as text. The number of digits is bounded because cells may write sizes too, and a number
#: of more than 308 digits does not fit into a float.
_SIZE: Final = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?) ?({'|'.join(_UNITS)})")
#: The same pattern for the JSON schema.
SIZE_PATTERN: Final = f"^{_SIZE.pattern}$"


def is_size(field: str) -> bool:
    """Return whether a field is a number of bytes. ``field`` is its name, without its table's."""
    return field.endswith("_bytes") or field == "max_file_size"


def size_of(text: str) -> int | None:
    """Return the number of bytes of a size, such as ``8 GiB``. None for any other text."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])


def size_text(value: int) -> str:
    """Return a number of bytes as a size, in the largest unit that gives a whole number."""
    for letter in "TGMK":
        if value and value % _UNITS[f"{letter}iB"] == 0:
            return f"{value // _UNITS[f'{letter}iB']} {letter}iB"
    return f"{value} B"


def tool_name(entry: str) -> str:
    """Return the name under which cells call a tool. ``entry`` is its entry in ``tools``."""
    return entry.rpartition(":")[2].rpartition(".")[2]


def is_of_server(name: str, servers: Iterable[str]) -> bool:
    """Return whether cells call a tool of one of these MCP ``servers`` by this ``name``."""
    return any(name.startswith(f"{server}_") for server in servers)


#: A message lists at most this many names.
_FEW: Final = 12


def closest(name: str, known: Iterable[str], *, what: str) -> str:
    """Return a sentence that helps a user who wrote a wrong ``name``.

    It names the ``known`` name that is most similar. If there is none, it lists all known names if
    they are few, and else refers to the schema. ``what`` is a plural noun for the names.
    """
    import difflib  # noqa: PLC0415 - needed only for an error message

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    if not names:
        return f"There are no {what}."
    if len(names) <= _FEW:
        return f"Known {what}: {', '.join(names)}."
    return f"See `cellblock policy schema` for the known {what}."
