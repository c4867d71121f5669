"""Shows a table in a question: its shape, its columns and its first rows.

The values are read from the Arrow buffers that the guest sent, by this module alone: the host
imports no library for a guest, and no question waits for an import. Only the fields that are shown
are checked here; the process that runs the call checks the buffers as a whole.
"""

from __future__ import annotations

import datetime as dt
import struct
from typing import TYPE_CHECKING, Any, Final

from cellblock.render.cards import count
from cellblock.render.text import pieces, width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.wire.messages import Column, Frame

#: The most rows and fields of a table that is shown whole. Of a larger one, so many rows, columns
#: and characters of a field are shown.
MOST_ROWS: Final = 20
MOST_FIELDS: Final = 400
FIRST_ROWS, FIRST_COLUMNS, _FIELD = 5, 20, 40
#: Characters of a field that is cut.
_CUT: Final = _FIELD - len("...")
#: The formats by which ``struct`` reads one value of Arrow's types.
_FORMATS: Final = {
    "int8": "<b",
    "int16": "<h",
    "int32": "<i",
    "int64": "<q",
    "uint8": "<B",
    "uint16": "<H",
    "uint32": "<I",
    "uint64": "<Q",
    "halffloat": "<e",
    "float": "<f",
    "double": "<d",
    "date32[day]": "<i",
    "timestamp": "<q",
    "duration": "<q",
}
_OFFSETS: Final = {"string": "<i", "binary": "<i", "large_string": "<q", "large_binary": "<q"}
_KINDS: Final = {"table": "table", "series": "column", "index": "index"}
#: People's names for Arrow's types, if they are other ones.
_TYPES: Final = {
    "string": "text",
    "large_string": "text",
    "binary": "bytes",
    "large_binary": "bytes",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date",
    "timestamp": "time",
}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNREADABLE: Final = "<can't be read>"


class ShownTable:
    """A table within a call's arguments, as text.

    ``whole``: nothing is left out. It becomes False if ``parts`` meets a field that can't be read.
    """

    def __init__(self, frame: Frame) -> None:
        rows = frame.columns[0].length if frame.columns else 0
        self.whole = rows <= MOST_ROWS and rows * len(frame.columns) <= MOST_FIELDS
        self._frame = frame
        self._rows = rows

    def parts(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the shape, the columns, and each row that is shown.

        Each is a text and the items that follow it. The marks for parts that are left out are in
        ASCII, since a question names each letter that is not, and those must be the table's own.
        """
        frame = self._frame
        rows = self._rows
        columns = self._frame.columns
        without_index = len(columns) - frame.index if frame.form == "table" else len(columns)
        shape = f"{count(rows, 'row')}, {count(without_index, 'column')}"
        yield f"a {_KINDS[frame.form]} of {frame.library}: {shape}", []
        shown_columns = columns if self.whole else columns[:FIRST_COLUMNS]
        left_out = len(columns) - len(shown_columns)
        names = [
            _name_and_type(column, index=position < frame.index)
            for position, column in enumerate(shown_columns)
        ]
        if left_out:
            names[-1] += f" and {left_out:,} more"
        yield ("columns: ", names) if columns else ("no columns", [])
        first = rows if self.whole else min(rows, FIRST_ROWS)
        for number in range(first):
            fields = [self._field(column, number) for column in shown_columns]
            yield f"row {number}: ", [*fields, *(["..."] if left_out else [])]
        if rows > first:
            yield f"... {count(rows - first, 'more row')}", []

    def __repr__(self) -> str:
        """Return all parts in one line, for a table within a list or dict."""
        return f"<{'; '.join(start + ', '.join(items) for start, items in self.parts())}>"

    def _field(self, column: Column, row: int) -> str:
        try:
            text = _literal(column, row)
        except (struct.error, ValueError, IndexError, KeyError, TypeError):
            self.whole = False
            return _UNREADABLE
        return text if self.whole or width(text) <= _FIELD else next(pieces(text, _CUT)) + "..."


def _name_and_type(column: Column, *, index: bool) -> str:
    """Return a column's name and type."""
    values = column if column.categories is None else column.categories
    kind = _TYPES.get(values.type, values.type) + (
        f" shown in UTC, of zone {values.zone}" if values.zone else ""
    )
    category = "" if column.categories is None else "category of "
    return f"{'index ' if index else ''}{column.name!r} ({category}{kind})"


def _literal(column: Column, row: int) -> str:
    """Return a field as a literal. Raises the errors of ``_field`` for malformed buffers."""
    validity, *buffers = column.buffers
    if not 0 <= row < column.length:
        raise IndexError(row)
    if validity is not None and not _bit_at(validity, row):
        return "None"
    if column.type == "bool":
        return repr(_bit_at(_present(buffers[0]), row))
    if column.type in _OFFSETS:
        return _text_literal(column, buffers, row)
    value = _number_at(buffers[0], _FORMATS[column.type], row)
    if column.categories is not None:
        if column.categories.categories is not None:
            raise ValueError("categories of categories")
        return _literal(column.categories, value)
    return _moment(column, value)


def _text_literal(column: Column, buffers: Sequence[bytes | None], row: int) -> str:
    """Return the literal of a text, or of bytes."""
    begin, end = (_number_at(buffers[0], _OFFSETS[column.type], index) for index in (row, row + 1))
    content = (buffers[1] or b"")[begin:end]
    if not 0 <= begin <= end or len(content) != end - begin:
        raise ValueError("offsets that are none")
    return repr(content if column.type.endswith("binary") else content.decode())


def _moment(column: Column, value: Any) -> str:
    """Return a number as its column's type shows it: a date, a time, a duration, or a number."""
    if column.type == "date32[day]":
        return _time(value * 86_400, 0).removesuffix(" 00:00:00")
    if column.type == "timestamp":
        seconds, rest = divmod(value, per := _PER_SECOND[column.unit])
        return _time(seconds, rest * (10**9 // per))
    return f"{value} {column.unit}" if column.type == "duration" else repr(value)


def _time(seconds: int, nanoseconds: int) -> str:
    """Return a time in UTC, or its number of seconds if it is outside of Python's calendar."""
    rest = f".{nanoseconds:09}".rstrip("0") if nanoseconds else ""
    try:
        moment = _EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        return f"{seconds}{rest} s after 1970"
    return f"{moment.replace(tzinfo=None).isoformat(' ')}{rest}"


def _present(buffer: bytes | None) -> bytes:
    if buffer is None:
        raise ValueError("a buffer that is missing")
    return buffer


def _bit_at(buffer: bytes, index: int) -> bool:
    return bool(buffer[index >> 3] >> (index & 7) & 1)


def _number_at(buffer: bytes | None, form: str, index: int) -> Any:
    return struct.unpack_from(form, _present(buffer), index * struct.calcsize(form))[0]
