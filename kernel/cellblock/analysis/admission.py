"""Admission: whether a cell may run at all, whatever the analysis says of it.

``any`` admits every cell. ``approved`` admits texts that somebody approved, by the hash of exactly
what was approved: not a blank, a line ending or a look-alike letter more or less. ``template``
admits cells that name a shipped template. Pure: whoever reads manifests and templates hands them in
as ``Admitted``, the kernel as the gate at run time and ``cellblock check`` as the one before.
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
#: Problems of one state that are told.
MAX_PROBLEMS: Final = 20


def _views(kind: Literal["bare", "with_argument"]) -> str:
    """Return a pattern for the magics that the host answers in this way."""
    return "|".join(name for name, magic in MAGICS.items() if magic.view == kind)


#: As IPython's transformer writes one that is a cell by itself; nothing in it is expanded.
_VIEW: Final = re.compile(
    r"get_ipython\(\)\.run_line_magic\("
    rf"'(?:(?P<of>{_views('with_argument')})', '(?P<argument>[A-Za-z0-9 ._-]{{0,100}})"
    rf"|(?P<whole>{_views('bare')})', ')'\)\n?"
)
_BLANKS: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Approved:
    """A text that was approved: ``source``, and the notebook and cell that it was approved in."""

    source: str
    notebook: str
    number: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a state: where (``$.rows[3].name``), by which keyword, in words."""

    path: str
    keyword: str
    message: str


@dataclass(frozen=True, slots=True)
class Template:
    """A shipped template; ``check`` returns what its schema refuses of a state."""

    name: str
    source: str
    schema: Mapping[str, Any]
    check: Callable[[Any], tuple[Problem, ...]]
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What may run: ``cells`` by their hash where it takes approval, ``templates`` by their name.

    ``remedy`` says how a cell comes to be among the approved; ``calls``, whether cells may name
    templates at all.
    """

    kind: Kind = "any"
    cells: Mapping[str, Approved] = field(default_factory=dict)
    templates: Mapping[str, Template] = field(default_factory=dict)
    remedy: str = ""
    calls: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """A template to be run, and the state that it is given."""

    template: Template
    state: Any


@dataclass(frozen=True, slots=True)
class View:
    """A view of the host's that a cell asks for, and what it says of it: no source."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision: refused by ``findings``, or admitted by what ``by`` says.

    ``run`` a template, or show a ``view``, in place of the cell's text.
    """

    findings: tuple[Finding, ...] = ()
    by: str = ""
    run: Run | None = None
    view: View | None = None


_OPEN: Final = Ruling()


def sha256(source: str) -> str:
    """Return the hash of exactly this text, as ``sha256sum`` has it of its UTF-8."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def judge(raw: str, admitted: Admitted) -> Ruling:
    """Decide about a cell as it was sent, before anything is made of it.

    Raises nothing but what looking into ``admitted`` does.
    """
    call = template_call(raw) if admitted.calls else None
    if admitted.kind == "any":
        return _OPEN if call is None else _judge_template(raw, call, admitted, "")
    if runs_nothing(raw):
        return Ruling(by="no code", view=_view(raw))
    by = ""
    if admitted.kind == "approved":
        found = admitted.cells.get(sha256(raw))
        if found is None or found.source != raw:
            span = (1, 0, _end(raw, 1))
            return Ruling((_finding(raw, "cell-not-approved", span, remedy=admitted.remedy),))
        by = f"approved in {found.notebook}, cell {found.number}"
    elif call is None:
        return Ruling((_finding(raw, "not-a-template", (1, 0, _end(raw, 1))),))
    return Ruling(by=by) if call is None else _judge_template(raw, call, admitted, by)


def judge_expression(text: str, admitted: Admitted) -> Ruling:
    """Decide about a user_expression: code that nobody approves, and no template."""
    if admitted.kind == "any":
        return _OPEN
    approved = admitted.kind == "approved"
    rule = "cell-not-approved" if approved else "not-a-template"
    why = "Expressions beside a cell are code, and only cells are approved" if approved else ""
    return Ruling((_finding(text, rule, (1, 0, _end(text, 1)), why=why),))


def runs_nothing(raw: str) -> bool:
    """Whether a cell is blank, or asks the host for one of its views and does nothing else."""
    return not raw.strip(_BLANKS) or _view(raw) is not None


def _view(raw: str) -> View | None:
    """Return the view that a cell asks for by itself; None for a cell that says anything else."""
    if not raw.lstrip(_BLANKS).startswith("%"):
        return None
    found = _VIEW.fullmatch(transform(raw).source)
    return found and View(found["of"] or found["whole"], found["argument"] or "")


# --- templates --------------------------------------------------------------------------------


def _judge_template(raw: str, call: TemplateCall, admitted: Admitted, by: str) -> Ruling:
    """Decide about a cell that names a template."""
    template = admitted.templates.get(call.name) if call.name else None
    if template is None:
        why = "" if call.said else "The name of the template is missing"
        known = sorted(admitted.templates)[:12]
        remedy = f"Shipped are: {', '.join(known)}." if known else "No template is shipped at all."
        return Ruling((_at_name(raw, call, "template-not-found", why=why, remedy=remedy),))
    try:
        state = read_state(call.body)
    except StateError as exc:
        line = min(call.line + exc.line, raw.count("\n") + 1)
        column = exc.column - 1
        span = (line, column, column + 1)
        return Ruling((_finding(raw, "template-state", span, why=f"The state: {exc.message}"),))
    if problems := template.check(state)[:MAX_PROBLEMS]:
        reasons = (f"The state, {one.path}: {one.message} ({one.keyword})" for one in problems)
        remedy = f"%template {call.name} shows the schema that a state has to fit."
        found = (_at_name(raw, call, "template-state", why=w, remedy=remedy) for w in reasons)
        return Ruling(tuple(found))
    mine = f"template {template.name} {sha256(template.source)[:16]}"
    return Ruling(by=f"{by}: {mine}" if by else mine, run=Run(template, state))


def _at_name(raw: str, call: TemplateCall, rule: str, *, why: str, remedy: str) -> Finding:
    end = _end(raw, call.line)
    start = max(0, end - len(call.said)) if call.said else 0
    said = call.said or "%%template"
    return _finding(raw, rule, (call.line, start, end), subject=said, why=why, remedy=remedy)


# --- findings ---------------------------------------------------------------------------------


def _end(raw: str, line: int) -> int:
    """Return the column at which what is visible of a line ends."""
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
