"""Arrays, tables and images on the wire: types from a list, bytes as numpy and Arrow store them.

Nothing is pickled, and no reader of a file format is given what a guest sent. Arrow's IPC format
has compression, extension types and metadata, into which a guest could put anything. So the guest
sends only the buffers, which are checked against their types before a value is read (ADR 0035).

The libraries (numpy, pandas, polars, pyarrow) are passed in by a function ``find``. A guest imports
what it needs. The host uses ``loaded``, which imports nothing: the guest says which library a value
needs, and may have written a module of that name where the program looks first.

Order: encoding; tables and images within other data (arguments and answers of tools); decoding.
"""

from __future__ import annotations

import io
import math
import re
import sys
from datetime import UTC
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs
from msgspec.msgpack import Decoder, Ext

from cellblock.wire import messages, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Kind = tuple[str, str, Callable[[Any, "Find"], messages.Value]]
    Find = Callable[[str], Any]

#: Most bytes of a value, and most fields of a table, whose bits on the wire may be eight bytes each
#: in pandas.
MOST: Final = 16 * 2**20
#: Most levels of an index, and columns of times in a zone. pandas takes long for each.
MOST_LEVELS, MOST_ZONED = 64, 256
#: Types of arrays that cross. Not objects, whose bytes are addresses, nor types with padding.
_DTYPE: Final = re.compile(
    r"\|[biu]1|[<>](?:[iu][248]|f[248]|c8|c16|[mM]8\[(?:Y|M|W|D|h|m|s|ms|us|ns)\])"
)
#: Names of Arrow's types that cross. Categories are of these types, too.
_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TEXTS: Final = ("string", "large_string", "binary", "large_binary")
_PLAIN: Final = frozenset(
    {*_INTEGERS, *_TEXTS, "bool", "halffloat", "float", "double", "date32[day]"}
)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+:-]{1,20}(?:/[A-Za-z0-9_+:-]{1,20}){0,2}")
#: Name on the wire of an index column that has none.
_NAMELESS: Final = "__index_level_{}__"


# --- encoding -----------------------------------------------------------------------------------


class NotLoadedError(ImportError):
    """A value needs a library that is not imported here. ``table`` is the type of a table."""

    def __init__(self, library: str, table: str = "") -> None:
        super().__init__(
            f"it takes {library}, which the program or kernel that runs the cells has not imported"
        )
        self.table = table


class _TooLargeError(ValueError):
    """An array or table is too large. Callers add what to do about it."""


def loaded(name: str) -> Any:
    """Return a library if it is imported. Raises NotLoadedError if not."""
    if (library := sys.modules.get(name)) is None:
        raise NotLoadedError(name)
    return library


def encode(value: Any, find: Find = import_module) -> messages.Value:
    """Encode a variable's value: an array or table of an exact type of a library, or data.

    ``find`` returns pyarrow for a table. Raises TypeError for other values, ValueError if the value
    is too large, ImportError.
    """
    make = _maker(type(value), _KINDS)
    if make is not None:
        try:
            return make(value, find)
        except _TooLargeError as exc:
            remedy = "write it to a file, and upload or download that"
            raise ValueError(f"{exc}; {remedy}") from None
    data = values.plain(value, values.of_numpy)
    encoded = values.encode(data, MOST, "larger: write a file, and download that")
    return messages.Data(bytes(encoded))


def _array(array: Any, _find: Find) -> messages.Array:
    if not _DTYPE.fullmatch(dtype := array.dtype.str):
        raise TypeError(f"an array of {array.dtype} can't be passed: pass a list, or a DataFrame")
    _check_size(array.nbytes)
    return messages.Array(dtype, array.shape, array.tobytes())


def _pandas_frame(frame: Any, find: Find) -> messages.Frame:
    pandas = sys.modules["pandas"]
    pyarrow = find("pyarrow")
    index = frame.index
    plain = type(index) is pandas.RangeIndex and (index.start, index.step) == (0, 1)
    if not plain or index.name is not None:
        frame = frame.reset_index(names=_column_names(index))
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    return _frame(table, find, "pandas", 0 if plain and index.name is None else index.nlevels)


def _column_names(index: Any) -> list[str]:
    """Return the names of an index's levels as columns."""
    return [
        _NAMELESS.format(number) if name is None else str(name)
        for number, name in enumerate(index.names)
    ]


def _pandas_series(series: Any, find: Find) -> messages.Frame:
    named = series.name is not None
    frame = _pandas_frame(series.to_frame(str(series.name) if named else "0"), find)
    return structs.replace(frame, form="series", name=named)


def _pandas_index(index: Any, find: Find) -> messages.Frame:
    levels = index.to_frame(index=False)
    levels.columns = _column_names(index)
    return structs.replace(_pandas_frame(levels, find), form="index")


def _polars_series(series: Any, find: Find) -> messages.Frame:
    return structs.replace(_polars_frame(series.to_frame(), find), form="series")


def _polars_frame(frame: Any, find: Find) -> messages.Frame:
    find("pyarrow")
    return _frame(frame.to_arrow(), find, "polars")


def _frame(table: Any, find: Find, library: Any = "pyarrow", index: int = 0) -> messages.Frame:
    _check_size(max(table.nbytes, table.num_rows * table.num_columns))
    arrow = find("pyarrow")
    named = zip(table.column_names, table.columns, strict=True)
    columns = tuple(_column(name, chunks, arrow) for name, chunks in named)
    return messages.Frame(library=library, columns=columns, index=index)


def _column(name: str, chunks: Any, pyarrow: Any) -> messages.Column:
    """Encode a column of a table of pyarrow. Raises TypeError if its type does not cross."""
    types, kind, categories = pyarrow.types, chunks.type, None
    if types.is_string_view(kind):  # polars' type of texts
        chunks = chunks.cast(kind := pyarrow.large_string())
    if types.is_null(kind):
        chunks = chunks.cast(kind := pyarrow.string())
    if types.is_dictionary(kind):
        chunks = chunks.unify_dictionaries()
        array = _whole(chunks.combine_chunks(), pyarrow)
        categories = _column("", pyarrow.chunked_array([array.dictionary]), pyarrow)
        array, kind = _whole(array.indices, pyarrow), kind.index_type
    else:
        array = _whole(chunks.combine_chunks(), pyarrow)
    unit: Any = kind.unit if types.is_timestamp(kind) or types.is_duration(kind) else ""
    type_name = "timestamp" if types.is_timestamp(kind) else "duration" if unit else str(kind)
    if type_name not in _PLAIN and not unit:
        raise TypeError(f"column {name!r} of {kind} can't be passed: make it text or numbers")
    return messages.Column(
        name=name,
        type=type_name,
        unit=unit,
        zone=getattr(kind, "tz", None) or "",
        length=len(array),
        buffers=tuple(None if b is None else b.to_pybytes() for b in array.buffers()),
        categories=categories,
    )


def _whole(array: Any, pyarrow: Any) -> Any:
    """Return a copy of an array in one piece, whose buffers contain only this array."""
    if isinstance(array, pyarrow.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pyarrow.array([], array.type)
    return pyarrow.concat_arrays([array[:0], array])


def _check_size(size: int) -> None:
    if size > MOST:
        raise _TooLargeError(f"it takes {size:,} bytes; {MOST >> 20} MiB may be passed")


_TABLES: Final[tuple[tuple[str, str, Callable[[Any, Find], messages.Frame]], ...]] = (
    ("pandas", "DataFrame", _pandas_frame),
    ("pandas", "Series", _pandas_series),
    ("pandas", "Index", _pandas_index),
    ("pandas", "CategoricalIndex", _pandas_index),
    ("pandas", "DatetimeIndex", _pandas_index),
    ("pandas", "MultiIndex", _pandas_index),
    ("pandas", "RangeIndex", _pandas_index),
    ("pandas", "TimedeltaIndex", _pandas_index),
    ("polars", "DataFrame", _polars_frame),
    ("polars", "Series", _polars_series),
    ("pyarrow", "Table", _frame),
)
_KINDS: Final[tuple[tuple[str, str, Callable[[Any, Find], messages.Value]], ...]] = (
    ("numpy", "ndarray", _array),
    *_TABLES,
)


def crosses(kind: type) -> bool:
    """Return whether values of a type are arrays, tables, columns or indexes that cross."""
    return _maker(kind, _KINDS) is not None


# --- tables and images within other data --------------------------------------------------------


def is_table(kind: Any) -> bool:
    """Return whether a type is that of tables, columns or indexes that cross."""
    return _maker(kind, _TABLES) is not None


#: By a type of table, then by another type: source that makes the former of the latter.
_CONVERSIONS: Final = {
    "pandas.DataFrame": {
        "polars.DataFrame": "{}.to_pandas()",
        "pyarrow.Table": "{}.to_pandas()",
        "pandas.Series": "{}.to_frame()",
    },
    "polars.DataFrame": {
        "pandas.DataFrame": "polars.from_pandas({})",
        "pyarrow.Table": "polars.from_arrow({})",
        "polars.Series": "{}.to_frame()",
    },
    "pyarrow.Table": {
        "pandas.DataFrame": "pyarrow.Table.from_pandas({})",
        "polars.DataFrame": "{}.to_arrow()",
    },
}
_NAMES: Final = frozenset(f"{name}.{attribute}" for name, attribute, _ in _TABLES)


def is_table_name(name: str) -> bool:
    """Return whether a name such as ``pandas.DataFrame`` is a type of tables or columns."""
    return name in _NAMES


def table_name(kind: type) -> str:
    """Return the name of a type of tables or columns, with its library; "" for other types."""
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    return name if name in _NAMES and is_table(kind) else ""


def conversion(value: str, source_type: str, target_type: str) -> str:
    """Return source that converts a table from ``source_type`` to ``target_type``.

    ``value`` is the expression of the table. Return "" if no conversion is known.
    """
    return _CONVERSIONS.get(target_type, {}).get(source_type, "").format(value)


def _maker(kind: Any, kinds: Iterable[_Kind]) -> Callable[[Any, Find], messages.Value] | None:
    """Return the function that encodes values of exactly this type; None if ``kinds`` lack it."""
    for name, attribute, make in kinds:
        library = sys.modules.get(name)
        if library is not None and kind is getattr(library, attribute, None):
            return make
    return None


#: Codes of msgpack's extension types: a table, and an image as a PNG file.
_TABLE, _IMAGE = 1, 2
#: Modes of Pillow's that a PNG file can have.
_PNG_MODES: Final = frozenset({"1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"})
_decode_table: Final = Decoder(messages.Frame).decode


def data(value: Any) -> Any:
    """Return a library's object as data within other data. Made for ``values.plain``.

    A table becomes an extension. Raises TypeError for other objects, ValueError, ImportError.
    """
    make = _maker(type(value), _TABLES)
    if make is None:
        return values.of_numpy(value)
    try:
        return Ext(_TABLE, msgspec.msgpack.encode(make(value, import_module)))
    except _TooLargeError as exc:
        raise ValueError(f"{exc} at once: take fewer rows or columns") from None


def image(value: Any) -> Ext | None:
    """Return an image of Pillow as an extension, or None for any other value."""
    pillow = sys.modules.get("PIL.Image")
    if pillow is None or not isinstance(value, pillow.Image):
        return None
    file = io.BytesIO()
    (value if value.mode in _PNG_MODES else value.convert("RGB")).save(file, "png")
    return Ext(_IMAGE, file.getvalue())


def answers(allows: Callable[[str], bool]) -> Callable[[msgspec.Raw | bytes], Any]:
    """Return the decoder of answers to a guest's calls, with the tables and images in them.

    ``allows`` returns whether cells may have objects of a library. The decoder raises what
    ``values.decode`` and ``decode`` raise, and ImportError for a library that is not allowed.
    """

    def extension(code: int, content: memoryview) -> Any:
        table = table_frame(code, content) if code != _IMAGE else None
        library = "PIL" if table is None else table.library
        if not allows(library):
            raise ImportError(f"it takes {library}, which this policy does not let cells have")
        if table is None:
            return import_module("PIL.Image").open(io.BytesIO(content))
        return decode(table)

    return Decoder(ext_hook=extension).decode


def _of_guest(code: int, content: memoryview) -> Any:
    """Decode an extension from a guest, which must be a table. Raises what ``decode`` raises.

    Only imported libraries are used. Images are refused: Pillow would read a file that a guest
    made.
    """
    frame = table_frame(code, content)
    if frame.library not in sys.modules:
        kind = "Table" if frame.library == "pyarrow" else _FORMS[frame.form]
        raise NotLoadedError(frame.library, f"{frame.library}.{kind}")
    return decode(frame, loaded)


_FORMS: Final = {"table": "DataFrame", "series": "Series", "index": "Index"}


def described(code: int, content: memoryview) -> str:
    """Describe an extension, for an audit record. Raises ValueError if it is invalid."""
    if code == _IMAGE:
        return f"<an image of {len(content):,} bytes>"
    table = table_frame(code, content)
    rows = table.columns[0].length if table.columns else 0
    return f"<a {table.library} table: {rows:,} rows, {len(table.columns):,} columns>"


def table_frame(code: int, content: memoryview) -> messages.Frame:
    """Return the table of an extension, undecoded: its buffers are not checked.

    Raises ValueError, msgspec.DecodeError.
    """
    if code != _TABLE or len(content) > MOST:
        raise ValueError("an extension can't be passed as data")
    return _decode_table(content)


#: Decodes the arguments of a guest's call. Raises what ``values.decode`` and ``decode`` raise.
arguments: Final[Callable[[msgspec.Raw | bytes], tuple[list[Any], dict[str, Any]]]] = Decoder(
    tuple[list[Any], dict[str, Any]], ext_hook=_of_guest
).decode


#: Most columns of a table that is sent with a cell's result. pandas takes long for each.
MOST_COLUMNS: Final = 256


def encode_small(value: Any) -> bytes:
    """Encode a cell's last value if it is little data or a small table.

    A larger one is not read. Raises what ``values.encode_small`` raises, and ImportError.
    """
    make = _maker(type(value), _TABLES)
    if make is None:
        return values.encode_small(value)
    if math.prod(value.shape) > values.SMALL:
        raise ValueError(f"it has more than {values.SMALL:,} fields")
    table = _small(make(value, loaded))
    content = Ext(_TABLE, msgspec.msgpack.encode(table))
    return bytes(values.encode(content, values.SMALL_BYTES, "Sandbox.get"))


def checked_small(encoded: bytes) -> Any:
    """Decode a value that a guest has encoded with ``encode_small``.

    Raises ValueError for anything else, and for a table of a library that is not imported.
    """
    if encoded[:1] not in _EXTENSIONS or len(encoded) > values.SMALL_BYTES:
        return values.checked(encoded, values.SMALL_BYTES)
    try:
        return decode(_small(_decode_only_table(encoded)), loaded)
    except Exception as exc:  # noqa: BLE001 - pyarrow may raise anything about a guest's buffers
        raise ValueError(f"what came is no value: {exc}") from None


def _small(table: Any) -> messages.Frame:
    """Return the table itself. Raises ValueError if it has too many fields or columns."""
    parts = [part for column in table.columns for part in (column, column.categories) if part]
    if sum(part.length for part in parts) > values.SMALL or len(table.columns) > MOST_COLUMNS:
        raise ValueError(f"it has more than {values.SMALL:,} fields or {MOST_COLUMNS} columns")
    return table  # type: ignore[no-any-return]


#: The first bytes of msgpack's extensions with 8, 16 and 32 bits of length.
_EXTENSIONS: Final = (b"\xc7", b"\xc8", b"\xc9")
_decode_only_table: Final = Decoder(ext_hook=table_frame).decode
_with_words: Final = Decoder(tuple[list[Any], dict[str, Any]], ext_hook=described).decode


def arguments_or_words(encoded: msgspec.Raw | bytes) -> tuple[list[Any], dict[str, Any]]:
    """Decode the arguments of a guest's call; describe tables if a library is not imported.

    Raises what ``values.decode`` and ``decode`` raise.
    """
    try:
        return arguments(encoded)
    except ImportError:
        return _with_words(encoded)


# --- decoding -----------------------------------------------------------------------------------


def decode(value: messages.Value, find: Find = import_module) -> Any:
    """Decode a value of a peer. Each size and type is checked first.

    ``find`` returns the libraries that are needed. Raises ValueError if ``encode`` can't have made
    the value, what the libraries raise, and ImportError.
    """
    if isinstance(value, messages.Data):
        return values.checked(value.value, MOST)
    if isinstance(value, messages.Array):
        return _decoded_array(value, find("numpy"))
    table = _decoded_table(value, find)
    if value.library == "pyarrow":
        return table
    if value.library == "polars":
        frame = find("polars").from_arrow(table)
        return frame if value.form == "table" else frame.get_column(table.column_names[-1])
    return _decoded_pandas(value, table, find)


def _decoded_table(value: messages.Frame, find: Find) -> Any:
    """Return a peer's table as one of pyarrow, once all sizes were checked. Raises ValueError."""
    categories = (c.categories for c in value.columns if c.categories is not None)
    if sum(c.length for c in (*value.columns, *categories)) > MOST:
        raise ValueError("a table of too many fields")
    if value.index > len(value.columns):
        raise ValueError("an index of more columns than there are")
    levels = len(value.columns) if value.form == "index" else value.index
    if levels > MOST_LEVELS or sum(bool(c.zone) for c in value.columns) > MOST_ZONED:
        raise ValueError("an index of too many levels, or too many columns of times in a zone")
    if value.form != "table" and value.index == len(value.columns):
        raise ValueError("a column of a table that has none")
    pyarrow = find("pyarrow")
    zones = value.library != "pandas"
    columns = [_decoded_column(c, pyarrow, zones=zones) for c in value.columns]
    if len({len(c) for c in columns}) > 1:
        raise ValueError("columns of several lengths")
    return pyarrow.Table.from_arrays(columns, names=[c.name for c in value.columns])


def _decoded_pandas(value: messages.Frame, table: Any, find: Find) -> Any:
    """Return a table, column or index of pandas."""
    pandas = find("pandas")
    # Without the metadata for pandas in the table, which is the peer's.
    frame = table.to_pandas(ignore_metadata=True)
    for number, column in enumerate(value.columns):
        if column.zone:  # done here, because pyarrow would import a library for it
            times = frame.iloc[:, number].dt.tz_localize(UTC)
            frame.isetitem(number, times.dt.tz_convert(_zone(column.zone, find)))
    levels = len(value.columns) if value.form == "index" else value.index
    if levels:
        names = _given_names(table.column_names[:levels])
        index = _index_of(frame.iloc[:, :levels], names, pandas)
        if value.form == "index":
            return index
        frame = frame.iloc[:, levels:]
        frame.index = index
    if value.form == "series":
        series = frame.iloc[:, -1]
        return series if value.name else series.rename(None)
    return frame


def _index_of(levels: Any, names: list[str | None], pandas: Any) -> Any:
    if len(names) > 1:
        return pandas.MultiIndex.from_frame(levels, names=names)
    return pandas.Index(levels.iloc[:, 0]).rename(names[0])


def _given_names(columns: list[str]) -> list[str | None]:
    """Return the names of index columns, None for those that have none."""
    nameless = (_NAMELESS.format(number) for number in range(len(columns)))
    return [
        None if name == placeholder else name
        for name, placeholder in zip(columns, nameless, strict=True)
    ]


def _zone(name: str, find: Find) -> Any:
    """Return a time zone from the system's files. Raises ValueError if they lack it.

    For a zone that they lack, zoneinfo would import the package ``tzdata``.
    """
    if name == "UTC":
        return UTC
    zoneinfo = find("zoneinfo")  # imported by pandas
    if not any(Path(folder, name).is_file() for folder in zoneinfo.TZPATH):
        raise ValueError(f"no time zone {name} is known here")
    return zoneinfo.ZoneInfo(name)


def _decoded_array(array: messages.Array, numpy: Any) -> Any:
    if not _DTYPE.fullmatch(array.dtype):
        raise ValueError(f"an array of {array.dtype[:20]!r}")
    dtype = numpy.dtype(array.dtype)
    if math.prod(array.shape) * dtype.itemsize != len(array.data):
        raise ValueError("an array that has not the bytes of its sides")
    if dtype.kind == "b":  # numpy does not check that a bool's byte is 0 or 1
        return (numpy.frombuffer(array.data, "u1") != 0).reshape(array.shape)
    return numpy.frombuffer(array.data, dtype).reshape(array.shape).copy()


def _decoded_column(column: messages.Column, pyarrow: Any, *, zones: bool) -> Any:
    """Return a peer's column as an array of pyarrow, with all checks made.

    ``zones`` says whether timestamps keep their time zone. Raises ValueError, and what pyarrow
    raises.
    """
    if column.zone and not _ZONE.fullmatch(column.zone):
        raise ValueError("a time zone that is none")
    if column.type == "timestamp" and column.unit:
        kind = pyarrow.timestamp(column.unit, (column.zone or None) if zones else None)
    elif column.type == "duration" and column.unit:
        kind = pyarrow.duration(column.unit)
    elif column.type in _PLAIN:
        kind = pyarrow.type_for_alias(column.type)
    else:
        raise ValueError(f"a column of {column.type[:20]!r}")
    if len(column.buffers) != kind.num_buffers:
        raise ValueError("a column that has not its type's buffers")
    buffers = [None if data is None else pyarrow.py_buffer(data) for data in column.buffers]
    array = pyarrow.Array.from_buffers(kind, column.length, buffers)
    # First the buffers' sizes only, then their contents: offsets, texts, numbers of missing values.
    array.validate()
    array.validate(full=True)
    if column.categories is None:
        return array
    inner = column.categories
    if inner.categories is not None or inner.zone or not pyarrow.types.is_integer(kind):
        raise ValueError("categories of categories, or of times in a zone")
    categories = _decoded_column(inner, pyarrow, zones=zones)
    categorical = pyarrow.DictionaryArray.from_arrays(array, categories, safe=True)
    categorical.validate(full=True)
    return categorical
