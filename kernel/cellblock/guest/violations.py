"""What user code sees when it does what the policy refuses; and what of the guest's own is exempt.

Each violation is the natural exception, too, so that honest ``except`` clauses go on working.
The audit hook lets calls pass that the guest makes by ``run_exempt``, and that no cell may make.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any

from cellblock.analysis.findings import in_a_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Finding, Rules


class PolicyViolation(Exception):
    """The policy refuses what was tried; nothing was done."""

    def __init__(self, rule: str, subject: str, why: str, remedy: str) -> None:
        super().__init__(f"{rule}: {subject} {why}. {remedy}".strip())
        self.rule, self.subject, self.why, self.remedy = rule, subject, why, remedy

    def __str__(self) -> str:
        return str(self.args[0])


def violation_of(finding: Finding, rules: Rules) -> PolicyViolation:
    """Return the violation that says what a finding does, to be raised."""
    remedy = in_a_line(finding.remedy, finding.allows, rules)
    return PolicyViolation(finding.rule, finding.subject, finding.why, remedy)


class AttributeViolation(PolicyViolation, AttributeError):
    """A refused attribute, reached by a computed name."""


class ImportViolation(PolicyViolation, ImportError):
    """A refused module, or a name it holds back."""


class NameViolation(PolicyViolation, NameError):
    """A refused builtin, called."""


class OperationViolation(PolicyViolation, PermissionError):
    """A refused operation on the machine or the interpreter."""


def _exemption() -> tuple[Callable[..., Any], Callable[[], bool]]:
    threads: list[int] = []  # in a closure: there is no table to edit

    def run_exempt(action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        threads.append(get_ident())
        try:
            return action(*args, **kwargs)
        finally:
            threads.remove(get_ident())

    return run_exempt, lambda: get_ident() in threads


#: Call an action that runs nothing of a cell's; whether this thread is in one.
run_exempt, is_exempt = _exemption()
