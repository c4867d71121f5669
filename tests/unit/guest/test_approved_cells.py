"""What a guest leaves out where cells are approved: what lies beside the notebook, and prompts."""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec, module_from_spec

import pytest

from cellblock.guest.library_patches import (
    NO_PROMPT,
    PROMPTS,
    SAFE_PATH,
    keep_cycles_from_being_code,
    keep_pythons_to_installed_modules,
)
from cellblock.guest.setup import keep_to_installed_modules


def test_imports_and_pythons_that_cells_start_look_past_the_working_folder(monkeypatch, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    monkeypatch.setattr(sys, "path", ["/usr/lib", str(link), str(tmp_path), "/opt"])
    monkeypatch.setattr(os, "environ", {})
    keep_to_installed_modules(str(tmp_path))
    assert sys.path == ["/usr/lib", "/opt"]
    assert os.environ == {"PYTHONSAFEPATH": "1"}


#: What adds the working folder to ``sys.path`` by itself, whatever a cell has it do.
ADD_THE_FOLDER = {
    "timeit": "import timeit\ntimeit.main(['-n1', '-r1', 'pass'])",
    "pydoc": "import pydoc\npydoc._adjust_cli_sys_path()",
    "unittest": "import unittest\nunittest.TestLoader().discover('.')",
}
#: A module that lies there alone, and unittest's discovery would import.
BESIDE = "test_beside"


@pytest.fixture
def as_a_cell(monkeypatch, tmp_path):
    """Return a function that executes source as an approved cell would, beside a module."""
    (tmp_path / f"{BESIDE}.py").write_text("ran = True")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "helper.py").write_text("helps = True")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "argv", ["pydoc"])
    kept = set(sys.modules)
    keep_to_installed_modules(str(tmp_path))
    yield lambda source: exec(compile(source, "/tmp/ipykernel_1/1.py", "exec"), {})
    for name in set(sys.modules) - kept:
        del sys.modules[name]


@pytest.mark.parametrize("program", ADD_THE_FOLDER)
def test_no_library_has_imports_look_in_the_working_folder(as_a_cell, program):
    before = len(sys.path)
    as_a_cell(ADD_THE_FOLDER[program])
    assert len(sys.path) == before + 1, "some take their entry out again by its place"
    with pytest.raises(ModuleNotFoundError):
        as_a_cell(f"import {BESIDE}")
    assert BESIDE not in sys.modules


@pytest.mark.parametrize(
    "names",
    [
        "sys.path.insert(0, '.')",
        "sys.path.append(os.getcwd())",
        "sys.path.extend(['', 'src'])",
        "sys.path += (folder for folder in ['.'])",
        "sys.path[0:0] = ['']",
        "sys.path.append('/')\nsys.path[-1] = '.'",
        "list(map(sys.path.append, ['src/..']))",
    ],
)
def test_a_cell_may_have_imports_look_in_the_working_folder(as_a_cell, names):
    as_a_cell(f"import os, sys\n{names}\nimport {BESIDE}")
    as_a_cell(ADD_THE_FOLDER["unittest"])
    assert sys.modules[BESIDE].ran


def test_other_folders_may_be_added_by_anything(as_a_cell):
    as_a_cell("import unittest\nunittest.TestLoader().discover('src')\nimport helper")
    as_a_cell("import sys\nsys.path.append('\\0')\nsys.path.append(len)\nsys.path.remove(len)")
    as_a_cell("import copy, pickle, sys\nassert pickle.loads(pickle.dumps(sys.path)) == sys.path")


@pytest.mark.parametrize(
    ("own", "given", "seen"),
    [
        (SAFE_PATH, {"MINE": "1"}, "MINE"),
        ({"HOME": "/"}, None, "HOME"),  # a cell has emptied the guest's
    ],
)
def test_a_python_looks_past_the_working_folder_whatever_its_environment_is(
    monkeypatch, tmp_path, own, given, seen
):
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    monkeypatch.setattr(os, "environ", dict(own))
    keep_pythons_to_installed_modules()
    (tmp_path / "colorsys.py").write_text("print('beside')")
    begun = [sys.executable, "-c", f"import colorsys, os; print(os.environ[{seen!r}])"]
    shown = f"{(own | (given or {}))[seen]}\n".encode()
    by_name = subprocess.run(begun, env=given, cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    assert by_name.stdout == shown
    by_place = (begun, -1, None, None, subprocess.PIPE, None, None, True, False, tmp_path, given)
    with subprocess.Popen(*by_place) as process:
        assert process.communicate()[0] == shown


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
    with pytest.raises(RuntimeError, match="what is typed at one"):
        module.interact()


def test_no_shell_for_terminals_asks(fresh):
    module = fresh("IPython.terminal.interactiveshell")
    PROMPTS["IPython.terminal.interactiveshell"](module)
    with pytest.raises(RuntimeError, match="what is typed at one"):
        module.TerminalInteractiveShell.interact(None)


def test_help_neither_asks_nor_imports_what_it_is_told(fresh, monkeypatch, tmp_path, capsys):
    (tmp_path / "lies_beside.py").write_text("print('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    module = fresh("pydoc")
    PROMPTS["pydoc"](module)
    ask = module.Helper()
    with pytest.raises(RuntimeError, match="what is typed at one"):
        ask()
    with pytest.raises(ImportError, match="No Python documentation found"):
        module.resolve("lies_beside")
    assert "imported" not in capsys.readouterr().out
    assert module.locate("os.path.join") is os.path.join
    assert module.locate("len") is len


#: Settings of matplotlib's that name code or programs, choose between programs, or are TeX.
CODE = """
animation.codec: evil
animation.html: html5
animation.writer: imagemagick
ps.usedistiller: xpdf
savefig.format: pgf
text.usetex: True
toolbar: toolmanager
webagg.address: 0.0.0.0
animation.convert_args: -x
animation.convert_path: ./evil
animation.ffmpeg_args: -x
animation.ffmpeg_path: ./evil
figure.hooks: os:system
pgf.preamble: evil
pgf.texsystem: lualatex
text.latex.preamble: evil
"""
IMPORTS = """
from cellblock.guest.library_patches import SETTINGS, patch_when_imported
patch_when_imported(SETTINGS)
import matplotlib as mpl
own, default = mpl.rcParams, mpl.rcParamsDefault
def show():
    changed = [key for key in own if own._get(key) != default._get(key) and key != "backend"]
    print(changed, own["backend"], own["lines.linewidth"])
show()
mpl.rcParams.update(default)
mpl.rc_file("matplotlibrc")
show()
import matplotlib.style
mpl.style.use("looks")
show()
mpl.style.use("classic")
own["animation.ffmpeg_path"] = "mine"
print(own["animation.ffmpeg_path"])
"""


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize("backend", ["", "svg"])
def test_no_setting_that_names_code_is_taken_from_a_file(tmp_path, backend):
    for name, width in (("matplotlibrc", 7), ("looks", 8)):
        settings = f"{CODE}lines.linewidth: {width}\nbackend: module://evil\n"
        (tmp_path / name).write_text(settings if name == "matplotlibrc" else settings[:-24])
    environment = {"MPLBACKEND": backend, "MPLCONFIGDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    first, again, style, own = ended.stdout.splitlines()
    for line, width in ((first, 7), (again, 7), (style, 8)):
        assert line.startswith("['lines.linewidth'] ")
        assert line.endswith(f" {width}.0")
        assert "evil" not in line
    assert backend in first
    assert own == "mine"
    said = "figure.hooks of matplotlibrc is not taken where cells are approved: set it in a cell"
    assert said in ended.stderr
    assert "classic" not in ended.stderr


def test_a_cycle_has_no_attributes():
    class Before311:
        class _DunderChecker(ast.NodeVisitor):
            """Stands for matplotlib's, which looks for names with two underscores."""

    keep_cycles_from_being_code(Before311)
    check = Before311._DunderChecker()
    check.visit(ast.parse("cycler('color', ['r', 'g']) + cycler(lw=[1, 2])"))
    with pytest.raises(ValueError, match="an attribute in a cycle: gi_frame"):
        check.visit(ast.parse("(x for x in 'a').gi_frame"))
