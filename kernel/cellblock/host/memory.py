"""What a guest, and front ends that do not read, can make a host hold."""

from __future__ import annotations

#: Bytes that a host takes at most beyond what it has when its first cell runs: the dearest frame
#: with what is made of it (220 MiB, measured), what waits for a guest that does not read (48 MiB,
#: ``guest_process.MAX_PENDING``) and for front ends (16 MiB and a message, ``jupyter.outflow``),
#: what is gathered of a cell (12 MiB, ``kept.MEMORY``) and held until it ends (4 MiB, ``quota``).
HOST_MEMORY = 320 * 2**20
