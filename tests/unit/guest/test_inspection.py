"""What completion and inspection look up, and what of it would reach code of a cell's."""

import builtins
import collections
import functools
import types
import typing
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pandas.core import accessor

from cellblock.analysis import Rules
from cellblock.guest import inspection
from cellblock.guest.inspection import LookUpRefused, evaluate
from unit.analysis.rules_for_tests import SAFE

RULES = Rules(False, {}, frozenset(), frozenset(), admission=True)

heard = []


def note(*said):
    heard.append(said)
    return 1


class Missing(dict):
    def __missing__(self, key):
        return note(key)


class User(collections.UserDict):
    def __missing__(self, key):
        return note(key)


class Layered(collections.ChainMap):
    def __missing__(self, key):
        return note(key)


class Rows(collections.UserList):
    def __init__(self, data=()):
        note(data)
        super().__init__(data)


class Text(collections.UserString):
    def __init__(self, seq=""):
        note(seq)
        super().__init__(seq)


class Key(str):
    """A text that is asked whether it is equal to what is typed."""

    __slots__ = ()

    def __eq__(self, other):
        return bool(note(other))

    def __hash__(self):
        return hash("zz")


class Labels(pd.Series):
    @property
    def _constructor(self):
        note()
        return Labels


class Table(pd.DataFrame):
    @property
    def _constructor_sliced(self):
        note()
        return Labels


class Slot:
    __slots__ = ("zz",)

    def __getattr__(self, name):
        return note(name)


class Point(typing.NamedTuple):
    x: int


class Owner:
    zz_of_class = "of the class"

    def method(self):
        return note()

    @functools.cached_property
    def zz(self):
        return note()


class Meta(type):
    def __getattr__(cls, name):
        return note(name)

    @property
    def zz(cls):
        return note()


class OfMeta(metaclass=Meta):
    known = (1,)


class Super(super):
    def __init__(self, *args):
        note(*args)


class HasSuper(Owner):
    pass


HasSuper.zz = Super(Owner)


def registered(_owner):
    return note()


@pytest.fixture(autouse=True)
def accessors(monkeypatch):
    """Have an accessor of a cell's at tables and columns."""
    for kind in (pd.DataFrame, pd.Series):
        monkeypatch.setattr(kind, "registered", accessor.Accessor("x", registered), raising=False)


def names():
    owner, keyed = Owner(), Owner()
    owner.kept = {"a": (1, "two")}
    vars(keyed)[Key("zz")] = 1
    frame = pd.DataFrame({"a": ["x"], "b": [1]})
    return {
        "__builtins__": vars(builtins),
        Key("zz"): 1,
        "missing": Missing({"a": [3]}),
        "user": User(a=1),
        "chain": collections.ChainMap({"a": 1}, Missing()),
        "layered": Layered({}),
        "counted": collections.defaultdict(note, a="known"),
        "mapped": types.MappingProxyType(Missing()),
        "rows": Rows([1]),
        "text": Text("abc"),
        "listed": [["inner"]],
        "keyed": {Key("zz"): 1},
        "pairs": {("a", Key("zz")): 1, ("a", "b"): "pair"},
        "of_keys": keyed,
        "class_of_keys": type("OfKeys", (), {Key("zz"): 1}),
        "owner": owner,
        "point": Point(4),
        "slot": Slot(),
        "meta": OfMeta,
        "sub": HasSuper(),
        "labels": Labels([1, 2], index=["x", "zz"]),
        "table": Table({"zz": [1]}),
        "frame": frame,
        "odd": pd.DataFrame([[1, 2]], columns=pd.Index([Key("zz"), "b"], dtype=object)),
        "array": np.array([[1, 2]]),
        "module": types,
    }


@pytest.mark.parametrize(
    "code",
    [
        *("missing['zz']", "user['zz']", "chain['zz']", "layered['zz']", "counted['zz']"),
        *("mapped['zz']", "rows[:]", "rows[0]", "text[:]", "keyed['zz']", "pairs['a', 'zz']"),
        *("of_keys.zz", "class_of_keys.zz", "zz", "owner.zz", "owner.other", "slot.zz"),
        *("meta.zz", "meta.other", "sub.zz", "labels['zz']", "labels.zz", "labels.iloc[:]"),
        *("table['zz']", "table.zz", "table.loc['zz']", "table.iloc[:]", "odd['zz']", "odd.zz"),
        *(
            "frame.plot",
            "frame.registered",
            "frame['a'].registered",
            "list[int]",
            "owner.method()",
            "module.zz",
        ),
    ],
)
def test_what_could_reach_code_of_a_cell_is_not_looked_up(code):
    space = names()
    heard.clear()
    with pytest.raises((LookUpRefused, NameError)):
        evaluate(code, space, RULES)
    assert heard == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("missing['a'][0]", 3),
        ("counted['a']", "known"),
        ("listed[0][0]", "inner"),
        ("listed[0][:]", ["inner"]),
        ("pairs['a', 'b']", "pair"),
        ("owner.kept['a'][1]", "two"),
        ("owner.zz_of_class", "of the class"),
        ("owner.method.__func__", Owner.method),
        ("meta.known[0]", 1),
        ("frame['a'].dtype", pd.Series(["x"]).dtype),
        ("frame.b.dtype", np.dtype("int64")),
        ("frame.shape", (1, 2)),
        ("odd.b.name", "b"),
        ("array[0, 1]", 2),
        ("module.ModuleType", types.ModuleType),
        ("point.x", 4),
        ("len", len),
    ],
)
def test_what_is_kept_is_looked_up(code, expected):
    assert evaluate(code, names(), RULES) == expected


def test_columns_loc_and_generators_of_libraries_complete():
    space = names() | {"rng": np.random.default_rng()}
    assert callable(evaluate("frame['a'].str.upper", space, RULES))
    assert callable(evaluate("rng.normal", space, RULES))
    assert list(evaluate("frame.columns", space, RULES)) == ["a", "b"]
    assert type(evaluate("frame.loc", space, RULES)).__name__ == "_LocIndexer"


def test_wherever_cells_are_judged_so_is_what_is_looked_up():
    unchecked = replace(SAFE, language=False)
    assert SAFE.judges_cells
    assert replace(unchecked, admission=True).judges_cells
    assert not unchecked.judges_cells


def test_what_a_cell_may_not_say_is_not_looked_up():
    with pytest.raises(LookUpRefused):
        evaluate("open", {"__builtins__": {"open": open}}, SAFE)


def test_no_completer_of_a_cells_and_no_jedi_is_asked():
    found = types.SimpleNamespace(use_jedi=True, custom_matchers=[print], disable_matchers=[])
    shell = types.SimpleNamespace(Completer=found, user_ns={})
    inspection._evaluate_safely(shell, SAFE)
    assert (found.use_jedi, found.custom_matchers) == (False, [])
    assert "IPCompleter.custom_completer_matcher" in found.disable_matchers
    assert "IPCompleter.file_matcher" in found.disable_matchers
