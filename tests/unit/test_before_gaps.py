"""Which page has what a reply lacks: the one on which the first of it is."""

import contextlib

import pytest

from cellblock import Result
from cellblock.api.results import before_gaps
from cellblock.host.cell.output_log import OutputLog, places
from cellblock.host.cell.transcript import GAP, Output

PAGE = 5_000


@pytest.fixture
def kept(tmp_path):
    with contextlib.closing(OutputLog(tmp_path / "cellblock" / "output", 8 << 20, PAGE)) as made:
        yield made


def named_page(kept, printed, reply, kind="stdout"):
    """Return the page that is named for a cell that printed this, if one is."""
    kept.begin(1)
    kept.add(kind, printed)
    kept.settle()
    kept.keep()
    where = places(kept, before_gaps(reply), of_tool=True)
    if "page=" not in where:
        return None
    return kept.page(kept.kept_now()[0], int(where.partition("page=")[2].partition(" of ")[0]))


@pytest.mark.parametrize("limit", [300, 2_000, 8_000, 16_000])
@pytest.mark.parametrize("kind", ["stdout", "stderr"])
def test_the_page_is_that_of_the_first_line_that_is_missing(kept, limit, kind):
    lines = [f"line {n} of many" for n in range(4_000)]
    printed = "\n".join(lines)
    reply = Result(
        status="ok", **{"output" if kind == "stdout" else "error_output": printed}
    ).to_string(limit)
    shown = set(reply.split("\n"))
    first = next(line for line in lines if line not in shown)
    assert f"{first}\n" in named_page(kept, printed, reply, kind).content


def test_of_a_long_line_it_is_that_of_the_first_character_that_is_missing(kept):
    printed = "".join(f"{n:05}" for n in range(20_000))
    reply = Result(status="ok", output=printed).to_string(16_000)
    shown = reply.partition("stdout:\n")[2].partition(" …")[0]
    assert printed.startswith(shown)
    page = named_page(kept, printed, reply)
    before = printed.index(page.content)
    assert before <= len(shown) < before + len(page.content)


def test_of_what_the_policy_left_out_it_is_that_of_the_line_that_was_cut(kept):
    printed = "x" * 7_000 + "\n" + "y" * 90_000
    note = "[cellblock left out 80,000 bytes of stdout here: stdout_max_bytes is 10,000]"
    pieces = (f"{printed[:10_000]}", f"…\n{note}\n…", "yyy")
    outputs = tuple(
        Output("stream", {"name": "stdout", "text": text}, GAP if "\n[" in text else {})
        for text in pieces
    )
    reply = Result(status="ok", outputs=outputs, output="".join(pieces)).to_string(100_000)
    assert note in reply
    assert before_gaps(reply) == {"stdout": (1, 2_999)}
    assert named_page(kept, printed, reply).number == 3


@pytest.mark.parametrize(
    "printed",
    ["\x1b[31mx" * 9_000, "50%\r" * 9_000 + "x" * 20_000, "\\x" * 9_000],
)
def test_none_is_named_where_that_can_not_be_told(kept, printed):
    assert named_page(kept, printed, Result(status="ok", output=printed).to_string(8_000)) is None


def test_what_a_second_piece_of_a_stream_lacks_has_none():
    bundle = {"data": {"text/plain": "x"}, "metadata": {}}
    pieces = [Output("stream", {"name": "stdout", "text": "a\n" * n}) for n in (9, 9_000)]
    outputs = (pieces[0], Output("display_data", bundle), pieces[1])
    reply = Result(status="ok", outputs=outputs, output="a").to_string(4_000)
    assert reply.count("stdout:\n") == 2
    assert "characters left out" in reply
    assert before_gaps(reply) == {}


def test_no_cell_moves_the_place():
    printed = "a\n… 5 characters left out …\nstdout:\nb … 7 characters left out … c\n" * 900
    reply = Result(status="ok", output=printed).to_string(4_000)
    (lines, _), shown = before_gaps(reply)["stdout"], reply.split("\n")
    assert "characters left out" in shown[lines + 3]
    assert not shown[lines + 3].startswith("\\")


def test_what_the_policy_left_out_is_more_where_the_reply_leaves_out_that_it_did():
    note = "[cellblock left out 80,000 bytes of stdout here: stdout_max_bytes is 10,000]"
    pieces = ("a\n" * 5_000, f"{note}\n", "b\n" * 5_000)
    outputs = tuple(
        Output("stream", {"name": "stdout", "text": text}, GAP if text[0] == "[" else {})
        for text in pieces
    )
    result = Result(
        status="ok", outputs=outputs, output="".join(pieces), left_out={"stdout": 80_000}
    )
    assert result.to_string(50_000).endswith(
        "\n\nLeft out: 80,000 bytes of stdout (stdout_max_bytes)."
    )
    said = result.to_string(4_000)
    assert note not in said
    assert said.endswith("\n\nLeft out: 80,000 more bytes of stdout (stdout_max_bytes).")
