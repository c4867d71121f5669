"""Adds lines to a policy's file as an operator would: comments and layout stay.

``tomlkit`` finds the place of a key in the file. This module merges the values: new entries are
appended to lists and tables, any other value is replaced.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from cellblock.errors import PolicyError
from cellblock.policy.load import KNOWN, load

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from cellblock.policy.model import Policy

#: The key with the preset's name. An existing file keeps its own.
_EXTENDS: Final = "extends"


def with_lines(text: str, lines: str) -> str:
    """Return a file's text with ``lines``, which are TOML too, merged into it.

    An entry that a list has already is not added again, and a file keeps its ``extends``. Raises
    ValueError for lines that are not TOML, or do not fit the file.
    """
    try:
        document, additions = tomlkit.parse(text), tomlkit.parse(lines).unwrap()
        if text:
            additions.pop(_EXTENDS, None)
        _merge(document, additions)
        return tomlkit.dumps(document)
    except TOMLKitError as error:
        raise ValueError(str(error)) from None


def _merge(table: MutableMapping[str, Any], additions: Mapping[str, Any], name: str = "") -> None:
    for key, value in additions.items():
        existing = table.get(key)
        if isinstance(value, dict):
            if existing is None:
                # A table of tables only has no [header] of its own.
                is_super = all(isinstance(child, dict) for child in value.values())
                table[key] = existing = tomlkit.table(is_super_table=is_super)
            if not isinstance(existing, dict):
                raise TOMLKitError(f"{name}{key} is no table")
            _merge(table[key], value, f"{name}{key}.")
        elif isinstance(value, list) and isinstance(existing, list):
            for entry in value:
                if entry not in existing:
                    existing.append(entry)
        else:
            table[key] = value


def add_lines(file: str, lines: str, *, extends: str, project: Path) -> tuple[Policy, Policy]:
    """Add ``lines`` to a policy's file. A file that does not exist is made, with this ``extends``.

    Return the policies before and after. For a new file, the policy before is the preset that it
    extends. The file changes only if the result is a valid policy. Raises PolicyError.
    """
    path = Path(os.path.expanduser(file)).resolve()
    if file in KNOWN:
        remedy = "Give a file to write; it may be a new one."
        raise PolicyError("a preset is not changed", file=file, remedy=remedy)
    try:
        if path.exists():
            _refuse_another_base(path, lines, file)
            before = load(str(path), project=project, allow_unsafe=True)
            text = with_lines(path.read_text("utf-8"), lines)
        else:
            text = with_lines("", lines)
            if (base := tomlkit.parse(text).get(_EXTENDS)) is None:
                text = f'{_EXTENDS} = "{extends}"\n{text}'
            before = load(str(base or extends), project=project, allow_unsafe=True)
        return before, _replaced(path, text, project)
    except (ValueError, TOMLKitError) as error:
        remedy = "Give each as it would stand in the file: 'timeout = 120'."
        raise PolicyError(f"these lines do not fit: {error}", file=file, remedy=remedy) from None
    except OSError as error:
        message = f"can't be written: {error.strerror}"
        raise PolicyError(message, file=file, remedy="Name a file of yours.") from None


def _refuse_another_base(path: Path, lines: str, file: str) -> None:
    """Raise PolicyError if the lines name another preset than the file extends."""
    new_base = tomlkit.parse(lines).get(_EXTENDS)
    current_base = tomlkit.parse(path.read_text("utf-8")).get(_EXTENDS, "safe")
    if new_base is not None and new_base != current_base:
        message = "the file extends another preset"
        remedy = "Name a file that is yet to be made."
        raise PolicyError(
            message, file=file, key=_EXTENDS, value=repr(str(current_base)), remedy=remedy
        )


def _replaced(path: Path, text: str, project: Path) -> Policy:
    """Replace a file by ``text`` if that is a valid policy in the file's folder, and return it.

    Raises PolicyError.
    """
    descriptor, trial = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".toml")
    try:
        os.write(descriptor, text.encode())
        os.fchmod(descriptor, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        load(trial, project=project, allow_unsafe=True)
        os.replace(trial, path)
    except PolicyError as error:
        for mistake in error.all():
            mistake.file = str(path)  # not the trial's
        raise
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(trial)
    return load(str(path), project=project, allow_unsafe=True)
