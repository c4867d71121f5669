"""Arguments are validated by type hints, and a flood of values is refused."""

import asyncio
import functools
from typing import Annotated, Any

import pydantic
import pytest
from typing_extensions import TypedDict, Unpack

from cellblock.host.services.tools.registry import encode_error, register

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
