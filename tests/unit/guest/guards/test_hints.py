"""Which annotations are evaluated, and in what those are that are text."""

import ast
import os
import sys
from types import ModuleType

from cellblock.guest.guards import stdlib
from cellblock.guest.rewriting import READ, rewrite


def test_a_loaded_modules_namespace_counts_for_nothing_the_cells_own_does(monkeypatch):
    bare, cells = ModuleType("bare"), ModuleType("__main__")
    bare.__dict__["secret"] = cells.__dict__["own"] = 1
    monkeypatch.setitem(sys.modules, "under.another.name", bare)
    monkeypatch.setitem(sys.modules, "__main__", cells)
    assert stdlib._harmless(vars(bare)) == {}
    assert stdlib._harmless(vars(os)) == {}
    assert stdlib._harmless(vars(cells))["own"] == 1
    assert stdlib._harmless({"given": 1, "module": os}) == {"given": 1}


def test_annotations_above_a_future_import_are_guarded_those_below_stay_as_written():
    source = "a: x.__self__\nfrom __future__ import annotations\nb: x.__self__\n"
    for text, above in ((False, f"{READ}(x, '__self__')"), (True, "x.__self__")):
        body = rewrite(ast.parse(source), text=text).body
        annotated = [ast.unparse(each.annotation) for each in body if type(each) is ast.AnnAssign]
        assert annotated == [above, "x.__self__"]
