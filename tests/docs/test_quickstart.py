"""The quickstart: its cells show what it says, and its commands succeed."""

import json

import pytest

from support import doc_pages, reading

PAGE = "quickstart.md"


@pytest.mark.quick
def test_each_cell_shows_what_the_page_says(safe):
    denied = [cell.source for cell in map(doc_pages._cell, doc_pages.blocks(PAGE, "{denial} safe"))]
    told = 0
    for cell in doc_pages.cells(PAGE):
        if cell.source in denied:
            reply, published = safe.run(cell.source)
            assert reply["ename"] == "PolicyDenied"
            assert reading.cards(published, "denial")
        elif cell.says is not None:
            assert doc_pages.answer(*safe.run(cell.source)) == cell.says
            told += 1
        else:
            assert safe.run(cell.source)[0]["status"] == "ok"
    assert (len(denied), told) == (1, 3)


def test_its_commands_make_a_kernel_of_its_policy(world, follow):
    follow(PAGE)
    (spec,) = world.home.glob(".local/share/jupyter/kernels/*/kernel.json")
    assert spec.parent.name == "cellblock-lab"
    assert json.loads(spec.read_text())["display_name"] == "cellblock (lab)"
