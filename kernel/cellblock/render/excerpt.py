"""A source line with a mark under what a finding is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellblock.render.text import visible, width

if TYPE_CHECKING:
    from cellblock.analysis import Finding

_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One source line, split around its mark; every part is visible text."""

    before: str
    marked: str
    after: str

    @property
    def line(self) -> str:
        """The whole line."""
        return self.before + self.marked + self.after

    @property
    def indent(self) -> int:
        """Columns before the mark."""
        return width(self.before)

    @property
    def carets(self) -> str:
        """A caret for each column of the mark, at least one."""
        return "^" * max(1, width(self.marked))


def excerpt(finding: Finding) -> Excerpt:
    """Split a finding's source line around the characters it refuses."""
    text = finding.excerpt
    start = min(max(0, finding.column - finding.cut), len(text))
    end = start + max(1, finding.end_column - finding.column)
    before = (_ELLIPSIS if finding.cut else "") + visible(text[:start])
    return Excerpt(before, visible(text[start:end]), visible(text[end:]))


def window(shown: Excerpt, columns: int) -> Excerpt:
    """Return ``shown`` cut to ``columns``, keeping the start of the mark in view."""
    if width(shown.line) <= columns:
        return shown
    before = _keep_end(shown.before, columns // 3)
    marked = _keep_start(shown.marked, columns - width(before))
    after = _keep_start(shown.after, columns - width(before) - width(marked))
    return Excerpt(before, marked, after)


def _keep_end(text: str, columns: int) -> str:
    if width(text) <= columns:
        return text
    while text and (width(text) > columns - 1 or not width(text[0])):
        text = text[1:]
    return _ELLIPSIS + text


def _keep_start(text: str, columns: int) -> str:
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return text + _ELLIPSIS if columns > 0 else ""
