"""Grants: what a user has allowed already, for this cell, for the session, or always.

A grant for always is a record in the store (``store``), which all kernels read. It counts for one
scope, one policy and that policy's digest: when the policy changes, it is void. A store that can't
be trusted grants nothing, so the user is asked again. A grant that is taken back no longer counts
from the next look on. Grants for a cell or the session are only in memory: they end with it, and no
other process may use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from cellblock.errors import AdmissionError
from cellblock.host.consent.store import record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.host.consent.request import ApprovalRequest
    from cellblock.host.consent.store import Manifest, Record, Store

#: How long a grant lasts.
Scope = Literal["once", "session", "always"]
#: Seconds to wait for the store's lock. The host's loop stands still meanwhile.
_PATIENCE: Final = 0.1


class GrantContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a lasting grant counts for: a scope, and a policy by its name and digest."""

    scope: str
    policy: str
    digest: str


class Grants:
    """The grants of a session. A look at those for always costs two stat(2).

    Without a ``store`` there are none for always, and none can be added. ``under`` is what they
    count for.
    """

    def __init__(self, under: GrantContext, store: Store | None) -> None:
        self.under = under
        self._place = None if store is None else store.answers(under.scope, under.policy)
        self._session: set[tuple[str, str]] = set()
        #: Imports that the cell under way was allowed.
        self._cell: set[str] = set()

    def narrow_to(self, digest: str) -> None:
        """Apply a narrower policy: from now on grants for always count for its digest."""
        self.under = replace(self.under, digest=digest)

    def begin(self) -> None:
        """Begin a cell: forget the grants for the one before."""
        self._cell.clear()

    def covers(self, approval_request: ApprovalRequest) -> Scope | None:
        """Return for how long a request is allowed already; None if the user must be asked."""
        subjects = {(approval_request.of, subject) for subject in approval_request.subjects}
        if subjects <= self._session:
            return "session"
        return "always" if subjects <= self._session | self._stored_grants() else None

    def add(self, approval_request: ApprovalRequest, scope: Scope) -> str:
        """Add a grant. Return why it could not be added for always, or an empty string.

        In that case it is added for the session. A grant for always is only in the store, so that
        taking it back there counts at once.
        """
        if scope == "once":
            # Imports are allowed for the whole cell. A call is only let through by the broker: a
            # grant that is remembered could be used by another call.
            self._cell.update(approval_request.subjects if approval_request.of == "import" else ())
            return ""
        problem = self._add_to_store(approval_request) if scope == "always" else ""
        if scope == "session" or problem:
            self._session.update(
                (approval_request.of, subject) for subject in approval_request.subjects
            )
        return problem

    def _add_to_store(self, approval_request: ApprovalRequest) -> str:
        """Write a grant for always to the store. Return why it can't be, or an empty string."""
        if self._place is None or approval_request.of == "keep":
            return "nothing is kept here."
        new = [
            record(approval_request.of, subject, self.under.digest)
            for subject in approval_request.subjects
        ]
        new_keys = {(each.kind, each.subject, each.digest) for each in new}

        def with_new(before: Manifest) -> Iterable[Record]:
            unchanged = [
                entry
                for entry in before.records
                if (entry.kind, entry.subject, entry.digest) not in new_keys
            ]
            return (*unchanged, *new)

        try:
            self._place.change(with_new, patience=_PATIENCE)
        except AdmissionError as exc:
            return str(exc)
        return ""

    def imports(self) -> frozenset[str]:
        """Return the names that may be imported now besides those that the policy allows."""
        lasting = self._session | self._stored_grants()
        return frozenset(self._cell).union(name for kind, name in lasting if kind == "import")

    def _stored_grants(self) -> set[tuple[str, str]]:
        """Return the grants for always; none if the store can't be trusted."""
        try:
            records = () if self._place is None else self._place.current().records
        except AdmissionError:
            return set()
        return {(each.kind, each.subject) for each in records if each.digest == self.under.digest}
