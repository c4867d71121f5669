"""Write lines into a policy's file as an operator would: comments and layout stay.

``tomlkit`` knows where in a file a key belongs. What is merged and what is replaced is here: lists
and tables grow by what is new, anything else has the new value.
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

#: Names a preset; a file that is there keeps its own.
_EXTENDS: Final = "extends"


def with_lines(text: str, lines: str) -> str:
    """Return a file's text with ``lines`` in it, which are TOML as well.

    An entry of a list that is there already is not added again, and a file keeps what it extends.
    Raises ValueError for lines that are not TOML, or do not fit.
    """
    try:
        document, added = tomlkit.parse(text), tomlkit.parse(lines).unwrap()
        if text:
            added.pop(_EXTENDS, None)
        _merge(document, added)
        return tomlkit.dumps(document)
    except TOMLKitError as error:
        raise ValueError(str(error)) from None


def _merge(table: MutableMapping[str, Any], added: Mapping[str, Any], name: str = "") -> None:
    for key, value in added.items():
        there = table.get(key)
        if isinstance(value, dict):
            if there is None:
                # Its own [header] only where it holds more than tables.
                is_super = all(isinstance(own, dict) for own in value.values())
                table[key] = there = tomlkit.table(is_super_table=is_super)
            if not isinstance(there, dict):
                raise TOMLKitError(f"{name}{key} is no table")
            _merge(table[key], value, f"{name}{key}.")
        elif isinstance(value, list) and isinstance(there, list):
            for entry in value:
                if entry not in there:
                    there.append(entry)
        else:
            table[key] = value


def add_lines(file: str, lines: str, *, extends: str, project: Path) -> tuple[Policy, Policy]:
    """Write ``lines`` into a policy's file; one that is not there is made, and ``extends`` that.

    Return the policies before and after; before a new file there was what it extends. The file
    changes only if what it then says is a policy. Raises PolicyError.
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
            if (named := tomlkit.parse(text).get(_EXTENDS)) is None:
                text = f'{_EXTENDS} = "{extends}"\n{text}'
            before = load(str(named or extends), project=project, allow_unsafe=True)
        return before, _replaced(path, text, project)
    except (ValueError, TOMLKitError) as error:
        remedy = "Give each as it would stand in the file: 'timeout = 120'."
        raise PolicyError(f"these lines do not fit: {error}", file=file, remedy=remedy) from None
    except OSError as error:
        what = f"can't be written: {error.strerror}"
        raise PolicyError(what, file=file, remedy="Name a file of yours.") from None


def _refuse_another_base(path: Path, lines: str, file: str) -> None:
    """Raise PolicyError where lines are for a policy that extends another preset than the file."""
    named = tomlkit.parse(lines).get(_EXTENDS)
    own = tomlkit.parse(path.read_text("utf-8")).get(_EXTENDS, "safe")
    if named is not None and named != own:
        what, remedy = "the file extends another preset", "Name a file that is yet to be made."
        raise PolicyError(what, file=file, key=_EXTENDS, value=repr(str(own)), remedy=remedy)


def _replaced(path: Path, text: str, project: Path) -> Policy:
    """Put ``text`` in a file's place if it is a policy there, and return that."""
    descriptor, trial = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".toml")
    try:
        os.write(descriptor, text.encode())
        os.fchmod(descriptor, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        load(trial, project=project, allow_unsafe=True)
        os.replace(trial, path)
    except PolicyError as error:
        for one in error.all():
            one.file = str(path)
        raise
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(trial)
    return load(str(path), project=project, allow_unsafe=True)
