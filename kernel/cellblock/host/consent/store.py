"""The signed store of what was approved: cells of notebooks, and a user's lasting answers.

A manifest is one file of it: the cells, or the answers, that were approved in one scope under one
policy. Cells lie where the policy says, and answers with the user: neither is in the other's way.
It has two lines: what vouches for the second, and that second line, JSON, of which every byte is
signed::

    {"cellblock": "approval", "version": 2, "key": ID, "signature": "hmac-sha256:…"}
    {"holds": "cells", "scope": …, "policy": …, "serial": …, "records": [{"kind": …, …}, …]}

The second is not looked at before the signature is found to be the key's. What can't be trusted
holds nothing, and is never written over silently: it is an AdmissionError that says what to do.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import getpass
import hashlib
import hmac
import json
import os
import secrets
import shlex
import stat
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from cellblock.descriptors import FILE, closing, lock, read_regular
from cellblock.errors import AdmissionError
from cellblock.host.files import PrivateFile
from cellblock.policy.folders import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cellblock.policy.model import Policy


# --- files that decide what may run: opened without following links, bounded, written whole -------


def read_file(path: Path, most: int, *, what: str, remedy: str) -> tuple[bytes, os.stat_result]:
    """Return a regular file of at most ``most`` bytes, and its status.

    Raise AdmissionError for anything else: a link, a pipe, a larger one; FileNotFoundError where
    there is none.
    """
    try:
        with closing(os.open(path, FILE)) as fd:
            status, content = os.fstat(fd), read_regular(fd, most + 1)
    except FileNotFoundError:
        raise
    except OSError as exc:
        why = "is a link" if path.is_symlink() else f"can't be read: {exc.strerror}"
        raise AdmissionError(f"{what} {why}", file=str(path), remedy=remedy) from None
    if content is None:
        raise AdmissionError(f"{what} is not a regular file", file=str(path), remedy=remedy)
    if len(content) > most:
        message = f"{what} is larger than {most:,} bytes"
        raise AdmissionError(message, file=str(path), remedy=remedy)
    return content, status


def check_own(path: Path, status: os.stat_result, *, secret: bool = False) -> None:
    """Raise AdmissionError for what neither this user nor root owns, or others may write.

    What is ``secret`` others may not read either; root's may have a group that does.
    """
    owner = status.st_uid
    if owner not in (os.geteuid(), 0):
        message = f"it belongs to uid {owner}, who is neither you nor root"
        raise AdmissionError(message, file=str(path), remedy="Remove it, or make it yours.")
    rights = stat.S_IWGRP | stat.S_IWOTH
    if secret:
        rights |= stat.S_IROTH | (0 if owner == 0 and os.geteuid() != 0 else stat.S_IRGRP)
    if status.st_mode & rights:
        mode, what = ("go-rwx", "read or write") if secret else ("go-w", "write")
        message = f"others can {what} it (mode {stat.S_IMODE(status.st_mode):04o})"
        raise AdmissionError(message, file=str(path), remedy=f"chmod {mode} {path}")


#: What changes when a file does: inode, size, and times of its content and of its inode.
FileState = tuple[int, int, int, int]
#: Nanoseconds in which a file that was just written may be written once more without a new time.
UNSEEN: Final = 100_000_000


def state_of(status: os.stat_result) -> FileState:
    """Return the state of a file that was looked at."""
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def file_state(file: Path) -> FileState | None:
    """Return the state of a file now; None where there is none. It is asked for each cell."""
    try:
        return state_of(os.lstat(file))
    except OSError:
        return None


def write(path: Path, content: bytes) -> None:
    """Put a new file in place of an old one, whole or not at all. Raise AdmissionError."""
    try:
        PrivateFile(path, len(content)).write(content)
    except OSError as exc:
        message = f"can't be written: {exc.strerror or exc}"
        remedy = "See to it that there is room, and that the folder is yours."
        raise AdmissionError(message, file=str(path), remedy=remedy) from None


# --- the key that manifests are signed with (HMAC, RFC 2104), and the serial numbers they had last
#
# A secret of the user's like nbformat's ``notebook_secret``, and not that one: Jupyter signs a
# notebook there whenever all its cells were run, which is not what approving is. Beside the key
# lies the serial number of each manifest that was written here, so that an older one is known
# for what it is, though its signature holds. Numbers are of a file, by its real path: manifests of
# one scope in two working copies are written independently, so neither makes the other old.

_KEY_BYTES: Final = 32
_MOST_KEY_FILE: Final = 256
_MOST_SERIALS: Final = 1 << 20
#: Put before what is signed, so that no signature is one of something else.
_PURPOSE: Final = b"cellblock approval, version 2\n"
_FETCH: Final = "Approve notebooks here (cellblock approve), or fetch the key that was used."


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """A key; ``id`` names it and does not give it away."""

    secret: bytes

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        return hmac.digest(self.secret, b"cellblock approval key", "sha256").hex()[:16]

    def sign(self, content: bytes) -> str:
        """Return the signature of ``content``: HMAC-SHA-256, in hex."""
        return hmac.new(self.secret, _PURPOSE + content, hashlib.sha256).hexdigest()

    def vouches(self, content: bytes, signature: str) -> bool:
        """Whether this is our signature of ``content``."""
        return hmac.compare_digest(self.sign(content).encode(), signature.encode())


def read_key(path: Path) -> Key:
    """Return the key in a file of the user's own. Raise AdmissionError."""
    try:
        content, status = read_file(path, _MOST_KEY_FILE, what="the key", remedy=_FETCH)
        folder = path.parent.stat()
    except FileNotFoundError:
        message = "there is no key, so that nothing can have been approved"
        raise _wrong(path, message, _FETCH, field="approval.key") from None
    check_own(path, status, secret=True)
    check_own(path.parent, folder)
    with contextlib.suppress(ValueError):
        secret = bytes.fromhex(content.decode("ascii").strip())
        if len(secret) == _KEY_BYTES:
            return Key(secret)
    message = f"it holds no key: {_KEY_BYTES} bytes in hexadecimal"
    raise _wrong(path, message, _FETCH, field="approval.key")


def read_or_make_key(path: Path) -> Key:
    """Return the key, a new one where there is none. Raise AdmissionError."""
    if not os.path.lexists(path):
        write(path, os.urandom(_KEY_BYTES).hex().encode() + b"\n")
    return read_key(path)


def _serials_file(key: Path) -> Path:
    return key.with_name(f"{key.name}.serials")


def serials(key: Path) -> dict[str, int]:
    """Return the last serial numbers, by ``ManifestFile.number_id``. Raise AdmissionError."""
    file = _serials_file(key)
    remedy = "If you know that no approval was taken back since, remove it."
    try:
        content, status = read_file(file, _MOST_SERIALS, what="it", remedy=remedy)
    except FileNotFoundError:
        return {}
    check_own(file, status)
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, dict) and all(type(n) is int for n in found.values()):
            return found
    message = "it does not hold the numbers of manifests"
    raise AdmissionError(message, file=str(file), remedy=remedy)


# --- manifests ------------------------------------------------------------------------------------

MOST_BYTES: Final = 16 << 20
#: Cells and answers in one manifest.
MOST_APPROVED: Final = 10_000
_VERSION: Final = 2
_FEWER: Final = "Take some back: cellblock approvals list, cellblock approvals revoke ID."
_ALGORITHM: Final = "hmac-sha256:"
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Seconds to wait for another process that writes, which takes it milliseconds.
_PATIENCE: Final = 5.0
Positive = Annotated[int, msgspec.Meta(ge=0)]
#: What can be approved for good. Files to keep are approved once only, so never here.
Kind = Literal["notebook", "call", "import", "start"]
#: What one manifest has records of: notebooks' cells that may run, or a user's lasting answers.
Holds = Literal["cells", "answers"]


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text that may run: the source of a notebook's cell, with that cell's number, from 1."""

    number: Positive
    sha256: str
    source: str


class Record(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """One thing that was approved, by whom and when; its manifest says where.

    ``subject`` is a notebook's name, whose ``cells`` may run, or what a lasting answer is about.
    ``digest`` is of the policy as it was then: an answer counts under no other, as its question
    said; cells count under the policy's name, or a raised memory limit would void them.
    """

    id: str
    kind: Kind
    subject: str
    digest: str
    who: str
    when: str
    cells: tuple[Cell, ...] = ()


def record(kind: Kind, subject: str, digest: str, cells: tuple[Cell, ...] = ()) -> Record:
    """Return a record of what this user approves now."""
    try:
        who = f"{getpass.getuser()} (uid {os.getuid()})"
    except (OSError, KeyError):  # no name, and no variable that says one
        who = f"uid {os.getuid()}"
    return Record(
        id=secrets.token_hex(4),
        kind=kind,
        subject=subject,
        digest=digest,
        who=who,
        when=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        cells=cells,
    )


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was approved in a scope under a policy; each one written has the next number."""

    holds: Holds
    scope: str
    policy: str
    serial: Positive = 0
    records: tuple[Record, ...] = ()

    def notebook(self, name: str) -> Record | None:
        """Return what was approved of a notebook, None where nothing was."""
        found = (one for one in self.records if (one.kind, one.subject) == ("notebook", name))
        return next(found, None)


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line, which nobody vouches for: it is bounded, since messages quote from it."""

    cellblock: Literal["approval"]
    version: Annotated[int, msgspec.Meta(ge=0, lt=1000)]
    key: Annotated[str, msgspec.Meta(max_length=64)]
    signature: Annotated[str, msgspec.Meta(max_length=128)]


class ManifestFile:
    """The file of one manifest: where it lies, and the key that has to vouch for it."""

    def __init__(self, folder: Path, key: Path, holds: Holds, scope: str, policy: str) -> None:
        self.key, self.holds, self.scope, self.policy = key, holds, scope, policy
        name = hashlib.sha256(f"{holds}\0{scope}\0{policy}".encode()).hexdigest()[:32]
        self.file = folder / f"{name}.json"
        #: The manifest that was read last, with the states of its file and of the key then; None
        #: where they have to be read again.
        self._known: tuple[FileState, FileState, Manifest] | None = None

    @property
    def number_id(self) -> str:
        """What the last serial number of this file is kept by: a hash of its real path."""
        path = Path(os.path.realpath(self.file.parent), self.file.name)
        return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]

    def current(self) -> Manifest:
        """Return what ``read`` does: the same object while neither file has changed on disk.

        That costs a stat(2) of each. Raise AdmissionError as ``read`` does.
        """
        key = file_state(self.key)
        if self._known is not None and self._known[:2] == (file_state(self.file), key):
            return self._known[2]
        self._known = None
        manifest, status = self._read()
        # The key as it was before it was read: one that was exchanged since is seen by the next.
        if key is not None and time.time_ns() - max(status.st_ctime_ns, key[-1]) > UNSEEN:
            self._known = state_of(status), key, manifest
        return manifest

    def read(self) -> Manifest:
        """Return the manifest.

        Raise AdmissionError where it is missing, not signed with our key, for something else, or
        older than one that was written here.
        """
        return self._read()[0]

    def usable(self) -> tuple[Manifest, AdmissionError | None]:
        """Return what is approved now; nothing, and why, where the manifest there can't be used."""
        nothing = Manifest(self.holds, self.scope, self.policy)
        if not os.path.lexists(self.file):
            return nothing, None
        try:
            return self.read(), None
        except AdmissionError as exc:
            return nothing, exc

    def change(
        self,
        change: Callable[[Manifest], Iterable[Record]],
        *,
        lost: str = "",
        patience: float = _PATIENCE,
    ) -> Manifest:
        """Put the records there that ``change`` returns; make a key where there is none.

        Raise AdmissionError where they are too many, can't be written, or another process keeps on
        writing. A manifest that can't be used is written over only if the reason is the one that
        somebody saw (``lost``).
        """
        with self._held(patience):
            before, unusable = self.usable()
            if unusable is not None and str(unusable) != lost:
                raise unusable
            return self._write(tuple(change(before)), before.serial)

    def _read(self) -> tuple[Manifest, os.stat_result]:
        key = read_key(self.key)
        # Before the manifest: who writes one meanwhile writes its number after it, so that the
        # number in hand is never newer than the manifest that is read next.
        newest = serials(self.key).get(self.number_id, 0)
        try:
            content, status = _content(self.file)
        except FileNotFoundError:
            remedy = "Approve what is to run: cellblock approve NOTEBOOK."
            raise _wrong(self.file, f"no notebook in {self.scope} was approved", remedy) from None
        manifest = _verified(self.file, content, key)
        if manifest.policy != self.policy:
            message = f"it is for policy {manifest.policy!r}, not for {self.policy!r}"
            raise _unusable(self.file, message)
        if manifest.scope != self.scope:
            message = f"it is for {manifest.scope!r}, not for {self.scope!r}"
            raise _unusable(self.file, message, field="approval.scope")
        if manifest.holds != self.holds:
            raise _unusable(self.file, f"it holds {manifest.holds}, not {self.holds}")
        if manifest.serial < newest:
            message = f"it is number {manifest.serial}, and number {newest} was written since"
            raise _unusable(self.file, message)
        return manifest, status

    @contextlib.contextmanager
    def _held(self, patience: float) -> Iterator[None]:
        """Keep others from writing with this key meanwhile."""
        try:
            self.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = os.open(self.key.with_name(f"{self.key.name}.lock"), _LOCK, 0o600)
        except OSError as exc:
            remedy = "Give a folder of yours: approval.key."
            raise _wrong(self.file, f"can't be written: {exc.strerror}", remedy) from None
        with closing(held):
            try:
                lock(held, patience=patience)
            except OSError:
                message = "another process keeps it locked"
                raise _wrong(self.file, message, "Try again when that has ended.") from None
            yield

    def _write(self, records: tuple[Record, ...], serial: int) -> Manifest:
        """Sign and write what is approved from now on; ``serial`` is the last one's number."""
        if sum(len(one.cells) or 1 for one in records) > MOST_APPROVED:
            raise _wrong(self.file, f"more than {MOST_APPROVED:,} cells and answers", _FEWER)
        key, known = read_or_make_key(self.key), serials(self.key)
        newest = max(serial, known.get(self.number_id, 0))
        manifest = Manifest(self.holds, self.scope, self.policy, newest + 1, records)
        payload = msgspec.json.encode(manifest) + b"\n"
        head = _Head("approval", _VERSION, key.id, _ALGORITHM + key.sign(payload))
        content = msgspec.json.encode(head) + b"\n" + payload
        if len(content) > MOST_BYTES:
            raise _wrong(self.file, f"more than {MOST_BYTES:,} bytes", _FEWER)
        write(self.file, content)
        numbers = known | {self.number_id: manifest.serial}
        write(_serials_file(self.key), json.dumps(numbers, indent=0, sort_keys=True).encode())
        return manifest


def of_cells(policy: Policy, project: Path) -> ManifestFile:
    """Return the manifest that says which cells may run under ``policy`` in ``project``."""
    asked = policy.approval
    scope = asked.scope.replace("{project}", os.path.realpath(project))
    return ManifestFile(Path(asked.folder), Path(asked.key), "cells", scope, policy.name)


def _content(file: Path) -> tuple[bytes, os.stat_result]:
    return read_file(file, MOST_BYTES, what="the manifest", remedy=_remove(file))


def _verified(file: Path, content: bytes, key: Key) -> Manifest:
    first, _, payload = content.partition(b"\n")
    try:
        head = msgspec.json.decode(first, type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        raise _unusable(file, "it is not a signed manifest") from None
    if head.version != _VERSION:
        raise _unusable(file, f"another version of cellblock wrote it (format {head.version})")
    if head.key != key.id:
        message = f"it was signed with another key: {head.key!r}, not {key.id!r}"
        # It may be as good as any: of a policy that names another key.
        remedy = (
            "Use it under a policy whose approval.key is that one; or approve again in its place: "
            f"rm {shlex.quote(str(file))}"
        )
        raise _wrong(file, message, remedy, "approval.key")
    if not key.vouches(payload, head.signature.removeprefix(_ALGORITHM)):
        raise _unusable(file, "it was changed since it was signed")
    try:
        return msgspec.json.decode(payload, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise _unusable(file, f"another version of cellblock wrote it: {exc}") from None


def _remove(file: Path) -> str:
    return f"Remove it, and approve again: rm {shlex.quote(str(file))}"


def _unusable(file: Path, message: str, field: str = "approval.folder") -> AdmissionError:
    return _wrong(file, message, _remove(file), field)


def _wrong(file: Path, message: str, remedy: str, field: str = "approval.folder") -> AdmissionError:
    return AdmissionError(message, file=str(file), key=field, remedy=remedy)


# --- all manifests of a folder --------------------------------------------------------------------


class Store:
    """The manifests in a folder, all signed with one key."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.folder, self.key = folder, key

    def answers(self, scope: str, policy: str) -> ManifestFile:
        """Return the file of the lasting answers for a scope and a policy's name."""
        return ManifestFile(self.folder, self.key, "answers", scope, policy)

    def manifests(self) -> Iterator[tuple[ManifestFile, Manifest] | AdmissionError]:
        """Yield every manifest, or why one can't be used. Whether one counts depends on where."""
        for file in sorted(self.folder.glob("*.json")):
            try:
                found = _verified(file, _content(file)[0], read_key(self.key))
                place = ManifestFile(self.folder, self.key, found.holds, found.scope, found.policy)
                if place.file != file:
                    raise _unusable(file, f"by its name it is not for {found.scope!r}")
                yield place, place.read()
            except AdmissionError as exc:
                yield exc
            except FileNotFoundError:  # somebody removed it since it was listed
                continue

    def revoke(self, ids: frozenset[str] | None) -> tuple[list[Record], list[AdmissionError]]:
        """Take back what has one of these ids, or all. Return that, and what can't be used.

        Raise AdmissionError where a manifest can't be written.
        """
        gone: list[Record] = []
        unusable: list[AdmissionError] = []
        for one in self.manifests():
            if isinstance(one, AdmissionError):
                unusable.append(one)
                continue
            place, found = one
            named = [each for each in found.records if ids is None or each.id in ids]
            if named:
                place.change(partial(_without, named))
                gone += named
        return gone, unusable


def _without(gone: list[Record], before: Manifest) -> Iterable[Record]:
    return (one for one in before.records if one not in gone)


def of_user() -> Store:
    """Return the user's own store, in the default folder under the default key.

    A user's lasting answers are here wherever a policy has its manifests: one that travels with a
    repository answers nobody's questions.
    """
    return Store(Path(data_folder(), "approved"), Path(data_folder(), "approval.key"))
