"""A notebook's own policy: less than the kernel's, or nothing runs."""

import json
import os
import sys
from pathlib import Path

import nbformat
import pytest

from cellblock.errors import PolicyError, WideningError
from cellblock.policy import narrow_requests
from cellblock.policy.model import Policy
from cellblock.policy.narrow_requests import narrow_for_file, narrow_for_notebook


@pytest.fixture
def base(tmp_path):
    return Policy(filesystem_read_roots=(str(tmp_path),), network_access=True)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "analysis.ipynb"


def asking(own):
    """Return a notebook whose metadata has ``own`` in our place."""
    made = nbformat.v4.new_notebook()
    made.metadata["cellblock"] = own
    return made


def test_a_notebook_asks_for_less(base, file):
    (file.parent / "data").mkdir()
    asked = {"timeout": 10, "network_access": False, "filesystem_read_roots": ["data"]}
    narrowed = narrow_for_notebook(
        asking({"policy": asked}).metadata, base, file=file, project=Path("/")
    )
    assert (narrowed.timeout, narrowed.network_access) == (10.0, False)
    assert narrowed.filesystem_read_roots == (str(file.parent / "data"),)


@pytest.mark.parametrize("own", [None, {}, {"policy": {}}])
def test_a_notebook_that_asks_for_nothing_gets_the_policy_as_it_is(base, file, own):
    assert narrow_for_notebook(asking(own).metadata, base, file=file, project=file.parent) == base
    assert narrow_for_notebook({}, base, file=file, project=file.parent) == base


def test_a_notebook_cannot_ask_for_more(base, file):
    with pytest.raises(WideningError) as raised:
        narrow_for_notebook(
            asking({"policy": {"timeout": 100}}).metadata, base, file=file, project=file.parent
        )
    assert str(raised.value) == (
        f"{file}: metadata.cellblock.policy.timeout: a notebook can't have more than the policy: "
        "100 is more than 60 (got 100). "
        "Take it out of the notebook's metadata. Only the policy of the kernel can allow more."
    )


@pytest.mark.parametrize(
    ("own", "key", "message"),
    [
        ("no table", "", "not a table"),
        ({"polcy": {}}, ".polcy", "no such key"),
        ({"policy": []}, ".policy", "not a table"),
        ({"policy": {}, "mode": "safe"}, ".mode", "no such key"),
        ({"policy": {"tiemout": 1}}, ".policy.tiemout", "no such key"),
        ({"policy": {"timeout": "soon"}}, ".policy.timeout", "wrong value"),
        ({"policy": {"timeout": True}}, ".policy.timeout", "wrong value"),
        ({"policy": {"filesystem_read_roots": ["no"]}}, ".policy.filesystem_read_roots", "no such"),
        ({"policy": {"": 1}}, ".policy.", "no such key"),
    ],
)
def test_a_malformed_table_names_file_and_key(base, file, own, key, message):
    with pytest.raises(PolicyError, match=message) as raised:
        narrow_for_notebook(asking(own).metadata, base, file=file, project=file.parent)
    assert (raised.value.file, raised.value.key) == (str(file), f"metadata.cellblock{key}")


# --- the file that a kernel was started for -------------------------------------------------------


def read(file, base):
    return narrow_for_file(file, base, project=file.parent)


def test_keys_are_read_however_json_spells_them_and_the_last_of_two_counts_as_it_does_everywhere(
    base, file
):
    file.write_text('{"m\\u0065tadata": {"cellblo\\u0063k": {"policy": {"timeout": 10}}}}')
    assert read(file, base)[0].timeout == 10.0

    twice = '{"metadata": {"cellblock": {"policy": {"timeout": 10, "timeout": 100}}}}'
    file.write_text(twice)
    assert json.loads(twice)["metadata"]["cellblock"]["policy"] == {"timeout": 100}
    with pytest.raises(WideningError):
        read(file, base)


def test_the_file_is_read_as_the_notebook_is_once_it_is_saved(base, file):
    assert read(file, base) == (base, "")

    nbformat.write(asking({"policy": {"timeout": 10}}), file)
    assert read(file, base) == (base.replace(timeout=10.0), "")
    nbformat.write(asking({"policy": {"timeout": 100}}), file)
    with pytest.raises(WideningError):
        read(file, base)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"metadata": 3}', "{}", '{"metadata": {}} x', "\udc80"]
)
def test_what_is_no_notebook_is_told_and_asks_for_nothing(base, file, content):
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    policy, why = read(file, base)
    assert policy == base
    assert why == (
        "does not know whether analysis.ipynb narrows the policy: it is not a notebook in JSON"
    )


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_no_notebook_and_not_waited_for(base, file, make):
    make(file)
    policy, why = read(file, base)
    assert policy == base
    assert why.endswith("it is not a file")


def test_a_notebook_without_end_is_not_read(base, file, monkeypatch):
    monkeypatch.setattr(narrow_requests, "MAX_NOTEBOOK_BYTES", 2**20)
    with file.open("wb") as written:
        written.truncate(2**30)
    policy, why = read(file, base)
    assert policy == base
    assert why.endswith("it is larger than 1 MiB")


def test_a_table_without_end_is_an_error_and_one_that_nests_so_costs_nothing(base, file):
    nbformat.write(asking({"policy": {"x" * 70_000: 1}}), file)
    with pytest.raises(PolicyError, match="larger than 64 KiB"):
        read(file, base)

    deep = "[" * 20_000 + "]" * 20_000
    file.write_text(f'{{"metadata": {{"cellblock": {deep}}}}}')
    if sys.version_info < (3, 14):
        policy, why = read(file, base)
        assert (policy, bool(why)) == (base, True)
    else:
        with pytest.raises(PolicyError, match="not a table"):
            read(file, base)
