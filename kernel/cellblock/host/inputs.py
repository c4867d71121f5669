"""What cells find in ``inputs``: JSON data of whoever runs them, checked and bounded."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.errors import InputError
from cellblock.policy.links import follow
from cellblock.policy.paths import open_unlinked, within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Bytes of all values as JSON, characters of a name, and levels within each other.
MOST_BYTES: Final = 4 << 20
LONGEST_NAME: Final = 200
DEEPEST: Final = 64
_SHOWN: Final = 60
_SCALARS: Final = frozenset({type(None), bool, int, float, str})


def encoded(values: Mapping[str, Any], *, source: str = "inputs") -> dict[str, str]:
    """Return each value as JSON. ``source`` is what messages call where they are from.

    Raises InputError for what is not JSON's, and for too much.
    """
    found, size = dict[str, str](), 0
    for name, value in values.items():
        if type(name) is not str or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            remedy = f"Give a text of 1 to {LONGEST_NAME} printable characters."
            raise InputError("not a name", file=source, key="", value=_shown(name), remedy=remedy)
        found[name] = _json(name, value, source)
        size += len(found[name])
        if size > MOST_BYTES:
            what = f"they take more than {MOST_BYTES:,} bytes"
            remedy = "Have cells read large data from a file beneath a read root."
            raise InputError(what, file=source, key=name, value="", remedy=remedy)
    return found


def from_file(path: str, written: Sequence[str] = ()) -> dict[str, str]:
    """Return the inputs in a file: one JSON object. Raises InputError.

    In folders that are ``written`` to, cells could have put a link in its place: to what they can't
    read themselves.
    """
    try:
        values = json.loads(_read(path, written), parse_constant=_no_constant)
    except OSError as exc:
        raise _unreadable(path, f"can't be read: {exc.strerror}", "Check the path.") from None
    except (ValueError, RecursionError) as exc:
        raise _unreadable(path, f"not JSON: {exc}", "Mend it there.") from None
    if type(values) is not dict:
        raise _unreadable(path, "not an object", 'Write one: {"name": value}.')
    return encoded(values, source=path)


def _read(path: str, written: Sequence[str]) -> bytes:
    end, links = follow(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111
    if link := next((at for at in links for root in written if within(at, root)), None):
        raise _unreadable(
            path, f"a link leads there that cells could change: {link}", "Name a file."
        )
    fd = open_unlinked(end, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb") as file:  # noqa: PTH123 - of a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _unreadable(path, "not a regular file", "Give a file.")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        remedy = "Have cells read large data from a file beneath a read root."
        raise _unreadable(path, f"larger than {MOST_BYTES:,} bytes", remedy)
    return content


def _unreadable(path: str, message: str, remedy: str) -> InputError:
    return InputError(message, file=path, key="", value="", remedy=remedy)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON's")


def _json(name: str, value: Any, source: str) -> str:
    try:
        _check(value)
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as exc:
        remedy = "Give JSON data: None, bool, int, float, str, list, dict with text keys."
        raise InputError(
            f"no JSON data: {exc}", file=source, key=name, value=_shown(value), remedy=remedy
        ) from None


def _check(value: Any, depth: int = 0) -> None:
    """Raise TypeError for anything that JSON would make something else of, or nothing."""
    kind = type(value)
    if kind in _SCALARS:
        return
    if depth >= DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels deep")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"a key of type {type(key).__name__}")
            _check(item, depth + 1)
    elif kind in {list, tuple}:
        for item in value:
            _check(item, depth + 1)
    else:
        raise TypeError(f"it is of type {kind.__name__}")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
