"""Nothing is written outside DIR, nothing is there in part, and two runs don't meet in it."""

import os

import pytest

from cellblock.batch.run.runner import OutputFolder, OutputFolderError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path):
    made = OutputFolder(tmp_path / "out")
    yield made
    made.close()


def test_files_are_written_whole_in_folders_that_are_made(folder):
    folder.write("a/b/x.ipynb", (b"1",))
    folder.write("a/b/x.ipynb", (b"2" * 5_000_000,))
    assert (folder.path / "a/b/x.ipynb").read_bytes() == b"2" * 5_000_000
    assert names(folder.path / ".cellblock") == ["lock"]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "", "a//b", ".", ".cellblock/x"])
def test_no_name_leads_out(folder, name):
    with pytest.raises(OSError, match="not a name that a file there may have"):
        folder.write(name, (b"x",))
    assert names(folder.path.parent) == ["out"]


def test_links_to_folders_are_not_followed(folder, tmp_path):
    (tmp_path / "else").mkdir()
    (folder.path / "a").symlink_to(tmp_path / "else")
    with pytest.raises(OSError):
        folder.write("a/x.ipynb", (b"x",))
    with pytest.raises(OSError):
        folder.remove_folder("a/x")
    assert names(tmp_path / "else") == []


def test_a_link_in_a_files_place_is_replaced_and_what_it_leads_to_is_left(folder, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (folder.path / "x.ipynb").symlink_to(tmp_path / "mine")
    folder.write("x.ipynb", (b"new",))
    assert (folder.path / "x.ipynb").read_bytes() == b"new"
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_that_can_not_be_written_leaves_nothing_and_one_run_writes_at_a_time(folder):
    (folder.path / "x.ipynb").mkdir()
    with pytest.raises(OSError):
        folder.write("x.ipynb", (b"x",))
    assert names(folder.path / ".cellblock") == ["lock"]

    with pytest.raises(OutputFolderError) as refused:
        OutputFolder(folder.path)
    said = f"{folder.path}: another run writes there. Wait for it, or name another folder."
    assert str(refused.value) == said


def test_what_a_killed_run_left_unfinished_is_removed(tmp_path):
    first = OutputFolder(tmp_path / "out")
    os.close(first.append_to("left.part"))
    first.close()
    second = OutputFolder(tmp_path / "out")
    assert second.names("") == ["lock"]
    second.close()


def test_a_folder_that_can_not_be_had_is_told(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputFolderError, match="can't be written to: File exists"):
        OutputFolder(tmp_path / "out")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.cellblock").symlink_to(tmp_path)
    with pytest.raises(OutputFolderError, match="can't be written to: Not a directory"):
        OutputFolder(tmp_path / "linked")


def test_a_cleared_folder_is_gone_with_all_in_it(folder):
    (folder.path / "a/x").mkdir(parents=True)
    (folder.path / "a/x/f").write_text("f")
    assert folder.remove_folder("a/x") == str(folder.path / "a/x")
    assert names(folder.path / "a") == []
