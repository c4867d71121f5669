"""The lessons run under the kernels that they name, and each cell shows what the lesson says."""

import asyncio
import re

import nbformat
import pytest
from nbclient import NotebookClient

from cellblock.policy.load import load
from support import lessons
from support.kernels import ROOT, World
from support.lesson_expectations import CLAIMS, fits, shown
from support.lessons import FOLDER, NAMES, NOTEBOOKS, Classroom

#: Followed step by step, by tests of their own.
STEPWISE = {"admission", "approvals", "audit", "tools"}


@pytest.fixture(scope="module")
def room():
    """A copy of the lessons in a world in which Jupyter finds no other kernels."""
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment().items():
            patch.setenv(name, value)
        patch.setenv("PATH", lessons.path(world.environment()["PATH"]))
        lessons.add_shipped(world.home / ".local/share/jupyter/kernels")
        with Classroom(world.work) as made:
            yield made
    world.close()


@pytest.fixture
def opened(room):
    """Return a function that opens a lesson with the kernel that it says how to make."""

    def done(name):
        lessons.skip_unless_installed(name)
        room.install(name)
        notebook = lessons.read(room.folder / f"{name}.ipynb")
        place = {"metadata": {"path": str(room.folder)}}
        return NotebookClient(notebook, timeout=60, allow_errors=True, resources=place)

    return done


def check(name, cells, *, asked=False):
    """Raise unless cells that ran show what is claimed, and fail where they are meant to."""
    for cell in cells:
        text = shown(cell)
        assert fits(CLAIMS[name].get(cell.id, ""), text), f"{cell.id}:\n{text}"
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == lessons.may_fail(cell, asked=asked), cell.id


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.quick] if name == "tour" else [])
        for name in NAMES
        if name not in STEPWISE
    ],
)
def test_each_cell_shows_what_the_lesson_says(opened, name):
    client = opened(name)
    client.execute()
    nbformat.validate(client.nb)
    check(name, lessons.code_cells(client.nb))


def test_cells_are_refused_until_approved_and_again_when_changed(opened, room):
    client = opened("admission")
    area, edge, usage = (client.nb.cells.index(cell) for cell in lessons.code_cells(client.nb))
    (approve,) = lessons.commands_in(client.nb, "cellblock approve admission")

    def run(index):
        return shown(client.execute_cell(client.nb.cells[index], index))

    with client.setup_kernel():
        assert "cellblock approve" in run(area)
        said = room.run(f"{approve} --yes")
        assert "2 new, 0 approved already, 0 gone" in said
        run(area), run(edge), run(usage)
        check("admission", lessons.code_cells(client.nb))
        changed = client.nb.cells[area]
        changed.source = changed.source.replace("3", "4")
        assert "cell-not-approved" in run(area)
        assert run(edge).startswith("edge 18.85\n")
        (revoke,) = lessons.commands_in(client.nb, "cellblock approve --revoke")
        room.run(revoke)
        assert "PolicyDenied" in run(edge)


async def _followed(client):
    """Run all cells and answer their questions as their reader does; return who asked, by cell."""
    asked = {}
    async with client.async_setup_kernel():
        client.kc.allow_stdin = True
        for index, cell in enumerate(client.nb.cells):
            run = asyncio.ensure_future(client.async_execute_cell(cell, index))
            if cell.id in lessons.ANSWERS:
                question = await client.kc.stdin_channel.get_msg(timeout=30)
                prompt = question["content"]["prompt"]
                asked[cell.id] = prompt.partition(":")[0]
                client.kc.input(lessons.answer(cell, prompt))
            await run
    return asked


def test_what_its_reader_allows_is_done_and_listed_until_it_is_taken_back(opened, room):
    client = opened("approvals")
    asked = asyncio.run(_followed(client))
    own = asked.pop("own")
    assert (own, set(asked.values())) == ("the cell asks", {"┃ cellblock asks"})
    check("approvals", lessons.code_cells(client.nb), asked=True)
    (list_,) = lessons.commands_in(client.nb, "cellblock approvals list")
    (revoke,) = lessons.commands_in(client.nb, "cellblock approvals revoke")
    told = room.run(list_)
    assert "import of shlex\n" in told
    room.run(revoke.replace("ID", told.split()[0]))
    assert room.run(list_) == "nothing was approved\n"


def test_where_nobody_can_be_asked_each_cell_says_so_and_the_lesson_goes_on(opened):
    client = opened("approvals")
    client.execute()
    cells = {cell.id: cell for cell in lessons.code_cells(client.nb)}
    assert [cell.id for cell in cells.values() if lessons.may_fail(cell)] == [
        name for name in cells if name != "unasked"
    ]
    nobody = "NotApproved: nobody can be asked: this front end takes no input"
    assert shown(cells["once"]) == f"ToolError: ops.read_file: {nobody}"
    assert shown(cells["no"]) == f"ToolError: ops.write_file: {nobody}"
    assert "approve it where you can be asked" in shown(cells["always"])


def test_what_ran_is_on_record_and_no_line_can_be_changed(opened, room):
    client = opened("audit")
    client.execute()
    check("audit", lessons.code_cells(client.nb))
    show, verify, head = lessons.commands_in(client.nb, "cellblock audit")
    text = re.sub(r"\s+", "", room.run(show))
    for told in ("importsocket", "decisiondenied", "import-not-allowed", "errorZeroDivisionError"):
        assert told in text
    assert " records, whole\n" in room.run(verify)
    assert len(room.run(head).split()[-1]) == 64


def test_a_secret_is_masked_where_calls_are_on_record(opened, room):
    client = opened("tools")
    client.execute()
    check("tools", lessons.code_cells(client.nb))
    (show,) = lessons.commands_in(client.nb, "cellblock audit")
    said = room.run(show)
    assert "publish" in said
    assert "•••" in said
    assert "correct horse" not in said


# --- as they are kept -----------------------------------------------------------------------------


def test_lessons_are_kept_as_nbformat_writes_them_and_without_output():
    for path in NOTEBOOKS:
        text = path.read_text("utf-8")
        notebook = nbformat.reads(text, 4)
        nbformat.validate(notebook)
        assert text == nbformat.writes(notebook) + "\n", path
        ids = [cell.id for cell in notebook.cells]
        assert len(set(ids)) == len(ids), path
        for cell in lessons.code_cells(notebook):
            assert (cell.outputs, cell.execution_count) == ([], None), path
            assert cell.source == cell.source.strip(), path


def test_a_lesson_says_first_what_it_takes():
    for path in NOTEBOOKS:
        notebook = lessons.read(path)
        first, spec = notebook.cells[0], notebook.metadata.kernelspec
        assert first.cell_type == "markdown", path
        assert first.source.startswith("# "), path
        assert notebook.metadata.language_info == {"name": "python"}, path
        policy = path.with_suffix(".toml")
        if policy.exists():
            names = (f"cellblock-{path.stem}", f"cellblock ({path.stem})")
            assert (spec.name, spec.display_name) == names
            (install,) = lessons.commands_in(notebook, "cellblock install")
            assert install.startswith(f"cellblock install --policy {policy.name}"), path
            assert install in first.source, path
            assert install in policy.read_text("utf-8"), path
            load(str(policy), project=FOLDER, allow_unsafe=False)
        else:
            assert spec.name in {*lessons.SHIPPED, lessons.JUPYTERS}, path
        kernel = spec.display_name.replace(" (ipykernel)", "")
        assert path.stem == "tour" or f"*{kernel}*" in first.source, path


def test_every_claim_is_about_a_cell_and_every_cell_that_fails_is_claimed():
    assert sorted(CLAIMS) == NAMES
    for path in NOTEBOOKS:
        cells = lessons.code_cells(lessons.read(path))
        assert CLAIMS[path.stem].keys() <= {cell.id for cell in cells}
        assert {cell.id for cell in cells if lessons.may_fail(cell)} <= CLAIMS[path.stem].keys()


def test_lessons_lead_to_files_that_are_there():
    for path in NOTEBOOKS:
        text = "\n".join(cell.source for cell in lessons.read(path).cells)
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert (FOLDER / link).exists(), f"{path.name}: {link}"


def test_every_lesson_is_listed_in_the_documentation_and_in_the_tour():
    page = (ROOT / "docs" / "lessons.md").read_text("utf-8")
    listed = re.findall(r"\]\(\.\./notebooks/(\w+)\.ipynb\)", page)
    assert sorted(listed) == NAMES
    last = lessons.read(FOLDER / "tour.ipynb").cells[-1].source
    assert re.findall(r"\]\((\w+)\.ipynb\)", last) == [name for name in listed if name != "tour"]
