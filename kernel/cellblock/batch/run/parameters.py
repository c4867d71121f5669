"""``-p NAME VALUE``, ``-p NAME=VALUE`` and ``--input FILE``: what cells find in ``inputs``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.errors import InputError
from cellblock.host.session import history

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS: Final = ("-p", "--parameter")


def joined(arguments: Sequence[str]) -> list[str]:
    """Return a command line with ``-p NAME VALUE`` as ``-p NAME=VALUE``."""
    made, rest = list[str](), list(arguments)
    while rest:
        made.append(rest.pop(0))
        if made[-1] == "--":
            return made + rest
        if made[-1] in _OPTIONS and len(rest) > 1 and "=" not in rest[0]:
            made.append(f"{rest.pop(0)}={rest.pop(0)}")
    return made


def parameters(
    given: Sequence[str], files: Sequence[str], written: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values: of the files, in order, then those given by name. Raises InputError.

    A value that is JSON is what it says; any other is a text. ``written`` are folders that cells
    may write: see ``inputs.from_file``.
    """
    values = dict[str, Any]()
    for file in files:
        values |= {name: json.loads(one) for name, one in history.from_file(file, written).items()}
    for one in given:
        name, is_one, text = one.partition("=")
        if not is_one or not name:
            remedy = "Write -p NAME=VALUE, or -p NAME VALUE."
            raise InputError("no name and value", file="-p", key="", value=repr(one), remedy=remedy)
        values[name] = _value(text)
    history.encoded(values, source="-p")
    return values


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)
