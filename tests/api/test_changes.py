"""What cells of a sandbox wrote to the project, and what its program makes of that."""

import asyncio
import json
import shutil

import pytest

from cellblock import AsyncSandbox, Change, Policy, Sandbox
from cellblock.errors import ChangesError
from cellblock.host.services import changes
from support import processes


@pytest.fixture
def staging(home):
    (home / "project" / "old.csv").write_text("before\n")
    yield Policy.preset(
        "data",
        name="staging",
        filesystem_read_roots=("{project}",),
        filesystem_staged_roots=("{project}",),
    )
    for path in (home / "project").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def layers(home):
    store = home / "data" / "cellblock" / "changes"
    return [path.name for path in store.iterdir()] if store.exists() else []


@pytest.mark.quick
def test_a_program_lists_keeps_and_drops_what_cells_wrote(home, staging):
    project = home / "project"
    with Sandbox(staging, project=".") as s:
        assert s.changes() == ()
        assert s.execute("open('new.csv', 'w').write('a'); open('old.csv', 'a').write('b')").success
        changed, new = sorted(s.changes(), key=lambda one: one.kind)
        assert isinstance(new, Change)
        assert (new.path, new.kind, new.size, new.before) == ("new.csv", "new", 1, None)
        assert (changed.kind, changed.size, changed.before) == ("changed", 8, 7)
        assert not (project / "new.csv").exists()
        assert [one.path for one in s.keep("new.csv")] == ["new.csv"]
        assert [one.path for one in s.changes([project / "old.csv"])] == ["old.csv"]
        session = s.session
        s.drop()
        assert s.changes() == ()
        with pytest.raises(ChangesError, match=r"nothing was changed at old\.csv"):
            s.keep(["old.csv"])
    assert (project / "new.csv").read_text() == "a"
    assert (project / "old.csv").read_text() == "before\n"
    kept = [
        (one["of"], one["by"], one["change"])
        for log in (home / "cache" / "cellblock" / "audit").glob("*.jsonl")
        for line in log.open()
        if (one := json.loads(line))["kind"] == "kept"
    ]
    assert kept == [(session, "a program", "new")]
    assert layers(home) == []


@pytest.mark.usefixtures("nothing_left")
def test_what_a_cell_writes_by_a_mapping_to_what_was_kept_is_listed_and_can_be_kept(home, staging):
    mapping = "open('new.csv', 'w').write('good\\n'); f = open('new.csv', 'r+b')\n"
    with Sandbox(staging, project=".") as s:
        assert s.execute(f"import mmap\n{mapping}m = mmap.mmap(f.fileno(), 5); m[0] = m[0]").success
        assert [one.path for one in s.keep()] == ["new.csv"]
        assert s.changes() == ()
        assert s.execute("m[:4] = b'evil'").success  # which changes no time
        (changed,) = s.changes()
        assert (changed.path, changed.kind, changed.yours_since) == ("new.csv", "changed", None)
        assert (home / "project" / "new.csv").read_text() == "good\n"
        assert [one.path for one in s.keep()] == ["new.csv"]
        assert s.changes() == ()
    assert (home / "project" / "new.csv").read_text() == "evil\n"


def test_what_is_not_kept_can_be_after_the_sandbox_is_closed(home, staging):
    with Sandbox(staging, project=".") as s:
        s.execute("open('new.csv', 'w').write('a')")
    assert len(layers(home)) == 1
    assert [one.path for one in s.keep()] == ["new.csv"]
    assert (home / "project" / "new.csv").read_text() == "a"
    s.drop()
    assert (s.changes(), s.keep(), layers(home)) == ((), (), [])


def test_on_a_loop_the_same_and_a_file_of_the_users_is_not_overwritten(home, staging):
    async def main():
        async with AsyncSandbox(staging, project=".") as s:
            await s.execute("open('old.csv', 'w').write('a')")
            (home / "project" / "old.csv").write_text("the user's")
            with pytest.raises(ChangesError, match="was changed by somebody else"):
                await s.keep()
            assert (home / "project" / "old.csv").read_text() == "the user's"
            (one,) = await s.keep(overwrite=True)
            assert (home / "project" / "old.csv").read_text() == "a"
            assert (one.yours_since is not None, await s.changes()) == (True, ())
            await s.drop()

    asyncio.run(main())
    processes.until(lambda: layers(home) == [])


def test_a_cell_can_not_keep_in_the_programs_place(home, staging):
    with Sandbox(staging, project=".", input=lambda _: "once") as s:
        wrote = s.execute("open('new.csv', 'w').write('a')").to_string()
        assert "is put aside: %changes shows it, and the program that runs the cells" in wrote
        assert "%changes keep" not in wrote
        assert "%changes keep" not in s.execute("%changes").to_string()
        told = s.execute("%changes keep").to_string()
        assert told == (
            "The cell failed: ChangesError: no cell keeps files here: the program that runs the "
            "cells can, by Sandbox.keep(), or its user by `cellblock changes keep "
            f"{s._sandbox.staged.id}` in a terminal"
        )
        assert not (home / "project" / "new.csv").exists()
        s.drop()


def test_no_file_is_copied_that_is_larger_than_what_cells_may_keep(home, staging):
    """The copy is seen when it is complete, and threads could have many made at once."""
    (home / "project" / "large.csv").write_bytes(bytes(80 << 20))
    small = staging.replace(scratch_max_bytes=4 << 20, memory_max_bytes=256 << 20)
    with Sandbox(
        small.replace(scratch_max_bytes=142_606_336), project="."
    ) as s:  # as the message says
        assert s.execute("open('large.csv', 'r+')").success
    with Sandbox(small, project=".") as s:
        refused = s.execute("open('large.csv', 'r+')").error
        assert refused.message == (
            "[Errno 27] File too large: 'large.csv' [cellblock: under policy staging cells "
            "can't write files larger than 68 MiB (scratch_max_bytes). To allow it: cellblock policy "
            "add FILE 'scratch_max_bytes = \"136 MiB\"']"
        )
        assert s.execute("open('large.csv').read(1), open('old.csv', 'r+').write('a')").success
        assert [one.path for one in s.changes()] == ["old.csv"]


def test_what_a_fork_stages_counts_against_its_limit(staging):
    fill = "import time\nopen('f', 'wb').write(bytes(40 << 20))\ntime.sleep(60)"
    small = staging.replace(scratch_max_bytes=16 << 20, max_file_size=None)
    with Sandbox(small, project=".") as s:
        (fork,) = s.fork(1, shares_files=True)
        assert fork.execute(fill).stop.why == "scratch"
        assert [one.path for one in s.changes()] == ["f"]


def test_where_nothing_is_staged_there_is_nothing_to_keep(sandbox):
    assert (sandbox.changes(), sandbox.keep()) == ((), ())
    with pytest.raises(ChangesError, match="nothing is staged under this policy"):
        sandbox.keep(["a"])


@pytest.mark.parametrize("how", ["denied", "made"])
def test_what_the_user_made_where_there_was_nothing_is_not_deleted(home, staging, how):
    """Whatever a cell made there, and what is mounted over to deny it, is in the layer as folders."""
    project = home / "project"
    makes = {
        "denied": '%policy narrow add.read_deny_paths=["a.csv", "b/c/d.csv", "e/f/g.csv"]',
        "made": "import os; os.mkdir('a.csv'); os.makedirs('b/c/d.csv'); os.makedirs('e/f/g.csv')",
    }
    before = {staged.id for staged in changes.sessions()}
    with Sandbox(staging, project=".") as s:
        assert s.execute("open('new.csv', 'w').write('a')").success
        assert s.execute(makes[how]).success
        assert s.execute("1").success
        (project / "b/c").mkdir(parents=True)
        users = [project / name for name in ("a.csv", "b/c/d.csv", "b/mine.csv", "e")]
        for path in users:
            path.write_text("mine")
        assert [one.path for one in s.changes()] == ["new.csv"]
        assert [one.path for one in s.keep(overwrite=True)] == ["new.csv"]
    assert [path.read_text() for path in users] == ["mine"] * 4
    assert s.changes() == ()
    left = (staged for staged in changes.sessions() if staged.id not in before)
    assert [one.path for staged in left for one in staged.changes()] == []


def test_what_the_policy_denies_by_now_is_neither_listed_nor_kept(home, staging):
    """A diff would show the user's own file."""
    with Sandbox(staging, project=".") as s:
        s.execute("open('old.csv', 'a').write('b'); open('new.csv', 'w').write('a')")
        s.execute('%policy narrow add.read_deny_paths=["old.csv"]')
        assert [one.path for one in s.changes()] == ["new.csv"]
        assert [one.path for one in s.keep()] == ["new.csv"]
    assert (home / "project" / "old.csv").read_text() == "before\n"
    assert s.changes() == ()
