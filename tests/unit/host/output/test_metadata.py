import pytest

from cellblock.host.output.gateway import clean_metadata


def test_sizes_stay_and_what_is_none_goes():
    for size in (640, 3.5, "640", "50%", "12.5px", "2em"):
        metadata = {"image/png": {"width": size, "needs_background": "light"}}
        assert clean_metadata(metadata) == metadata
    for size in ('1" onload="x', "1 onload=x", "", [1], {"a": 1}, True, None, "1e9"):
        assert clean_metadata({"image/png": {"height": size}, "width": size}) == {"image/png": {}}


@pytest.mark.parametrize("key", ["__proto__", "constructor", "prototype", "filenames"])
def test_keys_that_mean_more_go_at_any_depth(key):
    metadata = {key: {"a": 1}, "a": {key: 1, "b": [{key: 1, "c": 2}]}}
    assert clean_metadata(metadata) == {"a": {"b": [{"c": 2}]}}
