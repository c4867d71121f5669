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


@pytest.fixture
def environment(tmp_path):
    """Make an environment that holds nothing but a .pth file; return its Python."""
    folder = tmp_path / "packages"
    folder.mkdir()
    made = tmp_path / "environment"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(made)
    own = made / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    def leading_to(make):
        (own / "elsewhere.pth").write_text(f"{make(folder)}\n{OURS}\n")
        return str(made / "bin" / "python")

    return leading_to


@pytest.mark.parametrize(
    ("packages", "policy"),
    [(named_so, "data"), (target, "safe"), (target, "data"), (no_records, "data")],
)
def test_cells_run_and_what_lies_beside_the_packages_is_unreadable(
    start, environment, packages, policy, tmp_path
):
    kernel = start(argv=[environment(packages), *argv_for(policy)[1:]])

    reply, _ = kernel.run("1")
    assert reply["status"] == "ok", reply
    _, failed = kernel.run("import json\njson.loads('{')")
    assert "raise JSONDecodeError" in reading.traceback(failed), "errors quote the library"
    assert kernel.run("display?")[0]["status"] == "ok"
    if policy == "safe":
        return

    reply, published = kernel.run("import numpy\nnumpy.linalg.inv([[1]])\nnumpy.array('x', int)")
    assert reply["ename"] == "ValueError", reply
    assert reading.traceback(published)
    if packages is target:
        code = "numpy.loadtxt('{}', str)"
        beside, _ = kernel.run(code.format(tmp_path / "packages" / "beside.txt"))
        package, _ = kernel.run(code.format(tmp_path / "packages" / "six.py"))
        assert beside["ename"] == "PermissionError", beside
        assert package["ename"] != "PermissionError", package
