"""What user code sees when it does what the policy refuses.

Each violation is the natural exception, too, so that honest ``except`` clauses go on working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock.analysis import Finding


class PolicyViolation(Exception):
    """The policy refuses what was tried; nothing was done."""

    def __init__(self, rule: str, subject: str, why: str, remedy: str) -> None:
        super().__init__(f"{rule}: {subject} {why}. {remedy}".strip())
        self.rule, self.subject, self.why, self.remedy = rule, subject, why, remedy

    def __str__(self) -> str:
        return str(self.args[0])


def violation_of(finding: Finding) -> PolicyViolation:
    """Return the violation that says what a finding does, to be raised."""
    return PolicyViolation(finding.rule, finding.subject, finding.why, finding.remedy)


class AttributeViolation(PolicyViolation, AttributeError):
    """A refused attribute, reached by a computed name."""


class ImportViolation(PolicyViolation, ImportError):
    """A refused module, or a name it holds back."""


class NameViolation(PolicyViolation, NameError):
    """A refused builtin, called."""


class OperationViolation(PolicyViolation, PermissionError):
    """A refused operation on the machine or the interpreter."""
