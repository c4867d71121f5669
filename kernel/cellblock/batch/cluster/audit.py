"""A session's audit log on its way home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.batch.cluster.speech import MOST_AUDIT, Log
from cellblock.errors import AuditError
from cellblock.host.audit import reader

if TYPE_CHECKING:
    from cellblock.policy.sections import Audit


def log_of(session: str, audit: Audit) -> Log:
    """Return a session's log: nothing where there is none, or why it stays where it is."""
    if not session or not audit.log:
        return Log()
    try:
        found = reader.find(Path(audit.folder), session)
        if sum(path.stat().st_size for path in found.files) > MOST_AUDIT:
            return Log(left=f"it is over {MOST_AUDIT >> 20} MiB")
        return Log(files={path.name: path.read_bytes() for path in found.files})
    except AuditError as exc:
        return Log(left=exc.message)
    except OSError as exc:
        return Log(left=f"it can't be read: {exc.strerror}")
