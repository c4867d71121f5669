"""A notebook in the home folder, or one that names it: each card's remedy works when followed."""

import re

import pytest

from support import machines, reading
from support.kernels import Kernel, World, argv_for


@pytest.fixture(params=["landlock", "bubblewrap"])
def world(request):
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    made = World(backend=request.param)
    made.work = made.home
    (made.home / "lab/data").mkdir(parents=True)
    (made.home / "lab/data/x.csv").write_text("a,b")
    (made.home / "notes.txt").write_text("mine")
    yield made
    made.close()


def refused(kernel, code):
    (shown,) = reading.cards(kernel.run(code)[1], "refusal")
    assert shown["write"] == [], shown
    return shown["instead"]


CASES = {
    "list": "import os; sorted(os.listdir('.'))",
    "write": "open('made.txt', 'w').write('x')",
    "read": "open('{}data/x.csv').read()",
}


def test_a_notebook_in_the_home_folder_is_told_to_move_and_then_everything_works(world):
    with Kernel(argv_for("data"), world=world) as kernel:
        kernel.wait_heard()
        _, published = kernel.run("open('notes.txt').read()")
        assert reading.result(published) == "'mine'"
        advice = {refused(kernel, code.format("lab/")) for code in CASES.values()}
        (only,) = advice
        assert only.startswith("Put the notebook and its files in a folder of their own")
        assert "Nothing is staged in your home folder" in str(kernel.run("%changes")[1])
    folder = re.search(r"mkdir ~/(\w+)", only)[1]
    (world.home / "lab").rename(world.home / folder)
    world.work = world.home / folder
    with Kernel(argv_for("data"), world=world) as kernel:
        kernel.wait_heard()
        for code in CASES.values():
            assert kernel.run(code.format(""))[0]["status"] == "ok", code


def test_below_home_cells_find_what_they_are_granted_and_stage_what_they_write(world):
    world.work = world.home / "lab"
    (world.home / ".ssh").mkdir()
    (world.home / ".ssh/id").write_text("KEY")
    with Kernel(argv_for("data"), world=world) as kernel:
        kernel.wait_heard()
        _, published = kernel.run("import os; open(os.path.expanduser('~/lab/data/x.csv')).read()")
        assert reading.result(published) == "'a,b'"
        kernel.run("os.makedirs(os.path.expanduser('~/.cache/lib'))")
        assert "No file of the project" in reading.card_text(kernel.run("%changes")[1])
        kernel.run("_ = open(os.path.expanduser('~/results.csv'), 'w').write('1,2')")
        kernel.run("_ = open(os.path.expanduser('~/lab/made.csv'), 'w').write('3')")
        shown = reading.card_text(kernel.run("%changes")[1])
        assert [name in shown for name in ("~/results.csv", "made.csv", "cache")] == [1, 1, 0]
        assert not (world.home / "results.csv").exists()
        said = refused(kernel, "import pathlib; (pathlib.Path.home() / '.ssh/id').read_text()")
        assert said == f"The project is {world.work}: put the files that cells need there."
        (shown,) = reading.cards(kernel.run("open(os.path.expanduser('~/no.csv'))")[1], "refusal")
        assert shown["asked"] == "~/no.csv"
        _, published = kernel.run("import tempfile; open(tempfile.gettempdir() + '/nothing')")
        assert reading.cards(published, "refusal") == []


@pytest.mark.parametrize("world", ["landlock"], indirect=True)
def test_a_root_that_was_cut_is_not_offered_again(world):
    world.work = world.root / "elsewhere"
    world.work.mkdir()
    (world.home / ".ssh").mkdir()
    policy = world.policy(f'extends = "data"\nadd.filesystem_read_roots = ["{world.home}"]\n')
    with Kernel(argv_for(policy), world=world) as kernel:
        kernel.wait_heard()
        (world.home / "later").mkdir()
        said = refused(kernel, f"import os; os.listdir('{world.home}/later')")
        assert said.startswith("A denied path lies in this root")
