"""``cellblock learn``: from notebooks to the smallest policy found that lets them pass.

What notebooks ask for is taken from what refuses them: the findings of a check under the base, and
the refusals of runs. They run under preset data first, which shows whether they write to the
project, then under each proposal, until they pass or nothing more is to be had.

Invariant: a line of a proposal is one of preset data's, or adds to mode safe's modules and magics.
What is wider is told in a comment: who wrote a cell is a stranger, and chose what it asks for.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.analysis import RULES
from cellblock.analysis.findings import Finding
from cellblock.api.results import Denial, Stop
from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.batch import files
from cellblock.batch.check import check
from cellblock.batch.report_formats import one_line
from cellblock.batch.run.execution import (
    DROP,
    Execution,
    Job,
    NotebookStatus,
    PolicyPools,
    RunOptions,
)
from cellblock.batch.verdict import CheckOptions
from cellblock.errors import CheckError
from cellblock.host.cell.status import FIELD_OF_STOP
from cellblock.host.services import changes
from cellblock.policy.load import load_for_check, preset_policy
from cellblock.policy.model import LISTS, OPTIONAL_FIELDS, ROWS
from cellblock.policy.paths import checkout, within
from cellblock.render.cards import count
from cellblock.render.outcomes import Refusal
from cellblock.render.text import clip, encodable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.batch.run.execution import NotebookResult
    from cellblock.policy.model import Policy

    _Refused = Refusal | Stop | Denial
    #: How a notebook ended, and what its cells were refused, by their numbers from 1.
    _Ran = tuple[NotebookResult, Sequence[tuple[int, _Refused]]]

#: Runs that may add to a proposal; one more says whether that was enough.
_ROUNDS: Final = 3
#: The lines of these rules that allow one module or magic: other lines repeat text of a cell.
_LISTED: Final = ("import-not-allowed", "magic-not-allowed", "module-name-not-allowed")
_ADDED: Final = re.compile(r'add\.(allowed_modules|magics) = \["(@?\w+)"\]', re.ASCII)
_CONFINED: Final = ("mode", "confined")
_READS: Final = ("filesystem_read_roots", "{checkout}")
_STAGES: Final = ("filesystem_staged_roots", "{checkout}")
#: What preset data denies of the folders that it reads, and safe need not.
_DENIES: Final = ("read_deny_paths", "@secrets")
_STARTS: Final = ("subprocess_execution", True)
#: Fields that take preset data's value.
_VALUES: Final = (*OPTIONAL_FIELDS, _STARTS[0])
_MAX_REASON: Final = 160


class Proposal:
    """A policy file in the making: lines beyond a preset, and the reasons for each."""

    def __init__(self, base: str) -> None:
        self._base = base
        #: By field and value; each entry of a list is a line.
        self._lines: dict[tuple[str, Any], dict[str, None]] = {}
        self._wider: dict[str, dict[str, None]] = {}
        #: What came of the notebooks under the lines as they are.
        self.ran: Sequence[_Ran] = ()

    @property
    def failed(self) -> list[NotebookResult]:
        """The notebooks that did not pass."""
        return [result for result, _ in self.ran if result.status is not NotebookStatus.passed]

    def policy(self) -> Policy:
        """Return the policy that the file says, before its folders are known."""
        own = tomllib.loads(str(self))
        return preset_policy(own.pop("extends"), {"name": "learned", **own})

    def __str__(self) -> str:
        """Return the policy file; its last lines say whether the notebooks passed."""
        text, confined = [f"extends = {json.dumps(self._base)}"], _CONFINED in self._lines
        lines = [
            one for one in self._lines if not (confined and one[0] in ("allowed_modules", "magics"))
        ]
        lines.sort(key=lambda line: (line[0] in LISTS, line[0] != "mode", line[0]))
        for name, group in itertools.groupby(lines, key=operator.itemgetter(0)):
            said = [(json.dumps(line[1]), _comment(*self._lines[line])) for line in group]
            text += [f"# {ROWS[name].means}"] if ROWS[name].means else []
            if name in LISTS:
                text += [f"add.{name} = [", *(f"    {one}, {why}" for one, why in said), "]"]
            else:
                text += [f"{name} = {value} {why}" for value, why in said]
        for line, reasons in self._wider.items():
            wider = _comment(f"Not proposed, as preset data does not allow it either: {line}")
            text.append(f"{wider} {_comment(*reasons)}")
        passed, ran = len(self.ran) - len(self.failed), count(len(self.ran), "notebook")
        text.append(f"# Passed under this policy: {passed} of {ran}.")
        for one in self.failed:
            reason = one.reason.partition("\n")[0]
            text.append(_comment(f"{_place(one.notebook, one.cell)}: {one.status}: {reason}"))
        return "\n".join(text) + "\n"

    def ask(self, why: str, *lines: tuple[str, Any]) -> bool:
        """Add lines that are lacking, or this reason to them; return whether there are more now."""
        before = len(self._lines)
        for name, value in lines:
            if (name, value) in self._lines or _lacks(self.policy(), name, value):
                self._lines.setdefault((name, value), {})[why] = None
                if (name, value) == _READS:
                    self._lines.setdefault(_DENIES, {})["as in preset data"] = None
        return len(self._lines) > before

    def refused(
        self, one: _Refused | Finding, where: str, under: Policy, *, data_allows: bool = False
    ) -> bool:
        """Add what allows what was refused ``under`` a policy, where preset data does.

        ``data_allows`` says that the cell ran under that, so that a file is in the project wherever
        its path leads from the folder that cells began in.
        """
        if isinstance(one, Denial | Finding):
            found = map(_ADDED.fullmatch, one.allows if one.rule in _LISTED else ())
            lines = [(line[1], line[2]) for line in found if line is not None]
            # What is no rule of the kernel's is a file or cell that Python can't read.
            lines = lines or ([_CONFINED] if one.rule in RULES else [])
            return self.ask(f"{where}, line {one.line}: {one.subject} {one.why}", *lines)
        if isinstance(one, Stop):
            if one.why not in FIELD_OF_STOP:
                return False
            one = Refusal(FIELD_OF_STOP[one.why], f"it was stopped at {one.limit}")
        why = f"{where}: {one.what} {one.asked}".rstrip()
        inside = not one.asked or within(os.path.normpath(one.asked), str(checkout(Path.cwd())))
        if one.field.startswith("filesystem_") and (inside or data_allows):
            why = why if inside else f"{where} uses a file of the project"
            return self.ask(why, *([_READS] if one.field == _READS[0] else [_READS, _STAGES]))
        value = getattr(preset_policy("data"), one.field)
        if one.field in _VALUES and getattr(under, one.field) != value:
            return self.ask(why, (one.field, value))
        # Under less, cells also ask for what they do without once they have the rest.
        if under == preset_policy("data"):
            self._wider.setdefault(one.remedy.line or one.field, {})[why] = None
        return False

    def try_next(self, where: str, under: Policy) -> bool:
        """Add the next of what a cell may have lacked ``under`` a policy, where nothing says what.

        Reading comes first: a library that misses a file often says so in words of its own.
        """
        why = f"a guess: {where} failed without, and ran under preset data"
        for line in (_READS, _CONFINED, _STAGES, _STARTS):
            if _lacks(under, *line):
                self.ask(why, line)
                return True
        return False


def learn(found: Sequence[files.File], base: str) -> Proposal:
    """Return what lets notebooks pass beyond a preset. Raise CellblockError where nothing runs."""
    policy = load_for_check(preset_policy(base).name)
    proposal = Proposal(policy.name)
    try:
        jobs = [Job(f.shown, files.read(f), files.absolute(f.path.parent)) for f in found]
    except (OSError, files.NoFileError) as error:
        raise CheckError(f"a notebook can't be read: {error}") from None
    observed = asyncio.run(_run("data", jobs, RunOptions()))
    # Cells behind the one that a notebook ends at even under preset data are never run.
    ends = {result.notebook: result.cell for result, _ in observed if result.cell}
    for name, cell, finding in _findings(found, policy):
        if cell <= ends.get(name, cell):
            proposal.refused(finding, _place(name, cell), policy)
    for result, refused in observed:
        staged = changes.session(result.staged) if result.staged else None
        if staged is not None:
            if staged.is_written_to():
                proposal.ask(f"{result.notebook} wrote to the project", _READS, _STAGES)
            staged.drop()
        for cell, why in refused:
            proposal.refused(why, _place(result.notebook, cell), preset_policy("data"))
    for rounds in range(_ROUNDS + 1):
        policy = proposal.policy()
        proposal.ran = asyncio.run(_run(policy, jobs, RunOptions(changes=DROP)))
        if rounds == _ROUNDS or not _improve(proposal, observed, policy):
            break
    return proposal


def _findings(found: Sequence[files.File], policy: Policy) -> Iterator[tuple[str, int, Finding]]:
    """Yield what a check finds, with its notebook and cell."""
    here = os.fsencode(Path.cwd())
    options = msgspec.structs.replace(CheckOptions.of(policy), project=here, folder=here)
    for file in check(found, policy, options).files:
        for one in file.verdict.findings:
            yield file.path, one.cell, one.finding


async def _run(policy: str | Policy, jobs: Sequence[Job], options: RunOptions) -> list[_Ran]:
    """Run notebooks one after the other, with the current folder as project."""
    ran: list[_Ran] = []
    async with AsyncSandboxPool(policy, project=Path.cwd()) as pool, PolicyPools(pool) as pools:
        for job in jobs:
            execution = Execution(job, options)
            ran.append((await execution.run(pools), execution.refused))
    return ran


def _improve(proposal: Proposal, observed: Sequence[_Ran], under: Policy) -> bool:
    """Add to a proposal what its run was refused; return whether it is another now."""
    improved, unhelped = False, []
    for (before, _), (result, refused) in zip(observed, proposal.ran, strict=True):
        if result.status is NotebookStatus.passed:
            continue
        # Where it ended at this cell under preset data too, none of its lines helps.
        more = before.status is NotebookStatus.passed or result.cell < before.cell
        last = _place(result.notebook, result.cell)
        for cell, why in refused:
            where, last_one = _place(result.notebook, cell), cell == result.cell
            if more or not last_one:
                improved |= proposal.refused(why, where, under, data_allows=last_one)
        if more and all(cell != result.cell for cell, _ in refused):
            improved |= proposal.try_next(last, under)
        elif more:
            unhelped.append(last)
    # What was refused there may be what the cell goes on without, and nothing may have been added.
    guesses = [] if improved else [proposal.try_next(last, under) for last in unhelped]
    return improved or any(guesses)


def _lacks(policy: Policy, name: str, value: Any) -> bool:
    has = getattr(policy, name)
    return value not in has if isinstance(has, tuple) else bool(value != has)


def _place(notebook: str, cell: int) -> str:
    return f"{notebook}, cell {cell}" if cell else notebook


def _comment(reason: str, *more: str) -> str:
    """Return a comment of TOML, whatever the text: one line, without control characters."""
    others = f" (and {count(len(more), 'more reason')})" if more else ""
    return f"# {clip(one_line(encodable(reason)), _MAX_REASON)}{others}"
