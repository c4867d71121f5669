"""How much one cell may show: bytes per stream and of displays, counted where they pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["stdout", "stderr", "display"]
#: Bytes that a message costs a front end, whatever is in it.
LEAST = 200
#: Bytes that a piece of text counts as at least; less, because honest cells flush every line.
LEAST_TEXT = 16
#: A cell that had this many times its cap left out shows nothing more, even what would fit.
FLOOD = 8


@dataclass(slots=True)
class _Meter:
    cap: int | None
    used: int = 0
    dropped: int = 0


class Quota:
    """The byte counts of one cell. A cap of None is none."""

    def __init__(self, caps: dict[Kind, int | None]) -> None:
        self._meters = {kind: _Meter(cap) for kind, cap in caps.items()}

    def spent(self, kind: Kind, size: int) -> bool:
        """Say whether nothing of this kind is shown any more; then ``size`` counts as left out.

        What comes after that need not be looked at, let alone cleaned.
        """
        meter = self._meters[kind]
        least = LEAST if kind == "display" else LEAST_TEXT
        if meter.cap is None:
            return False
        if meter.used + least <= meter.cap and meter.dropped <= FLOOD * meter.cap:
            return False
        meter.dropped += max(size, least)
        return True

    def text(self, kind: Kind, text: str) -> str:
        """Return as much of ``text`` as still fits, cut between characters."""
        meter = self._meters[kind]
        if meter.cap is None:
            return text
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        size = max(size, LEAST_TEXT) if text else 0
        left = meter.cap - meter.used
        if size <= left:
            meter.used += size
            return text
        kept = text.encode("utf-8", "replace")[: max(0, left)].decode("utf-8", "ignore")
        meter.used = meter.cap
        meter.dropped += size - max(0, left)
        return kept

    def admits(self, size: int) -> bool:
        """Say whether a message of ``size`` bytes still fits; all of it or nothing.

        Anything but text counts here, and as ``LEAST`` bytes at least: a flood of empty
        messages is a flood.
        """
        meter = self._meters["display"]
        size = max(size, LEAST)
        if meter.cap is None or meter.used + size <= meter.cap:
            meter.used += size
            return True
        meter.dropped += size
        return False

    def dropped(self) -> list[tuple[Kind, int, int]]:
        """Return kind, bytes left out and cap for whatever was cut."""
        return [(k, m.dropped, m.cap or 0) for k, m in self._meters.items() if m.dropped]
