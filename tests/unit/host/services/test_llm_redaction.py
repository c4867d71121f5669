"""A key stays out of what others say of it, also while a text grows."""

import base64
from urllib.parse import quote

import pytest

from cellblock.host.services.llm_client import Redactor

KEY = "sk-abc/def+0123456789"


@pytest.mark.parametrize(
    "form", [KEY, quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode()]
)
def test_a_key_is_taken_out_however_it_is_spelt(form):
    assert Redactor(KEY).text(f"before {form} after {form}") == "before ••• after •••"


@pytest.mark.parametrize("key", ["", "none", "x"])
def test_what_is_no_secret_is_left_where_it_stands(key):
    assert Redactor(key).text("none of x") == "none of x"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"Incorrect API key provided: {KEY}.", "Incorrect API key provided: •••."),
        ("Incorrect API key provided: sk-abc*********6789.", "Incorrect API key provided: •••"),
        ("sk-proj…6789 is no key", "••• is no key"),
        ("Authorization: Bearer abcdef", "Authorization: •••"),
        ("key abcd********wxyz", "key •••"),
        ("This model's maximum context length is 8192.", None),
    ],
)
def test_in_an_error_nothing_looks_like_a_key(said, told):
    assert Redactor(KEY).error(said) == (told or said)


def test_a_growing_text_never_shows_a_key_that_comes_in_pieces():
    assert Redactor(KEY).safe("all of it") == "all of it"
    redactor, whole = Redactor(KEY), f"the key is {KEY}, and sk-a is no key. {KEY[:-1]}x"
    shown = ""
    for end in range(len(whole) + 1):
        safe = redactor.safe(whole[:end])
        assert safe.startswith(shown)
        assert KEY[:6] not in safe.replace("sk-a is", "").replace(f"{KEY[:-1]}x", "")
        shown = safe
    assert shown == f"the key is •••, and sk-a is no key. {KEY[:-1]}x"
