"""What is written is what nbformat writes of the same notebook, byte by byte, and within bounds."""

import json
import tracemalloc

import nbformat
import pytest

from cellblock.batch.run import document as module
from cellblock.batch.run.document import Document, TooMuchOutputError
from support.runs import code, document, markdown


def text(made):
    """Return the content of a document's file."""
    return b"".join(made.file_content())


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
    assert text(Document(made["cells"], told, 5)).decode() == expected


def test_an_output_is_updated_in_its_place_and_what_is_compact_made_the_same_again():
    written = Document(CELLS, {"a": 1}, 4)
    written.update(0, {1: {"data": {"text/plain": "new\nline"}, "metadata": {}}})
    outputs = json.loads(text(written))["cells"][0]["outputs"]
    assert [one["output_type"] for one in outputs] == ["stream", "execute_result", "error"]
    assert outputs[1]["data"] == {"text/plain": ["new\n", "line"]}
    assert outputs[1]["execution_count"] == 3
    again = Document.from_bytes(written.to_bytes())
    assert text(again) == text(written)
    again.put(2, code("new", id="c"))
    assert json.loads(text(again))["cells"][2]["source"] == ["new"]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r", "\x85", "\u2028"])
def test_a_text_of_many_parts_has_the_lines_that_it_has_as_one(monkeypatch, ending):
    monkeypatch.setattr(module, "_PART", 7)
    said = "".join("x" * (n % 9) + ending for n in range(100)) + "end"
    written = Document([code(said, id="a")], {}, 5)
    assert json.loads(text(written))["cells"][0]["source"] == said.splitlines(keepends=True)


def test_more_than_is_written_of_one_notebook_is_refused_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 1_000)
    written = Document([code("1", id="a")], {}, 5)
    before = text(written)
    with pytest.raises(TooMuchOutputError, match="its outputs take more than"):
        written.put(0, code("x" * 1_000, id="a"))
    assert text(written) == before


@pytest.mark.parametrize("updated", [False, True])
def test_one_text_of_many_displays_is_refused_before_it_is_made_for_each(monkeypatch, updated):
    """A thousand displays of one id that showed a megabyte ended a run by their memory."""
    monkeypatch.setattr(module, "MAX_BYTES", 4_000_000)
    shown = {"output_type": "display_data", "data": {"text/plain": "x"}, "metadata": {}}
    large = {"data": {"text/plain": "y" * 1_000_000}, "metadata": {}}
    number = 200
    written = Document([code("1", id="a", outputs=[shown] * number)], {}, 5)
    before = text(written)

    def write(number):
        if updated:
            written.update(0, dict.fromkeys(range(number), large))
        else:
            written.put(0, code("1", id="a", outputs=[shown | large] * number))

    tracemalloc.start()
    with pytest.raises(TooMuchOutputError):
        write(number)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000
    assert text(written) == before


def test_a_cell_counts_with_the_blanks_that_it_is_written_with():
    deep = [[]] * 1_000
    for _ in range(40):
        deep = [deep]
    shown = {"output_type": "display_data", "data": {"application/json": deep}, "metadata": {}}
    cells = [code("1", id="a", outputs=[shown]), code("2", id="b")]
    written = text(Document(cells, {}, 5))
    assert len(written) > 10 * len(json.dumps(cells))
    told = sum(module.written_size(json.dumps(cell).encode()) for cell in cells)
    assert 0 < len(written) - told < 100


def test_what_is_written_again_and_again_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_WRITTEN", 1_000)
    written = Document([code("1", id="a")], {}, 5)

    def often():
        for _ in range(100):
            written.put(0, code("1", id="a"))

    with pytest.raises(TooMuchOutputError):
        often()


def test_widgets_count_with_the_blanks_that_they_are_written_with(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 2_000)
    written = Document([code("1", id="a")], {}, 5)
    written.take_widgets({"w": {"state": {"value": [1] * 100}}})
    written.take_widgets({"w": {"state": {"value": [2] * 100}}})  # in the place of what was there
    before = text(written)
    with pytest.raises(TooMuchOutputError):
        written.take_widgets({"v": {"state": {"value": [1] * 100}}})
    assert text(written) == before


def test_a_file_is_written_in_pieces_and_a_text_with_many_lines_in_several():
    shown = {"output_type": "stream", "name": "stdout", "text": "y\n" * 500_000}
    written = Document([code("1", id=f"c{n}", outputs=[shown]) for n in range(4)], {}, 5)
    tracemalloc.start()
    size = sum(map(len, written.file_content()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 20_000_000 > 4 * peak
