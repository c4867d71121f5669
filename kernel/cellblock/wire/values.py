"""Values that cross between cells and tools: data, by exact types, and nothing that is called.

None, bool, int of 64 bits, float, str and bytes cross as they are; lists, tuples and sets as
lists; dicts with str keys as dicts. Dates and times cross as ISO texts, durations as seconds,
Decimal and UUID as texts: a tool's type hints make them again.
"""

from __future__ import annotations

import datetime as dt
import decimal
import sys
import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.errors import WireError
from cellblock.wire.frames import check

if TYPE_CHECKING:
    from collections.abc import Callable


#: Levels of containers within each other.
MAX_DEPTH: Final = 64
#: Items and bytes of a cell's last value that comes with its result.
SMALL: Final = 10_000
SMALL_BYTES: Final = 1 << 20
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_LISTS: Final = (list, tuple, set, frozenset)
_KEYS: Final = frozenset({str})
#: Subclasses of these are taken for what they are below: numpy's scalars, pandas' times, named
#: tuples, counters. Called by the type itself, so that no method of a subclass is.
_BASES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dt.datetime, dt.datetime.isoformat),
    (dt.date, dt.date.isoformat),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: list(tuple.__iter__(value))),
)
_SIMPLER: Final[dict[type, Callable[[Any], Any]]] = {
    bytearray: bytes,
    dt.date: dt.date.isoformat,
    dt.datetime: dt.datetime.isoformat,
    dt.time: dt.time.isoformat,
    dt.timedelta: dt.timedelta.total_seconds,
    decimal.Decimal: decimal.Decimal.__str__,
    uuid.UUID: uuid.UUID.__str__,
}


def _no_extension(_code: int, _data: memoryview) -> None:
    raise ValueError("an extension is no data that crosses")


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ext_hook=_no_extension).decode

#: What of a library's kind of table or column is data, so that an error can say so.
_DATA_OF: Final = {
    ("pandas", "DataFrame"): "to_dict('records')",
    ("pandas", "Series"): "tolist()",
    ("pandas", "Index"): "tolist()",
    ("polars", "DataFrame"): "to_dicts()",
    ("polars", "Series"): "to_list()",
    ("pyarrow", "Table"): "to_pylist()",
}


def not_data(kind: type) -> TypeError:
    """Return the error for a value of a type that does not cross; of a table, what does."""
    names = [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]
    data = next((f": pass its {_DATA_OF[one]}" for one in names if one in _DATA_OF), "")
    return TypeError(f"{kind.__name__} is no data that crosses{data}")


def plain(value: Any, other: Callable[[Any], Any] | None = None, depth: int = 0) -> Any:
    """Return ``value`` in the types that cross; ``other`` may make such a value of another type.

    What ``other`` has made an extension of stays one, such as a table (``wire.arrays``).

    Raises TypeError for what is no data, ValueError for what is too deep.
    """
    kind = type(value)
    if kind in _SCALARS or kind is msgspec.msgpack.Ext:
        return value
    if depth >= MAX_DEPTH:
        raise ValueError(f"it is more than {MAX_DEPTH} levels deep")
    if kind in _LISTS:
        return _list(value, other, depth)
    if kind is dict:
        return _dict(value, other, depth)
    if _is_missing(value):
        return None
    base = next((of for base, of in _BASES if issubclass(kind, base)), None)
    simpler = _SIMPLER.get(kind) or base or other
    if simpler is not None:
        return plain(simpler(value), other, depth + 1)
    raise not_data(kind)


def _is_missing(value: Any) -> bool:
    """Return whether a value is one of pandas' for what is missing.

    ``NaT`` is a datetime by its class, and the first day of year 1 by what datetime makes of it.
    """
    pandas = sys.modules.get("pandas")
    return pandas is not None and any(value is getattr(pandas, name, ()) for name in ("NaT", "NA"))


def _list(value: Any, other: Callable[[Any], Any] | None, depth: int) -> Any:
    if _SCALARS.issuperset(map(type, value)):
        return value if type(value) is list else list(value)
    return [plain(item, other, depth + 1) for item in value]


def _dict(value: dict[Any, Any], other: Callable[[Any], Any] | None, depth: int) -> Any:
    if not _KEYS.issuperset(map(type, value)):
        kind = next(type(key) for key in value if type(key) is not str)
        raise TypeError(f"a dict with keys of type {kind.__name__} does not cross: use str")
    if _SCALARS.issuperset(map(type, value.values())):
        return value
    return {key: plain(item, other, depth + 1) for key, item in value.items()}


def of_numpy(value: Any) -> Any:
    """Return data for a value of numpy's, or an array of pandas' own, for ``plain``.

    ``unique`` of a column of texts is such an array, where it was one of numpy's. Raises TypeError.
    """
    kind, numpy = type(value), sys.modules.get("numpy")
    for base in () if numpy is None else (numpy.generic, numpy.ndarray):
        if issubclass(kind, base):
            return base.tolist(value)
    extensions: Any = sys.modules.get("pandas.api.extensions")
    if extensions is not None and issubclass(kind, extensions.ExtensionArray):
        items = extensions.ExtensionArray.tolist(value)
        if value.dtype.kind == "f":  # as in one of numpy's
            return items
        # What is missing among texts is NaN, too, and no number is meant.
        return [None if gone else item for item, gone in zip(items, value.isna(), strict=True)]
    raise not_data(kind)


def encode_small(value: Any) -> bytes:
    """Encode a value of few items, which are counted first. Raises TypeError, ValueError."""
    if not _is_small(value):
        raise ValueError(f"it has more than {SMALL:,} items")
    return bytes(encode(plain(value, of_numpy), SMALL_BYTES, "Sandbox.get"))


def _is_small(value: Any) -> bool:
    """Return whether a value has few items, a text one for each 128 characters of it."""
    found, left = 0, [value]
    while left and found <= SMALL:
        one = left.pop()
        kind, found = type(one), found + 1
        if (text := next((of for of in (str, bytes) if issubclass(kind, of)), None)) is not None:
            found += text.__len__(one) >> 7
        for of in (*_LISTS, dict):
            if issubclass(kind, of) and found + of.__len__(one) <= SMALL:
                left += dict.values(one) if of is dict else of.__iter__(one)
            elif issubclass(kind, of):
                return False
    return found <= SMALL


def encode(value: Any, most: int, field: str = "tool_max_bytes") -> msgspec.Raw:
    """Encode what ``plain`` returned. Raises ValueError for what is beyond 64 bits, or ``most``.

    ``field`` is what of the policy sets that.
    """
    try:
        encoded = _encode(value)
    except OverflowError:
        raise ValueError("an int has more than 64 bits; pass str(n)") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds surrogates, which stand for no characters") from None
    if len(encoded) > most:
        raise ValueError(f"it takes {len(encoded):,} bytes; {most:,} may cross ({field})")
    try:
        check(encoded)
    except WireError as exc:
        raise ValueError(str(exc)) from None
    return msgspec.Raw(encoded)


def checked(encoded: bytes, most: int) -> Any:
    """Return a value that a peer encoded. Raises ValueError for what ``plain`` never made."""
    if len(encoded) > most:
        raise ValueError(f"what came has more than {most:,} bytes")
    try:
        check(encoded)
        return plain(_decode(encoded))
    except (TypeError, ValueError, RecursionError, msgspec.DecodeError, WireError) as exc:
        raise ValueError(f"what came is no value: {exc}") from None


def decode(raw: msgspec.Raw) -> Any:
    """Return the value.

    Raises msgspec.DecodeError, ValueError for what ``plain`` never made, or RecursionError for
    what is too deep.
    """
    return _decode(raw)
