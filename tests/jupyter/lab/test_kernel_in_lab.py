"""What a user of JupyterLab sees of the kernel, cell by cell."""

import pytest

GAPS = "On this machine cells can see the names"
DENIED = "cellblock did not run this cell: 2 findings"
DENIED_CELL = 'import gc, json\n\nx = 2\nrows = open("data/a.csv").readlines()'


def results(view, index):
    return [text.strip() for text in view.outputs(index).all_inner_texts() if GAPS not in text]


@pytest.mark.quick
def test_a_cell_gives_its_result_and_gaps_are_shown_above_the_first(open_notebook):
    view = open_notebook(["6 * 7", "print('a')\nprint('b')"], kernel="cellblock")
    view.run(0)
    view.run(1)
    view.shot("first-cell")
    assert results(view, 0) == ["42"]
    assert results(view, 1) == ["a\nb"]
    assert [view.prompt(index).inner_text() for index in (0, 1)] == ["[1]:", "[2]:"]
    cards = view.page.get_by_role("group", name=GAPS)
    assert cards.count() == view.cell(0).get_by_role("group", name=GAPS).count() <= 1


@pytest.mark.quick
def test_a_denied_cell_is_explained_and_costs_nothing(open_notebook):
    view = open_notebook(["x = 1", DENIED_CELL, "x"], kernel="cellblock")
    for index in range(3):
        view.run(index)
    view.cell(1).get_by_role("group", name=DENIED).wait_for()
    view.shot("denial")
    card, error = results(view, 1)
    for part in (
        DENIED,
        "line 1 gc",
        "line 4 open",
        "Instead of open, line 4:",
        "add.allowed_modules",
    ):
        assert part in card
    assert error == (
        "PolicyDenied: 2 findings: import-not-allowed at line 1 (gc), "
        "builtin-not-allowed at line 4 (open)"
    )
    value, note = results(view, 2)
    assert value == "1"
    assert note == "[cellblock notes: x is missing or old: cell 2, which sets it, was not run]"


def test_a_denial_stops_a_run_of_all_cells(open_notebook):
    view = open_notebook(["1", "import gc", "'not reached'"], kernel="cellblock")
    for _ in range(2):  # the second time the denial comes before the last cell has arrived
        before = view.prompt(1).inner_text()
        view.command("notebook:run-all-cells")
        view.wait_ran(1, before)
        view.cell(1).get_by_role("group").wait_for()
        view.wait_idle()
        assert view.prompt(2).inner_text().strip() in ("[ ]:", "[]:")
        assert view.outputs(2).count() == 0


@pytest.mark.quick
def test_a_figure_is_drawn_once_and_a_table_is_a_table(open_notebook):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.title('cellblock');"
    table = "import pandas as pd\npd.DataFrame({'city': ['Oslo', 'Rome'], 'rain': [763, 799]})"
    view = open_notebook([figure, table], kernel="cellblock-data")
    view.run(0)
    view.run(1)
    image = view.cell(0).locator(".jp-RenderedImage img")
    image.wait_for()
    view.shot("figure-and-table")
    assert image.count() == 1
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
    rows = view.cell(1).locator(".jp-RenderedHTML table.dataframe tbody tr")
    assert rows.all_inner_texts() == ["0\tOslo\t763", "1\tRome\t799"]


@pytest.mark.quick
def test_an_endless_loop_is_interrupted_and_costs_nothing(open_notebook):
    view = open_notebook(["kept = 5", "while True:\n    pass", "kept"], kernel="cellblock")
    view.run(0)
    view.start(1)
    view.wait_busy(1)
    view.interrupt()
    view.wait_ran(1, "[*]:")
    view.wait_idle()
    view.shot("interrupted")
    assert "KeyboardInterrupt" in view.outputs(1).last.inner_text()
    view.run(2)
    assert results(view, 2) == ["5"]


def test_a_restart_forgets_the_variables(open_notebook):
    view = open_notebook(["y = 1", "y"], kernel="cellblock")
    view.run(0)
    view.restart()
    view.run(1)
    assert view.prompt(1).inner_text() == "[1]:"
    assert "NameError" in view.outputs(1).last.inner_text()


@pytest.mark.quick
def test_input_is_asked_for_and_answered(open_notebook):
    view = open_notebook(["'Hello ' + input('Your name? ')"], kernel="cellblock")
    view.start(0)
    box = view.cell(0).locator(".jp-Stdin-input")
    box.fill("Ada")
    box.press("Enter")
    view.wait_ran(0, "[*]:")
    view.outputs(0).get_by_text("'Hello Ada'", exact=True).wait_for()
