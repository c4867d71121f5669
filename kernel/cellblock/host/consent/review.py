"""What approving a notebook would change, as whoever approves has to see it; and approving it."""

from __future__ import annotations

import io
import os
import re
import tokenize
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from cellblock.analysis import analyse, transform
from cellblock.analysis.admission import runs_nothing, sha256
from cellblock.analysis.transform import exceeded_limit
from cellblock.errors import AdmissionError
from cellblock.host.consent.admission import approved
from cellblock.host.consent.store import Cell, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from cellblock.analysis import Finding, Rules
    from cellblock.host.consent.store import Manifest, ManifestFile, Record
    from cellblock.policy.model import Policy


def cells_of(sources: Mapping[int, str]) -> tuple[Cell, ...]:
    """Return what is approved by approving these cells, by number; blank ones need it not."""
    return tuple(
        Cell(number, sha256(form), form)
        for number, source in sources.items()
        if source.strip(" \t\r\n")
        for form in _forms(source)
    )


def _forms(source: str) -> Iterable[str]:
    """Return a cell as it is, and as some front ends send it if its lines end in CR LF: with LF.

    A CR that ends no line would be left beside an LF, and end another line than it does: that is a
    program which nobody was shown.
    """
    with_lf = source.replace("\r\n", "\n")
    return (source,) if "\r" in with_lf else dict.fromkeys((source, with_lf))


class NewCell(Struct, frozen=True):
    """A cell that is not approved yet, and what whoever approves it should know.

    ``findings`` are what the policy will refuse it for even so. What is ``too_long`` no kernel runs
    or looks at, and neither does a review: it says by how much.
    """

    number: int
    source: str
    findings: tuple[Finding, ...] = ()
    letters: tuple[str, ...] = ()
    too_long: str = ""


class Review(Struct, frozen=True):
    """What approving ``notebook`` as it is now would change.

    ``before`` is what was approved of it, if anything; ``lost`` says why what was approved in this
    scope can't be used, and would be written over.
    """

    notebook: str
    sources: Mapping[int, str]
    before: Record | None
    lost: str
    new: tuple[NewCell, ...]
    kept: int
    gone: int

    @property
    def changes(self) -> bool:
        """Whether there is anything to be decided."""
        return bool(self.new or self.gone or self.lost)


def review(place: ManifestFile, policy: Policy, name: str, sources: Mapping[int, str]) -> Review:
    """Return what approving the notebook of this name would change.

    ``sources`` are those of its code cells by their number among all cells, from 1.
    """
    manifest, unusable = place.usable()
    before = approved(manifest, name)
    wanted = {cell.sha256 for cell in cells_of(sources)}
    return Review(
        name,
        sources,
        before=manifest.notebook(name),
        lost="" if unusable is None else str(unusable),
        new=tuple(
            _new_cell(number, source, policy.rules())
            for number, source in sources.items()
            if not runs_nothing(source) and sha256(source) not in before
        ),
        kept=len(wanted & set(before)),
        gone=len(set(before) - wanted),
    )


def _new_cell(number: int, source: str, rules: Rules) -> NewCell:
    if excess := exceeded_limit(source):
        has, cap, what = excess
        return NewCell(number, source, too_long=f"{has:,} {what}, and {cap:,} are the most")
    findings = analyse(transform(source).source, rules)
    return NewCell(number, source, findings, tuple(letters(source)))


def approve(place: ManifestFile, policy: Policy, reviewed: Review) -> bool:
    """Approve what was reviewed. Return whether a key had to be made. Raise AdmissionError.

    Nobody else waits while a person reads, so what another approved meanwhile ends this.
    """
    name = reviewed.notebook
    made = record("notebook", name, policy.digest(), cells_of(reviewed.sources))

    def with_it(before: Manifest) -> Iterable[Record]:
        if before.notebook(name) != reviewed.before:
            message = f"{name} was approved otherwise while you were asked"
            raise AdmissionError(message, file=str(place.file), remedy="Approve it again.")
        return (*(one for one in before.records if one != reviewed.before), made)

    had_key = os.path.lexists(place.key)
    place.change(with_it, lost=reviewed.lost)
    return not had_key


def revoke(place: ManifestFile, path: Path) -> int:
    """Take back what was approved of a notebook, which need not be there any more.

    Return how many cells that were. Raise AdmissionError.
    """
    name, count = path.resolve().name, 0

    def left(before: Manifest) -> Iterable[Record]:
        nonlocal count
        if (known := before.notebook(name)) is None:
            message = f"nothing of {name} was approved in {place.scope}"
            remedy = "cellblock approve --list says what was."
            raise AdmissionError(message, file=str(place.file), remedy=remedy)
        count = len(known.cells)
        return (one for one in before.records if one != known)

    place.change(left)
    return count


# --- letters that may be taken for others --------------------------------------------------------

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
