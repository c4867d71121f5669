"""A notebook that asks for less is checked by less, and none by more than the operator allows."""

import json
from pathlib import Path

import pytest

from cellblock.batch.judge import judge
from cellblock.batch.verdict import FileKind
from cellblock.policy.model import FIELDS, Templates
from support.check_judge import context, findings_of_cells
from support.notebooks import notebook

WIDER, NOT_KEPT, IMPORT = "policy-only-narrows", "narrowing-not-kept", "import-not-allowed"
MAGIC, ARGUMENT = "magic-not-allowed", "argument-not-allowed"
NUMPY = "import numpy"


def verdict(*sources, asks=None, folder="/nb", **less):
    """Return what is found in a notebook that asks for a policy in its metadata."""
    own = {} if asks is None else {"cellblock": asks}
    text = notebook(*sources, metadata=own)
    return judge(
        text.encode(),
        FileKind.notebook,
        context(folder=Path(folder), **less),
        Path(folder, "a.ipynb"),
    )


def rules(*sources, **keywords):
    return [(each.cell, each.finding.rule) for each in verdict(*sources, **keywords).findings]


def in_cells(*sources, **less):
    return [[finding.rule for finding in found] for found in findings_of_cells(*sources, **less)]


# --- a notebook's metadata ------------------------------------------------------------------------


def test_a_notebook_is_checked_by_what_its_metadata_leaves_be_it_old_or_not():
    asks = {"policy": {"allowed_modules": []}}
    assert rules(NUMPY, preset="data", mode="safe") == []
    assert rules(NUMPY, preset="data", mode="safe", asks=asks) == [(1, IMPORT)]

    cell = {"cell_type": "code", "input": "1", "outputs": [], "language": "python"}
    old = {"nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": [cell], "metadata": {}}]}
    old["metadata"] = {"name": "", "cellblock": {"policy": {"timeout": 100}}}
    made = judge(json.dumps(old).encode(), FileKind.notebook, context(), Path("/nb/a.ipynb"))
    assert [(f.cell, f.finding.rule, f.file_line) for f in made.findings] == [(0, WIDER, 1)]


@pytest.mark.parametrize(
    "asks",
    [
        {"timeout": 61},
        {"allowed_modules": ["gc"]},
        {"add": {"allowed_modules": ["gc"]}},
        {"mode": "unsafe"},
        {"admission": "any", "name": "other"},
        {"filesystem_read_roots": ["../.."]},
        {"filesystem_write_roots": ["{project}"]},
        {"read_deny_paths": []},
        {"timeout": 1, "memory_max_bytes": 2**50},
    ],
)
def test_metadata_that_asks_for_more_is_found_and_allows_nothing(asks):
    found = rules("import gc", asks={"policy": asks})
    assert found[0][0] == 0
    assert found[0][1] in (WIDER, NOT_KEPT)
    assert found[1:] == [(1, IMPORT)]


def test_every_field_that_is_not_for_notebooks_is_found():
    for field in FIELDS:
        ((cell, rule), *_) = rules("1", asks={"policy": {field: "\x1b[2J"}}) or [(0, WIDER)]
        assert (cell, rule in (WIDER, NOT_KEPT)) == (0, True), field


def test_it_is_found_where_it_stands_in_the_file():
    made = verdict("1", asks={"policy": {"timeout": 10, "network_access": True}})
    (one,) = made.findings
    shown = one.finding
    assert (one.cell, one.file_line, shown.line, shown.rule) == (0, 18, 18, WIDER)
    assert shown.excerpt[shown.column : shown.end_column] == '"network_access"'
    assert shown.why == (
        "metadata.cellblock.policy.network_access: "
        "a notebook can't have more than the policy: it is false"
    )
    assert shown.remedy == (
        "Take it out of the notebook's metadata. Only the policy of the kernel can allow more."
    )


@pytest.mark.parametrize(
    "asks",
    [
        "text",
        {"polcy": {}},
        {"policy": []},
        {"policy": None},
        {"policy": {"tiemout": 1}},
        {"policy": {"timeout": "soon"}},
        {"policy": {"timeout": float("nan")}},
        {"policy": {"timeout": json.loads("[" * 400 + "]" * 400)}},
        {"policy": {"add": {"add": {"add": {}}}}},
        {"policy": {"add": 1}},
        {"policy": {"tool_timeouts": {"a": {"b": []}}}},
        {"policy": {"\ud800": 1}},
        {"policy": {"x.y\x00z\u202e": 1}},
        {"policy": {"allowed_modules": ["numpy"] * 1_001}},
        {"policy": {"filesystem_read_roots": ["a" * 70_000]}},
        {"policy": {"filesystem_read_roots": ["\x00"]}},
        {"policy": {"filesystem_read_roots": ["~nobody-is-called-so/x"]}},
        {"policy": {"filesystem_read_roots": ["{home}"]}},
        {str(n): n for n in range(20_000)},
        json.loads("[" * 450 + "]" * 450),
    ],
)
def test_metadata_that_is_malformed_is_a_finding_and_no_mistake_of_ours(asks):
    found = rules("import gc", asks=asks)
    assert [cell for cell, _ in found] == [0, 1]
    assert found[0][1] in (NOT_KEPT, WIDER)
    assert found[1] == (1, IMPORT)


@pytest.mark.parametrize("asks", [None, {}, {"policy": {}}, {"policy": {"timeout": 1}}])
def test_metadata_that_asks_for_nothing_of_source_changes_nothing(asks):
    assert rules("import math", "import gc", asks=asks) == [(2, IMPORT)]


# --- paths ----------------------------------------------------------------------------------------


def test_paths_are_the_folders_of_the_notebook_and_none_has_to_be_here(tmp_path):
    asks = {"policy": {"filesystem_read_roots": ["data"]}}
    roots = {"filesystem_read_roots": (str(tmp_path),)}
    inside = verdict("1", asks=asks, folder=str(tmp_path / "deep"), **roots)
    outside = verdict("1", asks=asks, folder="/elsewhere", **roots)
    assert [f.finding.rule for f in inside.findings] == []
    assert [f.finding.rule for f in outside.findings] == [WIDER]


def test_a_link_leads_out_of_what_is_granted(tmp_path):
    (tmp_path / "data").symlink_to("/etc")
    asks = {"policy": {"filesystem_read_roots": ["data"]}}
    roots = {"filesystem_read_roots": (str(tmp_path),)}
    assert rules("1", asks=asks, folder=str(tmp_path), **roots) == [(0, WIDER)]


# --- a cell ---------------------------------------------------------------------------------------


def test_cells_behind_a_narrowing_are_checked_by_less():
    less = "%policy narrow allowed_modules=[]"
    assert in_cells(NUMPY, preset="data", mode="safe") == [[]]
    assert in_cells(less, NUMPY, preset="data", mode="safe") == [[], [IMPORT]]
    fresh = "%policy narrow --fresh allowed_modules=[]"
    assert in_cells(NUMPY, fresh, NUMPY, preset="data", mode="safe") == [[], [], [IMPORT]]


def test_what_costs_the_variables_is_refused_once_there_are_any_and_changes_nothing():
    less = "%policy narrow allowed_modules=[]"
    assert in_cells("x = 1", less, NUMPY, preset="data", mode="safe") == [[], [NOT_KEPT], []]
    # Blank cells, refused ones and narrowings leave no variables.
    before = (" \n", "import gc", "%policy narrow timeout=1")
    assert in_cells(*before, less, preset="data", mode="safe") == [[], [IMPORT], [], []]
    assert in_cells("x = = 1", less, preset="data", mode="safe") == [
        ["source-not-python"],
        [NOT_KEPT],
    ]
    again = ("x = 1", "%policy narrow --fresh timeout=1", less)
    assert in_cells(*again, preset="data", mode="safe") == [[], [], []]


def test_a_cell_never_gets_back_what_was_taken_away():
    less, more = "%policy narrow timeout=10", "%policy narrow timeout=20"
    assert in_cells(less, more, less) == [[], [WIDER], []]
    assert rules(more, asks={"policy": {"timeout": 10}}) == [(1, WIDER)]


def test_a_narrowing_is_in_force_whole_or_not_at_all_and_takes_the_magic():
    less = "%policy narrow allowed_modules=[] timeout=1e6"
    assert in_cells(less, NUMPY, preset="data", mode="safe") == [[WIDER], []]

    less = '%policy narrow magics=["time"]'
    assert in_cells(less, "%policy narrow timeout=1", "%policy") == [[], [MAGIC], [MAGIC]]


@pytest.mark.parametrize(
    "cell",
    [
        "%policy narrow timeout=1\nx = 1",
        "if True:\n    %policy narrow timeout=1",
        "%policy narrow",
        "%policy narrow timeout",
        "%policy narrow timeout=True",
        "%policy narrow timeout=1 timeout=2",
        "%policy narrow x=" + "[" * 9_000 + "]" * 9_000,
        "%policy narrow x=" + "1" * 19_000,
    ],
)
def test_what_is_no_narrowing_is_an_argument(cell):
    assert in_cells(cell) == [[ARGUMENT]]


# --- templates ------------------------------------------------------------------------------------


def test_a_cell_that_names_a_template_is_checked_as_one():
    state = '%%template table\n{"columns": ["a"], "rows": [{"a": 1}]}'
    assert in_cells(state, "%%template nothing\n{}", "%%template table\n{") == [
        [],
        ["template-not-found"],
        ["template-state"],
    ]
    assert in_cells("x = 1\n%%template table\n{}") == [[MAGIC]]


def test_where_only_templates_run_nothing_else_passes_and_a_template_has_no_policy_to_narrow():
    assert in_cells("x = 1", "%policy narrow timeout=1", " ", admission="template") == [
        ["not-a-template"],
        ["not-a-template"],
        [],
    ]

    assert in_cells("%policy narrow timeout=1", template=True) != [[]]


def test_templates_that_are_not_here_are_told(tmp_path):
    (found,) = findings_of_cells(
        "%%template a\n{}", templates=Templates(folders=(str(tmp_path / "no"),))
    )
    assert [each.rule for each in found] == ["template-not-found"]
    assert "can't be looked up: " in found[0].why
