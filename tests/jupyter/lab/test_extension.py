"""The JupyterLab extension as its user sees it, in a server of its own that has it."""

import pytest

from .conftest import ROOT, Desk, serving

EXTENSION = ROOT / "jupyterlab" / "cellblock_lab" / "labextension"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    if not (EXTENSION / "package.json").exists():
        pytest.skip("the extension is not built: run `make lab`")
    with serving(tmp_path_factory.mktemp("extension"), EXTENSION) as server:
        yield server


@pytest.fixture(scope="module")
def desk(lab, browser):
    made = Desk(lab, browser)
    yield made
    made.close()


def test_try(open_notebook):
    view = open_notebook(["import os, json\nx = 1", "y = 2\ny", "%usage", "%policy"], kernel="cellblock")
    for i in range(4):
        view.run(i)
    view.command("cellblock:show-panel")
    view.page.wait_for_timeout(2000)
    view.shot("ext-try")
    view.set_theme("dark")
    view.page.wait_for_timeout(1000)
    view.shot("ext-try-dark")
