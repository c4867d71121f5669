# ruff: noqa: RUF001 - look-alike letters are what is tested
"""Every rule: cells that break it, and neighbours that don't."""

import dataclasses
from pathlib import Path

import pytest

from cellblock.analysis import RULES, allowlist, analyse_expression, attribute_allowed, names
from cellblock.analysis.names import REFUSED_BUILTINS, RESERVED
from unit.analysis.rules_for_tests import DATA, SAFE, findings, rule_ids

DENIED = {
    "argument-not-allowed": [
        "%who {x}",
        "%precision $x",
        "x.__globals__?",
        "get_ipython().run_line_magic('pinfo', 'x[open(1)]')",
        "%prun -D out.prof f()",
        "%timeit -n 3 this is no code",
        "%policy data",
        "%policy narrow timeout=1",
        "x = 1\n%policy narrow timeout=1",
        "%policy # {x}",
        "%config IPCompleter.use_jedi = f()",
        "%config InlineBackend.rc = {}",
        "%config InteractiveShell.ast_node_interactivity = open(1)",
    ],
    "attribute-not-allowed": [
        "f.__globals__",
        "x = f.__code__",
        "del f.__code__",
        "f.__code__ = g",
        "f'{f.__globals__}'",
        "f'{1:{f.__globals__}}'",
        "def f(x=g.__globals__): pass",
        "def f(x: g.__globals__): pass",
        "def f() -> g.__globals__: pass",
        "x: g.__globals__",
        "class C(g.__globals__): pass",
        "class C(metaclass=g.__globals__): pass",
        "@g.__globals__\ndef f(): pass",
        "@g.__globals__\nclass C: pass",
        "lambda x=g.__globals__: 1",
        "[g.__globals__ for x in y]",
        "[x for x in g.__globals__]",
        "[x for x in y if g.__globals__]",
        "{g.__globals__: 1}",
        "{**g.__globals__}",
        "f(*g.__globals__)",
        "f(**g.__globals__)",
        "x[g.__globals__:]",
        "(x := g.__globals__)",
        "with g.__globals__ as x: pass",
        "async def f():\n    async with g.__globals__: pass",
        "for x in g.__globals__: pass",
        "for g.__globals__ in x: pass",
        "try: pass\nexcept g.__globals__: pass",
        "try: pass\nexcept* g.__globals__: pass",
        "raise g.__globals__ from h",
        "assert x, g.__globals__",
        "match x:\n    case g.__globals__: pass",
        "match x:\n    case C(__globals__=y): pass",
        "match x:\n    case {'a': C(__globals__=y)}: pass",
        "match x:\n    case [1, C(gi_frame=y)] | None: pass",
        "match x:\n    case _ if g.__globals__: pass",
        "await g.__globals__",
        "def f():\n    yield g.__globals__",
        "def f():\n    yield from g.__globals__",
        "g.__globals__ += 1",
        "not -g.__globals__",
        "1 < g.__globals__ < 2",
        "a if g.__globals__ else b",
        "a and g.__globals__",
        "len.__self__.__subclasses__",
        "().__class__.__base__.__subclasses__()",
        "x.gi_frame",
        "x.cr_frame",
        "x.ag_frame",
        "x.tb_frame",
        "x.f_back",
        "x.__reduce_ex__(2)",
        "x.__builtins__",
        "x.__loader__",
        "x.__spec__",
        "x.__future_dunder__",
        "x.get_stack()",
        "E._convert_('a')",
        "x._＿globals__",
        "x.__𝓰lobals__",
    ],
    "builtin-not-allowed": [
        "open('a')",
        "eval('1')",
        "@exec\nclass C: pass",
        "compile('1', '', 'eval')",
        "breakpoint()",
        "x = __import__",
        "map(__import__, ['os'])",
        "globals()",
        "locals()",
        "exit()",
        "quit",
        "𝘰𝘱𝘦𝘯('a')",
        "def f():\n    global exit\n    return exit",
    ],
    "import-not-allowed": [
        "import gc",
        "import os.extra",
        "import gc as math",
        "import math, gc",
        "from gc import collect",
        "from gc import *",
        "import ｇｃ",
        "def f():\n    import socket",
        "import numpy",
        "import json.tool",
        "import concurrent.futures.process",
        "import getpass",
        "import threading",
        "import IPython.core.magic",
    ],
    "magic-not-allowed": [
        "%env",
        "%%writefile a.py\nx",
        "%run a.py",
        "%load_ext sql",
        "%reset -f",
        "%autoreload 1; x",
        "%%javascript\nalert(1)",
        "%cd /",
        "x = %env HOME",
    ],
    "module-name-not-allowed": [
        "from random import _os",
        "from os import environ",
        "import sys\nsys.settrace(f)",
        "from zipfile import Path",
        "from io import open",
        "from io import FileIO",
        "import io\nio.open('a')",
        "import asyncio\nasyncio.create_subprocess_shell('ls')",
        "from concurrent import interpreters",
        "from types import FunctionType",
        "from __future__ import barry_as_FLUFL",
        "import pathlib as p\np.Path('a')",
        "from IPython import get_ipython",
    ],
    "name-not-allowed": [
        "__builtins__",
        "__builtins__ = {}",
        "del __builtins__",
        "def f(__builtins__): pass",
        "lambda *__builtins__: 1",
        "def __builtins__(): pass",
        "class __builtins__: pass",
        "import math as __builtins__",
        "from math import pi as __builtins__",
        "for __builtins__ in x: pass",
        "(__builtins__ := 1)",
        "try: pass\nexcept E as __builtins__: pass",
        "with x as __builtins__: pass",
        "def f():\n    global __builtins__",
        "match x:\n    case __builtins__: pass",
        "match x:\n    case [*__builtins__]: pass",
        "match x:\n    case {**__builtins__}: pass",
        "__loader__",
        "__spec__",
        "__build_class__",
        "__builtin__",
        "__import__ = f",
        "%%capture __builtins__\n1",
    ],
    "relative-import": ["from . import x", "from .a import b", "from ... import c"],
    "shell-escape": ["!ls", "!!ls", "x = !ls", "with a:\n    !ls", "%sx ls", "%%bash\nls"],
    "shell-object": [
        "get_ipython()",
        "ip = get_ipython",
        "get_ipython().run_cell('x')",
        "get_ipython().run_line_magic(name, 'x')",
        "get_ipython().run_line_magic('time', x)",
        "get_ipython().system(x)",
        "get_ipython().run_line_magic('time', 'x', _stack_depth=2)",
        "get_ipython().input_transformers_post.append(f)",
    ],
    "source-too-complex": ["-" * 100_000 + "1", "x" + "+x" * 150_000, "x" + ".real" * 20_000],
}

ALLOWED = [
    "",
    "# nothing",
    "import math, json, collections.abc, urllib.parse, concurrent.futures",
    "from collections import abc\nfrom urllib import parse\nfrom concurrent import futures",
    "from math import *",
    "import os, sys, os.path as p\nfrom os.path import *\n'google.colab' in sys.modules, os.sep",
    "help(x), vars(x)",
    "%load_ext autoreload\n%autoreload 2",
    "%config InlineBackend.figure_formats = {'png', 'retina'}  # sharp",
    "if a:\n    !ls\nelse:\n    %cd x\ndef f():\n    x = !ls\ntry: pass\nexcept E:\n    %pip install x",
    "from __future__ import annotations",
    "import json\njson.decoder.JSONDecodeError",
    "from IPython.display import HTML, display",
    "import string\nstring = 'a'\nstring.anything",
    "def f(io): return io.open",
    "self._private.__dict__.update(a=1)",
    "super().__init__()\nsuper().__new__(cls)\nobject.__setattr__(self, 'a', 1)",
    "type(x).__name__, x.__class__.__name__, f.__doc__, f.__wrapped__, f.__defaults__",
    "e.__traceback__.tb_lineno, e.__cause__, e.__notes__, C.__mro__, C.mro()",
    "c.__closure__[0].cell_contents, c.m.__self__, c.m.__func__",
    "class C:\n    __slots__ = ('a',)\n    __match_args__ = ('a',)\n    def __reduce__(self): ...",
    "class C:\n    def __getattribute__(self, n): ...\n    def __subclasses__(self): ...",
    "vars = {}\nvars['a']",
    "def f(help, exit=1): return help, exit",
    "for locals in x: print(locals)",
    "d.open(), d.eval(), d.exec, re.compile('a')",
    "dict(open=1, __builtins__=2)",
    "match x:\n    case C(name=n, _y=1): pass\n    case [a, *b] | {'k': v, **kw}: pass",
    "%time x = 1\n%timeit -n1 -r 3 -o f(1)\n%who\nf?\nf.x??\n%matplotlib inline\n%xmode Plain",
    "%%time\nx = {1: 2}",
    "%%timeit -n 5\nx = 1",
    "%%capture out\nprint(1)",
    "%prun -s cumulative f(1)",
    "x = %timeit -o f()",
    "%%html\n<b>{x} $y</b>",
    "input('x'), getattr(x, 'y'), setattr(x, 'y', 1), print(*a, sep='')",
    "this is not Python",
    "x = 1 +",
    "async def f():\n    async for x in y:\n        await z\n    return [a async for a in b]",
    "__name__, __doc__, __annotations__, __file_name, __x__",
]


def test_charts_are_inline_without_the_magic_that_says_so():
    without = dataclasses.replace(SAFE, magics=frozenset())
    assert rule_ids("%matplotlib inline  # as ever", without) == []
    assert rule_ids("%matplotlib qt", without) == ["magic-not-allowed"]


def test_cell_breaks_the_rule():
    for rule, cell in [(r, c) for r, cells in DENIED.items() for c in cells]:
        assert set(rule_ids(cell)) == {rule}, (rule, cell)


def test_cell_is_allowed():
    for cell in ALLOWED:
        assert findings(cell) == (), cell


def test_every_rule_has_a_cell_here_but_those_that_no_source_breaks():
    # test_nodes.py, guards, test_admission.py, test_templates.py, host/test_narrowing.py
    elsewhere = {
        "cell-not-approved",
        "narrowing-not-kept",
        "node-not-allowed",
        "not-a-template",
        "operation-not-allowed",
        "policy-only-narrows",
        "template-definitions",
        "template-not-found",
        "template-state",
    }
    assert set(DENIED) | elsewhere == set(RULES)


@pytest.mark.parametrize("cells", DENIED.values())
def test_every_finding_says_why_and_what_instead(cells):
    for cell in cells:
        for finding in findings(cell):
            assert finding.why
            assert not finding.why.endswith(".")
            assert finding.remedy.endswith(".") or (finding.allows and not finding.remedy)
            assert finding.excerpt == "" or len(finding.excerpt) <= 200
            assert len(finding.subject) <= 100


def test_raw_modules_and_the_layer_are_the_operators_choice():
    cell = "import numpy as np, pandas.io.common\nfrom numpy import *\nnp.ctypeslib"
    assert rule_ids(cell, DATA) == []
    assert set(rule_ids(cell)) == {"import-not-allowed"}
    assert rule_ids("import numpyx", DATA) == ["import-not-allowed"]

    off = type(SAFE)(False, {}, frozenset(), frozenset())
    assert findings("import gc\n!ls", off) == ()


def test_user_expressions_are_code_too():
    for expression in ("__import__('os')", " open('x')", "\topen('x')", "a.gi_frame"):
        assert analyse_expression(expression, SAFE), expression
    for harmless in ("1 + 1", " len(x)", "import gc", "x = 1"):  # or no expressions
        assert analyse_expression(harmless, SAFE) == (), harmless


def test_tables_are_sorted_so_that_a_diff_is_a_review_and_say_why():
    modules = [entry.module for entry in allowlist.ALLOWLIST]
    assert modules == sorted(modules)
    assert list(RULES) == sorted(RULES)
    assert list(REFUSED_BUILTINS) == sorted(REFUSED_BUILTINS)
    assert list(RESERVED) == sorted(RESERVED)
    assert list(allowlist.SCIENCE) == sorted(allowlist.SCIENCE)

    for entry in allowlist.ALLOWLIST:
        assert entry.kind.partition(":")[0] in ("pure", "ambient", "restricted")
        assert entry.rationale


def test_computed_names_follow_the_rule_of_literal_ones_and_no_allowed_dunder_is_refused():
    assert not [n for n in names.ALLOWED_DUNDERS if names.why_refused(n)]

    assert all(map(attribute_allowed, ("real", "_private", "__class__")))
    assert not any(map(attribute_allowed, ("__globals__", "gi_frame", "__unheard_of__")))


def test_every_rule_is_documented():
    page = (Path(__file__).parents[3] / "docs/rules.md").read_text(encoding="utf-8")
    headings = {line[3:].strip() for line in page.splitlines() if line.startswith("## ")}
    assert set(RULES) <= headings


def test_code_in_a_magic_is_judged_as_ipython_reads_it():
    hidden = 'In [1]: 0\nx = f"""{\nIn [2]: open}"""\n'
    assert rule_ids(f"get_ipython().run_cell_magic('capture', '', {hidden!r})") == [
        "builtin-not-allowed"
    ]
    body = '0\n0\n0\nx = f"""{\nIn [2]: open}"""'
    assert rule_ids(f"%%prun -q In [1]: 0\n{body}") == ["builtin-not-allowed"]


def test_code_in_a_magic_that_takes_too_long_to_read_is_refused():
    many = "%precision 3\n" * 250 + "open\n"
    long = "%precision 3\nopen\n#" + "x" * 1_000_001
    for body in (many, long):
        found = rule_ids(f"get_ipython().run_cell_magic('capture', '', {body!r})")
        assert found == ["source-too-complex"]


def within_magics(cell, depth):
    for _ in range(depth):
        cell = f"%%capture\n{cell}"
    return cell


def test_magics_within_magics_are_read_to_a_depth_and_refused_beyond():
    assert rule_ids(within_magics("1", 5)) == []  # positive control
    assert rule_ids(within_magics("open", 5)) == ["builtin-not-allowed"]
    assert rule_ids(within_magics("1", 6)) == ["source-too-complex"]
