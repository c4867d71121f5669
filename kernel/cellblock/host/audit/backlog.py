"""Records on their way to a log: those that can't be written wait for the next, within bounds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from cellblock.errors import AuditError
from cellblock.host.audit import records
from cellblock.host.audit.log import body

if TYPE_CHECKING:
    from cellblock.host.audit.log import Log

#: Bytes of records that wait for a log that can't be written, but for one record of any size.
MOST_WAITING: Final = 1 << 20
#: Seconds for which a log that could not be written is not tried again for a question's sake.
PAUSE: Final = 0.05


class Backlog:
    """What of a session waits for its log; nothing, while that can be written."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: list[bytes] = []
        self._lost = 0
        #: Why the log can't be written now, and whether the user has yet to be told.
        self._problem: AuditError | None = None
        self._untold = False
        self._tried = 0.0

    @property
    def session(self) -> str:
        """What the session is called on its log."""
        return self._log.session

    def untold(self) -> AuditError | None:
        """Return why the log can't be written, if the user has yet to be told; he is, by that."""
        untold, self._untold = self._untold, False
        return self._problem if untold else None

    def enter(self, record: records.Record, *, hurry: bool) -> AuditError | None:
        """Write a record. One that can't be written waits for the next; returned is why.

        In a ``hurry``, because a cell waits for it, what others did to the file is left to the next
        record to find; once that has found something, to this one.
        """
        self._hold(record)
        self._write(hurry=hurry and self._problem is None)
        return self._problem

    def _write(self, *, hurry: bool) -> None:
        try:
            self._log.write(self._due(), hurry=hurry)
        except AuditError as exc:
            self._untold = self._untold or self._problem is None
            self._problem, self._tried = exc, time.monotonic()
        else:
            self._waiting, self._lost = [], 0
            self._problem, self._untold = None, False

    def used_up(self) -> AuditError | None:
        """Return that the log has all the bytes that a session's may, if so."""
        return self._log.used_up()

    def standing(self) -> AuditError | None:
        """Try to write what waits, if anything does; return why that can't be written.

        Not again at once: a guest may have this asked a thousand times in a row.
        """
        if self._problem is not None and time.monotonic() - self._tried >= PAUSE:
            self._write(hurry=False)
        return self._problem

    def amend(self, record: records.Record) -> None:
        """Have the record that came last, and waits, be this one."""
        if not self._lost:
            self._waiting[-1] = body(record)

    def close(self, last: records.Record) -> None:
        """Write the last record, and close the log; say on stderr what it does not have."""
        self.enter(last, hurry=False)
        if self._problem is not None:
            lost = len(self._waiting) + self._lost
            print(f"cellblock: {lost} audit records lost: {self._problem}", file=sys.stderr)  # noqa: T201
        self._log.close()

    def _hold(self, record: records.Record) -> None:
        entry = body(record)
        waiting = sum(map(len, self._waiting))
        if self._lost or (waiting and waiting + len(entry) > MOST_WAITING):
            self._lost += 1
        else:
            self._waiting.append(entry)

    def _due(self) -> list[bytes]:
        if not self._lost:
            return self._waiting
        return [*self._waiting, body(records.Lost(records=self._lost))]
