"""What can be imported from cellblock is there, is typed, and costs nothing until it is used."""

import ast
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import cellblock

SAID = ("execute", "get", "set", "save", "load", "upload", "download")
STUB = ast.parse(Path(cellblock.__file__).with_suffix(".pyi").read_text())


def test_names_are_there_and_no_other():
    for name in cellblock.__all__:
        assert getattr(cellblock, name) is not None, name
    with pytest.raises(AttributeError, match="module 'cellblock' has no attribute 'nothing'"):
        _ = cellblock.nothing


def test_help_and_dir_show_the_names_and_what_each_parameter_means():
    assert {*cellblock.__all__} <= {*dir(cellblock)}
    shown = pydoc.render_doc(cellblock, renderer=pydoc.plaintext)
    for name in ("class Sandbox", "class Policy", "class Result", "execute("):
        assert name in shown
    for one in (cellblock.Sandbox, *map(vars(cellblock.Sandbox).get, SAID)):
        for name in inspect.signature(one).parameters.keys() - {"self", "overwrite"}:
            assert f"``{name}" in one.__doc__, (one, name)


def test_type_checkers_are_told_the_same_names_from_the_same_places():
    told = {
        alias.name: node.module
        for node in STUB.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted([*told, "__version__"]) == sorted(cellblock.__all__)
    for name, module in told.items():
        assert f"cellblock.{cellblock._HOME.get(name, 'api.results')}" == module
    assert Path(cellblock.__file__).with_name("py.typed").exists()


def test_importing_the_package_imports_nothing_else():
    script = (
        "import sys; before = set(sys.modules); import cellblock;"
        "print(sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['cellblock']"
