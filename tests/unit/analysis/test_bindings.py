"""Names that a cell binds, and those that it reads before."""

import pytest

from cellblock.analysis import transform
from cellblock.analysis.bindings import Bindings

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
