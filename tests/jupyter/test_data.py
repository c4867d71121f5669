"""Preset data: tables and figures, the project folder, and no more than that."""

import pytest

from support import reading

pytest.importorskip("matplotlib", reason="extra 'data' is not installed")
pytest.importorskip("pandas", reason="extra 'data' is not installed")


@pytest.fixture(scope="module")
def data(start_shared):
    kernel = start_shared("data")
    kernel.world.write("a.csv", "fruit,count\napple,1\npear,2\n")
    run(kernel, "import pandas as pd\ntable = pd.read_csv('a.csv')")
    return kernel


def run(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", f"{reply['ename']}: {reply['evalue']}"
    return published


@pytest.mark.quick
def test_a_table_is_read_from_the_project_and_shown(data):
    shown = run(data, "pd.read_csv('a.csv')")
    (result,) = reading.of(shown, "execute_result")
    assert "<table" in result["data"]["text/html"]
    assert "pear" in result["data"]["text/html"]
    assert "pear" in result["data"]["text/plain"]


@pytest.mark.parametrize("first", ["%matplotlib inline\n", ""])
def test_a_figure_is_shown_with_the_cell_that_draws_it(data, first):
    code = f"{first}import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()"
    shown = reading.of(run(data, code), "display_data")
    assert [c["data"]["image/png"][:5] for c in shown if "image/png" in c["data"]] == ["iVBOR"]


@pytest.mark.quick
def test_a_figure_left_open_is_shown_at_the_end_of_its_cell(data):
    shown = run(data, "import matplotlib.pyplot as plt\nplt.plot([3, 1])\nNone")
    assert sum("image/png" in c["data"] for c in reading.of(shown, "display_data")) == 1
    assert reading.kinds(run(data, "None")) == []


@pytest.mark.parametrize(
    "code",
    [
        "pd.read_csv('/etc/passwd')",
        "table.to_csv('/tmp/out.csv')",
        "table.to_csv('here.csv')",
        "pd.read_csv('http://127.0.0.1:9/x.csv')",
    ],
)
def test_tables_neither_come_from_nor_go_to_other_places(data, code):
    run(data, "import pandas as pd\ntable = pd.DataFrame({'a': [1]})")
    reply, published = data.run(code)
    assert reply["status"] == "error"
    assert "The operator can allow it" in reading.traceback(published)


def test_arrays_are_written_raw_by_c_code_in_the_cells_own_frame(start, world):
    (world.work / "work").mkdir()
    kernel = start("data", world=world)
    run(kernel, "import numpy as np\nnp.arange(3.0).tofile('work/a.bin')")
    run(kernel, "assert np.fromfile('work/a.bin').tolist() == [0, 1, 2]")
    run(kernel, "np.arange(3).tofile('work/a.txt', sep=',')\nnp.fromfile('work/a.txt', sep=',')")
    for code in ("np.fromfile('/etc/passwd')", "np.arange(3).tofile('/tmp/a.bin')"):
        # The others where there are namespaces: it is not there, or not to be written.
        refused = {"PermissionError", "FileNotFoundError", "OSError"}
        assert kernel.run(code)[0]["ename"] in refused


def test_os_open_and_programs_work(data):
    for code in ("import os", "open(os.devnull)", "!id"):
        assert data.run(code)[0]["status"] == "ok"
