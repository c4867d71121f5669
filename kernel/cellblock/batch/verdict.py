"""What becomes of a file that is checked: its verdict, and a run's report.

Verdicts cross a pipe and lie in the cache: plain values, decoded strictly, without a path.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.analysis import (
    RULES,
    Finding,
    Rule,
)
from cellblock.analysis.findings import EXCERPT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cellblock.policy.model import Policy


# The file of a report: what whoever asked for it named, and nothing that a link there leads to.
#
# A report often lies in a checkout, whose author may have put a link in its place: following
# that would overwrite any file of the user's, with text that is partly the author's.

_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC
#: Where links are the system's: ``/dev/stdout`` is one.
_SYSTEM: Final = ("/dev/", "/proc/")


def write(path: Path, text: str) -> None:
    """Write a report; what UTF-8 has no form for is spelled by its number. Raises OSError."""
    follows = os.path.abspath(path).startswith(_SYSTEM)  # noqa: PTH100 - resolves no links
    try:
        descriptor = os.open(path, _WRITE if follows else _WRITE | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and none is followed") from None
        raise
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))


# What one file may take, and what is said of one that took more.

#: Bytes of a notebook with its outputs, and of a script.
LARGEST: Final = 64 << 20
#: How a process ends that says itself why.
OUT_OF_MEMORY: Final = 77


class Limits(msgspec.Struct, frozen=True):
    """For the process that reads a file, the interpreter's own share among them.

    Seconds of processor time; seconds in all, on a machine however loaded; bytes of memory.
    """

    cpu_seconds: int = 10
    seconds: float = 120.0
    memory: int = 1 << 30

    def why(self, code: int, *, overdue: bool) -> str:
        """Return why a process that ended with ``code`` gave no verdict on its file."""
        if overdue:
            return f"took longer than {self.seconds:g} s"
        if code == -signal.SIGXCPU:
            return f"took more than {self.cpu_seconds} s of processor time"
        if code == OUT_OF_MEMORY:
            return f"takes more than {self.memory >> 20} MiB of memory to read"
        if code < 0:
            return f"ended the process that read it ({signal.Signals(-code).name})"
        return f"ended the process that read it (exit status {code})"


#: Findings of one file that are told one by one.
MOST_FOUND = 1_000


class Kind(StrEnum):
    """How a file is read."""

    notebook = "notebook"
    script = "script"


class Found(msgspec.Struct, frozen=True):
    """A finding and its place.

    ``cell`` counts all cells from 1; 0 is the file itself, and then the finding's line is the
    file's. ``file_line`` is where the line stands in the file, from 1; 0 where that is not known.
    """

    finding: Finding
    cell: int = 0
    file_line: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """What was found in a file: in order, and how many more there are than are told.

    ``placed`` says that it depends on where the file lies and on what else is there. ``problem`` is
    why nothing can be said of the file, where that is not the file's fault.
    """

    found: tuple[Found, ...] = ()
    left_out: int = 0
    placed: bool = False
    problem: str = ""


class Terms(msgspec.Struct, frozen=True, tag=True):
    """What a worker judges by: all fields of a policy, its rules, and whether files are templates.

    ``project`` is what ``{project}`` stands for, ``folder`` where relative paths of the policy
    begin; as bytes, which need be no text.
    """

    policy: dict[str, Any]
    rules: dict[str, Any]
    template: bool = False
    limits: Limits = Limits()
    project: bytes = b"/"
    folder: bytes = b"/"

    @classmethod
    def of(cls, policy: Policy, *, template: bool = False, limits: Limits | None = None) -> Terms:
        """Return the terms of a policy whose folders are not known."""
        rules = policy.rules().to_builtins()
        return cls(policy.as_dict(), rules, template, limits or Limits())


class Task(msgspec.Struct, frozen=True, tag=True):
    """A file for a worker, and where it lies; ``size`` bytes of content follow the frame."""

    kind: Kind
    size: int
    place: bytes


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A worker has imported what it needs."""


class Judged(msgspec.Struct, frozen=True, tag=True):
    """A worker's verdict on its task."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that was checked, by the path that is shown."""

    path: str
    kind: Kind
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Problem:
    """A path that could not be checked, and why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """One run: files and problems, each in the order of their paths."""

    policy: str
    template: bool
    files: tuple[Checked, ...]
    problems: tuple[Problem, ...]

    @property
    def total(self) -> int:
        """How many findings there are, told or not."""
        return sum(len(f.verdict.found) + f.verdict.left_out for f in self.files)

    @property
    def status(self) -> int:
        """The exit status: 0 clean, 1 findings, 2 where something could not be checked."""
        return 2 if self.problems else int(self.total > 0)


# Rules of the check alone: what the kernel never meets, or leaves to Python to say.

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
