"""The card for a cell that was refused: what, where, why, and what to do instead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cellblock.render import markup as m
from cellblock.render.bundle import DENIAL_JSON, JSON_VERSION, Bundle, Failure, count
from cellblock.render.excerpt import Excerpt, excerpt, window
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.analysis import Finding

#: Findings drawn in full; a cell made of nothing but findings must not make a 10 MB card.
MAX_DRAWN = 50
MAX_JSON = 1_000
_IN_SUMMARY = 4
_NAME_COLUMNS = 40
#: Below this much room beside the carets, a reason goes on lines of its own.
_MIN_REASON = 36

#: What a preset or a mode stands for, said once on a card.
PRINCIPLES = {
    "data": (
        "Policy data allows the scientific stack, the project folder's files to read, "
        "clock, randomness, bundled data."
    ),
    "safe": (
        "Mode safe allows ambient sources only: the cell's inputs, clock, randomness, bundled data."
    ),
}
_PRINCIPLED = ("builtin-", "import-")
#: Rules whose reasons are whole sentences.
_ABOUT_THE_CELL = frozenset({"argument-not-allowed", "relative-import", "source-too-complex"})


def denial(
    findings: Sequence[Finding],
    *,
    policy_name: str,
    source_label: str | None = None,
    mode: str = "",
) -> Bundle:
    """Return the card for a refused cell, as plain text, HTML and JSON.

    ``source_label`` names what was refused where "this cell" would not do, ``mode`` the
    language mode where the policy has a name of its own.
    """
    principle = _principle(policy_name, mode)
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
    mode: str = "",
) -> Failure:
    """Return the error that goes with the card ``denial`` makes of the same arguments."""
    title = f"cellblock did not run {source_label or 'this cell'}"
    principle = _principle(policy_name, mode)
    report = _plain(findings, title, policy_name, principle, COLUMNS)
    return Failure("PolicyDenied", summary(findings), report)


def _principle(policy_name: str, mode: str) -> str:
    return PRINCIPLES.get(policy_name) or PRINCIPLES.get(mode, "")


def summary(findings: Sequence[Finding]) -> str:
    """Return one line: ``2 findings: import-not-allowed at line 1 (os), …``."""
    named = [
        f"{visible(f.rule)} at line {f.line}" + (f" ({_subject(f)})" if f.subject else "")
        for f in findings[:_IN_SUMMARY]
    ]
    left = len(findings) - len(named)
    more = [f"and {left:,} more"] if left else []
    return f"{count(len(findings), 'finding')}: {', '.join([*named, *more])}"


def _subject(finding: Finding) -> str:
    return clip(visible(finding.subject), _NAME_COLUMNS)


def _remedies(findings: Sequence[Finding]) -> list[str]:
    """Return each finding's remedy, empty where an earlier finding has said it."""
    said: set[str] = set()
    remedies = []
    for finding in findings:
        remedies.append("" if finding.remedy in said else _continued(finding.remedy))
        said.add(finding.remedy)
    return remedies


def _continued(remedy: str) -> str:
    """Return ``remedy`` as it reads after "Instead:"; names and acronyms keep their case."""
    first, _, _ = remedy.partition(" ")
    return remedy[:1].lower() + remedy[1:] if first.istitle() and first.isalpha() else remedy


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
    lines = _header(head, f"policy: {clip(visible(policy_name), _NAME_COLUMNS)}", columns)
    drawn = findings[:MAX_DRAWN]
    first = _principled(drawn)
    for index, (finding, remedy) in enumerate(zip(drawn, _remedies(drawn), strict=True)):
        lines += ["", f"{visible(finding.rule)} · line {finding.line}"]
        lines += _drawn(finding, columns)
        if principle and index == first:
            lines += wrap(principle, indent="  ", columns=columns)
        if remedy:
            lines += wrap(f"Instead: {remedy}", indent="  ", columns=columns)
    if more := _left_over(findings):
        lines += ["", *wrap(more, columns=columns)]
    return "\n".join(lines)


def _header(left: str, right: str, columns: int) -> list[str]:
    gap = columns - width(left) - width(right)
    if gap >= 2:  # noqa: PLR2004  # two spaces set them apart
        return [f"{left}{' ' * gap}{right}"]
    return [*wrap(left, columns=columns), right]


def _drawn(finding: Finding, columns: int) -> list[str]:
    """Return the source line, the carets, and the reason beside or below them."""
    number = str(finding.line)
    gutter = f"  {' ' * len(number)} │ "
    shown = window(excerpt(finding), columns - width(gutter))
    top = f"  {number} │ {shown.line}".rstrip()
    carets = f"{gutter}{' ' * shown.indent}{shown.carets} "
    # The caret points at a builtin; a module may be one name of several on its line.
    named = f"{_subject(finding)} " if finding.rule == "import-not-allowed" else ""
    why = named + visible(finding.why)
    room = columns - width(carets)
    if width(why) <= room:
        return [top, f"{carets}{why}".rstrip()]
    if room >= _MIN_REASON:
        hanging = gutter + " " * (width(carets) - width(gutter))
        return [top, *wrap(why, indent=carets, hanging=hanging, columns=columns)]
    return [top, carets.rstrip(), *wrap(why, indent=gutter, columns=columns)]


# --- HTML -------------------------------------------------------------------------------------


def _html(findings: Sequence[Finding], title: str, policy_name: str, principle: str) -> m.Html:
    drawn = findings[:MAX_DRAWN]
    first = _principled(drawn)
    blocks = [
        _block(finding, principle if index == first else "", remedy)
        for index, (finding, remedy) in enumerate(zip(drawn, _remedies(drawn), strict=True))
    ]
    if more := _left_over(findings):
        blocks.append(m.paragraph(more, color=m.MUTED))
    return m.card(
        f"{title}: {count(len(findings), 'finding')}",
        *blocks,
        symbol="⊘",
        color=m.RED,
        label=f"{title}: {count(len(findings), 'finding')}",
        side=m.chip("policy", clip(visible(policy_name), _NAME_COLUMNS)),
    )


def _block(finding: Finding, principle: str, remedy: str) -> m.Html:
    where = m.element("span", f" · line {finding.line}", style=f"color:{m.MUTED}")
    parts = [
        m.heading(m.code(finding.rule), where, level=4, style="font-size:13px;font-weight:400"),
        _source(finding.line, excerpt(finding)),
        _reason(finding),
    ]
    if principle:
        parts.append(m.paragraph(principle, color=m.MUTED))
    if remedy:
        parts.append(m.paragraph(m.element("strong", "Instead: "), remedy))
    return m.element("div", *parts, style="margin-top:12px")


def _reason(finding: Finding) -> m.Html:
    """Return the reason as a sentence: most are said about their subject."""
    if finding.rule in _ABOUT_THE_CELL or not finding.subject:
        return m.paragraph(finding.why[:1].upper() + finding.why[1:])
    return m.paragraph(m.code(_subject(finding)), " ", finding.why)


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
    style = (
        f"margin:6px 0 0;padding:6px 8px;background:{m.SHADE};color:{m.TEXT};border:0;"
        f"border-radius:3px;font-family:{m.MONO};font-size:{m.MONO_SIZE};line-height:1.35;"
        "white-space:pre;overflow-x:auto"
    )
    spaces = " " * shown.indent
    top = m.join(gutter, shown.before, mark, shown.after, "\n")
    return m.element("pre", top, below, spaces, carets, style=style)


# --- JSON -------------------------------------------------------------------------------------


def _json(findings: Sequence[Finding], policy_name: str, source_label: str | None) -> Any:
    return {
        "version": JSON_VERSION,
        "policy": encodable(policy_name),
        "source": None if source_label is None else encodable(source_label),
        "total": len(findings),
        "findings": [_finding(f) for f in findings[:MAX_JSON]],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "line": finding.line,
        "column": finding.column,
        "end_column": finding.end_column,
        "excerpt": encodable(finding.excerpt),
        "subject": encodable(finding.subject),
        "why": encodable(finding.why),
        "remedy": encodable(finding.remedy),
    }
