"""Templates come from the operator's folders, by name, and from nowhere else."""

import dataclasses
import os
import re
import time

import pytest

from cellblock.analysis import analyse
from cellblock.errors import AdmissionError
from cellblock.host.consent.admission import AdmissionGate, load
from cellblock.host.consent.template_schema import checker
from cellblock.policy.folders import shipped_folder
from cellblock.policy.model import Policy

SOURCE = '"""Draw it."""\n\n\ndef run(state):\n    return state\n'


@pytest.fixture
def folder(tmp_path):
    put(tmp_path / "shelf", "draw")
    return tmp_path / "shelf"


def put(folder, name, source=SOURCE, schema='{"type": "object"}'):
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / f"{name}.py").write_text(source)
    (folder / f"{name}.schema.json").write_text(schema)


def refused(*folders):
    with pytest.raises(AdmissionError) as failure:
        load(map(str, folders))
    assert failure.value.remedy
    return failure.value.message


def test_a_folder_holds_a_template_for_each_pair_of_files(folder):
    put(folder, "plot-2", schema="")  # none is {}: it takes everything
    (folder / "readme.txt").write_text("")
    (folder / "_shared.py").write_text("")
    found = load([str(folder)])
    assert sorted(found) == ["draw", "plot-2"]
    assert (found["draw"].source, found["draw"].doc) == (SOURCE, "Draw it.")


def test_the_shipped_templates_are_templates_under_every_preset():
    found = load([shipped_folder()])
    assert sorted(found) == ["describe", "table"]
    assert all(analyse(each.source, Policy().rules()) == () for each in found.values())


def test_two_folders_can_not_have_one_name(folder, tmp_path):
    put(tmp_path / "other", "plot")
    assert sorted(load([str(folder), str(tmp_path / "other")])) == ["draw", "plot"]
    put(tmp_path / "other", "draw")
    assert refused(folder, tmp_path / "other") == "another folder has a template 'draw', too"


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_followed(folder, tmp_path):
    put(tmp_path / "outside", "draw")
    for name in ("draw.py", "draw.schema.json"):
        (folder / name).rename(folder / f".{name}")
        (folder / name).symlink_to(f".{name}")
    assert load([str(folder)])["draw"].source == SOURCE
    for name in ("draw.py", "draw.schema.json"):
        (folder / name).unlink()
        outside = tmp_path / "outside" / name
        (folder / name).symlink_to(outside)
        assert refused(folder) == f"a link leads out of the folder, to {outside}"
        (folder / name).unlink()
        (folder / name).symlink_to(f".{name}")


def test_files_and_folders_that_others_can_write_or_that_are_none_are_refused(folder):
    (folder / "draw.py").chmod(0o666)
    assert refused(folder) == "others can write it (mode 0666)"
    (folder / "draw.py").unlink()
    os.mkfifo(folder / "draw.py")
    assert refused(folder) == "it is not a regular file"
    put(folder / "more", "draw")
    (folder / "more" / "draw.schema.json").unlink()
    assert refused(folder / "more") == "there is no such file"
    folder.chmod(0o777)
    assert refused(folder) == "others can write it (mode 0777)"
    assert refused(folder / "none") == "can't be read: No such file or directory"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(1)\ndef run(state): pass", "line 1: print(1) runs when the template is loaded"),
        ("x = 1", "line 1: run(state) is missing"),
        ("def run(state", "line 1: this is not Python"),
        ("def run(state): pass\n" + "#" * 2**20, "it is larger than 1,048,576 bytes"),
    ],
)
def test_a_template_that_is_none_is_told_when_it_is_read(folder, source, said):
    put(folder, "draw", source)
    assert refused(folder).startswith(said)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("[]", "not a JSON schema: no object"),
        ('{"type": "objekt"}', "not a JSON schema of draft 2020-12: $.type"),
        ('{"type": "object", "type": "array"}', "line 1: one object has the key 'type' twice"),
        ('{"$ref": "http://127.0.0.1:1/x"}', "$ref leads out of the schema"),
        ('{"$ref": "file:///etc/passwd"}', "$ref leads out of the schema"),
        ('{"items": {"$dynamicRef": "x.json"}}', "$dynamicRef leads out of the schema"),
        ('{"pattern": "(?=a)b"}', "a pattern can't be matched in linear time"),
        ('{"patternProperties": {"(a)\\\\1": true}}', "a pattern can't be matched in linear"),
        ('{"unevaluatedProperties": false}', "unevaluatedProperties can't be checked"),
        ("[" * 100, "line 1: it is nested deeper than 32"),
    ],
)
def test_a_schema_that_is_none_is_told_when_it_is_read(folder, schema, said):
    put(folder, "draw", schema=schema)
    assert refused(folder).startswith(said)


@pytest.mark.parametrize("name", ["Draw", "draw it", "dräw", "1draw", "draw.old"])
def test_a_file_whose_name_no_cell_can_say_is_told(folder, name):
    put(folder, name)
    assert refused(folder) == "not a template's name"


def with_templates(kind, folder):
    templates = dataclasses.replace(Policy().templates, folders=(str(folder),))
    return Policy(admission=kind).replace(templates=templates)


@pytest.mark.parametrize("kind", ["any", "template"])
def test_nothing_is_read_before_a_cell_asks_and_what_is_wrong_then_stops_it(kind, folder):
    gate = AdmissionGate(with_templates(kind, folder / "none"), folder)
    with pytest.raises(AdmissionError, match="No such file"):
        gate.judge("%%template draw")
    if kind == "any":
        assert gate.judge("x = 1").findings == ()


def test_what_templates_there_are_is_told_once(folder):
    told = []
    gate = AdmissionGate(
        with_templates("template", folder),
        folder,
        lambda admitted, source: told.append((sorted(admitted.templates), source)),
    )
    gate.judge("%%template draw")
    gate.judge("x = 1")
    assert told == [(["draw"], "1 templates")]


# --- states -----------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "required": ["rows"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {"type": "integer"}},
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "uniqueItems": True},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
    },
    "$defs": {"row": {"type": "object", "properties": {"n": {"type": "number", "minimum": 0}}}},
}


def problems(state, schema=SCHEMA):
    return [(p.path, p.keyword) for p in checker(schema, "x")(state)]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"rows": []}, []),
        ({"rows": [{"n": 1}, {"n": 2}], "name": "abc", "x-1": 3}, []),
        ({"rows": [{"n": 1}, {"n": True}]}, [("$.rows[1].n", "type")]),
        ({"rows": [{"n": -1}]}, [("$.rows[0].n", "minimum")]),
        ({"rows": [{"n": 1}, {"n": 1.0}]}, [("$.rows", "uniqueItems")]),
        ({"rows": [], "name": "aB"}, [("$.name", "pattern")]),
        ({"rows": [], "name": "abc\n"}, [("$.name", "pattern")]),
        ({"rows": [], "x-1": "a"}, [("$['x-1']", "type")]),
        ({"rows": [], "more": 1}, [("$", "additionalProperties")]),
        ({}, [("$", "required")]),
        ([], [("$", "type")]),
        ("rows", [("$", "type")]),
        (None, [("$", "type")]),
    ],
)
def test_what_a_schema_refuses_is_named_by_path_and_keyword(state, expected):
    assert problems(state) == expected


def test_a_problem_is_told_in_bounds():
    (found,) = checker({"enum": [1]}, "x")("y" * 10**6)
    assert len(found.message) <= 201
    assert len(checker({"items": {"type": "null"}}, "x")([1] * 1_000)) == 20
    # A reference that leads nowhere refuses every state.
    assert problems({}, {"$ref": "#/nowhere"}) == [("$", "schema")]


def test_a_state_made_to_be_slow_to_check_is_refused_in_time():
    again = {"anyOf": [{"type": "array", "items": {"$ref": "#"}}] * 2 + [{"const": 1}]}
    deep = 0
    for _ in range(30):
        deep = [deep]
    began = time.monotonic()
    assert problems(deep, again) == [("$", "schema")]
    assert problems([{"a": n} for n in range(20_000)], {"uniqueItems": True}) == []
    assert problems("a" * 50_000 + "!", {"pattern": "^(a+)+$"}) == [("$", "pattern")]
    # Positive control: what Python's own engine takes for a pattern like it.
    short = time.monotonic()
    assert re.match("^(a+)+$", "a" * 22 + "!") is None
    assert time.monotonic() - short > 0.05
    assert time.monotonic() - began < 30
