"""Arguments are validated by type hints, and a flood of values is refused."""

import asyncio
import functools
import tracemalloc
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest
from typing_extensions import TypedDict, Unpack

from cellblock.host.services.tools.registry import encode_error, register
from cellblock.wire import arrays

MANY = 200_000


class Tree(pydantic.BaseModel):
    """Models in themselves."""

    below: list["Tree"] = []


class Options(TypedDict, total=False):
    """What a tool may be told."""

    deep: bool


def validated(function):
    return register([("entry", "tool", function)])["tool"].function


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list[int], [None] * MANY),
        (dict[str, int], {str(n): None for n in range(MANY)}),
        (list[list[int]], [[None] * 10] * (MANY // 10)),
        (Tree, {"below": [{"below": None}] * MANY}),
        (Any, [None] * MANY),
    ],
)
def test_a_flood_of_values_is_refused_unread_where_it_would_be_read(hint, value):
    def take(given, *rest: int):
        return given, rest

    take.__annotations__["given"] = hint
    function = validated(take)
    if hint is Any:
        assert function(value) == (value, ())
    else:
        with pytest.raises(ValueError, match="it is given more than 100,000 values"):
            function(value)
    with pytest.raises(ValueError, match="it is given more than 100,000 values"):
        function(1, *[None] * MANY)


def test_an_error_of_very_many_is_told_by_their_number():
    with pytest.raises(pydantic.ValidationError) as refused:
        validated(_counts)({str(n): None for n in range(5_000)})
    assert encode_error(refused.value).message == "5,000 values do not fit the type hints"


def _counts(of: dict[str, int]) -> int:
    return sum(of.values())


def test_what_fits_is_taken_as_ever():
    def take(
        first: Tree, *rest: int, y: Annotated[int, pydantic.Field(gt=1)] = 3, **more: list[int]
    ) -> Any:
        """Take it."""
        return first, rest, y, more

    function = validated(take)
    tree = Tree(below=[Tree()])
    assert function({"below": [{}]}, "4", y=5, z=["1"]) == (tree, (4,), 5, {"z": [1]})
    assert function(tree) == (tree, (), 3, {})
    assert (function.__name__, function.__doc__) == ("take", "Take it.")
    with pytest.raises(pydantic.ValidationError, match="greater than 1"):
        function(tree, y=1)


def test_arrays_cross_as_lists_and_are_arrays_again_where_a_hint_says_so():
    def take(a: np.ndarray, *, b: npt.NDArray[np.float64] | None = None, n: int = 1) -> Any:
        return a, b, n

    a, b, n = validated(take)([[1, 2]], b=[0.5], n="3")
    assert (a.shape, b.tolist(), n) == ((1, 2), [0.5], 3)
    assert validated(functools.partial(take))([1])[1] is None
    for wrong in ([{"a": 1}], [None], {"a": 1}, "text", [[1], [1, 2]]):
        with pytest.raises(pydantic.ValidationError):
            validated(take)(wrong)


@pytest.mark.parametrize(
    "value",
    [
        ["x" * 30_000, *[""] * 30_000],
        [["x" * 30_000], [""] * 30_000],
        [*[1] * 30_000, ["x" * 30_000]],
        [b"x" * 30_000, *[b""] * 30_000],
    ],
)
def test_texts_that_an_array_would_have_as_wide_as_the_longest_are_bounded_before(value):
    """60 KB of a call were 3.5 GB of an array."""

    def take(a: np.ndarray) -> Any:
        return a.size

    call = validated(take)
    tracemalloc.start()
    with pytest.raises(pydantic.ValidationError, match="shorter texts, or fewer") as caught:
        call(value)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
    assert len(str(caught.value)) < 1_000
    assert call(["x" * 500, *[""] * 30_000]) == 30_001
    assert call([1, 2.5, "x", True]) == 4


def test_every_kind_of_function_is_checked():
    class Shop:
        def price(self, item: str, pieces: list[int]) -> int:
            return len(item) * sum(pieces)

        async def stock(self, pieces: list[int]) -> int:
            return sum(pieces)

    @functools.wraps(_counts)
    def wrapped(*args: Any, **kwargs: Any) -> int:
        return _counts(*args, **kwargs)

    def told(**options: Unpack[Options]) -> Options:
        return options

    assert validated(Shop().price)("ab", ["2"]) == 4
    assert asyncio.run(validated(Shop().stock)(["2", 3])) == 5
    assert validated(functools.partial(_counts))({"a": "1"}) == 1
    assert validated(wrapped)({"a": "1"}) == 1
    assert validated(told)(deep="yes") == {"deep": True}
    with pytest.raises(pydantic.ValidationError):
        validated(Shop().price)("ab", [None])


def refused_table(hint, value):
    """Return what a cell reads whose table does not fit."""

    def take(df):
        return df

    take.__annotations__["df"] = hint
    made = register([("entry", "tool", take)])["tool"]
    with pytest.raises(pydantic.ValidationError) as refused:
        made.function(value)
    return encode_error(refused.value, made.tool).message


def test_a_table_that_does_not_fit_is_told_of_which_library_it_has_to_be():
    frame = {"a": [1]}
    seen = {
        refused_table(pd.DataFrame, "text"): "df: Input should be a pandas.DataFrame",
        refused_table(pd.DataFrame | None, pl.DataFrame(frame)): (
            "df: Input should be a pandas.DataFrame, not a polars.DataFrame: pass df.to_pandas()"
        ),
        refused_table(list[pa.Table], [pd.DataFrame(frame)]): (
            "df.0: Input should be a pyarrow.Table, not a pandas.DataFrame: "
            "pass pyarrow.Table.from_pandas(df)"
        ),
        refused_table(pl.DataFrame, pd.DataFrame(frame)["a"]): (
            "df: Input should be a polars.DataFrame, not a pandas.Series"
        ),
    }
    assert list(seen) == list(seen.values())


def test_a_table_of_a_library_that_only_cells_have_is_told_what_to_pass():
    def take(rows: pd.DataFrame, rate: float = 1.0):
        return rows, rate

    def take_any(rows: list):
        return rows

    made = register([("entry", "take", take), ("entry", "take_any", take_any)])
    assert made["take"].tool.parameters[0].annotation == "pandas.DataFrame"
    error = arrays.NotLoadedError("polars", "polars.DataFrame")
    answer = encode_error(error, made["take"].tool)
    assert (answer.kind, answer.message) == (
        "ValidationError",
        "rows: Input should be a pandas.DataFrame, not a polars.DataFrame: pass rows.to_pandas()",
    )
    said = encode_error(error, made["take_any"].tool).message
    assert said.endswith("has not imported: pass lists or dicts")
