"""The policy field ``display``, through a kernel: the same cells under each of its values."""

import os
import signal

import pytest

from support import reading

FRAME = '<iframe class="cellblock-frame"'
ACTIVE = "from IPython.display import HTML\nHTML('<p>drawn</p><script>act()</script>')"
DENIAL = "application/vnd.cellblock.denial+json"
FORGED = """from IPython.display import publish_display_data
publish_display_data({"text/plain": "a", "Application/vnd.cellblock.denial+json": {"forged": 1},
                      "application/vnd.cellblock.denial+json": {"forged": 1}})
"""
LIBRARIES = ("altair", "bokeh", "folium", "plotly", "vl_convert")
CHARTS = {
    "plotly": "import plotly.graph_objects as go\nfigure = go.Figure(go.Bar(y=[1, 2]))\nfigure",
    "plotly by show": "figure.show()",
    "plotly by a notebook's renderer": "import plotly.io\nplotly.io.show(figure, 'notebook')",
    "bokeh": "from bokeh.plotting import figure as new, show\nplot = new()\nshow(plot)",
    "bokeh after output_notebook": "from bokeh.io import output_notebook\noutput_notebook()\n"
    "from bokeh.layouts import column\nshow(column(plot))",
    "altair": "import altair as alt\n"
    "alt.Chart(alt.Data(values=[{'a': 1}])).mark_bar().encode(x='a:Q')",
    "altair by another renderer": "with alt.renderers.enable('mimetype'):\n"
    "    display(alt.Chart(alt.Data(values=[{'a': 1}])).mark_bar().encode(x='a:Q'))",
    "folium": "import folium\nfolium.Map(tiles=None)",
}


@pytest.fixture(scope="module")
def under(start_shared, tmp_path_factory):
    """Start a kernel under preset data with another display, once."""
    started = {}

    def of(display):
        if display not in started:
            policy = tmp_path_factory.mktemp("policy") / "mine.toml"
            policy.write_text(f'extends = "data"\ndisplay = "{display}"\n')
            started[display] = start_shared(policy, "--allow-unsafe")
        return started[display]

    return of


def shown(kernel, code):
    """Return the last bundle that a cell showed."""
    mid = kernel.execute_send(code)
    published = kernel.until_idle(mid, timeout=90)
    kinds = ("display_data", "execute_result")
    bundles = [m["content"]["data"] for m in published if m["msg_type"] in kinds]
    return bundles[-1]


def test_charts_bring_their_libraries(data):
    for library in LIBRARIES:
        pytest.importorskip(library, reason="extra 'interactive' is not installed")
    bundles = {name: shown(data, code) for name, code in CHARTS.items()}
    assert [n for n, b in bundles.items() if not b["text/html"].startswith(FRAME)] == []
    sizes = {name: len(bundle["text/html"]) for name, bundle in bundles.items()}
    # A library is in the first of its figures; Leaflet is in each of folium's, and Vega in each of
    # altair's while the host has not bundled it.
    small = [name for name, size in sizes.items() if not 50_000 < size < 2_500_000]
    assert small == [
        "plotly by show",
        "plotly by a notebook's renderer",
        "bokeh after output_notebook",
    ]


def test_no_library_is_imported_ahead(unsafe):
    _, published = unsafe.run(f"import sys\nprint(sorted({set(LIBRARIES)} & sys.modules.keys()))")
    assert reading.stream(published) == "[]\n"


@pytest.mark.quick
def test_isolated_frames_what_runs(data):
    assert shown(data, ACTIVE)["text/html"].startswith(FRAME)


def test_sanitized_drops_what_runs(under):
    html = shown(under("sanitized"), ACTIVE)["text/html"]
    assert html == "<p>drawn</p>\n<p><small>[cellblock left out script]</small></p>"


def test_sanitized_shows_what_can_be_a_picture_as_one(under):
    pytest.importorskip("vl_convert", reason="extra 'interactive' is not installed")
    assert "image/png" in shown(under("sanitized"), CHARTS["altair"])


def test_sanitized_draws_no_picture_in_a_kernel_whose_painter_was_killed(under):
    """What draws them has threads, which a copy does not: it would wait for ever."""
    pytest.importorskip("vl_convert", reason="extra 'interactive' is not installed")
    kernel = under("sanitized")
    assert "image/png" in shown(kernel, CHARTS["altair"])
    kernel.run("import time\ntime.sleep(0.2)\nnow = time.time()")  # answered once it has a copy
    os.kill(kernel.guest(), signal.SIGKILL)
    assert "restart the kernel" in shown(kernel, CHARTS["altair"])["text/plain"]
    assert reading.result(kernel.run("alt.__name__")[1]) == "'altair'"


def test_sanitized_says_what_it_does_not_show(under):
    kernel = under("sanitized")
    for library in ("bokeh", "plotly", "folium"):
        pytest.importorskip(library, reason="extra 'interactive' is not installed")
        assert " left out" in str(shown(kernel, CHARTS[library]))


def test_a_card_has_no_display_id_that_a_cell_could_write_over(safe):
    _, published = safe.run("import gc")
    cards = reading.of(published, "display_data")
    assert [card["transient"] for card in cards if DENIAL in card["data"]] == [{}]
