"""A key stays out of what others say of it."""

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
