"""What completion and inspection look up runs no code that a cell wrote."""

import functools
import types
from dataclasses import replace

import pytest
from IPython.core.guarded_eval import EVALUATION_POLICIES

from cellblock.guest import inspection
from unit.analysis.rules_for_tests import SAFE

#: What cells would have run; each entry is a name.
ran = []


class Told:
    def __class_getitem__(cls, item):
        ran.append(item)

    def __getattr__(self, name):
        ran.append(name)

    def __getitem__(self, item):
        ran.append(item)


class Descriptor:
    def __get__(self, instance, owner=None):
        ran.append("descriptor")


class Meta(type):
    def __getattr__(cls, name):
        ran.append(name)


class Described(metaclass=Meta):
    pass


class Plain:
    own = Descriptor()
    wrapped = classmethod(Descriptor())
    kept = 7

    @property
    def computed(self):
        ran.append("property")

    @functools.cached_property
    def cached(self):
        ran.append("cached")


class Missing(dict):
    def __missing__(self, key):
        ran.append(key)


def module():
    made = types.ModuleType("made")
    made.known, made.__getattr__ = 7, ran.append
    return made


NAMES = {
    "Told": Told, "told": Told(), "Described": Described, "described": Described(), "plain": Plain(),
    "Plain": Plain, "missing": Missing(kept=7), "made": module(), "rows": [7], "table": {"kept": 7},
    "__builtins__": {"getattr": getattr, "len": len},
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_ran():
    """Forget what pytest itself asked these objects."""
    ran.clear()


#: IPython's word on what is read without running code, and one on which nothing can rest: it takes
#: a class for a library's that says so itself.
POLICIES = {
    "IPython's": EVALUATION_POLICIES["limited"],
    "lenient": types.SimpleNamespace(can_get_attr=lambda *_: True, can_get_item=lambda *_: True),
}


def look_up(code, policy="IPython's"):
    return inspection.evaluate(code, NAMES, SAFE, POLICIES[policy])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "code",
    [
        "Told[1]", "told.asked", "told[1]", "Described.asked", "described.asked", "plain.own",
        "Plain.own", "Plain.wrapped", "plain.wrapped", "plain.computed", "plain.cached",
        "made.asked", "table[len(rows)]", "len(rows)", "rows; rows", "[7][rows[0]]",
    ],
)  # fmt: skip
def test_what_would_run_is_not_looked_up(code, policy):
    with pytest.raises(inspection.LookUpRefused):
        look_up(code, policy)
    assert ran == []


def test_what_a_cell_may_not_say_is_not_looked_up():
    with pytest.raises(inspection.LookUpRefused):
        look_up("rows.__class__.__subclasses__")


def test_a_dict_is_not_asked_for_what_it_lacks():
    assert look_up("missing['asked']") is None
    assert ran == []


def test_positive_control_what_is_stored_is_found():
    for code in ("rows[0]", "plain.kept", "Plain.kept", "missing['kept']", "made.known", "7"):
        assert look_up(code) == 7
    assert look_up("{'a': 1}") == {}
    assert ran == []


def test_wherever_cells_are_judged_so_is_what_is_looked_up():
    open_rules = replace(SAFE, language=False)
    assert SAFE.judges_cells
    assert replace(open_rules, admission=True).judges_cells
    assert not open_rules.judges_cells


def test_no_completer_of_a_cells_and_no_jedi_is_asked():
    found = types.SimpleNamespace(use_jedi=True, custom_matchers=[print], disable_matchers=[])
    shell = types.SimpleNamespace(Completer=found, user_ns={})
    inspection._evaluate_safely(shell, SAFE)
    assert (found.use_jedi, found.custom_matchers) == (False, [])
    assert "IPCompleter.custom_completer_matcher" in found.disable_matchers
    assert "IPCompleter.file_matcher" in found.disable_matchers
