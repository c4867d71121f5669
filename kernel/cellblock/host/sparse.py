"""Reading and writing files that have holes: parts of them that take no disk (lseek(2)).

A file of a few bytes may say that it has gigabytes. Its content is as long as it says, for digests
and comparisons; a copy that leaves the same holes takes as little disk as the file does.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of one part at most.
PART: Final = 1 << 20
_ZEROS: Final = memoryview(bytes(PART))
#: What file systems say that know no holes.
_UNSUPPORTED_ERRNOS: Final = (errno.EINVAL, errno.EOPNOTSUPP)


class Part(NamedTuple):
    """Some of a file's content; that of a hole is zeros."""

    data: bytes | memoryview
    is_hole: bool


def read_parts(source: int) -> Iterator[Part]:
    """Yield the content of a regular file from its beginning, in parts of up to 1 MiB.

    The file may change meanwhile: then it is as long as it is when its end is reached. What reads
    it at the same time by the same descriptor moves its place. Raises OSError.
    """
    offset = 0
    while (data_range := _next_data(source, offset)) is not None:
        begin, end = data_range
        while offset < begin:
            hole = _ZEROS[: begin - offset]
            offset += len(hole)
            yield Part(hole, is_hole=True)
        os.lseek(source, offset, os.SEEK_SET)
        while offset < end:
            data = os.read(source, min(end - offset, PART))
            if not data:  # it was cut meanwhile, or its end was not known
                return
            offset += len(data)
            yield Part(data, is_hole=False)


def write_part(target: int, part: Part) -> None:
    """Write a part where the one before it ended; ``end_file`` must follow the last.

    Raises OSError.
    """
    if part.is_hole:
        os.lseek(target, len(part.data), os.SEEK_CUR)
        return
    unwritten = memoryview(part.data)
    while unwritten:
        unwritten = unwritten[os.write(target, unwritten) :]


def end_file(target: int) -> None:
    """Give a new file the length that it has with a hole at its end. Raises OSError."""
    os.ftruncate(target, os.lseek(target, 0, os.SEEK_CUR))


def _next_data(source: int, offset: int) -> tuple[int, int] | None:
    """Return where the next data begin and end, or None at the end of the file.

    If only a hole follows, both are the end of the file. If the file system can't tell holes from
    data, the next ``PART`` bytes count as data, even beyond the end of the file.
    """
    try:
        begin = os.lseek(source, offset, os.SEEK_DATA)
        return begin, os.lseek(source, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno in _UNSUPPORTED_ERRNOS:
            return offset, offset + PART
        if error.errno != errno.ENXIO:
            raise
    size = os.fstat(source).st_size
    return (size, size) if offset < size else None
