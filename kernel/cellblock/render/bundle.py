"""The shapes that every card shares: a mime bundle, and the error that goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Mime type to text or JSON data, as Jupyter's ``display_data`` carries it.
Bundle = dict[str, Any]

JSON_VERSION = 1
ARTIFACTS_JSON = "application/vnd.cellblock.artifacts+json"
DENIAL_JSON = "application/vnd.cellblock.denial+json"
ENFORCEMENT_JSON = "application/vnd.cellblock.enforcement+json"
NARROWING_JSON = "application/vnd.cellblock.narrowing+json"
OUTCOME_JSON = "application/vnd.cellblock.outcome+json"
POLICY_JSON = "application/vnd.cellblock.policy+json"
PROBLEM_JSON = "application/vnd.cellblock.problem+json"
TEMPLATES_JSON = "application/vnd.cellblock.templates+json"
TOOLS_JSON = "application/vnd.cellblock.tools+json"
USAGE_JSON = "application/vnd.cellblock.usage+json"

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that is shown beside a card (ADR 0040).

    ``report`` is the card's plain text. Front ends show a published error below the card, so
    that one is a single line; runners without a front end print the reply's, so that is whole.
    """

    ename: str
    evalue: str
    report: str

    def published(self) -> dict[str, Any]:
        """Content of the iopub ``error`` message."""
        line = f"{_RED}{self.ename}{_PLAIN}: {self.evalue}"
        return {"ename": self.ename, "evalue": self.evalue, "traceback": [line]}

    def replied(self) -> dict[str, Any]:
        """Error fields of the ``execute_reply``, without ``status``."""
        head, _, rest = self.report.partition("\n")
        lines = [f"{_RED}{head}{_PLAIN}", *rest.split("\n")] if rest else [head]
        return {"ename": self.ename, "evalue": self.evalue, "traceback": lines}


def count(number: int, noun: str) -> str:
    """Return ``1 finding``, ``2 findings``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
