"""What an import at run time gives, also where the source check did not see it."""

import operator
import os
import random
import sys

import pytest

from cellblock.analysis import Rules
from cellblock.analysis.names import attribute_allowed
from cellblock.guest.guards import facades
from cellblock.guest.guards.access import guarded_getattr, read
from cellblock.guest.runner import RulesInForce
from cellblock.guest.violations import AttributeViolation, ImportViolation

#: Loaded here already: what is loaded for a cell freezes the classes of this process.
ALLOWED = {"math": None, "operator": None, "random": None, "sys": frozenset({"modules", "path"})}


@pytest.fixture
def importer():
    rules = Rules(language=True, modules=ALLOWED, raw_modules=frozenset(), magics=frozenset())
    return facades.Importer(RulesInForce(rules))


@pytest.mark.parametrize(
    "take",
    [
        lambda importer: importer.import_("os"),
        lambda importer: importer.import_("os.path", fromlist=("join",)),
        lambda importer: importer.import_("random", level=1),
        lambda importer: importer.import_("pytest", fromlist=[]),  # as C code asks
        lambda importer: importer.take("os", ("system",)),
        lambda importer: importer.take("random", ("_os",)),
        lambda importer: importer.take("sys", ("settrace",)),
    ],
)
def test_a_module_that_is_not_allowed_is_not_imported(importer, take):
    with pytest.raises(ImportViolation):
        take(importer)


def test_a_facade_shows_public_names_and_no_module(importer, monkeypatch):
    monkeypatch.setattr(random, "__all__", [*random.__all__, "_os"])
    shown = vars(importer.import_("random"))
    assert shown["random"] is random.random  # positive control
    assert random._os is os
    assert not [name for name, value in shown.items() if type(value) is type(os)]


def test_a_name_that_a_facade_lacks_is_refused_with_the_reason_and_the_remedy(importer):
    facade = importer.import_("sys")
    for name in ("settrace", "exit", "argv"):
        with pytest.raises(AttributeViolation, match=r"module-name-not-allowed: sys\.\w+ is not"):
            getattr(facade, name)
    assert [getattr(facade, "exit", 7), hasattr(facade, "exit")] == [7, False]


def test_a_facade_says_of_a_name_that_the_module_lacks_what_python_says(importer):
    with pytest.raises(
        AttributeError, match=r"^module 'random' has no attribute 'nothing'$"
    ) as got:
        _ = importer.import_("random").nothing
    assert type(got.value) is AttributeError


def test_what_explains_a_missing_name_hands_out_nothing(importer):
    facade = importer.import_("random")
    assert "__getattr__" in dir(facade)  # positive control
    assert "__getattr__" not in read(facade, "__dict__")
    explain = read(facade, "__getattr__")
    for of in ("__globals__", "__closure__", "__code__"):
        with pytest.raises(AttributeViolation):
            guarded_getattr(explain, of)
    kept = [cell.cell_contents for cell in vars(facade)["__getattr__"].__closure__]
    assert not [value for value in kept if type(value) is type(os)]


def test_a_facade_that_lacks_nothing_is_read_as_fast_as_a_module(importer):
    assert "__getattr__" not in vars(importer.import_("math"))


def test_sys_modules_says_what_is_loaded_and_hands_out_none_of_it(importer):
    loaded = importer.import_("sys").modules
    assert "os" in loaded
    assert len(loaded) == len(sys.modules)
    with pytest.raises(ImportViolation):
        loaded["os"]


@pytest.mark.parametrize("name", ["attrgetter", "methodcaller"])
def test_what_reads_by_name_takes_free_names_alone(importer, name):
    make = getattr(importer.import_("operator"), name)
    assert make("upper" if name == "methodcaller" else "upper.__name__")("a") in {"A", "upper"}
    with pytest.raises(AttributeViolation):
        make("__reduce_ex__")
    assert getattr(operator, name)("__reduce_ex__")  # positive control


def test_a_facade_lists_no_name_that_cells_may_not_read(importer):
    facade = importer.import_("operator")
    assert {"add", "__name__", "__doc__"} <= set(dir(facade))
    assert [name for name in dir(facade) if not attribute_allowed(name)] == []
