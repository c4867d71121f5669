"""Arguments of a program that a process listing does not show.

Anybody can read the command line of anybody's process (proc(5)), and the options of a wrapper name
the folders of a policy. So they are written to a file in memory (memfd_create(2)) and read from a
descriptor, as ``--args FD`` of bwrap(1). The file is gone when its last reader has closed it.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False  # a zygote may be started before typing is imported
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Between a program's options and what it starts.
END = "--"


@contextlib.contextmanager
def written(args: Iterable[str]) -> Iterator[int]:
    """Yield an inheritable descriptor from which ``args`` can be read, each ended by a zero byte.

    Raises OSError where there is none.
    """
    with open(os.memfd_create("args", 0), "wb", buffering=0) as file:
        file.write(b"".join(os.fsencode(arg) + b"\0" for arg in args))
        file.seek(0)
        yield file.fileno()


@contextlib.contextmanager
def command(program: str, options: Sequence[str], argv: Sequence[str]) -> Iterator[list[str]]:
    """Yield the command that starts ``argv`` behind ``program``, with its options hidden."""
    with written(options) as fd:
        yield [program, "--args", str(fd), END, *argv]


def read(fd: int) -> list[str]:
    """Return the arguments that were written to ``fd``, and close it."""
    with open(fd, "rb") as file:
        return [os.fsdecode(arg) for arg in file.read().split(b"\0")[:-1]]
