"""What suites of probes saw, kept for kernels' starts: in the user's cache folder, his alone.

A proof counts for what it was made on: the OS kernel, Landlock's ABI, the backend and what it
wraps with, cellblock, the interpreter, the user and the policy. For anything else there is none,
and a file that is damaged, too large or somebody else's is no file: what would be verified is
asserted then.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

import cellblock
from cellblock.backends.contract import PROBES, Proof, asked
from cellblock.host.private_file import PrivateFile

if TYPE_CHECKING:
    from pathlib import Path

    from cellblock.backends.base import Backend
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport

NAME: Final = "proofs.json"
#: Proofs that are kept, newest last, and bytes of a file that is read: one proof has some 4,000.
MOST: Final = 32
MOST_BYTES: Final = 1 << 20
#: What policies have folders of their own in.
_FOLDERS: Final = (
    "filesystem_read_roots",
    "filesystem_write_roots",
    "read_deny_paths",
    "artifact_export_paths",
)


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

    paths: dict[str, Any] = {f: tuple(map(said, getattr(policy, f))) for f in _FOLDERS}
    return policy.replace(**paths, artifact_folder=said(policy.artifact_folder))


def is_whole(proof: Proof, policy: Policy) -> bool:
    """Say whether a proof has something of all probes that ``policy`` is asked, and of no others.

    One that lacks some would verify on what is left.
    """
    return not proof.failure and proof.results.keys() == {probe.name for probe in asked(policy)}


class Proofs:
    """The file in ``folder``. Nothing here raises: what can't be kept or read is not there."""

    def __init__(self, folder: Path) -> None:
        self._file = PrivateFile(folder / NAME, MOST_BYTES)

    def find(self, wanted: tuple[str, ...]) -> Proof | None:
        """Return the proof for this very key."""
        return next((each.proof for each in self._kept() if each.key == wanted), None)

    def keep(self, made_for: tuple[str, ...], proof: Proof) -> bool:
        """Keep a proof in place of an older one for the same; say whether that could be done."""
        others = [each for each in self._kept() if each.key != made_for]
        try:
            self._file.write(msgspec.json.encode([*others, _Kept(made_for, proof)][-MOST:]))
        except OSError:
            return False
        return True

    def _kept(self) -> list[_Kept]:
        """Return what is kept; nothing where the file is missing or damaged."""
        try:
            return msgspec.json.decode(self._file.read(), type=list[_Kept])
        except msgspec.MsgspecError:
            return []
