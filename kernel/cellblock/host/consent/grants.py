"""What a user allowed before: for this cell, for the session, or for always.

What is for always is in a file in the user's state folder, which all kernels look at. A grant
counts for one scope, one policy and that policy's digest: a policy that changed voids it. A file
that is damaged, too large, a link or somebody else's holds no grants, so that users are asked anew.
What is taken back counts no more from the next look on.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import asdict, replace

from cellblock.descriptors import closing, lock
from cellblock.host.consent.manifest import UNSEEN, FileState, file_state
from cellblock.host.consent.request import Of  # noqa: TC001 - msgspec reads it
from cellblock.host.files import PrivateFile
from cellblock.policy.folders import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.host.consent.request import ApprovalRequest

#: For how long something can be allowed.
Scope = Literal["once", "session", "always"]
MOST_BYTES: Final = 1 << 20
MOST_GRANTS: Final = 1_000
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Seconds to wait for the lock: the host's loop stands still meanwhile.
_PATIENCE: Final = 0.1


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that is allowed, and what for: ``policy`` by its name and ``digest``."""

    id: str
    of: Of
    subject: str
    scope: str
    policy: str
    digest: str
    at: str

    @property
    def counts_for(self) -> tuple[str, ...]:
        """What is allowed by it, and under what."""
        return (self.of, self.subject, self.scope, self.policy, self.digest)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cellblock: Literal["grants"]
    version: Literal[1]
    grants: tuple[Grant, ...]


def default_path() -> Path:
    """Return where grants are kept: ``$XDG_STATE_HOME/cellblock/grants.json``."""
    return Path(state_folder(), "grants.json")


class Store:
    """The grants in one file, looked at anew when that has changed."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, PrivateFile(path, MOST_BYTES)
        self._known: FileState | None = None
        self._grants: tuple[Grant, ...] = ()

    def grants(self) -> tuple[Grant, ...]:
        """Return what is in force now. Never raises."""
        state = file_state(self._path)
        if state is None:
            self._known, self._grants = None, ()
        elif state != self._known:
            self._grants = self._read() or ()
            self._known = None if time.time_ns() - state[-1] <= UNSEEN else state
        return self._grants

    def _read(self) -> tuple[Grant, ...] | None:
        """Return what the file has; None if that does not count."""
        try:
            return msgspec.json.decode(self._file.read(), type=_File).grants
        except (msgspec.MsgspecError, RecursionError):
            return None

    @property
    def is_damaged(self) -> bool:
        """Whether there is a file, and nothing in it counts."""
        return os.path.lexists(self._path) and self._read() is None

    def add(self, grants: tuple[Grant, ...]) -> None:
        """Add grants, in place of the same ones. Raise OSError."""
        again = {one.counts_for for one in grants}
        with self._held():
            left = (one for one in self._read() or () if one.counts_for not in again)
            self._write((*left, *grants))

    def revoke(self, ids: frozenset[str] | None) -> tuple[Grant, ...]:
        """Take grants back, all where ``ids`` is None; return which. Raise OSError."""
        with self._held():
            known = self._read() or ()
            gone = tuple(one for one in known if ids is None or one.id in ids)
            self._write(tuple(one for one in known if one not in gone))
        return gone

    def _write(self, grants: tuple[Grant, ...]) -> None:
        if len(grants) > MOST_GRANTS:
            raise OSError(f"there are {MOST_GRANTS:,} already: cellblock approvals revoke")
        content = msgspec.json.encode(_File("grants", 1, grants), order="deterministic")
        content = msgspec.json.format(content, indent=1)
        if len(content) > MOST_BYTES:
            raise OSError("there is too much already: cellblock approvals revoke")
        self._file.write(content)
        self._known = None

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Keep others from writing meanwhile. Raise OSError, also when somebody else keeps on."""
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(os.open(folder / f"{self._path.name}.lock", _LOCK, 0o600)) as fd:
            try:
                lock(fd, patience=_PATIENCE)
            except BlockingIOError:
                raise OSError("another process keeps it locked") from None
            yield


# --- what is allowed in a session -----------------------------------------------------------------


class GrantContext(msgspec.Struct, frozen=True, kw_only=True):
    """What lasting grants are for: a scope, and a policy by its name and digest."""

    scope: str
    policy: str
    digest: str

    def grant(self, of: Of, subject: str) -> Grant:
        """Return a grant as of now."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        return Grant(id=secrets.token_hex(4), of=of, subject=subject, at=now, **asdict(self))


class Grants:
    """Answers whether something is allowed already, and how. A look costs a stat(2).

    Without a store nothing is allowed for always, nor can it be.
    """

    def __init__(self, under: GrantContext, store: Store | None) -> None:
        self.under, self._store = under, store
        self._session: set[tuple[Of, str]] = set()
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
        problem = ""
        if scope == "always":
            try:
                if self._store is None:
                    problem = "nothing is kept here"
                else:
                    grant = self.under.grant
                    self._store.add(tuple(grant(wanted.of, one) for one in wanted.subjects))
            except OSError as exc:
                problem = exc.strerror or str(exc)
        if scope == "session" or problem:
            self._session.update((wanted.of, subject) for subject in wanted.subjects)
        return problem

    def imports(self) -> frozenset[str]:
        """Return what may be imported now besides what the policy allows."""
        lasting = self._session | self._always()
        return frozenset(self._cell).union(name for of, name in lasting if of == "import")

    def _always(self) -> set[tuple[Of, str]]:
        under = self.under.scope, self.under.policy, self.under.digest
        known = () if self._store is None else self._store.grants()
        return {
            (one.of, one.subject) for one in known if (one.scope, one.policy, one.digest) == under
        }
