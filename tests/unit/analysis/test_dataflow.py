"""Names that a cell binds and reads, and which cells come out the same when they are run again."""

import time

import pytest

from cellblock.analysis import transform
from cellblock.analysis.dataflow import Bindings, RepeatableCells

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
    "def f():\n    import os, a.b as c\n    return os.sep, c, d": ("f", "d"),
    "def f():\n    try: g()\n    except E as e: h(e)": ("f", "E g h"),
    "def f():\n    class C: pass\n    def g(): return C, x\n    return g": ("f", "x"),
}


@pytest.mark.parametrize("source", CASES)
def test_what_a_cell_binds_and_reads(source):
    bound, read = CASES[source]
    found = Bindings(transform(source).source)
    assert (sorted(found.bound), sorted(found.read)) == (bound.split(), read.split())


AGAIN = [
    "",
    "x = 1 / 0",
    "df = pd.read_csv('x.csv').groupby('time').mean()",
    "import time\ntime.sleep(0.1)",
    "from datetime import datetime\nd = datetime(2026, 1, 2)",
    "random.seed(1)\nx = random.random()",
    "time = np.linspace(0, 1)\nplt.plot(time, time)",
    "def timed(f): return f",
]
ONCE = [
    "t = time.time()",
    "t = time ()",
    "from time import time as t\nt0 = t()",
    "import time as clock\nx = clock.time()",
    "day = datetime.now()",
    "day = date.today()",
    "start = time.perf_counter()",
    "x = hash(object())",
    "threading.get_native_id()",
    "threading.main_thread().native_id",
    "key = id(x)",
    "random.seed()",
    "rng = random.Random()",
    "x = time.strftime('%H')",
    "x = 1" + " " * 20_001,
    "if os.path.exists('cache'): x = 1",
]


@pytest.mark.parametrize("source", AGAIN)
def test_what_follows_from_its_variables_comes_out_the_same(source):
    assert RepeatableCells().judge(source)


@pytest.mark.parametrize("source", ONCE, ids=lambda source: source[:40])
def test_what_asks_a_clock_an_address_or_a_new_seed_does_not(source):
    assert not RepeatableCells().judge(source)


@pytest.mark.parametrize(
    ("definition", "use"),
    [
        ("def stamp():\n    return datetime.now()", "x = stamp()"),
        ("stamp = lambda: datetime.now()", "x = stamp()"),
        ("from time import time as t", "x = t()"),
        ("class Timer:\n    def stop(self):\n        return time.time()", "x = watch.stop()"),
    ],
)
def test_a_function_of_an_earlier_cell_that_asks_one_is_remembered(definition, use):
    cells = RepeatableCells()
    assert cells.judge(use)
    assert not cells.judge(definition)
    assert not cells.judge(use)
    assert cells.judge("y = 2")


def test_cells_are_judged_no_more_where_there_are_too_many_such_functions():
    cells = RepeatableCells()
    for first in (0, 600):
        names = range(first, first + 600)
        assert not cells.judge("\n".join(f"def f{n}(): return now()" for n in names))
    assert not cells.judge("x = 1")


@pytest.mark.parametrize(
    "piece", ["a:", "\n", "from ", "def ", "time ", "x", " ", "as ", "a = ", "seed ( ", "a\t"]
)
def test_no_source_costs_the_host_more_than_a_moment(piece):
    source = "now\n" + piece * (20_000 // len(piece) - 4)
    began = time.process_time()
    assert not RepeatableCells().judge(source)
    assert time.process_time() - began < 1
