"""Arguments are with_validation by type hints, and what fits nowhere costs no more than what fits."""

import asyncio
import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pydantic
import pytest
from typing_extensions import TypedDict, Unpack

from cellblock.host.services.tools.registry import encode_error, with_validation

MANY = 100_000


class Point(pydantic.BaseModel):
    """Two numbers."""

    x: int
    y: int


class Tree(pydantic.BaseModel):
    """Models in themselves."""

    below: list["Tree"] = []


class Options(TypedDict, total=False):
    """What a tool may be told."""

    deep: bool


class Sheet(TypedDict, total=False):
    """Fields with names of what a schema has."""

    config: list[int]
    metadata: list[int]
    rows: list[int]
    type: list[int]


@dataclasses.dataclass
class Page:
    """Another kind of fields."""

    default: list[int] = dataclasses.field(default_factory=list)
    sheet: Sheet | None = None
    pages: "list[Page] | None" = None


class Book(pydantic.BaseModel):
    """A model, which keeps its own way."""

    pages: list[int] = []


def errors(hint, value):
    def take(given):
        return given

    take.__annotations__["given"] = hint
    with pytest.raises(pydantic.ValidationError) as refused:
        with_validation(take)(value)
    return refused.value.error_count()


@pytest.mark.parametrize(
    ("hint", "value", "count"),
    [
        (list[int], [None] * MANY, 1),
        (list[int] | None, [None] * MANY, 1),
        (Annotated[list[int], pydantic.Field(max_length=2 * MANY)], [None] * MANY, 1),
        (Sequence[int], [None] * MANY, 1),
        (tuple[int, ...], [None] * MANY, 1),
        (set[int], [f"{n}x" for n in range(MANY)], 1),
        (frozenset[int], [f"{n}x" for n in range(MANY)], 1),
        (list[Point], [{}] * MANY, 2),
        (list[list[int]], [[None] * MANY] * 3, 1),
        (dict[str, list[int]], {"a": [None] * MANY, "b": [1]}, 1),
        (list[int | Point | Literal["a"]], [None] * MANY, 3),
        (Sheet, {"metadata": [None] * MANY}, 1),
        (Sheet, {"type": [None] * MANY}, 1),
        (Sheet, {"rows": [None] * MANY}, 1),
        (list[Page], [{"default": [None] * MANY}] * 2, 1),
        (Page, {"sheet": {"config": [None] * MANY}}, 1),
        (Page, {"pages": [None] * MANY}, 1),
        # Not covered: a type within itself, and a model.
        (Page, {"pages": [{"default": [None] * 5}]}, 5),
        (Book, {"pages": [None] * 5}, 5),
    ],
)
def test_what_fits_nowhere_is_one_item_s_errors(hint, value, count):
    assert errors(hint, value) == count


def test_an_error_of_very_many_is_told_by_their_number():
    with pytest.raises(pydantic.ValidationError) as refused:
        with_validation(_counts)({str(n): None for n in range(5_000)})
    assert encode_error(refused.value).message == "5,000 values do not fit the type hints"


def _counts(of: dict[str, int]) -> int:
    return sum(of.values())


def test_what_fits_is_taken_as_ever():
    def take(
        first: Tree, *rest: int, y: Annotated[int, pydantic.Field(gt=1)] = 3, **more: list[int]
    ) -> Any:
        """Take it."""
        return first, rest, y, more

    function = with_validation(take)
    tree = Tree(below=[Tree()])
    assert function({"below": [{}]}, "4", y=5, z=["1"]) == (tree, (4,), 5, {"z": [1]})
    assert function(tree) == (tree, (), 3, {})
    assert (function.__name__, function.__doc__) == ("take", "Take it.")
    with pytest.raises(pydantic.ValidationError, match="greater than 1"):
        function(tree, y=1)


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

    assert with_validation(Shop().price)("ab", ["2"]) == 4
    assert asyncio.run(with_validation(Shop().stock)(["2", 3])) == 5
    assert with_validation(functools.partial(_counts))({"a": "1"}) == 1
    assert with_validation(wrapped)({"a": "1"}) == 1
    assert with_validation(told)(deep="yes") == {"deep": True}
    with pytest.raises(pydantic.ValidationError) as refused:
        with_validation(Shop().price)("ab", [None] * MANY)
    assert refused.value.error_count() == 1
