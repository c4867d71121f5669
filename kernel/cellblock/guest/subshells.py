"""Subshells (JEP 91): threads that take cells and comm messages while the main thread runs a cell.

The host says which there are; a snapshot has none, so it says so again to one that takes over. A
thread has nothing but its event loop, in which the tasks of its cells go on between them. Nobody
forks while one of them runs a request (``host.session.requests``).
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.audit_exempt import run_exempt
from cellblock.guest.channel import HostGone
from cellblock.guest.loop import Driver
from cellblock.guest.output import current_subshell
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.guest.tool_calls import Calls

    #: Answers a message on the loop of its thread.
    Answer = Callable[[Any, Driver], None]


#: Seconds that an idle one has to end.
_TIMEOUT: Final = 1.0


class Subshell:
    """One thread, and what has arrived for it."""

    def __init__(
        self, number: int, calls: Calls, answer: Answer, driver: Driver | None = None
    ) -> None:
        self.number = number
        self._calls, self._answer = calls, answer
        self._messages = deque[Any]()
        self._arrived = threading.Event()
        self.on_message: Callable[[], None] = lambda: None
        #: Made in the thread, or what a thread before a fork had.
        self.driver = driver
        name = f"cellblock-subshell-{number}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError, MemoryError where there is no room for one."""
        run_exempt(self._thread.start)

    def put(self, message: messages.ToGuest | None) -> None:
        """Hand a message over; None ends the thread when it has answered those before."""
        self._messages.append(message)
        self._arrived.set()
        self.on_message()

    def join(self) -> None:
        """Wait until an idle thread has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_TIMEOUT)

    def waiting(self) -> bool:
        """Whether a message is here."""
        return bool(self._messages)

    def recv(self) -> Any:
        """Return the next message, waiting for it; read for others meanwhile, if nobody does."""
        self._calls.wait_beside_main(self.waiting, self._arrived)
        return self._messages.popleft()

    def _run(self) -> None:
        current_subshell.set(self.number)
        driver = self.driver or Driver(self, self._calls.readers)
        self.driver = driver.begin(self)
        while self._answer_next(driver):
            pass

    def _answer_next(self, driver: Driver) -> bool:
        """Answer the next message; return whether there may be another."""
        try:
            message = driver.next_message()
            if message is not None:
                self._answer(message, driver)
        except HostGone:
            return False
        except BaseException:  # of a task; a cell's is told by its end
            return True
        if message is None:
            driver.loop.close()
        return message is not None


class Subshells:
    """All of one guest, by number; ``keep`` gets what the main thread is to answer."""

    def __init__(
        self, calls: Calls, answer: Answer, keep: Callable[[messages.ToGuest], None]
    ) -> None:
        self._calls, self._answer, self._keep = calls, answer, keep
        self._all: dict[int, Subshell] = {}
        #: Event loops of those that a copy had before it was one.
        self._drivers: dict[int, Driver] = {}
        self._changing = threading.Lock()

    def of_message(self, message: messages.ToGuest) -> Callable[[], None] | None:
        """Return what hands a message to its subshell; None where the main thread is to have it."""
        if isinstance(message, messages.Subshells):
            return partial(self._change, message.numbers)
        if isinstance(message, messages.OfSubshell) and message.subshell:
            return partial(self._deliver, message)
        return None

    def _deliver(self, message: Any) -> None:
        subshell = self._all.get(message.subshell)
        (self._keep if subshell is None else subshell.put)(message)

    def _change(self, numbers: tuple[int, ...]) -> None:
        """Have exactly these. The main thread takes the messages of one that can't be had."""
        with self._changing:
            for number in self._all.keys() - set(numbers):
                ended = self._all.pop(number)
                ended.put(None)
                ended.join()
            for number in numbers:
                if number not in self._all:
                    driver = self._drivers.pop(number, None)
                    made = Subshell(number, self._calls, self._answer, driver)
                    with contextlib.suppress(RuntimeError, MemoryError):
                        made.start()
                        self._all[number] = made

    def forget(self) -> int:
        """Forget, in a copy, all threads; return how many tasks are lost with them."""
        found = {number: one.driver for number, one in self._all.items()}
        self._drivers |= {number: one for number, one in found.items() if one is not None}
        self._all.clear()
        self._changing = threading.Lock()
        return sum(driver.resume() for driver in self._drivers.values())
