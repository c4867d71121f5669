"""What is given by name or in a file is what cells find, value by value."""

import pytest

from cellblock.cli.run import parameters
from cellblock.errors import InputError


def test_a_value_that_is_json_is_what_it_says_and_any_other_a_text():
    given = ["a=1.5", "b=null", 'c=["x"]', "d=text", "e=", "f=a=b", 'g="3"', "h=NaN"]
    values = [1.5, None, ["x"], "text", "", "a=b", "3", "NaN"]
    assert parameters(given, ()) == dict(zip("abcdefgh", values, strict=True))


def test_what_is_named_comes_before_files_and_a_file_that_is_no_object_is_refused(tmp_path):
    one, two = tmp_path / "1.json", tmp_path / "2.json"
    one.write_text('{"a": 1, "b": 1, "c": 1}')
    two.write_text('{"b": 2, "c": 2}')
    assert parameters(["c=3"], [str(one), str(two)]) == {"a": 1, "b": 2, "c": 3}

    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="not an object"):
        parameters((), [str(tmp_path / "x.json")])


@pytest.mark.parametrize("wrong", ["n", "=3", "", "\x1b=3"])
def test_what_has_no_name_is_refused(wrong):
    with pytest.raises(InputError):
        parameters([wrong], ())
