"""A thread that ends whatever keeps the host waiting in a read of a guest's pipe.

A process that writes to a pipe holds the pipe's lock while the OS kernel copies from its memory. A
hostile guest can make that take long: one thread writes while another forks, which locks the
memory, and other processes keep the forking thread from the processor. Meanwhile each read of the
pipe waits for the lock. No signal ends that wait and no flag makes it fail (O_NONBLOCK,
RWF_NOWAIT). So a thread of the host looks at reads. If one takes too long it ends the programs of
the guest that is read from, and then the guest: a fork that has the processor to itself is soon
done.
"""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

#: Seconds between two looks. A read that both looks find under way has taken at least that long.
LOOK: Final = 1.5


class Reader(Protocol):
    """A reader of one guest's pipes, in a thread of its own."""

    #: The number of the read that is under way; 0 if none is.
    reading: int

    def end_writers(self, times: int) -> None:
        """End processes that may be writing to the pipe.

        ``times`` counts the calls about the same read. Called in the watching thread, while the
        reader's own thread waits.
        """


class Watch:
    """Watches all readers of this process, in a thread that lives as long as there are any."""

    def __init__(self) -> None:
        self._readers = set[Reader]()
        self._lock = threading.Lock()
        self._has_thread = False

    def add(self, reader: Reader) -> None:
        """Watch a reader from now on."""
        with self._lock:
            self._readers.add(reader)
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._look, name="cellblock-reads", daemon=True).start()

    def drop(self, reader: Reader) -> None:
        """Stop watching a reader."""
        with self._lock:
            self._readers.discard(reader)

    def _look(self) -> None:
        seen_before = dict[Reader, tuple[int, int]]()
        while True:
            time.sleep(LOOK)
            with self._lock:
                readers = tuple(self._readers)
                if not readers:
                    self._has_thread = False
                    return
            readings = dict[Reader, tuple[int, int]]()
            for reader in readers:
                if not (number := reader.reading):
                    continue
                last_number, times = seen_before.get(reader, (0, 0))
                readings[reader] = number, times + 1 if last_number == number else 0
                if readings[reader][1]:
                    reader.end_writers(readings[reader][1])
            seen_before = readings


#: The watch of this process.
watch: Final = Watch()
