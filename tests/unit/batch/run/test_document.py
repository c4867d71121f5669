"""What is written is what nbformat writes of the same notebook, byte by byte, and within bounds."""

import json

import nbformat
import pytest

from cellblock.batch.run import document as module
from cellblock.batch.run.document import Document, TooMuchError
from support.runs import code, document, markdown

OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": "a\nb\r\nc\u2028d"},
    {
        "output_type": "execute_result",
        "execution_count": 3,
        "metadata": {"isolated": True},
        "data": {
            "text/plain": "x\ny",
            "text/html": "<b>\n</b>",
            "image/svg+xml": "<svg>\n</svg>",
            "image/png": "aGk=\n",
            "application/json": {"z": [1, 2.5, None, True], "a": "two\nlines"},
        },
    },
    {"output_type": "error", "ename": "E", "evalue": "v\nw", "traceback": ["\x1b[31ma\nb", "c"]},
]
CELLS = [
    code("x = 'é\x7f'\n\ny", outputs=OUTPUTS, id="a", execution_count=3),
    markdown("# Title\n*text*") | {"id": "b", "attachments": {"p.png": {"image/png": "aGk="}}},
    code("", id="c"),
]


def test_a_notebook_is_written_as_nbformat_writes_it():
    told = {"language_info": {"name": "python"}, "kernelspec": {"name": "k", "display_name": "K"}}
    made = document(*CELLS, metadata=told)
    expected = nbformat.writes(nbformat.from_dict(made)) + "\n"
    assert Document(made["cells"], told, 5).written().decode() == expected


def test_a_cell_is_read_back_as_it_is_written_and_what_is_compact_made_the_same_again():
    written = Document(CELLS, {}, 5)
    cell = written.cell(0)
    assert cell["source"] == ["x = 'é\x7f'\n", "\n", "y"]
    cell["outputs"] = []
    written.put(0, cell)
    assert nbformat.reads(written.written().decode(), 4).cells[0].source == "x = 'é\x7f'\n\ny"

    written = Document(CELLS, {"a": 1}, 4)
    again = Document.of(written.compact())
    assert again.written() == written.written()
    again.put(2, code("new", id="c"))
    assert json.loads(again.written())["cells"][2]["source"] == ["new"]


def test_more_than_is_written_of_one_notebook_is_refused_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1_000)
    written = Document([code("1", id="a")], {}, 5)
    before = written.written()
    with pytest.raises(TooMuchError, match="its outputs take more than"):
        written.put(0, code("x" * 1_000, id="a"))
    assert written.written() == before


def test_a_cell_counts_with_the_blanks_that_it_is_written_with():
    deep = [[]] * 1_000
    for _ in range(40):
        deep = [deep]
    shown = {"output_type": "display_data", "data": {"application/json": deep}, "metadata": {}}
    cells = [code("1", id="a", outputs=[shown]), code("2", id="b")]
    written = Document(cells, {}, 5).written()
    assert len(written) > 10 * len(json.dumps(cells))
    told = sum(module.written_size(module.cell_bytes(cell)) for cell in cells)
    assert 0 < len(written) - told < 100


def test_what_is_written_again_and_again_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_WRITTEN", 1_000)
    written = Document([code("1", id="a")], {}, 5)

    def often():
        for _ in range(100):
            written.put(0, code("1", id="a"))

    with pytest.raises(TooMuchError):
        often()
