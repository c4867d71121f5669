"""From the content of a file to its verdict: what the kernel would find in it, cell by cell.

Each cell is judged by what would be in force when it runs. As in the kernel, a notebook's metadata
narrows the policy before its first cell, and a cell of nothing but ``%policy narrow`` narrows it
for those after it (promise P8). Findings are placed in the lines that people wrote, and source that
Python can't read is found, too.

Pure but for the time and memory it takes, which `check_workers` bounds. What has to be looked up in
files is handed in (`JudgeContext`). Most of `policy` is imported late, as few files ask for less of
it.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, AnyStr, Final

import msgspec

from cellblock.analysis import (
    Finding,
    Rules,
    admission,
    analyse,
    analyse_template,
    transform,
)
from cellblock.analysis.analyser import as_written
from cellblock.analysis.findings import LINE_END, NO_RULES, Report
from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.analysis.templates import called, entry
from cellblock.analysis.transform import exceeded_limit, parse
from cellblock.batch.notebook import (
    CellLines,
    UnreadableError,
    key_position,
    read_notebook,
    read_script,
)
from cellblock.batch.verdict import (
    MAX_FINDINGS,
    FileKind,
    PlacedFinding,
    Verdict,
    check_finding,
)
from cellblock.errors import AdmissionError, PolicyError, WideningError
from cellblock.policy.paths import Places
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cellblock.analysis.admission import Admitted, Ruling, Template
    from cellblock.batch.notebook import NotebookFile
    from cellblock.policy.model import Policy

_POLICY_MAGIC: Final = f"%{SHOWS_POLICY}"
_TEMPLATE: Final = "template"
_NO_PYTHON: Final = "source-not-python"
#: The key in a notebook's metadata with what it asks for: ``policy.notebook.TABLE``.
_TABLE: Final = "cellblock"
#: Magics whose body is Python that the analysis has looked at, if it is.
_CELL_MAGIC: Final = re.compile(r"\s*%%(?:capture|prun|time|timeit)\b[^\r\n]*(?:\r\n|\r|\n)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeContext:
    """What files are judged by.

    ``policy`` returns the operator's policy with its paths, ``admitted`` what may run of a file,
    ``upgrade`` a notebook of an older format as one of today's. ``project`` is what ``{project}``
    stands for. With ``template`` each file is judged as a template.
    """

    rules: Rules
    admission: str
    template: bool
    policy: Callable[[], Policy]
    admitted: Callable[[Path], Admitted]
    upgrade: Callable[[bytes], bytes]
    project: Path


def judge(content: bytes, kind: FileKind, context: JudgeContext, file: Path) -> Verdict:
    """Return the verdict on a notebook or a script, which lies at ``file``.

    Raises:
        MemoryError: it takes more memory than there is.

    """
    cells = CellJudge(context, file)
    try:
        if kind == FileKind.script:
            found = _judge_script(read_script(content), cells, template=context.template)
        else:
            found = _judge_notebook(read_notebook(content, context.upgrade), cells)
    except UnreadableError as error:
        found = [_unreadable(error, content)]
    except AdmissionError as error:
        why = encodable(f"what may run is not known: {error}")
        return Verdict(location_matters=True, problem=why)
    findings = tuple(map(_encodable, found[:MAX_FINDINGS]))
    left_out = len(found[MAX_FINDINGS:])
    return Verdict(findings, left_out, location_matters=cells.location_matters)


def _judge_script(source: str, cells: CellJudge, *, template: bool) -> list[PlacedFinding]:
    findings = [*cells.judge(source), *(entry(source) if template else ())]
    return [PlacedFinding(finding, 0, finding.line) for finding in sorted(findings)]


def _judge_notebook(notebook: NotebookFile, cells: CellJudge) -> list[PlacedFinding]:
    """Judge the cells in order. What is wrong with the metadata comes before them."""
    before = []
    try:
        cells.narrow_by_metadata(notebook)
    except PolicyError as error:
        before = [_not_narrowed(error, notebook.text)]
    found = [
        (number, finding)
        for number, source in notebook.code_cells
        for finding in cells.judge(source)
    ]
    if not found:
        return before
    lines = CellLines(notebook.text)
    return before + [
        PlacedFinding(finding, number, lines.file_line(number, finding.line))
        for number, finding in found
    ]


def _not_narrowed(error: PolicyError, text: str) -> PlacedFinding:
    """Return why no kernel would run a notebook that asks for this policy, where it asks."""
    from cellblock.policy.narrow_requests import NOT_KEPT, ONLY_NARROWS  # noqa: PLC0415 - see above

    rule = ONLY_NARROWS if isinstance(error, WideningError) else NOT_KEPT
    line, start, end = key_position(text, error.key.split("."))
    report = Report(_line(text, line, "\n"), NO_RULES)
    got = "" if rule == ONLY_NARROWS or not error.value else f": {error.value}"
    why = f"{error.key}: {error.message}{got}"
    report.add_at(rule, (1, start, end), error.key, why=why, remedy=error.remedy)
    return PlacedFinding(dataclasses.replace(report.findings[0], line=line), 0, line)


def _unreadable(error: UnreadableError, content: bytes) -> PlacedFinding:
    text = "" if error.cell else _line(content, error.line, b"\n").decode(errors="replace")
    finding = check_finding(
        "file-not-readable", error.why, line=error.line, column=error.column, text=text
    )
    return PlacedFinding(finding, error.cell, 0 if error.cell else error.line)


def _line(text: AnyStr, number: int, newline: AnyStr) -> AnyStr:
    start = 0
    for _ in range(number - 1):
        start = text.find(newline, start) + 1
    end = text.find(newline, start)
    return text[start : len(text) if end < 0 else end]


def _encodable(found: PlacedFinding) -> PlacedFinding:
    """Return a finding that can be sent: source may hold lone surrogates."""
    finding = dataclasses.replace(
        found.finding,
        excerpt=encodable(found.finding.excerpt),
        subject=encodable(found.finding.subject),
        why=encodable(found.finding.why),
    )
    return msgspec.structs.replace(found, finding=finding)


# --- cells, and the policy that is in force for each ----------------------------------------------


class CellJudge:
    """Judges the cells of ``file`` in their order.

    ``location_matters`` says whether what was found depends on folders and what is in them.
    """

    def __init__(self, context: JudgeContext, file: Path) -> None:
        self._context, self._rules, self._file = context, context.rules, file
        #: What may run, once a cell has asked.
        self._admitted: Admitted | None = None
        #: The policy in force, once something has asked for it.
        self._policy: Policy | None = None
        #: Whether a guest would have variables by now.
        self._has_variables = False
        self.location_matters = False

    def narrow_by_metadata(self, notebook: NotebookFile) -> None:
        """Narrow the policy as a notebook's metadata asks.

        Raise PolicyError where no kernel would run the notebook; the policy is then not narrowed.
        """
        request = notebook.metadata.get(_TABLE)
        if request is None:
            return
        from cellblock.policy.narrow_requests import of_notebook  # noqa: PLC0415 - see above
        from cellblock.policy.narrowing import names_paths  # noqa: PLC0415 - see above

        self.location_matters |= isinstance(request, dict) and names_paths(request.get("policy"))
        whole, project = {"metadata": notebook.metadata}, self._context.project
        policy = self._policy_in_force()
        self._enforce(of_notebook(whole, policy, file=self._file, project=project, here=False))

    def judge(self, raw: str) -> list[Finding]:
        """Return what the kernel would find in the next cell.

        Raise MemoryError, and AdmissionError where the kernel would say that nothing may run.
        """
        if self._context.template or exceeded_limit(raw):
            return judge_source(raw, self._rules, template=self._context.template)
        ruling = self._ruling(raw)
        if ruling is not None and ruling.findings:
            return list(ruling.findings)
        run = ruling.run if ruling is not None else None
        if run is None and self._narrows_policy(raw):
            return list(self._narrow_by_cell(raw))
        found = self._judge_template(raw, run.template) if run else judge_source(raw, self._rules)
        # Source that is no Python goes to a guest, which says so.
        runs = all(finding.rule == _NO_PYTHON for finding in found)
        self._has_variables |= bool(raw.strip()) and runs
        return found

    def _ruling(self, raw: str) -> Ruling | None:
        """Return the admission of a cell; None where any may run, and it names no template.

        Raise AdmissionError where what was approved can't be read or trusted.
        """
        names_template = _TEMPLATE in self._rules.magics and called(raw)
        if self._context.admission == "any" and not names_template:
            return None
        self.location_matters = True
        if self._admitted is None:
            self._admitted = self._context.admitted(self._file)
        try:
            return admission.judge(raw, self._admitted)
        except AdmissionError as error:
            why = f"can't be looked up: {error}"
            found = self._at_start(raw, "template-not-found", why, error.remedy)
            return admission.Ruling((found,))

    def _judge_template(self, raw: str, template: Template) -> list[Finding]:
        """Return what is found in a template that a cell names, at the cell's first line."""
        return [
            self._at_start(
                raw,
                one.rule,
                f"template {template.name}, line {one.line}: {one.subject} {one.why}",
                one.remedy,
            )
            for one in judge_source(template.source, self._rules)
        ]

    def _at_start(self, raw: str, rule: str, why: str, remedy: str) -> Finding:
        report = Report(raw, self._rules)
        report.add_at(rule, (1, 0, 1), "", why=why, remedy=remedy)
        return report.findings[0]

    def _policy_in_force(self) -> Policy:
        if self._policy is None:
            self._policy = self._context.policy()
        return self._policy

    def _enforce(self, policy: Policy) -> None:
        self._policy, self._rules = policy, policy.rules()

    def _narrows_policy(self, raw: str) -> bool:
        if _POLICY_MAGIC not in raw or SHOWS_POLICY not in self._rules.magics:
            return False
        from cellblock.policy.narrow_requests import is_alone  # noqa: PLC0415 - see above

        return is_alone(raw)

    def _narrow_by_cell(self, raw: str) -> tuple[Finding, ...]:
        """Narrow the policy as a cell asks, or return why that can't be."""
        from cellblock.policy import narrow_requests as narrowing  # noqa: PLC0415 - see above
        from cellblock.policy.narrowing import names_paths, weigh  # noqa: PLC0415 - see above

        rules, before, project = self._rules, self._policy_in_force(), self._context.project
        request, findings = narrowing.read_cell(raw, rules)
        if findings:
            return findings
        self.location_matters |= names_paths(request.changes)
        places = Places("the cell", project, project, None, here=False)
        policy, wrong = weigh(before, request.changes, places=places)
        if wrong:
            return narrowing.explained(wrong, request, raw, rules)
        try:
            if self._has_variables and not request.fresh:
                narrowing.check_keeps_guest(before, policy)
        except PolicyError as error:
            return narrowing.not_kept(error, request, raw, rules)
        self._enforce(policy)
        self._has_variables = self._has_variables and not request.fresh
        return ()


# --- the source of one cell, or of a script -------------------------------------------------------


def judge_source(raw: str, rules: Rules, *, template: bool = False) -> list[Finding]:
    """Return what the kernel would find in a cell, by the lines of ``raw``, and syntax errors.

    Raise MemoryError.
    """
    if excess := exceeded_limit(raw):
        has, cap, what = excess
        report = Report(raw, rules)
        why = f"is too long to be looked at: {has:,} {what}, and {cap:,} are the most"
        report.add_at("source-too-complex", (1, 0, 1), "", why=why)
        return [report.findings[0]]
    transformed = transform(raw)
    source = transformed.source
    found = (analyse_template if template else analyse)(source, rules) or _syntax_errors(source)
    return as_written(found, raw, transformed) if found else _errors_in_body(raw)


def _syntax_errors(source: str) -> list[Finding]:
    """Return the syntax error, if there is one: the kernel leaves that to the guest."""
    try:
        parse(source)
    except SyntaxError as error:
        lines = LINE_END.split(source)
        line = min(max(1, error.lineno or 1), len(lines))
        text = lines[line - 1]
        column = min(max(0, (error.offset or 1) - 1), len(text))
        why = f"is not Python: {error.msg}"
        return [check_finding(_NO_PYTHON, why, line=line, column=column, text=text)]
    except (ValueError, RecursionError):
        pass  # the analysis has reported it
    return []


def _errors_in_body(raw: str) -> list[Finding]:
    """Return the syntax error in the code that a cell magic carries.

    The recursion is short: the analysis refuses many magics within each other.
    """
    magic = _CELL_MAGIC.match(raw)
    if magic is None:
        return []
    body = raw[magic.end() :]
    transformed = transform(body)
    errors = _syntax_errors(transformed.source)
    found = as_written(errors, body, transformed) if errors else _errors_in_body(body)
    above = len(LINE_END.findall(magic[0]))
    return [dataclasses.replace(each, line=each.line + above) for each in found]
