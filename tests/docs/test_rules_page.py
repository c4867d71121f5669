"""The page of the rules: what it says is refused is, by that rule, and what stands beside it is not."""

import re

import pytest

from support.check_judge import findings_of_cells
from support.kernels import ROOT

PAGE = (ROOT / "docs" / "rules.md").read_text("utf-8")
SECTIONS = (section.partition("\n") for section in PAGE.split("\n## ")[1:])
EXAMPLES = [
    (rule, block)
    for rule, _, text in SECTIONS
    for block in re.findall(r"^```i?python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]
#: Those that take more than a policy and a cell.
ELSEWHERE = {"cell-not-approved", "template-definitions"}


def refused(source):
    """Return the rules that a cell breaks which comes behind another."""
    return {finding.rule for finding in findings_of_cells("x = 1", source)[1]}


def test_there_are_examples():
    assert len(EXAMPLES) > 8


@pytest.mark.parametrize(("rule", "example"), [e for e in EXAMPLES if e[0] not in ELSEWHERE])
def test_an_example_is_refused_by_its_rule_and_the_other_is_not(rule, example):
    lines = example.splitlines()
    bad = [line.partition("  # refused")[0].rstrip() for line in lines if "  # refused" in line]
    good = [line.partition("  #")[0] for line in lines if "  # refused" not in line]
    assert bad
    assert all(refused(line) == {rule} for line in bad)
    assert refused("\n".join(good)) == set()
