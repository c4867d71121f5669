"""A manifest: which cells were approved, of which notebooks, for one scope and one policy.

Two lines: what vouches for the second, and that second line, JSON, of which every byte is signed::

    {"cellblock": "approval", "version": 1, "key": ID, "signature": "hmac-sha256:…"}
    {"scope": …, "policy": …, "serial": …, "notebooks": {NAME: {"cells": [{"sha256": …, …}]}}}

The second is not looked at before the signature is found to be the key's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from cellblock.analysis.admission import Approved, sha256
from cellblock.errors import AdmissionError
from cellblock.host.admission import files, key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cellblock.policy.model import Policy

MOST_BYTES: Final = 16 << 20
MOST_CELLS: Final = 10_000
_AGAIN: Final = "Approve again: cellblock approve NOTEBOOK."
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


class Place:
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

        Raises AdmissionError: it is missing, not signed with our key, for something else, or older
        than one that was written here.
        """
        secret = key.read(self.key)
        try:
            content, status = _content(self.file)
        except FileNotFoundError:
            remedy = "Approve what is to run: cellblock approve NOTEBOOK."
            raise _wrong(self.file, f"no notebook in {self.scope} was approved", remedy) from None
        manifest = _verified(self.file, content, secret)
        self._check_place(manifest)
        return manifest, status

    def _check_place(self, manifest: Manifest) -> None:
        if manifest.policy != self.policy:
            message = f"it is for policy {manifest.policy!r}, not for {self.policy!r}"
            raise _wrong(self.file, message, _AGAIN)
        if manifest.scope != self.scope:
            message = f"it is for {manifest.scope!r}, not for {self.scope!r}"
            raise _wrong(self.file, message, _AGAIN, field="approval.scope")
        newest = key.serials(self.key).get(self.file.name, 0)
        if manifest.serial < newest:
            message = f"it is number {manifest.serial}, and number {newest} was written since"
            raise _wrong(self.file, message, _AGAIN)

    # --- writing ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def held(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Keep others from writing with this key meanwhile. Raises AdmissionError.

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

        Raises AdmissionError: too much of it, or it can't be written.
        """
        secret, known = key.read(self.key), key.serials(self.key)
        newest = max(serial, known.get(self.file.name, 0))
        if sum(len(each.cells) for each in notebooks.values()) > MOST_CELLS:
            raise _wrong(
                self.file, f"more than {MOST_CELLS:,} cells", "Approve fewer notebooks here."
            )
        manifest = Manifest(self.scope, self.policy, newest + 1, dict(notebooks))
        payload = msgspec.json.encode(manifest) + b"\n"
        head = _Head("approval", 1, secret.id, _ALGORITHM + secret.sign(payload))
        content = msgspec.json.encode(head) + b"\n" + payload
        if len(content) > MOST_BYTES:
            raise _wrong(
                self.file, f"more than {MOST_BYTES:,} bytes", "Approve fewer notebooks here."
            )
        files.write(self.file, content)
        key.keep_serials(self.key, known | {self.file.name: manifest.serial})
        return manifest


def verified(file: Path, secret: key.Key) -> Manifest:
    """Return a manifest that the key vouches for, wherever it may count. Raises AdmissionError."""
    return _verified(file, _content(file)[0], secret)


def _content(file: Path) -> tuple[bytes, os.stat_result]:
    return files.read(file, MOST_BYTES, what="the manifest", remedy=_AGAIN)


def _verified(file: Path, content: bytes, secret: key.Key) -> Manifest:
    first, _, payload = content.partition(b"\n")
    try:
        head = msgspec.json.decode(first, type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        raise _wrong(file, "it is not a signed manifest", _AGAIN) from None
    if head.key != secret.id:
        message = f"it was signed with another key: {head.key[:16]!r}, not {secret.id!r}"
        raise _wrong(file, message, f"{_AGAIN} Or fetch that key.", field="approval.key")
    if not secret.vouches(payload, head.signature.removeprefix(_ALGORITHM)):
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
    forms = (
        (number, form)
        for number, source in sources.items()
        if source.strip(" \t\r\n")
        for form in dict.fromkeys((source, source.replace("\r\n", "\n")))
    )
    return tuple(Cell(number, sha256(form), form) for number, form in forms)
