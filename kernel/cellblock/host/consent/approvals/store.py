"""What a user allowed for always: a file in the user's state folder, which all kernels look at.

A grant counts for one scope, one policy and that policy's digest: a policy that changed voids it.
A file that is damaged, too large, a link or somebody else's holds no grants, so that users are
asked anew. What is taken back counts no more from the next look on.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import secrets
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from cellblock.host.consent.approvals.request import Of  # noqa: TC001 - msgspec asks what it is
from cellblock.host.files import PrivateFile
from cellblock.policy.folders import state_folder
from cellblock.render.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


MOST_BYTES: Final = 1 << 20
MOST_GRANTS: Final = 1_000
#: Fields that a policy was narrowed in, and characters of a value, that are kept to be shown.
MOST_FIELDS: Final = 16
LONGEST: Final = 100
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Tries to get the lock, and seconds between them: the host's loop stands still meanwhile.
_TRIES, _PAUSE = 20, 0.005
#: Nanoseconds in which a file that was just written may be written once more unseen.
_UNSEEN: Final = 100_000_000


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that is allowed, and what for: ``policy`` by its name and ``digest``.

    Where that one was made narrower, ``base`` is the digest of what the operator wrote, and
    ``narrowed`` has fields to values, as TOML has them. Both are shown, and decide nothing.
    """

    id: str
    of: Of
    subject: str
    scope: str
    policy: str
    digest: str
    at: str
    base: str = ""
    narrowed: dict[str, str] = {}

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


def new(
    of: Of,
    subject: str,
    *,
    scope: str,
    policy: str,
    digest: str,
    base: str = "",
    narrowed: Mapping[str, str] = MappingProxyType({}),
) -> Grant:
    """Return a grant as of now."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    kept = [(name, clip(value, LONGEST)) for name, value in narrowed.items()][:MOST_FIELDS]
    return Grant(
        id=secrets.token_hex(4),
        of=of,
        subject=subject,
        scope=scope,
        policy=policy,
        digest=digest,
        at=now,
        base=base,
        narrowed=dict(kept),
    )


class Store:
    """The grants in one file, looked at anew when that has changed."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, PrivateFile(path, MOST_BYTES)
        self._known: tuple[int, ...] | None = None
        self._grants: tuple[Grant, ...] = ()

    def grants(self) -> tuple[Grant, ...]:
        """Return what is in force now. Never raises."""
        seen = _seen(self._path)
        if seen is None:
            self._known, self._grants = None, ()
        elif seen != self._known:
            self._grants = self._read()
            young = time.time_ns() - seen[-1] <= _UNSEEN
            self._known = None if young else seen
        return self._grants

    def _read(self) -> tuple[Grant, ...]:
        return self._content() or ()

    def _content(self) -> tuple[Grant, ...] | None:
        try:
            return msgspec.json.decode(self._file.read(), type=_File).grants
        except (msgspec.MsgspecError, RecursionError):
            return None

    @property
    def is_damaged(self) -> bool:
        """Whether there is a file, and nothing in it counts."""
        return os.path.lexists(self._path) and self._content() is None

    def add(self, grants: tuple[Grant, ...]) -> None:
        """Add grants, in place of the same ones. Raises OSError."""

        def added(known: tuple[Grant, ...]) -> tuple[Grant, ...]:
            again = {one.counts_for for one in grants}
            return (*(one for one in known if one.counts_for not in again), *grants)

        self._change(added)

    def revoke(self, ids: frozenset[str] | None) -> tuple[Grant, ...]:
        """Take grants back, all where ``ids`` is None; return which. Raises OSError."""
        gone: list[Grant] = []

        def left(known: tuple[Grant, ...]) -> tuple[Grant, ...]:
            gone.extend(one for one in known if ids is None or one.id in ids)
            return tuple(one for one in known if one not in gone)

        self._change(left)
        return tuple(gone)

    def _change(self, change: Callable[[tuple[Grant, ...]], tuple[Grant, ...]]) -> None:
        with self._held():
            grants = change(self._read())
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
        """Keep others from writing meanwhile. Raises OSError."""
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / f"{self._path.name}.lock", _LOCK, 0o600)
        try:
            _lock(lock)
            yield
        finally:
            os.close(lock)


def _lock(lock: int) -> None:
    """Take a lock. Raises OSError when somebody else keeps it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        else:
            return
    raise OSError("another process keeps it locked")


def _seen(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - for each cell
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
