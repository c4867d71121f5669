"""What the analysis says about a cell: one ``Finding`` per refused place.

Positions are those of the source analysed: lines from 1, columns from 0 and in characters.
``ast`` counts UTF-8 bytes, so columns are translated here, once, and only for findings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cellblock.analysis.rules import RULES

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Sequence

    from cellblock.analysis.policy import Rules

#: A sentence, or one with a rewrite.
Remedy = str | tuple[str, str]
EXCERPT_LIMIT = 200
SUBJECT_LIMIT = 100
#: More findings than this say nothing new, and would let a cell flood its own denial.
FINDINGS_LIMIT = 100
#: What ends a line for Python.
LINE_END = re.compile(r"\r\n|\r|\n")
_WORD_BEFORE = re.compile(r"\w+\Z")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place in a cell that the policy refuses.

    ``excerpt`` is the source line with each tab as one blank, so that a caret put at ``column``
    stands right; of a line longer than 200 characters it is a part, and ``cut`` says how many
    characters are missing on its left. ``why`` is a sentence fragment about the subject,
    ``rewrite`` a line or two of a cell that do the same with an operation of the host's.
    ``detail`` is text of more lines, shown as it stands: a difference, say.
    """

    line: int
    column: int
    end_column: int
    rule: str
    subject: str
    excerpt: str
    why: str
    remedy: str
    cut: int = 0
    detail: str = ""
    rewrite: str = ""


class Positioned(Protocol):
    """An ``ast`` node that knows where it stands."""

    @property
    def lineno(self) -> int:
        """The first line, from 1."""

    @property
    def col_offset(self) -> int:
        """The first column, in UTF-8 bytes from 0."""

    @property
    def end_lineno(self) -> int | None:
        """The last line."""

    @property
    def end_col_offset(self) -> int | None:
        """The column after the last, in UTF-8 bytes."""


@dataclass(slots=True)
class Report:
    """Collects the findings of one source; ``shift`` is added to every line number."""

    source: str
    rules: Rules
    shift: int = 0
    #: Finds in code that a magic carries; given by the package, to keep the imports one-way.
    nested: Callable[[str, Rules, int], Sequence[Finding]] = lambda _s, _r, _n: ()
    findings: list[Finding] = field(default_factory=list)
    #: Names that the source binds otherwise than by importing a module.
    bound: set[str] = field(default_factory=set)
    #: Names bound to facades by ``import``, and what they stand for.
    imported: dict[str, str] = field(default_factory=dict)
    #: ``name.attribute`` as written, and soft builtins as read; settled after the walk.
    uses: list[tuple[str, ast.Attribute]] = field(default_factory=list)
    pending: list[tuple[str, ast.Name]] = field(default_factory=list)
    #: Calls of ``open`` that the walk has met, by the id of the name in each.
    openings: dict[int, ast.Call] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)

    def add(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: Remedy = ""
    ) -> None:
        """Record that ``subject``, at ``node``, breaks ``rule``; texts default to the rule's."""
        self.add_at(rule, self.span(node), subject, why=why, remedy=remedy)

    def add_last_word(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: Remedy = ""
    ) -> None:
        """Like ``add``, for the identifier that ends ``node`` (an attribute's name)."""
        end_line = node.end_lineno or node.lineno
        end = self._characters(end_line, node.end_col_offset or 0)
        word = _WORD_BEFORE.search(self.line(end_line)[:end])
        start = word.start() if word else max(0, end - 1)
        self.add_at(rule, (end_line, start, end), subject, why=why, remedy=remedy)

    def add_at(
        self,
        rule: str,
        span: tuple[int, int, int],
        subject: str,
        *,
        why: str = "",
        remedy: Remedy = "",
    ) -> None:
        """Record a finding at (line, column, end column)."""
        if len(self.findings) >= FINDINGS_LIMIT:
            return
        line, start, end = span
        text = self.line(line).replace("\t", " ")
        cut = start - 40 if start > EXCERPT_LIMIT - 60 and len(text) > EXCERPT_LIMIT else 0
        record = RULES[rule]
        said, rewrite = (remedy, "") if isinstance(remedy, str) else remedy
        self.findings.append(
            Finding(
                rule=rule,
                line=line + self.shift,
                column=start,
                end_column=max(end, start + 1),
                excerpt=text[cut : cut + EXCERPT_LIMIT],
                subject=subject[:SUBJECT_LIMIT],
                why=why or record.why,
                remedy=said or record.remedy,
                cut=cut,
                rewrite=rewrite,
            )
        )

    def span(self, node: Positioned) -> tuple[int, int, int]:
        """Line, column and end column of ``node``, on its first line only."""
        start = self._characters(node.lineno, node.col_offset)
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            return node.lineno, start, self._characters(node.lineno, node.end_col_offset)
        return node.lineno, start, len(self.line(node.lineno))

    def line(self, number: int) -> str:
        """Line ``number`` as Python counts lines: form feeds and U+2028 end none."""
        if not self._lines:
            self._lines = LINE_END.split(self.source)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def _characters(self, line: int, offset: int) -> int:
        text = self.line(line)
        if text.isascii():
            return offset
        raw = text.encode("utf-8", "surrogatepass")[:offset]
        return len(raw.decode("utf-8", "ignore"))
