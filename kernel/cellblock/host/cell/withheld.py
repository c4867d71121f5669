"""What of a cell's output no front end was shown: for the audit log, and for a Result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.host.audit.recorder import Audit

#: Types, and comms, that are named of one cell in the audit log.
_MAX_NAMES: Final = 20


class Withheld:
    """What of one cell's output no front end was shown."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._begin()

    def _begin(self) -> None:
        self._bytes: dict[str, int] = {}
        self._types: dict[str, None] = {}
        self._comms: dict[str, None] = {}
        #: Messages that no front end took in time.
        self.messages = 0

    def enter(self, cell: int = 0) -> dict[str, int]:
        """Put what was counted, if anything, on the audit log, and begin anew.

        Return the bytes of each stream, and of displays, that were left out.
        """
        left_out = self._bytes
        if self._bytes or self._types or self._comms or self.messages:
            self._audit.withheld(self._bytes, self._types, self.messages, self._comms, cell=cell)
            self._begin()
        return left_out

    def size(self, kind: str, size: int) -> None:
        """Count bytes of a stream, or of displays."""
        self._bytes[kind] = self._bytes.get(kind, 0) + size

    def of_bundle(self, given: Any, shown: dict[str, Any]) -> None:
        """Note the types of a bundle that the gateway lets nothing pass of."""
        if type(given) is dict and not given.keys() <= shown.keys():
            _note(self._types, (str(key) for key in given if key not in shown))

    def comm(self, name: str) -> None:
        """Note a comm, or a widget's module, that was refused."""
        _note(self._comms, [name])


def _note(seen: dict[str, None], names: Iterable[str]) -> None:
    for name in names:
        if len(seen) < _MAX_NAMES:
            seen[name] = None
