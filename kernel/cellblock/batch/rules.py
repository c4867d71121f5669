"""Rules of the check alone: what the kernel never meets, or leaves to Python to say."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cellblock.analysis import RULES, Finding, Rule
from cellblock.analysis.findings import EXCERPT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE = (
    Rule(
        "file-not-checked",
        "A file that could not be checked to its end",
        "could not be checked to its end",
        "Make the file smaller or simpler; what can't be checked does not pass.",
    ),
    Rule(
        "file-not-readable",
        "A file that is no notebook or script",
        "can't be read",
        "Mend the file, or leave it out with --exclude.",
    ),
    Rule(
        "source-not-python",
        "Source that Python can't read",
        "is not Python, so nobody can tell what it does",
        "Mend it, or check it with the version of Python that is to run it.",
    ),
)

OWN: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _TABLE})

#: All that a report may name; ``operation-not-allowed`` is met at run time only.
REPORTED: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        name: rule
        for name, rule in sorted({**RULES, **OWN}.items())
        if name != "operation-not-allowed"
    }
)
#: Characters of a reason that is made of what a parser said.
_LONGEST = 300


def own_finding(
    rule: str, why: str = "", *, line: int = 1, column: int = 0, text: str = ""
) -> Finding:
    """Return a finding by one of these rules; ``text`` is the line it stands in."""
    cut = column - 40 if column > EXCERPT_LIMIT - 60 and len(text) > EXCERPT_LIMIT else 0
    return Finding(
        line=line,
        column=column,
        end_column=column + 1,
        rule=rule,
        subject="",
        excerpt=text.replace("\t", " ")[cut : cut + EXCERPT_LIMIT],
        why=why[:_LONGEST] or OWN[rule].why,
        remedy=OWN[rule].remedy,
        cut=cut,
    )
