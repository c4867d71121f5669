"""A notebook is read as every runner reads it, or is refused with a reason; nothing else happens."""

import json

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.batch import files as module
from cellblock.batch.files import UnreadableError
from cellblock.batch.run.notebook import read
from cellblock.batch.verdict import MAX_FILE_BYTES
from support.runs import code, document, markdown, notebook

#: It would become a line of two thousand million signs.
HEADING = {"cell_type": "heading", "level": 2_000_000_000, "source": "x"}
OLD = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [HEADING]}]}
SHOWN = {"output_type": "stream", "name": "stdout", "text": ["old\n"]}


def test_cells_are_read_without_what_an_earlier_run_showed_and_lines_are_put_together():
    content = notebook(markdown("# t"), code("x = 1\n", outputs=[SHOWN], execution_count=7))
    text, cell = read(content).cells
    assert not text.runs
    assert cell.runs
    assert cell.outputs == [SHOWN]
    assert cell.body == {
        "cell_type": "code", "id": "c1", "metadata": {}, "source": "x = 1\n", "outputs": [],
        "execution_count": None,
    }  # fmt: skip

    found = read(notebook(code(["a = 1\n", "a"]), markdown(["x\n", "y"])))
    assert [cell.source for cell in found.cells] == ["a = 1\na", "x\ny"]


@pytest.mark.parametrize(
    ("cell", "runs"),
    [
        (code("1"), True),
        (code(" \n"), False),
        (code("1", "skip-execution"), False),
        (code("1", "raises-exception"), True),
        (markdown("1"), False),
        ({"cell_type": "raw", "source": "1", "metadata": {}}, False),
    ],
)
def test_a_cell_runs_where_nbclient_runs_it(cell, runs):
    assert read(notebook(cell)).cells[0].runs is runs


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not JSON: Expecting value (line 1, column 1)"),
        (b"\xef\xbb\xbf{}", "is not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) (line 1, column 1)"),
        (b"[]", "is not a notebook: it is not a JSON object"),
        (b"\xff", "is not UTF-8 text"),
        (b'{"nbformat": 4, "nbformat": 4}', 'has the key "nbformat" twice in one object'),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"x":' + b"[" * 200 + b"]" * 200 + b',"nbformat":4,"cells":[]}', "is nested too deeply, or holds too much"),
        (b"[" + b"[]," * 1_000_000, "holds more than 2,000,000 values"),
        (notebook(nbformat=5), "has format 5, and cellblock reads formats up to 4"),
        (notebook(nbformat="4"), "does not say which format it has (nbformat)"),
        (notebook(nbformat=3), "has an older format, and nbformat can't convert it"),
        (json.dumps(OLD).encode(), "has an older format, and nbformat can't convert it"),
        (notebook(nbformat_minor=-1), "does not say which minor format it has (nbformat_minor)"),
        (notebook(cells={}), "is not a notebook: it has no list of cells"),
        (notebook(cells=[None]), "has a cell of no known type: cell 1"),
        (notebook("1", {"cell_type": "x"}), "has a cell of no known type: cell 2"),
        (notebook(code(None)), "has a cell without text as its source: cell 1"),
        (notebook(code("1", metadata=[])), "is not a valid notebook: data.cells[0] must be valid exactly by one definition (0 matches found)"),
        (notebook(metadata=[]), "is not a notebook: its metadata is not a JSON object"),
        (notebook(metadata={"kernelspec": 1}), "is not a valid notebook: data.metadata.kernelspec must be object"),
        (notebook(**{"\x1b[2J": 1}), "is not a valid notebook: data must not contain {'\\x1b[2J'} properties"),
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_refused_with_a_reason(content, why):
    with pytest.raises(UnreadableError) as refused:
        read(content)
    assert str(refused.value) == why


def test_a_file_that_is_too_large_is_not_parsed(monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 100)
    with pytest.raises(UnreadableError, match="is larger than"):
        read(b" " * 101)
    assert MAX_FILE_BYTES == 64 << 20


def test_what_can_not_be_written_is_replaced_and_what_an_earlier_run_left_is_dropped():
    metadata = {"a": float("nan"), "b": 10**30, "c": "x\ud800"}
    found = read(notebook(code("'\ud800'"), metadata=metadata))
    assert found.metadata == {"a": None, "b": None, "c": "x\ufffd"}
    assert found.cells[0].source == "'\ufffd'"

    metadata = {"widgets": {"x": 1}, "signature": "s", "title": "t"}
    found = read(notebook(code("1", metadata={"trusted": True, "name": "n"}), metadata=metadata))
    assert found.metadata == {"title": "t"}
    assert found.cells[0].body["metadata"] == {"name": "n"}


def test_cells_without_a_name_of_their_own_are_given_one():
    cells = [code("1", id="a"), code("2", id="a"), code("3", id="no id"), code("4", id="cell-3")]
    made = document()
    made["cells"] = cells
    names = [cell.body["id"] for cell in read(json.dumps(made).encode()).cells]
    assert names == ["a", "cell-2", "cell-3", "cell-4"]


def test_cells_of_formats_without_ids_have_none_whatever_the_file_says():
    found = read(notebook(markdown("t"), code("1", id="b"), nbformat_minor=4))
    assert [set(cell.body) & {"id"} for cell in found.cells] == [set(), set()]


def test_an_older_format_is_read_as_nbformat_makes_it_todays():
    old = nbformat.v3.new_notebook()
    old.worksheets = [nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell("print(1)")])]
    found = read(json.dumps(old).encode())
    assert [cell.source for cell in found.cells] == ["print(1)"]


@pytest.mark.parametrize(
    ("metadata", "is_python"),
    [
        ({}, True),
        ({"kernelspec": {"name": "python3", "display_name": "P", "language": "python"}}, True),
        ({"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}, False),
        ({"language_info": {"name": "julia"}}, False),
        ({"kernelspec": {"name": "x", "display_name": "x", "language": ["odd"]}}, False),
    ],
)
def test_a_notebook_says_what_it_is_written_in(metadata, is_python):
    assert read(notebook(metadata=metadata)).is_python is is_python


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["cell_type", "source", "metadata", "outputs", "id", "execution_count", "attachments"]
)
CELLS = st.dictionaries(
    FIELDS, JSON | st.sampled_from(["code", "markdown", "raw", "x", {}, []]), max_size=7
)


@given(cells=st.lists(CELLS | JSON, max_size=3), metadata=JSON | st.just({}), minor=st.integers())
def test_whatever_stands_in_a_file_it_is_a_valid_notebook_or_refused(cells, metadata, minor):
    made = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": minor}
    try:
        found = read(json.dumps(made).encode())
    except UnreadableError:
        return
    bodies = [cell.body for cell in found.cells]
    again = {"cells": bodies, "metadata": found.metadata, "nbformat": 4, "nbformat_minor": found.minor}  # fmt: skip
    nbformat.validate(again)
