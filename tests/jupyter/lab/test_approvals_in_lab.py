"""A question of the host's as a user of JupyterLab sees and answers it."""

import re

import pytest

from support.kernels import argv_for


@pytest.fixture
def view(open_notebook, lab):
    """Return a notebook whose kernel asks, and may read."""
    policy = lab.settings.parent / "asking.toml"
    policy.write_text('approvals = "prompt"\n[ops.list_dir]\nroots = ["{project}"]\n')
    lab.add_kernel("asking", argv_for(policy))
    cells = [
        "name = input('┃ cellblock asks: ')",
        "'listed' if ops.list_dir('.') else ''",
        "import shlex; shlex.split('a b')",
    ]
    return open_notebook(cells, kernel="asking")


def asked(view, index):
    """Return the prompt that stands at a cell, once it is seen with its box."""
    box = view.cell(index).locator(".jp-Stdin")
    box.locator("input").wait_for()
    return box


@pytest.mark.quick
def test_a_question_stands_whole_on_the_page_and_its_answer_is_taken(view):
    view.start(1)
    box = asked(view, 1)
    prompt = box.locator(".jp-Stdin-prompt").inner_text()
    view.shot("approval")
    assert prompt.startswith("┃ cellblock asks: may cell [1] call ops.list_dir?\n┃   path = '.'\n")
    assert prompt.count("┃") == prompt.strip().count("\n") + 1
    room = view.page.viewport_size["width"]
    for part in (".jp-Stdin-prompt", "input"):
        place = box.locator(part).bounding_box()
        assert 0 <= place["x"] < place["x"] + place["width"] <= room, part
        assert place["width"] > 60, part
    code = re.search(r"type (\d{3})", prompt)[1]
    box.locator("input").fill(code)
    box.locator("input").press("Enter")
    view.cell(1).locator(".jp-OutputArea-executeResult").wait_for()
    view.shot("approval-answered")
    assert "'listed'" in view.outputs(1).all_inner_texts()[-1]


def test_a_cells_own_question_says_whose_it_is_and_a_no_is_a_denial(view):
    view.start(0)
    box = asked(view, 0)
    assert box.locator(".jp-Stdin-prompt").inner_text().startswith("the cell asks: ")
    box.locator("input").fill("Ada")
    box.locator("input").press("Enter")
    view.wait_idle()
    view.start(2)
    box = asked(view, 2)
    assert "module = shlex" in box.locator(".jp-Stdin-prompt").inner_text()
    box.locator("input").press("Enter")
    view.cell(2).get_by_role("group", name="cellblock did not run this cell: 1 finding").wait_for()
