"""Honest cells whose errors nobody catches, or that make the interpreter look for a file itself.

What looks for the file runs in the cell's own frame, where the audit hook ends guests.
"""

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
    "import typing\ntry: typing.ForwardRef('1 +').evaluate()\nexcept SyntaxError: print('so')": "so",
    "import zoneinfo\ntry: zoneinfo.ZoneInfo('No/Where')\nexcept KeyError: print('so')": "so",
    "import time\nprint(time.strptime('2020', '%Y').tm_year)": "2020",
    "'x'.encode('cp037'); b'x'.decode('idna'); print('so')": "so",
    "import warnings\nwarnings.warn('look')": "UserWarning: look",
    "%timeit -n 1 -r 1 1": "per loop",
    "%prun -q 1": "",
}


WRONG = ("x = \n y", "def f(:\n    pass", "f'{'", "'abc", "1 = 2")


def test_each_is_told_and_the_guest_lives(start):
    """Each in a guest that has imported nothing for it yet: %undo goes back to that one."""
    kernel = start("safe")
    kernel.run("kept = 'here'")
    for cell, expected in CELLS.items():
        guest = kernel.sole_guest()
        _, published = kernel.run(cell)
        text = reading.stream(published, "stdout") + reading.stream(published, "stderr")
        assert expected in text, (cell, text)
        assert reading.result(kernel.run("kept", store_history=False)[1]) == "'here'", cell
        assert kernel.guest() == guest, cell
        assert kernel.run("%undo")[0]["status"] == "ok", cell


def test_a_syntax_error_costs_nothing(safe):
    safe.run("kept = 'here'")
    guest = safe.guest()
    for cell in WRONG:
        assert safe.run(cell)[0]["ename"] == "SyntaxError", cell
        assert reading.result(safe.run("kept")[1]) == "'here'", cell
    assert safe.guest() == guest
