"""What a user allowed before: for this cell, for the session, or for always.

What is for always is a record of the store (``store``), which all kernels look at. It counts for
one scope, one policy and that policy's digest: a policy that changed voids it. What can't be
trusted allows nothing, so that users are asked anew. What is taken back counts no more from the
next look on. What is for the session or a cell is in memory alone: it ends with them, and no other
process is to use it.
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

#: For how long something can be allowed.
Scope = Literal["once", "session", "always"]
#: Seconds to wait for the store: the host's loop stands still meanwhile.
_PATIENCE: Final = 0.1


class GrantContext(msgspec.Struct, frozen=True, kw_only=True):
    """What lasting grants are for: a scope, and a policy by its name and digest."""

    scope: str
    policy: str
    digest: str


class Grants:
    """Answers whether something is allowed already, and how. A look costs two stat(2).

    Without a store nothing is allowed for always, nor can it be.
    """

    def __init__(self, under: GrantContext, store: Store | None) -> None:
        self.under = under
        self._place = None if store is None else store.answers(under.scope, under.policy)
        self._session: set[tuple[str, str]] = set()
        #: Imports that the cell under way was allowed.
        self._cell: set[str] = set()

    def narrow_to(self, digest: str) -> None:
        """Have what is for always be for a narrower policy, from now on."""
        self.under = replace(self.under, digest=digest)

    def begin(self) -> None:
        """Begin a cell: what was allowed once was for another."""
        self._cell.clear()

    def covers(self, wanted: ApprovalRequest) -> Scope | None:
        """Return for how long something is allowed already, None where it has to be asked for."""
        subjects = {(wanted.of, subject) for subject in wanted.subjects}
        if subjects <= self._session:
            return "session"
        return "always" if subjects <= self._session | self._always() else None

    def add(self, wanted: ApprovalRequest, scope: Scope) -> str:
        """Remember what was allowed; return why it could not be for always, or nothing.

        What is for always stands in the store alone, so that it can be taken back there at once.
        """
        if scope == "once":
            # A call is let through by itself: nothing is remembered that another could use.
            self._cell.update(wanted.subjects if wanted.of == "import" else ())
            return ""
        problem = self._keep(wanted) if scope == "always" else ""
        if scope == "session" or problem:
            self._session.update((wanted.of, subject) for subject in wanted.subjects)
        return problem

    def _keep(self, wanted: ApprovalRequest) -> str:
        """Keep what was allowed for always; return why that can't be, or nothing."""
        if self._place is None or wanted.of == "keep":
            return "nothing is kept here."
        made = [record(wanted.of, subject, self.under.digest) for subject in wanted.subjects]
        same = {(one.kind, one.subject, one.digest) for one in made}

        def with_these(before: Manifest) -> Iterable[Record]:
            left = [x for x in before.records if (x.kind, x.subject, x.digest) not in same]
            return (*left, *made)

        try:
            self._place.change(with_these, patience=_PATIENCE)
        except AdmissionError as exc:
            return str(exc)
        return ""

    def imports(self) -> frozenset[str]:
        """Return what may be imported now besides what the policy allows."""
        lasting = self._session | self._always()
        return frozenset(self._cell).union(name for of, name in lasting if of == "import")

    def _always(self) -> set[tuple[str, str]]:
        try:
            known = () if self._place is None else self._place.current().records
        except AdmissionError:
            return set()
        return {(one.kind, one.subject) for one in known if one.digest == self.under.digest}
