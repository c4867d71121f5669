"""``__getattribute__`` of one's own may hand on to the next; nobody else's is named."""

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


@pytest.mark.parametrize(
    "source",
    [
        "f.__getattribute__('x')",
        "type.__getattribute__(object, 'x')",
        "object().__getattribute__('x')",
        "object.__getattribute__ = 1",
        "del object.__getattribute__",
    ],
)
def test_any_other_way_to_it_is_refused(source):
    assert [finding.rule for finding in analyse(source, SAFE)] == ["attribute-not-allowed"]


@pytest.mark.parametrize("name", ["__builtins__", "__import__", "__spec__"])
def test_captured_output_takes_no_name_of_the_interpreters(name):
    source = f"get_ipython().run_cell_magic('capture', '{name}', 'x = 1')"
    assert [finding.rule for finding in analyse(source, SAFE)] == ["name-not-allowed"]
