"""Which annotations are evaluated, and in what those are that are text."""

import ast
import builtins
import os
import subprocess
import sys
from pathlib import Path
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
    assert stdlib._harmless({"secret": 1, "__builtins__": builtins}) == {}
    assert stdlib._harmless({"secret": 1, "__builtins__": vars(builtins)}) == {}
    assert stdlib._harmless({"given": 1, "__builtins__": {}}) == {"given": 1, "__builtins__": {}}
    assert stdlib._harmless(vars(cells))["own"] == 1
    assert stdlib._harmless({"given": 1, "module": os}) == {"given": 1}


#: In a process of its own, since hardening can't be taken back: what each hint comes to.
HINTS = """
import typing
from cellblock.guest.guards import access, stdlib
from unit.analysis.rules_for_tests import SAFE

stdlib._harden_hints(SAFE, {"int": int})
access.freeze(typing.ForwardRef)

def hint_of(text, module):
    made = type("Made", (), {"__annotations__": {"x": text}, "__module__": module})
    try:
        return typing.get_type_hints(made)["x"].__name__
    except Exception as error:
        return type(error).__name__

print(hint_of("int", "os"), hint_of("PathLike", "os"), hint_of("int.__subclasses__()", "os"))
"""


def test_a_hint_is_judged_and_finds_nothing_in_the_module_that_its_class_names():
    ran = subprocess.run(
        [sys.executable, "-c", HINTS],
        cwd=Path(__file__).parents[3],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "int NameError AttributeViolation\n"


def test_annotations_above_a_future_import_are_guarded_those_below_stay_as_written():
    source = "a: x.__self__\nfrom __future__ import annotations\nb: x.__self__\n"
    for text, above in ((False, f"{READ}(x, '__self__')"), (True, "x.__self__")):
        body = rewrite(ast.parse(source), text=text).body
        annotated = [ast.unparse(each.annotation) for each in body if type(each) is ast.AnnAssign]
        assert annotated == [above, "x.__self__"]
