"""Each notebook has a file of its own in DIR, and none is read that nobody meant."""

import os

import pytest

from cellblock.batch.run import runner as module
from cellblock.batch.run.runner import plan
from support.runs import write


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project folder that is the current one; beside it there is room."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def outputs(paths, output_dir="out", **options):
    made, wrong = plan([str(path) for path in paths], module.Path(output_dir), **options)
    assert wrong == []
    return [one.output for one in made]


def problems(paths, output_dir="out"):
    _, wrong = plan([str(path) for path in paths], module.Path(output_dir))
    return [(one.path, one.message) for one in wrong]


def test_notebooks_of_one_name_keep_apart(here, tmp_path):
    for path in (here / "a/x.ipynb", here / "b/x.ipynb", tmp_path / "x.ipynb"):
        write(path)
    outside = str(tmp_path / "x.ipynb").lstrip("/")
    assert outputs(["a", "b", "../x.ipynb"]) == [outside, "a/x.ipynb", "b/x.ipynb"]


def test_scripts_and_what_is_hidden_or_excluded_are_left_out(here):
    for name in ("a.ipynb", "b.py", ".c.ipynb", ".d/e.ipynb", "old/f.ipynb"):
        write(here / name)
    assert outputs(["."], exclude=["old"]) == ["a.ipynb"]


def test_what_an_earlier_run_has_written_is_not_run(here):
    for name in ("a.ipynb", "out/a.ipynb", "out/b/c.ipynb"):
        write(here / name)
    assert outputs(["."]) == ["a.ipynb"]
    assert outputs(["out"], "again") == ["out/a.ipynb", "out/b/c.ipynb"]


def test_a_folder_that_is_called_as_the_runs_own_is_written_elsewhere(here):
    write(here / ".cellblock/x.ipynb")
    (name,) = outputs([".cellblock/x.ipynb"])
    assert name == str(here / ".cellblock/x.ipynb").lstrip("/")


def test_no_notebook_is_overwritten_by_its_own_output(here):
    write(here / "a.ipynb")
    said = "would be overwritten: name another --output-dir"
    assert problems(["a.ipynb"], ".") == [("a.ipynb", said)]
    (here / "link").symlink_to(here)
    assert problems(["a.ipynb"], "link") == [("a.ipynb", said)]


def test_two_notebooks_are_not_written_to_one_file(here, tmp_path):
    write(tmp_path / "x.ipynb")
    inside = here / str(tmp_path / "x.ipynb").lstrip("/")
    write(inside)
    ((_, said),) = problems([inside, tmp_path / "x.ipynb"])
    assert said.startswith("would be written to the same file as ")


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["no.ipynb"], ("no.ipynb", "no such file or folder")),
        (["s.py"], ("s.py", "only notebooks are run (.ipynb)")),
        (["empty"], ("empty", "no notebook is there")),
        (["scripts"], ("scripts", "no notebook is there")),
        (["x.txt"], ("x.txt", "only notebooks are run (.ipynb)")),
    ],
)
def test_a_path_by_which_nothing_is_run_is_told(here, paths, said):
    (here / "empty").mkdir()
    for name in ("s.py", "scripts/s.py", "x.txt"):
        write(here / name)
    assert problems(paths) == [said]


def test_names_are_shown_without_what_a_terminal_obeys(here):
    write(here / "a\x1b[2J\u202e.ipynb")
    write(here / os.fsdecode(b"b\xff.ipynb"))
    names = [one.name for one in plan(["."], module.Path("out"))[0]]
    assert names == ["a␛[2J⟨U+202E⟩.ipynb", "b⟨U+DCFF⟩.ipynb"]
