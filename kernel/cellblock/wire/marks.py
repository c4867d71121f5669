"""Marks in a guest's stdout and stderr, which say in which order output was written.

Output reaches the host in three ways: text, also that of programs, through the pipes stdout and
stderr, and everything else through the channel. Each way keeps its own order. Python writes its
text at once, so it keeps its order among the text of programs in the same pipe. For the order
between the ways, the guest numbers a moment and writes the number as a mark to both pipes: what
precedes it in either pipe came before what follows it in the other. An output on the channel has
the number of the mark at which it belongs.

    stdout   text  |mark 7|        text   |mark 8|
    stderr         |mark 7|  text         |mark 8|
    channel                               Display(mark=8)

``guest.output`` writes marks, ``host.guests.pipes`` reads them.

A mark consists of bytes that no text contains. A cell that forges one spoils only the output of its
own session: text is shown late, when a pipe is full or the guest ends, or below an earlier cell,
where a task's text may also be. The host never waits for a mark.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

#: How a mark begins: bytes that are not UTF-8, and that no program would write.
MAGIC: Final = b"\xff\xfe\xf8\xc0cb\xc1\xff"
#: The fields that follow: kind, number, cell, subshell.
_FIELDS: Final = struct.Struct("=BQII")
SIZE: Final = len(MAGIC) + _FIELDS.size
# Kinds of marks: what follows them.
#: Anything.
PLAIN: Final = 0
#: Text in this pipe, which comes before the text in the other one.
TEXT: Final = 1
#: A message on the channel, which comes before the text in both pipes.
MESSAGE: Final = 2
#: As ``TEXT``, but of a thread that an earlier cell has left running.
LATE: Final = 3
_MOST: Final = (1 << 31) - 1


class Mark(msgspec.Struct, frozen=True):
    """A mark. The text after it is of this cell and subshell; 0 is what runs (``Stream``)."""

    kind: int
    number: int
    cell: int = 0
    subshell: int = 0


def encode(kind: int, number: int, cell: int = 0, subshell: int = 0) -> bytes:
    """Return a mark as bytes."""
    return MAGIC + _FIELDS.pack(kind, number, cell, subshell)


def decode(data: bytes, start: int) -> Mark:
    """Return the mark that begins at ``start``. All of its bytes must be in ``data``."""
    kind, number, cell, subshell = _FIELDS.unpack_from(data, start + len(MAGIC))
    return Mark(kind, number, cell & _MOST, subshell & _MOST)


#: Mark after text of an earlier cell's task or of a subshell: the cell that runs goes on.
END: Final = encode(PLAIN, 0)
