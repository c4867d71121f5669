"""Looking listed names up: in threads, since getaddrinfo(3) waits, and each no more than it must.

However often a guest asks, a name is looked up once in a while, and once at a time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final

from cellblock.host.relay.allowlist import THIS_MACHINE
from cellblock.policy.addresses import LOCALHOST
from cellblock.wire import relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.relay.allowlist import Allowlist

    LookUp = Callable[[str], Iterable[str]]

#: Names that are looked up at once, and guests' questions that may wait for one.
THREADS: Final = 8
MOST_WAITING: Final = 64
#: Seconds for which an answer is given again.
FRESH: Final = 5.0


def look_up(name: str) -> list[str]:
    """Return where a name is, as this machine sees it. Raises socket.gaierror."""
    if name == LOCALHOST:
        return list(THIS_MACHINE)
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Names:
    """Answers to the questions of guests; ``answer`` may be called from the relay's thread only."""

    def __init__(self, allowlist: Allowlist, look_up: LookUp = look_up) -> None:
        self._allowlist, self._look_up = allowlist, look_up
        self._threads = ThreadPoolExecutor(THREADS, "look-up")
        self._lock = Lock()
        #: Pipes that wait for a name that is being looked up.
        self._waiting: dict[str, list[int]] = {}
        self._known: dict[str, tuple[float, relay.Found]] = {}

    def answer(self, name: str, pipe: int) -> bool:
        """Write ``Found`` to a pipe, now or later, and close it; False if too many wait.

        ``name`` is one that the list knows.
        """
        with self._lock:
            when, found = self._known.get(name, (-FRESH, relay.Found()))
            if time.monotonic() - when >= FRESH:
                if sum(map(len, self._waiting.values())) >= MOST_WAITING:
                    return False
                if name not in self._waiting:
                    self._threads.submit(self._find, name)
                self._waiting.setdefault(name, []).append(pipe)
                return True
        _tell(pipe, found)
        return True

    def _find(self, name: str) -> None:
        try:
            addresses = list(self._look_up(name))
        except socket.gaierror as exc:
            error = exc.errno or socket.EAI_AGAIN
            found = relay.Found(error=error, why=f"{name}: {exc.strerror}"[:500])
        except Exception as exc:  # noqa: BLE001 - a question always has an answer
            found = relay.Found(error=socket.EAI_AGAIN, why=f"{name}: {type(exc).__name__}")
        else:
            found = self._judged(name, addresses)
        with self._lock:
            self._known[name] = time.monotonic(), found
            pipes = self._waiting.pop(name, [])
        for pipe in pipes:
            _tell(pipe, found)

    def _judged(self, name: str, addresses: list[str]) -> relay.Found:
        with self._lock:
            good, bad = self._allowlist.found(name, addresses)
        if good:
            return relay.Found(addresses=tuple(good[:64]))
        if not bad:
            return relay.Found(error=socket.EAI_NONAME, why=f"{name} is nowhere")
        why = f"{name} is at {bad}, which is not a public address: list that with its port, too"
        return relay.Found(error=socket.EAI_FAIL, why=why)


def _tell(pipe: int, found: relay.Found) -> None:
    """Write what fits a pipe at once, and close it; a guest that has gone does not mind."""
    with contextlib.suppress(OSError):
        os.write(pipe, relay.encode(found))
    os.close(pipe)
