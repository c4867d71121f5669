"""Reviews: what approving a notebook would change, for the person who approves; and the approval.

Used by ``cellblock approve``: ``review`` compares the notebook with what was approved of it before,
``approve`` writes the result of that very review to the manifest, and ``revoke`` takes it back.
"""

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
    """Return the texts to approve, one or two for each cell. Blank cells need no approval.

    ``sources`` has the source of each cell by its number.
    """
    return tuple(
        Cell(number, sha256(form), form)
        for number, source in sources.items()
        if source.strip(" \t\r\n")
        for form in _forms(source)
    )


def _forms(source: str) -> Iterable[str]:
    """Return a cell's text, and if its lines end in CR LF, also the text with LF.

    Some front ends send a cell's CR LFs as LFs. A text with any other CR has one form only: if its
    CR LFs were replaced, such a CR would end a line in another place, and nobody was shown that
    program.
    """
    with_lf = source.replace("\r\n", "\n")
    return (source,) if "\r" in with_lf else dict.fromkeys((source, with_lf))


class NewCell(Struct, frozen=True):
    """A cell that is not approved yet, with notes for the person who approves it.

    ``findings`` are the reasons why the policy will refuse it even if it is approved; ``letters``
    the words with letters that may be taken for others. ``too_long`` says by how much the cell
    exceeds a limit, beyond which no kernel runs or analyses it, and neither does a review.
    """

    number: int
    source: str
    findings: tuple[Finding, ...] = ()
    letters: tuple[str, ...] = ()
    too_long: str = ""


class Review(Struct, frozen=True):
    """The changes that approving ``notebook`` as it is now would make.

    ``before`` is its record now, if any. ``kept`` and ``gone`` are numbers of approved texts that
    stay and that go. ``why_unusable`` says why the manifest there can't be used: approving
    writes over it.
    """

    notebook: str
    sources: Mapping[int, str]
    before: Record | None
    why_unusable: str
    new: tuple[NewCell, ...]
    kept: int
    gone: int

    @property
    def changes(self) -> bool:
        """Whether approving would change anything."""
        return bool(self.new or self.gone or self.why_unusable)


def review(place: ManifestFile, policy: Policy, name: str, sources: Mapping[int, str]) -> Review:
    """Return what approving the notebook of this name would change.

    ``sources`` are its code cells by their numbers among all cells, from 1.
    """
    manifest, unusable = place.usable()
    before = approved(manifest, name)
    hashes_now = {cell.sha256 for cell in cells_of(sources)}
    return Review(
        name,
        sources,
        before=manifest.notebook(name),
        why_unusable="" if unusable is None else str(unusable),
        new=tuple(
            _new_cell(number, source, policy.rules())
            for number, source in sources.items()
            if not runs_nothing(source) and sha256(source) not in before
        ),
        kept=len(hashes_now & set(before)),
        gone=len(set(before) - hashes_now),
    )


def _new_cell(number: int, source: str, rules: Rules) -> NewCell:
    if excess := exceeded_limit(source):
        count, cap, unit = excess
        return NewCell(
            number, source, too_long=f"{count:,} {unit}, and at most {cap:,} are allowed"
        )
    findings = analyse(transform(source).source, rules)
    return NewCell(number, source, findings, tuple(letters(source)))


def approve(place: ManifestFile, policy: Policy, reviewed: Review) -> bool:
    """Approve what was reviewed. Return whether a key had to be made.

    The manifest is not locked while a person reads, so raise AdmissionError if the notebook's
    record is no longer the one that was reviewed; also if the manifest can't be written.
    """
    name = reviewed.notebook
    new = record("notebook", name, policy.digest(), cells_of(reviewed.sources))

    def with_new(before: Manifest) -> Iterable[Record]:
        if before.notebook(name) != reviewed.before:
            message = f"the approval of {name} was changed while you were asked"
            raise AdmissionError(message, file=str(place.file), remedy="Approve it again.")
        return (*(each for each in before.records if each != reviewed.before), new)

    had_key = os.path.lexists(place.key)
    place.change(with_new, lost=reviewed.why_unusable)
    return not had_key


def revoke(place: ManifestFile, path: Path) -> int:
    """Take back the approval of a notebook, whose file need not exist any more.

    Return the number of its approved texts. Raise AdmissionError if it was not approved, or if the
    manifest can't be written.
    """
    name = path.resolve().name
    count = 0

    def without_it(before: Manifest) -> Iterable[Record]:
        nonlocal count
        if (notebook := before.notebook(name)) is None:
            message = f"nothing of {name} was approved in {place.scope}"
            remedy = "cellblock approve --list says what was."
            raise AdmissionError(message, file=str(place.file), remedy=remedy)
        count = len(notebook.cells)
        return (each for each in before.records if each != notebook)

    place.change(without_it)
    return count


# --- letters that may be taken for others --------------------------------------------------------

#: Tokens that are plain text to Python; from 3.12 on also the parts of an f-string between fields.
_PLAIN: Final = {
    getattr(tokenize, name, tokenize.COMMENT)
    for name in ("COMMENT", "FSTRING_MIDDLE", "TSTRING_MIDDLE")
}
#: The prefix of an f-string, which is one token before Python 3.12.
_FORMATTED: Final = re.compile(r"[bru]*[ft]", re.IGNORECASE)
_WORD: Final = re.compile(r"(?:\w|[^\x00-\x7f])+")


def letters(source: str) -> Iterator[str]:
    """Yield each word in ``source`` that is not ASCII, and the name of its first such character.

    Words in comments and plain text are left out. A line that IPython does not read as Python, such
    as a magic's, counts as a whole, since it may carry code.
    """
    python = transform(source).source
    not_python = Counter(source.splitlines()) - Counter(python.splitlines())
    words = _WORD.findall(" ".join((_without_text(python), *not_python)))
    for word in dict.fromkeys(word for word in words if not word.isascii()):
        sign = next(char for char in word if not char.isascii())
        yield f"{word} (U+{ord(sign):04X} {unicodedata.name(sign, 'without a name')})"


def _without_text(source: str) -> str:
    """Return Python's tokens without comments and plain text; all of a source it can't tokenise."""
    try:
        lines = io.StringIO(source, newline=None)  # as in Python, a CR ends a comment
        tokens = list(tokenize.generate_tokens(lines.readline))
    except (tokenize.TokenError, SyntaxError):
        return source
    return " ".join(token.string for token in tokens if not _is_text(token))


def _is_text(token: tokenize.TokenInfo) -> bool:
    plain = token.type == tokenize.STRING and not _FORMATTED.match(token.string)
    return plain or token.type in _PLAIN
