"""What goes around a zygote is remembered for the next kernel: a guess, and no more than that."""

import os
import stat
from pathlib import Path

import pytest

from cellblock.host.recalled import MOST, MOST_BYTES, Memory

WORDS = ("/usr/bin/bwrap", "--bind-try", "/tmp/s-1/x", "/tmp/s-1/x", "--ro-bind-try", "/work", "/w")


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "cache")


def memory(folder, *, policy="safe", project="/work", scratch="/tmp/s-1"):
    return Memory(folder, policy, project, scratch)


def recalled(folder, **fields):
    found = memory(folder, **fields).recall()
    return found and found.words


def file_of(folder):
    (file,) = Path(folder).iterdir()
    return file


def test_nothing_is_recalled_at_first(folder):
    assert recalled(folder) is None


def test_what_went_around_a_zygote_is_recalled_for_the_next_ones_scratch_folder(folder):
    memory(folder).keep(WORDS)
    assert recalled(folder) == WORDS
    moved = tuple(word.replace("s-1", "s-2") for word in WORDS)
    assert recalled(folder, scratch="/tmp/s-2") == moved


def test_a_folder_that_is_new_stands_in_place_of_another(folder):
    memory(folder).keep(WORDS)
    there = recalled(folder, project="/elsewhere")
    assert there == tuple("/elsewhere" if word == "/work" else word for word in WORDS)


def test_another_policy_has_its_own(folder):
    memory(folder).keep(WORDS)
    assert recalled(folder, policy="data") is None


def test_what_differed_is_not_guessed_from_until_it_is_the_same_again(folder):
    other = (*WORDS, "--tmpfs", "/work/.git")
    memory(folder).keep(WORDS)
    memory(folder).keep(other)
    assert recalled(folder) is None
    memory(folder).keep(WORDS)
    assert recalled(folder) is None
    memory(folder).keep(WORDS)
    assert recalled(folder) == WORDS


def test_a_root_folder_stands_for_itself(folder):
    memory(folder, project="/").keep(WORDS)
    assert recalled(folder, project="/") == WORDS
    assert recalled(folder, project="/work") == WORDS


def test_names_that_are_not_text_are_kept(folder):
    words = (*WORDS, os.fsdecode(b"/caf\xe9"), "/two\nlines")
    memory(folder).keep(words)
    assert recalled(folder) == words


@pytest.mark.parametrize("words", [("bwrap", ""), ()])
def test_what_the_file_cannot_hold_is_not_kept(folder, words):
    memory(folder).keep(words)
    assert recalled(folder) is None


def test_the_newest_few_are_kept(folder):
    for number in range(MOST + 1):
        memory(folder, policy=f"p{number}").keep((*WORDS, f"/{number}"))
    assert recalled(folder, policy="p0") is None
    assert recalled(folder, policy="p1") == (*WORDS, "/1")
    assert recalled(folder, policy=f"p{MOST}") == (*WORDS, f"/{MOST}")


def test_the_file_is_the_users_alone_and_whole(folder):
    memory(folder).keep(WORDS)
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(folder).stat().st_mode) == 0o600


def another_users(file):
    os.chown(file, 65534, 65534)


def a_link(file):
    file.symlink_to(file.rename(file.with_name("moved")))


def a_pipe(file):
    file.unlink()
    os.mkfifo(file)


def too_large(file):
    os.truncate(file, MOST_BYTES + 1)


def damaged(file):
    file.write_bytes(b"same\0safe\0\0\0same\0\xff")


SPOILT = {
    "writable by others": lambda file: file.chmod(0o622),
    "a link": a_link,
    "a pipe": a_pipe,
    "too large": too_large,
    "damaged": damaged,
    "empty": lambda file: os.truncate(file, 0),
    "gone": Path.unlink,
}
if os.geteuid() == 0:
    SPOILT["another user's"] = another_users


@pytest.mark.parametrize("how", SPOILT)
def test_a_file_that_is_not_what_was_kept_is_no_file(folder, how):
    memory(folder).keep(WORDS)
    SPOILT[how](file_of(folder))
    assert recalled(folder) is None


def test_a_folder_that_cannot_be_made_costs_the_memory_and_nothing_else(tmp_path):
    (tmp_path / "file").touch()
    memory(str(tmp_path / "file")).keep(WORDS)
    assert recalled(str(tmp_path / "file")) is None


def test_the_command_has_its_options_in_a_file(folder):
    memory(folder).keep(WORDS)
    with memory(folder).recall()(["python", "-c", ""]) as command:
        program, option, fd, *rest = command
        assert (program, option, rest) == (WORDS[0], "--args", ["--", "python", "-c", ""])
        assert os.pread(int(fd), 9999, 0) == b"".join(w.encode() + b"\0" for w in WORDS[1:])
