"""Stops what threads run, by an exception that they raise as soon as they run Python.

CPython has a mark for such an exception that is due, one for all threads, which stays while the
thread that it is for waits in C code. Every thread is slower for it, and one that is traced (by a
debugger, or for coverage) goes no further at all under Python 3.11, whose interpreter returns to
the start of a function for as long as the mark stands. So it is due for moments only, again and
again until it is raised, and whoever has it so calls nothing that is written in Python meanwhile.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Final

#: Seconds for which an exception is due, and between two times: at first, and at most.
DUE: Final = 0.005
FIRST: Final = 0.01
LONGEST: Final = 1.0
_set_due: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_due.argtypes = [ctypes.c_ulong, ctypes.py_object]


class Cancelled(BaseException):
    """Raised within a tool whose answer nobody waits for any more."""


class _Raised(Cancelled):
    """Notes by itself where it was raised: what cleans up after it is not stopped too."""

    threads: Final = set[int]()

    def __init__(self) -> None:
        super().__init__()
        self.threads.add(threading.get_ident())


class Stopper:
    """Knows which threads run what, by numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        #: What was told to stop and has not ended, and what of it has not raised it yet.
        self._told: set[int] = set()
        self._unheard: set[int] = set()
        self._again = threading.Event()
        self._is_serving = False

    def enter(self, number: int) -> None:
        """Count this thread as the one that runs ``number``, until it leaves that."""
        with self._lock:
            self._threads[number] = threading.get_ident()

    def leave(self, number: int) -> None:
        """Have nothing stopped any more; raises ``Cancelled`` if that was due."""
        with self._lock:
            self._threads.pop(number, None)
            told = number in self._told
            self._told.discard(number)
            self._unheard.discard(number)
        if told:
            # It may be due still, and must not come in the middle of something else.
            for _ in range(1_000):
                pass

    @property
    def entered(self) -> tuple[int, ...]:
        """What is run."""
        return tuple(self._threads)

    def stop(self, number: int) -> None:
        """Have what runs ``number`` raise ``Cancelled``, once; harmless if nothing does."""
        with self._lock:
            if number not in self._threads or number in self._told:
                return
            self._told.add(number)
            self._unheard.add(number)
            due, self._is_serving = not self._is_serving, True
        if not due:
            self._again.set()
            return
        try:
            threading.Thread(target=self._serve, daemon=True, name="tools").start()
        except RuntimeError:  # no thread is to be had: it goes on, as what is in C code does
            self._is_serving = False

    def _serve(self) -> None:
        interval = FIRST
        while self._attempt():
            interval = FIRST if self._again.wait(interval) else min(2 * interval, LONGEST)
            self._again.clear()

    def _attempt(self) -> bool:
        """Have it be due for a moment; say whether somebody has not heard of it yet."""
        with self._lock:
            due = [
                (number, self._threads[number])
                for number in self._unheard
                if number in self._threads
            ]
            if not due:
                self._is_serving = False
                return False
            _Raised.threads.difference_update([thread for _, thread in due])
            for _, thread in due:
                _set_due(thread, _Raised)
        time.sleep(DUE)
        with self._lock:
            for number, thread in due:
                if thread in _Raised.threads:
                    self._unheard.discard(number)
                elif number in self._threads:
                    _set_due(thread, _NOBODY)
            # The mark goes when a thread raises what is due for it.
            try:
                _set_due(threading.get_ident(), Cancelled)
                for _ in range(1_000):
                    pass
            except Cancelled:
                pass
        return True


#: What is due is nothing: NULL.
_NOBODY: Final = ctypes.py_object()
