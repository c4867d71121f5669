"""Files for cells: what is beneath a root, and no way out of it. Each attack beside a control."""

import contextlib
import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from cellblock.host.services.operations.catalog import UNWRITTEN
from cellblock.host.services.operations.files import Files, real_name
from cellblock.host.services.operations.grants import OperationError
from cellblock.policy.operations import ListDir, Operations, ReadFile, WriteFile
from cellblock.policy.paths import ANYWHERE

SECRET = "outside"


@pytest.fixture
def ground(tmp_path):
    """Return folders: ``project`` with ``data`` (the root), and ``outside`` with a secret."""
    for name in ("project/data/deep", "project/data/private", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    (tmp_path / "project" / "data" / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "project" / "data" / "deep" / "b.csv").write_text("deep")
    (tmp_path / "project" / "data" / "private" / "key").write_text(SECRET)
    return tmp_path


def granted(ground, **tables):
    denied = [f"{ground}/project/data/private"]
    return Files(Operations(**tables), project=f"{ground}/project", denied=denied)


def reader(ground, roots=None, most=1_000):
    roots = roots or (f"{ground}/project/data",)
    return granted(ground, read_file=ReadFile(roots=roots, max_bytes=most)).read_file


def writer(ground, roots=None, most=1_000, *, replace=True):
    roots = roots or (f"{ground}/project/data",)
    table = WriteFile(roots=roots, max_bytes=most, replace=replace)
    return granted(ground, write_file=table).write_file


def lister(ground, roots=None, most=100):
    roots = roots or (f"{ground}/project/data",)
    return granted(ground, list_dir=ListDir(roots=roots, max_entries=most)).list_dir


def refusal(call, *args, **kwargs):
    with pytest.raises(OperationError) as refused:
        call(*args, **kwargs)
    return f"{refused.value.kind}: {refused.value.message}"


# --- what is for cells ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "data/a.csv",
        "./data//a.csv",
        "data/deep/../a.csv",
        "../project/data/a.csv",
        "{0}/data/a.csv",
    ],
)
def test_a_file_beneath_a_root_is_read_by_any_spelling(ground, path):
    assert reader(ground)(path.format(f"{ground}/project")) == "x,y\n1,2\n"


def test_a_link_that_stays_beneath_the_root_is_followed(ground):
    (ground / "project/data/link").symlink_to("deep/b.csv")
    (ground / "project/data/folder").symlink_to("deep")
    assert reader(ground)("data/link") == reader(ground)("data/folder/b.csv") == "deep"


def test_what_is_denied_by_its_name_is_denied_wherever_it_lies(ground):
    data = ground / "project/data"
    (data / "deep/.env").mkdir()
    for name in (".env", "deep/.env/inner", "env"):
        (data / name).write_text(SECRET)
    (data / "link").symlink_to(".env")
    roots = (str(data),)
    tables = {
        "read_file": ReadFile(roots=roots, max_bytes=100),
        "list_dir": ListDir(roots=roots, max_entries=100),
    }
    denied = [f"{ANYWHERE}.env"]
    files = Files(Operations(**tables), project=f"{ground}/project", denied=denied)
    for path in ("data/.env", "data/deep/.env/inner", "data/deep/../.env", "data/link"):
        assert "it is never read or written" in refusal(files.read_file, path), path
    assert files.read_file("data/env") == SECRET  # positive control
    assert [one["name"] for one in files.list_dir("data/deep")] == ["b.csv"]


def test_a_root_may_be_one_file(ground):
    read = reader(ground, (f"{ground}/outside/secret.txt",))
    assert read("../outside/secret.txt") == SECRET
    assert (
        refusal(read, "../outside")
        == "NotGranted: ../outside: it is not beneath a root of [ops.read_file]"
    )


def test_bytes_are_read_as_they_are_and_text_without_its_mark(ground):
    (ground / "project/data/u.txt").write_bytes(b"\xef\xbb\xbfa\r\n")
    assert reader(ground)("data/u.txt") == "a\r\n"
    assert reader(ground)("data/u.txt", binary=True) == b"\xef\xbb\xbfa\r\n"
    (ground / "project/data/p.png").write_bytes(b"ab\x89PNG")
    assert refusal(reader(ground), "data/p.png") == (
        "UnicodeDecodeError: data/p.png: it is not UTF-8 text (byte 2); pass binary=True"
    )


def test_a_part_of_a_large_file_is_read(ground):
    (ground / "project/data/large").write_text("0123456789" * 1_000)
    read = reader(ground)
    assert refusal(read, "data/large") == (
        "TooLarge: data/large: it has more than 1,000 bytes (max_bytes); read a part of it:"
        " offset=0, size=1000"
    )
    assert read("data/large", offset=9_995, size=1_000) == "56789"
    assert read("data/large", size=3) == "012"
    assert read("data/large", offset=99_999) == ""
    for wrong in ({"offset": -1}, {"size": -1}, {"size": 1_001}):
        assert refusal(read, "data/large", **wrong).startswith("ValueError: offset is 0 or more")


def test_a_sparse_file_is_as_large_as_it_says(ground):
    with (ground / "project/data/sparse").open("wb") as file:
        file.truncate(2**40)
    assert refusal(reader(ground), "data/sparse").startswith("TooLarge: ")
    assert reader(ground)("data/sparse", offset=2**39, size=4, binary=True) == bytes(4)


# --- what is not ------------------------------------------------------------------------------

WAYS_OUT = [
    "../outside/secret.txt",
    "data/../../outside/secret.txt",
    "data/deep/../../../outside/secret.txt",
    "/{0}/outside/secret.txt",
    "//{0}/outside/secret.txt",
    "/proc/self/root/{0}/outside/secret.txt",
    "/dev/fd/0",
    "data",
    "dat",
    "database/a.csv",
    "",
    "data/a.csv\0.txt",
    "data/" + "d/" * 3_000 + "a",
]


@pytest.mark.parametrize("path", WAYS_OUT)
def test_a_path_that_leads_elsewhere_is_refused(ground, path):
    (ground / "project/database").mkdir()
    (ground / "project/database/a.csv").write_text(SECRET)
    said = refusal(reader(ground), path.format(str(ground).lstrip("/")))
    assert said.startswith(("NotGranted: ", "NotAFile: data: no file"))
    assert str(ground) not in said.replace(path.format(str(ground).lstrip("/")), "")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("link", "../../outside/secret.txt"),
        ("link", "{0}/outside/secret.txt"),
        ("link", "/proc/self/root{0}/outside/secret.txt"),
        ("link", "/proc/self/cwd/outside/secret.txt"),
        ("folder", "../../outside"),
        ("folder", "/proc/self/root"),
        ("loop", "loop"),
        ("folder", "/proc/self/fd"),
    ],
)
def test_a_link_that_leads_out_is_not_followed(ground, monkeypatch, name, target):
    monkeypatch.chdir(ground)
    (ground / "project/data" / name).symlink_to(target.format(ground))
    tail = "/secret.txt" if name == "folder" else ""
    assert refusal(reader(ground), f"data/{name}{tail}") == (
        f"NotGranted: data/{name}{tail}: a link on the way leads out of the root"
    )
    if name != "loop":  # the control: whoever follows it gets there
        assert (ground / "project/data" / name).exists()


@pytest.mark.parametrize("root", ["data", "data/deep"])
def test_a_root_that_became_a_link_or_lies_behind_one_is_no_root(ground, root):
    read, path = reader(ground, (f"{ground}/project/{root}",)), "data/deep/b.csv"
    assert read(path) == "deep"
    (ground / "outside/deep").mkdir()
    (ground / "outside/deep/b.csv").write_text(SECRET)
    (ground / "project/data").rename(ground / "project/was")
    (ground / "project/data").symlink_to("../outside")
    assert (ground / "project" / path).read_text() == SECRET
    assert refusal(read, path) == f"NotGranted: {path}: a link on the way leads out of the root"


def test_what_the_policy_denies_stays_unread_beneath_a_root(ground):
    assert refusal(reader(ground), "data/private/key") == (
        "NotGranted: data/private/key: it is never read or written (read_deny_paths)"
    )
    (ground / "project/data/link").symlink_to("private/key")
    assert refusal(reader(ground), "data/link").endswith("(read_deny_paths)")
    assert refusal(writer(ground), "data/private/new", "x").endswith("(read_deny_paths)")
    assert "private" not in {entry["name"] for entry in lister(ground)("data")}
    assert refusal(lister(ground), "data/private").endswith("(read_deny_paths)")


def test_a_name_that_is_swapped_for_a_link_all_the_while_leads_nowhere_else(ground):
    """The race: a folder in the root is exchanged for a link out of it, over and over."""
    root = ground / "project/data"
    (root / "deep/secret.txt").write_text("inside")
    (root / "other").symlink_to("../../outside")
    going = [True]
    steps = [("deep", "kept"), ("other", "deep"), ("deep", "other"), ("kept", "deep")]

    def swap():
        while going:
            for here, there in steps:
                (root / here).rename(root / there)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        read, found, followed = reader(ground), [], set()
        deadline = time.monotonic() + 20
        wanted = {"inside", "refused"}
        while time.monotonic() < deadline:
            try:
                found.append(read("data/deep/secret.txt"))
            except OperationError as refused:
                found.append("refused" if refused.kind == "NotGranted" else "gone")
            with contextlib.suppress(OSError):  # the control: who looks first and opens then
                followed.add((root / "deep/secret.txt").read_text())
            if len(found) > 2_000 and SECRET in followed and wanted <= set(found):
                break
    finally:
        going.clear()
        thread.join()
    assert SECRET in followed
    assert set(found) <= {"inside", "refused", "gone"}


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder"])
def test_what_is_no_file_is_neither_waited_for_nor_opened(ground, kind):
    path = ground / "project/data/odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(os.path.relpath(path))
    began = time.monotonic()
    assert refusal(reader(ground), "data/odd") == "NotAFile: data/odd: no file"
    assert refusal(writer(ground), "data/odd", "x").startswith("NotAFile: ")
    assert refusal(reader(ground, ("/dev",)), "/dev/zero") == "NotAFile: /dev/zero: no file"
    assert time.monotonic() - began < 5


def test_errors_name_what_the_cell_named(ground):
    said = [refusal(reader(ground), f"data/{name}") for name in ("none", "a.csv/x")]
    assert said == [
        "FileNotFoundError: data/none: No such file or directory",
        "NotADirectoryError: data/a.csv/x: Not a directory",
    ]


# --- writing ----------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_replaced_in_one_step(ground):
    write, path = writer(ground), ground / "project/data/new.txt"
    assert write("data/new.txt", "é") == 2
    path.chmod(0o640)
    inode = path.stat().st_ino
    assert write("data/new.txt", b"bytes") == 5
    assert path.read_bytes() == b"bytes"
    assert path.stat().st_ino != inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(p.name for p in path.parent.iterdir()) == ["a.csv", "deep", "new.txt", "private"]


def test_what_is_there_may_be_kept_from_being_replaced(ground):
    write = writer(ground, replace=False)
    assert write("data/new.txt", "1") == 1
    assert refusal(write, "data/new.txt", "2") == (
        "NotGranted: data/new.txt: it is there already, and may not be replaced (replace)"
    )
    assert (ground / "project/data/new.txt").read_text() == "1"
    assert (ground / "project/data/new.txt").stat().st_nlink == 1


@pytest.mark.parametrize(
    "path",
    [
        "../outside/new",
        "data/../new",
        "/tmp/new",
        "data",
        "data/",
        "data/deep/",
        "data/.",
        "data/x\0",
    ],
)
def test_nothing_is_written_elsewhere(ground, path):
    assert refusal(writer(ground), path, "x").startswith(("NotGranted: ", "NotAFile: "))


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_a_link_is_replaced_and_not_written_through(ground, make):
    """A hard link that was there is read, which is disclosed: nothing tells it from a file."""
    link = ground / "project/data/link"
    make(link, ground / "outside/secret.txt")
    if make is Path.hardlink_to:
        assert reader(ground)("data/link") == SECRET
    assert writer(ground)("data/link", "mine") == 4
    assert (ground / "outside/secret.txt").read_text() == SECRET
    assert link.read_text() == "mine"


def test_what_can_not_be_written_leaves_nothing_behind(ground):
    before = sorted((ground / "project/data").iterdir())
    assert refusal(writer(ground), "data/new", "x" * 1_001) == (
        "TooLarge: data/new: 1,001 bytes; 1,000 may be written (max_bytes)"
    )
    assert refusal(writer(ground), f"data/{'n' * 300}", "x").endswith("File name too long")
    assert sorted((ground / "project/data").iterdir()) == before


def test_nothing_is_written_behind_a_link_to_a_folder_outside(ground):
    (ground / "project/data/folder").symlink_to("../../outside")
    assert "leads out of the root" in refusal(writer(ground), "data/folder/secret.txt", "x")
    assert (ground / "outside/secret.txt").read_text() == SECRET


# --- listing ----------------------------------------------------------------------------------


def test_a_folder_is_listed_by_name_with_what_each_entry_is(ground):
    (ground / "project/data/link").symlink_to("../../outside/secret.txt")
    os.mkfifo(ground / "project/data/pipe")
    (ground / "project/data" / os.fsdecode(b"\xff.txt")).touch()
    found = lister(ground)("data")
    assert [(one["name"], one["kind"]) for one in found] == [
        ("\\xff.txt", "file"),
        ("a.csv", "file"),
        ("deep", "folder"),
        ("link", "link"),
        ("pipe", "other"),
    ]
    assert found[1]["size"] == 8
    assert found[1]["modified"] == pytest.approx(time.time(), abs=600)


def test_what_is_no_folder_or_has_too_many_entries_is_not_listed(ground):
    assert refusal(lister(ground), "data/a.csv") == "NotAFolder: data/a.csv: no folder"
    assert refusal(lister(ground, most=1), "data") == (
        "TooLarge: data: it has more than 1 entries (max_entries)"
    )


@pytest.mark.parametrize("path", [".", "..", "/", "../outside", "data/../..", "/proc/self/root"])
def test_no_folder_elsewhere_is_listed(ground, path):
    assert refusal(lister(ground), path).startswith("NotGranted: ")


# --- what is on the account -------------------------------------------------------------------


def test_what_is_refused_before_anything_is_written_says_so_by_its_kind(ground):
    write = writer(ground)
    os.mkfifo(ground / "project" / "data" / "pipe")
    for path, text in [
        ("/etc/passwd", "x"),
        ("../outside/x", "x"),
        ("data/none/x", "x"),
        ("data/a.csv/x", "x"),
        ("data/pipe", "x"),
        ("data/private/key", "x"),
        ("data/long.txt", "x" * 1_001),
    ]:
        assert refusal(write, path, text).partition(":")[0] in UNWRITTEN, path
    assert refusal(writer(ground, replace=False), "data/a.csv", "x").startswith("NotGranted: ")


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError, NotADirectoryError])
def test_a_failure_after_a_file_was_begun_does_not_say_that_nothing_was_written(
    ground, monkeypatch, error
):
    def fail(*_args, **_kwargs):
        raise error(1, "it was done, or was not")

    monkeypatch.setattr(os, "replace", fail)
    said = refusal(writer(ground), "data/a.csv", "x")
    assert said == "OSError: data/a.csv: it was done, or was not"
    assert "OSError" not in UNWRITTEN
    assert not list((ground / "project" / "data").glob(".cellblock-*"))


# --- where a descriptor is ------------------------------------------------------------------------


def test_a_name_that_ends_as_that_of_a_deleted_file_does_is_a_name(ground):
    data = ground / "project" / "data"
    (data / "private (deleted)").mkdir()
    (data / "private (deleted)" / "own.csv").write_text("own")
    (data / "b (deleted)").write_text("b")
    read = reader(ground)
    assert read("data/b (deleted)") == "b"
    assert read("data/private (deleted)/own.csv") == "own"
    assert [one["name"] for one in lister(ground)("data/private (deleted)")] == ["own.csv"]


def test_a_denied_name_that_ends_so_is_not_reached_by_a_link(ground):
    data = ground / "project" / "data"
    (data / "key (deleted)").write_text(SECRET)
    (data / "link").symlink_to("key (deleted)")
    table = ReadFile(roots=(str(data),), max_bytes=100)
    files = Files(Operations(read_file=table), project=str(data), denied=[f"{data}/key (deleted)"])
    assert "never read or written" in refusal(files.read_file, "link")
    allowed = Files(Operations(read_file=table), project=str(data), denied=[])
    assert allowed.read_file("link") == SECRET


@pytest.mark.parametrize("name", ["gone", "gone (deleted)"])
@pytest.mark.parametrize("make", [Path.touch, Path.mkdir], ids=["file", "folder"])
def test_what_is_gone_is_where_it_was(tmp_path, make, name):
    place = tmp_path / name
    make(place)
    fd = os.open(place, os.O_PATH)
    assert real_name(fd) == str(place)
    (place.rmdir if place.is_dir() else place.unlink)()
    assert real_name(fd) == str(place)
    os.close(fd)


def test_a_file_that_has_another_name_left_is_not_taken_to_be_where_it_was(tmp_path):
    (tmp_path / "one").touch()
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    fd = os.open(tmp_path / "one", os.O_PATH)
    (tmp_path / "one").unlink()
    with pytest.raises(FileNotFoundError):
        real_name(fd)
    os.close(fd)


def test_home_is_the_users_own_as_in_the_policy(ground, monkeypatch):
    monkeypatch.setenv("HOME", str(ground / "project"))
    assert reader(ground)("~/data/a.csv") == "x,y\n1,2\n"
    for path in ("~/outside.txt", "~root/data/a.csv", "~"):
        with pytest.raises(OperationError, match="it is not beneath a root"):
            reader(ground)(path)
