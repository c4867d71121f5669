"""Arrays and tables: those of the libraries come back, and what no library made is refused."""

import datetime as dt
import struct
import sys

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

from cellblock.wire import arrays, messages, values

INDEX = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["letter", None])
FRAMES = {
    "types": pd.DataFrame(
        {
            "int": [1, 2, 3],
            "uint8": np.array([1, 2, 255], "u1"),
            "float": [1.5, float("nan"), -0.0],
            "bool": [True, False, True],
            "text": ["x", None, "\U0001f600"],
            "time": pd.date_range("2024", periods=3, tz="Europe/Rome"),
            "days": pd.to_timedelta([1, 2, 3], unit="D"),
            "kind": pd.Categorical(["u", None, "v"], categories=["v", "u", "w"]),
        }
    ),
    "index": pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]}, index=INDEX),
    "a step": pd.DataFrame({"x": [1, 2]}, index=pd.RangeIndex(4, 8, 2, name="n")),
    "a slice": pd.DataFrame({"x": range(100), "t": map(str, range(100))})[10:20],
    "no rows": pd.DataFrame({"x": np.zeros(0), "t": pd.Series([], dtype="str")}),
}


def crossed(value):
    """Return a value as it is behind the wire, encoded and decoded strictly."""
    frame = msgspec.msgpack.encode(messages.VariableValue(id=1, value=arrays.encode(value)))
    return arrays.decode(msgspec.msgpack.decode(frame, type=messages.VariableValue).value)


@pytest.mark.parametrize("name", FRAMES)
def test_a_data_frame_comes_back(name):
    frame = FRAMES[name]
    back = crossed(frame)
    pd.testing.assert_frame_equal(back, frame, check_index_type=False, check_freq=False)


def test_tables_of_polars_and_pyarrow_come_back():
    table = pa.table({"a": pa.chunked_array([[1], [None, 3]]), "b": pa.array([b"x", None, b""])})
    assert crossed(table).equals(table.combine_chunks())
    frame = pl.DataFrame({"s": ["x", None], "d": [dt.date(2024, 1, 1), None]})
    assert crossed(frame.slice(1)).equals(frame.slice(1))


def test_columns_and_indexes_come_back():
    series = FRAMES["index"]["x"]
    pd.testing.assert_series_equal(crossed(series), series)
    pd.testing.assert_series_equal(crossed(series.rename(None)), series.rename(None))
    for index in (
        INDEX,
        pd.Index(["a", "b"]),
        pd.RangeIndex(2, name="n"),
        pd.CategoricalIndex(["a", "b", "a"], name="c"),
        pd.to_timedelta([1, 2], unit="s"),
        pd.DatetimeIndex(["2026-01-01", "2026-01-03"], tz="Europe/Rome"),
    ):
        pd.testing.assert_index_equal(crossed(index), index, exact=False)
    column = pl.Series("q", [1, None])
    assert crossed(column).equals(column)


def test_arrays_of_pandas_cross_as_those_of_numpy():
    given = [
        pd.Series(["a", None]).unique(),
        pd.array([1, None]),
        pd.Categorical(["u", None]),
        pd.Series([0.5]).array,
        pd.date_range("2024", periods=1).array,
    ]
    expected = [["a", None], [1, None], ["u", None], [0.5], ["2024-01-01T00:00:00"]]
    assert [crossed(one) for one in given] == expected
    sent = values.encode(values.plain((given, {}), arrays.data), 1 << 20)
    assert arrays.arguments(sent) == (expected, {})


def test_tables_and_images_within_other_data_come_back():
    frame = FRAMES["types"]
    sent = values.encode(values.plain(([{"of": frame}], {}), arrays.data), 1 << 20)
    (back,), _ = arrays.arguments(sent)
    pd.testing.assert_frame_equal(back["of"], frame, check_freq=False)
    picture = arrays.image(Image.new("RGB", (4, 3), "red"))
    decode = arrays.answers(lambda _: True)
    (shown,) = decode(values.encode([picture], 1 << 20))
    assert (shown.size, arrays.image("no image")) == ((4, 3), None)
    for mode in ("CMYK", "F", "RGBA"):
        (shown,) = decode(values.encode([arrays.image(Image.new(mode, (4, 3)))], 1 << 20))
        assert (shown.size, shown.mode) == ((4, 3), "RGBA" if mode == "RGBA" else "RGB")


def test_what_is_missing_is_none_and_no_day_of_the_year_1():
    assert values.plain([pd.NaT, {"n": pd.NA}, pd.Timestamp("2026")], arrays.data) == [
        None,
        {"n": None},
        "2026-01-01T00:00:00",
    ]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.array([[True], [False]]),
        np.array(["2024-01-01"], "M8[ns]"),
        np.zeros((0, 3), ">i2"),
        np.array(2 + 3j),
    ],
    ids=str,
)
def test_an_array_comes_back(array):
    back = crossed(array)
    assert (back.dtype, back.shape, back.flags.writeable) == (array.dtype, array.shape, True)
    assert np.array_equal(back, array)


class Own(pd.DataFrame):
    """A class of the user's, of which nothing may be asked."""

    def __getattribute__(self, name):
        raise AssertionError(f"it was asked for {name}")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "object can't be passed"),
        (np.array([object()]), "can't be passed"),
        (pa.table({"a": [[1]]}), "column 'a' of list"),
        (pd.DataFrame({"a": [1 + 2j]}), "complex"),
        (np.zeros(arrays.MOST + 1, "i1"), "16 MiB may be passed"),
        ("x" * (arrays.MOST + 1), "may be passed"),
        (object.__new__(Own), "Own can't be passed"),
    ],
    ids=["object", "objects", "lists", "complex", "array", "text", "own class"],
)
def test_what_does_not_cross_says_so(value, why):
    with pytest.raises((TypeError, ValueError, pa.ArrowException), match=why):
        arrays.encode(value)


def test_what_is_too_large_tells_a_cell_to_take_less_and_a_program_to_write_a_file():
    table = pl.DataFrame({"a": ["x" * (arrays.MOST + 1)]})
    with pytest.raises(
        ValueError, match=r"16 MiB may be passed; write it to a file, and upload or"
    ):
        arrays.encode(table)
    with pytest.raises(ValueError, match=r"may be passed at once: take fewer rows or columns\Z"):
        values.plain([table], arrays.data)


def test_a_guests_table_of_a_library_that_is_not_imported_is_named(monkeypatch):
    given = msgspec.msgpack.encode(values.plain([[pl.DataFrame({"a": [1]})], {}], arrays.data))
    monkeypatch.delitem(sys.modules, "polars")
    with pytest.raises(arrays.NotLoadedError) as refused:
        arrays.arguments(given)
    assert refused.value.table == "polars.DataFrame"


def column(kind="int64", length=1, buffers=(None, bytes(8)), **more):
    return messages.Column(name="a", type=kind, length=length, buffers=buffers, **more)


def offsets(*numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


@pytest.mark.parametrize(
    "bad",
    [
        column(length=2),
        column(length=2**31 - 1),
        column("bool", length=2**31 - 1, buffers=(None, b"1")),
        column("bool", length=2**27, buffers=(None, bytes(2**24))),
        column(length=1, buffers=(b"", bytes(8))),
        column(buffers=(None, None)),
        column(buffers=(None,)),
        column(buffers=(None, bytes(8), bytes(8))),
        column("string", buffers=(None, offsets(0, 9), b"abc")),
        column("string", buffers=(None, offsets(-(2**31), 3), b"abc")),
        column("string", length=2, buffers=(None, offsets(0, 3, 1), b"abc")),
        column("string", buffers=(None, offsets(0, 1), b"\xff")),
        column("string", buffers=(None, offsets(0, 1), None)),
        column("large_string", buffers=(None, offsets(0, 1), b"a")),
        column("null", length=2**31 - 1, buffers=(None,)),
        column("list<item: int64>"),
        column("extension"),
        column("timestamp"),
        column("timestamp", unit="ns", zone="../../etc/passwd"),
        column("timestamp", unit="ns", zone="Nowhere"),
        column("int8", buffers=(None, b"\x05"), categories=column("int8", buffers=(None, b"\x01"))),
        column("int8", buffers=(None, b"\xff"), categories=column("int8", buffers=(None, b"\x01"))),
        column("double", categories=column()),
        column("int8", buffers=(None, b"\0"), categories=column(categories=column())),
    ],
    ids=lambda one: f"{one.type}-{one.length}-{one.unit}{one.zone}",
)
def test_a_hostile_column_is_refused(bad):
    """The first read beyond a buffer would be of the host's own memory."""
    frame = messages.Frame(library="pandas", columns=(bad,))
    refused = False
    try:
        arrays.decode(frame)
    except (ValueError, TypeError, LookupError, pa.ArrowException):
        refused = True
    assert refused


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_a_guest_has_nothing_imported_by_naming_it(library, monkeypatch):
    """Cells may have written it where the program looks first."""
    monkeypatch.delitem(sys.modules, library)
    with pytest.raises(ImportError, match=f"{library}, which the program"):
        arrays.decode(messages.Frame(library=library, columns=(column(),)), arrays.loaded)
    assert library not in sys.modules


def test_hostile_arrays_and_tables_are_refused():
    for dtype, shape, data in [
        ("|O", (1,), bytes(8)),
        ("V8", (1,), bytes(8)),
        ("<f8,<f8", (1,), bytes(16)),
        ("<U1", (1,), b"\xff" * 4),
        ("<f8", (2,), bytes(8)),
        ("<f8", (2**53, 2**53), b""),
        ("<f8", (0, 2**53), bytes(8)),
    ]:
        with pytest.raises(ValueError, match="an array"):
            arrays.decode(messages.Array(dtype, shape, data))
    long = column(length=2, buffers=(None, bytes(16)))
    for columns, index in [((column(), long), 0), ((column(),), 2)]:
        with pytest.raises(ValueError, match="columns"):
            arrays.decode(messages.Frame(library="pandas", columns=columns, index=index))
    times = column("timestamp", unit="s", zone="UTC", buffers=(None, bytes(8)))
    for columns, index in [((column(buffers=(None, bytes(8))),) * 9_000, 65), ((times,) * 257, 0)]:
        with pytest.raises(ValueError, match="too many"):
            arrays.decode(messages.Frame(library="pandas", columns=columns, index=index))
    many = column("bool", length=2**27, buffers=(None, bytes(2**24)))  # six seconds of pandas'
    one = column("int8", buffers=(None, b"\0"), categories=many)
    with pytest.raises(ValueError, match="too many fields"):
        arrays.decode(messages.Frame(library="pandas", columns=(one,)))
    assert arrays.decode(messages.Array("|b1", (2,), b"\x07\0")).tolist() == [True, False]
    for raw in (b"\x81\x01\x02", b"\xc1", b"\x91" * 5_000, b"\xd4\x05\x00"):
        with pytest.raises(ValueError, match="no value"):
            arrays.decode(messages.Data(raw))


def test_an_extension_of_a_guests_is_a_table_or_nothing():
    """Pillow would read a file of the guest's making."""
    honest = msgspec.msgpack.encode(arrays.encode(FRAMES["types"]))
    bad = messages.Frame(library="pandas", columns=(column("int8", length=9),))
    picture = arrays.image(Image.new("RGB", (4, 3)))
    refused = [(1, msgspec.msgpack.encode(bad)), (1, b"\xc1"), (2, picture.data), (2, honest)]
    for code, content in [*refused, (3, honest)]:
        call = msgspec.msgpack.encode(([msgspec.msgpack.Ext(code, content)], {}))
        with pytest.raises((ValueError, msgspec.DecodeError)):
            arrays.arguments(call)
