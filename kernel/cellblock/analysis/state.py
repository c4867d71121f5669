"""JSON as a template takes it: read strictly, so that no two readers see two states in one text.

No key twice, no NaN or Infinity, no number that crosses the wire as another, no text that is not
Unicode; bounded in size, depth and number of values.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, Final, NoReturn

#: Characters of a state, values in it, and containers within each other.
LONGEST: Final = 1 << 20
MOST_VALUES: Final = 50_000
DEEPEST: Final = 32
#: Of whole numbers on the wire: 64 bits, with a sign or without.
_LEAST, _MOST = -(2**63), 2**64
_DIGITS: Final = 20
#: Texts, so that nothing in them is taken for a mark, and marks. One without an end takes all.
_MARKS: Final = re.compile(
    r"""
    "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)
    | [\[\]{},]
    """,
    re.DOTALL | re.VERBOSE,
)


class StateError(ValueError):
    """A text that is no state; ``line`` and ``column`` of it, from 1, as far as they are known."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(message)


def read_state(text: str) -> Any:
    """Return the data that ``text`` stands for; nothing but blanks is ``{}``.

    Raises:
        StateError: it is not JSON, ambiguous, or beyond the bounds.

    """
    if not text.strip(" \t\r\n"):
        return {}
    if len(text) > LONGEST:
        raise StateError(f"it has {len(text):,} characters; {LONGEST:,} are read")
    _check_shape(text)
    try:
        text.encode()
        state = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_float=_float,
            parse_int=_int,
        )
        json.dumps(state, ensure_ascii=False).encode()  # escapes can stand for half a character
    except json.JSONDecodeError as exc:
        raise StateError(f"it is not JSON: {exc.msg}", exc.lineno, exc.colno) from None
    except UnicodeEncodeError:
        raise StateError("a text in it is not Unicode: half of a surrogate pair") from None
    except RecursionError:
        raise StateError(f"it is nested deeper than {DEEPEST}") from None
    return state


def _check_shape(text: str) -> None:
    """Raise StateError for too many values, or too deep, before any of it is built."""
    depth = values = 0
    for mark in _MARKS.finditer(text):
        match mark[0]:
            case "[" | "{":
                depth, values = depth + 1, values + 1
                if depth > DEEPEST:
                    line = text.count("\n", 0, mark.start()) + 1
                    raise StateError(f"it is nested deeper than {DEEPEST}", line)
            case "]" | "}":
                depth -= 1
            case ",":
                values += 1
        if values > MOST_VALUES:
            raise StateError(f"it has more than {MOST_VALUES:,} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise StateError(f"the key {twice[:60]!r} stands in one object twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise StateError(f"{name} is no JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise StateError(f"{digits[:_DIGITS]} is larger than any number here")
    return value


def _int(digits: str) -> int:
    if len(digits) > _DIGITS + 1 or not _LEAST <= int(digits) < _MOST:
        raise StateError(f"{digits[:_DIGITS]}… has more than 64 bits")
    return int(digits)
