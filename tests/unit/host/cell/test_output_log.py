"""What cells say beyond what is shown: in files of the kernel's own, within a cap, while it lives."""

import contextlib
import os
import resource
import stat
import subprocess
import sys

import pytest

from cellblock.host.cell.output_log import MEMORY, PAGE, OutputLog

MIB = 1 << 20


@pytest.fixture
def parent(tmp_path):
    return tmp_path / "cellblock" / "output"


@pytest.fixture
def kept(parent, closing):
    return closing(OutputLog(parent, 8 * MIB))


def flood(kept, cell, content, kind="stdout"):
    kept.begin(cell)
    kept.add(kind, content)
    kept.overflowed(kind)
    kept.settle()


def files(parent):
    return sorted(p for p in parent.rglob("*") if p.is_file() and p.name != "lock")


def read(kept, text):
    """Return the pages of a text."""
    count = kept.page(text, 1).count
    pages = [kept.page(text, number) for number in range(1, count + 1)]
    assert [page.number for page in pages] == list(range(1, count + 1))
    return [page.content for page in pages]


def test_a_cell_that_has_ended_can_be_kept_and_is_read_in_pages_of_the_size_asked_for(
    parent, closing
):
    kept = closing(OutputLog(parent, 8 * MIB, 5_000))
    lines = "".join(f"line {n}\n" for n in range(3_000))
    kept.begin(1)
    kept.add("stdout", lines)
    kept.settle()
    assert kept.texts() == []
    kept.keep()
    (text,) = kept.texts()
    pages = read(kept, text)
    assert "".join(pages) == lines
    assert all(page.endswith("\n") and len(page) < 5_020 for page in pages)
    kept.begin(2)
    assert kept.texts() == [text]


def test_a_cell_that_does_not_overflow_writes_nothing(kept, parent):
    for cell in range(10):
        kept.begin(cell)
        kept.add("stdout", "x" * MIB)
        kept.settle()
    assert not parent.parent.exists()


@pytest.mark.parametrize("cap", [0, 2 * MIB])
def test_a_cap_that_is_lowered_costs_the_oldest_cells_at_once(kept, parent, cap):
    for cell in (1, 2):
        flood(kept, cell, "x" * (3 * MIB // 2))
    kept.begin(3)
    kept.limit(cap)
    assert [text.cell for text in kept.texts()] == ([2] if cap else [])
    assert len(files(parent)) == (1 if cap else 0)


def test_files_and_folders_are_the_users_alone_and_go_with_the_kernel(kept, parent):
    flood(kept, 1, "text")
    for path in (parent, *parent.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    kept.close()
    assert [p.name for p in parent.rglob("*")] == ["lock"]


def test_what_came_before_and_after_the_overflow_is_there(kept):
    kept.begin(7)
    kept.add("stdout", "before\n")
    kept.overflowed("stdout")
    kept.add("stdout", "after\n")
    kept.settle()
    kept.add("stdout", "between cells\n")
    kept.begin(8)
    (text,) = kept.texts()
    assert read(kept, text) == ["before\nafter\nbetween cells\n"]


@pytest.mark.parametrize("unit", ["a line\n", "\u00e9\U0001f600", "x" * (PAGE + 7) + "\n"])
def test_pages_are_the_text_and_end_with_lines_or_letters(kept, unit):
    content = unit * (200_000 // len(unit.encode()))
    flood(kept, 1, content)
    pages = read(kept, kept.texts()[0])
    assert "".join(pages) == content
    assert all(pages)
    assert len(pages) > 4
    assert kept.page(kept.texts()[0], 0).content == pages[-1]
    with pytest.raises(IndexError):
        kept.page(kept.texts()[0], len(pages) + 1)


def test_a_cell_keeps_its_beginning_in_half_of_the_cap_and_the_oldest_cells_go(kept, parent):
    flood(kept, 1, "1" * 3 * MIB)
    flood(kept, 2, "2" * 3 * MIB)
    flood(kept, 3, "3" * 6 * MIB)
    kept.add("stdout", "more")
    assert [(t.cell, t.size, t.cut) for t in kept.texts()] == [
        (2, 3 * MIB, False),
        (3, 4 * MIB, True),
    ]
    assert kept.full("stdout")
    assert sum(f.stat().st_size for f in files(parent)) == 7 * MIB


def test_more_than_fits_into_memory_is_written_ahead_and_removed_when_it_was_shown(kept, parent):
    kept.begin(1)
    for _ in range(MEMORY // MIB - 1):
        kept.add("stdout", "x" * MIB)
    assert not parent.exists()
    kept.add("stdout", "x" * MIB)
    assert len(files(parent)) == 1
    assert kept.texts() == []
    kept.begin(2)
    assert files(parent) == []


def test_a_number_that_comes_again_means_the_last(kept):
    flood(kept, 1, "first")
    kept.begin(1)
    flood(kept, 1, "second")
    (text,) = kept.texts()
    assert read(kept, text) == ["second"]


def test_nothing_is_kept_under_a_cap_of_0_and_all_without_one(parent, closing):
    none, everything = OutputLog(parent, 0), closing(OutputLog(parent, None))
    flood(none, 1, "text")
    assert none.full("stdout")
    assert none.texts() == []
    assert not parent.exists()
    flood(everything, 1, "x" * 9 * MIB)
    assert everything.texts()[0].size == 9 * MIB


@contextlib.contextmanager
def limited(what, most):
    """Have the process hold to a limit of the OS kernel's."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


@pytest.mark.parametrize("left", [2, 3])
def test_a_folder_that_could_not_be_made_whole_is_made_anew_when_it_can(
    kept, parent, descriptors, left
):
    parent.mkdir(parents=True, mode=0o700)
    before = descriptors()
    lowest = os.dup(0)
    os.close(lowest)
    with limited(resource.RLIMIT_NOFILE, lowest + left):
        flood(kept, 1, "text")
    assert kept.texts() == []
    assert descriptors() == before
    flood(kept, 2, "text")
    assert [read(kept, text) for text in kept.texts()] == [["text"]]
    kept.sweep()
    assert len(list(parent.iterdir())) == 2  # the one in use, and the lock beside it


HOST = """
import os, pathlib, signal, sys
from cellblock.host.cell.output_log import OutputLog
kept = OutputLog(pathlib.Path(sys.argv[1]), 1 << 20)
kept.begin(1); kept.add("stdout", "text"); kept.overflowed("stdout"); kept.settle()
print("there", flush=True)
signal.pause()
"""


def test_what_killed_kernels_left_is_removed_and_what_others_hold_is_not(kept, parent):
    command = [sys.executable, "-c", HOST, str(parent)]
    hosts = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            hosts.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)))
            stack.callback(hosts[-1].kill)
        assert [host.stdout.readline() for host in hosts] == [b"there\n"] * 2
        flood(kept, 1, "text")
        hosts[0].kill()
        hosts[0].wait()
        kept.sweep()
        left = {int(path.name.partition("-")[0]) for path in parent.iterdir() if path.is_dir()}
        assert left == {hosts[1].pid, os.getpid()}
        assert read(kept, kept.texts()[0]) == ["text"]


def test_a_sweep_follows_no_link_and_takes_no_folder_that_is_not_ours(kept, parent, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    (parent / "2-dead").mkdir(parents=True)
    (parent / "2-dead" / "link").symlink_to(precious / "file")
    (parent / "3-deep" / "folder").mkdir(parents=True)
    (parent / "1-link").symlink_to(precious)
    kept.sweep()
    assert (precious / "file").read_text() == "kept"
    assert sorted(p.name for p in parent.iterdir()) == ["1-link", "3-deep", "lock"]


@pytest.mark.parametrize("planted", ["folder", "parent", "writable", "file"])
def test_a_place_that_is_not_ours_alone_keeps_nothing_and_says_why(kept, parent, tmp_path, planted):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if planted == "parent":
        parent.parent.symlink_to(elsewhere)
    else:
        parent.parent.mkdir()
    if planted == "folder":
        parent.symlink_to(elsewhere)
    elif planted == "writable":
        parent.mkdir()
        parent.chmod(0o777)
    elif planted == "file":
        parent.write_text("")
    flood(kept, 1, "text")
    assert kept.state("stdout").failure
    assert kept.state("stdout").size == 0
    assert kept.texts() == []
    assert not files(elsewhere)


def test_a_link_planted_for_a_file_is_not_written_through(kept, parent, tmp_path):
    flood(kept, 1, "text")
    (folder,) = (p for p in parent.iterdir() if p.is_dir())
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (folder / "2.stdout.2").symlink_to(victim)
    flood(kept, 2, "overwritten")
    assert victim.read_text() == "kept"
    assert kept.state("stdout").failure == "File exists"


def test_a_file_that_can_not_grow_costs_what_would_be_on_it(kept):
    with limited(resource.RLIMIT_FSIZE, 100_000):
        flood(kept, 1, "x" * 300_000)
        kept.add("stdout", "more")
        kept.settle()
    (text,) = kept.texts()
    assert (text.size, text.cut, text.failure) == (100_000, True, "File too large")
