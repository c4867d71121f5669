"""``%policy narrow`` by itself: what a cell asks of the policy, before and without a guest.

A cell of such lines, blank ones and comments is never sent anywhere. Whatever else a cell says, a
narrowing in it is refused like any other argument that its magic does not take. PURE: the kernel
puts in force what is asked for here, and ``cellblock check`` judges by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.findings import Report
from cellblock.analysis.magics import NARROWS, SHOWS_POLICY
from cellblock.errors import PolicyError, WideningError
from cellblock.policy import assignments
from cellblock.policy.narrower import TABLE, Home
from cellblock.policy.narrowing import changed

if TYPE_CHECKING:
    from cellblock.analysis import Finding, Rules
    from cellblock.policy.model import Policy

_LINE: Final = re.compile(rf"[ \t]*%{SHOWS_POLICY}[ \t]+{NARROWS}(?![^ \t])")
_NOTHING: Final = re.compile(r"[ \t]*(?:#.*)?")
_BREAK: Final = re.compile(r"\r\n|\r|\n")
#: Lines that are read.
MOST_LINES: Final = 50
#: The option that has a new guest started, whatever the one that there is has.
FRESH: Final = "fresh"

ONLY_NARROWS: Final = "policy-only-narrows"
NOT_KEPT: Final = "narrowing-not-kept"
_ARGUMENT: Final = "argument-not-allowed"


@dataclass(slots=True)
class Asked:
    """What a cell asks for: changes to the policy, and where each key stands in it."""

    changes: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    fresh: bool = False
    #: The first line, for what is wrong with no key.
    first: tuple[int, int, int] = (1, 0, 1)


def is_alone(cell: str) -> bool:
    """Say whether a cell narrows the policy and does nothing else."""
    lines = [line for line in _BREAK.split(cell) if not _NOTHING.fullmatch(line)]
    return bool(lines) and all(map(_LINE.match, lines))


def read(cell: str, rules: Rules) -> tuple[Asked, tuple[Finding, ...]]:
    """Return what a cell that ``is_alone`` asks for, and what of it can't be read."""
    asked, report = Asked(), Report(source=cell, rules=rules)
    lines = enumerate(_BREAK.split(cell), start=1)
    found = [(number, line, start) for number, line in lines if (start := _LINE.match(line))]
    number, _, start = found[0]
    asked.first = number, start.end() - len(NARROWS), start.end()
    for number, line, start in found[:MOST_LINES]:
        _read_line(line, number, start.end(), asked, report)
    if len(found) > MOST_LINES:
        why = f"is there more than {MOST_LINES} times"
        report.add_at(_ARGUMENT, asked.first, NARROWS, why=why, remedy="Say it in fewer lines.")
    elif not (asked.changes or report.findings):
        why = "says nothing of what is to be narrowed"
        report.add_at(_ARGUMENT, asked.first, NARROWS, why=why, remedy="Write key=value.")
    return asked, tuple(report.findings)


def _read_line(line: str, number: int, at: int, asked: Asked, report: Report) -> None:
    try:
        found, options = assignments.read(line, at)
    except assignments.UnreadableError as error:
        span = (number, error.column, error.end)
        subject = line[error.column : error.end]
        report.add_at(_ARGUMENT, span, subject, why=error.message, remedy=error.remedy)
        return
    asked.fresh = asked.fresh or FRESH in options
    for option in sorted(options - {FRESH}):
        why, remedy = f"there is no option --{option}", f"There is --{FRESH}."
        report.add_at(_ARGUMENT, (number, at, len(line)), f"--{option}", why=why, remedy=remedy)
    for one in found:
        span = (number, one.column, one.end)
        if not _put(asked, one, span):
            report.add_at(_ARGUMENT, span, one.key, why="is said twice", remedy="Say it once.")


def _put(asked: Asked, one: assignments.Assignment, span: tuple[int, int, int]) -> bool:
    """Take note of an assignment; say whether its key is there once, and is no table besides."""
    head, _, name = one.key.partition(".")
    asked.places[one.key] = span
    if not name:
        fresh = head not in asked.changes
        asked.changes[head] = one.value
        return fresh
    asked.places.setdefault(head, span)
    table = asked.changes.setdefault(head, {})
    if not isinstance(table, dict) or name in table:
        return False
    table[name] = one.value
    return True


def explained(
    errors: tuple[PolicyError, ...], asked: Asked, cell: str, rules: Rules
) -> tuple[Finding, ...]:
    """Return what is wrong with a cell's changes, as findings in it."""
    report = Report(source=cell, rules=rules)
    for error in errors:
        wider = isinstance(error, WideningError)
        why = error.message if not error.value or wider else f"{error.message}: {error.value}"
        span = asked.places.get(error.key, asked.first)
        rule = ONLY_NARROWS if wider else _ARGUMENT
        report.add_at(rule, span, error.key, why=why, remedy=error.remedy)
    return tuple(report.findings)


def not_kept(error: PolicyError, asked: Asked, cell: str, rules: Rules) -> tuple[Finding, ...]:
    """Return why a narrower policy can't be put in force, as a finding in the cell."""
    report = Report(source=cell, rules=rules)
    span = asked.places.get(error.key, asked.first)
    subject = error.key or NARROWS
    report.add_at(NOT_KEPT, span, subject, why=error.message, remedy=error.remedy)
    return tuple(report.findings)


# --- what it takes ----------------------------------------------------------------------------


def of_guests(before: Policy, after: Policy) -> tuple[str, ...]:
    """Return the fields that a guest has a part in, of those in which a policy has become less."""
    return tuple(key for key in changed(before, after) if TABLE[key].home is not Home.host)


def check_keeps_guest(before: Policy, after: Policy) -> None:
    """Raise PolicyError where only a new guest has what is less: that would cost the variables."""
    for key in of_guests(before, after):
        if TABLE[key].home is Home.guest or TABLE[key].anew(before, after):
            raise costly(key, "is part of what a guest is made of")


def costly(field: str, why: str) -> PolicyError:
    """Return why a narrowing has to say that the variables may go."""
    return PolicyError(
        f"{why}: it takes a new guest, and your variables would be gone",
        file="",
        key=field,
        value="",
        remedy=f"Say so, %policy narrow --{FRESH} …, or narrow in the first cell.",
    )
