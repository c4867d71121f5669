"""Words for a program that are nobody else's: who lists processes sees command lines (proc(5)).

What a policy calls folders is told by an open file instead, which is gone with its last reader.
"""

from __future__ import annotations

import contextlib
import os
import tempfile

TYPE_CHECKING = False  # a zygote may be started before typing is imported
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


#: Between a program's options and what it starts.
END = "--"


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


@contextlib.contextmanager
def behind(program: str, options: Sequence[str], argv: Sequence[str]) -> Iterator[list[str]]:
    """Yield the command that starts ``argv`` behind a program that is told its options so."""
    with told(options) as fd:
        yield [program, "--args", str(fd), END, *argv]


def heard(fd: int) -> list[str]:
    """Return what was told by ``fd``, and close it."""
    with open(fd, "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
