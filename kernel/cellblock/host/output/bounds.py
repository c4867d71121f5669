"""How much of anything is passed on. Sizes are characters unless a name says bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Bounds:
    """Caps on one message's parts; ``display_bytes`` follows the policy's display_max_bytes."""

    display_bytes: int = 16 << 20
    stream_text: int = 4 << 20
    metadata: int = 64 << 10
    comm: int = 4 << 20
    nodes: int = 1_000_000
    depth: int = 60
    mime_types: int = 32
    name: int = 1_000
    ename: int = 200
    evalue: int = 20_000
    traceback: int = 400_000
    traceback_lines: int = 2_000
    prompt: int = 500
    matches: int = 10_000
    match_text: int = 10_000
    expressions: int = 100
    payloads: int = 16

    def within(self, display_bytes: int) -> Bounds:
        """Return the same bounds with so much left for a bundle."""
        return replace(self, display_bytes=display_bytes)


DEFAULT: Final = Bounds()
