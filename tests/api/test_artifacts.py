"""Files that cells of a sandbox leave are copied out."""

from pathlib import Path

import pytest

from cellblock import Policy, Sandbox
from cellblock.errors import PolicyError


@pytest.fixture(scope="module")
def folder(home):
    return home / "project" / "out"


@pytest.fixture(scope="module")
def writing(folder):
    policy = Policy.preset("unsafe", artifact_export_paths=("**/*.csv", "plots/*.png"))
    with Sandbox(policy, allow_unsafe=True, artifacts=folder) as s:
        s.execute("1")  # shows the gaps
        yield s


def test_what_matches_and_changed_is_copied_after_each_cell(writing, folder):
    r = writing.execute("open('a.csv', 'w').write('a,b\\n'); open('b.txt', 'w').write('x')")
    (one,) = r.artifacts
    assert (one.name, one.size_bytes, one.content_type) == ("a.csv", 4, "text/csv")
    assert Path(one.path) == folder / "a.csv"
    assert "Files copied out: a.csv (text/csv, 4 bytes)." in r.to_string()
    assert writing.execute("1").artifacts == ()
    writing.execute("open('a.csv', 'a').write('1,2\\n')")
    assert (folder / "a.csv").read_text() == "a,b\n1,2\n"


def test_files_of_a_cell_that_fails_or_is_stopped_are_copied_too(writing):
    r = writing.execute("open('failed.csv', 'w').write('x'); 1/0")
    assert [one.name for one in r.artifacts] == ["failed.csv"]
    r = writing.execute("import os\nopen('killed.csv', 'w').write('x'); os._exit(1)")
    assert (r.status, [one.name for one in r.artifacts]) == ("stopped", ["killed.csv"])


def test_links_out_are_not_followed(writing, folder):
    r = writing.execute(
        "import os\nos.symlink('/etc/passwd', 'passwd.csv')\nos.symlink('/etc', 'plots')"
    )
    assert r.artifacts == ()
    assert [(one.name, one.why) for one in r.skipped] == [("passwd.csv", "it is a link")]
    assert not (folder / "passwd.csv").exists()


def test_a_cell_shows_no_card_of_its_own_making(writing):
    r = writing.execute(
        "from IPython.display import publish_display_data\n"
        "publish_display_data({'application/vnd.cellblock.artifacts+json': {'artifacts': []},"
        " 'text/plain': 'x'})"
    )
    assert [output.ours for output in r.outputs] == [False]


def test_patterns_that_no_cell_can_fill_and_folders_that_cells_write_are_refused(home):
    for changes, said in (
        (
            {"artifact_export_paths": ("/etc/*",)},
            r"it matches no file that cells can write .* Name what is beneath a write root: {scratch}\.",
        ),
        ({"artifact_export_paths": ("../*",)}, "not a pattern of files"),
        (
            {"artifact_export_paths": ("*.csv",), "artifact_folder": "{scratch}/out"},
            "cells could change what was copied out",
        ),
    ):
        with pytest.raises(PolicyError, match=said):
            Sandbox(Policy.preset("unsafe", **changes), allow_unsafe=True).open()
    (home / "project" / "led").symlink_to("/tmp")
    changes = {"artifact_export_paths": ("*.csv",), "artifact_folder": "{project}/led/out"}
    with pytest.raises(PolicyError, match="a link leads out of the project folder"):
        Sandbox(Policy.preset("unsafe", **changes), allow_unsafe=True).open()


def test_what_the_projects_work_folder_had_before_is_left_alone(home):
    work = home / "project" / "work"
    work.mkdir()
    (work / "old.csv").write_text("x")
    policy = Policy.preset("data", artifact_export_paths=("work/*.csv",))
    with Sandbox(policy, project=home / "project") as s:
        r = s.execute("import numpy\nnumpy.savetxt('work/new.csv', [1])")
    assert [one.name for one in r.artifacts] == ["work/new.csv"]
    assert (home / "project" / "artifacts" / "work" / "new.csv").read_text().startswith("1.0")
