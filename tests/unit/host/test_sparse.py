"""Files with holes are read whole, and copied with their holes."""

import hashlib
import os

import pytest

from cellblock.host import sparse

MIB = 1 << 20


def copied(source, target):
    """Copy a file; return the SHA-256 of what was read."""
    digest = hashlib.sha256()
    with source.open("rb") as old, target.open("wb") as new:
        for part in sparse.read_parts(old.fileno()):
            digest.update(part.data)
            sparse.write_part(new.fileno(), part)
        sparse.end_file(new.fileno())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        (0, {}),
        (3, {0: b"abc"}),
        (40 * MIB, {}),
        (40 * MIB, {0: b"a"}),
        (40 * MIB, {40 * MIB - 1: b"z"}),
        (40 * MIB, {5 * MIB: b"m" * (3 * MIB), 20 * MIB: b"n"}),
        (3 * MIB, {0: b"d" * 3 * MIB}),
        (MIB, {0: bytes(MIB)}),
    ],
)
@pytest.mark.parametrize("knows_holes", [True, False])
def test_a_copy_has_the_content_and_takes_no_more_disk(
    tmp_path, monkeypatch, size, pieces, knows_holes
):
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        for at, data in pieces.items():
            file.seek(at)
            file.write(data)
        file.truncate(size)
    if not knows_holes:
        # What lseek(2) does not know, EINVAL says; SEEK_CUR is known everywhere.
        monkeypatch.setattr(os, "SEEK_DATA", 99)
    content = source.read_bytes()
    assert copied(source, target) == hashlib.sha256(content).hexdigest()
    assert target.read_bytes() == content
    if knows_holes:
        assert target.stat().st_blocks <= source.stat().st_blocks + 8


def test_a_file_that_is_cut_while_it_is_read_ends_where_it_ends(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x" * (3 * MIB))
    with source.open("rb") as file:
        parts = sparse.read_parts(file.fileno())
        assert len(next(parts).data) == MIB
        os.truncate(source, MIB + 10)
        assert [len(part.data) for part in parts] == [10]
