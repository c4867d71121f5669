"""Preset data after a restoration: arrays, tables, figures and fits go on."""

import os
import signal
import time
from ast import literal_eval

import pytest

from support import processes, reading

for module in ("matplotlib", "pandas", "pyarrow", "sklearn"):
    pytest.importorskip(module, reason="extra 'data' is not installed")

SETUP = """
import time
import numpy as np, pandas as pd, pyarrow as pa, pyarrow.compute as pc
import matplotlib.pyplot as plt
from sklearn.linear_model import LinearRegression
from sklearn.ensemble import HistGradientBoostingClassifier
square, mine = np.arange(9.0).reshape(3, 3) + np.eye(3), np.random.default_rng(7)
large = np.random.random((200, 200))
np.linalg.inv(large)
table = pd.DataFrame({'k': list('abab'), 'v': [1, 2, 3, 4]})
column = pa.array(range(100_000))
arrow = pa.table({'v': column, 'k': pa.array([n % 3 for n in range(100_000)])})
arrow.group_by('k').aggregate([('v', 'sum')])
X = large[:, :5]; y = (X[:, 0] > 0.5).astype(int)
trees = HistGradientBoostingClassifier(max_iter=3).fit(X, y)
line = LinearRegression().fit(X, X @ np.arange(5))
figure, axes = plt.subplots()
axes.plot([1, 3, 2])
figure.canvas.draw()
plt.close(figure)
time.monotonic(), time.sleep(0.11)
"""


@pytest.fixture(scope="module")
def data(start_shared):
    """A kernel whose guest was killed after it had used everything, and what it had drawn."""
    kernel = start_shared("data")
    run(kernel, SETUP)
    return kernel


def run(kernel, code):
    mid = kernel.execute_send(code)
    reply = kernel.reply(mid, timeout=60)["content"]
    published = kernel.until_idle(mid)
    assert reply["status"] == "ok", (code, reply, reading.card_text(published))
    return published


def value(kernel, code):
    return literal_eval(reading.result(run(kernel, code)))


def lose(kernel):
    os.kill(kernel.sole_guest(), signal.SIGKILL)
    shown = kernel.until(lambda m: m["msg_type"] == "display_data")
    (card,) = reading.cards(shown, "outcome")
    assert (card["reason"], card["state"]) == ("crashed", "restored")
    # A cell that had just ended may have been run again: that is said, and nothing is missing.
    assert [said for said in card["lost"] if not said.endswith("was run again")] == []


LOOKS = {
    "arrays": "(square @ square.T).tolist(), float(np.linalg.det(square).round(6))",
    "a solver with threads": "bool(np.allclose(np.linalg.inv(large) @ large, np.eye(200)))",
    "tables": "table.groupby('k').v.sum().to_dict(), table.merge(table, on='k').shape",
    "arrow": "pc.sum(column).as_py(), sorted(arrow.group_by('k').aggregate([('v', 'sum')])['v_sum'].to_pylist())",
    "arrow to pandas": "arrow.to_pandas().v.nlargest(3).tolist()",
    "a fitted line": "[round(float(c), 6) for c in line.coef_]",
    "fitted trees": "float(trees.score(X, y))",
    "a fit": "float(HistGradientBoostingClassifier(max_iter=3).fit(X, y).score(X, y))",
}


def test_what_was_there_and_what_is_made_anew_comes_out_as_before(data):
    before = {name: value(data, look) for name, look in LOOKS.items()}
    for _ in range(2):
        lose(data)
        assert {name: value(data, look) for name, look in LOOKS.items()} == before


def test_a_figure_is_shown_by_the_guest_that_took_over(data):
    lose(data)
    for code in ("axes.plot([2, 1]); display(figure)", "plt.plot([1, 2]); plt.show()"):
        shown = reading.of(run(data, code), "display_data")
        assert [c["data"]["image/png"][:5] for c in shown if "image/png" in c["data"]] == ["iVBOR"]


def test_numpy_draws_anew_globally_and_the_same_from_a_generator_of_ones_own(data):
    run(data, "np.random.seed(1); import time; time.monotonic(), time.sleep(0.11)")
    draw = "np.random.random(4).tolist(), np.random.permutation(50).tolist(), float(mine.random()), float(np.random.default_rng().random())"
    drawn = value(data, draw)
    run(data, "%undo")
    again = value(data, draw)
    assert [a == b for a, b in zip(drawn, again, strict=True)] == [False, False, True, False]
    lose(data)
    after = value(data, draw)
    assert drawn[0] != after[0] != again[0]


def test_a_library_that_looks_at_its_own_memory_map_is_used_for_the_first_time(data):
    lose(data)
    code = "from sklearn.cluster import KMeans\nKMeans(2, n_init=1).fit(X).labels_.shape"
    assert value(data, code) == (200,)


def test_threads_of_openmp_are_started_again(data):
    code = (
        "from sklearn._loss import HalfSquaredError\n"
        "wide = np.ones(20_000)\n"
        "float(HalfSquaredError().loss(wide, wide, n_threads=2).sum())"
    )
    assert value(data, code) == 0.0
    lose(data)
    assert value(data, code) == 0.0


#: Something that has a copy, though nothing of it goes on; and cells behind it that need none.
ONCE = {
    "a file that was mapped": "import mmap\nwith open('rows', 'w+b') as f:\n    f.write(b'a,b')\n"
    "    f.flush()\n    mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ).close()",
    "threads that ended": "from concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(2) as pool:\n    list(pool.map(abs, range(4)))",
    "processes that ended": "from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(2) as pool:\n    list(pool.map(abs, range(4)))",
}
PLAIN = (
    "table = pd.DataFrame({'a': [1, 2]})",
    "table.groupby('a').sum()",
    "table.style",  # draws an identity
    "import uuid; uuid.uuid4()",
    "axes.plot([1, 2]); display(figure)",
)


@pytest.mark.parametrize("policy", ["data", "safe"])
def test_a_plain_cell_has_no_copy_of_its_own(start, policy):
    kernel = start(policy)
    run(kernel, "x = 0")
    assert processes.until(kernel.copies)
    time.sleep(0.5)
    before = kernel.copies()
    for number in range(20):
        run(kernel, f"x += {number}")
    time.sleep(0.2)
    assert kernel.copies() == before


@pytest.mark.parametrize("kind", ONCE)
def test_ordinary_cells_have_no_copy_of_their_own(start, kind):
    kernel = start("data")
    run(kernel, "import pandas as pd, matplotlib.pyplot as plt; figure, axes = plt.subplots()")
    for code in PLAIN:  # what is imported or looked up once is
        run(kernel, code)
    run(kernel, ONCE[kind])
    assert processes.until(kernel.copies)

    def none_is_made():
        before = kernel.copies()
        for code in PLAIN:
            run(kernel, code)
        time.sleep(0.2)
        return kernel.copies() == before

    # That of the first cell may still be on its way.
    assert any(none_is_made() for _ in range(10))
    before = kernel.copies()
    mapped = "import mmap; kept = mmap.mmap(-1, 4096, flags=mmap.MAP_SHARED)"
    for code in (mapped, "x = 1"):
        run(kernel, code)
    assert processes.until(lambda: kernel.copies() != before)


def test_an_import_of_what_is_installed_is_run_again_and_finds_nothing_else(start):
    kernel = start("data")
    beside = kernel.world.work
    run(kernel, "x = 0")
    assert processes.until(kernel.copies)
    (beside / "parts").mkdir()
    first = kernel.copies()
    run(kernel, "import parts")  # of a folder, no event tells
    assert processes.until(lambda: kernel.copies() != first)
    before = processes.settled(kernel.copies)
    run(kernel, "import cycler, importlib.metadata as about; about.version('cycler')")
    time.sleep(0.2)
    assert kernel.copies() == before
    (beside / "parts").rmdir()
    (beside / "cycler.py").write_text("cycler = 'of the folder'")
    lose(kernel)
    assert value(kernel, "parts.__name__, cycler.cycler.__module__") == ("parts", "cycler")
    (beside / "other.py").write_text("here = True")
    assert value(kernel, "import other; other.here")
