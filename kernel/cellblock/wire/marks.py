"""Marks in a guest's stdout and stderr, which say in which order things were written.

Text has two roads, stdout and stderr, and so have programs that a cell starts; what is no text
takes a third, the channel. Each road keeps its own order. Python's text is written at once, so it
stands among what programs write to the same pipe. For the order between roads the guest numbers a
moment, and writes the number as a mark to both pipes: what stands before it on either came before
what stands behind it on the other. A message on the channel that is shown carries the number of
the mark at which it belongs.

A mark is bytes that no text has. Who forges one spoils the output of the own session: text comes
late, until a pipe is full or the guest ends, or below an earlier cell, as a task's may. Nothing
else waits: the host does not (``host.guests.pipes``).
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

#: No UTF-8, and nothing that a program would write.
MAGIC: Final = b"\xff\xfe\xf8\xc0cb\xc1\xff"
#: What follows: kind, number, cell, subshell.
_FIELDS: Final = struct.Struct("=BQII")
SIZE: Final = len(MAGIC) + _FIELDS.size
#: What is behind a mark: whatever comes; text of this pipe, which comes before that of the other;
#: a message on the channel, which comes before both.
PLAIN: Final = 0
TEXT: Final = 1
MESSAGE: Final = 2
#: Text as ``TEXT``, of a thread that an earlier cell started and left running.
LATE: Final = 3
_MOST: Final = (1 << 31) - 1


class Mark(msgspec.Struct, frozen=True):
    """A mark. Text behind it is of this cell and subshell, 0 being what runs (``Stream``)."""

    kind: int
    number: int
    cell: int = 0
    subshell: int = 0


def encode(kind: int, number: int, cell: int = 0, subshell: int = 0) -> bytes:
    """Return a mark as bytes."""
    return MAGIC + _FIELDS.pack(kind, number, cell, subshell)


def decode(data: bytes, start: int) -> Mark:
    """Return the mark that begins at ``start``, whose bytes are all there."""
    kind, number, cell, subshell = _FIELDS.unpack_from(data, start + len(MAGIC))
    return Mark(kind, number, cell & _MOST, subshell & _MOST)


#: Behind what a task of an earlier cell, or a subshell, wrote: what follows is of whatever runs.
END: Final = encode(PLAIN, 0)
