"""The signed store of approvals: cells of notebooks, and a user's lasting answers.

The store consists of *manifests*. A manifest is a file with all cells, or all answers, that were
approved in one scope under one policy. Manifests of cells are in the folder that the policy names,
those of answers in a folder of the user. Each has two lines; the first has the signature of the
second, of which each byte counts::

    {"cellblock": "approval", "version": 2, "key": ID, "signature": "hmac-sha256:…"}
    {"holds": "cells", "scope": …, "policy": …, "serial": …, "records": [{"kind": …, …}, …]}

The second line isn't parsed before its signature is verified. A manifest that can't be trusted
approves nothing, and is never written over silently: it is an AdmissionError that says what to do.

Each manifest that is written has the next serial number, and the last number is kept beside the
key. So an older manifest that somebody puts back is refused, although its signature is good.
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
    """Return the content of a regular file of at most ``most`` bytes, and its status.

    ``what`` is what errors call it. Raise FileNotFoundError if it doesn't exist, AdmissionError for
    anything else: a link, a pipe, a larger file.
    """
    try:
        with closing(os.open(path, FILE)) as fd:
            status = os.fstat(fd)
            content = read_regular(fd, most + 1)
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
    """Raise AdmissionError unless this user or root owns a file and nobody else can write it.

    ``secret``: nobody else can read it, either. A file of root's may be readable for a group, since
    this user may be reading it as a member.
    """
    owner = status.st_uid
    if owner not in (os.geteuid(), 0):
        message = f"it belongs to uid {owner}, who is neither you nor root"
        raise AdmissionError(message, file=str(path), remedy="Remove it, or make it yours.")
    rights = stat.S_IWGRP | stat.S_IWOTH
    if secret:
        rights |= stat.S_IROTH | (0 if owner == 0 and os.geteuid() != 0 else stat.S_IRGRP)
    if status.st_mode & rights:
        mode, action = ("go-rwx", "read or write") if secret else ("go-w", "write")
        message = f"others can {action} it (mode {stat.S_IMODE(status.st_mode):04o})"
        raise AdmissionError(message, file=str(path), remedy=f"chmod {mode} {path}")


#: A file's inode, size, and times (mtime and ctime), of which one differs when it has changed.
FileState = tuple[int, int, int, int]
#: Nanoseconds after a write within which another write may leave the file with the same times.
UNSEEN: Final = 100_000_000


def state_of(status: os.stat_result) -> FileState:
    """Return the state in a file's status."""
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def file_state(file: Path) -> FileState | None:
    """Return the state of a file now; None if it doesn't exist. Called for each cell."""
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
        remedy = "Make sure that the disk has room, and that the folder is yours."
        raise AdmissionError(message, file=str(path), remedy=remedy) from None


# --- the key that signs manifests (HMAC, RFC 2104), and the last serial number of each manifest ---
#
# The key is a secret of the user. It is not nbformat's ``notebook_secret``: Jupyter signs a
# notebook when all its cells were run, which does not mean that anybody approved it.
#
# The file of serial numbers beside the key has the last number of each manifest that was written
# here, so that an older manifest is recognised. A manifest is identified by the real path of its
# file, because two working copies of a repository have manifests of one scope that are written
# independently: a new manifest in one copy does not make the other copy's manifest old.

_KEY_BYTES: Final = 32
_MOST_KEY_FILE: Final = 256
_MOST_SERIALS: Final = 1 << 20
#: Put before the signed bytes, so that no signature for another purpose can pass for one of these.
_PURPOSE: Final = b"cellblock approval, version 2\n"
_FETCH_REMEDY: Final = "Approve notebooks here (cellblock approve), or fetch the key that was used."


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """A key for signatures. Its ``id`` names it without revealing it."""

    secret: bytes

    @property
    def id(self) -> str:
        """The key's name: sixteen hexadecimal digits."""
        return hmac.digest(self.secret, b"cellblock approval key", "sha256").hex()[:16]

    def sign(self, content: bytes) -> str:
        """Return the signature of ``content``: HMAC-SHA-256, in hex."""
        return hmac.new(self.secret, _PURPOSE + content, hashlib.sha256).hexdigest()

    def vouches(self, content: bytes, signature: str) -> bool:
        """Return whether this is the key's signature of ``content``."""
        return hmac.compare_digest(self.sign(content).encode(), signature.encode())


def read_key(path: Path) -> Key:
    """Read the key.

    Raises AdmissionError if there is none, if it is malformed or can't be read, or if ``check_own``
    refuses its file or folder.
    """
    try:
        content, status = read_file(path, _MOST_KEY_FILE, what="the key", remedy=_FETCH_REMEDY)
        folder = path.parent.stat()
    except FileNotFoundError:
        message = "there is no key, so nothing can have been approved"
        raise _wrong(path, message, _FETCH_REMEDY, field="approval.key") from None
    check_own(path, status, secret=True)
    check_own(path.parent, folder)
    with contextlib.suppress(ValueError):
        secret = bytes.fromhex(content.decode("ascii").strip())
        if len(secret) == _KEY_BYTES:
            return Key(secret)
    message = f"it does not hold a key ({_KEY_BYTES} bytes in hexadecimal)"
    raise _wrong(path, message, _FETCH_REMEDY, field="approval.key")


def read_or_make_key(path: Path) -> Key:
    """Return the key, after making one if the file doesn't exist. Raise AdmissionError."""
    if not os.path.lexists(path):
        write(path, os.urandom(_KEY_BYTES).hex().encode() + b"\n")
    return read_key(path)


def _serials_file(key: Path) -> Path:
    return key.with_name(f"{key.name}.serials")


def serials(key: Path) -> dict[str, int]:
    """Return the last serial numbers, by ``ManifestFile.number_id``. Raise AdmissionError."""
    file = _serials_file(key)
    remedy = "Remove it if you know that no approval was taken back."
    try:
        content, status = read_file(file, _MOST_SERIALS, what="it", remedy=remedy)
    except FileNotFoundError:
        return {}
    check_own(file, status)
    with contextlib.suppress(ValueError, RecursionError):
        numbers = json.loads(content)
        if isinstance(numbers, dict) and all(type(number) is int for number in numbers.values()):
            return numbers
    message = "it does not hold the numbers of manifests"
    raise AdmissionError(message, file=str(file), remedy=remedy)


# --- manifests ------------------------------------------------------------------------------------

MOST_BYTES: Final = 16 << 20
#: The most cells and answers in one manifest.
MOST_APPROVED: Final = 10_000
_VERSION: Final = 2
_FEWER_REMEDY: Final = "Take some back: cellblock approvals list, cellblock approvals revoke ID."
_ALGORITHM: Final = "hmac-sha256:"
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Seconds to wait for the lock of another process that writes, which takes milliseconds.
_PATIENCE: Final = 5.0
Positive = Annotated[int, msgspec.Meta(ge=0)]
#: What can be approved for good. Keeping files can't: it is approved once only.
Kind = Literal["notebook", "call", "import", "start"]
#: The records of one manifest: notebooks with their approved cells, or a user's lasting answers.
Holds = Literal["cells", "answers"]


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text that may run: the source of a notebook's cell, and the cell's number, from 1."""

    number: Positive
    sha256: str
    source: str


class Record(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """One approval: of what, by whom and when. Its manifest has the scope and policy.

    ``subject`` is the name of a notebook whose ``cells`` may run, or the subject of a lasting
    answer. ``digest`` is the policy's at that time. An answer counts only under this digest, as its
    question said. Cells count under any policy of the same name: otherwise raising a memory limit
    would void them.
    """

    id: str
    kind: Kind
    subject: str
    digest: str
    who: str
    when: str
    cells: tuple[Cell, ...] = ()


def record(kind: Kind, subject: str, digest: str, cells: tuple[Cell, ...] = ()) -> Record:
    """Return a new record of an approval by this user, now."""
    try:
        author = f"{getpass.getuser()} (uid {os.getuid()})"
    except (OSError, KeyError):  # the uid has no name, and no variable has one
        author = f"uid {os.getuid()}"
    return Record(
        id=secrets.token_hex(4),
        kind=kind,
        subject=subject,
        digest=digest,
        who=author,
        when=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        cells=cells,
    )


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The approvals in a scope under a policy. ``serial`` grows with each manifest written."""

    holds: Holds
    scope: str
    policy: str
    serial: Positive = 0
    records: tuple[Record, ...] = ()

    def notebook(self, name: str) -> Record | None:
        """Return the record of a notebook, or None."""
        records = (each for each in self.records if (each.kind, each.subject) == ("notebook", name))
        return next(records, None)


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line. It isn't signed, so its texts are bounded: messages quote them."""

    cellblock: Literal["approval"]
    version: Annotated[int, msgspec.Meta(ge=0, lt=1000)]
    key: Annotated[str, msgspec.Meta(max_length=64)]
    signature: Annotated[str, msgspec.Meta(max_length=128)]


class ManifestFile:
    """The file of one manifest, and the file of the key that must have signed it.

    What the manifest holds, its scope and its policy give the file its name.
    """

    def __init__(self, folder: Path, key: Path, holds: Holds, scope: str, policy: str) -> None:
        self.key = key
        self.holds = holds
        self.scope = scope
        self.policy = policy
        name = hashlib.sha256(f"{holds}\0{scope}\0{policy}".encode()).hexdigest()[:32]
        self.file = folder / f"{name}.json"
        #: The states of this file and of the key when they were last read, and the manifest; None
        #: if they must be read again.
        self._known: tuple[FileState, FileState, Manifest] | None = None

    @property
    def number_id(self) -> str:
        """The name of this file among the serial numbers: a hash of its real path."""
        path = Path(os.path.realpath(self.file.parent), self.file.name)
        return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]

    def current(self) -> Manifest:
        """Return the manifest as ``read`` does, the same object until this file or the key changes.

        Costs a stat(2) of both files. Raise AdmissionError as ``read`` does.
        """
        key = file_state(self.key)
        if self._known is not None and self._known[:2] == (file_state(self.file), key):
            return self._known[2]
        self._known = None
        manifest, status = self._read()
        # The key's state is from before it was read: if the key was replaced since, the next call
        # sees another state. A file that was written just now is read again, as another write may
        # leave the same state.
        if key is not None and time.time_ns() - max(status.st_ctime_ns, key[-1]) > UNSEEN:
            self._known = state_of(status), key, manifest
        return manifest

    def read(self) -> Manifest:
        """Return the manifest.

        Raise AdmissionError if it is missing, not signed with the key, for another scope or policy,
        or older than one that was written here.
        """
        return self._read()[0]

    def usable(self) -> tuple[Manifest, AdmissionError | None]:
        """Return the manifest and None, or an empty manifest and why the one there can't be used.

        A missing one is empty.
        """
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
        """Replace the records by those that ``change`` returns; make the key if there is none.

        ``change`` gets the manifest that is there, under the lock. Raise AdmissionError if the
        records are too many or can't be written, or if another process holds the lock for longer
        than ``patience``, in seconds. A manifest that can't be used is only written over if the
        reason is the one that a person was shown (``lost``).
        """
        with self._locked(patience):
            before, unusable = self.usable()
            if unusable is not None and str(unusable) != lost:
                raise unusable
            return self._write(tuple(change(before)), before.serial)

    def _read(self) -> tuple[Manifest, os.stat_result]:
        """Return the manifest and its file's status. Raise AdmissionError as ``read`` does."""
        key = read_key(self.key)
        # The number is read before the manifest, and written after it: so if somebody writes
        # meanwhile, the number is never newer than the manifest that is read next.
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
    def _locked(self, patience: float) -> Iterator[None]:
        """Hold the lock that all writers with this key take. Raise AdmissionError."""
        try:
            self.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock_fd = os.open(self.key.with_name(f"{self.key.name}.lock"), _LOCK_FLAGS, 0o600)
        except OSError as exc:
            remedy = "Give a folder of yours: approval.key."
            raise _wrong(self.file, f"can't be written: {exc.strerror}", remedy) from None
        with closing(lock_fd):
            try:
                lock(lock_fd, patience=patience)
            except OSError:
                message = "another process keeps it locked"
                raise _wrong(self.file, message, "Try again when that has ended.") from None
            yield

    def _write(self, records: tuple[Record, ...], serial: int) -> Manifest:
        """Sign and write a manifest with these records. ``serial`` is the number of the last one.

        Raise AdmissionError.
        """
        if sum(len(each.cells) or 1 for each in records) > MOST_APPROVED:
            raise _wrong(self.file, f"more than {MOST_APPROVED:,} cells and answers", _FEWER_REMEDY)
        key, serials_by_id = read_or_make_key(self.key), serials(self.key)
        newest = max(serial, serials_by_id.get(self.number_id, 0))
        manifest = Manifest(self.holds, self.scope, self.policy, newest + 1, records)
        payload = msgspec.json.encode(manifest) + b"\n"
        head = _Head("approval", _VERSION, key.id, _ALGORITHM + key.sign(payload))
        content = msgspec.json.encode(head) + b"\n" + payload
        if len(content) > MOST_BYTES:
            raise _wrong(self.file, f"more than {MOST_BYTES:,} bytes", _FEWER_REMEDY)
        write(self.file, content)
        numbers = serials_by_id | {self.number_id: manifest.serial}
        write(_serials_file(self.key), json.dumps(numbers, indent=0, sort_keys=True).encode())
        return manifest


def of_cells(policy: Policy, project: Path) -> ManifestFile:
    """Return the manifest of the cells that may run under ``policy`` in ``project``."""
    section = policy.approval
    scope = section.scope.replace("{project}", os.path.realpath(project))
    return ManifestFile(Path(section.folder), Path(section.key), "cells", scope, policy.name)


def _content(file: Path) -> tuple[bytes, os.stat_result]:
    return read_file(file, MOST_BYTES, what="the manifest", remedy=_remove(file))


def _verified(file: Path, content: bytes, key: Key) -> Manifest:
    """Return the manifest in a file's content, after verifying its signature.

    Raise AdmissionError.
    """
    first, _, payload = content.partition(b"\n")
    try:
        head = msgspec.json.decode(first, type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        raise _unusable(file, "it is not a signed manifest") from None
    if head.version != _VERSION:
        raise _unusable(file, f"another version of cellblock wrote it (format {head.version})")
    if head.key != key.id:
        message = f"it was signed with another key: {head.key!r}, not {key.id!r}"
        # It may be fine for a policy that names another key, so the remedy begins with that.
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
        self.folder = folder
        self.key = key

    def answers(self, scope: str, policy: str) -> ManifestFile:
        """Return the file of the lasting answers for a scope and a policy's name."""
        return ManifestFile(self.folder, self.key, "answers", scope, policy)

    def manifests(self) -> Iterator[tuple[ManifestFile, Manifest] | AdmissionError]:
        """Yield each manifest with its file, or the error that says why one can't be used.

        Where a manifest counts depends on its scope and policy.
        """
        for file in sorted(self.folder.glob("*.json")):
            try:
                manifest = _verified(file, _content(file)[0], read_key(self.key))
                # A manifest counts only in the file that its content names.
                place = ManifestFile(
                    self.folder, self.key, manifest.holds, manifest.scope, manifest.policy
                )
                if place.file != file:
                    raise _unusable(file, f"by its name it is not for {manifest.scope!r}")
                yield place, place.read()
            except AdmissionError as exc:
                yield exc
            except FileNotFoundError:  # somebody removed it since it was listed
                continue

    def revoke(self, ids: frozenset[str] | None) -> tuple[list[Record], list[AdmissionError]]:
        """Take back the records with these ids, or all for None.

        Return those records, and the errors of manifests that can't be used. Raise AdmissionError
        if a manifest can't be written.
        """
        revoked: list[Record] = []
        unusable: list[AdmissionError] = []
        for each in self.manifests():
            if isinstance(each, AdmissionError):
                unusable.append(each)
                continue
            place, manifest = each
            chosen = [record for record in manifest.records if ids is None or record.id in ids]
            if chosen:
                place.change(partial(_without, chosen))
                revoked += chosen
        return revoked, unusable


def _without(revoked: list[Record], before: Manifest) -> Iterable[Record]:
    return (record for record in before.records if record not in revoked)


def of_user() -> Store:
    """Return the user's own store, in the default folder with the default key.

    A user's lasting answers are here whatever folder a policy names for its manifests: a manifest
    that comes with a repository must not answer a user's questions.
    """
    return Store(Path(data_folder(), "approved"), Path(data_folder(), "approval.key"))
