"""Files of the user's cache folder: what is not one has nothing in it, and is not left open."""

import os
from pathlib import Path

import pytest

from cellblock.host.files import PrivateFile


def descriptors():
    return sorted(one.name for one in Path("/dev/fd").iterdir())


def folder(path):
    path.mkdir()


def link(path):
    path.symlink_to("other")
    path.with_name("other").write_text("x")


def pipe(path):
    os.mkfifo(path)


def large(path):
    path.write_bytes(b"x" * 101)


@pytest.mark.parametrize("make", [folder, link, pipe, large])
def test_what_is_no_private_file_is_empty_and_closed(make, tmp_path):
    path = tmp_path / "private"
    make(path)
    before = descriptors()
    assert PrivateFile(path, 100).read() == b""
    assert descriptors() == before


def test_what_is_written_is_read(tmp_path):
    file = PrivateFile(tmp_path / "cache" / "private", 100)
    before = descriptors()
    file.write(b"x" * 100)
    assert file.read() == b"x" * 100
    assert descriptors() == before
