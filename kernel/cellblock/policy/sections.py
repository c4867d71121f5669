"""Parts of a policy that are tables of their own: ``[audit]`` in a file.

The docstring below a field is its documentation of record, as in ``model``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from cellblock.policy.ranges import CHECKED, KIB, MIB, Range

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is written down of a session, and what happens where it can't be."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    log: bool = True
    """Whether the host writes an audit log of the session."""

    required: bool = False
    """Whether no cell runs while the log can't be written. If not, cells run and the first one
    says that nothing is written."""

    folder: str = "{cache}/audit"
    """Where logs lie, one or more files a session. ``{cache}`` is ``$XDG_CACHE_HOME/cellblock`` or
    ``~/.cache/cellblock``: a log that somebody relies on needs a folder that nobody clears. No
    guest can read or write it."""

    max_bytes: Annotated[int, Range(64 * KIB)] = 16 * MIB
    """Bytes after which a session's log goes on in its next file."""

    fsync: bool = False
    """Whether each record is on disk before its cell starts: it then outlives a power cut, not
    only the host. Costs what the disk takes for it, a millisecond or more a cell."""

    sources: bool = False
    """Whether sources of cells, lines that were refused and messages of exceptions stand in the
    log. If not, sources are there as SHA-256 only."""


#: Fields that are tables of fields.
SECTIONS: Final = {"audit": Audit}


def rows(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's fields as ``Policy.as_dict`` has them, those of sections one by one."""
    flat: dict[str, Any] = {}
    for field, value in values.items():
        if field in SECTIONS and isinstance(value, dict):
            flat |= {f"{field}.{key}": own for key, own in value.items()}
        else:
            flat[field] = value
    return flat
