"""A file's content to a verdict: its cells in order, with places as they were written.

PURE but for the time and memory that it takes; ``batch.check_workers`` bounds those.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, AnyStr, Final

import msgspec

from cellblock.analysis import Finding, Rules, analyse, analyse_template, analyser, transform
from cellblock.analysis.analyser import as_written
from cellblock.analysis.findings import LINE_END, NO_RULES, Report
from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.analysis.templates import called, entry
from cellblock.analysis.transform import parse
from cellblock.batch.notebook import Places, UnreadableError, place_of, read_notebook, read_script
from cellblock.batch.verdict import MOST_FOUND, Found, Kind, Verdict, own_finding
from cellblock.errors import AdmissionError, PolicyError, WideningError
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.admission import Admitted, Ruling, Template
    from cellblock.batch.notebook import Notebook
    from cellblock.policy.model import Policy


# The source of one cell, or of a script, to findings: the kernel's own analysis.
#
# What is found is told by the lines that people wrote, and source that no Python reads is found,
# too. PURE.

#: Magics whose body is Python that the analysis has looked at, if it is.
_CELL_MAGIC: Final = re.compile(r"\s*%%(?:capture|prun|time|timeit)\b[^\r\n]*(?:\r\n|\r|\n)")


def judge_source(raw: str, rules: Rules, *, template: bool = False) -> list[Finding]:
    """Return what the kernel would find in a cell, by the lines of ``raw``, and if it is no code.

    Raises MemoryError.
    """
    if excess := analyser.excess(raw):
        return [_too_long(raw, rules, *excess)]
    transformed = transform(raw)
    source = transformed.source
    found = (analyse_template if template else analyse)(source, rules) or _syntax_errors(source)
    return as_written(found, raw, transformed) if found else _errors_in_body(raw)


def _too_long(raw: str, rules: Rules, has: int, cap: int, what: str) -> Finding:
    report = Report(raw, rules)
    why = f"is too long to be looked at: {has:,} {what}, and {cap:,} are the most"
    report.add_at("source-too-complex", (1, 0, 1), "", why=why)
    return report.findings[0]


def _syntax_errors(source: str) -> list[Finding]:
    """Return where Python gives up, if it does: the kernel lets that through and nothing runs."""
    try:
        parse(source)
    except SyntaxError as error:
        lines = LINE_END.split(source)
        line = min(max(1, error.lineno or 1), len(lines))
        text = lines[line - 1]
        column = min(max(0, (error.offset or 1) - 1), len(text))
        why = f"is not Python: {error.msg}"
        return [own_finding("source-not-python", why, line=line, column=column, text=text)]
    except (ValueError, RecursionError):
        pass  # the analysis has told
    return []


def _errors_in_body(raw: str) -> list[Finding]:
    """Return where Python gives up in the code that a cell magic carries.

    Magics within magics are few here: the analysis has refused more.
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


# The cells of one file in their order: each is judged by what is in force when it would run.
#
# That is what the kernel has: a notebook's metadata narrows the policy before its first cell,
# and a cell of nothing but ``%policy narrow`` narrows it for those behind it (promise P8). PURE:
# what lies in files is handed in.

_SHOWS_POLICY: Final = f"%{SHOWS_POLICY}"
_TEMPLATE: Final = "template"
_NO_PYTHON: Final = "source-not-python"
#: Where a notebook's metadata says what it leaves: ``policy.notebook.TABLE``, which few files take.
_TABLE: Final = "cellblock"


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """What files are judged by, and whether each is a template's.

    ``policy`` makes the operator's, with its paths, and ``admitted`` says what may run of a file:
    few take either. ``project`` is what ``{project}`` stands for.
    """

    rules: Rules
    admission: str
    template: bool
    policy: Callable[[], Policy]
    admitted: Callable[[Path], Admitted]
    project: Path


class Cells:
    """What is in force, from cell to cell of ``file``."""

    def __init__(self, by: By, file: Path) -> None:
        self._by, self._rules, self._file = by, by.rules, file
        #: What may run, where something has asked.
        self._admitted: Admitted | None = None
        #: The policy in force, where something has asked for it.
        self._policy: Policy | None = None
        #: Whether a guest would have variables by now.
        self._used = False
        #: Whether what is found depends on folders, too, and on what is there.
        self.placed = False

    def narrow_as(self, notebook: Notebook, file: Path) -> None:
        """Have what a notebook's metadata leaves of the policy.

        Raises PolicyError where no kernel would run it; then it has the operator's.
        """
        asked = notebook.metadata.get(_TABLE)
        if asked is None:
            return
        from cellblock.policy.narrow_requests import of_notebook  # noqa: PLC0415 - as above
        from cellblock.policy.narrowing import names_paths  # noqa: PLC0415 - few files ask

        self.placed |= isinstance(asked, dict) and names_paths(asked.get("policy"))
        whole, project = {"metadata": notebook.metadata}, self._by.project
        self._have(of_notebook(whole, self._in_force(), file=file, project=project, here=False))

    def judge(self, raw: str) -> list[Finding]:
        """Return what the kernel would find in the next cell.

        Raises MemoryError, and AdmissionError where it would say that nothing may run.
        """
        if self._by.template or analyser.excess(raw):
            return judge_source(raw, self._rules, template=self._by.template)
        ruling = self._ruling(raw)
        if ruling is not None and ruling.findings:
            return list(ruling.findings)
        run = ruling.run if ruling is not None else None
        if run is None and self._narrows(raw):
            return list(self._narrowed_by(raw))
        found = self._of_template(raw, run.template) if run else judge_source(raw, self._rules)
        # What is no Python goes to a guest, which says so.
        self._used |= bool(raw.strip()) and all(one.rule == _NO_PYTHON for one in found)
        return found

    # --- which cells may run --------------------------------------------------------------------

    def _ruling(self, raw: str) -> Ruling | None:
        """Return what is ruled of a cell; None where any may run, and it names no template.

        Raises AdmissionError where what was approved can't be read, or trusted.
        """
        if self._by.admission == "any" and not (_TEMPLATE in self._rules.magics and called(raw)):
            return None
        from cellblock.analysis import admission  # noqa: PLC0415 - few files ask

        self.placed = True
        if self._admitted is None:
            self._admitted = self._by.admitted(self._file)
        try:
            return admission.judge(raw, self._admitted)
        except AdmissionError as error:
            why = f"can't be looked up: {error}"
            found = self._at_start(raw, "template-not-found", why, error.remedy)
            return admission.Ruling((found,))

    def _of_template(self, raw: str, template: Template) -> list[Finding]:
        """Return what is found in a template that a cell names, at the cell's first line."""
        return [
            self._at_start(raw, one.rule, self._told(template, one), one.remedy)
            for one in judge_source(template.source, self._rules)
        ]

    @staticmethod
    def _told(template: Template, one: Finding) -> str:
        return f"template {template.name}, line {one.line}: {one.subject} {one.why}"

    def _at_start(self, raw: str, rule: str, why: str, remedy: str) -> Finding:
        report = Report(raw, self._rules)
        report.add_at(rule, (1, 0, 1), "", why=why, remedy=remedy)
        return report.findings[0]

    # --- what is in force -----------------------------------------------------------------------

    def _in_force(self) -> Policy:
        if self._policy is None:
            self._policy = self._by.policy()
        return self._policy

    def _have(self, policy: Policy) -> None:
        self._policy, self._rules = policy, policy.rules()

    def _narrows(self, raw: str) -> bool:
        if _SHOWS_POLICY not in raw or SHOWS_POLICY not in self._rules.magics:
            return False
        from cellblock.policy.narrow_requests import is_alone  # noqa: PLC0415 - as above

        return is_alone(raw)

    def _narrowed_by(self, raw: str) -> tuple[Finding, ...]:
        """Have what a cell leaves of the policy, or return why it can't be had."""
        from cellblock.policy import narrow_requests as narrowing  # noqa: PLC0415 - as above
        from cellblock.policy.narrowing import names_paths, weigh  # noqa: PLC0415 - as above
        from cellblock.policy.paths import Places  # noqa: PLC0415 - as above

        rules, before, project = self._rules, self._in_force(), self._by.project
        asked, findings = narrowing.read_cell(raw, rules)
        if findings:
            return findings
        self.placed |= names_paths(asked.changes)
        places = Places("the cell", project, project, None, here=False)
        policy, wrong = weigh(before, asked.changes, places=places)
        if wrong:
            return narrowing.explained(wrong, asked, raw, rules)
        try:
            if self._used and not asked.fresh:
                narrowing.check_keeps_guest(before, policy)
        except PolicyError as error:
            return narrowing.not_kept(error, asked, raw, rules)
        self._have(policy)
        self._used = self._used and not asked.fresh
        return ()


def judge(content: bytes, kind: Kind, by: By, file: Path) -> Verdict:
    """Return what is found in a notebook or a script, which lies at ``file``.

    Raises:
        MemoryError: it takes more than there is.

    """
    cells = Cells(by, file)
    try:
        if kind == Kind.script:
            found = _judge_script(read_script(content), cells, template=by.template)
        else:
            found = _judge_notebook(read_notebook(content), cells, file)
    except UnreadableError as error:
        found = [_unreadable(error, content)]
    except AdmissionError as error:
        return Verdict(placed=True, problem=encodable(f"what may run is not known: {error}"))
    told = tuple(map(_carried, found[:MOST_FOUND]))
    return Verdict(told, len(found[MOST_FOUND:]), placed=cells.placed)


def _judge_script(source: str, cells: Cells, *, template: bool) -> list[Found]:
    each = [*cells.judge(source), *(entry(source) if template else ())]
    return [Found(finding, 0, finding.line) for finding in sorted(each)]


def _judge_notebook(notebook: Notebook, cells: Cells, file: Path) -> list[Found]:
    """Judge the cells in order. Metadata that no kernel takes is found before them."""
    try:
        cells.narrow_as(notebook, file)
        before = []
    except PolicyError as error:
        before = [_not_narrowed(error, notebook.text)]
    found = [
        (cell.number, finding) for cell in notebook.cells for finding in cells.judge(cell.source)
    ]
    if not found:
        return before
    places = Places(notebook.text)
    each = (Found(one, cell, places.file_line(cell, one.line)) for cell, one in found)
    return [*before, *each]


def _not_narrowed(error: PolicyError, text: str) -> Found:
    """Return why no kernel would run a notebook that asks for this, where it asks."""
    from cellblock.policy.narrow_requests import NOT_KEPT, ONLY_NARROWS  # noqa: PLC0415 - few notebooks ask

    rule = ONLY_NARROWS if isinstance(error, WideningError) else NOT_KEPT
    line, start, end = place_of(text, error.key.split("."))
    report = Report(_line(text, line, "\n"), NO_RULES)
    got = "" if rule == ONLY_NARROWS or not error.value else f": {error.value}"
    why = f"{error.key}: {error.message}{got}"
    report.add_at(rule, (1, start, end), error.key, why=why, remedy=error.remedy)
    return Found(dataclasses.replace(report.findings[0], line=line), 0, line)


def _unreadable(error: UnreadableError, content: bytes) -> Found:
    text = "" if error.cell else _line(content, error.line, b"\n").decode(errors="replace")
    finding = own_finding(
        "file-not-readable", error.why, line=error.line, column=error.column, text=text
    )
    return Found(finding, error.cell, 0 if error.cell else error.line)


def _line(text: AnyStr, number: int, newline: AnyStr) -> AnyStr:
    start = 0
    for _ in range(number - 1):
        start = text.find(newline, start) + 1
    end = text.find(newline, start)
    return text[start : len(text) if end < 0 else end]


def _carried(found: Found) -> Found:
    """Return what can be sent: source may hold half a letter."""
    finding = found.finding
    carried = dataclasses.replace(
        finding,
        excerpt=encodable(finding.excerpt),
        subject=encodable(finding.subject),
        why=encodable(finding.why),
    )
    return msgspec.structs.replace(found, finding=carried)
