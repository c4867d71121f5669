"""The threat model names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    line.rsplit("|", 2)[1]
    for line in (ROOT / "docs" / "threat-model.md").read_text().splitlines()
    if line.count("|") == 6 and ".py" in line
]
#: A file of tests, and after it the families of programs that it runs for the row.
CITED = re.compile(r"`([\w/]+(?:\.py)?)`(?: \(((?:`[\w*]+`(?:, )?)+))?")


def found(cited):
    return [
        path
        for folder in ("", "escapes", "jupyter/lab")
        if (path := ROOT / "tests" / folder / cited).exists()
    ]


def test_every_class_of_attacks_names_its_tests():
    assert len(ROWS) > 30


@pytest.mark.parametrize("cell", ROWS)
def test_the_tests_it_names_exist(cell):
    for cited, families in CITED.findall(cell):
        assert found(cited), cited
        for family in re.findall(r"`([\w*]+)`", families):
            programs = ROOT / "tests" / "escapes"
            assert any(programs.glob(f"**/{family}/*.py")) or any(
                programs.glob(f"**/{family}.py")
            ), family
