"""What a report looks like in each format, and that nothing in it commands whoever shows it."""

import dataclasses
import json
import re
from pathlib import Path

import jsonschema
import pytest

import cellblock
from cellblock.analysis import RULES, Finding
from cellblock.batch import report_formats
from cellblock.batch.judge import judge
from cellblock.batch.report_formats import Format, format_report
from cellblock.batch.verdict import (
    CHECK_RULES,
    REPORTED_RULES,
    CheckedFile,
    CheckReport,
    FileKind,
    PlacedFinding,
    Problem,
    Verdict,
    check_finding,
)
from support.check_judge import context
from support.notebooks import notebook

ROOT = Path(__file__).parents[3]
SAFE, FILE = context(), Path("/nb/a.ipynb")
SCHEMA = json.loads((ROOT / "tests/support/sarif/sarif-2.1.0-rtm.5.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
NOTEBOOK = notebook(("markdown", "# a"), "import math\nimport gc, json\n", "%env\nimport gc")
SCRIPT = "def f(path):\n    return open(path)\n"

TEXT = """\
work/a.ipynb:cell 2:2:8: import-not-allowed
  2 │ import gc, json
    │        ^^ gc hands out every object in the process

work/a.ipynb:cell 3:1:1: magic-not-allowed
  1 │ %env
    │ ^^^^ is not on this policy's list of allowed magics
  Instead: write it in Python.

work/a.ipynb:cell 3:2:8: import-not-allowed
  2 │ import gc
    │        ^^ gc hands out every object in the process

work/b.py:2:12: builtin-not-allowed
  2 │     return open(path)
    │            ^^^^ opens files
  Instead: take the data as an input of the cell, or call
  ops.read_file("data/a.csv") once it is allowed. If it is a name of your own,
  choose another.

work/c.ipynb:1:1: file-not-readable
  1 │ nothing
    │ ^ is not JSON: Expecting value
  Instead: mend the file, or leave it out with --exclude.

To allow it, write this to cells.toml, by hand or by cellblock policy add
cells.toml 'LINES'; then give --policy cells.toml.
    extends = "safe"
    add.allowed_modules = ["gc"]
    add.magics = ["env"]
    ops.read_file.roots = ["{project}"]
    add.read_deny_paths = ["@secrets"]

5 findings in 3 of 4 files, 1 path not checked · policy safe
"""
GITHUB = """\
::error file=work/a.ipynb,line=17,endLine=17,title=import-not-allowed::cell 2, line 2: gc hands out every object in the process%0Aimport gc, json%0ATo allow it: cellblock policy add cells.toml 'add.allowed_modules = ["gc"]'
::error file=work/a.ipynb,line=27,endLine=27,title=magic-not-allowed::cell 3, line 1: %25env is not on this policy's list of allowed magics%0A%25env%0AInstead: Write it in Python.%0ATo allow it: cellblock policy add cells.toml 'add.magics = ["env"]'
::error file=work/a.ipynb,line=28,endLine=28,title=import-not-allowed::cell 3, line 2: gc hands out every object in the process%0Aimport gc%0ATo allow it: cellblock policy add cells.toml 'add.allowed_modules = ["gc"]'
::error file=work/b.py,line=2,endLine=2,col=12,endColumn=15,title=builtin-not-allowed::open opens files%0Areturn open(path)%0AInstead: Take the data as an input of the cell, or call ops.read_file("data/a.csv") once it is allowed. If it is a name of your own, choose another.%0ATo allow it: cellblock policy add cells.toml 'ops.read_file.roots = ["{project}"]'
::error file=work/c.ipynb,line=1,endLine=1,col=1,endColumn=1,title=file-not-readable::this file is not JSON: Expecting value%0Anothing%0AInstead: Mend the file, or leave it out with --exclude.
::error title=cellblock could not check this path::gone.py: no such file or folder
5 findings in 3 of 4 files, 1 path not checked · policy safe
"""


def checked(path, text):
    kind = FileKind.notebook if path.endswith(".ipynb") else FileKind.script
    return CheckedFile(path, kind, judge(text.encode(), kind, SAFE, FILE), "safe", "safe")


def report(*files, problems=(), policy="safe"):
    return CheckReport(policy, False, files, problems)


FULL = report(
    checked("work/a.ipynb", NOTEBOOK),
    checked("work/b.py", SCRIPT),
    checked("work/c.ipynb", "nothing"),
    checked("work/d.py", "x = 1"),
    problems=(Problem("gone.py", "no such file or folder"),),
)
CLEAN = report(checked("a.py", "x = 1"))
#: Under a policy that grants what does the same.
GRANTED = dataclasses.replace(SAFE.rules, operations=frozenset({"ops.read_file"}))
GRANTING = context()
GRANTING.rules = GRANTED
OPENS = judge(b"rows = open('a.csv')\n", FileKind.script, GRANTING, FILE)
GRANTED = report(CheckedFile("a.py", FileKind.script, OPENS, "granting"), policy="granting")
REWRITE = 'text = ops.read_file("a.csv")\nlines = text.splitlines()'


def test_text_is_for_people_and_editors_and_annotations_point_into_the_file():
    assert format_report(FULL, Format.text) == TEXT

    assert format_report(FULL, Format.github) == GITHUB
    lines = NOTEBOOK.splitlines()
    assert (lines[16], lines[26]) == ('    "import gc, json\\n"', '    "%env\\n",')


def test_a_clean_run_says_what_was_checked_and_by_what():
    assert format_report(CLEAN, Format.text) == "1 file, no findings · policy safe\n"
    assert format_report(CLEAN, Format.github) == "1 file, no findings · policy safe\n"
    template = CheckReport("lab", True, (), ())
    assert format_report(template, Format.text) == "0 files, no findings · policy lab, template\n"


def test_what_a_policy_grants_instead_is_shown_in_two_lines():
    assert format_report(GRANTED, Format.text).splitlines()[3:-2] == [
        "  Instead: ask the host, ops.read_file. If it is a name of your own, choose",
        "  another.",
        '    text = ops.read_file("a.csv")',
        "    lines = text.splitlines()",
    ]
    lines = REWRITE.replace("\n", "%0A")
    assert f"another.%0A{lines}\n" in format_report(GRANTED, Format.github)
    (finding,) = json.loads(format_report(GRANTED, Format.json))["findings"]
    assert finding["rewrite"] == REWRITE
    (run,) = json.loads(format_report(GRANTED, Format.sarif))["runs"]
    assert run["results"][0]["message"]["text"].endswith(f"choose another.\n{REWRITE}")


def test_json_has_the_fields_of_a_denial_and_the_place():
    data = json.loads(format_report(FULL, Format.json))
    findings = data.pop("findings")
    assert data == {
        "version": 1,
        "cellblock": cellblock.__version__,
        "policy": "safe",
        "template": False,
        "status": 2,
        "files": 4,
        "total": 5,
        "allow": [
            {
                "file": "safe",
                "how": (
                    "To allow it, write this to cells.toml, by hand or by cellblock policy add "
                    "cells.toml 'LINES'; then give --policy cells.toml."
                ),
                "lines": [
                    'extends = "safe"',
                    'add.allowed_modules = ["gc"]',
                    'add.magics = ["env"]',
                    'ops.read_file.roots = ["{project}"]',
                    'add.read_deny_paths = ["@secrets"]',
                ],
            }
        ],
        "left_out": {},
        "problems": [{"path": "gone.py", "message": "no such file or folder"}],
    }
    assert findings[0] == {
        "path": "work/a.ipynb",
        "policy": "safe",
        "cell": 2,
        "file_line": 17,
        "rule": "import-not-allowed",
        "line": 2,
        "column": 7,
        "end_column": 9,
        "excerpt": "import gc, json",
        "subject": "gc",
        "why": "hands out every object in the process",
        "remedy": "",
        "allows": ['add.allowed_modules = ["gc"]'],
    }
    assert (findings[3]["cell"], findings[3]["file_line"]) == (None, 2)


@pytest.mark.parametrize("of", [FULL, CLEAN, GRANTED, report()])
def test_sarif_is_what_the_schema_says(of):
    log = json.loads(format_report(of, Format.sarif))
    VALIDATOR.validate(log)


def place(uri):
    return {"uri": uri, "uriBaseId": "%SRCROOT%"}


def test_sarif_has_regions_of_the_file_and_cells_as_logical_locations():
    (run,) = json.loads(format_report(FULL, Format.sarif))["runs"]
    notebooks, _, _, scripts, _ = run["results"]
    assert notebooks["message"]["text"] == (
        "cell 2, line 2: gc hands out every object in the process. "
        "To allow it: cellblock policy add cells.toml 'add.allowed_modules = [\"gc\"]'"
    )
    assert notebooks["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": place("work/a.ipynb"),
                "region": {"startLine": 17, "snippet": {"text": "import gc, json"}},
            },
            "logicalLocations": [{"name": "cell 2", "kind": "cell"}],
        }
    ]
    (location,) = scripts["locations"]
    assert location["physicalLocation"]["region"] == {
        "startLine": 2,
        "startColumn": 12,
        "endColumn": 16,
        "snippet": {"text": "    return open(path)"},
    }
    assert run["invocations"][0] == {
        "executionSuccessful": False,
        "exitCode": 2,
        "toolExecutionNotifications": [
            {
                "level": "error",
                "message": {"text": "gone.py: no such file or folder"},
                "locations": [{"physicalLocation": {"artifactLocation": place("gone.py")}}],
            }
        ],
    }


def test_sarif_has_every_rule_with_help_and_its_page(monkeypatch):
    monkeypatch.setattr(report_formats, "rules_page", lambda: "https://docs.example/rules.html")
    (run,) = json.loads(format_report(FULL, Format.sarif))["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(REPORTED_RULES)
    for rule in rules:
        assert rule["helpUri"] == f"https://docs.example/rules.html#{rule['id']}"
        assert rule["help"]["text"]
        assert rule["help"]["markdown"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_the_page_of_the_rules_is_where_the_package_says_its_documentation_is(monkeypatch):
    class Metadata:
        urls = ("Source, https://x", "Documentation, https://docs.example/en/")

        def get_all(self, _):
            return self.urls

    monkeypatch.setattr(report_formats.metadata, "metadata", lambda _: Metadata())
    assert report_formats.rules_page() == "https://docs.example/en/rules.html"
    Metadata.urls = None
    assert report_formats.rules_page() == ""


def test_fingerprints_tell_alike_findings_apart_and_do_not_move_with_lines():
    def marks(text):
        (run,) = json.loads(format_report(report(checked("a.py", text)), Format.sarif))["runs"]
        return [result["partialFingerprints"]["cellblock/v1"] for result in run["results"]]

    first, second = marks("import gc\nimport gc\n")
    assert first != second
    assert marks("\n\nimport gc\n\nimport gc\n") == [first, second]


def test_no_more_results_than_code_scanning_takes(monkeypatch):
    monkeypatch.setattr(report_formats, "MAX_RESULTS", 2)
    (run,) = json.loads(format_report(FULL, Format.sarif))["runs"]
    assert len(run["results"]) == 2
    told = run["invocations"][0]["toolExecutionNotifications"]
    assert told[-1]["message"]["text"] == "3 findings are left out"


@pytest.mark.parametrize("form", Format)
def test_what_is_left_out_is_said(form):
    verdict = Verdict((PlacedFinding(check_finding("source-not-python")),), 12)
    text = format_report(report(CheckedFile("a.py", FileKind.script, verdict, "safe")), form)
    assert "12" in text
    assert "13" in text or form is Format.sarif


# --- what a stranger wrote --------------------------------------------------------------------

COMMAND = "::set-output name=x::y ##[add-mask]z ##vso[task.setvariable]v ##teamcity[x]"
HOSTILE_PATHS = [
    f"{COMMAND}.py",
    "a,line=1::b.py",
    "a\n::error::b.py",
    "a\r::error::b.py",
    "%0A::error::b.py",
    "a\x1b]0;title\x07b.py",
    "\u202eyp.a.py",
    "\udcff.py",
    "##[error]x.py",
    "  ::error::x.py",
    "[x](https://evil.example) {0}.py",
]
HOSTILE_SOURCE = [
    COMMAND,
    "##[stop-commands]x",
    "\n::error::x",
    "\r::error::x",
    "\x1b[2J\x1b]8;;https://evil.example\x07x",
    "\u202e\u2066\u200b",
    "%0A::error::x",
    "[x](https://evil.example) {0} {1}",
    "\x85::error::x\u2028::error::y",
]


def hostile(path="a.py", source="x"):
    said = dict.fromkeys(("subject", "excerpt", "why", "remedy"), source)
    finding = Finding(rule="import-not-allowed", line=1, column=0, end_column=len(source), **said)
    found = tuple(PlacedFinding(finding, cell, 1) for cell in (0, 1))
    file = CheckedFile(path, FileKind.script, Verdict(found, 1), source)
    return report(file, problems=(Problem(path, source),), policy=source)


def commands(text):
    """Return what GitHub's runner takes for commands, as its two parsers read a line."""
    new = [line for line in re.split(r"\r\n|\r|\n", text) if line.strip().startswith("::")]
    old = re.findall(r"##\w*\[.*", text)
    return new, old


ATTACKS = [hostile(path=path) for path in HOSTILE_PATHS]
ATTACKS += [hostile(source=source) for source in HOSTILE_SOURCE]


def test_nothing_in_a_report_is_a_command():
    for form in [Format.text, Format.json, Format.sarif]:
        for of in ATTACKS:
            assert commands(format_report(of, form)) == ([], []), (of, form)


def test_an_annotation_is_one_command_whose_parts_are_ours():
    for of in ATTACKS:
        text = format_report(of, Format.github)
        new, old = commands(text)
        assert old == [], of
        assert len(new) == 4, of  # two findings, one line of more, one problem
        for line in new:
            assert re.fullmatch(r"::error (?:\w+=[^,:]*,?)+::.*", line), of
            properties = line.split("::")[1].removeprefix("error ").split(",")
            known = {"file", "line", "endLine", "col", "endColumn", "title"}
            assert {one.partition("=")[0] for one in properties} <= known, of
        assert len(text.splitlines()) == len(new) + 1, of


def test_no_control_or_direction_reaches_a_terminal():
    for form in Format:
        for of in ATTACKS:
            text = format_report(of, form)
            assert all(char.isprintable() or char == "\n" for char in text), (of, form)
            text.encode()


def test_hostile_reports_are_sarif_without_links():
    for of in ATTACKS:
        log = json.loads(format_report(of, Format.sarif))
        VALIDATOR.validate(log)
        for result in log["runs"][0]["results"]:
            assert "](" not in result["message"]["text"], of
            assert not re.search(r"\{\d+\}", result["message"]["text"]), of


def test_a_caret_stands_right_below_what_was_made_inert():
    (command,) = judge(b"x = '##[a]'; open", FileKind.script, SAFE, FILE).findings
    text = format_report(
        report(CheckedFile("a.py", FileKind.script, Verdict((command,)), "safe")), Format.text
    )
    line, carets = text.splitlines()[1:3]
    assert line == "  1 │ x = '#\N{REPLACEMENT CHARACTER}[a]'; open"
    assert carets.index("^") == line.index("open")


def test_a_path_outside_the_current_folder_is_a_uri():
    log = json.loads(format_report(hostile(path="/srv/a b.py"), Format.sarif))
    (run,) = log["runs"]
    where = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert where == {"uri": "file:///srv/a%20b.py"}


def test_every_rule_of_the_check_is_documented_and_none_is_the_kernels():
    page = (ROOT / "docs/rules.md").read_text("utf-8")
    headings = {line[3:].strip() for line in page.splitlines() if line.startswith("## ")}
    assert set(CHECK_RULES) <= headings
    assert not set(CHECK_RULES) & set(RULES)
    assert list(CHECK_RULES) == sorted(CHECK_RULES)
    assert set(RULES) - set(REPORTED_RULES) == {"operation-not-allowed"}
