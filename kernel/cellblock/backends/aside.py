"""Words for a program that are nobody else's: who lists processes sees command lines (proc(5)).

What a policy calls folders is told by an open file instead, which is gone with its last reader.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@contextlib.contextmanager
def told(words: Iterable[str]) -> Iterator[int]:
    """Yield a descriptor that is inherited, with ``words`` in it, a zero byte behind each.

    Raises OSError where there is no place for temporary files.
    """
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(os.fsencode(word) + b"\0" for word in words))
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        yield file.fileno()


def heard(fd: int) -> list[str]:
    """Return what was told by ``fd``, and close it."""
    with open(fd, "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
