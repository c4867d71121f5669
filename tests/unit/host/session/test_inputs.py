"""What cells may find in ``inputs``: JSON data, bounded, and nothing that JSON makes another of."""

import json
import os

import pytest

from cellblock.errors import InputError
from cellblock.host.session import history

DATA = {"city": "Rom", "days": 3, "rows": [{"a": 1.5, "b": None}, True], "big": 10**30}


def test_data_comes_out_as_it_went_in(tmp_path):
    file = tmp_path / "in.json"
    file.write_text(json.dumps(DATA))
    assert {name: json.loads(text) for name, text in history.encode_inputs(DATA).items()} == DATA
    assert history.inputs_from_file(str(file)) == history.encode_inputs(DATA)


DEEP = []
DEEP.append(DEEP)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"x": {1, 2}}, "inputs: x: no JSON data: it is of type set (got {1, 2}). Give JSON"),
        ({"x": {1: 2}}, "no JSON data: a key of type int"),
        ({"x": float("nan")}, "no JSON data: Out of range float values"),
        ({"x": [object]}, "it is of type type"),
        ({"x": DEEP}, "more than 64 levels deep"),
        ({"": 1}, "inputs: not a name (got ''). Give a text of 1 to 200 printable characters."),
        ({"a\nb": 1}, "not a name (got 'a\\nb')"),
        ({1: 1}, "not a name (got 1)"),
        ({"x": "x" * (5 << 20)}, "inputs: x: they take more than 4,194,304 bytes. Put large data"),
    ],
)  # fmt: skip
def test_what_is_no_data_is_refused_and_named(values, said):
    with pytest.raises(InputError) as error:
        history.encode_inputs(values)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", 'not an object. Write one: {"name": value}.'),
        ("{", "not JSON: Expecting property name"),
        ('{"x": NaN}', "not JSON: NaN is not a JSON number"),
        ("[" * 100_000, "not JSON: "),
        ('{"x": "' + "x" * (5 << 20) + '"}', "larger than 4,194,304 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_holds_none_is_refused(tmp_path, text, said):
    file = tmp_path / "in.json"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        history.inputs_from_file(str(file))
    assert str(error.value).startswith(f"{file}: ")
    assert said in str(error.value)


def test_a_link_that_cells_could_have_put_there_is_not_followed(tmp_path):
    work, secret = tmp_path / "work", tmp_path / "secret.json"
    work.mkdir()
    secret.write_text('{"token": "secret"}')
    (work / "in.json").symlink_to(secret)
    (work / "up").symlink_to(tmp_path)
    (tmp_path / "mine.json").symlink_to("work/in.json")
    (tmp_path / "fine.json").symlink_to(secret)
    for name in ("work/in.json", "work/up/secret.json", "mine.json"):
        assert history.inputs_from_file(f"{tmp_path}/{name}") == {"token": '"secret"'}
        with pytest.raises(InputError, match="a link leads there that cells could change"):
            history.inputs_from_file(f"{tmp_path}/{name}", [str(work)])
    assert history.inputs_from_file(f"{tmp_path}/fine.json", [str(work)]) == {"token": '"secret"'}


def test_a_pipe_is_not_waited_for_and_what_is_missing_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("pipe", "not a regular file"), ("none", "can't be read: No such file")):
        with pytest.raises(InputError, match=said):
            history.inputs_from_file(str(tmp_path / name))
