"""What a run and its workers say to each other."""

from __future__ import annotations

from typing import Any

import msgspec

from cellblock.batch.run.fate import Record  # noqa: TC001 - msgspec reads the annotations
from cellblock.batch.run.terms import Terms  # noqa: TC001 - as above

#: Bytes of a session's audit log that are brought home; more stays on its worker.
MOST_AUDIT = 16 << 20


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a run: all of its fields, the hash of them, and what goes with it.

    ``project`` is its folder, which a worker may have or not.
    """

    version: str
    policy: dict[str, Any]
    digest: str
    allow_unsafe: bool
    project: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker made of an offer: why it can't keep the policy, or nothing; and its gaps."""

    host: str
    threads: int
    refusal: str = ""
    backend: str = ""
    gaps: tuple[dict[str, Any], ...] = ()


class Less(msgspec.Struct, frozen=True, kw_only=True):
    """What a notebook's metadata leaves of the policy: all fields of that, and their hash."""

    policy: dict[str, Any]
    digest: str


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A notebook to be run; ``less`` goes with every one whose metadata asks for anything."""

    name: str
    content: bytes
    folder: str
    terms: Terms
    less: Less | None = None


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """An audit log by its files' names; or why it was ``left`` on the worker."""

    files: dict[str, bytes] = {}
    left: str = ""


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it: the notebook as it is written, and its audit log."""

    record: Record
    document: bytes | None = None
    audit: Log = Log()
