"""What a guest leaves out where cells are approved: what lies beside the notebook, and prompts."""

import os
import sys
from importlib.util import find_spec, module_from_spec
from types import SimpleNamespace

import pytest

from cellblock.guest.library_patches import NO_PROMPT, PROMPTS
from cellblock.guest.setup import keep_to_installed_modules


def test_imports_and_pythons_that_cells_start_look_past_the_working_folder(monkeypatch, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    monkeypatch.setattr(sys, "path", ["/usr/lib", str(link), str(tmp_path), "/opt"])
    monkeypatch.setattr(os, "environ", {})
    keep_to_installed_modules(str(tmp_path))
    assert sys.path == ["/usr/lib", "/opt"]
    assert os.environ == {"PYTHONSAFEPATH": "1"}


@pytest.fixture
def fresh():
    """Return a module as it is before it is patched, to be changed."""

    def made(name):
        spec = find_spec(name)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return made


WAYS = {
    "set_trace": lambda pdb: pdb.set_trace(),
    "a debugger's set_trace": lambda pdb: pdb.Pdb().set_trace(),
    "run": lambda pdb: pdb.run("1"),
    "runcall": lambda pdb: pdb.runcall(lambda: 1),
    "cmdloop": lambda pdb: pdb.Pdb().cmdloop(),
    "post_mortem": lambda pdb: pdb.post_mortem(_traceback()),
}


def _traceback():
    try:
        int("x")
    except ValueError as error:
        return error.__traceback__


@pytest.mark.parametrize("way", WAYS)
def test_no_debugger_asks(fresh, way):
    module = fresh("pdb")
    PROMPTS["pdb"](module)
    with pytest.raises(RuntimeError) as caught:
        WAYS[way](module)
    assert str(caught.value) == NO_PROMPT


def test_no_console_asks(fresh):
    module = fresh("code")
    PROMPTS["code"](module)
    with pytest.raises(RuntimeError, match="what is typed into one"):
        module.interact()
    shell = SimpleNamespace(InteractiveShellEmbed=type("Embedded", (), {}))
    PROMPTS["IPython.terminal.embed"](shell)
    with pytest.raises(RuntimeError, match="what is typed into one"):
        shell.InteractiveShellEmbed().mainloop()
