# ruff: noqa: RUF001 - look-alike letters are what is tested
"""Where a finding stands and what it quotes, to the character."""

from cellblock.analysis import Finding, analyse
from unit.analysis.rules_for_tests import SAFE, findings, places


def test_all_findings_are_reported_at_once_in_order():
    cell = "import gc, json\n\nx = json.loads('1')\nrows = open('a').é.__globals__\n"
    assert places(cell) == [
        ("import-not-allowed", 1, 7, "gc"),
        ("builtin-not-allowed", 4, 7, "open"),
        ("attribute-not-allowed", 4, 19, "__globals__"),
    ]


def test_a_whole_finding():
    (finding,) = findings("\tif x: pass\n".replace("\tif", "if") + "import gc, json")
    assert finding == Finding(
        rule="import-not-allowed",
        line=2,
        column=7,
        end_column=9,
        subject="gc",
        excerpt="import gc, json",
        why="hands out every object in the process",
        remedy="",
        allows=('add.allowed_modules = ["gc"]',),
    )


def test_a_finding_is_shown_on_its_line_and_to_the_character():
    (finding,) = findings("if 1:\n\té = '𝓍', f.__code__")
    assert finding.excerpt[finding.column : finding.end_column] == "__code__"
    assert finding.excerpt == " é = '𝓍', f.__code__"

    (finding,) = findings("x = [" + "1, " * 500 + "f.__code__]")
    assert len(finding.excerpt) <= 200
    start = finding.column - finding.cut
    assert finding.excerpt[start : start + 8] == "__code__"

    (finding,) = findings("x = (f\n  .a\n  .__code__\n)")
    assert (finding.line, finding.excerpt) == (3, "  .__code__")

    assert places("x = 1 # no\rimport gc\ny = 2") == [("import-not-allowed", 2, 7, "gc")]


def test_code_of_magics_has_the_lines_of_the_cell_or_of_the_magic():
    cell = "%%time\nx = 1\nimport gc\n"
    assert places(cell) == [("import-not-allowed", 3, 7, "gc")]
    assert findings(cell)[0].excerpt == "import gc"

    assert places("x = 1\n%time import gc")[0][:2] == ("import-not-allowed", 2)

    assert [p[0] for p in places("%%capture\n%%time\nimport gc")] == ["import-not-allowed"]
    assert [p[0] for p in places("%time !ls")] == ["shell-escape"]


def test_a_flood_of_findings_is_cut():
    assert len(findings("import gc\n" * 5000)) == 100


def test_source_that_is_no_python_never_raises_and_finds_nothing():
    for source in ("(" * 100_000, "'" * 33_333, "x = '''", "\x00import gc", "def f(:", "\udcff"):
        assert all(f.rule == "source-too-complex" for f in analyse(source, SAFE))


def test_a_forbidden_import_after_two_megabytes():
    (finding,) = analyse("# filler_line_of_text\n" * 100_000 + "import gc", SAFE)
    assert finding.line == 100_001
