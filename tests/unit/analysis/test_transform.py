"""The transformer agrees with IPython's, and leaves Python alone."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from cellblock.analysis import Rules, analyse, analyse_expression, transform
from cellblock.analysis.transform import CHARACTERS, WORDS, check_size, exceeded_limit

KERNEL = Path(__file__).parents[3] / "kernel"


@pytest.mark.parametrize(
    "cell", ["x = 1", "", "def f():\n    return 1\n", "x = 'a'  # %time\n", "a % b"]
)
def test_python_is_left_alone(cell):
    assert transform(cell).source == cell
    assert not transform(cell).changed


@pytest.mark.parametrize(
    ("cell", "source"),
    [
        ("%time x", "get_ipython().run_line_magic('time', 'x')\n"),
        ("%%time\nx\n", "get_ipython().run_cell_magic('time', '', 'x\\n')\n"),
        ("!ls", "get_ipython().system('ls')\n"),
        ("a = !ls", "a = get_ipython().getoutput('ls')\n"),
        ("f?", "get_ipython().run_line_magic('pinfo', 'f')\n"),
        (">>> x = 1\n... y", "x = 1\ny\n"),
        ("In [1]: x = 5\nIn [2]: x", "x = 5\nx\n"),
        ("\nIn [1]: if x:\n   ...:     y", "if x:\n    y\n"),
        ("    x = 1\n    y = 2", "x = 1\ny = 2\n"),
    ],
)
def test_ipython_syntax_becomes_calls(cell, source):
    assert transform(cell).source == source
    assert transform(cell).changed


def test_blank_lines_that_were_dropped_are_counted():
    assert transform("\n\n%time x").line_offset == 2


@pytest.mark.parametrize(
    "cell", ["(" * 100_000, "'''", "x = (\n%time", "\x00", "%%", "!", "\udcff"]
)
def test_it_never_raises(cell):
    transform(cell)


MIXED = """\
import os
def f(x):
    %time x
    if x:
        y = !ls {x}
        return y
    x = [
        1, '%time',
    ]
%matplotlib inline
t = '''
%time
'''
f?
for i in range(3):
    !echo $i
    a = %who
%run \\
  -i x.py
x = 1 + \\
  2
f(
  1,
)
/f 1 2
,g a b
"""


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("start", [0, 1, 6, 9, 13, 14, 17, 21])
def test_it_says_what_ipython_says(start, times):
    cell = "".join((MIXED * times).splitlines(keepends=True)[start:])
    assert transform(cell).source == TransformerManager().transform_cell(cell)


def filled(text, size=900_000):
    return text * (size // len(text))


SLOW = [
    filled("The quick brown fox jumps over the lazy dog.\n"),
    *(filled(f"{line}\n") for line in ["%a", "!b", "c?", "a = !b", ";a", "$", "x:", "(", "'"]),
    filled(">>> x\n"),
    filled(" if x:\n"),
    "%a\n" + filled("a \\\n"),
    "(\n" + filled("%a\n"),
    filled('"'),
    filled("[") + "\n%x",
    "x = 1\n" * 20_000 + "%a\n" * 400,
]


def test_no_text_holds_the_host():
    for cell in SLOW:
        transform("%time x")
        started = time.process_time()
        transform(cell)
        assert time.process_time() - started < 4, cell[:9] + cell[-9:]


def test_of_a_cell_so_much_is_looked_at_and_no_more():
    assert exceeded_limit("x" * CHARACTERS) is None
    assert exceeded_limit("x" * (CHARACTERS + 1)) == (CHARACTERS + 1, CHARACTERS, "characters")
    assert exceeded_limit("x " * WORDS) is None
    assert exceeded_limit("x " * (WORDS + 1)) == (WORDS + 1, WORDS, "words and signs")


@pytest.mark.parametrize("source", ["a;" * WORDS, "x = '" + "a" * CHARACTERS + "'"])
def test_what_is_too_long_is_neither_parsed_nor_transformed_whoever_asks(monkeypatch, source):
    monkeypatch.setattr("ast.parse", lambda *_, **_named: pytest.fail("parsed"))
    assert transform(source).source == source
    rules = Rules(language=True, modules={}, raw_modules=frozenset(), magics=frozenset())
    for found in (analyse(source, rules), analyse_expression(source, rules)):
        assert [one.rule for one in found] == ["source-too-complex"]


def test_ipython_warns_nobody_of_a_lines_end(recwarn):
    transform("%a\u2028%b")
    transform("%a\x1c%b\n!c")
    assert list(recwarn) == []


@pytest.mark.parametrize(
    ("unit", "before", "behind", "honest", "costly"),
    [(".a", "import a", "", 1_000, 8_000), ("{a}", "f'", "'", 1_000, 30_000)],
)
def test_a_shape_that_costs_the_parser_its_square_is_not_parsed(
    unit, before, behind, honest, costly
):
    check_size(f"{before}{unit * honest}{behind}")
    with pytest.raises(ValueError, match="of too many"):
        check_size(f"{before}{unit * costly}{behind}")


def test_honest_cells_are_short_enough():
    cell = "%time x = f(1, [2, 3])\n" * 300 + "y = g('a', b=2)  # why\n" * 1_500
    assert transform(cell).source.count("run_line_magic('time'") == 300
    page = "%%html\n" + "<p class='a'>text</p>\n" * 30_000
    assert transform(page).source.startswith("get_ipython().run_cell_magic('html'")
    data = "%matplotlib inline\nx = '" + "a" * 900_000 + "'\ny = [" + "1, " * 10_000 + "]\n"
    assert "'matplotlib', 'inline'" in transform(data).source


def ran(program, *options):
    """Return what a program prints in a process of its own."""
    program = f"import sys; sys.path.insert(0, sys.argv[1])\n{program}"
    command = [sys.executable, *options, "-c", program, str(KERNEL)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_is_lent_by_ipython_is_given_back():
    program = (
        "from IPython.core import inputtransformer2 as theirs\n"
        "from cellblock.analysis import transform\n"
        "before = theirs.tokenutil\n"
        "transform('$ ' * 100_000)\n"
        "print(theirs.tokenutil is before)"
    )
    assert ran(program) == "True\n"


def test_the_host_does_not_import_ipython_for_it():
    program = (
        "from cellblock.analysis import transform\n"
        "assert transform('%time x').changed\n"
        "print(sorted(n for n in sys.modules if n.startswith('IPython')), 'traitlets' in sys.modules)"
    )
    assert ran(program) == "[] False\n"


def test_analysis_uses_the_standard_library_only():
    program = (
        "import cellblock.analysis\n"
        "top = {n.partition('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(n for n in top if not n.startswith('_')))"
    )
    assert ran(program, "-I", "-S") == "['cellblock']\n"
