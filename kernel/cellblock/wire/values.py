"""Values that cross between cells and tools: data of exact types, of which nothing is called.

None, bool, int of 64 bits, float, str and bytes cross as they are; lists, tuples and sets as
lists; dicts with str keys as dicts. Dates and times cross as ISO texts, durations as seconds,
Decimal and UUID as texts, of which a tool's type hints make objects again.

``plain`` makes such data of a value, ``encode`` encodes it within a bound. ``checked`` decodes and
checks a peer's value; ``decode`` decodes one that is trusted to be bounded.
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


#: Most levels of nested containers.
MAX_DEPTH: Final = 64
#: Most items and bytes of a cell's last value that is sent with its result.
SMALL: Final = 10_000
SMALL_BYTES: Final = 1 << 20
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_LISTS: Final = (list, tuple, set, frozenset)
_KEYS: Final = frozenset({str})
#: Base classes and how to make data of their subclasses: numpy's scalars, pandas' times, named
#: tuples, counters. The functions are the base class's own, so that no method of a subclass is
#: called.
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
#: The same for exact types.
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
    raise ValueError("an extension can't be passed as data")


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ext_hook=_no_extension).decode

#: By a library's type of table or column: the method that returns data, for an error's text.
_DATA_OF: Final = {
    ("pandas", "DataFrame"): "to_dict('records')",
    ("pandas", "Series"): "tolist()",
    ("pandas", "Index"): "tolist()",
    ("polars", "DataFrame"): "to_dicts()",
    ("polars", "Series"): "to_list()",
    ("pyarrow", "Table"): "to_pylist()",
}


def not_data(kind: type) -> TypeError:
    """Return the error for a value whose type does not cross. For a table it says what does."""
    names = [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]
    data = next((f": pass its {_DATA_OF[name]}" for name in names if name in _DATA_OF), "")
    return TypeError(f"{kind.__name__} can't be passed as data{data}")


def plain(value: Any, convert: Callable[[Any], Any] | None = None, depth: int = 0) -> Any:
    """Return ``value`` as data of the types that may be sent (see the module's docstring).

    ``convert`` is called for values of unknown types, and may return data or an extension, which is
    kept as it is (a table, see ``wire.arrays``). ``depth`` is how deep ``value`` is nested. Raises
    TypeError if the value is not data, ValueError if it is nested too deep.
    """
    kind = type(value)
    if kind in _SCALARS or kind is msgspec.msgpack.Ext:
        return value
    if depth >= MAX_DEPTH:
        raise ValueError(f"it is more than {MAX_DEPTH} levels deep")
    if kind in _LISTS:
        return _list(value, convert, depth)
    if kind is dict:
        return _dict(value, convert, depth)
    if _is_missing(value):
        return None
    base = next((converter for base, converter in _BASES if issubclass(kind, base)), None)
    simpler = _SIMPLER.get(kind) or base or convert
    if simpler is not None:
        return plain(simpler(value), convert, depth + 1)
    raise not_data(kind)


def _is_missing(value: Any) -> bool:
    """Return whether a value is one of pandas' values for missing data.

    ``NaT`` must not be converted like a date: its class derives from ``datetime``, and
    ``datetime.isoformat`` makes the first day of the year 1 of it.
    """
    pandas = sys.modules.get("pandas")
    return pandas is not None and any(value is getattr(pandas, name, ()) for name in ("NaT", "NA"))


def _list(value: Any, convert: Callable[[Any], Any] | None, depth: int) -> Any:
    if _SCALARS.issuperset(map(type, value)):
        return value if type(value) is list else list(value)
    return [plain(item, convert, depth + 1) for item in value]


def _dict(value: dict[Any, Any], convert: Callable[[Any], Any] | None, depth: int) -> Any:
    if not _KEYS.issuperset(map(type, value)):
        kind = next(type(key) for key in value if type(key) is not str)
        raise TypeError(f"a dict with keys of type {kind.__name__} can't be passed: use str")
    if _SCALARS.issuperset(map(type, value.values())):
        return value
    return {key: plain(item, convert, depth + 1) for key, item in value.items()}


def of_numpy(value: Any) -> Any:
    """Return data for a value of numpy, or an extension array of pandas. Made for ``plain``.

    In newer versions of pandas, ``unique`` of a column of texts is such an array. Raises TypeError
    for other values.
    """
    kind = type(value)
    numpy = sys.modules.get("numpy")
    for base in () if numpy is None else (numpy.generic, numpy.ndarray):
        if issubclass(kind, base):
            return base.tolist(value)
    extensions: Any = sys.modules.get("pandas.api.extensions")
    if extensions is not None and issubclass(kind, extensions.ExtensionArray):
        items = extensions.ExtensionArray.tolist(value)
        if value.dtype.kind == "f":  # NaN is a number there, as in numpy's arrays
            return items
        # Missing texts are NaN, too, but mean no number.
        return [
            None if is_missing else item
            for item, is_missing in zip(items, value.isna(), strict=True)
        ]
    raise not_data(kind)


def encode_small(value: Any) -> bytes:
    """Encode a value if it has few items, which are counted first.

    Raises TypeError, and ValueError for a larger one.
    """
    if not _is_small(value):
        raise ValueError(f"it has more than {SMALL:,} items")
    return bytes(encode(plain(value, of_numpy), SMALL_BYTES, "Sandbox.get"))


def _is_small(value: Any) -> bool:
    """Return whether a value has few items. A text counts as one for each 128 characters.

    Calls the base classes' methods only, none of a subclass.
    """
    count = 0
    waiting = [value]
    while waiting and count <= SMALL:
        item = waiting.pop()
        kind, count = type(item), count + 1
        if (
            text := next((base for base in (str, bytes) if issubclass(kind, base)), None)
        ) is not None:
            count += text.__len__(item) >> 7
        for base in (*_LISTS, dict):
            if issubclass(kind, base) and count + base.__len__(item) <= SMALL:
                waiting += dict.values(item) if base is dict else base.__iter__(item)
            elif issubclass(kind, base):
                return False
    return count <= SMALL


def encode(value: Any, most: int, field: str = "tool_max_bytes") -> msgspec.Raw:
    """Encode data that ``plain`` has returned, in at most ``most`` bytes.

    ``field`` names the setting of that bound in errors. Raises ValueError if the data is larger, or
    has an int of more than 64 bits.
    """
    try:
        encoded = _encode(value)
    except OverflowError:
        raise ValueError("an int has more than 64 bits; pass str(n)") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds surrogates, which stand for no characters") from None
    if len(encoded) > most:
        raise ValueError(f"it takes {len(encoded):,} bytes; {most:,} may be passed ({field})")
    try:
        check(encoded)
    except WireError as exc:
        raise ValueError(str(exc)) from None
    return msgspec.Raw(encoded)


def checked(encoded: bytes, most: int) -> Any:
    """Decode a value of a peer. Raises ValueError unless ``plain`` could have made it."""
    if len(encoded) > most:
        raise ValueError(f"what came has more than {most:,} bytes")
    try:
        check(encoded)
        return plain(_decode(encoded))
    except (TypeError, ValueError, RecursionError, msgspec.DecodeError, WireError) as exc:
        raise ValueError(f"what came is no value: {exc}") from None


def decode(raw: msgspec.Raw) -> Any:
    """Decode a value. Raises msgspec.DecodeError, ValueError, RecursionError if it is invalid."""
    return _decode(raw)
