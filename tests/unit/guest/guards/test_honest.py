"""Honest programs don't notice the guards: every one runs to its end and prints what it should."""

from pathlib import Path

import pytest

from support import guarded

FOLDER = Path(__file__).parent / "honest"
PROGRAMS = list(guarded.programs(FOLDER / "programs.txt", FOLDER / "library.txt"))
CASES = list(guarded.cases(FOLDER))


@pytest.fixture(scope="module")
def ran():
    everything = [cells for _, cells in PROGRAMS] + [cells for _, cells, _ in CASES]
    names = [name for name, _ in PROGRAMS] + [name for name, _, _ in CASES]
    return dict(zip(names, guarded.run(everything), strict=True))


@pytest.mark.parametrize("name", [name for name, _ in PROGRAMS])
def test_program_runs_to_its_end(name, ran):
    result = ran[name]
    assert (result["denied"], result["error"]) == ([], None), result["out"]


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, _, case in CASES])
def test_case_gives_what_it_expects(name, case, ran):
    result = ran[name]
    expected = [step.get("expect", {}) for step in case["step"]]
    error = next((e["error"] for e in expected if "error" in e), None)
    assert result["denied"] == []
    assert (result["error"] or [None])[0] == error
    for expect in expected:
        for key in ("stdout", "result", "stderr_has"):
            assert expect.get(key, "").strip() in result["out"]


@pytest.mark.parametrize(("name", "cells"), list(guarded.programs(FOLDER / "data.txt")))
def test_packages_let_in_raw_work(name, cells):
    for package in ("pandas", "pydantic"):
        pytest.importorskip(package, reason="preset data's packages are not installed")
    (result,) = guarded.run([cells], preset="data")
    assert (result["denied"], result["error"]) == ([], None), (name, result["out"])
