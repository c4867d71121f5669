"""What approving a notebook would change: asked before it is done, by people."""

from __future__ import annotations

import datetime as dt
import getpass
import io
import os
import tokenize
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.analysis import analyse, transform
from cellblock.analysis.admission import Approved, nearest, runs_nothing, sha256, unified
from cellblock.errors import AdmissionError
from cellblock.host.consent.manifest import (
    Manifest,
    ManifestLocation,
    Notebook,
    approved,
    cells_of,
    read_key,
    read_or_make_key,
    verified,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cellblock.analysis import Finding
    from cellblock.policy.model import Policy

#: Lines and characters of a line up to which a difference says all.
_LINES, _WIDTH = 40, 150


@dataclass(frozen=True, slots=True)
class NewCell:
    """A cell that is not approved yet, and what whoever approves it should know.

    ``change`` is how it differs from an approved one like it, where that says everything.
    ``findings`` are what the policy will refuse it for even so.
    """

    number: int
    source: str
    change: str
    findings: tuple[Finding, ...]
    letters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Review:
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
    every = (*approved(manifest).values(), *before.values())
    others = {each.source: each for each in every}
    wanted = {cell.sha256 for cell in cells_of(sources)}
    new = tuple(
        NewCell(
            number,
            source,
            _change(source, others),
            analyse(transform(source).source, policy.rules()),
            tuple(letters(source)),
        )
        for number, source in sources.items()
        if not runs_nothing(source) and sha256(source) not in before
    )
    kept, gone = len(wanted & set(before)), len(set(before) - wanted)
    return Review(name, sources, new, kept, gone)


def _change(source: str, others: Mapping[str, Approved]) -> str:
    """Return how ``source`` differs from one like it; nothing where that would leave out a part.

    One that is approved in another notebook already has no difference, and is shown whole.
    """
    near = nearest(source, others)
    if near is None:
        return ""
    both = [*source.split("\n"), *near.split("\n")]
    if source == near or len(both) > _LINES or max(map(len, both)) > _WIDTH:
        return ""
    at = others[near]
    return unified(source, near, f"approved: cell {at.number} of {at.notebook}")


def letters(source: str) -> Iterator[str]:
    """Yield the names in ``source`` that are not ASCII, and what they have that is not."""
    seen = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(transform(source).source).readline):
            name = token.string
            if token.type == tokenize.NAME and not name.isascii() and name not in seen:
                seen.add(name)
                other = next(char for char in name if not char.isascii())
                yield f"{name} (U+{ord(other):04X} {unicodedata.name(other, 'without a name')})"
    except (tokenize.TokenError, SyntaxError):
        return


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
