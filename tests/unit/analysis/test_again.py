"""What may be run a second time instead of being kept."""

import pytest

from cellblock.analysis.again import can_run_again

AGAIN = [
    "x = 1",
    "x += y[0]",
    "a, *b = [1, 2], 3",
    "import math",
    "from math import pi as p",
    "def f(a, b=2):\n    return open(random())",
    "class A:\n    x = 1\n    def f(self): return time.time()",
    "key = lambda x: now()",
    "x if y else z",
    "print(len(x), f'{x:>{width}}')",
    "del x",
    "if x > 1:\n    y = 2",
    "",
]
ONCE = [
    "x = random()",
    "x.append(1)",
    "import random\nx = random.random()",
    "for i in range(9): pass",
    "while x: x -= 1",
    "with a: pass",
    "await x",
    "def f(a=now()): pass",
    "@register\ndef f(): pass\nregister(f)",
    "def f(*, a=now()): pass",
    "x = [f(y) for y in z]",
    "x = (yield)",
    "input()",
    "try:\n    x\nexcept E: pass",
    "raise x",
    "assert x",
    "x = y(1)(2)",
    "x = 1 if now() else 2",
    "class A(make()): pass",
    "match x:\n    case 1: pass",
    "x = " + "1 + " * 600 + "1",
    "x = (",
]


@pytest.mark.parametrize("source", AGAIN)
def test_what_follows_from_the_variables_alone_comes_out_the_same(source):
    assert can_run_again(source)


@pytest.mark.parametrize("source", ONCE)
def test_what_may_come_out_otherwise_is_kept(source):
    assert not can_run_again(source)
