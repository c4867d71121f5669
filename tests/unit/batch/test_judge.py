"""A file's findings are the kernel's, at the places where people wrote what is found."""

import json
from pathlib import Path

import pytest

from cellblock.analysis import analyse, transform
from cellblock.batch.files import CellLines
from cellblock.batch.judge import judge, judge_source
from cellblock.batch.verdict import MAX_FINDINGS, FileKind
from cellblock.policy.load import load_for_check
from support.check_judge import context
from support.notebooks import notebook

SAFE = load_for_check("safe").rules()
FILE = Path("/nb/a.ipynb")


def found(text, kind=FileKind.notebook, *, template=False):
    content = text if isinstance(text, bytes) else text.encode()
    return judge(content, kind, context(template=template), FILE).findings


def places(text, kind=FileKind.notebook):
    return [(f.cell, f.finding.line, f.file_line, f.finding.rule) for f in found(text, kind)]


def marked(raw):
    return [(f.line, f.excerpt[f.column : f.end_column], f.rule) for f in judge_source(raw, SAFE)]


def test_findings_are_told_by_cell_line_and_line_of_the_file():
    text = notebook(("markdown", "import gc"), "x = 1\nimport gc\n", ("raw", "!ls"), "\n\nopen(x)")
    lines = text.splitlines()
    expected = [(2, 2, "import-not-allowed"), (4, 3, "builtin-not-allowed")]
    assert [(cell, line, rule) for cell, line, _, rule in places(text)] == expected
    assert [lines[at - 1].strip() for _, _, at, _ in places(text)] == [
        '"import gc\\n"',
        '"open(x)"',
    ]


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
def test_lines_are_found_however_the_json_is_written(indent):
    text = json.dumps(json.loads(notebook("a\nimport gc", "b\nopen(x)")), indent=indent)
    for cell, line, at, _ in places(text):
        assert text.splitlines()[at - 1].count("import gc" if cell == 1 else "open(x)") == 1
        assert line == 2


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("a\nb\nc", [2, 2, 2, 2]),
        (["a\n", "b\n", "c"], [2, 3, 4, 4]),
        (["a\nb\n", "c"], [2, 2, 3, 3]),
        (["a", "\nb\r", "\nc"], [2, 3, 4, 4]),
        ([], [0, 0]),
        ("", [2, 2]),
        ([""], [2, 2]),
    ],
)
def test_a_source_is_placed_by_its_strings(source, lines):
    listed = json.dumps({"source": source}, separators=(",", ":")).replace(',"', ',\n"')
    text = f'{{"metadata": {{"cells": [1, {{}}]}},\n"cells": [{listed}, {{}}]}}'
    made = CellLines(text)
    assert [made.file_line(1, line) for line in range(1, len(lines) + 1)] == lines
    assert (made.file_line(2, 1), made.file_line(3, 1), made.file_line(0, 1)) == (0, 0, 0)


def test_a_script_is_one_cell_whose_lines_are_the_files():
    script = "import math\n\nimport gc\n"
    assert places(script, FileKind.script) == [(0, 3, 3, "import-not-allowed")]


@pytest.mark.parametrize(
    ("raw", "expected"),
    {
        "\n\n  \nimport gc": [(4, "gc", "import-not-allowed")],
        "\n\n!ls": [(3, "!ls", "shell-escape")],
        "x = 1\n  \n!ls -l \nopen": [
            (3, "!ls -l", "shell-escape"),
            (4, "open", "builtin-not-allowed"),
        ],
        "x = !ls": [(1, "x = !ls", "shell-escape")],
        "!a \\\n  b \\\n  c\nopen\n!d": [
            (1, "!a \\", "shell-escape"),
            (4, "open", "builtin-not-allowed"),
            (5, "!d", "shell-escape"),
        ],
        "x = 1 + \\\n  2\n!ls\nopen": [
            (3, "!ls", "shell-escape"),
            (4, "open", "builtin-not-allowed"),
        ],
        "%%time\n\nx\nimport gc\n": [(4, "gc", "import-not-allowed")],
        "\n%%time\nx\nimport gc\n": [(4, "gc", "import-not-allowed")],
        "%%time\n%%capture\nopen": [(3, "open", "builtin-not-allowed")],
        "%%bash\nls\nrm": [(1, "%%bash", "shell-escape")],
        "%time open": [(1, "%time open", "builtin-not-allowed")],
        "  x = 1\n  open": [(2, "open", "builtin-not-allowed")],
        ">>> x = 1\n>>> open": [(2, ">>> open", "builtin-not-allowed")],
        "with x:\n\t!ls": [(2, "!ls", "shell-escape")],
        "?x\nx\r\nimport gc\rx\n!a": [(3, "gc", "import-not-allowed"), (5, "!a", "shell-escape")],
    }.items(),
)
def test_a_finding_stands_where_it_was_written(raw, expected):
    got = [(line, text.strip(), rule) for line, text, rule in marked(raw)]
    assert got == expected


@pytest.mark.parametrize(
    "raw",
    ["import gc\nopen(x)", "!ls\nx", "%%time\nopen", "f.__globals__", "%env", "x = 1", ""],
)
def test_the_rules_are_the_kernels(raw):
    kernels, mine = analyse(transform(raw).source, SAFE), judge_source(raw, SAFE)
    said = [[(f.rule, f.subject, f.why) for f in found] for found in (kernels, mine)]
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("raw", "line", "why"),
    [
        ("x = 1\nx = = 1", 2, "is not Python: invalid syntax"),
        ("print 'x'", 1, "is not Python: Missing parentheses in call to 'print'. Did you mean"),
        ("%%time\n\nx = = 1", 3, "is not Python: invalid syntax"),
        ("\n\n%%capture out\n%%time\n)", 5, "is not Python: unmatched ')'"),
    ],
)
def test_what_no_python_reads_is_a_finding_and_not_let_through(raw, line, why):
    (finding,) = judge_source(raw, SAFE)
    assert (finding.rule, finding.line) == ("source-not-python", line)
    assert finding.why.startswith(why)


@pytest.mark.parametrize("raw", ["await x", "return 1", "%%html\n<p", "%%time\n", "%%time", "?x"])
def test_what_the_kernel_reads_is_python(raw):
    assert judge_source(raw, SAFE) == []


def test_a_cell_of_more_words_than_the_kernel_looks_at_is_refused_as_there():
    (finding,) = judge_source("x " * 400_001, SAFE)
    assert finding.rule == "source-too-complex"
    assert finding.why == (
        "is too long to check: 400,001 words and signs, and at most 400,000 are allowed"
    )


def test_a_broken_file_or_cell_is_a_finding_at_its_place():
    (one,) = found('{\n "cells": [}')
    assert (one.cell, one.file_line, one.finding.rule) == (0, 2, "file-not-readable")
    assert (one.finding.line, one.finding.column, one.finding.excerpt) == (2, 11, ' "cells": [}')

    (one,) = found('{"a": "' + "x" * 5000 + '" }}')
    shown = one.finding
    assert shown.excerpt[shown.column - shown.cut] == "}"
    assert len(shown.excerpt) <= 200

    (one,) = found('{"nbformat": 4, "cells": [{"cell_type": "x"}]}')
    assert (one.cell, one.finding.why) == (1, "is of no known type")


def test_templates_are_judged_as_templates():
    text = notebook("def run(state): return f(state)", "f()")
    assert found(text) == ()
    (one,) = found(text, template=True)
    assert (one.cell, one.finding.rule) == (2, "template-definitions")


def test_half_a_letter_can_be_carried_and_a_file_of_findings_is_told_in_part_and_counted_whole():
    (one,) = found(notebook("open('\ud800')"))
    assert one.finding.rule == "source-too-complex"
    assert "\ud800" not in one.finding.excerpt

    verdict = judge(notebook(*["open\n" * 100] * 11).encode(), FileKind.notebook, context(), FILE)
    assert (len(verdict.findings), verdict.left_out) == (MAX_FINDINGS, 100)
