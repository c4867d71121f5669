"""Ends what keeps the host waiting in a read of a guest's pipe.

Whoever writes to a pipe holds its lock while the OS kernel copies from the writer's memory. If that
memory can't be had, as another thread of the writer's forks and others keep that from the
processor, the write takes as long, and so does each read of the pipe, which no signal ends and no
flag makes fail (O_NONBLOCK, RWF_NOWAIT). A thread of the host's looks at reads, and ends the
programs of whoever is read from, and then the guest: who has the processor to itself is soon done.
"""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

#: Seconds between two looks. A read that both find under way has taken at least so long.
LOOK: Final = 1.5


class Reader(Protocol):
    """Who reads pipes of one guest, in a thread of its own."""

    #: The number of the read that is under way; 0 where none is.
    reading: int

    def end_writers(self, times: int) -> None:
        """End what may write there, as it has been asked so many times about the same read.

        Called in another thread, while the own one waits.
        """


class Watch:
    """Looks at all readers of this process, in a thread that lives as long as there are any."""

    def __init__(self) -> None:
        self._readers = set[Reader]()
        self._lock = threading.Lock()
        self._has_thread = False

    def add(self, reader: Reader) -> None:
        """Look at a reader from now on."""
        with self._lock:
            self._readers.add(reader)
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._look, name="cellblock-reads", daemon=True).start()

    def drop(self, reader: Reader) -> None:
        """Look at it no more."""
        with self._lock:
            self._readers.discard(reader)

    def _look(self) -> None:
        before = dict[Reader, tuple[int, int]]()
        while True:
            time.sleep(LOOK)
            with self._lock:
                readers = tuple(self._readers)
                if not readers:
                    self._has_thread = False
                    return
            now = dict[Reader, tuple[int, int]]()
            for reader in readers:
                if not (number := reader.reading):
                    continue
                known, times = before.get(reader, (0, 0))
                now[reader] = number, times + 1 if known == number else 0
                if now[reader][1]:
                    reader.end_writers(now[reader][1])
            before = now


#: Of this process.
watch: Final = Watch()
