"""What each value of ``display`` lets through."""

import pytest

from cellblock.host.output import gateway

SCRIPT = "<p>text</p><script>act()</script>"
BUNDLE = {
    "text/plain": "plain",
    "text/html": SCRIPT,
    "image/png": b"\x89PNG",
    "application/vnd.plotly.v1+json": {"data": []},
    "application/vnd.cellblock.denial+json": {"forged": True},
}
FRAME = '<iframe class="cellblock-frame" sandbox="allow-scripts"'


def test_text_is_the_plain_text_or_says_what_it_left_out():
    assert gateway.text(BUNDLE) == {"text/plain": "plain"}
    shown = gateway.text({"image/png": b"", "text/html": ""})
    note = "[cellblock shows text only, and left out image/png, text/html]"
    assert shown == {"text/plain": note}


@pytest.mark.parametrize(
    ("bundle", "text"),
    [
        ({"text/markdown": "# a\r\nb"}, "# a\nb"),
        ({"application/json": {"a": [1]}}, '{"a": [1]}'),
        ({"text/html": "<p>a <b>b</b></p><p>&#27;[2Jc</p>"}, "a b\nc"),
        ({"text/html": "<p>a<script>act()</script></p>"}, "a\n[cellblock left out script]"),
        ({"image/png": b""}, "<Figure> [cellblock shows text only, and left out image/png]"),
        (
            {"text/html": "<hr>", "image/png": b""},
            "<Figure> [cellblock shows text only, and left out text/html, image/png]",
        ),
        ({}, "<Figure>"),
    ],
)
def test_text_of_an_object_with_only_a_name_is_that_of_another_type(bundle, text):
    assert gateway.text({"text/plain": "<Figure>", **bundle}) == {"text/plain": text}


def test_sanitized_has_no_script_and_names_what_would_show_it():
    assert "act()" not in gateway.sanitized(BUNDLE)["text/html"]
    figure = {"text/plain": "Figure", "application/vnd.plotly.v1+json": {}}
    assert gateway.sanitized(figure) == {
        "text/plain": "Figure\n[cellblock left out application/vnd.plotly.v1+json; "
        'display = "isolated" in the policy would show it]'
    }
    # No display shows this one.
    shown = gateway.sanitized({"application/pdf": "x"})
    assert shown == {"text/plain": "[cellblock left out application/pdf]"}


def test_isolated_puts_what_needs_scripts_into_frames_and_keeps_the_rest():
    shown = gateway.isolated(BUNDLE)
    assert sorted(shown) == ["image/png", "text/html", "text/plain"]
    assert shown["text/html"].startswith(FRAME)
    assert "act()" not in shown["text/html"]
    assert shown["text/plain"] == "plain"


@pytest.mark.parametrize(
    "html",
    [
        "<table><tr><td>1</td></tr></table>",
        "<style>td { color: red }</style><b>styled</b>",
        "<details><summary>more</summary>text</details>",
        "a < b and onset = 3, script, canvas",
        '<script type="application/vnd.jupyter.widget-view+json">{}</script><p>widget</p>',
    ],
)
def test_isolated_leaves_what_needs_no_scripts_in_the_page(html):
    assert gateway.isolated({"text/html": html}) == gateway.sanitized({"text/html": html})


@pytest.mark.parametrize(
    "html",
    [
        "<SCRIPT >x</SCRIPT>",
        "<script type=module>x</script>",
        '<script type="text/javascript">x</script>',
        "<div onclick='x()'>press</div>",
        "<p title='x' onmouseover = x()>hover</p>",
        "<canvas></canvas>",
        "<button>press</button>",
        "<iframe srcdoc='<p>page</p>'></iframe>",
    ],
)
def test_isolated_frames_whatever_runs(html):
    assert gateway.isolated({"text/html": html})["text/html"].startswith(FRAME)


def test_isolated_runs_a_program_only_where_nothing_stands_for_it():
    program = {"application/javascript": "element.append(1)", "text/plain": "<Javascript>"}
    assert gateway.isolated(program)["text/html"].startswith(FRAME)
    assert "text/html" not in gateway.isolated(program | {"image/png": b""})


def test_pages_are_within_the_bounds(monkeypatch):
    left_out = {"text/plain": "[cellblock left out text/html (too large)]"}
    both = {"text/html": SCRIPT, "text/plain": "x" * 3_000}
    monkeypatch.setattr(gateway, "MAX_DISPLAY", 2_000)
    assert gateway.isolated(both) == left_out


ANYTHING = [None, [], "x", {}, {1: 2}, {"text/html": 3}, {"text/html": [1]}]


def test_anything_at_all_becomes_a_bundle():
    for data in ANYTHING:
        for display in ["text", "sanitized", "isolated"]:
            shown = gateway.for_display(display)(data)
            assert all(isinstance(mime, str) for mime in shown), (display, data)


def test_in_passing_there_are_no_frames():
    assert gateway.for_page("isolated") is gateway.for_display("sanitized")
    assert gateway.for_page("text") is gateway.for_display("text")
