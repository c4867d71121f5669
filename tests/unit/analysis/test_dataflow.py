"""Names that a cell binds and reads, and what may be run a second time instead of being kept."""

import warnings

import pytest

from cellblock.analysis import transform
from cellblock.analysis.dataflow import Bindings, can_run_again

CASES = {
    "x = 1": ("x", ""),
    "x = x + 1": ("x", "x"),
    "x += 1": ("x", "x"),
    "y = x; z = y": ("y z", "x"),
    "import a.b, c as d; from e import f, g as h": ("a d f h", ""),
    "for i in range(n):\n    t = i": ("i t", "n range"),
    "with open(p) as f, g() as (a, b): pass": ("a b f", "g open p"),
    "def f(a, b=d):\n    c = a + e\n    return c": ("f", "d e"),
    "class C(B):\n    x = 1": ("C", "B"),
    "[q for q in xs if q]": ("", "xs"),
    "if (n := len(s)): pass": ("n", "len s"),
    "match v:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass": ("a b c d", "v"),
    "%%time\nx = y": ("x", "y"),
    "df.plot(); df['a'] = 1": ("", "df"),
    "not python (": ("", ""),
    "from m import *": ("", ""),
}


@pytest.mark.parametrize("source", CASES)
def test_what_a_cell_binds_and_reads(source):
    bound, read = CASES[source]
    found = Bindings(transform(source).source)
    assert (sorted(found.bound), sorted(found.read)) == (bound.split(), read.split())


AGAIN = [
    "x = 1",
    "x = 1\nx += 2\ny = x * (x - 1) % 7 // 2",
    "x = y",
    "rows = [x, (y, z)]",
    "x = y is None",
    "import math",
    "import collections.abc as c",
    "from math import pi as p",
    "def f(a, b=2, *c: int, d=x, **e) -> str:\n    return open(random())",
    "async def f(a: 'int | None' = None):\n    await g()",
    "width = 7\nf'{1:>{width}} {2!r}'",
    "'abc'[1:2] * 3",
    "{'a': [1, *(2, 3)], **{'b': {4}}}",
    "x = 1 / 0",
    "",
]
#: Each may run something of the cells' own, or depends on what is no variable.
ONCE = {
    "what is not looked into: taking apart": "a, b = 1, 2",
    "what is not looked into: a class": "class A: pass",
    "what is not looked into: a branch": "if 1: pass",
    "a call": "x = random()",
    "a builtin that an earlier cell may have bound": "x = len([1])",
    "a key that is a lambda": "x = max([2, 1], key=lambda _: now())",
    "a clock": "import time\nt = time.time()",
    "a module that is not known": "import mine",
    "whatever a module has": "from math import *",
    "a neighbour": "from . import mine",
    "a loop": "for i in [1]: pass",
    "a loop over what was half used": "x = [*it]",
    "a while": "while x: x -= 1",
    "a with": "with a: pass",
    "an await": "await x",
    "a default": "def f(a=now()): pass",
    "a default by keyword": "def f(*, a=now()): pass",
    "a default of an inner kind": "f = lambda a=now(): 1",
    "an annotation that is called": "def f(a: now()): pass",
    "an annotation that subscribes": "def f(a: Kind[1]): pass",
    "an annotation of what comes back": "def f() -> Kind[now()]: pass",
    "an annotation of a variable": "x: now() = 1",
    "a decorator": "@register\ndef f(): pass",
    "a decorator of a class": "@register\nclass A: pass",
    "a decorator of a method": "class A:\n    @property\n    def f(self): pass",
    "a metaclass": "class A(metaclass=M): pass",
    "a class keyword": "class A(tag=1): pass",
    "a base": "class A(Base): pass",
    "a base that is called": "class A(make()): pass",
    "a base by subscription": "class A(Base[int]): pass",
    "a value that is told its name": "class A:\n    x = descriptor",
    "a value that is told its name, unpacked": "class A:\n    x, y = 1, descriptor",
    "a class with a call": "class A:\n    now()",
    "a comprehension": "x = [y for y in z]",
    "a generator": "x = (y for y in z)",
    "a yield": "x = (yield)",
    "a walrus": "(x := f)",
    "a try": "try:\n    x\nexcept E: pass",
    "a raise": "raise x",
    "an assertion": "assert x",
    "a match": "match x:\n    case 1: pass",
    "a format": "f'{x}'",
    "a format by its width": "f'{1:{x}}'",
    "an operator": "x = y + 1",
    "an operator from the right": "x = 1 + y",
    "a sign": "x = -y",
    "a formatted text": "x = '%s' % y",
    "a comparison": "x = 1 == y",
    "a comparison in a chain": "x = y is 1 < z",
    "a membership": "x = 1 in y",
    "a hash": "x = {y}",
    "a hash of a key": "x = {y: 1}",
    "a hash of what is within": "x = {(1, y): 1}",
    "a mapping that is unpacked": "x = {**y}",
    "a truth": "x = y and 1",
    "a truth that is negated": "x = not y",
    "a truth that decides": "x = 1 if y else 2",
    "a truth in a branch": "if x: y = 2",
    "what is shown": "x",
    "what is shown in a list": "[1, x]",
    "an item": "x = y[0]",
    "an item by what is not known": "x = [1][y]",
    "a slice by what is not known": "x = [1][:y]",
    "an item that is set": "x[0] = 1",
    "an item that is removed": "del x[0]",
    "an attribute": "x = y.z",
    "an attribute that is set": "x.y = 1",
    "an attribute that is removed": "del x.y",
    "an attribute that is added to": "x.y += 1",
    "an attribute in a target": "a, x.y = 1, 2",
    "what is taken apart": "a, b = x",
    "what is taken apart within": "(a, b), c = x, 1",
    "what is added to": "x += 1",
    "what is added to one that is known": "x = []\nx += y",
    "what was known": "x = 1\nx = y\nx + 1",
    "what was known until it was removed": "x = 1\ndel x\nx + 1",
    "what is known on one way only": "if 1:\n    x = 1\nelse:\n    x = y\nx + 1",
    "what was known until a function took its name": "x = 1\ndef x(): pass\nx + 1",
    "what was known until a class took its name": "x = 1\nclass x: pass\nx + 1",
    "what was known until a module took its name": "x = 1\nimport math as x\nx + 1",
    "what a class only knows": "class A:\n    x = 1\nx + 1",
    "a name of elsewhere": "def f():\n    pass\nglobal x",
    "a magic": "get_ipython().run_line_magic('time', '')",
    "too much of it": "x = " + "1 + " * 600 + "1",
    "too deep": "x = " + "-" * 1_900 + "1",
    "no Python": "x = (",
    "no text": "x = '\ud800'",
}


def test_only_what_follows_from_the_cell_alone_is_run_again():
    for source in AGAIN:
        assert can_run_again(source), source

    for kind, source in ONCE.items():
        assert not can_run_again(source), kind


def test_looking_at_a_cell_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert can_run_again("x = '\\d'\ny = 1 is 1")
