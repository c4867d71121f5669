"""Kernels whose packages lie outside the environment: a .pth file leads there."""

import sys
import venv
from pathlib import Path

import pytest

import cellblock
from support import reading
from support.kernels import argv_for

PACKAGES = Path(pytest.__file__).resolve().parents[1]
OURS = Path(cellblock.__file__).resolve().parents[1]


def named_so(_folder):
    return PACKAGES


def target(folder, *, records=True):
    """Make what ``pip install --target`` makes, with something of the user's beside it."""
    for entry in PACKAGES.iterdir():
        if records or not entry.name.endswith(".dist-info"):
            (folder / entry.name).symlink_to(entry)
    (folder / "beside.txt").write_text("private")
    (folder / "beside.py").write_text("private = 1")
    return folder


def no_records(folder):
    return target(folder, records=False)


@pytest.fixture(params=[named_so, target, no_records])
def argv(request, tmp_path):
    """Return the command of an environment that holds nothing but a .pth file."""
    folder = tmp_path / "packages"
    folder.mkdir()
    made = tmp_path / "environment"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(made)
    own = made / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (own / "elsewhere.pth").write_text(f"{request.param(folder)}\n{OURS}\n")
    return lambda policy: [str(made / "bin" / "python"), *argv_for(policy)[1:]]


@pytest.mark.parametrize("policy", ["safe", "data"])
def test_cells_run_and_errors_quote_the_library(start, argv, policy):
    kernel = start(argv=argv(policy))

    reply, _ = kernel.run("1")
    _, failed = kernel.run("import json\njson.loads('{')")

    assert reply["status"] == "ok", reply
    assert "raise JSONDecodeError" in reading.traceback(failed)
    assert kernel.run("display?")[0]["status"] == "ok"


def test_packages_that_the_policy_lets_in_work(start, argv):
    kernel = start(argv=argv("data"))

    reply, published = kernel.run("import numpy\nnumpy.linalg.inv([[1]])\nnumpy.array('x', int)")

    assert reply["ename"] == "ValueError", reply
    assert reading.traceback(published)


@pytest.mark.parametrize("argv", [target], indirect=True)
def test_what_lies_beside_the_packages_stays_unreadable(start, argv, tmp_path):
    kernel = start(argv=argv("data"))
    code = "import numpy\nnumpy.loadtxt('{}', str)"

    beside, _ = kernel.run(code.format(tmp_path / "packages" / "beside.txt"))
    package, _ = kernel.run(code.format(tmp_path / "packages" / "six.py"))

    assert beside["ename"] == "PermissionError", beside
    assert package["ename"] != "PermissionError", package
