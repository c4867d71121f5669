"""Source that costs its reader more than other source does (P14): the host reads each in its bounds.

Each shape is as long as is looked at. Parts of an import took the parser 22 GB, and fields 9 s.
"""

import os
import re
import resource
from pathlib import Path

import pytest

from cellblock.analysis import analyse, transform
from cellblock.analysis.transform import CHARACTERS, WORDS, check_size
from cellblock.policy.load import load_for_check

RULES = load_for_check("safe").rules()
SECONDS, MEMORY = 20, 1 << 30
#: A name: what is repeated, and what is before and behind it.
SHAPES = {
    "parts of an import": (".a", "import a", ""),
    "parts on lines of their own": ("\\\n.\\\na", "import a", ""),
    "parts that are not of ASCII": (".a·", "from a·", " import b"),
    "parts in a magic's body": (".a", "%%time\nimport a", ""),
    "fields of an f-string": ("{a}", "f'", "'"),
    "fields on lines": ("{a}\n", "f'''", "'''"),
    "fields with formats": ("{a:{b}}", "rf'", "'"),
    "fields behind quotes that end nothing": (r"{a}\'", "f'", "'"),
    "statements": ("a\n", "", ""),
    "lines that are indented": ("\ta\n", "if a:\n", ""),
    "no end of a text": ("a\n", "", "'''"),
    "an error at the end": ("a,\n", "(", "a b)"),
    "findings": ("import os\n", "", ""),
    "findings of one line": ("import os;", "", ""),
    "calls of magics": ("get_ipython().run_line_magic('time', 'a')\n", "", ""),
    "magics": ("%time a\n", "", ""),
    "shell escapes": ("!ls {a}\n", "", ""),
    "magics within magics": ("%time ", "", "a"),
    "handlers": ("except a:\n b\n", "try:\n b\n", ""),
    "a name": ("a", "", ""),
    "a number": ("9", "", ""),
    "operators": ("-", "", "1"),
    "brackets": ("(", "", ""),
    "blanks before a sign": (f"a{' ' * 1_500}?\n", "", ""),
    "blanks before signs": (" ?", "a", ""),
    "a word before a denied name": ("a", "x = '", "'; x.__globals__"),
    "denied names on one line": ("x.__globals__;", "", ""),
}
#: Ordinary source that has something of the shapes above.
ORDINARY = {
    "imports": "import os.path\n" * 10_000,
    "attributes": "a = b.c.d.e.f()\n" * 10_000,
    "data": "x = {" + "'a': {'b': 1},\n" * 20_000 + "}",
    "a text of many dots": "v = '" + "1." * 4_000 + "'",
    "a template": "f'''" + "<td class='a'>{cell}</td>\n" * 2_000 + "'''",
    "many f-strings": "x = f'{a} {b:>{c}}'\n" * 20_000,
}


def longest(unit, before, behind):
    """Return as much of a shape as is looked at."""
    words = len(re.findall(r"\w+|[^\w\s]", f"{unit} "))
    room = CHARACTERS - len(before) - len(behind), WORDS - 20
    return f"{before}{unit * min(room[0] // len(unit), room[1] // words)}{behind}"


@pytest.mark.timeout(200)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_longest_of_each_shape_is_read_within_bounds(shape):
    source = longest(*SHAPES[shape])
    pid = os.fork()
    if not pid:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
            analyse(transform(source).source, RULES)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_source_is_read(name):
    check_size(ORDINARY[name])


@pytest.mark.parametrize("name", [name for name in SHAPES if name.startswith(("parts", "fields"))])
def test_what_would_cost_the_square_is_refused(name):
    source = longest(*SHAPES[name])
    found = analyse(transform(source).source, RULES)
    assert [finding.rule for finding in found] == ["source-too-complex"]
