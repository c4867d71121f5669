"""The lessons in a real JupyterLab: run to their ends, and pictures of them in artifacts/.

``make lessons`` has all of them so. Where it says nothing, those that take the page: the others'
outputs are what ``tests/notebooks`` looks at, in cards whose looks other tests are about.
"""

import os

import pytest

from support import lessons
from support.lessons import NAMES, Classroom

STATES = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code')
    .map(cell => [cell.model.id, [...Array(cell.outputArea.model.length).keys()]
        .some(index => cell.outputArea.model.get(index).type === 'error')])"""
#: What is drawn only a moment after its cell has ended.
LATE = {"output": ".jp-Cell .widget-slider"}
TOO_WIDE = """() => [...document.querySelectorAll('.jp-OutputArea [role=group], .jp-MarkdownOutput')]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText)"""


ALL = os.environ.get("CELLBLOCK_LESSONS") == "all"
STEPWISE = {"admission", "approvals"}
PICTURED = [name for name in NAMES if name not in STEPWISE] if ALL else ["output"]


@pytest.fixture(scope="module")
def room(lab):
    """The lessons in the server's folder, and their kernels."""
    with pytest.MonkeyPatch.context() as patch, Classroom(lab.folder) as made:
        for name, value in lab.environment().items():
            patch.setenv(name, value)
        for name in (*PICTURED, *STEPWISE):
            if not lessons.missing(name):
                made.install(name)
        yield made


@pytest.fixture
def opened(room, open_notebook):
    """Open a lesson."""
    return lambda name: open_notebook(room.folder / f"{name}.ipynb", width=1_100, height=900)


def check(view, name, *, asked=False):
    """Have a picture of a lesson that ran; raise unless it went, and is drawn, as it should be."""
    if drawn := LATE.get(name):
        view.page.locator(drawn).first.wait_for()
    view.shot_whole(f"lesson-{name}")
    cells = lessons.code_cells(lessons.read(view.path))
    assert view.page.evaluate(STATES) == [
        [cell.id, lessons.may_fail(cell, asked=asked)] for cell in cells
    ]
    assert view.page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("name", PICTURED)
def test_a_lesson_runs_in_jupyterlab_and_reads_well(opened, name):
    lessons.skip_unless_installed(name)
    view = opened(name)
    view.run_all()
    check(view, name)


def test_cells_are_refused_in_jupyterlab_until_they_are_approved(room, opened):
    view = opened("admission")
    notebook = lessons.read(view.path)
    first = notebook.cells.index(lessons.code_cells(notebook)[0])
    view.run(first)
    assert "AdmissionProblem" in view.outputs(first).last.inner_text()
    view.shot_whole("lesson-admission-refused")
    (approve,) = lessons.commands_in(notebook, "cellblock approve admission")
    room.run(f"{approve} --yes")
    view.run_all()
    check(view, "admission")


@pytest.mark.skipif(not ALL, reason="what asks has tests of its own; make lessons has its picture")
def test_questions_in_jupyterlab_stand_below_their_cells_and_are_answered_there(opened):
    view = opened("approvals")
    for index, cell in enumerate(lessons.read(view.path).cells):
        if cell.id in lessons.ANSWERS:
            _run_answering(view, index, cell)
        elif cell.cell_type == "code":
            view.run(index)
    check(view, "approvals", asked=True)


def _run_answering(view, index, cell):
    """Run a cell that asks, and type what its reader does; have a picture of the question."""
    before, box = view.prompt(index).inner_text(), view.cell(index).locator(".jp-Stdin")
    view.start(index)
    box.locator("input").wait_for()
    view.shot(f"lesson-approvals-{cell.id}")
    prompt = box.locator(".jp-Stdin-prompt").inner_text()
    box.locator("input").fill(lessons.answer(cell, prompt))
    box.locator("input").press("Enter")
    view.wait_ran(index, before)
    view.wait_idle()
