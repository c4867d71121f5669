"""In what annotations that are text are evaluated."""

import builtins
import os
import sys
from types import ModuleType

from cellblock.guest.guards import stdlib


def test_a_loaded_modules_namespace_counts_for_nothing_the_cells_own_does(monkeypatch):
    bare, cells = ModuleType("bare"), ModuleType("__main__")
    bare.__dict__["secret"] = cells.__dict__["own"] = 1
    monkeypatch.setitem(sys.modules, "under.another.name", bare)
    monkeypatch.setitem(sys.modules, "__main__", cells)
    assert stdlib._harmless(vars(bare)) == {}
    assert stdlib._harmless(vars(os)) == {}
    assert stdlib._harmless({"secret": 1, "__builtins__": builtins}) == {}
    assert stdlib._harmless({"secret": 1, "__builtins__": vars(builtins)}) == {}
    assert stdlib._harmless({"given": 1, "__builtins__": {}}) == {"given": 1, "__builtins__": {}}
    assert stdlib._harmless(vars(cells))["own"] == 1
    assert stdlib._harmless({"given": 1, "module": os}) == {"given": 1}
