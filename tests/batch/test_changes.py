"""What notebooks of a run wrote to the project: kept, written to a folder, dropped, or staged."""

import json

import pytest

from support.runs import write

POLICY = """
extends = "data"
filesystem_read_roots = ["{project}"]
filesystem_staged_roots = ["{project}"]
"""
WRITES = (
    "import os\nos.makedirs('plots')\n"
    "_ = open('new.csv', 'w').write('a'), open('plots/b.txt', 'w').write('b')\n"
    "os.symlink('/etc/passwd', 'plots/link'); os.unlink('gone.csv')"
)


@pytest.fixture
def policy(run):
    (run.work / "gone.csv").write_text("yours")
    write(run.work / "nb" / "a.ipynb", "import os\nos.chdir('..')", WRITES)
    return run.world.policy(POLICY)


@pytest.fixture
def ran(run, policy):
    """Run the notebooks; return how that ended, and the files in the project besides them."""

    def with_options(*options):
        ended = run("nb", "-o", run.world.root / "out", "--policy", policy, *options)
        files = [path.relative_to(run.work) for path in run.work.rglob("*") if path.is_file()]
        return ended, sorted(str(path) for path in files if path.suffix != ".ipynb")

    return with_options


def staged(run):
    return list(run.world.home.glob(".local/share/cellblock/changes/*/session.json"))


def test_without_an_option_the_project_is_as_it_was_and_a_line_says_for_how_long(run, ran):
    ended, files = ran()
    assert (ended.status, files) == (0, ["gone.csv"])
    assert "Cells of 1 notebook wrote to the project: your files are unchanged." in ended.out
    assert len(staged(run)) == 1


def test_what_a_notebook_that_passed_wrote_is_kept_and_entered(run, ran):
    ended, files = ran("--changes", "keep")
    assert (ended.status, files) == (0, ["new.csv", "plots/b.txt"])
    assert "wrote to the project" not in ended.out
    records = [json.loads(line) for log in run.audit_folder.iterdir() for line in log.open()]
    kept = [(one["change"], one["by"]) for one in records if one["kind"] == "kept"]
    assert kept == [("deleted", "a run"), ("new", "a run"), ("new", "a run")]


def test_of_one_that_did_not_pass_nothing_is_kept(run, ran):
    write(run.work / "nb" / "a.ipynb", "_ = open('../new.csv', 'w').write('a')", "1 / 0")
    ended, files = ran("--changes", "keep")
    assert (ended.status, files) == (1, ["gone.csv"])
    assert len(staged(run)) == 1


def test_dropped_is_dropped(run, ran):
    ended, files = ran("--changes", "drop")
    assert (ended.status, files, staged(run)) == (0, ["gone.csv"], [])
    assert "wrote to the project" not in ended.out


def test_in_a_folder_are_files_and_a_list_of_what_was_deleted_and_no_links(run, ran):
    folder = run.world.root / "changes"
    for _ in range(2):  # a second run takes the place of the first
        ended, files = ran("--changes", folder)
        assert (ended.status, files, staged(run)) == (0, ["gone.csv"], [])
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert {name: path.read_text() for name, path in found.items()} == {
        "nb/a.changes/new.csv": "a",
        "nb/a.changes/plots/b.txt": "b",
        "nb/a.deleted.txt": f"{run.work}/gone.csv\n",
    }


def test_two_notebooks_that_write_one_file_do_not_overwrite_each_other(run, ran):
    for name, text in (("a", "first"), ("b", "second")):
        write(run.work / "nb" / f"{name}.ipynb", f"_ = open('../new.csv', 'w').write('{text}')")
    ended, files = ran("--changes", "keep", "--jobs", "2")
    assert (ended.status, files) == (1, ["gone.csv", "new.csv"])
    assert sorted(ended.statuses.values()) == ["failed", "passed"]
    said = ended.out.replace("\n    ", " ")
    # Before the second one began to keep, or while it did.
    assert "new.csv was changed by somebody else" in said or "your file changed" in said
