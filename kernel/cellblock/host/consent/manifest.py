"""A manifest: which cells were approved, of which notebooks, for one scope and one policy.

Two lines: what vouches for the second, and that second line, JSON, of which every byte is signed::

    {"cellblock": "approval", "version": 1, "key": ID, "signature": "hmac-sha256:…"}
    {"scope": …, "policy": …, "serial": …, "notebooks": {NAME: {"cells": [{"sha256": …, …}]}}}

The second is not looked at before the signature is found to be the key's. ``review`` says what
approving a notebook would change, ``approve`` does it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import getpass
import hashlib
import hmac
import io
import json
import os
import re
import stat
import tokenize
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Struct

from cellblock.analysis import analyse, transform
from cellblock.analysis.admission import Approved, runs_nothing, sha256
from cellblock.descriptors import FILE, closing, read_regular
from cellblock.errors import AdmissionError
from cellblock.host.files import PrivateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cellblock.analysis import Finding
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
# for what it is, though its signature holds.

_KEY_BYTES: Final = 32
_MOST_KEY_FILE: Final = 256
_MOST_SERIALS: Final = 1 << 20
#: Put before what is signed, so that no signature is one of something else.
_PURPOSE: Final = b"cellblock approval, version 1\n"
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


def read_or_make_key(path: Path) -> tuple[Key, bool]:
    """Return the key, and whether it was made just now. Raise AdmissionError."""
    made = not os.path.lexists(path)
    if made:
        write(path, os.urandom(_KEY_BYTES).hex().encode() + b"\n")
    return read_key(path), made


def _serials_file(key: Path) -> Path:
    return key.with_name(f"{key.name}.serials")


def serials(key: Path) -> dict[str, int]:
    """Return the last serial number by manifest's name. Raise AdmissionError."""
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
MOST_CELLS: Final = 10_000
_AGAIN: Final = "Approve again: cellblock approve NOTEBOOK."
_FEWER: Final = "Approve fewer notebooks here."
_ALGORITHM: Final = "hmac-sha256:"
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Positive = Annotated[int, msgspec.Meta(ge=0)]


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text that may run: the source of a notebook's cell, with that cell's number, from 1."""

    number: Positive
    sha256: str
    source: str


class Notebook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a notebook was approved, when, by whom, and under which state of the policy."""

    at: str
    by: str
    digest: str
    cells: tuple[Cell, ...]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that was approved for a scope under a policy; each one written has the next number."""

    scope: str
    policy: str
    serial: Positive = 0
    notebooks: dict[str, Notebook] = {}


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cellblock: Literal["approval"]
    version: Literal[1]
    key: str
    signature: str


class ManifestLocation:
    """Where the manifest for a policy's cells lies, and the key that has to vouch for it."""

    def __init__(self, policy: Policy, project: Path) -> None:
        asked = policy.approval
        self.scope = asked.scope.replace("{project}", os.path.realpath(project))
        self.policy = policy.name
        self.key = Path(asked.key)
        name = hashlib.sha256(f"{self.scope}\0{self.policy}".encode()).hexdigest()[:32]
        self.file = Path(asked.folder, f"{name}.json")

    def read(self) -> tuple[Manifest, os.stat_result]:
        """Return the manifest, and the file's status when it was read.

        Raise AdmissionError where it is missing, not signed with our key, for something else, or
        older than one that was written here.
        """
        key = read_key(self.key)
        try:
            content, status = _content(self.file)
        except FileNotFoundError:
            remedy = "Approve what is to run: cellblock approve NOTEBOOK."
            raise _wrong(self.file, f"no notebook in {self.scope} was approved", remedy) from None
        manifest = _verified(self.file, content, key)
        if manifest.policy != self.policy:
            message = f"it is for policy {manifest.policy!r}, not for {self.policy!r}"
            raise _wrong(self.file, message, _AGAIN)
        if manifest.scope != self.scope:
            message = f"it is for {manifest.scope!r}, not for {self.scope!r}"
            raise _wrong(self.file, message, _AGAIN, field="approval.scope")
        newest = serials(self.key).get(self.file.name, 0)
        if manifest.serial < newest:
            message = f"it is number {manifest.serial}, and number {newest} was written since"
            raise _wrong(self.file, message, _AGAIN)
        return manifest, status

    @contextlib.contextmanager
    def held(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Keep others from writing with this key meanwhile. Raise AdmissionError.

        Where another does so, ``waiting`` is called, and this waits for as long as that takes.
        """
        try:
            self.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.key.with_name(f"{self.key.name}.lock"), _LOCK, 0o600)
        except OSError as exc:
            remedy = "Give a folder of yours: approval.key."
            raise _wrong(self.file, f"can't be written: {exc.strerror}", remedy) from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def write(self, notebooks: Mapping[str, Notebook], serial: int) -> Manifest:
        """Sign and write what is approved from now on; ``serial`` is the last one's number.

        Raise AdmissionError where it is too much, or can't be written.
        """
        key, known = read_key(self.key), serials(self.key)
        if sum(len(each.cells) for each in notebooks.values()) > MOST_CELLS:
            raise _wrong(self.file, f"more than {MOST_CELLS:,} cells", _FEWER)
        newest = max(serial, known.get(self.file.name, 0))
        manifest = Manifest(self.scope, self.policy, newest + 1, dict(notebooks))
        payload = msgspec.json.encode(manifest) + b"\n"
        head = _Head("approval", 1, key.id, _ALGORITHM + key.sign(payload))
        content = msgspec.json.encode(head) + b"\n" + payload
        if len(content) > MOST_BYTES:
            raise _wrong(self.file, f"more than {MOST_BYTES:,} bytes", _FEWER)
        write(self.file, content)
        numbers = known | {self.file.name: manifest.serial}
        write(_serials_file(self.key), json.dumps(numbers, indent=0, sort_keys=True).encode())
        return manifest


def verified(file: Path, key: Key) -> Manifest:
    """Return a manifest that the key vouches for, wherever it may count. Raise AdmissionError."""
    return _verified(file, _content(file)[0], key)


def _content(file: Path) -> tuple[bytes, os.stat_result]:
    return read_file(file, MOST_BYTES, what="the manifest", remedy=_AGAIN)


def _verified(file: Path, content: bytes, key: Key) -> Manifest:
    first, _, payload = content.partition(b"\n")
    try:
        head = msgspec.json.decode(first, type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        raise _wrong(file, "it is not a signed manifest", _AGAIN) from None
    if head.key != key.id:
        message = f"it was signed with another key: {head.key[:16]!r}, not {key.id!r}"
        raise _wrong(file, message, f"{_AGAIN} Or fetch that key.", field="approval.key")
    if not key.vouches(payload, head.signature.removeprefix(_ALGORITHM)):
        raise _wrong(file, "it was changed since it was signed", _AGAIN)
    try:
        return msgspec.json.decode(payload, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise _wrong(file, f"it was written by another version: {exc}", _AGAIN) from None


def _wrong(file: Path, message: str, remedy: str, field: str = "approval.folder") -> AdmissionError:
    return AdmissionError(message, file=str(file), key=field, remedy=remedy)


def approved(manifest: Manifest, notebook: str | None = None) -> dict[str, Approved]:
    """Return the cells that may run by their hash: all, or those of one notebook."""
    return {
        sha256(cell.source): Approved(cell.source, name, cell.number)
        for name, each in manifest.notebooks.items()
        if notebook is None or name == notebook
        for cell in each.cells
    }


def cells_of(sources: Mapping[int, str]) -> tuple[Cell, ...]:
    """Return what is approved by approving these cells, by number; blank ones need it not.

    A cell with lines that end in CR LF counts as front ends send it, too: some with LF.
    """
    return tuple(
        Cell(number, sha256(form), form)
        for number, source in sources.items()
        if source.strip(" \t\r\n")
        for form in dict.fromkeys((source, source.replace("\r\n", "\n")))
    )


# --- what approving a notebook would change: asked by people before it is done --------------------


class NewCell(Struct, frozen=True):
    """A cell that is not approved yet, and what whoever approves it should know.

    ``findings`` are what the policy will refuse it for even so.
    """

    number: int
    source: str
    findings: tuple[Finding, ...]
    letters: tuple[str, ...]


class Review(Struct, frozen=True):
    """What approving ``notebook`` as it is now would change."""

    notebook: str
    sources: Mapping[int, str]
    new: tuple[NewCell, ...]
    kept: int
    gone: int

    @property
    def changes(self) -> bool:
        """Whether there is anything to be decided."""
        return bool(self.new or self.gone)


def known(place: ManifestLocation) -> tuple[Manifest, str]:
    """Return what is approved now; nothing, and why, where the manifest there can't be used."""
    nothing = Manifest(place.scope, place.policy)
    if not os.path.lexists(place.file):
        return nothing, ""
    try:
        return place.read()[0], ""
    except AdmissionError as exc:
        return nothing, str(exc)


def review(name: str, sources: Mapping[int, str], policy: Policy, manifest: Manifest) -> Review:
    """Return what approving the notebook of this name would change.

    ``sources`` are those of its code cells by their number among all cells, from 1.
    """
    before = approved(manifest, name)
    wanted = {cell.sha256 for cell in cells_of(sources)}
    new = tuple(
        NewCell(
            number,
            source,
            analyse(transform(source).source, policy.rules()),
            tuple(letters(source)),
        )
        for number, source in sources.items()
        if not runs_nothing(source) and sha256(source) not in before
    )
    kept, gone = len(wanted & set(before)), len(set(before) - wanted)
    return Review(name, sources, new, kept, gone)


#: Tokens that are text to Python: of an f-string what is between its fields, from 3.12 on.
_PLAIN: Final = {
    getattr(tokenize, name, tokenize.COMMENT)
    for name in ("COMMENT", "FSTRING_MIDDLE", "TSTRING_MIDDLE")
}
#: How an f-string begins, which is one token before Python 3.12.
_FORMATTED: Final = re.compile(r"[bru]*[ft]", re.IGNORECASE)
_WORD: Final = re.compile(r"(?:\w|[^\x00-\x7f])+")


def letters(source: str) -> Iterator[str]:
    """Yield the words in ``source`` that are not ASCII, and what they have that is not.

    Those in comments and plain text are left out. A line that IPython reads as something else than
    Python, a magic's or a prompt's, counts whole: it may carry code.
    """
    made = transform(source).source
    carried = Counter(source.splitlines()) - Counter(made.splitlines())
    words = _WORD.findall(" ".join((_without_text(made), *carried)))
    for word in dict.fromkeys(word for word in words if not word.isascii()):
        other = next(char for char in word if not char.isascii())
        yield f"{word} (U+{ord(other):04X} {unicodedata.name(other, 'without a name')})"


def _without_text(source: str) -> str:
    """Return Python's tokens but comments and plain text; all of what Python can't read."""
    try:
        lines = io.StringIO(source, newline=None)  # a carriage return ends a comment, to Python
        tokens = list(tokenize.generate_tokens(lines.readline))
    except (tokenize.TokenError, SyntaxError):
        return source
    return " ".join(token.string for token in tokens if not _is_text(token))


def _is_text(token: tokenize.TokenInfo) -> bool:
    plain = token.type == tokenize.STRING and not _FORMATTED.match(token.string)
    return plain or token.type in _PLAIN


# --- deciding ---------------------------------------------------------------------------------


def approve(place: ManifestLocation, policy: Policy, reviewed: Review, manifest: Manifest) -> bool:
    """Approve what was reviewed. Return whether a key had to be made. Raise AdmissionError."""
    _, made = read_or_make_key(place.key)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    try:
        who = f"{getpass.getuser()} (uid {os.getuid()})"
    except (OSError, KeyError):  # no name, and no variable that says one
        who = f"uid {os.getuid()}"
    notebook = Notebook(now, who, policy.digest(), cells_of(reviewed.sources))
    place.write({**manifest.notebooks, reviewed.notebook: notebook}, manifest.serial)
    return made


def revoke(place: ManifestLocation, path: Path) -> int:
    """Take back what was approved of a notebook, which need not be there any more.

    Return how many cells that were. Raise AdmissionError.
    """
    manifest, _ = place.read()
    name = path.resolve().name
    left = {other: each for other, each in manifest.notebooks.items() if other != name}
    if len(left) == len(manifest.notebooks):
        message = f"nothing of {name} was approved in {place.scope}"
        remedy = "cellblock approve --list says what was."
        raise AdmissionError(message, file=str(place.file), remedy=remedy)
    place.write(left, manifest.serial)
    return len(manifest.notebooks[name].cells)


def manifests(policy: Policy) -> Iterator[tuple[Path, Manifest | AdmissionError]]:
    """Yield every manifest in the policy's folder, or why it can't be used. Raise AdmissionError.

    For showing: whether one counts depends on where a kernel runs.
    """
    key = read_key(Path(policy.approval.key))
    for file in sorted(Path(policy.approval.folder).glob("*.json")):
        try:
            yield file, verified(file, key)
        except AdmissionError as exc:
            yield file, exc
