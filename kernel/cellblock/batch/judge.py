"""The verdict on the content of a file: the findings that the kernel would have, cell by cell.

Each cell is judged by the policy that would be in force when it runs. As in the kernel, a
notebook's metadata narrows the policy before the first cell, and a cell that has only ``%policy
narrow`` narrows it for the cells after it (promise P8). Findings have the lines of the source that
people wrote. Source that Python can't parse is a finding too.

The module is pure, except for the time and memory that it takes, which the processes of `check`
bound. Whatever must be looked up in files, or read by another process, is done by functions that
the caller hands in (`JudgeContext`).
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
#: The first line of a cell magic whose body is Python. The analysis has judged the body, if it is
#: Python.
_CELL_MAGIC: Final = re.compile(r"\s*%%(?:capture|prun|time|timeit)\b[^\r\n]*(?:\r\n|\r|\n)")


class JudgeContext:
    """The policy that files are judged by, and the functions that look things up.

    ``admitted`` returns the approvals for the cells of a file under a policy. ``upgrade`` returns a
    notebook of an older format in the present format.
    """

    def __init__(
        self,
        options: CheckOptions,
        admitted: Callable[[Policy, Path], Admitted],
        upgrade: Callable[[bytes], bytes],
    ) -> None:
        self.options = options
        self.admitted = admitted
        self.upgrade = upgrade
        self.rules = Rules.from_builtins(options.rules)
        self.project = Path(os.fsdecode(options.project))

    @functools.cached_property
    def policy(self) -> Policy:
        """The operator's policy, with resolved paths."""
        return self.policy_in(self.project)

    def policy_in(self, project: Path) -> Policy:
        """Return the operator's policy with ``project`` in the place of ``{project}``."""
        policy = load.from_fields(self.options.policy, file="the policy")
        folder = Path(os.fsdecode(self.options.folder))
        places = Places(policy.name, folder, project, None, here=False)
        return expand_paths_leniently(policy, places)


def judge(content: bytes, kind: FileKind, context: JudgeContext, file: Path) -> Verdict:
    """Return the verdict on the content of a notebook or script, whose path is ``file``.

    Raises:
        MemoryError: judging the file takes more memory than there is.

    """
    cells = CellJudge(context, file)
    try:
        if kind == FileKind.script:
            source = read_script(content)
            script_findings = [
                *cells.judge(source),
                *(entry(source) if context.options.template else ()),
            ]
            placed = [
                PlacedFinding(finding, 0, finding.line) for finding in sorted(script_findings)
            ]
        else:
            placed = _judge_notebook(read_notebook(content, context.upgrade), cells)
    except UnreadableError as error:
        text = "" if error.cell else _line(content, error.line, b"\n").decode(errors="replace")
        position = {"line": error.line, "column": error.column}
        finding = check_finding("file-not-readable", error.why, text=text, **position)
        placed = [PlacedFinding(finding, error.cell, 0 if error.cell else error.line)]
    except AdmissionError as error:
        why = encodable(f"cellblock can't tell which cells may run: {error}")
        return Verdict(problem=why)
    findings = tuple(map(_encodable, placed[:MAX_FINDINGS]))
    return Verdict(findings, len(placed[MAX_FINDINGS:]))


def _judge_notebook(notebook: NotebookFile, cells: CellJudge) -> list[PlacedFinding]:
    """Return the findings in a notebook's metadata, and then those in its cells, in order."""
    in_metadata = []
    try:
        cells.narrow_by_metadata(notebook)
    except PolicyError as error:
        in_metadata = [_not_narrowed(error, notebook.text)]
    in_cells = [
        (number, finding)
        for number, source in notebook.code_cells
        for finding in cells.judge(source)
    ]
    if not in_cells:
        return in_metadata
    lines = CellLines(notebook.text)
    return in_metadata + [
        PlacedFinding(finding, number, lines.file_line(number, finding.line))
        for number, finding in in_cells
    ]


def _not_narrowed(error: PolicyError, text: str) -> PlacedFinding:
    """Return the finding on a policy request in a notebook's metadata that no kernel would grant.

    It is placed at the key that asks for the policy, in the notebook's text.
    """
    widens = isinstance(error, WideningError)
    rule = narrow_requests.ONLY_NARROWS if widens else narrow_requests.NOT_KEPT
    line, start, end = key_position(text, error.key.split("."))
    value_text = "" if widens or not error.value else f": {error.value}"
    why = f"{error.key}: {error.message}{value_text}"
    report = Report(_line(text, line, "\n"), NO_RULES)
    report.add_at(rule, (1, start, end), error.key, why=why, remedy=error.remedy)
    return PlacedFinding(dataclasses.replace(report.findings[0], line=line), 0, line)


def _line(text: AnyStr, number: int, newline: AnyStr) -> AnyStr:
    """Return the line of this number, from 1, without its end."""
    start = 0
    for _ in range(number - 1):
        start = text.find(newline, start) + 1
    end = text.find(newline, start)
    return text[start : len(text) if end < 0 else end]


def _encodable(placed: PlacedFinding) -> PlacedFinding:
    """Return a finding that can be sent: source may have lone surrogates, which UTF-8 lacks."""
    finding = placed.finding
    encoded = dataclasses.replace(
        finding,
        excerpt=encodable(finding.excerpt),
        subject=encodable(finding.subject),
        why=encodable(finding.why),
    )
    return msgspec.structs.replace(placed, finding=encoded)


# --- cells, and the policy that is in force for each ----------------------------------------------


class CellJudge:
    """The judge of one file's cells, which must be judged in order.

    It keeps the state that a kernel would have by then: the policy in force, and whether there are
    variables.
    """

    def __init__(self, context: JudgeContext, file: Path) -> None:
        self._context = context
        self._rules = context.rules
        self._file = file
        #: The approvals for the file, read when the first cell needs them.
        self._admitted: Admitted | None = None
        #: The policy in force, if it is narrower than the operator's.
        self._narrowed: Policy | None = None
        #: Whether a guest would have variables by now.
        self._has_variables = False
        #: Names of refused builtins that earlier cells have bound to objects of their own.
        self._own = frozenset[str]()

    def narrow_by_metadata(self, notebook: NotebookFile) -> None:
        """Narrow the policy as a notebook's metadata asks.

        Raise PolicyError, and narrow nothing, if no kernel would run the notebook.
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
        """Return the findings that the kernel would have in the next cell.

        Raise MemoryError, and AdmissionError if the kernel would say that nothing may run.
        """
        template = self._context.options.template
        if template or exceeded_limit(raw):
            return judge_source(raw, self._rules, template=template)
        ruling = self._ruling(raw)
        if ruling is not None and ruling.findings:
            return list(ruling.findings)
        if ruling is not None and ruling.run is not None:
            # The cell names a template. Findings in the template are placed at the cell's start.
            called_template = ruling.run.template
            prefix = f"template {called_template.name}, line"
            findings = [
                self._at_start(
                    raw,
                    finding.rule,
                    f"{prefix} {finding.line}: {finding.subject} {finding.why}",
                    Remedy(finding.remedy, finding.allows),
                )
                for finding in judge_source(called_template.source, self._rules)
            ]
        elif (
            f"%{SHOWS_POLICY}" in raw
            and SHOWS_POLICY in self._rules.magics
            and narrow_requests.is_narrow_cell(raw)
        ):
            return list(self._narrow_by_cell(raw))
        else:
            findings = judge_source(raw, self._rules.with_own(self._own))
            if not findings and self._rules.language:
                self._own |= bound_builtins(transform(raw).source)
        # The kernel sends source that is not Python to a guest, which reports the syntax error. So
        # such a cell leaves a guest with variables, too.
        runs = all(finding.rule == _NO_PYTHON for finding in findings)
        self._has_variables |= bool(raw.strip()) and runs
        return findings

    def _ruling(self, raw: str) -> Ruling | None:
        """Return whether a cell is admitted; None if any cell may run and it names no template.

        Raise AdmissionError if the approvals can't be read or trusted.
        """
        context = self._context
        names_template = "template" in self._rules.magics and template_call(raw)
        if context.options.policy["admission"] == "any" and not names_template:
            return None
        if self._admitted is None:
            # Approvals belong to a project. That of a kernel is the folder of its notebook.
            policy = context.policy_in(self._file.parent)
            self._admitted = context.admitted(policy, self._file)
        try:
            return admission.judge(raw, self._admitted)
        except AdmissionError as error:
            why = f"can't be looked up: {error}"
            finding = self._at_start(raw, "template-not-found", why, error.remedy)
            return admission.Ruling((finding,))

    def _at_start(self, raw: str, rule: str, why: str, remedy: str | Remedy) -> Finding:
        report = Report(raw, self._rules)
        report.add_at(rule, (1, 0, 1), "", why=why, remedy=remedy)
        return report.findings[0]

    def _narrow_by_cell(self, raw: str) -> tuple[Finding, ...]:
        """Narrow the policy as a cell asks, or return the findings if that is refused."""
        rules = self._rules
        project = self._context.project
        wider_policy = self._context.policy if self._narrowed is None else self._narrowed
        request, findings = narrow_requests.read_cell(raw, rules)
        if findings:
            return findings
        places = Places("the cell", project, project, None, here=False)
        policy, errors = try_narrow(wider_policy, request.changes, places=places)
        if errors:
            return narrow_requests.explained(errors, request, raw, rules)
        try:
            if self._has_variables and not request.fresh:
                narrow_requests.check_keeps_guest(wider_policy, policy)
        except PolicyError as error:
            rule = narrow_requests.NOT_KEPT
            return narrow_requests.explained([error], request, raw, rules, rule)
        self._narrowed = policy
        self._rules = policy.rules()
        self._has_variables = self._has_variables and not request.fresh
        return ()


# --- the source of one cell, or of a script -------------------------------------------------------


def judge_source(raw: str, rules: Rules, *, template: bool = False) -> list[Finding]:
    """Return the kernel's findings in a cell, or else its syntax error, by the lines of ``raw``.

    Raise MemoryError.
    """
    if excess := exceeded_limit(raw):
        size, cap, unit = excess
        report = Report(raw, rules)
        why = f"is too long to check: {size:,} {unit}, and at most {cap:,} are allowed"
        report.add_at("source-too-complex", (1, 0, 1), "", why=why)
        return [report.findings[0]]
    transformed = transform(raw)
    source = transformed.source
    findings = (analyse_template if template else analyse)(source, rules) or _syntax_errors(source)
    return as_written(findings, raw, transformed) if findings else _errors_in_body(raw)


def _syntax_errors(source: str) -> list[Finding]:
    """Return the finding on a source's syntax error, if it has one.

    The kernel's analysis has no such finding: there, the guest reports the error.
    """
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
        pass  # the analysis has a finding on such source
    return []


def _errors_in_body(raw: str) -> list[Finding]:
    """Return the finding on a syntax error in the body of a cell magic, if it has one.

    The body may begin with a cell magic itself. The recursion is short, because the analysis
    refuses many magics within each other.
    """
    magic = _CELL_MAGIC.match(raw)
    if magic is None:
        return []
    body = raw[magic.end() :]
    transformed = transform(body)
    errors = _syntax_errors(transformed.source)
    findings = as_written(errors, body, transformed) if errors else _errors_in_body(body)
    lines_above = len(LINE_END.findall(magic[0]))
    return [dataclasses.replace(finding, line=finding.line + lines_above) for finding in findings]
