"""Which modules import which: no circle, and nothing from a package that is not declared.

import-linter (``make lint``) holds the order of packages. Here imports that only type checkers see
count, too, and so do those in functions: a circle of these is one for a reader.
"""

import ast
import re
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import cellblock

PACKAGE = Path(cellblock.__file__).parent
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
#: Edges that may close a circle, with the reason.
ALLOWED = {
    # ``Policy.preset`` is a constructor that programs call: its class is ``Policy``, and only what
    # loads files can make one.
    ("cellblock.policy.model", "cellblock.policy.load"),
}
#: Modules by the distribution that has them, where the names differ by more than their spelling.
DISTRIBUTIONS = {"zmq": "pyzmq", "pydantic_ai": "pydantic-ai-slim"}
#: What this project is built, documented and tested with is imported by no module of the package.
TOOLS = {"dist", "docs", "test", "test-core"}


def _name(path):
    parts = ("cellblock", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {_name(path): ast.parse(path.read_bytes()) for path in PACKAGE.rglob("*.py")}


def imported(tree):
    """Yield the modules that a tree imports, and names that it imports from one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(name, tree):
    """Return the modules of this package that a module imports."""
    for target in imported(tree):
        module = target if target in TREES else target.rpartition(".")[0]
        if module in TREES and module != name:
            yield module


def circle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " imports ".join(reversed(error.args[1]))
    return ""


def test_no_module_imports_one_that_imports_it_not_even_for_types():
    graph = {name: {*imports_of(name, tree)} for name, tree in TREES.items()}
    assert len(graph) > 200
    for module, target in ALLOWED:
        assert circle(graph), "no edge needs to be allowed any more"
        graph[module].remove(target)
    assert circle(graph) == ""


def test_each_packages_front_page_names_its_parts():
    # The table in ``cli.main`` names the commands, docs/architecture.md the packages.
    exempt = {"cellblock", "cellblock.cli"}
    missing = []
    for page in PACKAGE.rglob("__init__.py"):
        parts = [one.stem for one in page.parent.glob("*.py") if one != page]
        parts += [one.parent.name for one in page.parent.glob("*/__init__.py")]
        named = set(re.findall(r"[`.](\w+)`", ast.get_docstring(ast.parse(page.read_text())) or ""))
        if _name(page) not in exempt:
            missing += [f"{_name(page)}.{part}" for part in parts if part not in named]
    assert missing == []


def test_positive_control_a_circle_of_types_and_of_functions_is_found():
    typed = "if TYPE_CHECKING:\n    from cellblock.wire.frames import check\n"
    late = "def f():\n    from cellblock.wire import marks\n"
    graph = {
        "cellblock.wire.marks": {*imports_of("cellblock.wire.marks", ast.parse(typed))},
        "cellblock.wire.frames": {*imports_of("cellblock.wire.frames", ast.parse(late))},
    }
    assert circle(graph).count(" imports ") == 2


def test_each_import_in_a_function_says_why_it_is_there():
    lines = [line for path in PACKAGE.rglob("*.py") for line in path.read_text().splitlines()]
    late = [line for line in lines if "PLC0415" in line]
    assert len(late) > 20
    assert [line for line in late if not re.search(r"# noqa: PLC0415 - \w", line)] == []


# --- other packages -----------------------------------------------------------------------------


def distribution(module):
    top = module.partition(".")[0]
    return DISTRIBUTIONS.get(top, top.lower().replace("_", "-"))


def requirements():
    """Yield the distributions that the package declares, each with the comment that it has.

    A comment on the first line of a list is of all that it names.
    """
    project = tomllib.loads(PROJECT.read_text())["project"]
    lists = {"dependencies", *project["optional-dependencies"]} - TOOLS
    for name in sorted(lists):
        text = re.search(rf"^{name} = \[\n(.*?)^\]", PROJECT.read_text(), re.MULTILINE | re.DOTALL)[
            1
        ]
        of_all = text.strip().startswith("#")
        for line in text.splitlines():
            if (found := re.match(r'\s*"([\w.-]+)[^"]*",(\s*# \w)?', line)) and (
                found[1] != "cellblock"
            ):
                yield found[1].lower(), of_all or found[2] is not None


@pytest.mark.skipif(not PROJECT.exists(), reason="only the source tree has pyproject.toml")
def test_each_package_that_is_imported_is_declared_and_each_declared_is_imported_or_says_why():
    modules = {target for tree in TREES.values() for target in imported(tree)}
    others = {
        distribution(module)
        for module in modules
        if module.partition(".")[0] not in {*sys.stdlib_module_names, "cellblock"}
    }
    declared = dict(requirements())
    assert len(declared) > 30
    assert sorted(others - declared.keys()) == []
    without_reason = {name for name, has_reason in declared.items() if not has_reason}
    assert sorted(without_reason - others) == []
