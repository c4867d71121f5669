"""``allowing``: the lines of a policy file that would allow what was refused, and where they go.

All that was refused at once gets one block of lines: additions to the same list are merged into one
line. The block is a whole policy file: it can be pasted as a new file, and ``cellblock policy add``
takes it as an argument to change an existing one.
"""

from __future__ import annotations

import fnmatch
import json
import shlex
import tomllib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.analysis.findings import ANY_FILE, EXAMPLE_HOST, NEW_FILE, add_command
from cellblock.policy.paths import GROUP, SECRET_NAMES
from cellblock.policy.vocabulary import FORMER_NAMES, TIERS, base_of
from cellblock.render.text import clip, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MAX_FILE: Final = 300
_YOUR_HOST: Final = f" Put your own host in the place of {EXAMPLE_HOST}."


class Allowing(NamedTuple):
    """Lines to write into a policy file, and how. Empty if no line would allow it."""

    #: Where the block goes, and the command that writes it; code is in backticks.
    how: str = ""
    block: tuple[str, ...] = ()


def allowing(
    lines: Iterable[str],
    file: str,
    *,
    is_operators: bool = False,
    raises: bool = False,
    checks: bool = False,
) -> Allowing:
    """Return the block for some lines, and where it goes; an empty ``Allowing`` for no lines.

    ``file`` is the policy's file as it was named, a preset's name, or empty if it is not known. A
    preset is not written to: the block begins a new file that extends it. ``is_operators``: the
    reader can't write to the file. ``raises``: the lines set limits. ``checks``: notebooks are only
    checked, so there is no kernel to restart.
    """
    block = merged(lines)
    if not block:
        return Allowing()
    purpose = "To raise it" if raises else "To allow it"
    file_name = clip(visible(file), _MAX_FILE)
    extends = base_of(file)
    command = f"`cellblock policy add {shlex.quote(file_name) if file_name else ANY_FILE} 'LINES'`"
    if extends:
        preset = "" if extends == "safe" else f"--extends {extends} "
        write_command = f"`cellblock policy add {NEW_FILE} {preset}'LINES'`"
        next_step = f"run `cellblock install --policy {NEW_FILE}`, and choose that kernel"
        next_step = f"give `--policy {NEW_FILE}`" if checks else next_step
        instruction = (
            f"{purpose}, write this to {NEW_FILE}, by hand or by {write_command}; then {next_step}."
        )
    elif is_operators:
        instruction = f"{purpose}, ask whoever keeps {file_name} to add this, by {command}."
    elif not file_name:
        instruction = f"{purpose}, add this to the policy file, by {command}."
    else:
        next_step = "" if checks else ", and restart the kernel"
        instruction = (
            f"{purpose}, add this to your policy file {file_name}, by {command}{next_step}."
        )
    if any(EXAMPLE_HOST in line for line in block):
        instruction += _YOUR_HOST
    return Allowing(instruction, (*_extends_lines(file), *block))


def who_allows_more(file: str, *, is_operators: bool = False) -> str:
    """Return where more can be allowed than a policy does, for whoever reads a card."""
    file_name = clip(visible(file), _MAX_FILE)
    if base_of(file) or not file_name:
        return "Only a policy file of your own can allow more: cellblock install --policy FILE."
    if is_operators:
        return f"Only the policy file {file_name} can allow more: ask whoever keeps it."
    return f"Only your policy file {file_name} can allow more, once the kernel is restarted."


def in_a_line(lines: Sequence[str], file: str, *, is_operators: bool = False) -> str:
    """Return the command that writes the lines, to go on with a sentence, for a one-line remedy.

    It says whom to ask if the reader can't write to the file (``is_operators``).
    """
    block = merged(lines)
    extends = base_of(file)
    if not block:
        return ""
    file_name = clip(visible(file), _MAX_FILE)
    whom_to_ask = f", ask whoever keeps {file_name}" if is_operators and not extends else ""
    return f"{whom_to_ask}: {add_command(block, '' if extends else file_name, extends)}"


def _extends_lines(file: str) -> Iterator[str]:
    """Yield the first lines of a new file, which extend the preset of the policy until now."""
    if extends := base_of(file):
        yield f"extends = {json.dumps(extends)}"
        backend = TIERS.get(FORMER_NAMES.get(file, file), ("", "auto"))[1]
        if backend != "auto":
            yield f"backend = {json.dumps(backend)}"


def merged(lines: Iterable[str]) -> tuple[str, ...]:
    """Return one line for each field that the lines set, with their values merged.

    Lists are joined. Of two numbers the larger one allows both, and ``true`` allows what a list
    names. A line that is not TOML is left out.
    """
    merged_values: dict[str, Any] = {}
    for line in lines:
        try:
            values = dict(_flat(tomllib.loads(line)))
        except tomllib.TOMLDecodeError:
            continue
        for field, value in values.items():
            if not (field.startswith("ops.") and _is_secret(value)):
                merged_values[field] = _union(merged_values.get(field), value)
    if any(field in merged_values for field in _READING_FIELDS):
        # With this grant the host reads any file in the folder that a cell names, so the block
        # also denies the files in which projects keep secrets.
        merged_values[_DENIED_FIELD] = _union(merged_values.get(_DENIED_FIELD), [GROUP])
    return tuple(f"{field} = {_toml(value)}" for field, value in merged_values.items())


#: The fields that let the host read files for cells.
_READING_FIELDS: Final = ("ops.read_file.roots",)
#: The field that denies paths.
_DENIED_FIELD: Final = "add.read_deny_paths"


def _is_secret(value: object) -> bool:
    """Return whether a list has a path of a file with secrets, or within a folder of secrets."""
    paths = value if isinstance(value, list) else ()
    names = [name for path in paths for name in str(path).removesuffix("?").split("/")]
    return any(fnmatch.fnmatchcase(name, secret) for name in names for secret in SECRET_NAMES)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested TOML tables by their dotted names."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _union(old: Any, new: Any) -> Any:
    """Return the value that allows what either value allows."""
    if isinstance(old, list) and isinstance(new, list):
        return list(dict.fromkeys([*old, *new]))
    if old is True or new is True or old is None:
        return True if old is True else new
    is_number = isinstance(old, int | float) and isinstance(new, int | float)
    return max(old, new) if is_number else new


def _toml(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return json.dumps(value, ensure_ascii=False)
