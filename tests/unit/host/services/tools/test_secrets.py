"""What a tool calls secret, however deep, is told to nobody: reply, log, question, message."""

import dataclasses
import typing
from typing import Annotated, Any, NamedTuple, NewType

import msgspec
import pydantic
import pytest
from pydantic import SecretStr
from typing_extensions import TypeAliasType, TypedDict, TypeVar

from cellblock.host.consent import request
from cellblock.host.services.tools import registry
from cellblock.host.services.tools.calls import MASK, Answer, Call, CallRecord
from cellblock.host.services.tools.registry import encode_error
from cellblock.tools import SECRET


class Login(pydantic.BaseModel):
    user: str
    password: SecretStr


class Marked(pydantic.BaseModel):
    token: Annotated[str, SECRET]


class Derived(pydantic.BaseModel):
    @pydantic.computed_field
    @property
    def token(self) -> SecretStr:
        return SecretStr("hunter2")


class Within(pydantic.BaseModel):
    logins: dict[str, list[Login]] = {}


class Node(pydantic.BaseModel):
    name: str
    below: "list[Node]" = []


class Tree(pydantic.BaseModel):
    top: Node
    login: Login | None = None


@dataclasses.dataclass
class Keys:
    key: Annotated[str, SECRET]


@dataclasses.dataclass
class Made:
    key: dataclasses.InitVar[SecretStr]


class Typed(TypedDict, total=False):
    key: typing.NotRequired[Annotated[str, SECRET]]


class PlainTyped(typing.TypedDict):
    key: SecretStr


class Named(NamedTuple):
    key: SecretStr


class Packed(msgspec.Struct):
    key: SecretStr


T = typing.TypeVar("T")


class Box(pydantic.BaseModel, typing.Generic[T]):
    value: T


@dataclasses.dataclass
class Locked(typing.Generic[T]):
    key: SecretStr
    value: T


Bound = typing.TypeVar("Bound", bound=SecretStr)
BoundToModel = typing.TypeVar("BoundToModel", bound=Login)
BoundByName = typing.TypeVar("BoundByName", bound="Login")
Constrained = typing.TypeVar("Constrained", int, SecretStr)
ListByName = typing.TypeVar("ListByName", bound=list["Login"])
UnknownName = typing.TypeVar("UnknownName", bound="Missing")  # noqa: F821 - that is the point
NodeByName = typing.TypeVar("NodeByName", bound="Node")
AliasByName = TypeAliasType("AliasByName", "dict[str, AliasByName] | Login")
Marking = typing.TypeVar("Marking", bound=Annotated[str, SECRET])
Otherwise = TypeVar("Otherwise", default=SecretStr)
Unbound = TypeVar("Unbound", bound=str, default=str)


class Safe(pydantic.BaseModel, typing.Generic[Bound]):
    value: Bound


class Lines(pydantic.BaseModel, typing.Generic[Unbound]):
    value: Unbound


Token = NewType("Token", SecretStr)
SECRETS = [
    SecretStr, Annotated[str, SECRET], Login, Marked, Within, Tree, Keys, Made, Typed, PlainTyped, Named,
    Packed,
    Derived, Box[Login], Locked[int], Token, Bound, BoundToModel, BoundByName, ListByName,
    UnknownName, AliasByName, Constrained, Marking, Otherwise,
    Safe, Box[Bound], list[Constrained], dict[str, Bound] | None, NewType("Wrapped", Bound), type[Otherwise],
    Login | None, list[Login], tuple[int, dict[str, Typed]],
]  # fmt: skip


@pytest.mark.parametrize("hint", SECRETS)
def test_a_secret_within_a_type_makes_the_whole_secret(hint):
    assert registry.is_secret(hint)


@pytest.mark.parametrize(
    "hint",
    [
        str,
        Node,
        Box[int],
        Any,
        list[Node],
        None,
        "Login",
        T,
        Unbound,
        Lines,
        list[Unbound],
        NodeByName,
        pydantic.JsonValue,
    ],
    ids=str,
)
def test_what_has_none_is_shown(hint):
    assert not registry.is_secret(hint)


def log_in(login: Login, key: Keys, *more: Typed, note: str = "") -> Within:
    """Log in."""
    raise LookupError(login, key, more, note)


GIVEN = [{"user": "ada", "password": "hunter2"}, {"key": "k-123"}, {"key": "t'9"}], {"note": "hi"}


@pytest.fixture
def call():
    tool = registry.register([("log_in", "log_in", log_in)])["log_in"].tool
    encoded = msgspec.Raw(msgspec.msgpack.encode(GIVEN))
    return Call(1, tool, encoded, answer=lambda _answer: None)


def test_nothing_of_it_is_in_reply_log_or_question(call):
    answer = Answer(msgspec.msgpack.encode({"logins": {"a": [GIVEN[0][0]]}}))
    record = CallRecord(1, call.tool, bytes(call.arguments), "ok", value=answer.value)
    told = record.as_dict()
    assert (told["args"], told["kwargs"]) == ([MASK, MASK, MASK], {"note": "hi"})
    assert told["result"] == MASK
    assert request.with_lines(request.of_call(call)).shown == (
        "  login = •••, kept out of sight: the tool calls it secret",
        "  key = •••, kept out of sight: the tool calls it secret",
        "  more[0] = •••, kept out of sight: the tool calls it secret",
        "  note = 'hi'",
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no such user", "no such user"),
        ("hunter2 is wrong for ada, hi", "••• is wrong for •••, hi"),
        ("t'9", "•••"),
        (repr({"a": "t'9", "b": b"k-123"}), """{'a': "•••", 'b': b'•••'}"""),
        ("x" * 1_990 + " is not hunter2", "x" * 1_990 + " is not •••"[:10]),
    ],
)
def test_a_message_tells_no_value_of_a_secret_argument(call, said, told):
    answer = encode_error(LookupError(said), call.tool, bytes(call.arguments))
    assert answer.message == told


def test_more_secrets_than_can_be_looked_for_have_no_message_told(call):
    given = [[{"user": f"u{n}", "password": "x"} for n in range(101)]], {}
    answer = encode_error(LookupError("u7"), call.tool, msgspec.msgpack.encode(given))
    assert answer.message == MASK
    assert encode_error(LookupError("u7"), call.tool, b"\xc1").message == MASK
