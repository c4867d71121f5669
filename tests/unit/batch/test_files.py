"""Which files are checked: all that PATHS name, each once, in one order, and nothing behind a link."""

import os

import pytest

from cellblock.batch import files
from cellblock.batch.files import find, read
from cellblock.batch.verdict import Problem


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Make a folder the current one; return a function that makes files in it."""
    monkeypatch.chdir(tmp_path)

    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    return make


def a_file(path):
    return files.File(path, path.name, files.FileKind.script, path.parent)


def names(paths, exclude=()):
    found, problems = find(paths, exclude)
    assert problems == []
    return [file.shown for file in found]


def test_folders_are_searched_for_notebooks_and_scripts_in_one_order(tree):
    tree(
        "b.ipynb", "a/z.py", "a/c.IPYNB", "a.py", "a/b/x.ipynb", "a/notes.md", "a/data.csv", "B.py"
    )
    expected = ["B.py", "a.py", "a/b/x.ipynb", "a/c.IPYNB", "a/z.py", "b.ipynb"]
    assert sorted(names(["."])) == sorted(expected)
    assert names(["."]) == names(["b.ipynb", "a", "a.py", "B.py"])


def test_what_is_hidden_is_left_out_unless_it_is_named(tree):
    tree(".git/hook.py", ".ipynb_checkpoints/a-checkpoint.ipynb", "x/.y/z.py", ".rc.py", "x/a.py")
    assert names(["."]) == ["x/a.py"]
    assert names([".git", ".rc.py"]) == [".git/hook.py", ".rc.py"]


def test_a_file_is_checked_once_by_however_many_ways_it_is_named(tree):
    here = tree("a/x.py")
    assert names(["a", "a/x.py", "./a//x.py", str(here / "a"), "a/../a/x.py"]) == ["a/x.py"]


def test_a_path_is_shown_from_the_current_folder_if_it_lies_in_there(tree, monkeypatch):
    here = tree("a/x.py", "b/y.py")
    monkeypatch.chdir(here / "a")
    assert names([str(here / "a"), "../b"]) == ["../b/y.py", "x.py"]
    assert names([str(here / "b")]) == [str(here / "b" / "y.py")]


@pytest.mark.parametrize(
    "pattern",
    ["drafts", "work/drafts", "work/d*", "*/drafts", "*.ipynb", "x.ipynb", "work/drafts/x.ipynb"],
)
def test_a_pattern_fits_a_path_a_folder_or_a_name(tree, pattern):
    tree("work/drafts/x.ipynb", "keep.py")
    assert names(["."], [pattern]) == ["keep.py"]
    assert names(["work/drafts/x.ipynb"], [pattern]) == []


def test_a_pattern_fits_whole_names_only(tree):
    tree("work/x.py")
    assert names(["."], ["wor", "x", "ork/x.py"]) == ["work/x.py"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.py", "no such file or folder"),
        ("missing", "no such file or folder"),
        ("notes.md", "neither a notebook (.ipynb) nor a script (.py)"),
        ("empty", "there is no notebook or script there"),
        ("drafts", "there is no notebook or script there"),
    ],
)
def test_a_path_by_which_nothing_is_checked_is_a_problem(tree, path, message):
    (tree("notes.md", "drafts/a.py") / "empty").mkdir()
    assert find([path], ["drafts/*"]) == ([], [Problem(path, message)])


def test_links_to_folders_are_not_followed_and_loops_end(tree):
    here = tree("a/x.py", "elsewhere/y.py")
    (here / "a/loop").symlink_to(here / "a")
    (here / "a/out").symlink_to(here / "elsewhere")
    assert names(["a"]) == ["a/x.py"]
    assert names(["a/out"]) == ["a/out/y.py"]


def test_a_folder_that_becomes_a_link_is_not_read_through(tree):
    here = tree("a/b/x.py", "elsewhere/x.py")
    found, _ = find(["a"], [])
    (here / "a/b").rename(here / "a/c")
    (here / "a/b").symlink_to(here / "elsewhere")
    with pytest.raises(OSError):
        read(found[0])


def test_a_folder_that_can_t_be_listed_is_a_problem(tree, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))

    tree("a/x.py")
    monkeypatch.setattr(files.os, "scandir", refused)
    assert find(["a"], []) == ([], [Problem("a", "can't be listed: Permission denied")])


def test_a_name_in_bytes_that_are_no_text_is_a_name(tree):
    here = os.fsencode(tree("a.py"))
    os.close(os.open(here + b"/\xff.py", os.O_CREAT))
    assert names(["."]) == ["a.py", "\udcff.py"]


@pytest.mark.parametrize("make", ["pipe", "folder", "loop", "device", "link", "missing"])
def test_what_is_no_regular_file_is_not_waited_for(tree, make):
    path = tree("file.py") / "x.py"
    if make == "pipe":
        os.mkfifo(path)
    elif make == "folder":
        path.mkdir()
    elif make != "missing":
        path.symlink_to({"loop": path, "device": "/dev/zero", "link": "file.py"}[make])
    with pytest.raises(files.NoFileError if make != "missing" else OSError):
        read(a_file(path))


def test_no_more_is_read_than_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    (tmp_path / "x.py").write_bytes(b"x" * 100)
    assert read(a_file(tmp_path / "x.py")) == b"x" * 11
