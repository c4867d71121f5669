"""Admission: decides whether a cell may run at all, whatever the analysis finds in it.

``any`` admits every cell. ``approved`` admits texts that somebody approved, by the hash of exactly
that text: a blank, a line ending or a look-alike letter makes another one. ``template`` admits
cells that name a shipped template.

Pure: the callers read manifests and templates, and pass them as ``Admitted``. They are the kernel,
for each cell before it runs, and ``cellblock check``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from cellblock.analysis.findings import NO_RULES, RULES, Report
from cellblock.analysis.magic_table import MAGICS
from cellblock.analysis.templates import StateError, read_state, template_call
from cellblock.analysis.transform import transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis.findings import Finding
    from cellblock.analysis.templates import TemplateCall


Kind = Literal["any", "approved", "template"]
#: The most problems of one state that are reported.
MAX_PROBLEMS: Final = 20


def _views(kind: Literal["bare", "with_argument"]) -> str:
    """Return a pattern for the magics with a view of this kind, which the host shows."""
    return "|".join(name for name, magic in MAGICS.items() if magic.view == kind)


#: A cell that is one such magic, as IPython's transformer writes it. Its argument has no characters
#: that IPython expands.
_VIEW: Final = re.compile(
    r"get_ipython\(\)\.run_line_magic\("
    rf"'(?:(?P<of>{_views('with_argument')})', '(?P<argument>[A-Za-z0-9 ._-]{{0,100}})"
    rf"|(?P<whole>{_views('bare')})', ')'\)\n?"
)
_BLANKS: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Approved:
    """An approved text, and the notebook and the number of the cell that it was approved in."""

    source: str
    notebook: str
    number: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a state: its path (``$.rows[3].name``), the schema's keyword, and a message."""

    path: str
    keyword: str
    message: str


@dataclass(frozen=True, slots=True)
class Template:
    """A shipped template. ``check`` returns the problems of a state under its schema."""

    name: str
    source: str
    schema: Mapping[str, Any]
    check: Callable[[Any], tuple[Problem, ...]]
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The cells and templates that may run: ``cells`` by their hash, ``templates`` by name.

    ``remedy`` says how a cell is approved. ``calls``: cells may name templates.
    """

    kind: Kind = "any"
    cells: Mapping[str, Approved] = field(default_factory=dict)
    templates: Mapping[str, Template] = field(default_factory=dict)
    remedy: str = ""
    calls: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """A template to run, and the state to give it."""

    template: Template
    state: Any


@dataclass(frozen=True, slots=True)
class View:
    """A view of the host that a cell asks for, and the argument that it gives."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision: refused by ``findings``, or admitted; ``by`` says why, for the audit log.

    If set, ``run`` is a template to run, or ``view`` a view to show, in place of the cell's text.
    """

    findings: tuple[Finding, ...] = ()
    by: str = ""
    run: Run | None = None
    view: View | None = None


_OPEN: Final = Ruling()


def sha256(source: str) -> str:
    """Return the SHA-256 of exactly this text, as ``sha256sum`` prints it for its UTF-8."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def judge(raw: str, admitted: Admitted) -> Ruling:
    """Decide about a cell as it was sent, before it is transformed.

    Raises only the errors of the mappings in ``admitted``.
    """
    call = template_call(raw) if admitted.calls else None
    if admitted.kind == "any":
        return _OPEN if call is None else _judge_template(raw, call, admitted, "")
    if runs_nothing(raw):
        return Ruling(by="no code", view=_view(raw))
    approval = ""
    if admitted.kind == "approved":
        approved = admitted.cells.get(sha256(raw))
        if approved is None or approved.source != raw:
            span = (1, 0, _end(raw, 1))
            return Ruling((_finding(raw, "cell-not-approved", span, remedy=admitted.remedy),))
        approval = f"approved in {approved.notebook}, cell {approved.number}"
    elif call is None:
        return Ruling((_finding(raw, "not-a-template", (1, 0, _end(raw, 1))),))
    return Ruling(by=approval) if call is None else _judge_template(raw, call, admitted, approval)


def judge_expression(text: str, admitted: Admitted) -> Ruling:
    """Decide about a user_expression, which is code that nobody approved, and not a template."""
    if admitted.kind == "any":
        return _OPEN
    approved = admitted.kind == "approved"
    rule = "cell-not-approved" if approved else "not-a-template"
    why = "Expressions beside a cell are code, and only cells are approved" if approved else ""
    return Ruling((_finding(text, rule, (1, 0, _end(text, 1)), why=why),))


def runs_nothing(raw: str) -> bool:
    """Return whether a cell is blank, or only asks the host for a view."""
    return not raw.strip(_BLANKS) or _view(raw) is not None


def _view(raw: str) -> View | None:
    """Return the view that a cell asks for, or None for a cell with anything else in it."""
    if not raw.lstrip(_BLANKS).startswith("%"):
        return None
    match = _VIEW.fullmatch(transform(raw).source)
    return match and View(match["of"] or match["whole"], match["argument"] or "")


# --- templates --------------------------------------------------------------------------------


def _judge_template(raw: str, call: TemplateCall, admitted: Admitted, approval: str) -> Ruling:
    """Decide about a cell that names a template."""
    template = admitted.templates.get(call.name) if call.name else None
    if template is None:
        why = "" if call.said else "The name of the template is missing"
        names = sorted(admitted.templates)[:12]
        remedy = f"Templates: {', '.join(names)}." if names else "This policy has no templates."
        return Ruling((_at_name(raw, call, "template-not-found", why=why, remedy=remedy),))
    try:
        state = read_state(call.body)
    except StateError as exc:
        line = min(call.line + exc.line, raw.count("\n") + 1)
        column = exc.column - 1
        span = (line, column, column + 1)
        return Ruling((_finding(raw, "template-state", span, why=f"The state: {exc.message}"),))
    if problems := template.check(state)[:MAX_PROBLEMS]:
        reasons = (
            f"The state, {problem.path}: {problem.message} ({problem.keyword})"
            for problem in problems
        )
        remedy = f"%template {call.name} shows the schema that a state has to fit."
        findings = (
            _at_name(raw, call, "template-state", why=reason, remedy=remedy) for reason in reasons
        )
        return Ruling(tuple(findings))
    by_template = f"template {template.name} {sha256(template.source)[:16]}"
    return Ruling(
        by=f"{approval}: {by_template}" if approval else by_template, run=Run(template, state)
    )


def _at_name(raw: str, call: TemplateCall, rule: str, *, why: str, remedy: str) -> Finding:
    """Return a finding at the name in a template's call."""
    end = _end(raw, call.line)
    start = max(0, end - len(call.said)) if call.said else 0
    subject = call.said or "%%template"
    return _finding(raw, rule, (call.line, start, end), subject=subject, why=why, remedy=remedy)


# --- findings ---------------------------------------------------------------------------------


def _end(raw: str, line: int) -> int:
    """Return the column at which the visible text of a line ends."""
    return len(Report(raw, NO_RULES).line(line).rstrip())


def _finding(
    raw: str,
    rule: str,
    span: tuple[int, int, int],
    *,
    subject: str = "",
    why: str = "",
    remedy: str = "",
) -> Finding:
    report = Report(raw, NO_RULES)
    report.add_at(rule, span, subject, why=why or RULES[rule].why, remedy=remedy)
    return report.findings[0]
