"""What suites of probes saw, kept for kernels' starts: in the user's cache folder, his alone.

A proof counts for what it was made on: the OS kernel, Landlock's ABI, the backend and what it
wraps with, cellblock, the interpreter, the user and the policy. For anything else there is none,
and a file that is damaged, too large or somebody else's is no file: what would be verified is
asserted then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from typing import TYPE_CHECKING, Final

import msgspec

import cellblock
from cellblock.backends.contract import PROBES, Proof, asked
from cellblock.host.history import FOLDER, UntrustedError, check_own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cellblock.backends.base import Backend
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport

NAME: Final = "proofs.json"
#: Proofs that are kept, newest last, and bytes of a file that is read: one proof has some 4,000.
MOST: Final = 32
MOST_BYTES: Final = 1 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: What policies have folders of their own in.
_FOLDERS: Final = ("filesystem_read_roots", "filesystem_write_roots", "read_deny_paths")


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One proof, and the parts of what it counts for."""

    key: tuple[str, ...]
    proof: Proof


def where() -> str:
    """Return which OS kernel this is: release, build and machine."""
    machine = os.uname()
    return f"{machine.sysname} {machine.release} {machine.version}, {machine.machine}"


def key(
    policy: Policy,
    backend: Backend,
    report: LockReport,
    *,
    project: Path,
    scratch: Path | None,
) -> tuple[str, ...]:
    """Return what a proof counts for.

    The folders that ``{project}`` and ``{scratch}`` stand for are not in it; all others are.
    """
    suite = hashlib.sha256(repr([(p.name, p.capability, p.hole) for p in PROBES]).encode())
    return (
        where(),
        report.achieved.get("landlock", "no Landlock").partition(",")[0],
        f"{backend.name} {backend.fingerprint()}",
        f"cellblock {cellblock.__version__}, suite {suite.hexdigest()}",
        f"{sys.version}, {sys.prefix}, uid {os.geteuid()}",
        _placeless(policy, project, scratch).digest(),
    )


def _placeless(policy: Policy, project: Path, scratch: Path | None) -> Policy:
    places = (
        [("{project}", project)]
        if scratch is None
        else [
            ("{scratch}", scratch),
            ("{project}", project),
        ]
    )

    def said(path: str) -> str:
        for name, folder in places:
            if path == str(folder) or path.startswith(f"{folder}/"):
                return name + path.removeprefix(str(folder))
        return path

    return policy.replace(**{field: tuple(map(said, getattr(policy, field))) for field in _FOLDERS})


def is_whole(proof: Proof, policy: Policy) -> bool:
    """Say whether a proof has something of all probes that ``policy`` is asked, and of no others.

    One that lacks some would verify on what is left.
    """
    return not proof.failure and proof.results.keys() == {probe.name for probe in asked(policy)}


class Proofs:
    """The file in ``folder``. Nothing here raises: what can't be kept or read is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, wanted: tuple[str, ...]) -> Proof | None:
        """Return the proof for this very key."""
        with contextlib.suppress(OSError), self._opened() as folder:
            return next((each.proof for each in _read(folder) if each.key == wanted), None)
        return None

    def keep(self, made_for: tuple[str, ...], proof: Proof) -> bool:
        """Keep a proof in place of an older one for the same; say whether that could be done."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as folder:
                others = [each for each in _read(folder) if each.key != made_for]
                _write(folder, [*others, _Kept(made_for, proof)][-MOST:])
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self._folder, FOLDER)
        try:
            check_own(os.fstat(folder), self._folder)
            yield folder
        finally:
            os.close(folder)


def _read(folder: int) -> list[_Kept]:
    """Return what is kept; nothing where the file is missing, damaged or not the user's alone."""
    try:
        file = os.open(NAME, _READ, dir_fd=folder)
    except OSError:
        return []
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            return []
        check_own(status, NAME)
        return msgspec.json.decode(os.read(file, MOST_BYTES), type=list[_Kept])
    except (UntrustedError, msgspec.MsgspecError, OSError):
        return []
    finally:
        os.close(file)


def _write(folder: int, kept: list[_Kept]) -> None:
    """Put a new file in place of the old one, whole or not at all. Raises OSError."""
    name = f".{NAME}-{os.getpid()}-{os.urandom(4).hex()}"
    file = os.open(name, _MAKE, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(msgspec.json.encode(kept))
        os.replace(name, NAME, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
