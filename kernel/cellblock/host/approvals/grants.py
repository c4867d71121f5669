"""What a session's user has allowed before: for this cell, for the session, or for always."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import asdict, replace

from cellblock.host.approvals import store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.approvals.store import Grant, Store
    from cellblock.host.approvals.wishes import Of, Scope, Wish


class Under(msgspec.Struct, frozen=True, kw_only=True):
    """What lasting grants are for: a scope, and a policy by its name and digest.

    ``base`` and ``narrowed`` are as in ``store.Grant``: they say how it came to be that policy.
    """

    scope: str
    policy: str
    digest: str
    base: str = ""
    narrowed: dict[str, str] = {}

    def narrower(self, digest: str, changed: Mapping[str, str]) -> Under:
        """Return the same for a policy with this digest, made of this one by what ``changed``."""
        base = self.base or self.digest
        return replace(self, digest=digest, base=base, narrowed={**self.narrowed, **changed})

    def covers(self, one: Grant) -> bool:
        """Say whether a grant counts under it."""
        return (one.scope, one.policy, one.digest) == (self.scope, self.policy, self.digest)

    def grant(self, of: Of, subject: str) -> Grant:
        """Return a grant under it, as of now."""
        return store.new(of, subject, **asdict(self))


class Grants:
    """Answers whether something is allowed already, and how. A look costs a stat(2).

    Without a store nothing is allowed for always, nor can it be.
    """

    def __init__(self, under: Under, kept: Store | None) -> None:
        self.under, self._store = under, kept
        self._session: set[tuple[Of, str]] = set()
        #: Imports that the cell under way was allowed.
        self._cell: set[str] = set()

    def hold_to(self, digest: str, changed: Mapping[str, str]) -> None:
        """Have what is for always be for a narrower policy, from now on."""
        self.under = self.under.narrower(digest, changed)

    def begin(self) -> None:
        """Begin a cell: what was allowed once was for another."""
        self._cell.clear()

    def covers(self, wish: Wish) -> Scope | None:
        """Return for how long something is allowed already, None where it has to be asked for."""
        wanted = {(wish.of, subject) for subject in wish.subjects}
        if wanted <= self._session:
            return "session"
        return "always" if wanted <= self._session | self._always() else None

    def add(self, wish: Wish, scope: Scope) -> str:
        """Remember what was allowed; return why it could not be for always, or nothing.

        What is for always stands in the store alone, so that it can be taken back there at once.
        """
        if scope == "once":
            # A call is let through by itself: nothing is remembered that another could use.
            self._cell.update(wish.subjects if wish.of == "import" else ())
            return ""
        problem = self._keep(wish) if scope == "always" else ""
        if scope == "session" or problem:
            self._session.update((wish.of, subject) for subject in wish.subjects)
        return problem

    def imports(self) -> frozenset[str]:
        """Return what may be imported now besides what the policy allows."""
        lasting = self._session | self._always()
        return frozenset(self._cell).union(name for of, name in lasting if of == "import")

    def _always(self) -> set[tuple[Of, str]]:
        known = () if self._store is None else self._store.grants()
        return {(one.of, one.subject) for one in known if self.under.covers(one)}

    def _keep(self, wish: Wish) -> str:
        if self._store is None:
            return "nothing is kept here"
        made = tuple(self.under.grant(wish.of, one) for one in wish.subjects)
        try:
            self._store.add(made)
        except OSError as exc:
            return exc.strerror or str(exc)
        return ""
