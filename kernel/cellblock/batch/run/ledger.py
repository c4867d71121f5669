"""Which notebooks have come to their end, in this run and those before it: a line for each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.batch.run.fate import FINAL, Fate, Record

if TYPE_CHECKING:
    from cellblock.batch.run.folder import OutputFolder

_NAME: Final = "run.jsonl"


class Entry(msgspec.Struct, frozen=True):
    """A notebook's file, by its name's bytes in hex, the key that it was run by, its record."""

    output: str
    key: str
    record: Record


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Entry).decode


class Ledger:
    """The records of a folder; those of earlier runs go on where this one is ``resumed``."""

    def __init__(self, folder: OutputFolder, *, resumed: bool) -> None:
        """Raise OSError where it can't be written."""
        self._folder = folder
        self._known: dict[str, tuple[str, Record]] = {}
        if not resumed:
            folder.remove(_NAME)
        self._descriptor = folder.append_to(_NAME)
        os.write(self._descriptor, b"\n")  # a line that was cut off ends here

    def recall(self) -> None:
        """Know what was entered until now. Raises OSError."""
        for line in self._folder.lines(_NAME):
            try:
                entry = _decode(line)
            except (msgspec.MsgspecError, RecursionError):
                continue  # not of ours
            self._known[entry.output] = entry.key, entry.record

    def enter(self, output: str, key: str, record: Record) -> None:
        """Write down what became of a notebook. Raises OSError."""
        os.write(self._descriptor, _encode(Entry(_hex(output), key, record)) + b"\n")

    def find(self, output: str, key: str, *, passed: bool) -> Record | None:
        """Return what became of the same notebook before, if that need not be tried again.

        With ``passed``, only if it did.
        """
        known, record = self._known.get(_hex(output), ("", None))
        if record is None or known != key or record.fate not in FINAL:
            return None
        if passed and record.fate is not Fate.passed:
            return None
        return msgspec.structs.replace(record, kept=True)

    def close(self) -> None:
        """Close its file."""
        os.close(self._descriptor)


def _hex(output: str) -> str:
    return os.fsencode(output).hex()
