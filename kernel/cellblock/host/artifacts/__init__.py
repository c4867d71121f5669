"""Files that cells leave for their users: found after a cell, and copied to a folder of the host's.

Invariant: whatever a cell puts there is hostile. No link is followed, nothing but a regular file
with one name is read, what is read and written is bounded, and names are made harmless before they
are used or shown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that was copied out: its name in the folder of artifacts, and where it is now.

    ``content_type`` is told by the first bytes, and of text by the name as well.
    """

    name: str
    path: str
    size_bytes: int
    content_type: str
    sha256: str = ""

    def as_dict(self) -> dict[str, str | int]:
        """Return it as JSON data."""
        return {
            "name": self.name,
            "path": self.path,
            "size_bytes": self.size_bytes,
            "content_type": self.content_type,
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was to be copied out, and why it was not."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Exported:
    """What came of one cell's files; ``uncounted`` says that there were more than are looked at."""

    artifacts: tuple[Artifact, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    uncounted: bool = False

    def __bool__(self) -> bool:
        return bool(self.artifacts or self.skipped or self.uncounted)
