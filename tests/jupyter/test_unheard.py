"""Honest cells whose errors nobody catches, or that make the interpreter look for a file itself.

What looks for the file runs in the cell's own frame, where the audit hook ends guests.
"""

import pytest

from support import reading

CELLS = {
    "class A:\n    def __del__(self): 1/0\na = A()\ndel a": "ZeroDivisionError: division by zero",
    "import weakref\nclass B: pass\nb = B()\nr = weakref.ref(b, lambda r: 1/0)\ndel b": "in <lambda>",
    "def g():\n    try: yield\n    finally: 1/0\nx = g(); next(x); del x": "ZeroDivisionError",
    "async def f(): pass\nf()\nNone": "was never awaited",
    "import logging\nlogging.error('%d items', 'three')": "Logging error",
    "from concurrent.futures import ThreadPoolExecutor\nex = ThreadPoolExecutor(1)\n"
    "ex.submit(int).result()\nt = type(list(ex._threads)[0])(target=lambda: 1/0)\n"
    "t.start(); t.join()": "Exception in thread",
    "import ast\ntry: ast.literal_eval('1 +')\nexcept SyntaxError: print('so')": "so",
    "import typing\ntry: typing.ForwardRef('1 +')\nexcept SyntaxError: print('so')": "so",
    "import zoneinfo\ntry: zoneinfo.ZoneInfo('No/Where')\nexcept KeyError: print('so')": "so",
    "import time\nprint(time.strptime('2020', '%Y').tm_year)": "2020",
    "'x'.encode('cp037'); b'x'.decode('idna'); print('so')": "so",
    "import warnings\nwarnings.warn('look')": "UserWarning: look",
    "%timeit -n 1 -r 1 1": "per loop",
    "%prun -q 1": "",
}


@pytest.mark.parametrize("cell", CELLS)
def test_it_is_told_and_the_guest_lives(start, cell):
    kernel = start("safe")
    kernel.run("kept = 'here'")
    _, messages = kernel.run(cell)
    text = reading.stream(messages, "stdout") + reading.stream(messages, "stderr")
    assert CELLS[cell] in text
    _, messages = kernel.run("print(kept)")
    assert reading.stream(messages, "stdout") == "here\n"


@pytest.mark.parametrize("cell", ["x = \n y", "def f(:\n    pass", "f'{'", "'abc", "1 = 2"])
def test_a_syntax_error_costs_nothing(start, cell):
    kernel = start("safe")
    kernel.run("kept = 'here'")
    reply, _ = kernel.run(cell)
    assert reply["ename"] == "SyntaxError"
    _, messages = kernel.run("print(kept)")
    assert reading.stream(messages, "stdout") == "here\n"
