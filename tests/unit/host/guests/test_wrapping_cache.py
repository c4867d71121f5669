"""What goes around a zygote is remembered for the next kernel: a guess, and no more than that."""

import os
import stat
from pathlib import Path

import pytest

from cellblock.host.guests.spawn import MOST_BYTES, MOST_WRAPPINGS, Recalled, WrappingCache

WORDS = ("/usr/bin/bwrap", "--bind-try", "/tmp/s-1/x", "/tmp/s-1/x", "--ro-bind-try", "/work", "/w")


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "cache")


def memory(folder, *, policy="safe", project="/work", scratch="/tmp/s-1"):
    return WrappingCache(folder, policy, project, scratch)


def recalled(folder, **fields):
    return memory(folder, **fields).recall()


@pytest.fixture
def file(folder):
    """Return the file in which WORDS are kept."""
    memory(folder).keep(WORDS)
    (made,) = Path(folder).iterdir()
    return made


def test_what_went_around_a_zygote_is_recalled_for_the_folders_of_the_next(folder):
    assert recalled(folder) is None
    memory(folder).keep(WORDS)
    assert recalled(folder) == WORDS
    moved = tuple(word.replace("s-1", "s-2") for word in WORDS)
    assert recalled(folder, scratch="/tmp/s-2") == moved
    there = tuple("/elsewhere" if word == "/work" else word for word in WORDS)
    assert recalled(folder, project="/elsewhere") == there
    assert recalled(folder, policy="data") is None


def test_what_went_around_another_environments_zygote_is_not_guessed_from(folder, monkeypatch):
    memory(folder).keep(WORDS)
    monkeypatch.setattr("sys.executable", "/another/bin/python")
    assert recalled(folder) is None
    monkeypatch.undo()
    assert recalled(folder) == WORDS


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


def test_that_nothing_went_around_a_zygote_is_recalled_too(folder):
    memory(folder).keep(())
    assert recalled(folder) == recalled(folder, project="/elsewhere") == ()
    memory(folder).keep(WORDS)
    assert recalled(folder) is None
    memory(folder).keep(WORDS)
    assert recalled(folder) == WORDS


def test_what_the_file_cannot_hold_is_not_kept(folder):
    memory(folder).keep(("bwrap", ""))
    assert recalled(folder) is None


def test_the_newest_few_are_kept(folder):
    for number in range(MOST_WRAPPINGS + 1):
        memory(folder, policy=f"p{number}").keep((*WORDS, f"/{number}"))
    assert recalled(folder, policy="p0") is None
    assert recalled(folder, policy="p1") == (*WORDS, "/1")
    assert recalled(folder, policy=f"p{MOST_WRAPPINGS}") == (*WORDS, f"/{MOST_WRAPPINGS}")


def test_the_file_is_the_users_alone_and_whole(folder, file):
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_is_not_what_was_kept_is_no_file(folder, file, spoil):
    spoil(file)
    assert recalled(folder) is None


@pytest.mark.parametrize("content", [b"same\0safe\0\0\0same\0\xff", b" " * (MOST_BYTES + 1)])
def test_a_file_that_is_damaged_or_too_large_is_no_file(folder, file, content):
    file.write_bytes(content)
    assert recalled(folder) is None


def test_a_folder_that_cannot_be_made_costs_the_memory_and_nothing_else(tmp_path):
    (tmp_path / "file").touch()
    memory(str(tmp_path / "file")).keep(WORDS)
    assert recalled(str(tmp_path / "file")) is None


def test_the_command_has_its_options_in_a_file():
    with Recalled(WORDS)(["python", "-c", ""]) as command:
        program, option, fd, *rest = command
        assert (program, option, rest) == (WORDS[0], "--args", ["--", "python", "-c", ""])
        assert os.pread(int(fd), 9999, 0) == b"".join(w.encode() + b"\0" for w in WORDS[1:])
