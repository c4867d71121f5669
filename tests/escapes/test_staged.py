"""Staged writes: what cells write to the project lands in a layer, and nothing denied is in it."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellblock.backends.layers import receives_mounts
from cellblock.wire.messages import Layer, Plan
from support import machines, reading
from support.kernels import Kernel, argv_changed, argv_for, world_and_prefix

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
import errno, os, shutil, sqlite3
try:
    print(repr({code}))
except Exception as error:
    refused = (PermissionError, shutil.Error)  # and in namespaces a read-only file system
    refused = isinstance(error, refused) or getattr(error, "errno", 0) == errno.EROFS
    print("PermissionError" if refused else type(error).__name__)
"""


@pytest.fixture(params=machines.users())
def project(request):
    world, prefix = world_and_prefix(request.param)
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
    world.backend = request.param  # else there is no bubblewrap on its PATH
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


def test_a_write_elsewhere_is_told_to_go_where_writes_are_put_aside(kernel):
    _, published = kernel.run("import os; open(os.__file__ + '.made', 'w')")
    (shown,) = reading.cards(published, "refusal")
    assert f"rite below {kernel.world.work} or " in shown["instead"]


def test_who_reads_along_is_told_once_that_writes_are_put_aside_and_others_at_the_end(kernel):
    said = []
    kernel.run("1", allow_stdin=True)  # shows the gaps
    for code in ("1", "open('new', 'w').write('x')", "open('newer', 'w').write('x')"):
        _, published = kernel.run(code, allow_stdin=True)
        assert reading.stream(published, "stderr") == ""
        said.append([reading.card_text(published)] if reading.of(published, "display_data") else [])
    told = "What cells write to your project and below ~ is put aside: %changes shows it, %changes keep keeps it."
    assert said == [[], [told], []]
    kernel.end()
    assert "To keep it: cellblock changes keep cellblock-" in kernel.stderr()


def test_a_commit_of_a_cell_is_one_line_and_the_cell_says_that_it_is_not_kept(project):
    world, prefix = project
    who = "-c user.name=a -c user.email=b"
    first = f"git init -q && git {who} commit -q --allow-empty -m first"
    subprocess.run([*prefix, "sh", "-c", first], cwd=world.work, check=True)
    policy = world.policy('extends = "data"\n')
    with Kernel(argv_for(policy), world=world, prefix=prefix) as kernel:
        kernel.wait_heard()
        said = []
        for code in ("status", "add old.csv", f"{who} commit -qm second", "log --oneline"):
            # Where Landlock is alone, git ends over one that is there and can't be read.
            git = f"!git {code}"
            _, published = kernel.run(git, allow_stdin=True)
            said.append("nor is this commit: commit in" in reading.notices(published))
        assert said == [False, False, True, False]
        assert "second" in reading.stream(published)
        shown = reading.card_text(kernel.run("%changes")[1])
        assert "Cells wrote no file that can be kept" in shown
        assert shown.count(" .git ") == 1, shown


def test_what_is_denied_is_in_no_layer(kernel):
    before = tree(kernel.world.work)
    assert {code: came_of(kernel, code) for code in ATTACKS} == ATTACKS
    assert tree(kernel.world.work) == before


#: Of files that are not the cells' own, the machine's among them: by path, by descriptor, through
#: /proc, each to what it is already. Where that is let through, any other would be.
SET_OUTSIDE = """
import os, stat, subprocess
def mode(path): return stat.S_IMODE(os.stat(path).st_mode)
def times(path): return os.stat(path).st_atime, os.stat(path).st_mtime
def owner(path): return os.stat(path).st_uid, os.stat(path).st_gid
calls = {{
    "chmod": lambda path: os.chmod(path, mode(path)),
    "fchmod": lambda path: os.fchmod(os.open(path, os.O_RDONLY), mode(path)),
    "chmod by /proc": lambda path: os.chmod(
        f"/proc/self/fd/{{os.open(path, os.O_PATH)}}", mode(path)),
    "chmod in root": lambda path: os.chmod(f"/proc/{{os.getppid()}}/root{{path}}", mode(path)),
    "chmod in the host's": lambda path: os.chmod(f"/proc/{host}/root{{path}}", mode(path)),
    "utime": lambda path: os.utime(path, times(path)),
    "futime": lambda path: os.utime(os.open(path, os.O_RDONLY), times(path)),
    "chown": lambda path: os.chown(path, *owner(path)),
    "touch": lambda path: subprocess.run(
        ["touch", "-r", path, path], check=True, capture_output=True),
}}
# What the standard library has instead says nothing where nothing is changed.
os.chmod, os.fchmod = (getattr(one, "__wrapped__", one) for one in (os.chmod, os.fchmod))
for what, call in calls.items():
    for path in {paths}:
        try:
            call(path)
            print(what, path)
        except (OSError, subprocess.CalledProcessError):
            pass
"""
#: Of what cells write: programs do it, and say when it failed.
SET_INSIDE = {
    "touch": "!touch old.csv new && echo done",
    "cp": "!cp -p old.csv copy && echo done",
    "tar": "!tar cf t.tar folder && rm -r folder && tar xf t.tar && echo done",
    "chmod": "!chmod 600 gone.csv && stat -c %a gone.csv && echo done",
    "utime": "import os; os.utime('old.csv', (1, 1)); print(os.stat('old.csv').st_mtime, 'done')",
    "scratch": "!touch ~/x && chmod 700 ~/x && touch ~/x && echo done",
}


def attributes(path):
    found = path.stat()
    times = (
        (0, 0) if str(path).startswith(("/proc/", "/dev/")) else (found.st_mtime, found.st_ctime)
    )
    return found.st_mode, found.st_uid, *times


def test_modes_owners_and_times_of_what_is_not_the_cells_own_stay_as_they_are(kernel):
    world = kernel.world
    outside = world.home / "outside"
    outside.write_text("x")
    world.give(outside)
    old, denied = world.work / "old.csv", world.work / "secret/key"
    library = [Path(reading.__file__), Path(sys.executable), Path("/dev/null"), Path("/etc/passwd")]
    watched = [outside, denied, *library, Path("/proc/meminfo")]
    before = {path: attributes(path) for path in (old, *watched)}
    tried = [str(path) for path in watched]
    _, published = kernel.run(SET_OUTSIDE.format(paths=tried, host=kernel.proc.pid))
    assert reading.stream(published) == ""
    kernel.run(SET_OUTSIDE.format(paths=[str(old)], host=kernel.proc.pid))
    assert {path: attributes(path) for path in before} == before


def test_modes_and_times_of_what_cells_write_are_theirs_to_set(kernel):
    if kernel.world.backend == "landlock" and receives_mounts():
        pytest.skip("what is mounted later would come to cells here")
    failed = {}
    for what, code in SET_INSIDE.items():
        _, published = kernel.run(code)
        if not reading.stream(published).rstrip().endswith("done"):
            failed[what] = reading.stream(published), str(reading.of(published, "error"))
    assert failed == {}


@pytest.mark.parametrize("fresh", ["", " --fresh"])
def test_who_may_write_less_from_now_on_sets_no_modes_and_times_there(kernel, fresh):
    setting = "os.utime('old.csv', (1, 1))"
    before = came_of(kernel, setting)  # an error where what is mounted later would come to cells
    assert before in ("None", "PermissionError")
    kernel.run(f'%policy narrow add.read_deny_paths=["later"]{fresh}')  # all the rest is theirs
    assert came_of(kernel, setting) == before
    kernel.run("%changes drop")
    reply, _ = kernel.run(f"%policy narrow filesystem_staged_roots=[]{fresh}")
    assert reply["status"] == "ok", reply
    before = came_of(kernel, "os.stat('old.csv').st_mtime")
    for attack in (setting, "os.chmod('old.csv', 0)", "os.chown('old.csv', -1, -1)"):
        assert came_of(kernel, attack) == "PermissionError", attack
    assert came_of(kernel, "os.stat('old.csv').st_mtime") == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a mount namespace like this")
def test_where_a_disk_could_be_mounted_later_landlock_alone_refuses_and_the_card_says_so():
    world, _ = world_and_prefix("same user")
    outside = world.write("old.csv", "a")
    shared = ("unshare", "--mount", "--propagation", "shared")
    with Kernel(argv_for("data"), world=world, prefix=shared) as kernel:
        kernel.wait_heard()
        code = SET_OUTSIDE.format(paths=[str(outside)], host=kernel.proc.pid)
        assert reading.stream(kernel.run(code)[1]) == ""
        _, published = kernel.run("import os; os.utime('old.csv', (1, 1))")
        (shown,) = reading.cards(published, "refusal")
        assert (
            shown["what"]
            == "cells can't set modes, owners and times of files here without bubblewrap"
        )
    world.close()


def test_a_staged_file_gets_no_set_user_id_bit(kernel):
    came = [
        came_of(kernel, f"os.chmod('old.csv', {mode})") for mode in ("0o4755", "0o2755", "0o6755")
    ]
    assert came == ["PermissionError"] * 3


def test_what_is_made_later_under_a_denied_name_is_not_in_it_whatever_cells_did(kernel):
    for code in (
        "open('secret', 'w').close() or os.unlink('secret')",
        "os.mkdir('later') or os.rmdir('later')",
    ):
        assert came_of(kernel, code) == "None"
    work = kernel.world.work
    shutil.rmtree(work / "secret")
    for name in ("secret/key", "later/denied/key"):
        (work / name).parent.mkdir(parents=True)
        kernel.world.write(name, "SECRET")
    for folder in ("secret", "later", "later/denied"):
        kernel.world.give(work / folder)
    for name in ("secret/key", "later/denied/key"):
        for _ in range(2):
            assert came_of(kernel, f"open({name!r}).read()") == "FileNotFoundError"
            time.sleep(0.4)  # changes below are looked for after a pause


def test_a_checkout_chooses_not_whether_and_where_its_writes_are_staged(project):
    world, prefix = project
    outside = world.root / "outside"
    outside.mkdir(exist_ok=True)
    world.give(outside)
    (world.work / "work").symlink_to(outside)
    roots = 'filesystem_read_roots = ["{project}"]\nfilesystem_staged_roots = ["{project}"]\n'
    policy = world.policy(f'extends = "unsafe"\nbackend = "noop"\n{roots}')
    with Kernel(argv_for(policy, "--allow-unsafe"), world=world, prefix=prefix) as kernel:
        _, published = kernel.wait_heard().run("1")
        assert "cells can write in no folder" in str(published)
    assert list(outside.iterdir()) == []


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


def test_who_is_in_a_folder_when_it_is_denied_reads_nothing_there(kernel):
    kernel.run("import os; os.chdir('folder')")
    assert came_of(kernel, "open('in').read()") != "PermissionError"
    kernel.run('%policy narrow add.read_deny_paths=["folder"]')
    kernel.world.write("folder/later", "SECRET")
    for name in ("in", "later"):
        _, published = kernel.run(f"open({name!r}).read()")
        assert reading.of(published, "error"), name
        assert "SECRET" not in str(published)


#: As many files as a test can write in a second.
FEW = "; ".join(
    f"import cellblock.host.{name} as {name[-3:]}; {name[-3:]}.MOST_ENTRIES = 1_000"
    for name in ("services.changes", "limits.scratch")
)
FEW += "; import cellblock.host.cell.status as status; status._MOST_LISTED = 1_000"


@pytest.fixture
def start_bounded(world, start):
    policy = world.policy(POLICY.format(work=world.work))
    return lambda change="": start(argv=argv_changed(FEW + change, policy), world=world)


def test_a_cell_that_lists_without_end_holds_up_nobody(start_bounded):
    bounded = start_bounded()
    bounded.run("for n in range(900): open(f'{n}', 'w').close()")
    began = time.monotonic()
    _, published = bounded.run("for _ in range(2_000): get_ipython().run_line_magic('changes', '')")
    assert time.monotonic() - began < 10
    assert "%changes was shown often in this cell: run it in the next." in str(published)


def test_a_cell_that_leaves_files_without_end_is_stopped_and_the_next_can_clear_up(start_bounded):
    # Fewer than stop a cell: some of those that count, as settings of programs, are never listed.
    bounded = start_bounded("; status._MOST_LISTING = 60.0; status._MOST_LISTED = 500")
    reply, published = bounded.run("n = 0\nwhile True: open(f'{(n := n + 1)}', 'w').close()")
    assert "files in the project, which are staged" in str(published)
    assert reply["status"] == "error"
    _, published = bounded.run("%changes")
    assert "more than 500 files were written or deleted" in str(published)
    _, published = bounded.run("%changes drop")
    dropped = re.search(r"Dropped ([\d,]+) files", str(published))[1]
    assert int(dropped.replace(",", "")) > 500  # not only as many as are listed
    bounded.run("import os\nfor one in os.listdir():\n    if one.isdigit(): os.unlink(one)")
    _, published = bounded.run("%changes")
    assert "No file of the project was changed." in str(published)


def test_what_is_denied_later_is_denied_and_what_cells_made_beside_it_is_theirs(kernel):
    assert came_of(kernel, "open('folder/in', 'w').write('x')") == "1"
    assert came_of(kernel, "open('mine', 'w').write('x')") == "1"
    denied = ", ".join(f'"{name}"' for name in ("folder", "gone.csv", "later/deep"))
    reply, _ = kernel.run(f"%policy narrow add.read_deny_paths=[{denied}]")
    assert reply["status"] == "ok", reply
    for _ in range(2):
        for code, what in {
            "open('folder/in').read()": "FileNotFoundError",
            "open('folder/new', 'w')": "PermissionError",
            "os.listdir('folder')": "[]",
            "open('gone.csv').read()": "PermissionError",
            "open('gone.csv', 'w')": "PermissionError",
            "os.listdir('later/deep')": "[]",
            "os.mkdir('later/deep/in')": "PermissionError",
            "os.chmod('gone.csv', 0o666)": "PermissionError",
        }.items():
            assert came_of(kernel, code) == what, code
        for code in (
            "os.rmdir('later/deep')",
            "os.unlink('gone.csv')",
            "os.rename('folder', 'moved')",
            "shutil.rmtree('later')",
        ):
            assert came_of(kernel, code) in {"OSError", "PermissionError"}, code
        assert came_of(kernel, "open('old.csv').read()") == "'a'"
        assert came_of(kernel, "open('mine').read() + open('old.csv', 'r').read()") == "'xa'"
        assert came_of(kernel, "open('new', 'w').write('x')") == "1"
        time.sleep(0.5)  # changes below are looked for after a pause
        (kernel.world.work / "gone.csv").unlink(missing_ok=True)
        kernel.world.write("gone.csv", "SECRET OF LATER")
    assert (kernel.world.work / "folder/in").read_text() == ""
    _, published = kernel.run("open('gone.csv')")
    (shown,) = reading.cards(published, "refusal")
    assert shown["field"] == "read_deny_paths"
    assert shown["instead"].startswith("Take ")


def test_what_is_denied_in_a_fresh_guest_is_denied_and_the_session_goes_on(kernel):
    assert came_of(kernel, "open('old.csv').read()") == "'a'"
    denied = ", ".join(f'"{kernel.world.work / name}"' for name in ("old.csv", "secret"))
    reply, _ = kernel.run(f"%policy narrow --fresh add.read_deny_paths=[{denied}]")
    assert reply["status"] == "ok", reply
    assert came_of(kernel, "open('old.csv').read()") == "PermissionError"
    assert came_of(kernel, "open('folder/in').read()") == "''"


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
def test_a_folder_that_a_policy_lets_be_written_to_is_written_to(project, backend):
    world, prefix = project
    (world.work / "results").mkdir()
    world.give(world.work / "results")
    roots = 'filesystem_write_roots = ["{scratch}", "{project}/results"]\n'
    policy = world.policy(f'extends = "data"\nbackend = "{backend}"\n{roots}')
    with Kernel(argv_for(policy), world=world, prefix=prefix) as kernel:
        kernel.wait_heard()
        _, published = kernel.run("open('results/r', 'w').write('x')")
        assert "is written to as it is" in str(published)
        assert came_of(kernel, "open('new', 'w')") == "PermissionError"
    assert (world.work / "results/r").read_text() == "x"
    assert not (world.work / "work").exists()


def test_what_is_denied_where_something_is_mounted_over_the_layer_is_left_to_the_locks():
    plan = Plan(layers=(Layer(root="/p", folder="/f", hidden=("env/a", "b"), fixed=("env",)),))
    hidden = {name: plan.hides(f"/p/{name}") for name in ("env/a", "env/a/c", "b", "b/c", "bc")}
    assert hidden == {"env/a": False, "env/a/c": False, "b": True, "b/c": True, "bc": False}
