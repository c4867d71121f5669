"""Arrays and tables as they cross: types from a list, bytes as numpy and Arrow have them.

Nothing is pickled, and no reader of a file format looks at what a guest sent: Arrow's IPC format
has compression, extension types and metadata, and the guest could put anything there. It sends
the buffers alone, which are checked against their types before a value is read (ADR 0156).

numpy, pandas, polars and pyarrow are the caller's. A guest imports what it needs; the host has
``loaded`` find it, which imports nothing: a guest says which library it takes, and may have written
one of that name where the program looks first.
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

#: Bytes of one value, and fields of a table: a bit on the wire may be eight bytes in pandas.
MOST: Final = 16 * 2**20
#: Levels of an index, and columns of times in a zone: pandas takes long for each.
MOST_LEVELS, MOST_ZONED = 64, 256
#: No objects, whose bytes are addresses, and nothing with bytes that mean nothing.
_DTYPE: Final = re.compile(
    r"\|[biu]1|[<>](?:[iu][248]|f[248]|c8|c16|[mM]8\[(?:Y|M|W|D|h|m|s|ms|us|ns)\])"
)
#: Arrow's types by their names. A category is of these, too.
_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TEXTS: Final = ("string", "large_string", "binary", "large_binary")
_PLAIN: Final = frozenset(
    {*_INTEGERS, *_TEXTS, "bool", "halffloat", "float", "double", "date32[day]"}
)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+:-]{1,20}(?:/[A-Za-z0-9_+:-]{1,20}){0,2}")
#: What index columns without a name are called while they cross.
_NAMELESS: Final = "__index_level_{}__"


# --- encoding -----------------------------------------------------------------------------------


class NotLoadedError(ImportError):
    """A value takes a library that is not imported here; ``table`` is its type, of a table."""

    def __init__(self, library: str, table: str = "") -> None:
        super().__init__(
            f"it takes {library}, which the program or kernel that runs the cells has not imported"
        )
        self.table = table


class _TooLargeError(ValueError):
    """An array or table is too large; what to do about it is up to who passes it."""


def loaded(name: str) -> Any:
    """Return a library that is imported. Raises NotLoadedError."""
    if (found := sys.modules.get(name)) is None:
        raise NotLoadedError(name)
    return found


def encode(value: Any, find: Find = import_module) -> messages.Value:
    """Return a value as it crosses to or from a program: exact types of the libraries, or data.

    ``find`` returns pyarrow for a table. Raises TypeError for what is no such value, ValueError for
    what is too large, ImportError.
    """
    make = _maker(type(value), _KINDS)
    if make is not None:
        try:
            return make(value, find)
        except _TooLargeError as exc:
            how = "write it to a file, and upload or download that"
            raise ValueError(f"{exc}; {how}") from None
    data = values.plain(value, values.of_numpy)
    encoded = values.encode(data, MOST, "larger: write a file, and download that")
    return messages.Data(bytes(encoded))


def _array(array: Any, _find: Find) -> messages.Array:
    if not _DTYPE.fullmatch(dtype := array.dtype.str):
        raise TypeError(f"an array of {array.dtype} does not cross: pass a list, or a DataFrame")
    _check_size(array.nbytes)
    return messages.Array(dtype, array.shape, array.tobytes())


def _pandas_frame(frame: Any, find: Find) -> messages.Frame:
    pandas, pyarrow = sys.modules["pandas"], find("pyarrow")
    index = frame.index
    plain = type(index) is pandas.RangeIndex and (index.start, index.step) == (0, 1)
    if not plain or index.name is not None:
        frame = frame.reset_index(names=_column_names(index))
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    return _frame(table, find, "pandas", 0 if plain and index.name is None else index.nlevels)


def _column_names(index: Any) -> list[str]:
    """Return what the levels of an index are called as columns."""
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
    arrow, named = find("pyarrow"), zip(table.column_names, table.columns, strict=True)
    columns = tuple(_column(name, chunks, arrow) for name, chunks in named)
    return messages.Frame(library=library, columns=columns, index=index)


def _column(name: str, chunks: Any, pyarrow: Any) -> messages.Column:
    types, kind, categories = pyarrow.types, chunks.type, None
    if types.is_string_view(kind):  # as polars has texts
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
    of = "timestamp" if types.is_timestamp(kind) else "duration" if unit else str(kind)
    if of not in _PLAIN and not unit:
        raise TypeError(f"column {name!r} of {kind} does not cross: make it text or numbers")
    return messages.Column(
        name=name,
        type=of,
        unit=unit,
        zone=getattr(kind, "tz", None) or "",
        length=len(array),
        buffers=tuple(None if one is None else one.to_pybytes() for one in array.buffers()),
        categories=categories,
    )


def _whole(array: Any, pyarrow: Any) -> Any:
    """Return an array in one piece, which begins where its buffers do and has no more of them."""
    if isinstance(array, pyarrow.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pyarrow.array([], array.type)
    return pyarrow.concat_arrays([array[:0], array])


def _check_size(size: int) -> None:
    if size > MOST:
        raise _TooLargeError(f"it takes {size:,} bytes; {MOST >> 20} MiB may cross")


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
    """Return whether a type is one of tables, columns or indexes that cross."""
    return _maker(kind, _TABLES) is not None


#: How a table of one type is made of another's; by what it is to be.
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
    """Return whether a name, as ``pandas.DataFrame``, is that of a type of tables or columns."""
    return name in _NAMES


def table_name(kind: type) -> str:
    """Return the name of a type of tables or columns, with its library; of others ``""``."""
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    return name if name in _NAMES and is_table(kind) else ""


def conversion(value: str, given: str, wanted: str) -> str:
    """Return the source that makes a table of the ``wanted`` type of ``value``, a ``given`` one.

    ``""`` where none is known.
    """
    return _CONVERSIONS.get(wanted, {}).get(given, "").format(value)


def _maker(kind: Any, kinds: Iterable[_Kind]) -> Callable[[Any, Find], messages.Value] | None:
    """Return what encodes values of exactly this type; None if it is not among ``kinds``."""
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
    """Return a value of a library's as data within other data, for ``values.plain``.

    A table becomes an extension. Raises TypeError for what does not cross, ValueError, ImportError.
    """
    make = _maker(type(value), _TABLES)
    if make is None:
        return values.of_numpy(value)
    try:
        return Ext(_TABLE, msgspec.msgpack.encode(make(value, import_module)))
    except _TooLargeError as exc:
        raise ValueError(f"{exc} at once: take fewer rows or columns") from None


def image(value: Any) -> Ext | None:
    """Return an image of Pillow's as an extension, or None if it is something else."""
    pillow = sys.modules.get("PIL.Image")
    if pillow is None or not isinstance(value, pillow.Image):
        return None
    file = io.BytesIO()
    (value if value.mode in _PNG_MODES else value.convert("RGB")).save(file, "png")
    return Ext(_IMAGE, file.getvalue())


def answers(allows: Callable[[str], bool]) -> Callable[[msgspec.Raw | bytes], Any]:
    """Return what decodes the answers to a guest's calls, with the tables and images in them.

    ``allows`` says whether cells may have a library's objects. What is returned raises as
    ``values.decode`` does, and ``decode``, and ImportError for a library that they may not.
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
    """Return the table that an extension from a guest is. Raises as ``decode`` does.

    It takes libraries that are imported. No image: Pillow would read a file of a guest's making.
    """
    frame = table_frame(code, content)
    if frame.library not in sys.modules:
        kind = "Table" if frame.library == "pyarrow" else _FORMS[frame.form]
        raise NotLoadedError(frame.library, f"{frame.library}.{kind}")
    return decode(frame, loaded)


_FORMS: Final = {"table": "DataFrame", "series": "Series", "index": "Index"}


def described(code: int, content: memoryview) -> str:
    """Return what an extension is, for a record. Raises ValueError for what is none."""
    if code == _IMAGE:
        return f"<an image of {len(content):,} bytes>"
    table = table_frame(code, content)
    rows = table.columns[0].length if table.columns else 0
    return f"<a {table.library} table: {rows:,} rows, {len(table.columns):,} columns>"


def table_frame(code: int, content: memoryview) -> messages.Frame:
    """Return what an extension says of a table; its buffers are not looked into.

    Raises ValueError, msgspec.DecodeError.
    """
    if code != _TABLE or len(content) > MOST:
        raise ValueError("an extension is no data that crosses")
    return _decode_table(content)


#: Decodes the arguments of a guest's call. Raises as ``values.decode`` does, and ``decode``.
arguments: Final[Callable[[msgspec.Raw | bytes], tuple[list[Any], dict[str, Any]]]] = Decoder(
    tuple[list[Any], dict[str, Any]], ext_hook=_of_guest
).decode


#: Columns of a table that comes with a cell's result: pandas takes long for each.
MOST_COLUMNS: Final = 256


def encode_small(value: Any) -> bytes:
    """Encode a cell's last value, if it is little data or a small table.

    Of a larger one nothing is read. Raises as ``values.encode_small``, and ImportError.
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
    """Return what a guest encoded with ``encode_small``: data, or a table of a loaded library.

    Raises ValueError for anything else, and for a table of a library that is not loaded.
    """
    if encoded[:1] not in _EXTENSIONS or len(encoded) > values.SMALL_BYTES:
        return values.checked(encoded, values.SMALL_BYTES)
    try:
        return decode(_small(_decode_only_table(encoded)), loaded)
    except Exception as exc:  # noqa: BLE001 - whatever pyarrow raises over what a guest sent
        raise ValueError(f"what came is no value: {exc}") from None


def _small(table: Any) -> messages.Frame:
    """Return a table. Raises ValueError for one of more fields or columns than are taken."""
    parts = [one for column in table.columns for one in (column, column.categories) if one]
    if sum(one.length for one in parts) > values.SMALL or len(table.columns) > MOST_COLUMNS:
        raise ValueError(f"it has more than {values.SMALL:,} fields or {MOST_COLUMNS} columns")
    return table  # type: ignore[no-any-return]


#: The first bytes of msgpack's extensions with 8, 16 and 32 bits of length.
_EXTENSIONS: Final = (b"\xc7", b"\xc8", b"\xc9")
_decode_only_table: Final = Decoder(ext_hook=table_frame).decode
_with_words: Final = Decoder(tuple[list[Any], dict[str, Any]], ext_hook=described).decode


def arguments_or_words(encoded: msgspec.Raw | bytes) -> tuple[list[Any], dict[str, Any]]:
    """Decode the arguments of a guest's call; with words for tables whose library is not loaded.

    Raises as ``values.decode`` does, and ``decode``.
    """
    try:
        return arguments(encoded)
    except ImportError:
        return _with_words(encoded)


# --- decoding -----------------------------------------------------------------------------------


def decode(value: messages.Value, find: Find = import_module) -> Any:
    """Return the value of which a peer says this: each size and type is checked first.

    ``find`` returns the libraries that it takes. Raises ValueError for what ``encode`` never made,
    and what they raise; ImportError.
    """
    if isinstance(value, messages.Data):
        return values.checked(value.value, MOST)
    if isinstance(value, messages.Array):
        return _decoded_array(value, find("numpy"))
    table = _decoded_table(value, find)
    if value.library == "pyarrow":
        return table
    if value.library == "polars":
        made = find("polars").from_arrow(table)
        return made if value.form == "table" else made.get_column(table.column_names[-1])
    return _decoded_pandas(value, table, find)


def _decoded_table(value: messages.Frame, find: Find) -> Any:
    """Return a table of pyarrow's."""
    categories = (one.categories for one in value.columns if one.categories is not None)
    if sum(one.length for one in (*value.columns, *categories)) > MOST:
        raise ValueError("a table of too many fields")
    if value.index > len(value.columns):
        raise ValueError("an index of more columns than there are")
    levels = len(value.columns) if value.form == "index" else value.index
    if levels > MOST_LEVELS or sum(bool(one.zone) for one in value.columns) > MOST_ZONED:
        raise ValueError("an index of too many levels, or too many columns of times in a zone")
    if value.form != "table" and value.index == len(value.columns):
        raise ValueError("a column of a table that has none")
    pyarrow, zones = find("pyarrow"), value.library != "pandas"
    columns = [_decoded_column(one, pyarrow, zones=zones) for one in value.columns]
    if len({len(one) for one in columns}) > 1:
        raise ValueError("columns of several lengths")
    return pyarrow.Table.from_arrays(columns, names=[one.name for one in value.columns])


def _decoded_pandas(value: messages.Frame, table: Any, find: Find) -> Any:
    """Return a table of pandas', or a column or index."""
    pandas = find("pandas")
    # Its own, not pandas': what a table says of itself there is the peer's.
    frame = table.to_pandas(ignore_metadata=True)
    for number, column in enumerate(value.columns):
        if column.zone:  # not pyarrow's doing, which imports what it finds for that
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
    """Return the names of index columns, None of those that have none."""
    nameless = (_NAMELESS.format(number) for number in range(len(columns)))
    return [None if name == other else name for name, other in zip(columns, nameless, strict=True)]


def _zone(name: str, find: Find) -> Any:
    """Return a time zone of the system's: where there is none, zoneinfo would import ``tzdata``."""
    if name == "UTC":
        return UTC
    zoneinfo = find("zoneinfo")  # pandas has imported it
    if not any(Path(folder, name).is_file() for folder in zoneinfo.TZPATH):
        raise ValueError(f"no time zone {name} is known here")
    return zoneinfo.ZoneInfo(name)


def _decoded_array(array: messages.Array, numpy: Any) -> Any:
    if not _DTYPE.fullmatch(array.dtype):
        raise ValueError(f"an array of {array.dtype[:20]!r}")
    dtype = numpy.dtype(array.dtype)
    if math.prod(array.shape) * dtype.itemsize != len(array.data):
        raise ValueError("an array that has not the bytes of its sides")
    if dtype.kind == "b":  # any other byte than these two is no bool
        return (numpy.frombuffer(array.data, "u1") != 0).reshape(array.shape)
    return numpy.frombuffer(array.data, dtype).reshape(array.shape).copy()


def _decoded_column(column: messages.Column, pyarrow: Any, *, zones: bool) -> Any:
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
    buffers = [None if one is None else pyarrow.py_buffer(one) for one in column.buffers]
    array = pyarrow.Array.from_buffers(kind, column.length, buffers)
    # First sizes alone, then what the buffers hold: offsets, texts, and how many are missing.
    array.validate()
    array.validate(full=True)
    if column.categories is None:
        return array
    of = column.categories
    if of.categories is not None or of.zone or not pyarrow.types.is_integer(kind):
        raise ValueError("categories of categories, or of times in a zone")
    categories = _decoded_column(of, pyarrow, zones=zones)
    made = pyarrow.DictionaryArray.from_arrays(array, categories, safe=True)
    made.validate(full=True)
    return made
