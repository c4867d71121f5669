"""The exceptions that user code gets when the policy refuses something; and the guest's exemption.

Each violation is also the exception that Python would raise, so that honest ``except`` clauses go
on working. ``run_exempt`` is for the guest's own code: the audit hook permits calls that it makes.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any

from cellblock.analysis.findings import in_a_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Finding, Rules


class PolicyViolation(Exception):
    """The policy refuses what was tried, and nothing was done."""

    def __init__(self, rule: str, subject: str, why: str, remedy: str) -> None:
        super().__init__(f"{rule}: {subject} {why}. {remedy}".strip())
        self.rule = rule
        self.subject = subject
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        return str(self.args[0])


def violation_of(finding: Finding, rules: Rules) -> PolicyViolation:
    """Return the exception for a finding of the source check."""
    remedy = in_a_line(finding.remedy, finding.allows, rules)
    return PolicyViolation(finding.rule, finding.subject, finding.why, remedy)


class AttributeViolation(PolicyViolation, AttributeError):
    """A refused attribute was read or set by a computed name."""


class ImportViolation(PolicyViolation, ImportError):
    """A refused module, or a refused name of a module, was imported."""


class NameViolation(PolicyViolation, NameError):
    """A refused builtin was called."""


class OperationViolation(PolicyViolation, PermissionError):
    """A refused operation on the machine or the interpreter was tried."""


def _exemption() -> tuple[Callable[..., Any], Callable[[], bool]]:
    threads: list[int] = []  # in a closure, so that no cell can reach and edit it

    def run_exempt(action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        threads.append(get_ident())
        try:
            return action(*args, **kwargs)
        finally:
            threads.remove(get_ident())

    return run_exempt, lambda: get_ident() in threads


#: ``run_exempt`` calls a function that runs no code of a cell; ``is_exempt`` returns whether the
#: calling thread is in such a call.
run_exempt, is_exempt = _exemption()
