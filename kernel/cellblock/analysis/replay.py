"""Which cells come out the same when they are run a second time, as far as their words say it.

A killed session is brought back from its last copy, and the short cells since are run again there,
unheard (ADR 0148). That is right for a cell whose result follows from the variables before it. Not
so where it asks what is different the next time. Files that it writes, processes, threads and
random numbers of the operating system's are seen while it runs (``guest.effects``); clocks and the
addresses of objects can't be, so the cell's own words are looked at. More cells are taken out than
need be: a word in a comment counts, too.

Not seen is a clock that a library looks at by itself.
"""

from __future__ import annotations

import re
from typing import Final

from cellblock.analysis.findings import word_set

#: Words that ask a clock, for an address, or for a seed of the operating system's.
_WORDS: Final = word_set("""
    Random ctime default_timer getpid getrusage gmtime id localtime monotonic monotonic_ns now
    perf_counter perf_counter_ns process_time process_time_ns random_device thread_time time_ns
    today utcnow
""")
#: These do where they are called, or called with nothing; otherwise they are names of columns.
_CALLS: Final = re.compile(r"\b(?:clock|time)\s*\(|\bseed\s*\(\s*\)|\btime\s*\.\s*strftime\b")
_NAME: Final = re.compile(r"[^\W\d]\w*")
#: What a cell binds that may ask for it: functions, classes, and names for what it imports.
_BOUND: Final = re.compile(
    r"\b(?:def|class|as)\s+([^\W\d]\w*)|([^\W\d]\w*)\s*(?::[^=\n]*)?=\s*(?:lambda\b|partial\b)"
)
_IMPORTED: Final = re.compile(r"^\s*(?:from\b[^\n]*\bimport|import)\b", re.MULTILINE)
#: Characters of a cell, and names of functions, beyond which nothing is said to come out the same.
_MAX_CHARACTERS: Final = 100_000
_MAX_NAMES: Final = 1_000


class RepeatableCells:
    """Judges the cells of one session, each after it ran: a function of one may be another's."""

    def __init__(self) -> None:
        #: Functions and classes of cells that may ask a clock.
        self._functions = set[str]()

    def judge(self, source: str) -> bool:
        """Return whether ``source``, transformed, says of itself that it comes out the same."""
        if len(source) > _MAX_CHARACTERS or len(self._functions) > _MAX_NAMES:
            return False
        names = set(_NAME.findall(source))
        aliased = "as" in names and _IMPORTED.search(source) and names & {"clock", "time"}
        if _CALLS.search(source) or aliased or names & _WORDS or names & self._functions:
            self._functions.update(filter(None, sum(_BOUND.findall(source), ())))
            return False
        return True
