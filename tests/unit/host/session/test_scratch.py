"""Adding up a folder that hostile code fills."""

import gc
import os

import pytest

from cellblock.host.session import limits
from cellblock.host.session.limits import DEEPEST, LEAST, Scratch

MIB = 1 << 20


def looked(folder, limit=MIB):
    found = Scratch([str(folder)], limit)
    found.look()
    return found


def write(path, size):
    path.write_bytes(b"x" * size)
    return path


def test_what_is_on_disk_counts_in_folders_too(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    write(tmp_path / "a" / "b" / "file", 2 * MIB)
    assert 2 * MIB <= looked(tmp_path).size < 2 * MIB + 5 * LEAST
    assert looked(tmp_path).full


@pytest.mark.parametrize("name", ["", "gone"])
def test_a_folder_that_is_empty_or_gone_takes_nothing(tmp_path, name):
    found = looked(tmp_path / name)
    assert (found.size, found.full) == (0, False)


def test_a_sparse_file_takes_what_it_takes(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    assert looked(tmp_path).size == LEAST


def test_a_file_with_two_names_counts_once(tmp_path):
    write(tmp_path / "one", MIB)
    os.link(tmp_path / "one", tmp_path / "two")
    assert looked(tmp_path).size == MIB


def test_links_are_not_followed(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    write(outside / "file", 2 * MIB)
    (inside / "to_folder").symlink_to(outside)
    (inside / "to_file").symlink_to(outside / "file")
    (inside / "loop").symlink_to(inside)
    assert looked(inside).size == 3 * LEAST
    (tmp_path / "root").symlink_to(outside)
    assert looked(tmp_path / "root").size == 0


def test_empty_files_fill_it_and_a_look_takes_only_so_many(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ENTRIES", 100)
    for number in range(110):
        (tmp_path / str(number)).touch()
    found = Scratch([str(tmp_path)], 105 * LEAST)
    found.look()
    assert (found.size, found.full) == (100 * LEAST, False)
    found.look()
    assert (found.size, found.full) == (110 * LEAST, True)


@pytest.mark.parametrize("limit", [MIB * 1_000, None])
def test_more_staged_files_than_the_host_lists_are_too_many_whatever_they_hold(
    tmp_path, monkeypatch, limit
):
    monkeypatch.setattr(limits, "MOST_ENTRIES", 100)
    (tmp_path / "layer").mkdir()
    for number in range(98):
        (tmp_path / "layer" / str(number)).touch()
    found = Scratch([str(tmp_path / "gone")], limit, [str(tmp_path / "layer")])
    found.look()
    assert (found.full, found.why) == (False, "scratch")
    for number in range(98, 110):
        (tmp_path / "layer" / str(number)).touch()
    found.look()
    assert (found.full, found.why) == (True, "files")
    # What has the files need not be the cell that comes next, which may remove some.
    found.begin()
    found.look()
    assert not found.full


def test_folders_without_end_count_as_full(tmp_path):
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEEPEST + 1):
        os.mkdir("d", dir_fd=deep)
        inner = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    assert looked(tmp_path, limit=1 << 40).full


def test_a_crowd_of_folders_counts_as_full(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MOST_FOLDERS", 5)
    for number in range(10):
        (tmp_path / str(number)).mkdir()
    assert looked(tmp_path, limit=1 << 40).full


def test_no_descriptor_is_left(tmp_path, descriptors):
    for number in range(3):
        (tmp_path / str(number) / "deeper").mkdir(parents=True)
    gc.collect()  # other tests' are not left open meanwhile
    before = descriptors()
    looked(tmp_path)
    gc.collect()
    assert descriptors() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any folder")
def test_a_folder_that_its_maker_may_not_read_is_read(tmp_path):
    (tmp_path / "shut").mkdir()
    write(tmp_path / "shut" / "file", MIB)
    (tmp_path / "shut").chmod(0o300)
    assert looked(tmp_path).size > MIB


def test_who_finds_it_full_may_clear_up_and_not_add(tmp_path):
    first, second = write(tmp_path / "1", 2 * MIB), write(tmp_path / "2", 2 * MIB)
    found = looked(tmp_path)
    assert found.full
    found.begin()
    assert not found.full
    first.unlink()
    found.look()
    assert not found.full
    write(tmp_path / "3", 3 * MIB)
    found.look()
    assert found.full
    second.unlink()


def test_far_too_full_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FAR_BYTES", MIB)
    write(tmp_path / "1", MIB * 3 // 2)
    found = looked(tmp_path)
    assert (found.full, found.far) == (True, False)
    write(tmp_path / "2", MIB)
    found.look()
    assert (found.full, found.far) == (True, True)
