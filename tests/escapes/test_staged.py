"""Staged writes: what cells write to the project lands in a layer, and nothing denied is in it."""

import os
import time

import pytest

from support import machines, reading
from support.kernels import Kernel, argv_changed, argv_for, placed

POLICY = """
extends = "data"
filesystem_read_roots = ["{{project}}"]
filesystem_staged_roots = ["{{project}}"]
read_deny_paths = ["{work}/secret", "{work}/later/denied"]
"""
#: What cells try, one after the other, and what comes of it.
ATTACKS = {
    "open('secret/key').read()": "FileNotFoundError",
    "os.makedirs('secret') or os.listdir('secret')": "[]",
    "os.rename('secret', 'moved') or os.listdir('moved')": "[]",
    "(os.path.lexists('secret'), os.path.lexists('moved/key'))": "(False, False)",
    "os.link('old.csv', 'secret') or os.unlink('secret') or os.path.lexists('secret')": "False",
    "shutil.copytree('.', '/tmp/copied')": "PermissionError",
    "os.makedirs('later') or os.listdir('later')": "[]",
    "os.listdir('later')": "[]",
}
HONEST = {
    "open('old.csv').read()": "'a'",
    "open('old.csv', 'a').write('b')": "1",
    "open('new.csv', 'w').write('x')": "1",
    "os.makedirs('made/beneath')": "None",
    "os.rename('new.csv', 'made/new.csv')": "None",
    "os.unlink('gone.csv')": "None",
    "shutil.move('folder', 'moved')": "'moved'",
    "sqlite3.connect('new.db').execute('create table t (a)').fetchall()": "[]",
    "sorted(os.listdir())": "['made', 'moved', 'new.db', 'old.csv']",
}
TRIED = """
import os, shutil, sqlite3
try:
    print(repr({code}))
except Exception as error:
    print("PermissionError" if type(error) in (PermissionError, shutil.Error) else type(error).__name__)
"""


@pytest.fixture(params=machines.users())
def project(request):
    world, prefix = placed(request.param)
    for name, text in {
        "old.csv": "a",
        "gone.csv": "",
        "folder/in": "",
        "secret/key": "SECRET",
    }.items():
        (world.work / name).parent.mkdir(parents=True, exist_ok=True)
        world.write(name, text)
    for folder, _, _ in os.walk(world.work):
        world.give(folder)
    yield world, prefix
    world.close()


@pytest.fixture(params=["landlock", "bubblewrap"])
def kernel(project, request):
    world, prefix = project
    policy = world.work.parent / "staged.toml"
    policy.write_text(f'backend = "{request.param}"\n' + POLICY.format(work=world.work))
    made = Kernel(argv_for(policy), world=world, prefix=prefix)
    yield made.wait_ready()
    made.close()


def came_of(kernel, code):
    _, published = kernel.run(TRIED.format(code=code))
    return reading.stream(published).strip()


def tree(folder):
    return {path: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_honest_writes_work_and_change_nothing_below(kernel):
    before = tree(kernel.world.work)
    assert {code: came_of(kernel, code) for code in HONEST} == HONEST
    assert tree(kernel.world.work) == before


def test_what_is_denied_is_in_no_layer(kernel):
    before = tree(kernel.world.work)
    assert {code: came_of(kernel, code) for code in ATTACKS} == ATTACKS
    assert tree(kernel.world.work) == before


def test_a_listing_tells_a_cell_nothing_of_what_is_denied(kernel):
    shown = "get_ipython().run_line_magic('changes', '')"
    kernel.run("import os, shutil; os.makedirs('secret'); shutil.rmtree('secret')")
    assert came_of(kernel, "shutil.rmtree('folder')") == "None"
    assert came_of(kernel, "open('gone.csv', 'a').write('x')") == "1"
    _, published = kernel.run(shown)
    assert "gone.csv" in reading.card_text(published)
    assert "SECRET" not in str(published)
    assert "secret" not in str(published)
    kernel.run('%policy narrow add.read_deny_paths=["gone.csv"]')
    kernel.world.write("gone.csv", "SECRET OF LATER")
    _, published = kernel.run(shown)
    assert "gone.csv" not in str(published)


#: As many files as a test can write in a second.
FEW = "; ".join(
    f"import cellblock.host.{name} as {name[-3:]}; {name[-3:]}.MOST_ENTRIES = 1_000"
    for name in ("services.changes", "session.limits")
)


@pytest.fixture
def bounded(world, start):
    policy = world.policy(POLICY.format(work=world.work))
    return start(argv=argv_changed(FEW, policy), world=world)


def test_a_cell_that_lists_without_end_holds_up_nobody(bounded):
    bounded.run("for n in range(900): open(f'{n}', 'w').close()")
    began = time.monotonic()
    _, published = bounded.run("for _ in range(2_000): get_ipython().run_line_magic('changes', '')")
    assert time.monotonic() - began < 10
    assert "%changes was shown often in this cell: run it in the next." in str(published)


def test_a_cell_that_leaves_files_without_end_is_stopped_and_the_next_can_clear_up(bounded):
    reply, published = bounded.run("n = 0\nwhile True: open(f'{(n := n + 1)}', 'w').close()")
    assert "files in the project, which are staged" in str(published)
    assert reply["status"] == "error"
    _, published = bounded.run("%changes")
    assert "more than 1,000 files were written or deleted" in str(published)
    bounded.run("import os\nfor one in os.listdir():\n    if one.isdigit(): os.unlink(one)")
    _, published = bounded.run("%changes")
    assert "No file of the project was changed." in str(published)


def test_what_is_denied_later_is_cut_out_of_the_layer_of_a_live_session(kernel):
    assert came_of(kernel, "open('folder/in', 'w').write('x')") == "1"
    kernel.run('%policy narrow add.read_deny_paths=["folder"]')
    for code in ("open('folder/in').read()", "open('folder/new', 'w')", "os.listdir('folder')"):
        assert came_of(kernel, code) == "PermissionError", code
    assert came_of(kernel, "open('old.csv').read()") == "'a'"
    assert (kernel.world.work / "folder/in").read_text() == ""
