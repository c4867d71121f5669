"""The cells of one file in their order: each is judged by what is in force when it would run.

That is what the kernel has: a notebook's metadata narrows the policy before its first cell, and a
cell of nothing but ``%policy narrow`` narrows it for those behind it (promise P8). PURE: what lies
in files is handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.analysis import size
from cellblock.analysis.findings import Report
from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.analysis.templates import called
from cellblock.batch.source import judge_source
from cellblock.errors import AdmissionError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.admission import Admitted, Ruling, Template
    from cellblock.batch.notebook import Notebook
    from cellblock.policy.model import Policy

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
        from cellblock.policy.narrowing import names_paths  # noqa: PLC0415 - few files ask
        from cellblock.policy.notebook import of_notebook  # noqa: PLC0415 - as above

        self.placed |= isinstance(asked, dict) and names_paths(asked.get("policy"))
        whole, project = {"metadata": notebook.metadata}, self._by.project
        self._have(of_notebook(whole, self._in_force(), file=file, project=project, here=False))

    def judge(self, raw: str) -> list[Finding]:
        """Return what the kernel would find in the next cell.

        Raises MemoryError, and AdmissionError where it would say that nothing may run.
        """
        if self._by.template or size.excess(raw):
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
        from cellblock.policy.cell import is_alone  # noqa: PLC0415 - as above

        return is_alone(raw)

    def _narrowed_by(self, raw: str) -> tuple[Finding, ...]:
        """Have what a cell leaves of the policy, or return why it can't be had."""
        from cellblock.policy import cell as narrowing  # noqa: PLC0415 - as above
        from cellblock.policy.narrowing import names_paths, weigh  # noqa: PLC0415 - as above
        from cellblock.policy.paths import Places  # noqa: PLC0415 - as above

        rules, before, project = self._rules, self._in_force(), self._by.project
        asked, findings = narrowing.read(raw, rules)
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
