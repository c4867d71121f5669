"""Values that cross between cells and tools, and those that do not."""

import array
import collections
import datetime as dt
import decimal
import enum
import uuid
from typing import NamedTuple

import msgspec
import pytest

from cellblock.wire import values


class Colour(enum.StrEnum):
    RED = "red"


class Pair(NamedTuple):
    a: int
    b: set


class Number(int):
    def __int__(self):
        raise AssertionError("a method of a subclass was called")


class Text(str):
    __slots__ = ()

    def __str__(self):
        raise AssertionError("a method of a subclass was called")


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (None, None),
        ([1, "a", b"b", True, 1.5], [1, "a", b"b", True, 1.5]),
        ((1, [2]), [1, [2]]),
        ({"a": {"b": (1,)}}, {"a": {"b": [1]}}),
        ({3}, [3]),
        (bytearray(b"x"), b"x"),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00+00:00"),
        (dt.timedelta(seconds=1.5), 1.5),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Number(5), 5),
        (Text("t"), "t"),
        (collections.Counter("aa"), {"a": 2}),
        (Pair(1, {2}), [1, [2]]),
        (type("Day", (dt.date,), {})(2026, 1, 2), "2026-01-02"),
    ],
)
def test_data_crosses_in_plain_types(given, plain):
    made = values.plain(given)
    assert made == plain
    assert type(made) is type(plain)
    assert values.decode(values.encode(made, 1_000)) == plain


@pytest.mark.parametrize(
    "given",
    [object(), len, int, array.array("i"), {1: 2}, {("a",): 1}, [object()], range(3), 1j],
)
def test_what_is_no_data_is_refused(given):
    with pytest.raises(TypeError):
        values.plain(given)


def test_what_is_within_itself_or_more_than_a_frame_holds_is_refused():
    given = []
    given.append(given)
    with pytest.raises(ValueError, match="64 levels"):
        values.plain(given)

    with pytest.raises(ValueError, match="over 2000000 values"):
        values.encode([[]] * 2_000_001, 2**24)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (2**64, "more than 64 bits"),
        ("x" * 2_000, "2,003 bytes; 1,000 may be passed"),
        ("\ud800", "surrogates"),
    ],
)
def test_what_can_not_be_carried_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        values.encode(given, 1_000)


def test_what_a_guest_encoded_is_bounded_and_holds_data_alone():
    encoded = bytes(values.encode([1, {"a": "b"}], 100))
    assert values.checked(encoded, len(encoded)) == [1, {"a": "b"}]
    with pytest.raises(ValueError, match=f"more than {len(encoded) - 1} bytes"):
        values.checked(encoded, len(encoded) - 1)
    extension = msgspec.msgpack.encode([msgspec.msgpack.Ext(5, b"x")])
    with pytest.raises(ValueError, match="an extension can't be passed as data"):
        values.checked(extension, 100)
