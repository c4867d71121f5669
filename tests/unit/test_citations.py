"""What documents, docstrings and comments cite is in the tree: decisions, promises, modules, tests."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import cellblock

PACKAGE = Path(cellblock.__file__).parent
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
#: Packages whose modules are cited without ``cellblock``.
PACKAGES = "|".join(sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
#: What looks like a module: an address, a key of JSON data, a widget's target.
NO_MODULES = {"api.example.org", "policy.enforced_capabilities", "jupyter.widget.control"}

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="only the source tree has documents")


def cited(pattern, paths):
    """Yield what matches in files, and where."""
    for path in paths:
        for found in re.finditer(pattern, path.read_text("utf-8")):
            yield found[1], path.relative_to(ROOT)


@cache
def names_in(module):
    """Return the names that a module has anything of: classes, attributes, variables, imports."""
    found = set()
    for node in ast.walk(ast.parse(module.read_bytes())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.alias(name=name):
                found.add(name)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
    return found


def is_there(dotted):
    """Return whether a name, from this package inwards, is a module's or in one."""
    place, parts = PACKAGE, dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    module = place / f"{parts[0]}.py"
    if not module.exists():
        return {*parts} <= names_in(place / "__init__.py")
    return {*parts[1:]} <= names_in(module)


def test_every_decision_that_is_cited_has_its_page():
    pages = {path.name[:4] for path in (DOCS / "adr").glob("[0-9]*.md")}
    found = [*cited(r"\bADR (\d{4})\b", [*PAGES, *SOURCES, *TESTS])]
    assert len(found) > 100
    assert [each for each in found if each[0] not in pages] == []


def test_every_promise_that_is_cited_is_made():
    made = {name for name, _ in cited(r"(?m)^\| (P\d+) \|", [DOCS / "promises.md"])}
    found = [*cited(r"\b(P\d{1,2})\b", [*PAGES, *SOURCES, *TESTS])]
    assert len(found) > 100
    assert [each for each in found if each[0] not in made] == []


def test_no_list_is_cited_that_is_not_in_the_tree():
    lists = r"\b((?:[Rr]equirements?|[Ii]ssues?) #?\d[\d.]*)"
    assert [*cited(lists, [*PAGES, *SOURCES, *TESTS])] == []


def test_every_module_that_is_cited_is_there_and_has_the_name():
    whole = cited(rf"\bcellblock\.((?:{PACKAGES})\.\w[\w.]*\w)", [*PAGES, *SOURCES])
    inner = cited(rf"`((?:{PACKAGES})(?:\.[A-Za-z_]\w*)+)[`(]", [*PAGES, *SOURCES])
    found = [*whole, *inner]
    assert len(found) > 500
    assert [each for each in found if each[0] not in NO_MODULES and not is_there(each[0])] == []


def test_positive_control_a_module_or_name_that_is_gone_is_noticed():
    assert is_there("host.guests.zygote.Zygote")
    assert not is_there("host.guests.zygote.Golem")
    assert not is_there("host.golem")
    assert not is_there("analysis.golem.names")


def test_every_file_of_tests_and_tools_that_pages_cite_is_there():
    found = [*cited(r"(?<![\w/])((?:tests|tools)/[\w/.-]+\w)", PAGES)]
    assert len(found) > 50
    elsewhere = "tools/cellblock"  # a project on a GitLab server
    assert [one for one in found if one[0] != elsewhere and not (ROOT / one[0]).exists()] == []
