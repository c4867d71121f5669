"""Interactive figures under preset data: drawn in two nested frames, hovered and zoomed there."""

import re

import pytest

from support import processes

for library in ("altair", "bokeh", "folium", "plotly", "vl_convert"):
    pytest.importorskip(library, reason="extra 'interactive' is not installed")

PLOTLY = """import plotly.graph_objects as go
go.Figure(go.Scatter(x=[1, 2, 3, 4], y=[1, 4, 2, 3], mode="markers", marker_size=20))
"""
BOKEH = """from bokeh.plotting import figure, show
plot = figure(height=320, width=600, tools="hover,wheel_zoom,pan,reset", active_scroll="wheel_zoom")
plot.scatter([1, 2, 3], [1, 4, 2], size=30)
show(plot)
"""
ALTAIR = """import altair as alt
import pandas as pd
rows = pd.DataFrame({"x": [1, 2, 3], "y": [1, 4, 2], "name": ["ada", "bob", "cyn"]})
points = alt.Chart(rows).mark_circle(size=900).encode(x="x", y="y", tooltip="name")
points.properties(width=400, height=250).interactive()
"""
FOLIUM = """import folium
place = folium.Map([48, 11], zoom_start=6, tiles=None, height=300)
folium.CircleMarker([48, 11], radius=40, fill=True, popup="<b>here</b>").add_to(place)
place
"""
TILES = "folium.Map([48, 11], height=300)"
TABLE = """import pandas as pd
pd.DataFrame({"fruit": ["apple", "pear"], "count": [1, 2]})
"""
SVG = (
    'from IPython.display import SVG\nSVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="30"/>\')'
)


def page_in(view, index):
    """Return the guest's page: the inner of two frames, each sandboxed to scripts."""
    outer = view.outputs(index).locator("iframe")
    outer.last.scroll_into_view_if_needed()
    assert outer.last.get_attribute("sandbox") == "allow-scripts"
    inner = outer.last.content_frame.locator("iframe")
    assert inner.get_attribute("sandbox") == "allow-scripts"
    return inner.content_frame


def centre(locator, across=0.5, down=0.5):
    box = locator.bounding_box()
    return box["x"] + box["width"] * across, box["y"] + box["height"] * down


def test_figures_are_drawn_and_answer_the_mouse(open_notebook):
    sources = [PLOTLY, BOKEH, ALTAIR, FOLIUM, TABLE, SVG, TILES]
    # In a page of its own: where the pointer and the focus are is part of it.
    view = open_notebook(
        sources, kernel="cellblock-data", width=1_100, height=1_200, prepare=lambda _: None
    )
    view.run_all()
    try:
        plotly_is_hovered_and_zoomed(view)
        bokeh_is_hovered_and_zoomed(view)
        altair_is_hovered_and_zoomed(view)
        a_map_without_tiles_is_drawn_and_its_popup_opens(view)
        a_table_stays_in_the_page_with_its_theme(view)
        svg_is_shown_as_an_image(view)
        a_map_with_tiles_says_why_it_is_grey(view)
    except Exception:
        view.say_frames()
        raise


def plotly_is_hovered_and_zoomed(notebook):
    page = page_in(notebook, 0)
    mouse = notebook.page.mouse
    marker = page.locator(".scatterlayer .point").nth(1)
    mouse.move(*centre(marker))
    page.locator(".hoverlayer .hovertext", has_text="4").wait_for()
    assert "2.5" in page.locator(".xtick text").all_text_contents()
    area = page.locator(".nsewdrag")
    mouse.move(*centre(area, 0.3, 0.3))
    mouse.down()
    mouse.move(*centre(area, 0.6, 0.7), steps=5)
    mouse.up()
    page.locator(".xtick text", has_text="2.4").first.wait_for()


def bokeh_is_hovered_and_zoomed(notebook):
    page = page_in(notebook, 1)
    mouse = notebook.page.mouse
    canvas = page.locator("canvas").first
    canvas.wait_for()
    read = "() => { const r = Bokeh.documents[0].roots()[0].x_range; return r.end - r.start; }"
    frame = canvas.element_handle().owner_frame()
    width = frame.evaluate(read)
    mouse.move(*centre(canvas, 0.5, 0.03))
    mouse.move(*centre(canvas, 0.5, 0.06))
    page.locator(".bk-Tooltip").first.wait_for(state="attached")
    mouse.wheel(0, -400)
    frame.wait_for_function(f"before => ({read})() < before", arg=width)


def altair_is_hovered_and_zoomed(notebook):
    page = page_in(notebook, 2)
    mouse = notebook.page.mouse
    drawn = page.locator("canvas, svg.marks").first
    drawn.wait_for()
    box = drawn.bounding_box()
    before = drawn.screenshot()
    mouse.move(box["x"] + box["width"] * 0.55, box["y"] + 30)
    mouse.wheel(0, -300)
    assert processes.until(lambda: drawn.screenshot() != before)


def a_map_without_tiles_is_drawn_and_its_popup_opens(notebook):
    page = page_in(notebook, 3)
    page.locator("path.leaflet-interactive").click()
    page.locator(".leaflet-popup-content", has_text="here").wait_for()


def a_map_with_tiles_says_why_it_is_grey(notebook):
    said = page_in(notebook, 6).locator("#cellblock-missed")
    said.wait_for()
    assert re.fullmatch(r"Not loaded, because output has no network: \S+", said.inner_text())


def a_table_stays_in_the_page_with_its_theme(notebook):
    assert notebook.outputs(4).locator("table").count() == 1
    assert notebook.outputs(4).locator("iframe").count() == 0


def svg_is_shown_as_an_image(notebook):
    image = notebook.outputs(5).locator("img")
    assert image.get_attribute("src").startswith("data:image/svg+xml")
    assert notebook.outputs(5).locator("svg").count() == 0


PAGES = {
    "short": "<p id=a>one line</p><script>1</script>",
    "grows": "<div id=a style='height: 100px'></div><script>"
    "setTimeout(() => { a.style.height = '700px'; }, 300);"
    "setTimeout(() => { a.style.height = '200px'; }, 1500);</script>",
    "endless": "<div style='height: 9000px'></div><script>1</script>",
    "half": "<div style='height: 50vh'></div><script>1</script>",
    "fills": "<style>html, body { height: 100%; margin: 0 }</style><script>1</script>",
    "covers": "<div style='position: fixed; inset: 0'>x</div><script>1</script>",
    "lies": "<p>x</p><script>for (const said of [-5, NaN, '900', {}, 1e9])"
    " parent.parent.postMessage({cellblock: said}, '*');"
    " parent.parent.postMessage(null, '*'); parent.parent.frames[0].postMessage({cellblock:"
    " {background: 'red', color: 'red', scheme: 'dark'}}, '*');</script>",
}
COLOURS = "() => { const s = getComputedStyle(document.documentElement);"
COLOURS += " return [s.backgroundColor, s.color, s.colorScheme]; }"


def test_frames_are_as_high_as_their_content_and_have_the_colours_of_the_theme(open_notebook):
    sources = [f"from IPython.display import HTML\nHTML({page!r})" for page in PAGES.values()]
    view = open_notebook(sources, kernel="cellblock-data", height=1_200, prepare=lambda _: None)
    view.run_all()
    heights = dict[str, float]()
    for index, name in enumerate(PAGES):
        page_in(view, index)
        view.page.wait_for_timeout(2_500)
        heights[name] = view.outputs(index).locator("iframe").bounding_box()["height"]
        if index in (0, 2):
            view.shot(f"height-{name}")
    assert 20 < heights["short"] < 70
    assert 200 <= heights["grows"] < 220
    assert heights["endless"] == 1_616
    assert heights["half"] == heights["fills"] == heights["covers"] == 450
    assert heights["lies"] == heights["short"]

    def colours():
        frame = page_in(view, 0).locator("html").element_handle().owner_frame()
        return frame.evaluate(COLOURS)

    light = colours()
    assert light[0] == "rgb(255, 255, 255)"
    assert light[2] == "light"
    view.command("apputils:change-theme", {"theme": "JupyterLab Dark"})
    assert processes.until(lambda: colours()[2] == "dark")
    background, text, _ = ([int(n) for n in re.findall(r"\d+", c)] for c in colours())
    assert max(background) < 60
    assert min(text) > 180
    view.shot("frames-dark")
