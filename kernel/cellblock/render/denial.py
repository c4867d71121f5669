"""The card for a cell that was refused: what, where, why, and what to do instead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cellblock.render import markup as m
from cellblock.render.bundle import DENIAL_JSON, JSON_VERSION, Bundle, Failure, count
from cellblock.render.excerpt import Excerpt, excerpt, window
from cellblock.render.findings import (
    ABOUT_THE_CELL,
    NAME_COLUMNS,
    finding_json,
    remedies,
    rewrites,
    subject,
    summary,
)
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.analysis import Finding

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
