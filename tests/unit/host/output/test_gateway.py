import base64
import datetime as dt
import json
import math
import re
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.host.output import gateway
from cellblock.host.output.gateway import (
    clean_bundle,
    clean_comm,
    clean_error,
    clean_expressions,
    clean_match_types,
    clean_matches,
    clean_metadata,
    clean_name,
    clean_payload,
    clean_prompt,
    clean_stream,
    refused_types,
)
from cellblock.host.output.text import encode

SMALL = {
    "MAX_DISPLAY": 2_000,
    "MAX_STREAM": 200,
    "MAX_METADATA": 200,
    "MAX_COMM": 200,
    "MAX_NODES": 100,
    "MAX_DEPTH": 5,
    "MAX_EVALUE": 100,
    "MAX_TRACEBACK": 1_000,
    "MAX_TRACEBACK_LINES": 10,
    "MAX_MATCHES": 10,
    "MAX_MATCH": 50,
    "MAX_EXPRESSIONS": 3,
    "MAX_PAGES": 2,
}


@contextmanager
def small():
    """Have lower bounds meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name, bound in SMALL.items():
            patch.setattr(gateway, name, bound)
        yield


def depth(value):
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def sent(value):
    """Return what the wire would carry; fails where a strict encoder would."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


# --- bundles ----------------------------------------------------------------------------------


def test_a_short_plain_text_passes_as_it_is():
    data = {"text/plain": "42"}
    assert clean_bundle(data) is data


@pytest.mark.parametrize(
    "mime",
    [
        "application/javascript",
        "text/javascript",
        "APPLICATION/JAVASCRIPT",
        "application/javascript;charset=utf-8",
        "text/html ",
        "TEXT/HTML",
        "application/vnd.holoviews_exec.v0+json",
        "application/vnd.bokehjs_exec.v0+json",
        "application/vnd.cellblock.denial+json",
        "application/x-unknown",
        "",
        "text",
    ],
)
def test_a_type_that_is_not_in_the_table_is_dropped(mime):
    assert clean_bundle({mime: "alert(1)", "text/html": "<b>x</b>"}) == {"text/html": "<b>x</b>"}


def test_a_bundle_that_loses_its_rich_part_says_so():
    data = {"application/javascript": "alert(1)", "text/plain": "<Javascript object>"}
    assert clean_bundle(data) == {
        "text/plain": "<Javascript object>\n[cellblock left out application/javascript]"
    }
    assert clean_bundle({"application/javascript": ""}) == {
        "text/plain": "[cellblock left out application/javascript]"
    }


def test_the_guest_can_not_speak_for_the_host_and_what_is_refused_is_bounded_and_printable():
    own = "application/vnd.cellblock.outcome+json"
    assert refused_types({own: {}, "text/plain": ""}) == [own]
    names = refused_types({f"x/\x1b[2J{'y' * 1_000}{i}": "" for i in range(10_000)})
    assert len(names) == 8
    assert all(len(name) <= 100 and name.isprintable() for name in names)


def test_an_image_is_canonical_base64_and_can_not_break_out_of_its_attribute():
    for image in (b"x" * 100, base64.encodebytes(b"x" * 100).decode()):
        clean = {"image/png": base64.b64encode(b"x" * 100).decode()}
        assert clean_bundle({"image/png": image}) == clean
    text = clean_bundle({"image/png": 'AAAA"><script>alert(1)</script>'})["image/png"]
    assert set(text).isdisjoint("\"<>' ")
    for odd in ("AA=A", "A===", "====", '"AA=', "AAA\n", "AAAA\n\n\n\n", "\xe9AAA", "AA<="):
        text = clean_bundle({"image/png": odd}).get("image/png", "")
        assert re.fullmatch(
            r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=))?", text
        )


DAY = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([math.nan, math.inf, -math.inf, 1.5, 1 << 80], [None, None, None, 1.5, None]),
        (
            {1: 0, 2.5: 0, None: 0, b"k": 0, (1,): 0},
            dict.fromkeys(["1", "2.5", "None", "k", "tuple"], 0),
        ),
        ([b"ab", DAY, msgspec.msgpack.Ext(3, b"")], ["YWI=", "2026-01-02T00:00:00+00:00", None]),
    ],
)
def test_what_json_has_not_becomes_text_or_null(value, shown):
    assert clean_bundle({"application/json": value}) == {"application/json": shown}


@pytest.mark.parametrize("mime", ["text/plain", "text/html", "application/json"])
def test_lone_surrogates_never_reach_the_encoder(mime):
    assert clean_bundle({mime: "a\udc80b"}) == {mime: "a\ufffdb"}


def nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


@pytest.mark.parametrize("depth", [60, 100_000])  # the latter is more than Python can follow
def test_json_deeper_than_its_bound_is_left_out(depth):
    assert clean_bundle({"application/json": nested(59)}) == {"application/json": nested(59)}
    assert clean_bundle({"application/json": nested(depth)}) == {
        "text/plain": "[cellblock left out application/json (too large)]"
    }


def test_one_large_part_does_not_cost_the_others_and_all_share_one_bound():
    data = {"text/html": "x" * 3_000, "text/plain": "a table", "image/png": b"x"}
    mimes = ["text/html", "text/markdown", "text/latex", "image/svg+xml"]
    with small():
        assert clean_bundle(data) == {"text/plain": "a table", "image/png": "eA=="}
        assert len(sent(clean_bundle(dict.fromkeys(mimes, "é" * 400)))) < 2_500


@pytest.mark.parametrize(
    ("mime", "hostile", "gone"),
    [
        ("text/html", "<b onclick='x()'>a</b>", "onclick"),
        ("text/markdown", "a <b onclick='x()'>b</b>", "onclick"),
        ("text/latex", r"$\href{javascript:x()}{a}$", r"\href"),
        ("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg' onload='x()'/>", "onload"),
    ],
)
def test_each_kind_of_markup_passes_its_sanitiser(mime, hostile, gone):
    assert gone in hostile
    assert gone not in "".join(map(str, clean_bundle({mime: hostile}).values()))


def test_a_long_plain_text_is_cut_and_says_so():
    with small():
        text = clean_bundle({"text/plain": "x" * 70_000, "image/png": b""})["text/plain"]
    assert text.endswith("[cellblock: 68,100 more characters left out]\n")
    assert len(text) <= SMALL["MAX_DISPLAY"]


def test_what_is_no_bundle_is_an_empty_one():
    assert [clean_bundle(data) for data in (None, [], "text", 3, b"x", ())] == [{}] * 6


def test_metadata_is_a_bounded_object_or_nothing():
    assert clean_metadata({"image/png": {"width": 640}}) == {"image/png": {"width": 640}}
    with small():
        assert clean_metadata({"x": "y" * 300}) == {}
    assert clean_metadata([1]) == {}


# --- errors, prompts, names -------------------------------------------------------------------


def test_an_error_keeps_its_colours_and_loses_its_escapes():
    assert clean_error("Value\x07Error\n", "a\x1b]0;t\x07b", ["\x1b[31mx\x1b[0m\x1b[2J"]) == {
        "ename": "ValueError",
        "evalue": "ab",
        "traceback": ["\x1b[31mx\x1b[0m"],
    }


def test_a_long_traceback_keeps_its_end():
    lines = [str(n) for n in range(10_000)]
    with small():
        traceback = clean_error("E", "", lines)["traceback"]
    assert traceback[:5] == lines[:5]
    assert traceback[5] == "[cellblock: 9,990 more lines left out]"
    assert traceback[6:] == lines[-5:]


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("Name: ", "Name: "),
        ("\x1b[31mName\x1b[0m\r\x1b[2K: ", "Name: "),
        ("cellblock\nallow? ", "cellblock allow? "),
        ("a\u202eb\u2028c", "a b c"),
        ("x" * 1_000, "x" * 500),
        (None, ""),
    ],
)
def test_a_prompt_is_one_line_of_printable_text(prompt, shown):
    assert clean_prompt(prompt) == shown


def test_a_name_is_one_bounded_line_or_none():
    assert clean_name("a\nb") == "a b"
    assert clean_name("x" * 5_000) == "x" * 1_000
    assert [clean_name(name) for name in (None, "", 3, [])] == [None] * 4


# --- payloads and replies ---------------------------------------------------------------------


def test_only_pages_are_left_of_the_payloads():
    page = {"source": "page", "data": {"text/plain": "help"}, "start": 0}
    acts = [
        {"source": "set_next_input", "text": "import os", "replace": True},
        {"source": "ask_exit", "keepkernel": False},
        {"source": "edit_magic", "filename": "/etc/passwd", "line_number": 1},
        {"source": ["page"]},
        "page",
        None,
    ]
    assert clean_payload([*acts, page]) == [page]


def test_a_page_is_a_clean_bundle_with_a_plain_text():
    data = {"application/javascript": "x", "text/html": "<b onclick=x>1</b>"}
    clean = {"text/plain": "", "text/html": "<b>1</b>"}
    assert clean_payload([{"source": "page", "data": data}]) == [
        {"source": "page", "data": clean, "start": 0}
    ]


def test_expressions_are_clean_bundles_or_errors():
    said = {"a": {"status": "ok", "data": {"text/html": "<b onclick=x>1</b>"}}, "b": 3}
    assert clean_expressions(said) == {
        "a": {"status": "ok", "data": {"text/html": "<b>1</b>"}, "metadata": {}},
        "b": {"status": "error", "ename": "Error", "evalue": "", "traceback": []},
    }


def test_completions_are_bounded_lines():
    assert clean_matches(["a\x1b[2Jb", "c\nd", 3]) == ["ab", "c d", ""]
    row = {"start": 0, "end": -1, "text": "a\x07", "type": None, "evil": 1}
    assert clean_match_types([row, 3]) == [
        {"start": 0, "end": 0, "text": "a", "type": "", "signature": ""}
    ]


# --- whatever msgpack can carry ---------------------------------------------------------------

TEXT = st.text(st.characters(), max_size=60)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | TEXT
    | st.binary(max_size=60)
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.builds(msgspec.msgpack.Ext, st.integers(0, 100), st.binary(max_size=5))
)
MIMES = ["text/plain", "text/html", "image/png", "application/json", "application/javascript"]
KEYS = ["source", "page", "data", "ok", "status", "start", "ename", "traceback"]
WORDS = st.sampled_from([*MIMES, *KEYS])
JUNK = st.recursive(
    SCALARS | WORDS,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(WORDS | TEXT | st.integers(), inner, max_size=6)
    ),
    max_leaves=60,
)


@given(JUNK)
def test_any_bundle_can_be_sent_within_its_bounds(junk):
    with small():
        clean = clean_bundle(junk)
        again = clean_bundle(clean)
    assert len(sent(clean)) < 4 * SMALL["MAX_DISPLAY"] + 2_000
    assert depth(clean) <= SMALL["MAX_DEPTH"] + 1
    assert clean.keys() <= gateway.ALLOWED.keys()
    assert encode(clean)
    assert again == clean


@given(JUNK)
def test_any_junk_in_any_place_can_be_sent(junk):
    with small():
        cleaned = [
            clean_metadata(junk),
            clean_comm(junk),
            clean_payload(junk),
            clean_expressions(junk),
            clean_matches(junk),
            clean_match_types(junk),
            clean_error(junk, junk, junk),
            clean_stream(junk),
            clean_prompt(junk),
            clean_name(junk),
            refused_types(junk),
        ]
    assert len(sent(cleaned)) < 100_000


@given(st.lists(st.fixed_dictionaries({"source": WORDS, "data": JUNK, "start": JUNK})))
def test_any_payload_is_a_page(payload):
    with small():
        pages = clean_payload(payload)
    for page in pages:
        assert page["source"] == "page"
        assert isinstance(page["data"]["text/plain"], str)
        sent(page)


def test_sequences_for_a_viewer_pass_as_text_and_no_tag_with_them():
    mime = "application/vnd.fasta.fasta"
    assert clean_bundle({mime: ">a\nACGT\n"}) == {mime: ">a\nACGT\n"}
    refused = clean_bundle({mime: "><img src=x onerror=alert(1)>", "text/plain": "a"})
    assert refused == {"text/plain": f"a\n[cellblock left out {mime} (has a tag)]"}
