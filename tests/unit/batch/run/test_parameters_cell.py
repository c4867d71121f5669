"""Parameters in a cell of their own, as papermill puts them."""

import json

import pytest

from cellblock.batch.run.notebook import read, with_parameters
from support.runs import code, document, markdown

KERNEL = {"name": "x", "display_name": "x", "language": "python"}
GIVEN = {"month": 3, "who": "Ada \u2028 'x'\n", "flags": [True, None, 1.5], "of": {"é": []}}
NOTEBOOKS = {
    "tagged": [markdown("# A"), code("month = 1", "parameters"), "month"],
    "injected": ["1", code("month = 2", "injected-parameters"), code("month = 1", "parameters")],
    "twice": [code("a = 1", "parameters"), code("b = 1", "parameters")],
    "last": ["1", code("month = 1", "parameters")],
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_stand_where_papermill_puts_them_and_set_the_same(name, tmp_path):
    papermill = pytest.importorskip("papermill.parameterize", reason="in the extra 'test'")
    load_notebook_node = pytest.importorskip("papermill.iorw").load_notebook_node
    made = document(*NOTEBOOKS[name], metadata={"kernelspec": KERNEL})
    ours = [cell.body for cell in with_parameters(read(json.dumps(made).encode()), GIVEN).cells]
    (tmp_path / "a.ipynb").write_text(json.dumps(made))
    read_by_them = load_notebook_node(str(tmp_path / "a.ipynb"))
    theirs = papermill.parameterize_notebook(read_by_them, GIVEN).cells
    tags = [[cell["metadata"].get("tags") or None for cell in cells] for cells in (ours, theirs)]
    assert tags[0] == tags[1]
    for mine, other in zip(ours, theirs, strict=True):
        assert evaluated(mine) == evaluated(other)
    assert len({cell["id"] for cell in ours}) == len(ours)


def evaluated(cell):
    if "injected-parameters" not in cell["metadata"].get("tags", ()):
        return cell["source"]
    values = {}
    exec(cell["source"], values)
    return {name: value for name, value in values.items() if name != "__builtins__"}


def test_a_notebook_without_a_place_or_a_name_is_as_it_was():
    plain = read(json.dumps(document("x = 1")).encode())
    assert with_parameters(plain, GIVEN) is plain
    tagged = read(json.dumps(document(code("x = 1", "parameters"))).encode())
    assert with_parameters(tagged, {}) is tagged
    assert with_parameters(tagged, {"a-b": 1, "class": 2, "": 3}) is tagged


def test_what_is_long_is_not_written_out():
    tagged = read(json.dumps(document(code("x = 1", "parameters"))).encode())
    made = with_parameters(tagged, {"rows": list(range(1_000)), "n": 1})
    assert made.cells[1].source == "# Parameters\nrows = inputs['rows']\nn = 1"
