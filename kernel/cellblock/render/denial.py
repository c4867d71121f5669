"""Cards for what was refused (a cell, a widget, a comm): what, why, and what to do instead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.policy.vocabulary import HOST_TARGETS
from cellblock.render import cards as c
from cellblock.render.cards import DENIAL_JSON, NAME_COLUMNS, Bundle, Failure, count
from cellblock.render.text import COLUMNS, ELLIPSIS, clip, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.analysis import Finding

#: Findings drawn in full; a cell made of nothing but findings must not make a 10 MB card.
_MAX_DRAWN = 50
_MAX_JSON = 1_000
#: Below this much room beside the carets, a reason goes on lines of its own.
_MIN_REASON = 36
#: Lines of a rewrite: a guest may claim more.
_MAX_REWRITE = 2
_IN_SUMMARY = 4
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


def reason(finding: Finding) -> str:
    """Return why a finding is one: ``open opens files``."""
    if finding.rule in ABOUT_THE_CELL or not finding.subject:
        return finding.why[:1].upper() + finding.why[1:]
    return f"{subject(finding)} {finding.why}"


def remedies(findings: Sequence[Finding]) -> list[str]:
    """Return each finding's remedy, empty where an earlier finding has the same."""
    seen, shown = set[str](), []
    for text in (finding.remedy for finding in findings):
        first = text.partition(" ")[0]
        # Names and acronyms keep their case.
        lowered = text[:1].lower() + text[1:] if first.istitle() and first.isalpha() else text
        shown.append("" if text in seen else lowered)
        seen.add(text)
    return shown


def rewrites(findings: Sequence[Finding]) -> list[list[str]]:
    """Return the lines of each finding's rewrite, none where an earlier finding has the same."""
    texts, shown = [finding.rewrite for finding in findings], []
    for index, text in enumerate(texts):
        lines = [] if text in texts[:index] else text.split("\n")[:_MAX_REWRITE]
        shown.append([visible(line) for line in lines if line])
    return shown


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON data: lines count from 1, columns from 0 and in characters.

    ``cut`` is there where the excerpt is a part of a long line: how many characters are left out.
    """
    names = ["rule", "line", "column", "end_column", "excerpt", "subject", "why", "remedy"]
    names += [name for name in ("cut", "rewrite") if getattr(finding, name)]
    return {name: c.as_json(getattr(finding, name)) for name in names}


# --- a source line with a mark under what a finding is about ----------------------------------


class Excerpt(NamedTuple):
    """One source line, split around its mark; every part is visible text."""

    before: str
    marked: str
    after: str

    @property
    def line(self) -> str:
        """The whole line."""
        return "".join(self)

    @property
    def carets(self) -> str:
        """A caret for each column of the mark, at least one, below their characters."""
        return f"{' ' * width(self.before)}{'^' * max(1, width(self.marked))}"


def excerpt(finding: Finding) -> Excerpt:
    """Split a finding's source line around the characters it refuses."""
    text = finding.excerpt
    start = min(max(0, finding.column - finding.cut), len(text))
    end = start + max(1, finding.end_column - finding.column)
    before = (ELLIPSIS if finding.cut else "") + visible(text[:start])
    return Excerpt(before, visible(text[start:end]), visible(text[end:]))


def _window(shown: Excerpt, columns: int) -> Excerpt:
    """Return ``shown`` cut to ``columns``, keeping the start of the mark in view."""
    if width(shown.line) <= columns:
        return shown
    before = shown.before
    if width(before) > columns // 3:
        while before and (width(before) > columns // 3 - 1 or not width(before[0])):
            before = before[1:]
        before = ELLIPSIS + before
    marked = clip(shown.marked, columns - width(before))
    room = columns - width(before) - width(marked)
    return Excerpt(before, marked, clip(shown.after, room) if room > 0 else "")


# --- the card for a refused cell --------------------------------------------------------------


def denial(
    findings: Sequence[Finding], *, policy_name: str, source_label: str | None = None
) -> Bundle:
    """Return the card for a refused cell, as plain text, HTML and JSON.

    ``source_label`` names what was refused where "this cell" would not do.
    """
    found = count(len(findings), "finding")
    title = f"cellblock did not run {source_label or 'this cell'}: {found}"
    policy = f"policy: {clip(visible(policy_name), NAME_COLUMNS)}"
    gap = " " * (COLUMNS - width(visible(title)) - width(policy))
    lines = [f"{visible(title)}{gap}{policy}"] if len(gap) > 1 else [*wrap(visible(title)), policy]
    drawn, body = findings[:_MAX_DRAWN], list[str]()
    for texts in zip(drawn, remedies(drawn), rewrites(drawn), strict=True):
        lines += _plain_finding(*texts)
        body.append(_html_finding(*texts))
    if left := findings[_MAX_DRAWN:]:
        rules = Counter(f.rule for f in left).most_common(5)
        named = ", ".join(f"{number:,} {rule}" for rule, number in rules)
        more = f"And {count(len(left), 'more finding')}, up to line {left[-1].line}: {named}"
        lines += ["", *wrap(more)]
        body.append(c.paragraph(more, color=c.MUTED))
    return c.make_card(
        title,
        *body,
        lines=lines,
        symbol="⊘",
        color=c.RED,
        side=c.policy_chip(policy_name),
        mime=DENIAL_JSON,
        data={
            "policy": policy_name,
            "source": source_label,
            "total": len(findings),
            "findings": [finding_json(f) | {"reason": reason(f)} for f in findings[:_MAX_JSON]],
        },
    )


def denial_failure(card: Bundle, findings: Sequence[Finding]) -> Failure:
    """Return the error that goes with a card that ``denial`` made of ``findings``."""
    return Failure("PolicyDenied", summary(findings), card["text/plain"])


def _plain_finding(finding: Finding, remedy: str, rewrite: Sequence[str]) -> list[str]:
    lines = ["", f"{visible(finding.rule)} · line {finding.line}"]
    lines += drawn_source(finding, COLUMNS)
    if remedy:
        lines += c.instead(remedy)[1]
    return lines + [f"    {clip(line, COLUMNS - 4)}" for line in rewrite]


def drawn_source(finding: Finding, columns: int) -> list[str]:
    """Return the source line, the carets, and the reason beside or below them."""
    number = str(finding.line)
    gutter = f"  {' ' * len(number)} │ "
    shown = _window(excerpt(finding), columns - width(gutter))
    top = f"  {number} │ {shown.line}".rstrip()
    carets = f"{gutter}{shown.carets} "
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


_PRE = (
    f"margin:6px 0 0;padding:6px 8px;background:{c.SHADE};color:{c.TEXT};border:0;"
    f"border-radius:3px;font-family:{c.MONO};font-size:{c.MONO_SIZE};line-height:1.35;"
    "white-space:pre;overflow-x:auto"
)


def _html_finding(finding: Finding, remedy: str, rewrite: Sequence[str]) -> c.Html:
    where = c.element("span", f" · line {finding.line}", style=f"color:{c.MUTED}")
    parts = [
        c.heading(c.code(finding.rule), where, level=4, style="font-size:13px;font-weight:400"),
        _html_source(finding.line, excerpt(finding)),
    ]
    if finding.rule in ABOUT_THE_CELL or not finding.subject:
        parts.append(c.paragraph(reason(finding)))
    else:
        parts.append(c.paragraph(c.code(subject(finding)), " ", finding.why))
    if remedy:
        parts.append(c.instead(remedy)[0])
    if rewrite:
        parts.append(c.element("pre", "\n".join(rewrite), style=_PRE))
    return c.element("div", *parts, style="margin-top:12px")


def _html_source(line: int, shown: Excerpt) -> c.Html:
    above, below = f" {line} │ ", f" {' ' * len(str(line))} │ "
    muted, bold = f"color:{c.MUTED}", f"font-weight:bold;border-bottom:2px solid {c.RED}"
    indent = shown.carets.rstrip("^")
    return c.element(
        "pre",
        c.element("span", above, style=muted),
        shown.before,
        c.element("span", shown.marked, style=bold),
        shown.after,
        "\n",
        c.element("span", below, style=muted),
        indent,
        c.element("span", shown.carets.strip(), style=f"color:{c.CARET};font-weight:bold"),
        style=_PRE,
    )


# --- the cards for comms: a widget not shown, a comm not opened, parts left out ---------------

COMM_JSON: Final = "application/vnd.cellblock.comm+json"
_LONGEST: Final = 100
_RIGHTS: Final = "it would run in the page, with all that you may do there."


def refused_widget(module: str, model: str, *, policy_name: str, known: bool) -> Bundle:
    """Return the card for a widget whose model is not allowed.

    ``known`` says that its module is allowed and only the model is not known.
    """
    module, model = clip(module or "(none)", _LONGEST), clip(model or "(none)", _LONGEST)
    title = f"cellblock did not show a widget of {module}"
    if known:
        why = f"{model} is none of the widgets of {module} that cellblock knows how to clean."
        remedy = "use one of ipywidgets' own, or show the value itself."
    else:
        why = f"{model} brings a script of its own: {_RIGHTS}"
        remedy = (
            "use one of ipywidgets' own, or a picture, or put "
            f'add.widget_modules = ["{module}"] in your policy file.'
        )
    return _refusal(title, why, remedy, policy_name, {"module": module, "model": model})


def refused_comm(target: str, *, policy_name: str) -> Bundle:
    """Return the card for a comm whose target is not allowed."""
    target = clip(target or "(none)", _LONGEST)
    title = f"cellblock did not open a comm to {target}"
    if target.startswith(HOST_TARGETS):
        why = "Through it the host itself speaks with the front end: no cell has a part in that."
        return _refusal(title, why, "choose another name.", policy_name, {"target": target})
    why = f"An extension of the front end listens there: what it is told to do, {_RIGHTS}"
    remedy = f'put add.comm_targets = ["{target}"] in your policy file.'
    return _refusal(title, why, remedy, policy_name, {"target": target})


def _refusal(title: str, why: str, remedy: str, policy_name: str, data: dict[str, str]) -> Bundle:
    shown, remedy_lines = c.instead(remedy)
    return c.make_card(
        title,
        c.paragraph(why),
        shown,
        lines=[*wrap(title), *wrap(why, indent="  "), *remedy_lines],
        symbol="⊘",
        color=c.AMBER,
        side=c.policy_chip(policy_name),
        mime=COMM_JSON,
        data={"outcome": "refused", **data},
    )


def cleaned_widgets(parts: Sequence[tuple[str, str, str]], *, policy_name: str) -> Bundle:
    """Return the card for parts of widgets that were left out: model, key, why."""
    title = f"cellblock left out {count(len(parts), 'part')} of the widgets above"
    rows = [(clip(f"{model}.{key}", 60), clip(why, _LONGEST)) for model, key, why in parts]
    lines = wrap(title)
    for name, why in rows:
        lines += wrap(f"{name}: {why}", indent="  ", hanging="    ")
    return c.make_card(
        title,
        *(c.paragraph(c.code(name), " ", why, tight=True) for name, why in rows),
        lines=lines,
        symbol="◐",
        color=c.AMBER,
        side=c.policy_chip(policy_name),
        mime=COMM_JSON,
        data={"outcome": "cleaned", "parts": [{"part": n, "why": why} for n, why in rows]},
    )
