"""``Withheld``: counts what no front end was shown of a cell's output, for audit log and Result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.host.audit.recorder import Audit

#: Mime types, and comms, that one cell's audit record names at most.
_MAX_NAMES: Final = 20


class Withheld:
    """The outputs of one request that no front end was shown: bytes, mime types, comms, messages.

    ``Outputs`` counts here and calls ``enter`` when the request ends.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._begin()

    def _begin(self) -> None:
        self._bytes: dict[str, int] = {}
        self._types: dict[str, None] = {}
        self._comms: dict[str, None] = {}
        #: Messages that were dropped because front ends did not read in time.
        self.messages = 0

    def enter(self, cell: int = 0) -> dict[str, int]:
        """Put the counts on the audit log, if there are any, and begin anew.

        ``cell`` is the cell's audit number, 0 if the request was no cell. Return the bytes that
        were left out, by kind ("stdout", "stderr", "display").
        """
        left_out = self._bytes
        if self._bytes or self._types or self._comms or self.messages:
            self._audit.withheld(self._bytes, self._types, self.messages, self._comms, cell=cell)
            self._begin()
        return left_out

    def size(self, kind: str, size: int) -> None:
        """Count bytes of a stream, or of displays, as left out."""
        self._bytes[kind] = self._bytes.get(kind, 0) + size

    def of_bundle(self, data: Any, data_shown: dict[str, Any]) -> None:
        """Note the mime types of a bundle of which the gateway let nothing pass.

        ``data`` is the guest's bundle, ``data_shown`` what is left of it.
        """
        if type(data) is dict and not data.keys() <= data_shown.keys():
            _note(self._types, (str(key) for key in data if key not in data_shown))

    def comm(self, name: str) -> None:
        """Note the name of a refused comm: its target, and a widget's module."""
        _note(self._comms, [name])


def _note(noted: dict[str, None], names: Iterable[str]) -> None:
    for name in names:
        if len(noted) < _MAX_NAMES:
            noted[name] = None
