"""What a notebook or script is, and what is none: said with a place, never a traceback."""

import json

import nbformat
import pytest

from cellblock.batch.files import UnreadableError, read_script
from cellblock.batch.files import read_notebook as read_with
from cellblock.batch.run.notebook import read as read_for_run
from cellblock.host.files import upgraded
from support.notebooks import notebook

FULL = notebook(("markdown", "# a"), "x = 1\ny = 2", ("raw", "z"), "print(x)")


def read_notebook(content):
    return read_with(content, upgraded)


#: What is wrong, and in which line and column.
BROKEN = {
    "": ("is not JSON: Expecting value", 1, 0),
    '{"cells": [\n  {"cell_type" "code"}]}': ("is not JSON: Expecting ':' delimiter", 2, 15),
    FULL[:90]: ("is not JSON: Expecting ':' delimiter", 7, 11),
    FULL + "{}": ("is not JSON: Extra data", 45, 0),
}
#: What is wrong with a file as a whole.
NONE = {
    "\ufeff" + FULL: "is not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig)",
    "[]": "is not a notebook: it is not a JSON object",
    "[" * 100_000: "is nested too deeply",
    '{"nbformat": 4}': "is not a notebook: it has no list of cells",
    '{"nbformat": 4, "cells": {}}': "is not a notebook: it has no list of cells",
    '{"nbformat": 4, "cells": [], "metadata": []}': "is not a notebook: its metadata is not a JSON object",
    '{"nbformat": 5, "cells": []}': "has format 5, and cellblock reads formats up to 4",
    '{"nbformat": 4.0, "cells": []}': "does not say which format it has (nbformat)",
    '{"nbformat": true, "cells": []}': "does not say which format it has (nbformat)",
    '{"nbformat": 4, "nbformat": 4, "cells": []}': 'has the key "nbformat" twice in one object',
    notebook("x").replace('"source"', '"source": [], "source"'): (
        'has the key "source" twice in one object'
    ),
    "{}": "has an older format, and nbformat can't convert it",
    '{"nbformat": 0}': "has an older format, and nbformat can't convert it",
    '{"nbformat": 3, "worksheets": 1}': "has an older format, and nbformat can't convert it",
}
BROKEN |= {text: (why, 1, 0) for text, why in NONE.items()}
ODD_CELLS = {
    '{"cell_type": "markdown"}': "has no text as its source",
    "1": "is of no known type",
    '{"source": "x"}': "is of no known type",
    '{"cell_type": "Code", "source": "x"}': "is of no known type",
    '{"cell_type": ["code"], "source": "x"}': "is of no known type",
    '{"cell_type": "code"}': "has no text as its source",
    '{"cell_type": "code", "source": 1}': "has no text as its source",
    '{"cell_type": "code", "source": ["x", 1]}': "has no text as its source",
}


def test_code_cells_are_counted_among_all_cells_and_half_a_letter_is_kept_for_the_analysis():
    assert read_notebook(FULL.encode()).code_cells == [(2, "x = 1\ny = 2"), (4, "print(x)")]

    assert read_notebook(notebook("x = '\ud800'").encode()).code_cells[0][1] == "x = '\ud800'"


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_notebook_is_said_to_be_none_and_where(text):
    with pytest.raises(UnreadableError) as refused:
        read_notebook(text.encode())
    assert (refused.value.why, refused.value.line, refused.value.column) == BROKEN[text]


@pytest.mark.parametrize("cell", ODD_CELLS)
def test_a_cell_that_readers_may_take_for_different_things_is_refused_by_its_number(cell):
    text = f'{{"nbformat": 4, "cells": [{{"cell_type": "raw", "source": ""}}, {cell}]}}'
    with pytest.raises(UnreadableError) as refused:
        read_notebook(text.encode())
    assert (refused.value.why, refused.value.cell) == (ODD_CELLS[cell], 2)


#: nbformat would make of it a line of two thousand million signs.
HEADING = {"cell_type": "heading", "level": 2_000_000_000, "source": "x"}
BOMB = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [HEADING]}]}


@pytest.mark.parametrize("text", [*BROKEN, json.dumps(BOMB)], ids=range(len(BROKEN) + 1))
def test_run_refuses_what_check_refuses_and_for_the_same_reason(text):
    with pytest.raises(UnreadableError) as by_check:
        read_notebook(text.encode())
    with pytest.raises(UnreadableError) as by_run:
        read_for_run(text.encode())
    assert str(by_run.value) == str(by_check.value)


def test_an_old_notebook_that_takes_too_much_ends_the_process_that_upgrades_it():
    with pytest.raises(UnreadableError, match="has an older format, and nbformat can't convert it"):
        read_notebook(json.dumps(BOMB).encode())


def test_bytes_that_are_no_text_and_numbers_of_thousands_of_digits_are_refused():
    with pytest.raises(UnreadableError) as refused:
        read_notebook(b'{\n"a": "\xff"}')
    assert (str(refused.value), refused.value.line) == ("is not UTF-8 text", 2)

    with pytest.raises(
        UnreadableError, match="is not JSON that Python can read: Exceeds the limit"
    ):
        read_notebook(notebook("x", long=1).replace('"long": 1', f'"long": {"9" * 5000}').encode())


@pytest.mark.parametrize(
    "text",
    [
        notebook("x", nbformat_minor=99, metadata={"kernelspec": None}),
        notebook("x", value=float("nan"), other=float("inf")),
        notebook("x").replace('"metadata": {},\n "nbformat": 4', '"metadata": {}, "nbformat": 4'),
        notebook("x").replace("\n", "\r\n"),
    ],
)
def test_what_every_runner_reads_is_read(text):
    assert [source for _, source in read_notebook(text.encode()).code_cells] == ["x"]
    assert nbformat.reads(text, as_version=4).cells[0].source == "x"


@pytest.mark.parametrize(
    "old",
    [
        {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["x\n", "y"]}]}]},
        {"nbformat": 2, "worksheets": [{"cells": [{"cell_type": "code", "input": "x\ny"}]}]},
    ],
)
def test_an_older_notebook_is_read_as_nbformat_upgrades_it(old):
    shape = {"metadata": {"name": ""}, "nbformat_minor": 0} | old
    for cell in shape["worksheets"][0]["cells"]:
        cell |= {"language": "python", "outputs": [], "prompt_number": 1}
    found = read_notebook(json.dumps(shape).encode())
    assert found.code_cells == [(1, "x\ny")]
    assert found.text == ""  # its lines are not where the cells of today's format are


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"x = 1", "x = 1"),
        (b"\xef\xbb\xbfx = 1", "x = 1"),
        (b"# -*- coding: ascii -*-\n", "# -*- coding: ascii -*-\n"),
        (b"#!python\n# vim: set fileencoding=utf-8 :\n\xc3\xa4", None),
        (b"\n\n# coding: latin-1\n", "\n\n# coding: latin-1\n"),  # the third line declares nothing
    ],
)
def test_a_script_is_utf_8(content, text):
    assert read_script(content) == (content.decode() if text is None else text)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"# coding: utf-7\n+AG8-s", "declares the encoding utf-7, and only UTF-8 is read"),
        (b"# coding: latin-1\n", "declares the encoding iso-8859-1, and only UTF-8 is read"),
        (b"# coding: nonsense\n", "is not text: unknown encoding: nonsense"),
        (b"x = 1\n\n'\xe4'", "is not UTF-8 text"),
    ],
)
def test_a_script_that_python_would_read_in_another_way_is_refused(content, why):
    with pytest.raises(UnreadableError) as refused:
        read_script(content)
    assert refused.value.why == why


@pytest.mark.parametrize("content", [b"# coding: rot13\n", b"x\0\xff"])
def test_a_script_that_is_no_text_is_refused_in_the_words_of_this_python(content):
    with pytest.raises(UnreadableError, match=r"is not text: |declares the encoding rot13, "):
        read_script(content)
