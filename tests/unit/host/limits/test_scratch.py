"""Adding up a folder that hostile code fills."""

import ctypes
import gc
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock.host.limits import scratch
from cellblock.host.limits.scratch import (
    DEEPEST,
    ENDLESS,
    LEAST,
    ForksFolder,
    Removed,
    Scratch,
    removed_by,
)
from support.processes import until

MIB = 1 << 20
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_void_p


@pytest.fixture(autouse=True)
def entries(monkeypatch):
    """Let the file system have as many files as a test says: other tests make some there, too."""
    counted = {"used": 0}
    monkeypatch.setattr(scratch, "_entries_used", lambda _: counted["used"])
    return counted


def map_page(file):
    """Map a page of a file without a descriptor of its own, as Python's mmap has; return where."""
    return LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)


def looked(folder, limit=MIB):
    found = Scratch([str(folder)], limit)
    found.look()
    return found


def fills(found):
    found.look()
    return found.full


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
    monkeypatch.setattr(scratch, "ENTRIES", 100)
    monkeypatch.setattr(scratch, "UNFOUND", 1 << 60)  # other tests write to the same disk
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
    monkeypatch.setattr(scratch, "MOST_ENTRIES", 100)
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


def test_files_that_are_moved_behind_the_walk_are_found_by_a_walk_at_once(tmp_path, monkeypatch):
    """A cell that knew the walk's order would move what it has to where that was already."""
    used, opened = 100 * MIB, []
    monkeypatch.setattr(scratch, "ENTRIES", 10)
    monkeypatch.setattr(scratch, "UNFOUND", 4 * MIB)
    monkeypatch.setattr(scratch, "_used", lambda _: used)
    monkeypatch.setattr(scratch.random, "shuffle", list.sort)  # the last is read first
    open_folder = scratch.open_folder
    monkeypatch.setattr(
        scratch, "open_folder", lambda *named: opened.append(named[0]) or open_folder(*named)
    )
    first, second = tmp_path / "2", tmp_path / "1"
    for folder in (first, second):
        folder.mkdir()
        for number in range(20):
            (folder / str(number)).touch()
    large = write(second / "large", 24 * MIB)
    found = Scratch([str(tmp_path)], 20 * MIB)
    for _ in range(50):
        found.look()
        passed = opened[-1] == "2" and found._walk is not None
        large = large.rename((first if passed else second) / "large")
    assert opened.count("2") > 5
    assert found.size < 4 * MIB

    used += 24 * MIB
    found.look()
    assert found.full


def test_files_without_a_name_count_where_their_processes_can_be_looked_into(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "UNFOUND", 4 * MIB)
    used = 100 * MIB
    monkeypatch.setattr(scratch, "_used", lambda _: used)
    folder = [str(tmp_path)]
    found = Scratch(folder, 12 * MIB, removed=lambda: removed_by([os.getpid()], 8 * MIB, folder))
    found.look()
    with write(tmp_path / "open", 6 * MIB).open("rb") as file:
        (tmp_path / "open").unlink()
        opened = map_page(file)
        with write(tmp_path / "mapped", 6 * MIB).open("rb") as other:
            (tmp_path / "mapped").unlink()
            mapped = map_page(other)
        found.look()
        assert not found.full  # the disk has no less: they are elsewhere
        used += 13 * MIB
        found.look()
        assert found.size == 13 * MIB  # six, and eight that one may have that is not open
        assert found.full
        for at in (opened, mapped):
            LIBC.munmap(ctypes.c_void_p(at), 4096)


@pytest.mark.parametrize("kept", ["open", "mapped"])
def test_a_removed_file_counts_where_the_first_thread_of_who_keeps_it_has_ended(tmp_path, kept):
    program = """
import ctypes, os, sys, threading
file = open("kept", "w+b")
file.write(bytes(6 << 20))
file.flush()
os.unlink("kept")
if sys.argv[1] == "mapped":
    ctypes.CDLL(None).mmap(None, 4096, 1, 1, file.fileno(), 0)
    file.close()
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen([sys.executable, "-c", program, kept], cwd=tmp_path) as process:
        first = Path(f"/proc/{process.pid}/task/{process.pid}/status")
        until(lambda: "State:\tZ" in first.read_text())
        found = removed_by([process.pid], 6 * MIB, [str(tmp_path)]).bytes
        process.kill()
    assert found == 6 * MIB


def test_a_removed_program_counts_while_it_runs(tmp_path):
    """Nothing but the link exe leads to a program that has unmapped itself."""
    program = Path(shutil.copy(shutil.which("sleep"), tmp_path))
    with program.open("ab") as file:
        file.write(bytes(6 * MIB))
    with subprocess.Popen([program, "60"]) as process:
        program.unlink()
        found = removed_by([process.pid], ENDLESS, [str(tmp_path)]).bytes
        process.kill()
    assert 6 * MIB < found < 8 * MIB


def test_a_library_that_the_user_replaces_is_not_what_a_cell_keeps(tmp_path):
    cells, project = tmp_path / "cells", tmp_path / "project"
    cells.mkdir()
    project.mkdir()
    library = write(project / "library", MIB)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        library.unlink()
        assert removed_by([os.getpid()], 8 * MIB, [str(cells)]).bytes == 0
        assert removed_by([os.getpid()], 8 * MIB, [str(cells), str(project)]).bytes == MIB


def test_removed_files_in_an_in_memory_file_system_count_as_others_do():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with write(Path(folder, "kept"), MIB).open("rb") as file:
            mapped = map_page(file)
        Path(folder, "kept").unlink()
        assert removed_by([os.getpid()], 8 * MIB, [folder]).bytes == 8 * MIB
        LIBC.munmap(ctypes.c_void_p(mapped), 4096)


def test_who_finds_removed_files_may_clear_up_and_not_add(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "UNFOUND", MIB)
    used = removed = 0
    monkeypatch.setattr(scratch, "_used", lambda _: used)
    found = Scratch([str(tmp_path)], 4 * MIB, removed=lambda: Removed(removed))
    used = removed = 6 * MIB
    assert fills(found)
    assert fills(found)
    found.begin()
    assert not any(fills(found) for _ in range(5))
    used = removed = 8 * MIB
    assert any(fills(found) for _ in range(5))
    used = removed = 0
    found.begin()
    assert (fills(found), found.size) == (False, 0)
    # What others write to the disk meanwhile is not for a removed file that is closed.
    used = removed = 6 * MIB
    assert fills(found)
    removed = 0
    found.begin()
    assert (fills(found), found.size) == (False, 0)


@pytest.mark.parametrize("bound", ["MOST_MAPPED", "MOST_OPENED"])
def test_processes_that_take_long_to_look_into_may_keep_all_that_is_missing(monkeypatch, bound):
    own = [os.getpid()]
    assert removed_by(own, MIB, ["/tmp"]).bytes < ENDLESS
    call = {"MOST_MAPPED": "read", "MOST_OPENED": "stat"}[bound]
    calls, real = [], getattr(os, call)
    monkeypatch.setattr(scratch.os, call, lambda *args: calls.append(args) or real(*args))
    monkeypatch.setattr(scratch, bound, 1)
    assert removed_by(own * 10, MIB, ["/tmp"]).bytes == ENDLESS
    parts = len(Path("/proc/self/maps").read_bytes()) // 2_048 + 2  # of a page each, nearly
    assert len(calls) <= {"MOST_MAPPED": parts, "MOST_OPENED": 1}[bound]


def test_what_others_write_to_the_disk_is_no_cells_fault(tmp_path, monkeypatch):
    used, walks = 100 * MIB, []
    monkeypatch.setattr(scratch, "_used", lambda _: used)
    monkeypatch.setattr(Scratch, "_search", walks.append)
    found = Scratch([str(tmp_path)], 8 * MIB)
    found.look()
    assert walks == []
    monkeypatch.undo()
    monkeypatch.setattr(scratch, "_used", lambda _: used)
    used += 1 << 40
    for _ in range(100):
        found.look()
        assert not found.full


def test_what_is_used_of_a_file_system_is_read(tmp_path):
    before = scratch._used([str(tmp_path)])
    assert before > 0
    assert scratch._used([str(tmp_path), str(tmp_path)]) == pytest.approx(before, rel=0.5)
    assert scratch._used([str(tmp_path / "gone")]) == 0


def test_folders_without_end_count_as_full(tmp_path):
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEEPEST + 1):
        os.mkdir("d", dir_fd=deep)
        inner = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    found = looked(tmp_path, limit=1 << 40)
    assert (found.full, found.why) == (True, "deep")


def test_a_crowd_of_folders_counts_as_full(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "MOST_FOLDERS", 5)
    for number in range(10):
        (tmp_path / str(number)).mkdir()
    found = looked(tmp_path, limit=1 << 40)
    assert (found.full, found.why) == (True, "deep")


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


@pytest.mark.parametrize(("mode", "then"), [(0o400, 0o500), (0o044, 0o544), (0o555, 0o555)])
def test_who_looks_gives_itself_the_rights_to_look_and_no_other(tmp_path, mode, then):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(mode)
    looked(tmp_path)
    assert oct((tmp_path / "folder").stat().st_mode & 0o777) == oct(then)


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
    monkeypatch.setattr(scratch, "scratch_end", lambda bound: bound + MIB)
    write(tmp_path / "1", MIB * 3 // 2)
    found = looked(tmp_path)
    assert (found.full, found.far) == (True, False)
    write(tmp_path / "2", MIB)
    found.look()
    assert (found.full, found.far) == (True, True)


# --- folders of forks -----------------------------------------------------------------------------


def test_what_is_in_a_forks_folder_counts_for_the_fork_alone(tmp_path):
    (tmp_path / ".fork-1").mkdir()
    write(tmp_path / ".fork-1" / "large", 3 * MIB)
    (tmp_path / ".fork-2").mkdir()
    write(tmp_path / ".fork-2" / "large", 2 * MIB)
    made = (tmp_path / ".fork-1").stat()
    known = {ForksFolder(".fork-1", made.st_dev, made.st_ino)}
    found = Scratch([str(tmp_path)], MIB, forks=lambda: frozenset(known))
    found.look()
    assert 2 * MIB <= found.size < 2 * MIB + 4 * LEAST
    # Its own walk begins in it.
    own = Scratch([str(tmp_path / ".fork-1")], MIB, forks=lambda: frozenset(known))
    own.look()
    assert own.size >= 3 * MIB
    known.clear()
    found.look()
    assert found.size >= 5 * MIB


@pytest.mark.parametrize("place", ["another", "below/.fork-1"])
def test_a_forks_folder_that_its_parent_moved_counts_for_the_parent(tmp_path, place):
    (tmp_path / ".fork-1").mkdir()
    made = (tmp_path / ".fork-1").stat()
    known = frozenset({ForksFolder(".fork-1", made.st_dev, made.st_ino)})
    (tmp_path / "below").mkdir()
    (tmp_path / ".fork-1").rename(tmp_path / place)
    (tmp_path / ".fork-1").mkdir(exist_ok=True)
    write(tmp_path / place / "large", 2 * MIB)
    write(tmp_path / ".fork-1" / "large", MIB)
    found = Scratch([str(tmp_path)], MIB, forks=lambda: known)
    found.look()
    assert found.size >= 3 * MIB


def test_so_much_that_no_cell_is_forgiven_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "scratch_end", lambda bound: bound + MIB)
    write(tmp_path / "large", 7 * MIB)
    found = looked(tmp_path)
    assert not found.is_past_forgiving
    write(tmp_path / "more", 2 * MIB)
    found.look()
    assert found.is_past_forgiving


# --- what a folder is forgiven --------------------------------------------------------------------


class Disk:
    """Folders of small files, on a disk whose use is as the test says; "0" is read last."""

    def __init__(self, folder, monkeypatch, **bounds):
        bounds = {"ENTRIES": 10, "AT_ONCE": 100, "UNFOUND": MIB} | bounds
        for name, value in bounds.items():
            monkeypatch.setattr(scratch, name, value)
        monkeypatch.setattr(scratch, "_used", lambda _: self.used)
        monkeypatch.setattr(scratch, "scratch_end", lambda bound: bound + 2 * MIB)
        monkeypatch.setattr(scratch.random, "shuffle", list.sort)
        self.used, self._folder = 100 * MIB, folder / "0"
        for number in range(40):
            (folder / f"{number % 4}").mkdir(exist_ok=True)
            (folder / f"{number % 4}" / f"small{number}").touch()
        self.scratch = Scratch([str(folder)], 4 * MIB)

    def write(self, size):
        """Write a large file; return it."""
        self.used += size
        return write(self._folder / f"large{self.used}", size)

    def is_ever_full(self):
        """Look often enough for two walks; return whether any look found too much."""
        return True in [fills(self.scratch) for _ in range(20)]


def test_what_comes_after_an_idle_folder_was_looked_at_is_not_forgiven(tmp_path, monkeypatch):
    disk = Disk(tmp_path, monkeypatch)
    disk.scratch.forgive()
    disk.scratch.look()
    disk.write(6 * MIB)
    disk.used -= 6 * MIB  # others removed as much
    assert disk.is_ever_full()


def test_what_comes_during_the_walk_that_forgives_is_not_forgiven(tmp_path, monkeypatch):
    disk = Disk(tmp_path, monkeypatch, AT_ONCE=10)
    disk.write(3 * MIB)
    disk.scratch.forgive()
    disk.scratch.look()
    disk.write(2 * MIB)  # no more than may come until it is known how full it was
    assert disk.is_ever_full()


def test_a_folder_that_was_too_full_takes_no_more_than_kills_while_it_is_walked(
    tmp_path, monkeypatch
):
    disk = Disk(tmp_path, monkeypatch, AT_ONCE=10)
    disk.write(6 * MIB)
    assert disk.is_ever_full()
    disk.scratch.begin()
    assert not fills(disk.scratch)
    disk.write(3 * MIB)
    assert fills(disk.scratch)
    assert disk.scratch._floor is None


@pytest.mark.parametrize("at_once", [10, 100])
def test_a_folder_that_was_too_full_is_forgiven_while_others_write_to_the_disk(
    tmp_path, monkeypatch, at_once
):
    disk = Disk(tmp_path, monkeypatch, AT_ONCE=at_once)
    disk.write(6 * MIB)
    assert disk.is_ever_full()
    disk.scratch.begin()
    disk.scratch.look()
    disk.used += 3 * MIB // 2
    assert not disk.is_ever_full()
    disk.used += 1 << 40
    assert not disk.is_ever_full()
    disk.write(MIB)
    assert disk.is_ever_full()


def test_what_a_cell_that_was_not_seen_left_is_forgiven_though_others_write_a_little(
    tmp_path, monkeypatch
):
    disk = Disk(tmp_path, monkeypatch, AT_ONCE=10)
    disk.write(6 * MIB)
    disk.scratch.forgive()
    disk.scratch.look()
    disk.used += MIB
    assert not disk.is_ever_full()


def test_files_that_a_walk_finds_many_times_are_not_forgiven_as_often(tmp_path, monkeypatch):
    disk = Disk(tmp_path, monkeypatch)
    monkeypatch.setattr(scratch, "_sizes", lambda *_: iter([1 << 40]))
    disk.scratch.forgive()
    disk.scratch.look()
    monkeypatch.setattr(scratch, "_sizes", lambda *_: iter([4 * 6 * MIB + 1]))
    assert fills(disk.scratch)


def test_a_walk_ends_though_more_is_gone_from_the_disk_than_it_finds(tmp_path, monkeypatch):
    disk = Disk(tmp_path, monkeypatch, ENTRIES=1, AT_ONCE=10)
    for number in range(200):
        (tmp_path / f"more{number}").touch()
    large = disk.write(3 * MIB)
    for _ in range(250):
        disk.scratch.look()
    assert disk.scratch.size > 3 * MIB
    large.unlink()
    disk.used += 1 << 40
    for _ in range(600):
        disk.scratch.look()
    assert disk.scratch.size < 3 * MIB


# --- removed folders ------------------------------------------------------------------------------


def open_removed(folder, depth, name="d"):
    """Remove folders within folders, of which the deepest stays open; return its descriptor."""
    above = [os.open(folder, os.O_RDONLY)]
    for _ in range(depth):
        os.mkdir(name, dir_fd=above[-1])
        above.append(os.open(name, os.O_RDONLY, dir_fd=above[-1]))
    for parent in reversed(above[:-1]):
        os.rmdir(name, dir_fd=parent)
        os.close(parent)
    return above[-1]


def kept_folders(folder, pid=None):
    return removed_by([pid or os.getpid()], MIB, [str(folder)]).folders


def test_a_removed_folder_that_is_open_counts_with_those_it_was_in(tmp_path):
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    descriptors = [open_removed(inside, 3), open_removed(inside, 5), open_removed(outside, 7)]
    descriptors.append(os.dup(descriptors[0]))
    assert kept_folders(inside) == 8
    for each in descriptors:
        os.close(each)
    assert kept_folders(inside) == 0


def test_a_removed_folder_whose_path_is_too_long_to_be_told_counts_as_too_many(tmp_path):
    fd = open_removed(tmp_path, 30, "n" * 200)
    assert kept_folders(tmp_path) >= ENDLESS
    os.close(fd)


@pytest.mark.parametrize("kept", ["open", "mapped"])
def test_what_was_removed_from_removed_folders_counts_for_a_part_of_them(tmp_path, kept):
    folders = tmp_path.joinpath(*"d" * 40)
    folders.mkdir(parents=True)
    with write(folders / "file", 4096).open("rb") as file:
        mapped = map_page(file)
        shutil.rmtree(tmp_path / "d")
        if kept == "mapped":
            file.close()
        assert kept_folders(tmp_path) == 4
        LIBC.munmap(ctypes.c_void_p(mapped), 4096)


def test_a_removed_folder_counts_that_one_thread_works_in(tmp_path):
    program = """
import ctypes, os, threading
def work():
    assert ctypes.CDLL(None).unshare(0x200) == 0  # CLONE_FS
    os.makedirs("a/b")
    os.chdir("a/b")
    os.rmdir("../b")
    print(flush=True)
    threading.Event().wait()
threading.Thread(target=work).start()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        found = kept_folders(tmp_path, process.pid)
        process.kill()
    assert found == 2


def test_more_removed_folders_than_honest_programs_keep_are_too_many_at_once(tmp_path, entries):
    kept = 0
    found = Scratch([str(tmp_path)], 1 << 40, removed=lambda: Removed(0, kept))
    kept = 1_500
    assert not fills(found)  # they were counted often: the file system has no more than before
    entries["used"] += 1_500
    assert fills(found)
    assert (found.why, found.far) == ("folders", True)
    kept = 0
    found.begin()
    assert not fills(found)


def test_removed_folders_are_looked_for_only_where_there_may_be_many(tmp_path, entries):
    asked = []
    found = Scratch([str(tmp_path)], MIB, removed=lambda: asked.append(1) or Removed())
    entries["used"] += scratch.MOST_REMOVED
    assert not fills(found)
    assert not asked
    entries["used"] = None  # it does not count them
    assert not fills(found)
    assert asked


def test_what_takes_long_to_look_for_is_looked_for_less_often(tmp_path, entries, monkeypatch):
    asked, now = [], 0.0

    def ask():
        nonlocal now
        asked.append(now)
        now += 0.25
        return Removed()

    monkeypatch.setattr(scratch.time, "monotonic", lambda: now)
    found = Scratch([str(tmp_path)], MIB, removed=ask)
    entries["used"] = 10_000
    while now < 30:
        found.look()
        now += 0.1
    assert 4 <= len(asked) <= 8


def test_what_a_file_system_has_in_files_is_read(tmp_path, monkeypatch):
    monkeypatch.undo()
    assert (scratch._entries_used([str(tmp_path)]) or 1) > 0
    assert scratch._entries_used([str(tmp_path / "gone")]) == 0
