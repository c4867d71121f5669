"""A name that the cell binds is not the builtin: by Python's own scopes."""

import ast

import pytest

from cellblock.analysis import analyse, bound_builtins
from cellblock.analysis.names import BINDABLE_BUILTINS
from unit.analysis.rules_for_tests import SAFE

OWN = [
    "def eval(x, env): return env\neval(1, 2)",
    "def eval(x):\n    return eval(x - 1) if x else 0\neval(3)",
    "def apply(x): return eval(x)\ndef eval(x): return apply(x)",
    "def f(compile): return compile(1)",
    "f = lambda exec, *open, **eval: (exec, open, eval)",
    "async def f(*, open): return await open()",
    "for open, high, low, close in rows: print(open, close)",
    "for open in rows: pass\nprint(open)",
    "[print(open) for open in rows]",
    "{open: eval for open, eval in rows if open}",
    "(open for open in rows)",
    "class Candle:\n    open: float\n    close: float",
    "class Vm:\n    def exec(self): return 1\n    run = exec",
    "class A:\n    open = 1\n    b = open",
    "def f():\n    open = 1\n    def g(): return open\n    return g",
    "def f():\n    open = 1\n    class A:\n        b = open",
    "def f(open):\n    def g():\n        nonlocal open\n        open = 1\n        return open",
    "def f():\n    global open\n    open = 1\n    return open",
    "def f():\n    global open\n    open = 1\nf()\nprint(open)",
    "with a as open: open.read()",
    "import math as open\nprint(open)",
    "from json import loads as open\nopen('1')",
    "try:\n    open = 1\nexcept E:\n    open = 2\nopen",
    "try:\n    open = 1\nexcept E:\n    raise\nopen",
    "try: pass\nexcept E as open: print(open)",
    "if x:\n    open = 1\nelse:\n    open = 2\nopen",
    "if x:\n    open = 1\n    print(open)",
    "if (open := f()): print(open)",
    "[open := 1, open]",
    "match x:\n    case [open, *eval]: print(open, eval)\n    case {'a': exec, **compile}: exec, compile",
    "match x:\n    case 1: open = 1\n    case _: open = 2\nopen",
    "exit = False\nwhile not exit: exit = True\nprint(exit)",
    "license = 'MIT'\nprint(license)",
    "(open, x) = 1, 2\nopen[0] = x\ndel x",
    "open = 1\nopen += 1\nprint(open)",
    "open: int = 1\nprint(open)",
    "def f(open, x=1): return [open for _ in open if open]",
]
#: Whether it is the builtin, running the cell decides; the guard of that name stands there.
PERHAPS = [
    "print(open)\nopen = 1",
    "if x: open = 1\nopen('f')",
    "if x:\n    open = 1\nelif y:\n    open = 2\nopen('f')",
    "open = 1\ndel open\nopen('f')",
    "open = 1\nif x: del open\nopen('f')",
    "open = open",
    "open: int\nopen('f')",
    "with open('f') as open: pass",
    "for open in open('f'): pass",
    "try:\n    x()\n    open = 1\nexcept E: pass\nopen('f')",
    "try: pass\nexcept E as open: pass\nopen('f')",
    "x or (open := 1)\nopen('f')",
    "(open := 1) if x else 2\nopen('f')",
    "match x:\n    case 1: open = 1\nopen('f')",
    "@exec\ndef exec(): pass",
    "class A:\n    open('f')\n    open = 1",
]
BUILTIN = [
    "def f(open): pass\nopen('f')",
    "def f(x=open('f')): open = 1",
    "def f(open: open): pass",
    "class A(open):\n    open = 1",
    "class A:\n    open = 1\n    def f(self): return open('f')",
    "class A:\n    open = 1\nopen('f')",
    "class A:\n    open = 1\n    b = [open for x in y]",
    "[open for open in rows]\nopen('f')",
    "[open for x in open('f')]",
    "[x for x in y if open(x)]",
    "lambda open: 1\nopen('f')",
    "def f():\n    open = 1\ndef g(): return open('f')",
    "def f(open):\n    def g():\n        global open\n        return open('f')",
    "def f():\n    global exit\n    return exit",
    "def f():\n    class A:\n        open = 1\n        def g(self): return open('f')",
]


@pytest.mark.parametrize("cell", OWN + PERHAPS)
def test_what_the_cell_binds_where_the_read_sees_it_is_its_own(cell):
    compile(cell, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert analyse(cell, SAFE) == ()


@pytest.mark.parametrize("cell", BUILTIN)
def test_what_no_scope_in_sight_binds_is_refused(cell):
    compile(cell, "<cell>", "exec")
    found = {finding.rule for finding in analyse(cell, SAFE)}
    assert found == {"builtin-not-allowed"}


def test_what_an_earlier_cell_bound_is_the_cells_own():
    later = SAFE.with_own({"eval"})
    assert analyse("eval(1)", later) == ()
    assert analyse("get_ipython().run_line_magic('time', 'eval(1)')", later) == ()
    assert analyse("def f(): return eval(1)", later) == ()
    assert analyse("exec(1)", later)


def test_what_a_cell_leaves_bound_for_later_ones():
    assert bound_builtins("def eval(x): open = 1\nif x: exec = 1") == {"eval", "exec"}
    assert bound_builtins("def f():\n    global quit\n    quit = 1") == {"quit"}
    assert bound_builtins("get_ipython().run_cell_magic('time', '', 'exit = 1')") == {"exit"}
    assert bound_builtins("open(") == set()
    assert "__import__" not in BINDABLE_BUILTINS


def test_an_expression_of_many_parts_is_refused_without_an_error():
    cell = "open = 1\nx = " + " + ".join(["1"] * 3_000) + " + open"
    assert len(analyse(cell, SAFE)) <= 1
