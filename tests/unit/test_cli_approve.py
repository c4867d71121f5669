# ruff: noqa: RUF001 - look-alike letters are what is tested
"""``cellblock approve``: who approves sees what runs, and is asked."""

import json
import re

import nbformat
import pytest

from cellblock.analysis.admission import judge
from cellblock.host.consent.admission import of_notebook
from cellblock.policy.load import load
from cellblock.render.text import width

POLICY = 'admission = "approved"\n'


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    """Run the command in a folder of its own, where a policy is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "lab.toml").write_text(POLICY)
    return command


@pytest.fixture
def notebook(tmp_path):
    def write(*sources, name="a.ipynb"):
        cells = [nbformat.v4.new_markdown_cell("# Title")]
        cells += [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / name)
        return name

    return write


@pytest.fixture
def policy(tmp_path):
    """Return a function that loads it."""
    return lambda: load(str(tmp_path / "lab.toml"), project=tmp_path, allow_unsafe=False)


@pytest.fixture
def admits(policy, tmp_path):
    return lambda source, name="a.ipynb": (
        not judge(source, of_notebook(policy(), tmp_path / name)).findings
    )


def approve(run, *args):
    return run("approve", *args, "--policy", "lab.toml", "--yes")


def test_what_is_new_is_shown_whole_and_then_approved(run, notebook, admits, tmp_path):
    status, out, err = approve(run, notebook("x = 1\ny = 2", "", "print(x)"))
    assert status == 0
    assert out == (
        f"a.ipynb, for policy lab in {tmp_path}: 2 new, 0 approved already, 0 gone\n"
        "\ncell 2\n  │ x = 1\n  │ y = 2\n"
        "\ncell 4\n  │ print(x)\n"
        "Approved a.ipynb\n"
    )
    key = tmp_path / "data" / "cellblock" / "approval.key"
    assert err == f"cellblock: made the key {key}: whoever can read it can approve\n"
    assert admits("print(x)")
    assert not admits("print(y)")


def test_nothing_is_asked_where_nothing_changes(run, notebook, tmp_path):
    approve(run, notebook("x = 1"))
    status, out, err = run("approve", "a.ipynb", "--policy", "lab.toml")
    assert (status, err) == (0, "")
    assert out == f"a.ipynb, for policy lab in {tmp_path}: 0 new, 1 approved already, 0 gone\n"


def test_a_changed_cell_is_shown_whole_and_replaces_what_was_approved(run, notebook, admits):
    approve(run, notebook("x = 1\ny = 2\nz = 3"))
    _, out, _ = approve(run, notebook("x = 1\ny = 4\nz = 3"))
    assert "1 new, 0 approved already, 1 gone" in out
    assert "  │ x = 1\n  │ y = 4\n  │ z = 3\n" in out
    assert admits("x = 1\ny = 4\nz = 3")
    assert not admits("x = 1\ny = 2\nz = 3")


def test_a_cell_that_the_policy_refuses_is_not_approved_without_saying_so(run, notebook):
    _, out, _ = approve(run, notebook("import gc, socket"))
    assert (
        "  ! policy lab refuses it even if approved: 2 findings: "
        "import-not-allowed at line 1 (gc), import-not-allowed at line 1 (socket)\n"
    ) in out


def test_no_line_of_a_cell_is_a_command_to_a_ci_runner(run, notebook):
    _, out, _ = approve(run, notebook("##vso[task.complete]\n::error::x", name="##[error]a.ipynb"))
    assert "  │ #�vso[task.complete]\n  │ ::error::x\n" in out
    assert "Approved #�[error]a.ipynb\n" in out


def test_no_line_of_a_cell_or_of_what_is_said_of_it_is_broken_by_the_terminal(
    run, notebook, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "30")
    source = f"x = 1{' ' * 21}cell 3{' ' * 24}│ harmless\n{'é' * 40} = 1\n# \u0627{'b' * 60}"
    _, out, _ = approve(run, notebook(source, name=f"a{' ' * 30}cell 9.ipynb"))
    head, _, cell = out.partition("\n\ncell 2\n")
    lines = cell.split("\n  ! policy")[0].splitlines()[:-1]
    assert max(map(width, [*head.splitlines(), *lines])) <= 30
    assert {line[:4] for line in lines} == {"  │ ", "  ┆ ", "  ! "}
    joined = re.sub("¬\n  ┆ ", "", cell)
    assert joined.startswith("".join(f"  │ {line}\n" for line in source.split("\n")))
    assert "cell 9" not in [line[:6] for line in head.splitlines()]


def test_a_cell_that_no_kernel_runs_is_not_looked_into_and_said_to_be_too_long(run, notebook):
    _, out, _ = approve(run, notebook("é;" * 500_000))
    said = "1,000,000 words and signs, and at most 400,000 are allowed"
    assert out.endswith(f"é;\n  ! too long, no kernel runs it: {said}\nApproved a.ipynb\n")


def test_what_can_not_be_seen_or_told_by_sight_is_spelled_out_however_much_there_is(run, notebook):
    _, out, _ = approve(run, notebook("rаdius = 1  # \u202e gnp\x1b[2K\rx = 2"))
    assert "│ rаdius = 1  # ⟨U+202E⟩ gnp␛[2K␍x = 2\n" in out
    assert "! not ASCII: rаdius (U+0430 CYRILLIC SMALL LETTER A)\n" in out

    many = "; ".join(f"é{n} = 1" for n in range(40))
    _, out, _ = approve(run, notebook(f"{many}\nеval = 2"))
    assert "  ! not ASCII: еval (U+0435 CYRILLIC SMALL LETTER IE)\n" in out


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('pay("\u05d0", 10000, 1, "\u05d1")', r'pay("\u05d0", 10000, 1, "\u05d1")'),
        ("x = 1  # \u0627 -> 2", r"x = 1  # \u0627 -> 2"),
        ('y = "\u0661", 10', r'y = "\u0661", 10'),
        ('z = "ä\U0001e900", 10', r'z = "ä\U0001e900", 10'),
        ("\u05d0 = 12", r"\u05d0 = 12"),
    ],
)
def test_a_line_that_may_be_shown_in_another_order_is_also_shown_in_its_own(
    run, notebook, line, shown
):
    _, out, _ = approve(run, notebook(f"a = 1\n{line}\nb = 2"))
    exactly = f"  │ {line}\n  ! runs from right to left; exactly: {shown}\n  │ b = 2\n"
    assert exactly in out
    _, _, behind = out.partition(exactly)
    assert behind.isascii(), "nor does what is said of a name run from right to left"


def test_scripts_that_run_from_left_to_right_are_not_spelled_out(run, notebook):
    _, out, _ = approve(run, notebook('print("Ελλάδα 你好 हिन्दी ไทย é ❤", 1)  # ещё'))
    assert "right to left" not in out


def test_without_a_terminal_nobody_is_asked_and_nothing_is_approved(run, notebook, monkeypatch):
    notebook("x = 1")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    status, _, err = run("approve", "a.ipynb", "--policy", "lab.toml")
    assert status == 2
    assert err == (
        "cellblock: a.ipynb: nobody is there to be asked. "
        "Run it in a terminal, or read what it shows and give --yes.\n"
    )
    assert run("approve", "--list", "--policy", "lab.toml") == (0, "nothing was approved\n", "")


@pytest.mark.parametrize("agrees", [True, False])
def test_whoever_is_there_is_asked(run, notebook, monkeypatch, agrees):
    notebook("x = 1")
    monkeypatch.setattr("cellblock.cli.approve.sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda _text: agrees)
    ended, out, _ = run("approve", "a.ipynb", "--policy", "lab.toml")
    assert ended == (not agrees)
    assert ("Approved a.ipynb" in out) is agrees


def test_listing_says_cell_by_cell_and_fails_where_one_is_not_approved(run, notebook):
    approve(run, notebook("x = 1", "", "%usage"))
    said = "a.ipynb: cell 2: approved\na.ipynb: cell 3: approved\na.ipynb: cell 4: approved\n"
    assert run("approve", "--list", "a.ipynb", "--policy", "lab.toml")[:2] == (0, said)
    notebook("x = 1", "y = 2")
    said = "a.ipynb: cell 2: approved\na.ipynb: cell 3: not approved\n"
    assert run("approve", "--list", "a.ipynb", "--policy", "lab.toml")[:2] == (1, said)


def test_listing_all_names_scope_policy_and_who_approved(run, notebook, tmp_path):
    approve(run, notebook("x = 1"))
    status, out, _ = run("approve", "--list", "--policy", "lab.toml")
    assert status == 0
    assert re.fullmatch(
        rf"[0-9a-f]{{8}}  1 cells of a\.ipynb\n {{10}}policy lab \([0-9a-f]{{12}}\)"
        rf" in {tmp_path}, 20\S+, by .*\n",
        out,
    )


def test_what_is_revoked_is_not_approved_any_more(run, notebook, admits, tmp_path):
    approve(run, notebook("x = 1"))
    (tmp_path / "a.ipynb").unlink()
    status, out, _ = run("approve", "--revoke", "a.ipynb", "--policy", "lab.toml")
    assert (status, out) == (0, "Took back 1 cells of a.ipynb\n")
    assert not admits("x = 1")


def test_a_manifest_that_can_not_be_trusted_is_said_to_be_lost(run, notebook, admits, tmp_path):
    approve(run, notebook("x = 1"))
    notebook("y = 2", name="b.ipynb")
    (manifest,) = (tmp_path / "data" / "cellblock" / "approved").glob("*.json")
    manifest.write_bytes(manifest.read_bytes().replace(b"x = 1", b"z = 9"))
    _, _, err = approve(run, "b.ipynb")
    assert "what was approved before can't be used: " in err
    assert "it was changed since it was signed" in err
    assert admits("y = 2", "b.ipynb")
    assert not admits("z = 9")


@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_under_a_policy_that_takes_no_approvals_nothing_is_shown_or_asked(run, notebook, more):
    notebook("x = 1")
    assert run("approve", "a.ipynb", *more) == (
        2,
        "",
        (
            "cellblock: safe: admission: it has admission any, so approvals do not count."
            ' Set admission = "approved" there, or name the policy that kernels run under.\n'
        ),
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is not JSON: "),
        (b"[]", "it is not a notebook: "),
        (b"{}", "it has an older format, and nbformat can't convert it"),
        (b"\xff", "it is not UTF-8 text"),
        (None, "no such file"),
    ],
)
def test_what_is_no_notebook_is_not_approved(run, tmp_path, content, said):
    if content is not None:
        (tmp_path / "a.ipynb").write_bytes(content)
    status, _, err = approve(run, "a.ipynb")
    assert status == 2
    assert f"a.ipynb: {said}" in err


def test_a_cell_that_is_not_unicode_is_not_approved(run, notebook, tmp_path):
    notebook("x = 'HALF'")
    file = tmp_path / "a.ipynb"
    file.write_text(file.read_text().replace("HALF", "\\ud800"))
    status, _, err = approve(run, "a.ipynb")
    assert (status, "half of a surrogate pair" in err) == (2, True)


def test_each_notebook_is_approved_in_its_own_folder(run, notebook, admits, tmp_path):
    (tmp_path / "sub").mkdir()
    notebook("x = 1")
    notebook("y = 2", name="sub/a.ipynb")
    assert approve(run, "a.ipynb", "sub/a.ipynb")[0] == 0
    assert (admits("x = 1"), admits("y = 2")) == (True, False)
    assert admits("y = 2", "sub/a.ipynb")


def test_arguments_that_contradict_each_other_are_refused(run):
    assert run("approve")[0] == 2
    assert run("approve", "a.ipynb", "--list", "--revoke")[0] == 2


def test_templates_are_listed_and_judged_under_the_policy(run, tmp_path):
    status, out, _ = run("templates")
    assert status == 0
    assert out == (
        "describe: Count, mean, spread and quartiles of some numbers.\ntable: Rows as a table.\n"
    )
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    (own / "bad.py").write_text("import gc\n\n\ndef run(state):\n    return gc.garbage\n")
    (own / "bad.schema.json").write_text(json.dumps({"type": "object"}))
    (tmp_path / "lab.toml").write_text(f'templates.folders = ["{own}"]')
    status, out, _ = run("templates", "--policy", "lab.toml")
    assert (status, out) == (1, "bad: refused, 1 finding: import-not-allowed at line 1 (gc)\n")


def test_an_old_notebook_that_asks_for_all_memory_is_no_notebook(run, admits, tmp_path):
    old = {"metadata": {}, "nbformat": 3, "nbformat_minor": 0}
    code = {"cell_type": "code", "input": "x = 1", "language": "python", "outputs": []}
    (tmp_path / "a.ipynb").write_text(json.dumps(old | {"worksheets": [{"cells": [code]}]}))
    assert approve(run, "a.ipynb")[0] == 0
    assert admits("x = 1")
    heading = {"cell_type": "heading", "level": 2_000_000_000, "source": "x"}
    (tmp_path / "b.ipynb").write_text(json.dumps(old | {"worksheets": [{"cells": [heading]}]}))
    status, _, err = approve(run, "b.ipynb")
    assert (status, "it has an older format, and nbformat can't" in err) == (2, True)


def test_a_notebooks_name_commands_no_runner(run, notebook):
    name = notebook("x = 1", name="::error::x.ipynb")
    lines = approve(run, name)[1] + run("approve", "--list", name, "--policy", "lab.toml")[1]
    assert "\N{REPLACEMENT CHARACTER}:error::x.ipynb: cell 2: approved\n" in lines
    assert not any(line.lstrip().startswith("::") for line in lines.splitlines())
