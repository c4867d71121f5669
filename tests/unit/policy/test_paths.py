"""P13: a path that was resolved is opened as it is, or not at all."""

import errno
import os
from types import SimpleNamespace

import pytest

from cellblock.descriptors import identity, open_unlinked
from cellblock.policy.load import load
from cellblock.policy.paths import checkout


@pytest.fixture
def place(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder" / "another").symlink_to("file")
    return tmp_path


@pytest.mark.parametrize("name", ["", "folder", "folder/file"])
def test_what_has_no_link_in_it_is_opened(place, name):
    path = str(place / name)
    fd = open_unlinked(path)
    assert os.path.sameopenfile(fd, os.open(path, os.O_RDONLY))
    assert identity(path) == (os.fstat(fd).st_dev, os.fstat(fd).st_ino)


@pytest.mark.parametrize("name", ["link", "link/file", "folder/another", "folder/../folder"])
def test_what_has_one_is_not_and_leaves_nothing_open(place, name):
    path, before = str(place) + "/" + name, os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(OSError, match="symbolic links") as caught:
        open_unlinked(path)
    assert caught.value.errno == errno.ELOOP
    assert identity(path) == (0, 0)
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_a_pipe_is_not_waited_for_and_what_is_not_there_is_missing(place):
    os.mkfifo(place / "pipe")
    assert identity(str(place / "pipe"))[1] == (place / "pipe").stat().st_ino
    assert identity(str(place / "nothing")) == (0, 0)


def test_a_checkout_is_the_nearest_folder_with_a_repository_or_a_projects_files(tmp_path):
    project = tmp_path / "a/b/c"
    project.mkdir(parents=True)
    assert checkout(project) == project
    (tmp_path / "LICENSE").touch()
    assert checkout(project) == tmp_path
    (tmp_path / "a/.git").mkdir()
    assert checkout(project) == tmp_path / "a"


def test_what_others_could_have_put_above_a_project_makes_no_checkout(tmp_path):
    project, above = tmp_path / "a/b", tmp_path / "a"
    project.mkdir(parents=True)
    (above / ".git").mkdir()
    above.chmod(0o1777)
    assert checkout(project) == project
    above.chmod(0o775)
    assert checkout(project) == above
    if os.geteuid() == 0:
        os.chown(above / ".git", 4242, 4242)
        assert checkout(project) == project
        os.chown(project, 4242, 4242)
        assert checkout(project) == above


def test_no_home_folder_is_a_checkout_be_it_homes_or_the_users_own(tmp_path, monkeypatch):
    project = tmp_path / "user/nb"
    project.mkdir(parents=True)
    (tmp_path / "user/.git").mkdir()
    assert checkout(project) == tmp_path / "user"
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert checkout(project) == project
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "user")))
    assert checkout(project) == project
    denied = load("data", project=project, allow_unsafe=False).read_deny_paths
    assert {str(tmp_path / ".ssh"), str(tmp_path / "user/.ssh")} <= {*denied}
