"""From the content of a file to its verdict: what the kernel would find in it, cell by cell.

Each cell is judged by what would be in force when it runs. As in the kernel, a notebook's metadata
narrows the policy before its first cell, and a cell of nothing but ``%policy narrow`` narrows it
for those after it (promise P8). Findings are placed in the lines that people wrote, and source that
Python can't read is found, too.

Pure but for the time and memory it takes, which the processes of `check` bound. What has to be
looked up in files, or read by another process, is handed in (`JudgeContext`).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, AnyStr, Final

import msgspec

from cellblock.analysis import (
    Finding,
    Rules,
    admission,
    analyse,
    analyse_template,
    bound_builtins,
    transform,
)
from cellblock.analysis.analyser import as_written
from cellblock.analysis.findings import LINE_END, NO_RULES, Remedy, Report
from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.analysis.templates import entry, template_call
from cellblock.analysis.transform import exceeded_limit, parse
from cellblock.batch.files import (
    CellLines,
    UnreadableError,
    key_position,
    read_notebook,
    read_script,
)
from cellblock.batch.verdict import MAX_FINDINGS, FileKind, PlacedFinding, Verdict, check_finding
from cellblock.errors import AdmissionError, PolicyError, WideningError
from cellblock.policy import load, narrow_requests
from cellblock.policy.narrowing import try_narrow
from cellblock.policy.paths import Places, expand_paths_leniently
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis.admission import Admitted, Ruling
    from cellblock.batch.files import NotebookFile
    from cellblock.batch.verdict import CheckOptions
    from cellblock.policy.model import Policy

_NO_PYTHON: Final = "source-not-python"
#: Magics whose body is Python that the analysis has looked at, if it is.
_CELL_MAGIC: Final = re.compile(r"\s*%%(?:capture|prun|time|timeit)\b[^\r\n]*(?:\r\n|\r|\n)")


class JudgeContext:
    """What files are judged by.

    ``admitted`` returns what may run of a file under a policy, ``upgrade`` a notebook of an older
    format as one of today's.
    """

    def __init__(
        self,
        options: CheckOptions,
        admitted: Callable[[Policy, Path], Admitted],
        upgrade: Callable[[bytes], bytes],
    ) -> None:
        self.options, self.admitted, self.upgrade = options, admitted, upgrade
        self.rules = Rules.from_builtins(options.rules)
        self.project = Path(os.fsdecode(options.project))

    @functools.cached_property
    def policy(self) -> Policy:
        """The operator's policy, with its paths."""
        return self.policy_in(self.project)

    def policy_in(self, project: Path) -> Policy:
        """Return the operator's policy where ``{project}`` stands for this folder."""
        policy = load.from_fields(self.options.policy, file="the policy")
        folder = Path(os.fsdecode(self.options.folder))
        places = Places(policy.name, folder, project, None, here=False)
        return expand_paths_leniently(policy, places)


def judge(content: bytes, kind: FileKind, context: JudgeContext, file: Path) -> Verdict:
    """Return the verdict on a notebook or a script, which lies at ``file``.

    Raises:
        MemoryError: it takes more memory than there is.

    """
    cells = CellJudge(context, file)
    try:
        if kind == FileKind.script:
            source = read_script(content)
            wrong = [*cells.judge(source), *(entry(source) if context.options.template else ())]
            found = [PlacedFinding(finding, 0, finding.line) for finding in sorted(wrong)]
        else:
            found = _judge_notebook(read_notebook(content, context.upgrade), cells)
    except UnreadableError as error:
        text = "" if error.cell else _line(content, error.line, b"\n").decode(errors="replace")
        where = {"line": error.line, "column": error.column}
        finding = check_finding("file-not-readable", error.why, text=text, **where)
        found = [PlacedFinding(finding, error.cell, 0 if error.cell else error.line)]
    except AdmissionError as error:
        why = encodable(f"what may run is not known: {error}")
        return Verdict(problem=why)
    findings = tuple(map(_encodable, found[:MAX_FINDINGS]))
    return Verdict(findings, len(found[MAX_FINDINGS:]))


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
    widens = isinstance(error, WideningError)
    rule = narrow_requests.ONLY_NARROWS if widens else narrow_requests.NOT_KEPT
    line, start, end = key_position(text, error.key.split("."))
    got = "" if widens or not error.value else f": {error.value}"
    why = f"{error.key}: {error.message}{got}"
    report = Report(_line(text, line, "\n"), NO_RULES)
    report.add_at(rule, (1, start, end), error.key, why=why, remedy=error.remedy)
    return PlacedFinding(dataclasses.replace(report.findings[0], line=line), 0, line)


def _line(text: AnyStr, number: int, newline: AnyStr) -> AnyStr:
    start = 0
    for _ in range(number - 1):
        start = text.find(newline, start) + 1
    end = text.find(newline, start)
    return text[start : len(text) if end < 0 else end]


def _encodable(found: PlacedFinding) -> PlacedFinding:
    """Return a finding that can be sent: source may hold lone surrogates."""
    one = found.finding
    finding = dataclasses.replace(
        one, excerpt=encodable(one.excerpt), subject=encodable(one.subject), why=encodable(one.why)
    )
    return msgspec.structs.replace(found, finding=finding)


# --- cells, and the policy that is in force for each ----------------------------------------------


class CellJudge:
    """Judges the cells of ``file`` in their order."""

    def __init__(self, context: JudgeContext, file: Path) -> None:
        self._context, self._rules, self._file = context, context.rules, file
        #: What may run, once a cell has asked.
        self._admitted: Admitted | None = None
        #: The policy in force, where it is narrower than the operator's.
        self._narrowed: Policy | None = None
        #: Whether a guest would have variables by now.
        self._has_variables = False
        #: Names of refused builtins that the cells before bound.
        self._own = frozenset[str]()

    def narrow_by_metadata(self, notebook: NotebookFile) -> None:
        """Narrow the policy as a notebook's metadata asks.

        Raise PolicyError where no kernel would run the notebook; the policy is then not narrowed.
        """
        if narrow_requests.NOTEBOOK_TABLE not in notebook.metadata:
            return
        self._narrowed = narrow_requests.narrow_for_notebook(
            notebook.metadata,
            self._context.policy,
            file=self._file,
            project=self._context.project,
            here=False,
        )
        self._rules = self._narrowed.rules()

    def judge(self, raw: str) -> list[Finding]:
        """Return what the kernel would find in the next cell.

        Raise MemoryError, and AdmissionError where the kernel would say that nothing may run.
        """
        template = self._context.options.template
        if template or exceeded_limit(raw):
            return judge_source(raw, self._rules, template=template)
        ruling = self._ruling(raw)
        if ruling is not None and ruling.findings:
            return list(ruling.findings)
        if ruling is not None and ruling.run is not None:
            # What is found in a template that a cell names is at the cell's first line.
            named = ruling.run.template
            where = f"template {named.name}, line"
            found = [
                self._at_start(
                    raw,
                    one.rule,
                    f"{where} {one.line}: {one.subject} {one.why}",
                    Remedy(one.remedy, one.allows),
                )
                for one in judge_source(named.source, self._rules)
            ]
        elif (
            f"%{SHOWS_POLICY}" in raw
            and SHOWS_POLICY in self._rules.magics
            and narrow_requests.is_narrow_cell(raw)
        ):
            return list(self._narrow_by_cell(raw))
        else:
            found = judge_source(raw, self._rules.with_own(self._own))
            if not found and self._rules.language:
                self._own |= bound_builtins(transform(raw).source)
        # Source that is no Python goes to a guest, which says so.
        runs = all(finding.rule == _NO_PYTHON for finding in found)
        self._has_variables |= bool(raw.strip()) and runs
        return found

    def _ruling(self, raw: str) -> Ruling | None:
        """Return the admission of a cell; None where any may run, and it names no template.

        Raise AdmissionError where what was approved can't be read or trusted.
        """
        context = self._context
        names_template = "template" in self._rules.magics and template_call(raw)
        if context.options.policy["admission"] == "any" and not names_template:
            return None
        if self._admitted is None:
            # A kernel's project is the folder of its notebook, and so is what approvals are for.
            policy = context.policy_in(self._file.parent)
            self._admitted = context.admitted(policy, self._file)
        try:
            return admission.judge(raw, self._admitted)
        except AdmissionError as error:
            why = f"can't be looked up: {error}"
            found = self._at_start(raw, "template-not-found", why, error.remedy)
            return admission.Ruling((found,))

    def _at_start(self, raw: str, rule: str, why: str, remedy: str | Remedy) -> Finding:
        report = Report(raw, self._rules)
        report.add_at(rule, (1, 0, 1), "", why=why, remedy=remedy)
        return report.findings[0]

    def _narrow_by_cell(self, raw: str) -> tuple[Finding, ...]:
        """Narrow the policy as a cell asks, or return why that can't be."""
        rules, project = self._rules, self._context.project
        before = self._context.policy if self._narrowed is None else self._narrowed
        request, findings = narrow_requests.read_cell(raw, rules)
        if findings:
            return findings
        places = Places("the cell", project, project, None, here=False)
        policy, wrong = try_narrow(before, request.changes, places=places)
        if wrong:
            return narrow_requests.explained(wrong, request, raw, rules)
        try:
            if self._has_variables and not request.fresh:
                narrow_requests.check_keeps_guest(before, policy)
        except PolicyError as error:
            kept = narrow_requests.NOT_KEPT
            return narrow_requests.explained([error], request, raw, rules, kept)
        self._narrowed, self._rules = policy, policy.rules()
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
