"""Preset data: tables and figures, the project folder, and no more than that."""

import time

import pytest

from support import machines, reading
from support.kernels import World

pytest.importorskip("matplotlib", reason="extra 'data' is not installed")
pytest.importorskip("pandas", reason="extra 'data' is not installed")


#: Seconds after a cell from which on changes of the project are seen.
PAUSE = 0.4


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
        "pd.read_csv('http://192.0.2.1:9/x.csv')",
    ],
)
def test_tables_neither_come_from_nor_go_to_other_places(data, code):
    run(data, "import pandas as pd\ntable = pd.DataFrame({'a': [1]})")
    reply, _ = data.run(code)
    assert "[cellblock: under policy data cells " in reply["evalue"]


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


def test_any_module_builtin_and_magic_is_to_be_had(data):
    data.world.write("beside.py", "kept = 7")
    data.world.write("colorsys.py", "raise SystemExit")  # which the standard library comes before
    time.sleep(PAUSE)
    run(data, "import os, sys, csv, beside, colorsys\nassert beside.kept == 7")
    run(data, "assert list(csv.reader(open('a.csv')))[1] == ['apple', '1']")
    run(data, "exec('x = 3')\nassert eval('x') == vars()['x'] == globals()['x'] == 3")
    run(data, "assert type(__builtins__).__name__ == 'module' and help")
    run(data, "%config InlineBackend.figure_format = 'png'\n%load_ext autoreload\n%env A=1")
    assert "a.csv" in reading.stream(run(data, "!ls"))
    assert reading.stream(run(data, "%%bash\necho 1")) == "1\n"


def test_a_file_that_is_changed_while_the_kernel_runs_is_seen_by_the_next_cell(data):
    data.world.write("later.txt", "1")
    look = "import os, time\ntime.sleep(0.01)\nopen('later.txt').read(), os.path.exists('new.txt')"
    assert reading.result(run(data, look)) == "('1', False)"
    data.world.write("new.txt", "")
    replaced = data.world.work / "later.tmp"  # as editors do
    replaced.write_text("2")
    replaced.rename(data.world.work / "later.txt")
    time.sleep(PAUSE)
    assert reading.result(run(data, look)) == "('2', True)"


POOLS = """
import multiprocessing
with multiprocessing.get_context(METHOD).Pool(2) as pool: found = pool.map(abs, [-1, 2])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_work_and_memory(data, method):
    run(data, POOLS.replace("METHOD", repr(method)))
    run(data, "assert found == [1, 2]")


def test_joblib_has_its_processes_without_a_warning(start):
    pytest.importorskip("joblib")
    if why := machines.no_bubblewrap():
        pytest.skip(f"no bubblewrap: {why}")
    world = World(backend="bubblewrap")
    kernel = start(world.policy('extends = "data"'), world=world)
    kernel.own_world = True
    code = "import joblib\njoblib.Parallel(n_jobs=2)(joblib.delayed(abs)(i) for i in (-1, 2))"
    published = run(kernel, code)
    assert (reading.result(published), reading.stream(published, "stderr")) == ("[1, 2]", "")


def test_pip_that_can_not_list_a_folder_says_which_and_what_to_write(start):
    kernel = start("data", world=World(backend="landlock"))
    kernel.own_world = True
    said = reading.stream(run(kernel, "import sys\nsys.path += ['/var']\n!pip list | wc"), "stderr")
    assert '"/var", where a package is installed from, and cells can\'t. In the policy:' in said
    assert "add.filesystem_read_roots = [" in said


def test_what_is_installed_is_said_to_be_and_what_is_not_says_where_to(data):
    installed = run(data, "%pip install numpy 'pandas>=1'\n!pip install numpy >/dev/null 2>&1")
    assert reading.kinds(installed) == ["stream"]
    assert reading.stream(installed).startswith("Requirement already satisfied: numpy ")
    script = run(data, "%%bash\npip install numpy")
    assert reading.stream(script).startswith("Requirement already satisfied: numpy ")
    missing = run(data, "%pip install numpy nosuchthing==1")
    said = reading.stream(missing, "stderr")
    assert said.startswith("Cells can't install packages, and this is not installed as asked: nos")
    assert "-m pip install nosuchthing==1\n" in said
    assert "ops.install = { index" in said


def test_programs_that_size_themselves_by_memory_hear_of_the_policys(data):
    asked = "import resource; resource.getrlimit(resource.RLIMIT_RSS)[1] == 8 << 30"
    assert reading.result(data.run(asked)[1]) == "True"
    in_a_program = "!ulimit -Hm"
    assert reading.stream(data.run(in_a_program)[1]).split() == [str(8 << 20)]  # KiB
