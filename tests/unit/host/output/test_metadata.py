import pytest

from cellblock.host.output import css
from cellblock.host.output.gateway import clean_metadata


@pytest.mark.parametrize("size", [640, 3.5, "640", "50%", "12.5px", "2em"])
def test_sizes_stay(size):
    metadata = {"image/png": {"width": size, "needs_background": "light"}}
    assert clean_metadata(metadata) == metadata


@pytest.mark.parametrize(
    "size", ['1" onload="x', "1 onload=x", "", [1], {"a": 1}, True, None, "1e9"]
)
def test_what_is_no_size_goes(size):
    assert clean_metadata({"image/png": {"height": size}, "width": size}) == {"image/png": {}}


@pytest.mark.parametrize("key", ["__proto__", "constructor", "prototype", "filenames"])
def test_keys_that_mean_more_go_at_any_depth(key):
    metadata = {key: {"a": 1}, "a": {key: 1, "b": [{key: 1, "c": 2}]}}
    assert clean_metadata(metadata) == {"a": {"b": [{"c": 2}]}}


@pytest.mark.parametrize("value", ["99999px", "1e9px", ".1e9em", "1.5E+8px", "9 12345px"])
def test_lengths_without_end_go(value):
    assert css.declarations(f"height: {value}") == ""


@pytest.mark.parametrize(
    "value", ["9999px", "#123456", "#1e9abc", "0.123456em", "1em", "rgb(1,2,3)"]
)
def test_lengths_and_colors_stay(value):
    assert css.declarations(f"border: {value}") == f"border: {value}"
