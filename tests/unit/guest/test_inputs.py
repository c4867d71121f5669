"""``inputs`` as a cell has it: a mapping that can be read, and nothing more."""

import pytest

from cellblock.guest.setup import Inputs

GIVEN = Inputs({"city": '"Rom"', "rows": '[{"a": 1}]', "long": '"' + "x" * 100 + '"'})


def test_it_is_a_mapping_of_jsons_own_types_and_its_representation_is_short():
    assert dict(GIVEN) == {"city": "Rom", "rows": [{"a": 1}], "long": "x" * 100}
    assert (len(GIVEN), "city" in GIVEN, GIVEN.get("no", 1)) == (3, True, 1)
    assert [type(GIVEN["rows"]), type(GIVEN["rows"][0])] == [list, dict]
    assert Inputs({}) == {}

    assert repr(GIVEN) == (
        """inputs({'city': "Rom", 'rows': [{"a": 1}], 'long': """ + '"' + "x" * 58 + "…})"
    )


def test_nothing_of_it_can_be_changed():
    GIVEN["rows"].append(1)
    assert GIVEN["rows"] == [{"a": 1}]
    with pytest.raises(TypeError):
        GIVEN["city"] = 1
    with pytest.raises(TypeError):
        del GIVEN["city"]
    with pytest.raises(AttributeError, match="inputs can be read only"):
        GIVEN._encoded = {}
    with pytest.raises(TypeError):
        GIVEN._encoded["city"] = "1"


def test_what_is_missing_is_told_with_what_there_is_and_who_gives_more():
    given = Inputs({f"n{number}": "1" for number in range(12)})
    with pytest.raises(KeyError) as missing:
        given["town"]
    assert missing.value.args[0] == (
        "there is no input 'town', but n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more; "
        "whoever runs the cells gives inputs: --input FILE, or Sandbox(inputs={…})"
    )
    assert given.get("town", 3) == 3
    with pytest.raises(KeyError, match="there is no input 'x', and no other; whoever"):
        Inputs({})["x"]
