"""``__getattribute__`` of one's own may hand on to the next, which checks the name."""

import pytest

from cellblock.analysis import analyse
from unit.analysis.rules_for_tests import SAFE


@pytest.mark.parametrize(
    "source",
    [
        "class C:\n def __getattribute__(self, n): return super().__getattribute__(n)",
        "class C:\n def __getattribute__(self, n): return object.__getattribute__(self, n)",
        "class C(B):\n def __getattribute__(self, n): return super(C, self).__getattribute__(n)",
    ],
)
def test_handing_on_is_allowed(source):
    assert analyse(source, SAFE) == ()


@pytest.mark.parametrize("name", ["__builtins__", "__import__", "__spec__"])
def test_captured_output_takes_no_name_of_the_interpreters(name):
    source = f"get_ipython().run_cell_magic('capture', '{name}', 'x = 1')"
    assert [finding.rule for finding in analyse(source, SAFE)] == ["name-not-allowed"]


@pytest.mark.parametrize("name", ["<read>", "a.b", "a-b", '"x y"', "--=x"])
def test_captured_output_takes_the_name_of_a_variable_alone(name):
    source = f"get_ipython().run_cell_magic('capture', {name!r}, 'x = 1')"
    rules = {finding.rule for finding in analyse(source, SAFE)}
    assert rules == {"argument-not-allowed"}


@pytest.mark.parametrize("line", ["", "out", "größe", "--no-stderr out", "out --no-display"])
def test_captured_output_takes_options_and_any_variable(line):
    source = f"get_ipython().run_cell_magic('capture', {line!r}, 'x = 1')"
    assert analyse(source, SAFE) == ()
