import pytest

from cellblock.host.output.gateway import clean_metadata


def test_sizes_stay_and_what_is_none_goes():
    for size in (640, 3.5, "640", "50%", "12.5px", "2em"):
        metadata = {"image/png": {"width": size, "needs_background": "light"}}
        assert clean_metadata(metadata) == metadata
    for size in ('1" onload="x', "1 onload=x", "", [1], {"a": 1}, True, None, "1e9"):
        assert clean_metadata({"image/png": {"height": size}, "width": size}) == {"image/png": {}}


WITH_A_TYPE = {
    "image/png": {"unconfined": True, "needs_background": "dark", "alt": "a line"},
    "text/html": {"isolated": True},
    "application/json": {"expanded": False},
}


def test_what_front_ends_show_by_stays_for_the_bundle_and_for_each_type():
    assert clean_metadata(WITH_A_TYPE) == WITH_A_TYPE
    assert clean_metadata({"width": 5, "alt": "a"}) == {"width": 5, "alt": "a"}


@pytest.mark.parametrize(
    "name", ["filename", "filenames", "__proto__", "constructor", "tags", "image/x-other"]
)
def test_any_other_name_goes_and_so_does_what_is_not_of_its_kind(name):
    # nbconvert writes files under the one name, and shows those that are under the other.
    hostile = {"image/png": "../../x", "a": [1]}
    assert clean_metadata({name: hostile, "image/png": {name: hostile}}) == {"image/png": {}}
    assert clean_metadata({name: "../x", "text/html": "x", "isolated": "x", "alt": 1}) == {}
