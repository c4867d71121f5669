"""``cellblock check``: files in, a report out. Whatever is in them, none of it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.batch import files
from cellblock.batch.limits import LARGEST
from cellblock.batch.rules import own_finding
from cellblock.batch.verdict import Checked, Found, Kind, Problem, Report, Terms, Verdict
from cellblock.batch.workers import Given, Workers
from cellblock.host.guests.own_process import available_processors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.batch.kept import Kept
    from cellblock.policy.model import Policy

_STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Stream:
    """What came in from standard input, and what it is called."""

    name: str
    content: bytes

    @property
    def kind(self) -> Kind:
        """By its name's ending; a text without one is a notebook if it begins like one."""
        suffix = os.path.splitext(self.name)[1].lower()  # noqa: PTH122 - no path need be there
        begins = self.content[:4096].lstrip()[:1] == b"{"
        return files.KINDS.get(suffix, Kind.notebook if begins else Kind.script)


class Check:
    """One run by a policy. ``jobs`` processes at most; ``kept`` is asked before they are."""

    def __init__(self, policy: Policy, terms: Terms, *, jobs: int = 0, kept: Kept | None) -> None:
        self._policy, self._terms, self._kept = policy, terms, kept
        self._jobs = jobs or available_processors()
        self._checked = dict[files.File, Verdict]()
        self._problems = list[Problem]()

    def run(
        self, paths: Sequence[str], *, exclude: Sequence[str] = (), stream: Stream | None = None
    ) -> Report:
        """Check what ``paths`` name. Raises CheckError where nothing can be checked here."""
        found, self._problems = files.find(paths, exclude)
        workers = Workers[tuple[files.File, bytes]](self._terms, self._jobs)
        try:
            for (file, content), verdict in workers.judge(self._unknown(found, stream)):
                if verdict.problem:
                    self._problems.append(Problem(file.shown, verdict.problem))
                    continue
                self._checked[file] = verdict
                if self._kept:
                    self._kept.keep(content, file.kind, verdict)
        finally:
            workers.close()
        if self._kept:
            self._kept.save()
        return self._report([*found, *self._checked])

    def _unknown(
        self, found: list[files.File], stream: Stream | None
    ) -> Iterator[Given[tuple[files.File, bytes]]]:
        """Yield the files that nothing is known of yet, with their content."""
        if stream is not None:
            file = files.File(_STDIN, stream.name, stream.kind, _STDIN)
            yield from self._given(file, stream.content)
        for file in found:
            try:
                content = files.read(file)
            except files.NoFileError as error:
                self._checked[file] = _not_checked("file-not-readable", str(error))
            except OSError as error:
                self._problems.append(Problem(file.shown, f"can't be read: {error.strerror}"))
            else:
                yield from self._given(file, content)

    def _given(self, file: files.File, content: bytes) -> Iterator[Given[tuple[files.File, bytes]]]:
        if len(content) > LARGEST:
            self._checked[file] = _not_checked(
                "file-not-checked", f"is larger than {LARGEST >> 20} MiB"
            )
        elif self._kept and (known := self._kept.find(content, file.kind)):
            self._checked[file] = known
        else:
            yield Given((file, content), file.kind, content, _place(file))

    def _report(self, order: list[files.File]) -> Report:
        checked = (
            Checked(file.shown, file.kind, self._checked[file])
            for file in dict.fromkeys(order)
            if file in self._checked
        )
        problems = sorted(self._problems, key=lambda problem: (problem.path, problem.message))
        return Report(self._policy.name, self._terms.template, tuple(checked), tuple(problems))


def _place(file: files.File) -> bytes:
    """Return where a file lies; what comes in from standard input lies where its name says."""
    path = file.shown if file.path == _STDIN else file.path
    return os.fsencode(os.path.abspath(path))  # noqa: PTH100 - resolves no links


def _not_checked(rule: str, why: str) -> Verdict:
    return Verdict((Found(own_finding(rule, why)),))
