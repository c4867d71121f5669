"""The card for a cell that was refused: what, where, why, and what to do instead."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cellblock.render import cards as m
from cellblock.render.cards import DENIAL_JSON, JSON_VERSION, Bundle, Failure, count
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.analysis import Finding


# What is said of findings, however it is drawn: in a line, with remedies and rewrites, as data.

#: Lines of a rewrite: a guest may claim more.
_MOST_REWRITE = 2
_IN_SUMMARY = 4
#: Columns that a name is given.
NAME_COLUMNS = 40
#: Rules whose reasons are whole sentences.
ABOUT_THE_CELL = frozenset(
    {
        "argument-not-allowed",
        "cell-not-approved",
        "not-a-template",
        "relative-import",
        "source-too-complex",
        "template-not-found",
        "template-state",
    }
)


def summary(findings: Sequence[Finding]) -> str:
    """Return one line: ``2 findings: import-not-allowed at line 1 (os), …``."""
    named = [
        f"{visible(f.rule)} at line {f.line}" + (f" ({subject(f)})" if f.subject else "")
        for f in findings[:_IN_SUMMARY]
    ]
    left = len(findings) - len(named)
    more = [f"and {left:,} more"] if left else []
    return f"{count(len(findings), 'finding')}: {', '.join([*named, *more])}"


def subject(finding: Finding) -> str:
    """Return what a finding is about, visible and not too long."""
    return clip(visible(finding.subject), NAME_COLUMNS)


def remedies(findings: Sequence[Finding]) -> list[str]:
    """Return each finding's remedy, empty where an earlier finding has said it."""
    said: set[str] = set()
    told = []
    for finding in findings:
        told.append("" if finding.remedy in said else _continued(finding.remedy))
        said.add(finding.remedy)
    return told


def rewrites(findings: Sequence[Finding]) -> list[list[str]]:
    """Return each finding's rewrite by lines, none where an earlier finding has shown it."""
    shown = [finding.rewrite for finding in findings]
    return [
        []
        if text in shown[:index]
        else [visible(ln) for ln in text.split("\n")[:_MOST_REWRITE] if ln]
        for index, text in enumerate(shown)
    ]


def _continued(remedy: str) -> str:
    """Return ``remedy`` as it reads after "Instead:"; names and acronyms keep their case."""
    first, _, _ = remedy.partition(" ")
    return remedy[:1].lower() + remedy[1:] if first.istitle() and first.isalpha() else remedy


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON data: lines count from 1, columns from 0 and in characters."""
    told = {
        "rule": finding.rule,
        "line": finding.line,
        "column": finding.column,
        "end_column": finding.end_column,
        "excerpt": encodable(finding.excerpt),
        "subject": encodable(finding.subject),
        "why": encodable(finding.why),
        "remedy": encodable(finding.remedy),
    }
    more = {"detail": finding.detail, "rewrite": finding.rewrite}
    return told | {key: encodable(text) for key, text in more.items() if text}


# A source line with a mark under what a finding is about.

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


#: Findings drawn in full; a cell made of nothing but findings must not make a 10 MB card.
MAX_DRAWN = 50
MAX_JSON = 1_000
#: Below this much room beside the carets, a reason goes on lines of its own.
_MIN_REASON = 36

#: What a policy gives that adds nothing to preset safe.
AMBIENT = (
    "Mode safe allows ambient sources only: the cell's inputs, clock, randomness, bundled data."
)
_PRINCIPLED = ("builtin-", "import-")
#: Lines of a finding's detail that are drawn, and how far they are set in.
MAX_DETAIL = 80
_DETAIL_INDENT = 4


def denial(
    findings: Sequence[Finding],
    *,
    policy_name: str,
    source_label: str | None = None,
    principle: str = "",
) -> Bundle:
    """Return the card for a refused cell, as plain text, HTML and JSON.

    ``source_label`` names what was refused where "this cell" would not do; ``principle`` is what
    the policy gives, said once, beneath the first finding that it explains.
    """
    title = f"cellblock did not run {source_label or 'this cell'}"
    return {
        "text/plain": _plain(findings, title, policy_name, principle, COLUMNS),
        "text/html": _html(findings, title, policy_name, principle),
        DENIAL_JSON: _json(findings, policy_name, source_label),
    }


def denial_failure(
    findings: Sequence[Finding],
    *,
    policy_name: str,
    source_label: str | None = None,
    principle: str = "",
) -> Failure:
    """Return the error that goes with the card ``denial`` makes of the same arguments."""
    title = f"cellblock did not run {source_label or 'this cell'}"
    report = _plain(findings, title, policy_name, principle, COLUMNS)
    return Failure("PolicyDenied", summary(findings), report)


def _detail(finding: Finding) -> list[str]:
    """Return the lines of what is shown as it stands, with nothing in them that can't be seen."""
    lines = finding.detail.split("\n")[:MAX_DETAIL] if finding.detail else []
    return [visible(line) for line in lines]


def _principled(findings: Sequence[Finding]) -> int:
    """Return the index of the first finding that the mode itself explains, or -1."""
    return next((i for i, f in enumerate(findings) if f.rule.startswith(_PRINCIPLED)), -1)


def _left_over(findings: Sequence[Finding]) -> str:
    left = findings[MAX_DRAWN:]
    if not left:
        return ""
    rules = Counter(f.rule for f in left).most_common(5)
    named = ", ".join(f"{number:,} {rule}" for rule, number in rules)
    return f"And {count(len(left), 'more finding')}, up to line {left[-1].line}: {named}"


# --- plain text -------------------------------------------------------------------------------


def _plain(
    findings: Sequence[Finding], title: str, policy_name: str, principle: str, columns: int
) -> str:
    head = f"{visible(title)}: {count(len(findings), 'finding')}"
    lines = _header(head, f"policy: {clip(visible(policy_name), NAME_COLUMNS)}", columns)
    drawn = findings[:MAX_DRAWN]
    first, shown = _principled(drawn), rewrites(drawn)
    for index, (finding, remedy) in enumerate(zip(drawn, remedies(drawn), strict=True)):
        lines += ["", f"{visible(finding.rule)} · line {finding.line}"]
        lines += drawn_source(finding, columns)
        indent = " " * _DETAIL_INDENT
        lines += [f"{indent}{clip(line, columns - _DETAIL_INDENT)}" for line in _detail(finding)]
        if principle and index == first:
            lines += wrap(principle, indent="  ", columns=columns)
        if remedy:
            lines += wrap(f"Instead: {remedy}", indent="  ", columns=columns)
        lines += [f"    {clip(line, columns - 4)}" for line in shown[index]]
    if more := _left_over(findings):
        lines += ["", *wrap(more, columns=columns)]
    return "\n".join(lines)


def _header(left: str, right: str, columns: int) -> list[str]:
    gap = columns - width(left) - width(right)
    if gap >= 2:  # noqa: PLR2004  # two spaces set them apart
        return [f"{left}{' ' * gap}{right}"]
    return [*wrap(left, columns=columns), right]


def drawn_source(finding: Finding, columns: int) -> list[str]:
    """Return the source line, the carets, and the reason beside or below them."""
    number = str(finding.line)
    gutter = f"  {' ' * len(number)} │ "
    shown = window(excerpt(finding), columns - width(gutter))
    top = f"  {number} │ {shown.line}".rstrip()
    carets = f"{gutter}{' ' * shown.indent}{shown.carets} "
    # The caret points at a builtin; a module may be one name of several on its line.
    named = f"{subject(finding)} " if finding.rule == "import-not-allowed" else ""
    why = named + visible(finding.why)
    room = columns - width(carets)
    if width(why) <= room:
        return [top, f"{carets}{why}".rstrip()]
    if room >= _MIN_REASON:
        hanging = gutter + " " * (width(carets) - width(gutter))
        return [top, *wrap(why, indent=carets, hanging=hanging, columns=columns)]
    return [top, carets.rstrip(), *wrap(why, indent=gutter, columns=columns)]


# --- HTML -------------------------------------------------------------------------------------

_PRE = (
    f"margin:6px 0 0;padding:6px 8px;background:{m.SHADE};color:{m.TEXT};border:0;"
    f"border-radius:3px;font-family:{m.MONO};font-size:{m.MONO_SIZE};line-height:1.35;"
    "white-space:pre;overflow-x:auto"
)


def _html(findings: Sequence[Finding], title: str, policy_name: str, principle: str) -> m.Html:
    drawn = findings[:MAX_DRAWN]
    first, told, shown = _principled(drawn), remedies(drawn), rewrites(drawn)
    blocks = [
        _block(finding, principle if index == first else "", told[index], shown[index])
        for index, finding in enumerate(drawn)
    ]
    if more := _left_over(findings):
        blocks.append(m.paragraph(more, color=m.MUTED))
    return m.card(
        f"{title}: {count(len(findings), 'finding')}",
        *blocks,
        symbol="⊘",
        color=m.RED,
        label=f"{title}: {count(len(findings), 'finding')}",
        side=m.chip("policy", clip(visible(policy_name), NAME_COLUMNS)),
    )


def _block(finding: Finding, principle: str, remedy: str, rewrite: list[str]) -> m.Html:
    where = m.element("span", f" · line {finding.line}", style=f"color:{m.MUTED}")
    parts = [
        m.heading(m.code(finding.rule), where, level=4, style="font-size:13px;font-weight:400"),
        _source(finding.line, excerpt(finding)),
        _reason(finding),
    ]
    if finding.detail:
        parts.append(_difference(finding))
    if principle:
        parts.append(m.paragraph(principle, color=m.MUTED))
    if remedy:
        parts.append(m.paragraph(m.element("strong", "Instead: "), remedy))
    if rewrite:
        parts.append(m.element("pre", "\n".join(rewrite), style=_PRE))
    return m.element("div", *parts, style="margin-top:12px")


def _reason(finding: Finding) -> m.Html:
    """Return the reason as a sentence: most are said about their subject."""
    if finding.rule in ABOUT_THE_CELL or not finding.subject:
        return m.paragraph(finding.why[:1].upper() + finding.why[1:])
    return m.paragraph(m.code(subject(finding)), " ", finding.why)


def _difference(finding: Finding) -> m.Html:
    """Return a detail's lines in the colours of a difference."""
    colors = {"+": m.GREEN, "-": m.CARET, "@": m.MUTED}
    lines = [
        m.element("span", line, style=f"color:{colors[line[0]]}") if line[:1] in colors else line
        for line in _detail(finding)
    ]
    body = [part for line in lines for part in (line, "\n")]
    return m.element("pre", *body, style=_PRE)


def _source(line: int, shown: Excerpt) -> m.Html:
    number = str(line)
    gutter = m.element("span", f" {number} │ ", style=f"color:{m.MUTED}")
    below = m.element("span", f" {' ' * len(number)} │ ", style=f"color:{m.MUTED}")
    mark = m.element(
        "span",
        shown.marked,
        style=f"font-weight:bold;border-bottom:2px solid {m.RED}",
    )
    carets = m.element("span", shown.carets, style=f"color:{m.CARET};font-weight:bold")
    spaces = " " * shown.indent
    top = m.join(gutter, shown.before, mark, shown.after, "\n")
    return m.element("pre", top, below, spaces, carets, style=_PRE)


# --- JSON -------------------------------------------------------------------------------------


def _json(findings: Sequence[Finding], policy_name: str, source_label: str | None) -> Any:
    return {
        "version": JSON_VERSION,
        "policy": encodable(policy_name),
        "source": None if source_label is None else encodable(source_label),
        "total": len(findings),
        "findings": [finding_json(f) for f in findings[:MAX_JSON]],
    }
