"""Plotly's library is in one output of a notebook, and every figure draws: now, saved, exported."""

import json
import re

import nbconvert
import pytest

from cellblock.host.output.frames import shared_library

pytest.importorskip("plotly", reason="extra 'interactive' is not installed")

FIGURE = """import plotly.graph_objects as go
go.Figure(go.Scatter(x=[1, 2, 3, 4], y=[1, 4, 2, 3], mode="markers", marker_size=20))
"""
#: A figure without the library, in bytes of a notebook.
SMALL = 60_000


def drawn(page, count):
    """Wait until so many figures are drawn, each in its frames."""
    for index in range(count):
        outer = page.locator("iframe.cellblock-frame").nth(index)
        outer.scroll_into_view_if_needed()
        points = outer.content_frame.locator("iframe").content_frame.locator(".scatterlayer .point")
        points.first.wait_for(timeout=30_000)
        assert points.count() == 4


def sizes(path):
    """Return the bytes of the HTML of each cell of a saved notebook."""
    cells = json.loads(path.read_text())["cells"]
    figures = [out["data"]["text/html"] for cell in cells for out in cell["outputs"][-1:]]
    return [len("".join(html)) for html in figures]


def saved(view, which):
    view.save()
    found = sizes(view.path)
    assert [size > SMALL for size in found] == which, found


def test_a_notebook_has_the_library_once_and_all_of_its_figures_draw(
    open_notebook, browser, tmp_path
):
    view = open_notebook(
        [FIGURE] * 3, kernel="cellblock-data", width=1_100, height=1_200, prepare=lambda _: None
    )
    view.run_all()
    drawn(view.page, 3)
    saved(view, [True, False, False])
    view.run(0)  # what has the library has it again
    view.run(1)
    drawn(view.page, 3)
    saved(view, [True, False, False])

    view.reopen(view.path.name)
    drawn(view.page, 3)

    html, _ = nbconvert.HTMLExporter().from_filename(view.path)
    (tmp_path / "saved.html").write_text(html)
    context = browser.new_context()
    page = context.new_page()
    page.route("https://**", lambda route: route.abort())  # nbconvert's own scripts
    page.goto(f"file://{tmp_path / 'saved.html'}", wait_until="domcontentloaded")
    drawn(page, 3)
    carrier = r'<script>window\[Symbol\.for\("cellblock\.frames\.2"\)\]\([^<]*</script>'
    without = re.sub(carrier, "", html)
    assert len(without) < len(html) - 1_000_000
    (tmp_path / "without.html").write_text(without)
    page.goto(f"file://{tmp_path / 'without.html'}", wait_until="domcontentloaded")
    inner = page.locator("iframe.cellblock-frame").first.content_frame.locator("iframe")
    inner.content_frame.get_by_text("waits for its library").wait_for()
    context.close()

    view.page.bring_to_front()
    view.select(0)
    view.command("notebook:delete-cell")
    view.run(0)
    drawn(view.page, 2)
    saved(view, [True, False])


def test_a_frame_that_has_no_library_written_on_it_gets_none_for_the_asking(open_notebook):
    name = shared_library("plotly").name
    page = (
        "<p id=here>asked</p><script>"
        "addEventListener('message', ({data}) => { if (data.cellblock?.library) here.textContent = 'got'; });"
        f"setInterval(() => top.postMessage({{cellblock: {{library: '{name}'}}}}, '*'), 50);"
        "setTimeout(() => { if (here.textContent === 'asked') here.textContent = 'nothing'; }, 2000);"
        "</script>"
    )
    sources = [FIGURE, f"from IPython.display import HTML\nHTML({page!r})"]
    view = open_notebook(
        sources, kernel="cellblock-data", width=1_100, height=1_200, prepare=lambda _: None
    )
    view.run_all()
    outer = view.page.locator("iframe.cellblock-frame").nth(1)
    outer.scroll_into_view_if_needed()
    here = outer.content_frame.locator("iframe").content_frame.locator("#here")
    here.filter(has_text="nothing").wait_for()
