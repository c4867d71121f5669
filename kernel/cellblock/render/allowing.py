"""The lines of a policy file that allow what was refused: one block, and where it goes.

Whatever was refused at once has one block: a list that several lines add to is one line of it. The
block is whole, so that pasting it as a file works, and ``cellblock policy add`` takes it for a file
that is there.
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
    """What allows something: ``how`` says where the ``block`` goes, with code in backticks."""

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
    """Return the block of some lines, and where it goes; neither where there are no lines.

    ``file`` is the policy's file as it was named, a preset's name, or empty where nobody knows.
    ``is_operators`` says that whoever reads it can't write there, ``raises`` that the lines are
    limits, and ``checks`` that no kernel runs: notebooks are checked.
    """
    block = merged(lines)
    if not block:
        return Allowing()
    to = "To raise it" if raises else "To allow it"
    shown, extends = clip(visible(file), _MAX_FILE), base_of(file)
    add = f"`cellblock policy add {shlex.quote(shown) if shown else ANY_FILE} 'LINES'`"
    if extends:
        preset = "" if extends == "safe" else f"--extends {extends} "
        write = f"`cellblock policy add {NEW_FILE} {preset}'LINES'`"
        then = f"run `cellblock install --policy {NEW_FILE}`, and choose that kernel"
        then = f"give `--policy {NEW_FILE}`" if checks else then
        how = f"{to}, write this to {NEW_FILE}, by hand or by {write}; then {then}."
    elif is_operators:
        how = f"{to}, ask whoever keeps {shown} to add this, by {add}."
    elif not shown:
        how = f"{to}, add this to the policy file, by {add}."
    else:
        then = "" if checks else ", and restart the kernel"
        how = f"{to}, add this to your policy file {shown}, by {add}{then}."
    if any(EXAMPLE_HOST in line for line in block):
        how += _YOUR_HOST
    return Allowing(how, (*_head(file), *block))


def who_allows_more(file: str, *, is_operators: bool = False) -> str:
    """Return where more can be allowed than a policy does, for whoever reads a card."""
    shown = clip(visible(file), _MAX_FILE)
    if base_of(file) or not shown:
        return "Only a policy file of your own can allow more: cellblock install --policy FILE."
    if is_operators:
        return f"Only the policy file {shown} can allow more: ask whoever keeps it."
    return f"Only your policy file {shown} can allow more, once the kernel is restarted."


def in_a_line(lines: Sequence[str], file: str, *, is_operators: bool = False) -> str:
    """Return the command that allows it, and whose it is, for those who see one line."""
    block, extends = merged(lines), base_of(file)
    if not block:
        return ""
    shown = clip(visible(file), _MAX_FILE)
    whose = f", ask whoever keeps {shown}" if is_operators and not extends else ""
    return f"{whose}: {add_command(block, '' if extends else shown, extends)}"


def _head(file: str) -> Iterator[str]:
    """Yield the lines with which a new file says what the policy was until now."""
    if extends := base_of(file):
        yield f"extends = {json.dumps(extends)}"
        backend = TIERS.get(FORMER_NAMES.get(file, file), ("", "auto"))[1]
        if backend != "auto":
            yield f"backend = {json.dumps(backend)}"


def merged(lines: Iterable[str]) -> tuple[str, ...]:
    """Return lines with the values of each field in one; what is no line of TOML is left out.

    Of two numbers the larger one allows both, and ``true`` allows what a list names.
    """
    found: dict[str, Any] = {}
    for line in lines:
        try:
            values = dict(_flat(tomllib.loads(line)))
        except tomllib.TOMLDecodeError:
            continue
        for field, value in values.items():
            if not (field.startswith("ops.") and _is_secret(value)):
                found[field] = _both(found.get(field), value)
    if any(field in found for field in _READING):
        # The host reads for cells what they name: not what projects keep beside their data.
        found[_DENIED] = _both(found.get(_DENIED), [GROUP])
    return tuple(f"{field} = {_toml(value)}" for field, value in found.items())


#: Grants of reading, and where secrets are kept from them.
_READING: Final = ("ops.read_file.roots",)
_DENIED: Final = "add.read_deny_paths"


def _is_secret(value: object) -> bool:
    """Whether a list has a path of what holds secrets, or of what lies in such a folder."""
    paths = value if isinstance(value, list) else ()
    names = [name for path in paths for name in str(path).removesuffix("?").split("/")]
    return any(fnmatch.fnmatchcase(name, secret) for name in names for secret in SECRET_NAMES)


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _both(old: Any, new: Any) -> Any:
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
