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


def test_programs_run_to_their_end(ran):
    for name, _ in PROGRAMS:
        result = ran[name]
        assert (result["denied"], result["error"]) == ([], None), (name, result["out"])


def test_cases_give_what_they_expect(ran):
    for name, _, case in CASES:
        result = ran[name]
        expected = [step.get("expect", {}) for step in case["step"]]
        error = next((e["error"] for e in expected if "error" in e), None)
        assert result["denied"] == [], name
        assert (result["error"] or [None])[0] == error, name
        for expect in expected:
            for key in ("stdout", "result", "stderr_has"):
                assert expect.get(key, "").strip() in result["out"], name


def test_packages_let_in_raw_work():
    for package in ("matplotlib", "pandas", "pydantic"):
        pytest.importorskip(package, reason="preset data's packages are not installed")
    programs = list(guarded.programs(FOLDER / "data.txt"))
    # No guest has the audit hook where packages are let in raw: they may ask for programs, as
    # matplotlib does where it finds no list of the fonts yet, and go on without.
    results = guarded.run([cells for _, cells in programs], preset="data", arm=False)
    for (name, _), result in zip(programs, results, strict=True):
        assert (result["denied"], result["error"]) == ([], None), (name, result["out"])
