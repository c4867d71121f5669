"""The values of a check: options, tasks, verdicts, the report, limits, and the rules of check only.

Workers, which parse hostile files, send verdicts through a socket. So verdicts are plain values
that are decoded strictly, and have no paths.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.analysis import RULES, Finding, Rule
from cellblock.analysis.findings import EXCERPT_LIMIT
from cellblock.policy.vocabulary import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.policy.model import Policy

#: Bytes of a notebook, outputs included, or of a script.
MAX_FILE_BYTES: Final = 64 << 20
#: Findings of one file that are reported one by one.
MAX_FINDINGS: Final = 1_000
#: Exit status of a worker that ran out of memory and could still say so.
OUT_OF_MEMORY: Final = 77
#: Characters of a reason that quotes a parser.
_MAX_REASON: Final = 300


class FileKind(StrEnum):
    """The kind of a file, which says how it is read."""

    notebook = "notebook"
    script = "script"


class PlacedFinding(msgspec.Struct, frozen=True):
    """A finding and its place.

    ``cell`` is the number of its cell, counting all cells from 1; or 0 if the finding is about the
    file, and then its line is a line of the file. ``file_line`` is the line in the file, from 1,
    or 0 if it is not known.
    """

    finding: Finding
    cell: int = 0
    file_line: int = 0


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """The findings in a file, in order, and the number of findings that were left out.

    ``problem`` says why the file could not be judged, if that is not the file's fault.
    """

    findings: tuple[PlacedFinding, ...] = ()
    left_out: int = 0
    problem: str = ""


class JudgeLimits(msgspec.Struct, frozen=True):
    """The limits of a worker for one file.

    ``cpu_seconds`` is processor time, ``seconds`` is elapsed time, however loaded the machine is,
    and ``memory`` is in bytes, with what the interpreter itself uses.
    """

    cpu_seconds: int = 10
    seconds: float = 120.0
    memory: int = 1 << 30

    def reason(self, code: int, *, overdue: bool) -> str:
        """Return why a worker that ended with this exit code gave no verdict."""
        if overdue:
            return f"took longer than {self.seconds:g} s"
        if code == -signal.SIGXCPU:
            return f"took more than {self.cpu_seconds} s of processor time"
        if code == OUT_OF_MEMORY:
            return f"takes more than {self.memory >> 20} MiB of memory to read"
        if code < 0:
            return f"ended the process that read it ({signal.Signals(-code).name})"
        return f"ended the process that read it (exit status {code})"


# --- messages between check and its workers -------------------------------------------------------


class CheckOptions(msgspec.Struct, frozen=True):
    """The options of a check: the fields of the policy, its rules, and whether files are templates.

    ``project`` is the folder that ``{project}`` stands for, and ``folder`` the one that relative
    paths of the policy begin in. Both are bytes, because a path need not be valid text.
    """

    policy: dict[str, Any]
    rules: dict[str, Any]
    template: bool = False
    limits: JudgeLimits = JudgeLimits()
    project: bytes = b"/"
    folder: bytes = b"/"
    policy_file: str = ""

    @classmethod
    def of(
        cls,
        policy: Policy,
        *,
        template: bool = False,
        limits: JudgeLimits | None = None,
        file: str = "",
    ) -> CheckOptions:
        """Return the options for a policy whose folders are not known.

        ``file`` is the name that the user gave the policy by; by default the name of its preset.
        """
        rules = policy.rules(file).to_builtins()
        policy_file = file or base_of(policy.name)
        return cls(
            policy.as_dict(), rules, template, limits or JudgeLimits(), policy_file=policy_file
        )


class CheckTask(msgspec.Struct, frozen=True):
    """A file for a worker: its kind and path. ``size`` bytes of content follow the frame."""

    kind: FileKind
    size: int
    path: bytes


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """The message of a worker that is ready for tasks. It answers each task with a `Verdict`."""


# --- the report -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was checked: the path to show, its verdict, and the name of the policy.

    ``policy_file`` is the policy's file or preset, as the user named it.
    """

    path: str
    kind: FileKind
    verdict: Verdict
    policy: str
    policy_file: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A path that could not be checked or run, and why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check: files and problems, each in the order of their paths.

    ``policy`` has the names of all policies that files were checked by, separated by commas.
    """

    policy: str
    template: bool
    files: tuple[CheckedFile, ...]
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, reports: Sequence[CheckReport], problems: Sequence[Problem]) -> CheckReport:
        """Return one report from the reports for each policy, with further problems."""
        checked = [file for report in reports for file in report.files]
        problems = [*problems, *(problem for report in reports for problem in report.problems)]
        return cls(
            ", ".join(sorted({report.policy for report in reports})),
            any(report.template for report in reports),
            tuple(sorted(checked, key=lambda file: PurePath(file.path).parts)),
            tuple(sorted(problems, key=lambda problem: (problem.path, problem.message))),
        )

    @property
    def total(self) -> int:
        """The number of findings, including those left out."""
        return sum(len(file.verdict.findings) + file.verdict.left_out for file in self.files)

    @property
    def status(self) -> int:
        """The exit status: 0 clean, 1 findings, 2 something could not be checked."""
        return 2 if self.problems else int(self.total > 0)


# --- the rules of check only: cases that the kernel never meets, or leaves to Python --------------

_TABLE = (
    Rule(
        "file-not-checked",
        "A file that could not be checked to its end",
        "could not be checked to its end",
        "Make the file smaller or simpler; what can't be checked does not pass.",
    ),
    Rule(
        "file-not-readable",
        "A file that is not a notebook or script",
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

CHECK_RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _TABLE})

#: All rules that a report may name. ``operation-not-allowed`` occurs only at run time.
REPORTED_RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        name: rule
        for name, rule in sorted({**RULES, **CHECK_RULES}.items())
        if name != "operation-not-allowed"
    }
)


def check_finding(
    rule: str, why: str = "", *, line: int = 1, column: int = 0, text: str = ""
) -> Finding:
    """Return a finding by one of `CHECK_RULES`. ``text`` is the line that it is in."""
    cut = column - 40 if column > EXCERPT_LIMIT - 60 and len(text) > EXCERPT_LIMIT else 0
    return Finding(
        line=line,
        column=column,
        end_column=column + 1,
        rule=rule,
        subject="",
        excerpt=text.replace("\t", " ")[cut : cut + EXCERPT_LIMIT],
        why=why[:_MAX_REASON] or CHECK_RULES[rule].why,
        remedy=CHECK_RULES[rule].remedy,
        cut=cut,
    )


def not_checked(why: str, rule: str = "file-not-checked") -> Verdict:
    """Return the verdict on a file that was not judged."""
    return Verdict((PlacedFinding(check_finding(rule, why)),))
