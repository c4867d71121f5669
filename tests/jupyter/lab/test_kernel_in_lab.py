"""What a user of JupyterLab sees of the kernel, cell by cell."""

import pytest

GAPS = "Not everything in this policy is enforced on this machine"
DENIED = "cellblock did not run this cell: 2 findings"
DENIED_CELL = 'import os, json\n\nx = 2\nrows = open("data/a.csv").readlines()'


@pytest.fixture(params=["light", "dark"])
def theme(request):
    return request.param


def results(view, index):
    return [text.strip() for text in view.outputs(index).all_inner_texts() if GAPS not in text]


def test_a_cell_gives_its_result(open_notebook):
    view = open_notebook(["6 * 7", "print('a')\nprint('b')"], kernel="cellblock")
    view.run(0)
    view.run(1)
    assert results(view, 0) == ["42"]
    assert results(view, 1) == ["a\nb"]
    assert [view.prompt(index).inner_text() for index in (0, 1)] == ["[1]:", "[2]:"]


def test_gaps_are_shown_above_the_first_cell_and_never_again(open_notebook):
    view = open_notebook(["1", "2"], kernel="cellblock")
    view.run(0)
    view.run(1)
    view.shot("first-cell")
    cards = view.page.get_by_role("group", name=GAPS)
    assert cards.count() == view.cell(0).get_by_role("group", name=GAPS).count() <= 1
    assert results(view, 1) == ["2"]


def test_a_denied_cell_is_explained_and_costs_nothing(open_notebook, theme):
    view = open_notebook(["x = 1", DENIED_CELL, "x"], kernel="cellblock", theme=theme)
    view.run(0)
    view.run(1)
    view.run(2)
    view.cell(1).get_by_role("group", name=DENIED).scroll_into_view_if_needed()
    view.shot(f"denial-{theme}")
    view.shot(f"denial-{theme}-cell", 1)
    card, error = results(view, 1)
    for part in (DENIED, "import-not-allowed · line 1", "builtin-not-allowed · line 4", "Instead:"):
        assert part in card
    assert error == (
        "PolicyDenied: 2 findings: import-not-allowed at line 1 (os), "
        "builtin-not-allowed at line 4 (open)"
    )
    assert results(view, 2) == ["1"]


def test_a_denial_reads_well_in_a_narrow_window(open_notebook, theme):
    view = open_notebook([DENIED_CELL], kernel="cellblock", theme=theme, width=560)
    view.run(0)
    card = view.cell(0).get_by_role("group", name=DENIED)
    card.scroll_into_view_if_needed()
    view.shot(f"denial-{theme}-narrow")
    assert card.evaluate("card => card.scrollWidth <= card.clientWidth + 1")


def test_a_denial_stops_a_run_of_all_cells(open_notebook):
    view = open_notebook(["1", "import os", "'not reached'"], kernel="cellblock")
    for _ in range(2):  # the second time the denial comes before the last cell has arrived
        view.command("notebook:run-all-cells")
        view.cell(1).get_by_role("group").wait_for()
        view.wait_idle()
        assert view.prompt(2).inner_text().strip() in ("[ ]:", "[]:")
        assert view.outputs(2).count() == 0


def test_a_figure_is_drawn_once(open_notebook):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    source = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.title('cellblock');"
    view = open_notebook([source], kernel="cellblock-data")
    view.run(0)
    image = view.cell(0).locator(".jp-RenderedImage img")
    image.wait_for()
    view.shot("figure")
    assert image.count() == 1
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300


def test_a_table_is_a_table(open_notebook):
    pytest.importorskip("pandas", reason="pandas is not installed")
    source = "import pandas as pd\npd.DataFrame({'city': ['Oslo', 'Rome'], 'rain': [763, 799]})"
    view = open_notebook([source], kernel="cellblock-data")
    view.run(0)
    view.shot("table")
    rows = view.cell(0).locator(".jp-RenderedHTML table.dataframe tbody tr")
    assert rows.all_inner_texts() == ["0\tOslo\t763", "1\tRome\t799"]


def test_tab_completes_a_name(open_notebook):
    view = open_notebook(["word_of_mine = 1", ""], kernel="cellblock")
    view.run(0)
    view.type(1, "word_of_m")
    view.page.keyboard.press("Tab")
    view.page.locator(".jp-Completer").get_by_text("word_of_mine").wait_for()
    view.page.keyboard.press("Enter")
    view.wait_source(1, "word_of_mine")


def test_tab_offers_a_choice(open_notebook):
    view = open_notebook([""], kernel="cellblock")
    view.run_source(0, "colour_red = colour_blue = 1")
    view.type(0, "\ncolour_")
    view.page.keyboard.press("Tab")
    box = view.page.locator(".jp-Completer")
    box.get_by_text("colour_red").first.wait_for()
    view.shot("completion")
    assert box.get_by_text("colour_blue").count() >= 1


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


def test_input_is_asked_for_and_answered(open_notebook):
    view = open_notebook(["'Hello ' + input('Your name? ')"], kernel="cellblock")
    view.start(0)
    box = view.cell(0).locator(".jp-Stdin-input")
    box.fill("Ada")
    box.press("Enter")
    view.wait_ran(0, "[*]:")
    view.outputs(0).get_by_text("'Hello Ada'", exact=True).wait_for()


def test_the_policy_can_be_seen(open_notebook, theme):
    view = open_notebook(["%policy"], kernel="cellblock", theme=theme, height=2_400)
    view.run(0)
    table = view.cell(0).locator('[role="group"] table')
    table.wait_for()
    view.shot(f"policy-{theme}")
    network = table.locator("tr", has_text="network access").inner_text()
    assert network.split()[:3] == ["network", "access", "no"]
