"""The list of protections that `make mutants` switches off stays true to the source."""

import re
import subprocess

import pytest

from mutants import run

MUTANTS = run.load()

pytestmark = pytest.mark.skipif(
    not (run.TREE / "kernel").exists(), reason="only the source tree has what is changed"
)


def test_each_has_a_name_of_its_own_and_says_what_would_be_lost():
    names = [one.id for one in MUTANTS]
    assert len(set(names)) == len(names) >= 100
    for one in MUTANTS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.id), one.id
        assert one.why, one.id


def test_each_changes_one_place_that_is_there():
    sources = {file: (run.TREE / file).read_text() for file in {one.file for one in MUTANTS}}
    for one in MUTANTS:
        changed = one.applied_to(sources[one.file])
        assert changed != sources[one.file], one.id


def test_each_names_tests_that_are_there():
    for one in MUTANTS:
        assert one.tests, one.id
    for test in {test for one in MUTANTS for test in one.tests}:
        file, _, function = test.partition("::")
        path = run.TREE / file
        assert path.exists(), file
        assert not function or f"def {function.partition('[')[0]}(" in path.read_text(), test


@pytest.mark.parametrize(
    ("status", "may_hang", "outcome"),
    [
        (1, False, "noticed"),
        (0, False, "survived"),
        (2, False, "did not run"),  # an import that fails tells nothing of a protection
        (4, True, "did not run"),
        (None, False, "timed out"),
        (None, True, "noticed"),
    ],
)
def test_only_a_test_that_fails_has_noticed(status, may_hang, outcome):
    mutant = run.Mutant("x", "f", "a", "b", ["t"], "why", may_hang=may_hang)
    assert run._outcome(status, mutant) == outcome


@pytest.mark.parametrize("source", ["b", "a a"])
def test_a_change_whose_place_is_not_found_once_is_an_error(source):
    mutant = run.Mutant("x", "f", "a", "b", ["t"], "why")
    with pytest.raises(ValueError, match="`before` occurs"):
        mutant.applied_to(source)


@pytest.mark.parametrize(
    ("missed", "accepted", "complete", "status"),
    [
        (0, "", True, 0),
        (1, "", True, 1),
        (1, "why", True, 0),
        (4, "why", True, 1),
        (4, "why", False, 0),
    ],
)
def test_what_survives_is_explained_and_rare(missed, accepted, complete, status, capsys):
    mutant = run.Mutant("x", "f", "a", "b", ["t"], "why", accepted=accepted)
    outcomes = ["survived"] * missed + ["noticed"] * (100 - missed)
    assert run._verdict([mutant] * 100, outcomes, complete=complete) == status
    assert f"{100 - missed} of 100 mutants noticed" in capsys.readouterr().out


@pytest.mark.skipif(not (run.TREE / ".git").exists(), reason="a copy is of what git knows")
def test_a_copy_imports_itself_as_guests_do_and_is_as_before_when_a_mutant_was_tried(tmp_path):
    copy = run.Copy(tmp_path)
    asked = [copy.python, "-I", "-c", "import cellblock; print(cellblock.__file__)"]
    said = subprocess.run(asked, capture_output=True, check=True, text=True, cwd=tmp_path).stdout
    assert said == f"{tmp_path}/kernel/cellblock/__init__.py\n"

    file = tmp_path / MUTANTS[0].file
    before = file.read_bytes(), file.stat().st_mtime_ns
    seen = []
    copy.test = lambda *_, **__: seen.append(file.read_bytes()) or (1, "")
    assert copy.outcome(MUTANTS[0]) == ("noticed", "")
    assert seen[0] != before[0]
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
