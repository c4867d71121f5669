# ruff: noqa: RUF001 - look-alike letters are what is tested
"""Admission decides by the exact text, whatever else looks or runs the same."""

from dataclasses import replace

import pytest

from cellblock.analysis import Rules, analyse, transform
from cellblock.analysis.admission import (
    Admitted,
    Approved,
    Problem,
    Template,
    View,
    judge,
    judge_expression,
    sha256,
)

CELL = "import math\nradius = 3\nprint(math.pi * radius ** 2)"


def approved(*sources):
    cells = {sha256(s): Approved(s, "a.ipynb", n) for n, s in enumerate(sources, 1)}
    return Admitted("approved", cells=cells, remedy="Ask.")


def templates(kind="template", problems=()):
    source = "def run(state): pass"
    one = Template("draw", source, {}, lambda _state: tuple(problems))
    return Admitted(kind, templates={"draw": one})


def findings(raw, admitted):
    return judge(raw, admitted).findings


def rules(raw, admitted):
    return [found.rule for found in findings(raw, admitted)]


def test_an_approved_cell_is_admitted_by_its_text_and_it_is_said_where_that_was():
    ruling = judge(CELL, approved("x = 1", CELL))
    assert ruling.findings == ()
    assert ruling.by == "approved in a.ipynb, cell 2"

    forged = Admitted("approved", cells={sha256("evil()"): Approved("x = 1", "a.ipynb", 1)})
    assert rules("evil()", forged) == ["cell-not-approved"]


LOOK_ALIKES = {
    "a letter of another script": CELL.replace("radius", "rаdius"),
    "a letter that Python reads as the same": CELL.replace("radius", "𝐫adius"),
    "a blank at a line's end": CELL.replace("3\n", "3 \n"),
    "a tab for a blank": CELL.replace("radius = ", "radius =\t"),
    "a no-break space in a comment": CELL + " #\u00a0",
    "CR LF for LF": CELL.replace("\n", "\r\n"),
    "CR for LF": CELL.replace("\n", "\r"),
    "a line feed more at the end": CELL + "\n",
    "a blank line more at the start": "\n" + CELL,
    "a byte order mark": "\ufeff" + CELL,
    "a zero-width space": CELL.replace("3", "3\u200b"),
    "an invisible separator": CELL + "\u2028",
    "a prompt": ">>> " + CELL,
    "one line less": CELL.rpartition("\n")[0],
    "another cell behind it": CELL + "\n" + CELL,
    "a magic around it": "%%time\n" + CELL,
    "half of a surrogate pair": CELL + "#\ud800",
    "a null": CELL + "\0",
}


def test_a_text_that_is_almost_an_approved_one_is_refused():
    for change, text in LOOK_ALIKES.items():
        assert rules(text, approved(CELL)) == ["cell-not-approved"], change
        assert rules(CELL, approved(CELL)) == [], change


RUNS_NOTHING = [
    "",
    " \n\t\r\n",
    "%usage",
    "%undo 2",
    "%output 7 stderr",
    "\n%policy\n",
    "%template",
]
RUNS = [
    "%policy narrow",
    "%tools x",
    "%usage {1}",
    "%usage $x",
    "x = 1\n%usage",
    "%usage\nx = 1",
    "x = %usage",
    "%time 1",
    "%who",
    "%run x.py",
    "%load x.py",
    "!ls",
    "usage?",
    "#",
    "pass",
    "\u00a0",
    "get_ipython().run_line_magic('usage', f'{1}')",
    "get_ipython().run_line_magic('usage', ''); f()",
    "%%usage\nx",
    "%usage ');f('",
]


@pytest.mark.parametrize("kind", ["approved", "template"])
def test_what_runs_no_code_takes_no_admission_and_all_else_does(kind):
    admitted = Admitted(kind)
    refused = {"approved": "cell-not-approved", "template": "not-a-template"}[kind]
    assert [rules(cell, admitted) for cell in RUNS_NOTHING] == [[]] * len(RUNS_NOTHING)
    assert [rules(cell, admitted) for cell in RUNS] == [[refused]] * len(RUNS)


CONFINED = Rules(language=False, modules={}, raw_modules=frozenset(), magics=frozenset())
UNAPPROVED = {
    "%run x.py": "%run",
    "x = 1\n%debug": "%debug",
    "if x:\n    %pdb on": "%pdb",
    "%time %run x.py": "%run",
    "%%capture\n%%time\n%rerun": "%rerun",
    "%%debug\nx": "%%debug",
    "%load_ext helper": "%load_ext",
    "get_ipython().run_line_magic('macro', 'm 1')": "%macro",
}


@pytest.mark.parametrize("cell", UNAPPROVED)
def test_where_cells_are_approved_no_magic_brings_in_code_whatever_the_mode(cell):
    source = transform(cell).source
    (found,) = analyse(source, replace(CONFINED, admission=True))
    assert (found.rule, found.subject) == ("magic-not-allowed", UNAPPROVED[cell])
    assert (found.why, found.remedy) == (
        "runs code that nobody approved",
        "Put the code into a cell, and have that approved.",
    )
    assert analyse(source, CONFINED) == ()


@pytest.mark.parametrize("cell", ["%load_ext autoreload", "%autoreload 2", "%time x = 1", "run(1)"])
def test_where_cells_are_approved_all_other_magics_stay_in_mode_confined(cell):
    assert analyse(transform(cell).source, replace(CONFINED, admission=True)) == ()


def test_a_view_is_admitted_as_what_it_is_and_not_as_source():
    admitted = Admitted("approved")
    assert judge("%usage 3\n", admitted).view == View("usage", "3")
    assert judge("%policy", admitted).view == View("policy", "")
    assert judge(" ", admitted).view is None
    assert judge("%usage 3", Admitted()).view is None


def test_an_expression_beside_a_cell_is_refused_even_where_its_text_is_approved():
    for admitted in (approved("x"), templates()):
        assert len(judge_expression("x", admitted).findings) == 1
    assert judge_expression("x", Admitted()).findings == ()


# --- templates --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["any", "template"])
def test_a_template_is_run_with_the_state_as_data(kind):
    ruling = judge('\n%%template draw\n{"a": ["); evil(", 1.5, null]}', templates(kind))
    assert ruling.findings == ()
    assert ruling.run.template.name == "draw"
    assert ruling.run.state == {"a": ["); evil(", 1.5, None]}
    assert ruling.by.startswith("template draw ")
    assert judge("%%template draw", templates(kind)).run.state == {}


@pytest.mark.parametrize(
    "cell",
    [
        "x = 1",
        "%%time\n%%template draw",
        "x = 1\n%%template draw",
        " %%template draw",
        "%template draw\nx = 1",
        "%%templates draw",
        "%%TEMPLATE draw",
        "\ufeff%%template draw",
        "%%capture\n%%template draw\n{}",
        "get_ipython().run_cell_magic('template', 'draw', '{}')",
        "\x0c%%template draw",
    ],
)
def test_under_template_admission_nothing_else_runs(cell):
    assert rules(cell, templates()) == ["not-a-template"]


X = [
    "",
    "../draw",
    "./draw",
    "/etc/draw",
    "draw.py",
    "draw/../draw",
    "DRAW",
    "draw draw",
    "draw\x00",
    "drаw",
    "draw\u2028x = 1",
    "draw --option",
    "{name}",
    "$name",
    "d" * 65,
    "none",
]


def test_a_template_is_found_by_its_exact_name_only():
    for name in X:
        (found,) = findings(f"%%template {name}\n{{}}", templates())
        assert found.rule == "template-not-found", name
        assert found.remedy == "Templates: draw.", name
        assert findings("%%template draw\n{}", templates()) == (), name


def test_a_refused_state_is_pointed_at_and_names_path_keyword_and_template():
    problem = Problem("$.rows[3].name", "type", "1 is not of type 'string'")
    (found,) = findings("\n%%template draw\n{}", templates(problems=[problem]))
    assert (found.rule, found.subject) == ("template-state", "draw")
    assert (found.line, found.column) == (2, 11)
    assert found.why == "The state, $.rows[3].name: 1 is not of type 'string' (type)"
    assert found.remedy == "%template draw shows the schema that a state has to fit."

    (found,) = findings('\n%%template draw\n{"a": 1,\n "b": nul}', templates())
    assert (found.rule, found.line, found.column) == ("template-state", 4, 6)
    assert found.why == "The state: it is not JSON: Expecting value"


def test_a_template_runs_in_an_approved_cell_where_the_policy_has_a_magic_for_it():
    closed = Admitted("any", templates=templates().templates, calls=False)
    assert judge("%%template draw\n{}", closed).run is None

    cell = '%%template draw\n{"a": 1}'
    admitted = Admitted(
        "approved", cells=approved(cell).cells, templates=templates().templates, remedy=""
    )
    assert judge(cell, admitted).run.state == {"a": 1}
    assert rules('%%template draw\n{"a": 2}', admitted) == ["cell-not-approved"]
