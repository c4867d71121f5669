"""A template's file defines and does nothing; a state is JSON that can be read in one way."""

import time

import pytest

from cellblock.analysis.templates import StateError, definitions, entry, read_state

ALLOWED = [
    '"""A docstring."""',
    "import math\nfrom statistics import mean",
    "from __future__ import annotations",
    "X = 3\nY: int = X + 1\nA, (B, *C) = 1, (2, 3)",
    "NAMES = [n for n in 'abc' if n != 'b']",
    "import re\nWORD = re.compile('x')",
    (
        "from dataclasses import dataclass, field\n"
        "@dataclass(frozen=True)\nclass C:\n    a: int = 1\n    b: list = field(default_factory=list)"
    ),
    "def f(x=1, *, y: int = 2) -> str:\n    print(x)\n    return g()",
    "async def f():\n    await g()",
    "class C(dict):\n    '''Doc.'''\n    x = 1\n    def f(self):\n        self.g()",
    "f = lambda x: g(x)",
    "pass",
    "from re import compile as pattern\nMATCH = pattern('x').match\nJOIN = ', '.join",
    "from functools import cache, lru_cache\n@cache\ndef f(): g()\n@lru_cache(maxsize=3)\ndef g(): f()",
    "import contextlib\n@contextlib.contextmanager\ndef f(): yield",
    "from enum import Enum, auto\nclass C(Enum):\n    A = auto()\n    def f(self): pass\nD = C.A",
    "from abc import ABC, abstractmethod\nclass A(ABC):\n    @abstractmethod\n    def f(self): pass",
    "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int = 0",
    "from typing import TypedDict\nclass P(TypedDict, total=False):\n    x: int",
    "from collections import namedtuple\nP = namedtuple('P', 'x y')",
    "class E(ValueError):\n    def __str__(self): return g()",
    (
        "class C:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return True\n"
        "    @property\n    def y(self): return 1\n"
        "    @staticmethod\n    def s(): pass\n    @classmethod\n    def of(cls): return cls(1)"
    ),
    "def f(rows: list[dict[str, int]] | None = None): pass",
    "TABLE = {'a': 1}\nFIRST = TABLE['a'] + 1\nTEXT = f'{FIRST}'",
]
REFUSED = {
    "print('x')": "print('x')",
    "main()": "main()",
    "if True:\n    x = 1": "if True:",
    "for x in y: pass": "for x in y: pass",
    "while 1: pass": "while 1: pass",
    "with x: pass": "with x: pass",
    "try: pass\nfinally: pass": "try: pass",
    "del x": "del x",
    "assert x": "assert x",
    "raise x": "raise x",
    "x += 1": "x += 1",
    "global x": "global x",
    "import json\njson.dumps = 3": "json.dumps = 3",
    "x[0] = 1": "x[0] = 1",
    "x.y": "x.y",
    "1\n'no docstring'": "1",
    "await x": "await x",
    "X = main()": "main()",
    "X: int = main()": "main()",
    "X = [main() for _ in y]": "main()",
    "X = f'{main()}'": "main()",
    "X = (main)()": "main()",
    "X = [main][0]()": "this()",
    "@main()\ndef f(): pass": "main()",
    "@main()\nclass C: pass": "main()",
    "def f(x=main()): pass": "main()",
    "def f(*, x=main()): pass": "main()",
    "def f(x: main()): pass": "main()",
    "def f() -> main(): pass": "main()",
    "class C(main()): pass": "main()",
    "class C(metaclass=main()): pass": "main()",
    "class C:\n    main()": "main()",
    "class C:\n    x = main()": "main()",
    "class C:\n    if 1: pass": "if 1: pass",
    "f = lambda x=main(): x": "main()",
    "X: main() = 1": "main()",
    "def frozenset(x): evil()\nX = frozenset('a')": "frozenset()",
    "class re:\n    compile = 1\nX = re.compile('a')": "re.compile()",
    "match x:\n    case 1: pass": "match x:",
    # Decorators are calls.
    "def main(f): print(1)\n@main\ndef f(): pass": "main",
    "def main(f): print(1)\n@main\nclass C: pass": "main",
    "@print\ndef f(): pass": "print",
    "@(lambda f: print(1))\ndef f(): pass": "lambda f: print(1)",
    "import atexit\n@atexit.register\ndef f(): pass": "atexit.register",
    "def property(f): print(1)\nclass C:\n    @property\n    def f(self): pass": "property",
    "from functools import cache\ncache = print\n@cache\ndef f(): pass": "cache",
    "from evil import display as dataclass\n@dataclass\nclass C: pass": "dataclass",
    "from evil import *\n@property\ndef f(): pass": "property",
    "class C:\n    @staticmethod\n    def setter(f): print(1)\n@C.setter\ndef f(): pass": "C.setter",
    (
        "class x:\n    @staticmethod\n    def setter(f): print(1)\n"
        "class D:\n    @x.setter\n    def x(self): pass\n    @property\n    def x(self): pass"
    ): "x.setter",
    # Hooks of classes.
    "class C:\n    def __init_subclass__(cls): print(1)\nclass D(C): pass": "__init_subclass__",
    "class C:\n    __init_subclass__ = print": "__init_subclass__",
    "class C:\n    from evil import f as __init_subclass__": "__init_subclass__",
    "class C:\n    x = (__init_subclass__ := print)": "__init_subclass__",
    "class C:\n    def __class_getitem__(cls, k): print(1)\nX = C[0]": "__class_getitem__",
    "class C:\n    def __set_name__(self, owner, name): print(1)": "__set_name__",
    "class C:\n    def __mro_entries__(self, bases): print(1)": "__mro_entries__",
    "from dataclasses import dataclass\n@dataclass\nclass C:\n    __signature__ = print": "__signature__",
    "from abc import ABC\nclass C(ABC):\n    @classmethod\n    def __subclasshook__(cls, c): f()": (
        "__subclasshook__"
    ),
    # Metaclasses, and bases that call what a class defines.
    "class M(type):\n    def __new__(*a): print(1)": "type",
    "class M: pass\nclass C(metaclass=M): pass": "M",
    "class C(**{'metaclass': print}): pass": "{'metaclass': print}",
    "from pydantic import BaseModel\nclass C(BaseModel): pass": "BaseModel",
    "X = print\nclass C(X): pass": "X",
    "class C: pass\nclass D(C): pass": "C",
    "from collections import namedtuple\nclass P(namedtuple('P', 'x')): pass": "namedtuple('P', 'x')",
    "from . import f as property\nclass C:\n    @property\n    def f(self): pass": "property",
    (
        "from enum import Enum\nclass D(Enum):\n    A = 1\n    @property\n    def f(self): g()\n"
        "class C: pass\nC = D.A\nX = C.f"
    ): "C.f",
    "class C:\n    @property\n    def y(self): pass\n    @y.setter\n    def y(self, v): pass": "y.setter",
    "class C(frozenset('a')): pass": "frozenset('a')",
    # Instances that there are without a call: members of enumerations.
    "from enum import Enum\nclass C(Enum):\n    A = 1\n    def __init__(self, x): print(1)": "__init__",
    "from enum import Enum\nclass C(Enum):\n    A = 1\n    def __str__(self): f()\nX = f'{C.A}'": "__str__",
    "from enum import Enum\nclass C(Enum):\n    def _generate_next_value_(*a): f()": (
        "_generate_next_value_"
    ),
    "from enum import Enum\nclass M:\n    def __new__(cls, x): f()\nclass C(M, Enum):\n    A = 1": "__new__",
    (
        "from enum import Enum\nclass C(Enum):\n    A = 1\n    @property\n    def f(self): g()\n"
        "X = C.A.f"
    ): "C.A.f",
    (
        "from enum import Enum\nclass C(Enum):\n    A = 1\n    @property\n    def f(self): g()\n"
        "X = [c.f for c in C]"
    ): "c.f",
    "class C:\n    @classmethod\n    @property\n    def f(cls): print(1)\nX = C.f": "property",
    "X = 1\nY = X.real": "X.real",
}


def test_only_definitions_may_stand_in_a_template_and_nothing_runs_when_it_is_loaded():
    for source in ALLOWED:
        assert definitions(source) == (), source

    for source, subject in REFUSED.items():
        found = definitions(source)
        assert {each.rule for each in found} == {"template-definitions"}, source
        assert found[0].subject == subject, source


def test_every_place_is_told_at_once_in_order():
    found = definitions("import math\nprint(1)\nX = 3\nY = f()\n")
    assert [(each.line, each.subject) for each in found] == [(2, "print(1)"), (4, "f()")]


@pytest.mark.parametrize("source", ["x =", "x = 1\0", "(" * 10_000, "%time x"])
def test_what_is_not_python_is_no_template(source):
    (found,) = definitions(source)
    assert found.why.startswith(("is not Python: ", "can't be read: "))


STARTED = [
    "def run(state): pass",
    "async def run(state): pass",
    "def run(state, /, more=1, *, other=2): pass",
    "def run(state=None, **rest): pass",
]
NOT_STARTED = [
    "",
    "run = 3",
    "class run: pass",
    "if 1:\n    def run(state): pass",
    "def run(): pass",
    "def run(state, more): pass",
    "def run(*, state): pass",
    "def run(state, *, other): pass",
    "def run(*state): pass",
]


def test_a_template_is_started_by_a_run_of_one_argument():
    for source in STARTED:
        assert entry(source) == (), source
    for source in NOT_STARTED:
        assert [each.rule for each in entry(source)] == ["template-definitions"], source


# --- state ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", {}),
        (" \n", {}),
        ('{"a": [1, 2.5, "é", null, true]}', {"a": [1, 2.5, "é", None, True]}),
        ("[]", []),
        ('"]]]]{{{{"', "]]]]{{{{"),
        (r'"\\\"["', '\\"['),
        (str(2**64 - 1), 2**64 - 1),
        (str(-(2**63)), -(2**63)),
        ('"\\ud83d\\ude00"', "😀"),
        ("[" * 32 + "]" * 32, None),
    ],
)
def test_a_state_is_the_data_that_its_json_says(text, state):
    read = read_state(text)
    assert state is None or (read == state and type(read) is type(state))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "one object has the key 'a' twice"),
        ('{"a": {"b": 1, "\\u0062": 2}}', "one object has the key 'b' twice"),
        ("[NaN]", "NaN is no JSON"),
        ("-Infinity", "-Infinity is no JSON"),
        ("1e999", "1e999 is too large for a number"),
        (str(2**64), "18446744073709551616… has more than 64 bits"),
        ("9" * 100_000, "99999999999999999999… has more than 64 bits"),
        ("[" * 33 + "]" * 33, "it is nested deeper than 32"),
        ('{"a":' * 100_000, "it is nested deeper than 32"),
        ("[" + "1," * 60_000 + "1]", "it has more than 50,000 values"),
        ("[" + "{}," * 60_000 + "{}]", "it has more than 50,000 values"),
        ('"' + "x" * 2**20 + '"', "it has 1,048,578 characters; at most 1,048,576 are allowed"),
        ('"\\ud800"', "a text in it is not Unicode: half of a surrogate pair"),
        ('"\ud800"', "a text in it is not Unicode: half of a surrogate pair"),
        ('{"\\udc00": 1}', "a text in it is not Unicode: half of a surrogate pair"),
        ("{'a': 1}", "it is not JSON: Expecting property name enclosed in double quotes"),
        ("{} {}", "it is not JSON: Extra data"),
        ("state = {}", "it is not JSON: Expecting value"),
        ("\ufeff{}", "it is not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig)"),
        ("\u00a0", "it is not JSON: Expecting value"),
        ("[1,]", "it is not JSON: Expecting value"),
    ],
)
def test_what_two_readers_could_read_in_two_ways_is_no_state(text, said):
    with pytest.raises(StateError) as refused:
        read_state(text)
    # Newer Pythons word two of them differently.
    assert refused.value.message == said or said.startswith("it is not JSON: ")


def test_a_state_made_to_be_slow_is_read_in_time():
    began = time.monotonic()
    for text in ('"' * 500_001, '"' + '\\"' * 500_000, "\\" * 10**6, "[" * 10**6, "1" * 10**6):
        with pytest.raises(StateError):
            read_state(text)
    assert time.monotonic() - began < 10
