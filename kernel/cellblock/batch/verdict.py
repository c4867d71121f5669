"""What becomes of a file that is checked: its verdict, and a run's report.

Verdicts cross a pipe and lie in the cache: plain values, decoded strictly, without a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from cellblock.analysis import Finding  # noqa: TC001 - msgspec reads the annotations
from cellblock.batch.limits import Limits

if TYPE_CHECKING:
    from cellblock.policy.model import Policy

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
