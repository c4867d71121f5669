"""Scratch folders: whoever starts next removes those of hosts that have ended, and no others."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock.policy import folders

HOST = "import sys; from cellblock.policy.folders import make_scratch; print(make_scratch(), flush=True); {}"


@pytest.fixture
def tmp(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def host(tmp, then):
    """Start a process that makes a scratch folder; return it and the folder's name."""
    argv = [sys.executable, "-c", HOST.format(then)]
    env = {**os.environ, "TMPDIR": str(tmp)}
    made = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return made, Path(made.stdout.readline().strip()).parent.name


def names(tmp):
    return {path.name for path in tmp.iterdir()}


def test_what_a_killed_host_left_is_removed_and_a_living_ones_is_not(tmp):
    own = Path(folders.make_scratch()).parent.name
    with host(tmp, "sys.stdin.read()")[0] as living, host(tmp, "sys.stdin.read()")[0] as killed:
        folders.sweep_scratch()
        assert len(names(tmp)) == 3
        killed.kill()
        killed.wait()
        killed.stdin.close()
        folders.sweep_scratch()
        assert len(names(tmp)) == 2
        living.stdin.close()
        living.wait()
        folders.sweep_scratch()
    assert names(tmp) == {own}


def test_a_folder_that_another_host_looks_at_while_it_is_made_is_locked(tmp, monkeypatch):
    made, lock, looking = tempfile.mkdtemp, fcntl.flock, list[int]()

    def make(**options):
        """Make a folder, and look at it as a host does that sweeps."""
        path = made(**options)
        looking.append(os.open(path, os.O_RDONLY))
        lock(looking[0], fcntl.LOCK_EX)
        return path

    def flock(fd, how):
        if not how & fcntl.LOCK_NB:  # it waits, until the other host has looked
            os.close(looking.pop())
        lock(fd, how)

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    monkeypatch.setattr(fcntl, "flock", flock)
    scratch = Path(folders.make_scratch())
    assert scratch.parent.parent == tmp
    with pytest.raises(BlockingIOError):
        lock(os.open(scratch.parent, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert scratch.parent.stat().st_mode & 0o7777 == 0o1700


def test_what_guests_left_in_it_is_removed_and_no_link_is_followed(tmp):
    with host(tmp, "pass")[0] as ended:
        ended.wait()
    (name,) = names(tmp)
    # As a folder that could be swept, but for the link that leads there.
    kept = tmp / "kept"
    (kept / "scratch").mkdir(parents=True)
    (kept / "scratch" / "file").touch()
    kept.chmod(0o1700)
    (tmp / name / "scratch" / "link").symlink_to(kept)
    (tmp / name / "scratch" / "deep" / "er").mkdir(parents=True)
    (tmp / name / "scratch" / "deep").chmod(0)
    (tmp / "cellblock-abcdefgh").symlink_to(kept)
    folders.sweep_scratch()
    assert names(tmp) == {"kept", "cellblock-abcdefgh"}
    assert (kept / "scratch" / "file").exists()


def test_what_a_host_left_that_was_killed_while_making_it_is_removed_later(tmp, monkeypatch):
    """Before it has said that the lock decides: an hour is more than any host takes for that."""
    held = Path(folders.make_scratch()).parent
    held.chmod(0o700)
    for name in ("cellblock-abcdefgh", "cellblock-trial-abcdefgh"):
        (tmp / name).mkdir(mode=0o700)
    (tmp / "cellblock-abcdefgh" / "scratch").mkdir()
    here = names(tmp)
    folders.sweep_scratch()
    assert names(tmp) == here
    monkeypatch.setattr(folders, "_MAKING", -1.0)
    folders.sweep_scratch()
    assert here - names(tmp) == {"cellblock-abcdefgh"}


@pytest.mark.parametrize(
    ("name", "mode"), [("cellblock-abcdefgh", 0o700), ("cellblock-trial-abcdefgh", 0o1700)]
)
def test_what_says_not_that_a_lock_decides_is_left_alone(tmp, name, mode):
    """As the folder of an older version, or of a host that is just making it."""
    (tmp / name / "scratch").mkdir(parents=True)
    (tmp / name).chmod(mode)
    folders.sweep_scratch()
    assert names(tmp) == {name}


def test_what_is_another_users_is_left_alone(tmp, monkeypatch):
    with host(tmp, "pass")[0] as ended:
        ended.wait()
    left = names(tmp)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    folders.sweep_scratch()
    assert names(tmp) == left
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp))
    folders.sweep_scratch()  # positive control
    assert names(tmp) == set()


def test_a_program_with_many_sandboxes_keeps_no_descriptors_of_those_that_ended(tmp):
    before = names(Path("/proc/self/fd"))
    for _ in range(3):
        folders.remove_scratch(folders.make_scratch())
    assert names(Path("/proc/self/fd")) == before
    assert names(tmp) == set()
