"""The messages between a run and the workers of a cluster."""

from __future__ import annotations

from typing import Any

import msgspec

from cellblock.batch.run.plan import RunOptions
from cellblock.batch.run.result import NotebookResult, NotebookStatus, clip_reason

#: Bytes of a session's audit log that are sent home; a larger one stays on its worker.
MAX_AUDIT_BYTES = 16 << 20


class PolicyOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a run: all its fields, their hash, and what goes with it.

    ``project`` is its folder, which a worker may have or not.
    """

    version: str
    policy: dict[str, Any]
    digest: str
    allow_unsafe: bool
    project: str


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's answer to an offer. ``refusal`` says why it can't keep the policy, or is ""."""

    host: str
    threads: int
    refusal: str = ""
    gaps: tuple[dict[str, Any], ...] = ()


class NarrowedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy as a notebook's metadata narrows it: all its fields, and their hash."""

    policy: dict[str, Any]
    digest: str


class NotebookTask(msgspec.Struct, frozen=True, kw_only=True):
    """A notebook to run. ``narrowed`` goes with every one whose metadata asks for a policy."""

    name: str
    content: bytes
    folder: str
    options: RunOptions = RunOptions()
    narrowed: NarrowedPolicy | None = None


class AuditFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of an audit log by name; or why it was ``left`` on the worker."""

    files: dict[str, bytes] = {}
    left: str = ""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a notebook, the document that is written, and the audit log."""

    result: NotebookResult
    document: bytes | None = None
    audit: AuditFiles = AuditFiles()

    @classmethod
    def denied(cls, notebook: str, why: str) -> TaskResult:
        """Return the result of a notebook that can't have its policy."""
        status, reason = NotebookStatus.denied, clip_reason(why)
        return cls(result=NotebookResult(notebook=notebook, status=status, reason=reason))
