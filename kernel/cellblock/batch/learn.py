"""``cellblock learn``: proposes a policy for notebooks, with as few lines as it finds necessary.

The lines come from what refuses the notebooks: the findings of a check under the base preset, and
the refusals of runs. The notebooks first run under preset data, which shows whether they write to
the project. Then they run under each proposal, until they pass or nothing can be added:

    run under data ─> check under the base ─> proposal ─> run under it ─> passed, or unchanged
                                                 ^── refusals, guesses ──┘

Invariant: a proposal never allows more than preset data does, except modules and magics that mode
safe lets operators add. Whatever a notebook asks for beyond that is only named in a comment,
because the author of a cell is a stranger, who chose what the cell asks for.
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
    #: The result of running a notebook, and what its cells were refused, by their numbers from 1.
    _Ran = tuple[NotebookResult, Sequence[tuple[int, _Refused]]]

#: The number of runs that may add to a proposal. One more run shows whether that was enough.
_ROUNDS: Final = 3
#: The rules whose ``allows`` may be proposed, if such a line adds one module or one magic. Lines of
#: other rules repeat text of a cell.
_RULES_OF_LISTS: Final = ("import-not-allowed", "magic-not-allowed", "module-name-not-allowed")
_ADD_LINE: Final = re.compile(r'add\.(allowed_modules|magics) = \["(@?\w+)"\]', re.ASCII)
_CONFINED_LINE: Final = ("mode", "confined")
_READ_LINE: Final = ("filesystem_read_roots", "{checkout}")
_STAGE_LINE: Final = ("filesystem_staged_roots", "{checkout}")
#: Preset data denies these in the folders that it reads. Safe reads no such folder.
_DENY_LINE: Final = ("read_deny_paths", "@secrets")
_START_LINE: Final = ("subprocess_execution", True)
#: Fields that take preset data's value.
_VALUE_FIELDS: Final = (*OPTIONAL_FIELDS, _START_LINE[0])
_MAX_REASON: Final = 160


class Proposal:
    """A policy file in the making: lines beyond a preset, each with the reasons for it."""

    def __init__(self, base: str) -> None:
        self._base = base
        #: The reasons for each line. A line is a field and a value, or an entry of a list field.
        self._lines: dict[tuple[str, Any], dict[str, None]] = {}
        #: The reasons for lines that are not proposed, because preset data doesn't allow them.
        self._wider: dict[str, dict[str, None]] = {}
        #: How the notebooks ended under the present lines.
        self.ran: Sequence[_Ran] = ()

    @property
    def failed(self) -> list[NotebookResult]:
        """The notebooks that did not pass."""
        return [result for result, _ in self.ran if result.status is not NotebookStatus.passed]

    def policy(self) -> Policy:
        """Return the policy of the file, with paths that are not resolved."""
        own = tomllib.loads(str(self))
        return preset_policy(own.pop("extends"), {"name": "learned", **own})

    def __str__(self) -> str:
        """Return the policy file. Comments at its end say which notebooks passed."""
        text = [f"extends = {json.dumps(self._base)}"]
        # Mode confined checks no source, so it needs no modules and magics.
        confined = _CONFINED_LINE in self._lines
        lines = [
            line
            for line in self._lines
            if not (confined and line[0] in ("allowed_modules", "magics"))
        ]
        lines.sort(key=lambda line: (line[0] in LISTS, line[0] != "mode", line[0]))
        for name, group in itertools.groupby(lines, key=operator.itemgetter(0)):
            rows = [(json.dumps(line[1]), _comment(*self._lines[line])) for line in group]
            text += [f"# {ROWS[name].means}"] if ROWS[name].means else []
            if name in LISTS:
                text += [f"add.{name} = [", *(f"    {value}, {why}" for value, why in rows), "]"]
            else:
                text += [f"{name} = {value} {why}" for value, why in rows]
        for line, reasons in self._wider.items():
            wider = _comment(f"Not proposed, as preset data does not allow it either: {line}")
            text.append(f"{wider} {_comment(*reasons)}")
        passed_count = len(self.ran) - len(self.failed)
        ran_count = count(len(self.ran), "notebook")
        text.append(f"# Passed under this policy: {passed_count} of {ran_count}.")
        for result in self.failed:
            reason = result.reason.partition("\n")[0]
            text.append(
                _comment(f"{_cell_name(result.notebook, result.cell)}: {result.status}: {reason}")
            )
        return "\n".join(text) + "\n"

    def ask(self, why: str, *lines: tuple[str, Any]) -> bool:
        """Add the lines that the policy lacks; add the reason ``why`` to the lines that it has.

        Return whether any line was added.
        """
        before = len(self._lines)
        for name, value in lines:
            if (name, value) in self._lines or _lacks(self.policy(), name, value):
                self._lines.setdefault((name, value), {})[why] = None
                if (name, value) == _READ_LINE:
                    self._lines.setdefault(_DENY_LINE, {})["as in preset data"] = None
        return len(self._lines) > before

    def refused(
        self,
        refusal: _Refused | Finding,
        cell_name: str,
        under: Policy,
        *,
        data_allows: bool = False,
    ) -> bool:
        """Add lines that allow what was refused ``under`` a policy, as far as preset data does.

        ``cell_name`` names the notebook and the cell of the refusal. ``data_allows`` says that the
        cell ran under preset data: then a refused file lies in the project, even if its path, from
        the folder that cells begin in, doesn't look like it. Return whether any line was added.
        """
        if isinstance(refusal, Denial | Finding):
            matches = map(
                _ADD_LINE.fullmatch, refusal.allows if refusal.rule in _RULES_OF_LISTS else ()
            )
            lines = [(line[1], line[2]) for line in matches if line is not None]
            # A rule that is check's own is about source that Python can't read: no line helps.
            lines = lines or ([_CONFINED_LINE] if refusal.rule in RULES else [])
            return self.ask(
                f"{cell_name}, line {refusal.line}: {refusal.subject} {refusal.why}", *lines
            )
        if isinstance(refusal, Stop):
            if refusal.why not in FIELD_OF_STOP:
                return False
            refusal = Refusal(FIELD_OF_STOP[refusal.why], f"it was stopped at {refusal.limit}")
        why = f"{cell_name}: {refusal.what} {refusal.asked}".rstrip()
        in_project = not refusal.asked or within(
            os.path.normpath(refusal.asked), str(checkout(Path.cwd()))
        )
        if refusal.field.startswith("filesystem_") and (in_project or data_allows):
            why = why if in_project else f"{cell_name} uses a file of the project"
            return self.ask(
                why,
                *([_READ_LINE] if refusal.field == _READ_LINE[0] else [_READ_LINE, _STAGE_LINE]),
            )
        value = getattr(preset_policy("data"), refusal.field)
        if refusal.field in _VALUE_FIELDS and getattr(under, refusal.field) != value:
            return self.ask(why, (refusal.field, value))
        # Only what preset data itself refuses counts as wider than data: under a narrower policy,
        # cells also ask for things that they can do without once they have all that data allows.
        if under == preset_policy("data"):
            self._wider.setdefault(refusal.remedy.line or refusal.field, {})[why] = None
        return False

    def try_next(self, cell_name: str, under: Policy) -> bool:
        """Add a line for a cell that failed without a refusal: the first that ``under`` lacks.

        The line is a guess. Reading files comes first, because a library that misses a file often
        fails with a message of its own. Return False if ``under`` lacks none of the lines.
        """
        why = f"a guess: {cell_name} failed without it, and ran under preset data"
        for line in (_READ_LINE, _CONFINED_LINE, _STAGE_LINE, _START_LINE):
            if _lacks(under, *line):
                self.ask(why, line)
                return True
        return False


def learn(notebooks: Sequence[files.File], base: str) -> Proposal:
    """Return the proposal for ``notebooks``, which extends the preset ``base``.

    Raise CellblockError if a notebook can't be read, or nothing can be run.
    """
    policy = load_for_check(preset_policy(base).name)
    proposal = Proposal(policy.name)
    try:
        jobs = [
            Job(file.shown, files.read(file), files.absolute(file.path.parent))
            for file in notebooks
        ]
    except (OSError, files.NoFileError) as error:
        raise CheckError(f"a notebook can't be read: {error}") from None
    observed = asyncio.run(_run("data", jobs, RunOptions()))
    # If a notebook ends at a cell even under preset data, the cells after it are never run, and
    # their findings don't matter.
    ends = {result.notebook: result.cell for result, _ in observed if result.cell}
    for name, cell, finding in _findings(notebooks, policy):
        if cell <= ends.get(name, cell):
            proposal.refused(finding, _cell_name(name, cell), policy)
    for result, refusals in observed:
        staged = changes.session(result.staged) if result.staged else None
        if staged is not None:
            if staged.is_written_to():
                proposal.ask(f"{result.notebook} wrote to the project", _READ_LINE, _STAGE_LINE)
            staged.drop()
        for cell, refusal in refusals:
            proposal.refused(refusal, _cell_name(result.notebook, cell), preset_policy("data"))
    for rounds in range(_ROUNDS + 1):
        policy = proposal.policy()
        proposal.ran = asyncio.run(_run(policy, jobs, RunOptions(changes=DROP)))
        if rounds == _ROUNDS or not _improve(proposal, observed, policy):
            break
    return proposal


def _findings(
    notebooks: Sequence[files.File], policy: Policy
) -> Iterator[tuple[str, int, Finding]]:
    """Yield the findings of a check, each with its notebook and cell."""
    folder = os.fsencode(Path.cwd())
    options = msgspec.structs.replace(CheckOptions.of(policy), project=folder, folder=folder)
    for file in check(notebooks, policy, options).files:
        for placed in file.verdict.findings:
            yield file.path, placed.cell, placed.finding


async def _run(policy: str | Policy, jobs: Sequence[Job], options: RunOptions) -> list[_Ran]:
    """Run notebooks one after the other, with the current folder as the project."""
    ran: list[_Ran] = []
    async with AsyncSandboxPool(policy, project=Path.cwd()) as pool, PolicyPools(pool) as pools:
        for job in jobs:
            execution = Execution(job, options)
            ran.append((await execution.run(pools), execution.refused))
    return ran


def _improve(proposal: Proposal, observed: Sequence[_Ran], under: Policy) -> bool:
    """Add lines for what the proposal's run was refused. Return whether any line was added.

    ``observed`` is the run under preset data, ``under`` the policy of the proposal's run.
    """
    improved = False
    unhelped = []
    for (data_result, _), (result, refusals) in zip(observed, proposal.ran, strict=True):
        if result.status is NotebookStatus.passed:
            continue
        # If the notebook ended at this cell under preset data too, no line of that helps the cell.
        data_got_further = (
            data_result.status is NotebookStatus.passed or result.cell < data_result.cell
        )
        last_cell = _cell_name(result.notebook, result.cell)
        for cell, refusal in refusals:
            cell_name = _cell_name(result.notebook, cell)
            is_last = cell == result.cell
            if data_got_further or not is_last:
                improved |= proposal.refused(refusal, cell_name, under, data_allows=is_last)
        if data_got_further and all(cell != result.cell for cell, _ in refusals):
            improved |= proposal.try_next(last_cell, under)
        elif data_got_further:
            unhelped.append(last_cell)
    # The refusals in a last cell may be things that it can do without. If no line was added for
    # any of them, guess.
    guesses = [] if improved else [proposal.try_next(last_cell, under) for last_cell in unhelped]
    return improved or any(guesses)


def _lacks(policy: Policy, name: str, value: Any) -> bool:
    has = getattr(policy, name)
    return value not in has if isinstance(has, tuple) else bool(value != has)


def _cell_name(notebook: str, cell: int) -> str:
    return f"{notebook}, cell {cell}" if cell else notebook


def _comment(reason: str, *more: str) -> str:
    """Return a reason as a comment of TOML, in one line without control characters.

    Of further reasons, only the number is given.
    """
    further = f" (and {count(len(more), 'more reason')})" if more else ""
    return f"# {clip(one_line(encodable(reason)), _MAX_REASON)}{further}"
