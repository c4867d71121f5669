"""What a session shows of itself: what is in force and enforced, why a cell did not run.

``Views`` holds what is known of that and makes the cards; then come the tables of ``%policy`` and
the like (``ANSWERS``), what a policy allows in one sentence, and the cards of what was stopped.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.backends import plan
from cellblock.backends import report as reports
from cellblock.errors import AdmissionError, BackendError, CellblockError, InputError, PolicyError
from cellblock.host.cell import output_log
from cellblock.host.cell.lacking import lacking
from cellblock.host.cell.quota import Quota
from cellblock.host.cell.refusals import (
    advised,
    judge,
    judge_gpus,
    judge_missing,
    judge_secrets,
    looks_for_gpus,
    names_home,
    reads_secrets,
)
from cellblock.host.cell.written import Written
from cellblock.host.guests.zygote import ENDED, EXITED
from cellblock.host.limits.reading import Reading
from cellblock.host.limits.scratch import DEEPEST, MOST_REMOVED, STUCK
from cellblock.host.output import gateway
from cellblock.host.output.text import json_size
from cellblock.host.services.changes import GIT, MOST_ENTRIES
from cellblock.host.session.history import default_path
from cellblock.host.session.types import CHARGED, ESTIMATED
from cellblock.policy import paths
from cellblock.policy.model import Gap, Status
from cellblock.policy.narrowing import changed_fields
from cellblock.render import outcomes as cards
from cellblock.render import policy_card, tables
from cellblock.render.cards import problem, problem_failure, value_words
from cellblock.render.outcomes import denial, denial_failure
from cellblock.render.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cellblock.analysis import Finding
    from cellblock.analysis.admission import Template
    from cellblock.backends.report import Proof
    from cellblock.errors import AuditError
    from cellblock.host.cell.output_log import OutputLog
    from cellblock.host.services.artifacts import CellArtifacts
    from cellblock.host.services.changes import Change, Staged, State
    from cellblock.host.services.ports import PortState
    from cellblock.host.session.config import SessionConfig
    from cellblock.host.session.types import Stopped, Usage
    from cellblock.host.state.names import BranchListing
    from cellblock.policy.model import Enforcement, Policy
    from cellblock.render.cards import Bundle, Failure
    from cellblock.render.outcomes import Refusal
    from cellblock.render.tables import Budget
    from cellblock.wire import messages as wire
    from cellblock.wire.messages import LockReport, Tool


#: A card, and the error that goes with it.
Shown = tuple["Bundle", "Failure"]

#: Bytes that a table is counted as, before it is made.
TABLE_BYTES: Final = 32 << 10
_IN_HOME: Final = (
    "Nothing is staged in your home folder: put the notebook in a folder of its own: mkdir "
    "~/analysis"
)
#: Seconds of the diffs in one listing of what is staged, and of all listings that a cell asks for.
_MOST_DIFFS: Final = 0.5
_MOST_LISTING: Final = 2.0
_BUSY: Final = (
    f"What was written can't be listed within {_MOST_LISTING:g} s: cells keep its folders busy. "
    "End what they have started, or try again."
)
#: Entries that ``%changes`` looks at: nothing else goes on meanwhile, 0.3 s at most.
#: Of names that %changes was given and that nothing has.
_MOST_NAMED: Final = 3
_MOST_LISTED: Final = 10_000
#: Cells that are remembered one by one, and characters of their first line.
MAX_CELLS: Final = 1_000
MAX_LINE: Final = 200
#: Things that were not there, and names below ~, of which a session says something.
MAX_SAID: Final = 500
_MOST_LOOKED_FOR: Final = 2_000
_FEW: Final = 3
_LONGEST_NAME: Final = 100
#: The locks without which no more can be laid on a guest.
_GATE: Final = {"gate", "landlock", "seccomp"}
_LASTING_REMEDY: Final = "begin afresh, which costs the variables: %policy narrow --fresh …"


def _log(text: str) -> None:
    """Write a line to the kernel's stderr, a server's log; that nobody takes it costs no guest."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():  # a console's prompt stands there, and its first cell says it
            return
        sys.stderr.write(f"cellblock: {text}\n")
        sys.stderr.flush()


def _below_home(folder: str, since: float, said: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Return names in the cells' home folder that are as new as ``since`` and were not said."""
    names = list[str]()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MAX_SAID):
            known = entry.name.startswith((".", "tmp")) or ("~", entry.name) in said
            if not known and entry.stat(follow_symlinks=False).st_mtime >= since:
                names.append(entry.name)
    return tuple(names)


class Asked(NamedTuple):
    """What a magic was asked to show, the output that is kept, and what its cell may still show."""

    argument: str
    kept: OutputLog
    quota: Quota


class Views:
    """What one session shows of itself; made from its config, or from why there is none.

    Until a guest has reported its locks, what is enforced is not known. ``log`` gets what is not
    enforced, a line each.
    """

    def __init__(
        self,
        config: SessionConfig | PolicyError | BackendError | None = None,
        log: Callable[[str], None] = _log,
    ) -> None:
        self._log = log
        self._config: SessionConfig | None = None
        #: The policy before notebook and cells narrowed it.
        self.operators: Policy | None = None
        #: What the guest reported of its locks, and what that is worth.
        self.report: LockReport | None = None
        self.enforcement: Mapping[str, Enforcement] = {}
        self.gaps: tuple[Gap, ...] = ()
        #: When a suite of probes saw what is verified; empty where it did not.
        self.proved = ""
        #: What the guest still has of a wider policy, by field: until it is replaced.
        self.lasting: dict[str, str] = {}
        self._gaps_due = False
        #: What is missing, where the policy has nothing run without it.
        self._missing = ""
        #: Whether nothing can run, and what a card says about that.
        self.failed = False
        self._problem: tuple[str, ...] = ("No guest could be started", "")
        #: What else is wrong with its policy, a text each.
        self._also: tuple[str, ...] = ()
        self.tools_in_force: tuple[Tool, ...] = ()
        #: Templates by name, read when somebody looks.
        self.templates_in_force: Mapping[str, Template] = {}
        #: What tells how much is left of each budget.
        self.budgets: dict[str, Callable[[], Budget]] = {}
        #: Asks which ports are open, and where somebody listens.
        self.ports: Callable[[], tuple[PortState, ...]] = lambda: ()
        #: What cells took: the last ones one by one, and all together.
        self._usage: deque[tables.UsageRow] = deque(maxlen=MAX_CELLS)
        self._total = tables.UsageTotals(0, 0.0, 0.0, 0, 0)
        #: Something that the first cell is to say, once.
        self.notice = ""
        #: What cells wrote to the project, and nobody has kept yet.
        self.staged: Staged | None = None
        self.told_of_staging = False
        #: How the front's readers have that kept.
        self.how_to_keep = tables.BY_CELLS
        self._commits: tuple[State, ...] = ()
        #: What was said once.
        self._said = set[tuple[str, str]]()
        #: How often cells told that they looked for something in vain.
        self._looked_for = 0
        #: What one cell's listings of that took: which cell's, by its quota, and seconds.
        self._listing: tuple[Quota | None, float] = None, 0.0
        self._reading: Reading[Bundle] = Reading()
        #: The table of the policy, and what it was made of: it takes ten milliseconds, and one
        #: read from a guest may ask for hundreds.
        self._policy_table: tuple[tuple[object, ...], Bundle] | None = None
        if isinstance(config, PolicyError):
            self.refuse(config)
        elif isinstance(config, BackendError):
            self.fail(str(config))
        elif config is not None:
            self._config = config
            self.operators, self.notice = config.operators or config.policy, config.notice

    # --- what is in force ---------------------------------------------------------------------

    @property
    def in_force(self) -> Policy | None:
        """The policy in force, None when none could be read."""
        return self._config.policy if self._config is not None else None

    @property
    def scratch(self) -> str:
        """The folder that cells have for themselves."""
        return self._config.prepare.scratch if self._config is not None else ""

    @property
    def backend(self) -> str:
        """The backend that enforces it."""
        return self._config.chosen.backend.name if self._config is not None else ""

    @property
    def name(self) -> str:
        """What messages call the policy in force."""
        policy = self.in_force
        if policy is None:
            return ""
        return policy.name if policy == self.operators else f"{policy.name} (narrowed)"

    @property
    def _display(self) -> str:
        return self._config.policy.display if self._config is not None else "sanitized"

    def show(self, data: Any) -> dict[str, Any]:
        """Return what the policy's ``display`` lets a cell's output show of a bundle."""
        return gateway.for_display(self._display)(data)

    def show_in_passing(self, data: Any) -> dict[str, Any]:
        """Return the same for pagers, tooltips and expressions."""
        return gateway.for_page(self._display)(data)

    def quota(self) -> Quota:
        """Return a fresh count of what one cell may show."""
        policy = self.in_force
        return Quota(
            {
                "stdout": policy.stdout_max_bytes if policy else None,
                "stderr": policy.stderr_max_bytes if policy else None,
                "display": policy.display_max_bytes if policy else None,
            }
        )

    def kept_bytes(self) -> int | None:
        """Return the cap on what is kept for ``%output``; 0 where cells can't run that."""
        policy = self.in_force
        if policy is None or (policy.mode == "safe" and "output" not in policy.magics):
            return 0
        return policy.output_kept_max_bytes

    # --- what is enforced ---------------------------------------------------------------------

    def narrowed(self, config: SessionConfig) -> None:
        """Show a narrower policy from now on."""
        self._config = config
        if self.report is not None:
            self._judge(config, self.report)

    def locked(self, report: LockReport) -> str:
        """Take a new guest's report of its locks; return why nothing may run, or nothing."""
        config, first = self._config, self.report is None
        if config is None:
            return "no policy is in force"
        self.lasting = {}
        if first and self.backend == "noop":
            # The server's log: the user of a notebook does not see it, and its owner does.
            what = f"policy {config.policy.name!r} is audited, not enforced"
            why = "cells can read, change and send whatever this user can"
            self._log(f"WARN: backend noop: {what}: {why}")
        refusal = self._judge(config, report)
        if report.begins_in:
            wanted = visible(config.prepare.cwd)
            told = (
                f"begins cells in {visible(report.begins_in)}: they can't enter {wanted}, which "
                "was removed or is shut to them. Make it again or change its mode, and restart"
            )
            self.notice = "; and ".join(filter(None, (self.notice, told)))
        if first:
            for gap in self.gaps:
                self._log(policy_card.gap_line(gap))
        matters = any(gap.matters for gap in self.gaps)
        self._gaps_due = first and matters and config.policy.on_unsupported == "warn"
        return refusal

    def inherit(self, views: Views) -> None:
        """Take over what is enforced where this is a fork of, under the same policy."""
        self.report, self.enforcement, self.gaps = views.report, views.enforcement, views.gaps
        self.proved = views.proved

    @property
    def gated(self) -> bool:
        """Whether more locks can be laid on the guest: its zygote allows what it starts."""
        return self.report is not None and self.report.achieved.keys() >= _GATE

    def refusal_under(self, policy: Policy) -> str:
        """Return why nothing might run under this policy in the guest, or nothing."""
        if self._config is None or self.report is None:
            return ""
        chosen = self._config.chosen
        found = reports.gaps(policy, chosen.declare(policy), self.report, None)
        return _refusal(policy, found)

    def _judge(self, config: SessionConfig, report: LockReport) -> str:
        """Work out what the policy is worth; return why nothing may run, or nothing."""
        policy, chosen, proof = config.policy, config.chosen, self._find_proof(config, report)
        declared = chosen.declare(policy)
        found = reports.gaps(policy, declared, report, proof)
        enforcement = dict(reports.settle(declared, report, proof))
        gaps = [*reports.replaced(policy, chosen), *found]
        for name, hole in self.lasting.items():
            each = enforcement[name]
            status = Status.partial if each.holds else each.status
            enforcement[name] = replace(each, status=status, holes=(*each.holes, hole))
            gaps.append(
                Gap(
                    capability=name,
                    status=status,
                    asked=value_words(name, getattr(policy, name)),
                    actual=each.mechanism,
                    consequence=hole,
                    remedy=_LASTING_REMEDY,
                )
            )
        self.report, self.enforcement, self.gaps = report, enforcement, tuple(gaps)
        self.proved = proof.time if proof is not None else ""
        self._missing = _refusal(policy, found)
        return self._missing

    def look_for_proof(self) -> str:
        """Judge again what the policy is worth in a guest that runs: there may be a proof by now.

        Return why nothing may run in it any more, or nothing. A lock that the proof saw not to hold
        is shown and logged, as if the proof had been there at the start.
        """
        if self._config is None or self.report is None:
            return ""
        refusal = self._judge(self._config, self.report)
        contradicted = [gap for gap in self.gaps if gap.contradicted]
        for gap in contradicted:
            self._log(policy_card.gap_line(gap))
        if contradicted and self._config.policy.on_unsupported == "warn":
            self._gaps_due = True
        return refusal

    def _find_proof(self, config: SessionConfig, report: LockReport) -> Proof | None:
        """Return what a suite of probes saw here, for exactly these locks."""
        folder = default_path().parent
        if not os.path.exists(folder / "proofs.json"):
            return None
        from cellblock.host import probes  # noqa: PLC0415 - where there are any

        folders: Any = {"project": config.project, "scratch": config.scratch}
        with contextlib.suppress(OSError):  # what wraps the zygote is gone, say
            key = probes.key(config.policy, config.chosen.backend, report, **folders)
            found = probes.Proofs(folder).find(key)
            return found if found is not None and probes.is_whole(found, config.policy) else None
        return None

    def gaps_once(self) -> Bundle | None:
        """Return the card of gaps that matter, the first time there are any."""
        policy = self.in_force
        if not self._gaps_due or policy is None:
            return None
        self._gaps_due = False
        shown = [gap for gap in self.gaps if gap.matters]
        return policy_card.gaps(shown, policy_name=policy.name, backend=self.backend)

    def look(self, code: str, since: float, *, reads: bool) -> Callable[[], Written] | None:
        """Return what looks at the folders that a cell may have written to; None for none.

        ``since`` is when the cell began, in seconds since 1970: a program may have put files there.
        ``reads`` is whether somebody reads along. It is for a thread: cells can lock the folders.
        """
        config, staged = self._config, self.staged if reads else None
        if config is None:
            return None
        home = self._home_to_tell(code)
        secrets = reads_secrets(code)
        tells = staged is not None and not self.told_of_staging and bool(self.how_to_keep.first)
        gpus = looks_for_gpus(code)
        if not (secrets or gpus or home or staged):
            return None
        said = frozenset(self._said)

        def look() -> Written:
            return Written(
                judge_secrets(code, config) if secrets else None,
                _below_home(home, since, said) if home else (),
                staged is not None and tells and staged.is_written_to(),
                staged.commits() if staged is not None else None,
                judge_gpus(code, config) if gpus else None,
            )

        return look

    def staging_once(self, found: Written) -> Bundle | None:
        """Return the card that is shown when cells first have written to the project."""
        if self.staged is None or self.told_of_staging or not found.is_staged:
            return None
        self.told_of_staging = True
        below = " and below ~" if self.staged.has_home() else ""
        what = f"What cells write to your project{below} is put aside"
        return tables.kept_note(f"{what}: {self.how_to_keep.first}.")

    def committed(self, found: Written) -> str:
        """Return what the reader of a cell that committed is told, whose commit is not kept."""
        if found.commits is None or found.commits == self._commits:
            return ""
        self._commits = found.commits
        if not any(found.commits):
            return ""
        return f"notes: {GIT} is staged and never kept, nor is this commit: commit in a terminal"

    # --- why a cell did not run ---------------------------------------------------------------

    def denial(self, findings: Sequence[Finding], label: str = "") -> Shown:
        """Return what is shown of a cell that was denied.

        ``label`` says what the findings are in, where that is not the cell.
        """
        card = denial(
            findings,
            policy_name=self.name,
            file=self.file,
            is_operators=self._is_operators,
            source_label=label or None,
        )
        return card, denial_failure(card, findings)

    def too_long(self, has: int, cap: int, what: str) -> Shown:
        """Return what is shown of a cell that is too long to be looked at."""
        detail = f"It has {has:,} {what}; {cap:,} are looked at."
        remedy = "Keep data in a file, or divide the cell."
        return _problem_shown("PolicyProblem", "This cell is too long", detail, "", "", "", remedy)

    def unwritten(self, error: AuditError, *, runs: bool) -> Shown:
        """Return what is shown of a cell that is not on the audit log, and runs or does not."""
        title, detail = "This cell runs, and is not on the audit log", error.message
        if not runs:
            title = "This cell did not run: it would not be on the audit log"
            detail = f"{detail}. Your variables are kept."
        where = (error.file, error.key, "", error.remedy)
        return _problem_shown("AuditProblem", title, detail, *where)

    def unadmitted(self, error: AdmissionError) -> Shown:
        """Return what is shown of a cell about which nobody can tell whether it may run."""
        title = "This cell did not run: what may run can't be told"
        where = (error.file, error.key, "", error.remedy)
        return _problem_shown("AdmissionProblem", title, error.message, *where)

    def refuse(self, error: PolicyError) -> None:
        """Have every cell end with this error."""
        self.failed = True
        what, file = "these inputs" if isinstance(error, InputError) else "this policy", error.file
        if (config := self._config) is not None and file == config.policy.name:
            file = config.file or file
        title = f"cellblock can't run cells with {what}"
        remedy = f"{error.remedy} Then restart the kernel."
        self._problem = (title, error.message, file, error.key, error.value, remedy)
        self._also = tuple(f"{one.what()} {one.remedy}" for one in error.others)

    def allow(self) -> None:
        """Take a refusal back: the user has allowed what has to be allowed."""
        self.failed = False

    def fail(self, detail: str) -> None:
        """Have every cell end with the reason why no guest runs."""
        self.failed = True
        remedy = "Run `cellblock doctor`; then restart the kernel."
        if detail and detail == self._missing:
            own = 'a policy with require = [] and on_unsupported = "warn"'
            remedy = f"Run `cellblock doctor`; or have {own} run cells all the same."
        if why := self._why_not_wrapped(detail):
            # Not taken by itself: it is weaker, and something here is not as it says.
            detail, remedy = why, f'{remedy[:-1]}, or name another backend: backend = "landlock".'
        self._problem = ("The guest can't be started", detail, "", "", "", remedy)

    def _why_not_wrapped(self, detail: str) -> str:
        """Return what is wrong with what wraps a zygote: that the zygote ended tells little."""
        backend = self._config.chosen.backend if self._config is not None else None
        if backend is None or not backend.wraps:
            return ""
        support = backend.probe()
        if not support.usable:
            return f"backend {backend.name}: {support.why}"
        # Its probe succeeds, and yet no zygote comes up behind it.
        return f"backend {backend.name}: {detail}" if detail.endswith(ENDED) else ""

    def refusal_of(self, call: wire.FailedCall, code: str) -> Refusal | None:
        """Return what of the policy is behind a call that failed in a cell, if anything is."""
        config = self._config
        found = judge(call, config, code) if config is not None else None
        return advised(found, code, config.policy) if config and found is not None else None

    def missing_once(self, message: wire.NotThere, code: str) -> str:
        """Return what a cell is told that looked for something in vain; empty for most, and later.

        ``code`` is the cell.
        """
        config = self._config
        self._looked_for += 1
        if config is None or self._looked_for > _MOST_LOOKED_FOR:
            return ""
        return self._once(judge_missing(message, config, code, os.environ))

    def secrets_once(self, found: Written) -> str:
        """Return what a cell is told that reads a file of secrets by its name; later nothing."""
        return self._once(found.secrets)

    def gpus_once(self, found: Written) -> str:
        """Return what a cell is told whose library found no GPU that the policy could grant."""
        return self._once(found.gpus)

    def _once(self, found: Refusal | None) -> str:
        if found is None or len(self._said) >= MAX_SAID:
            return ""
        known = (found.field, found.asked)
        if known in self._said:
            return ""
        self._said.add(known)
        return f"notes{self.refusal_in_a_line(found).removeprefix('cellblock')}"

    def home_once(self, found: Written) -> str:
        """Return what a cell is told that wrote below ``~`` where that is not staged; or nothing.

        The names are a guest's: they are bounded and shown, and nothing is opened.
        """
        names = found.below_home
        self._said.update(("~", name) for name in names)
        if not names:
            return ""
        shown = ", ".join(f"~/{visible(name[:_LONGEST_NAME])}" for name in sorted(names)[:_FEW])
        more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
        return (
            f"notes: ~ is the cells' own scratch folder, and goes with the session: {shown}{more}. "
            "Write to the project what you want to keep"
        )

    def _home_to_tell(self, code: str) -> str:
        """Return ~, where a cell names that and it is no layer, which is listed; or nothing."""
        config = self._config
        if config is None or config.policy.mode == "safe" or not names_home(code):
            return ""
        prepare = config.prepare
        return prepare.scratch if prepare.environment.get("HOME") == prepare.scratch else ""

    def refusal_in_a_line(self, found: Refusal) -> str:
        """Return its reason and remedy for an exception's message."""
        return cards.refusal_sentence(found, self.name, self.file, is_operators=self._is_operators)

    def refusal_reason(self, found: Refusal) -> str:
        """Return its reason alone, for a traceback above its card."""
        return f"cellblock: {cards.refusal_reason(found, self.name)}"

    def refusal_card(self, found: Refusal) -> Bundle:
        """Return its card."""
        return cards.refusal_card(found, self.name, self.file, is_operators=self._is_operators)

    @property
    def file(self) -> str:
        """The policy's file as it was named, or a preset's name."""
        return self._config.file if self._config is not None else ""

    @property
    def _is_operators(self) -> bool:
        """Whether the policy's file is one that the user can't write to."""
        return os.path.isfile(self.file) and not os.access(self.file, os.W_OK)

    def problem(self) -> Shown:
        """Return what every cell shows when nothing can run."""
        return _problem_shown("PolicyProblem", *self._problem, also=self._also)

    def artifacts(self, found: CellArtifacts) -> Bundle:
        """Return the card for files that were copied out; links lead from the project."""
        project = str(self._config.project) if self._config is not None else ""
        files = []
        for one in found.artifacts:
            linked = bool(project) and one.path.startswith(f"{project}/")
            path = one.path.removeprefix(f"{project}/") if linked else one.path
            files.append(
                tables.File(one.name, path, one.size_bytes, one.content_type, linked=linked)
            )
        left = [tables.Left(one.name, one.why) for one in found.skipped]
        return tables.artifacts(files, left, uncounted=found.uncounted)

    # --- what a cell asks to see --------------------------------------------------------------

    def answer(self, asked: wire.Show, kept: OutputLog, quota: Quota) -> Bundle | None:
        """Return the table or page that a cell asks for; None where its quota has no room."""
        # A page of %output is made first, and counts as what it is.
        if asked.what != "output" and not quota.admits(TABLE_BYTES):
            return None
        return ANSWERS[asked.what](self, Asked(asked.argument, kept, quota))

    def output_page(self, asked: Asked) -> Bundle | None:
        """Return what ``%output`` shows, which counts as what it is."""
        if asked.quota.spent(0):
            return None
        page = output_log.answer(asked.kept, asked.argument)
        return page if asked.quota.admits(json_size(page)) else None

    def usage_table(self, asked: Asked) -> Bundle:
        """Return what ``%usage`` shows."""
        return tables.usage(list(self._usage), self._total, asked.argument, self._spent())

    def tools_table(self, _asked: Asked) -> Bundle:
        """Return what ``%tools`` shows."""
        return tables.tools(self.tools_in_force, self._spent())

    def templates_table(self, asked: Asked) -> Bundle:
        """Return what ``%template`` shows: all that there are, or the one that is named."""
        try:
            return tables.templates(dict(self.templates_in_force), asked.argument)
        except AdmissionError as error:
            return self.unadmitted(error)[0]

    def changes_table(self, asked: Asked) -> Bundle:
        """Return what ``%changes`` shows; all listings of one cell have a bound together."""
        if self._listing[0] is not asked.quota:
            self._listing = asked.quota, 0.0
        if self._listing[1] > _MOST_LISTING:
            return tables.kept_note("%changes was shown often in this cell: run it in the next.")
        if self._reading.is_under_way:
            return tables.kept_note(_BUSY)
        began = time.monotonic()
        self._reading.begin(lambda: self._changes(asked.argument), _MOST_LISTING)
        self._listing = asked.quota, self._listing[1] + time.monotonic() - began
        return self._reading.take() or tables.kept_note(_BUSY)

    def _changes(self, argument: str) -> Bundle:
        staged = self.listable()
        if staged is None:
            config = self._config
            if config is not None and paths.reads_home_files(config.policy, config.project):
                return tables.kept_note(_IN_HOME)
            return tables.kept_note("Nothing is staged under this policy.")
        try:
            named = shlex.split(argument)
            found = staged.changes(named, _MOST_LISTED)
            if named and not found:
                names = " or ".join(map(visible, named[:_MOST_NAMED]))
                all_of_them = "%changes alone lists all, with their differences."
                return tables.kept_note(f"No staged file is called {names}. {all_of_them}")
            return self.changes_card(staged, found)
        except (CellblockError, OSError, ValueError) as error:
            return tables.kept_note(f"What was written can't be listed: {error}")

    def listable(self) -> Staged | None:
        """Return what is staged, without what the policy in force denies."""
        if self.staged is None or self._config is None:
            return None
        denied = plan.denied(self._config.policy, private=self._config.private)
        return self.staged.without(denied)

    def changes_card(
        self, staged: Staged, changes: Sequence[Change], digests: Mapping[str, str] | None = None
    ) -> Bundle:
        """Return the card of what is staged; with ``digests``, of what is asked about, as it is."""
        rows, until = [], time.monotonic() + _MOST_DIFFS
        for one in changes[: tables.CHANGES]:
            digest = "" if digests is None else digests.get(one.name, "")
            in_time = time.monotonic() < until
            diff, cut = staged.diff(one, digest, most=tables.DIFF_LINES) if in_time else ("", 0)
            name = staged.label(one)
            note = one.why_not and f"not kept: {one.why_not}"
            if one.yours_since is not None:
                note = "yours was changed meanwhile"
            rows.append(tables.ChangeRow(name, one.kind, one.size, one.before, note, diff, cut))
        keepable = sum(not one.why_not for one in changes)
        asked = digests is not None
        return tables.changes(
            rows, len(changes), staged.id, keepable, self.how_to_keep, asked=asked
        )

    def policy_table(self, _asked: Asked) -> Bundle:
        """Return what ``%policy`` shows."""
        policy, operators = self.in_force, self.operators
        if policy is None:
            return {"text/plain": "No policy is in force."}
        of = (policy, operators, self.enforcement, self.gaps, self.backend)
        made = self._policy_table
        if made is None or any(a is not b for a, b in zip(made[0], of, strict=True)):
            before = {}
            if operators is not None:
                before = {
                    name: getattr(operators, name) for name in changed_fields(operators, policy)
                }
            fields = policy.as_dict() | {"backend": self.backend}
            worth = tuple(self.enforcement.values())
            made = of, policy_card.policy_table(fields, worth, self.gaps, before)
            self._policy_table = made
        return dict(made[1])

    def ports_table(self, _asked: Asked) -> Bundle:
        """Return what ``%ports`` shows."""
        policy = self.in_force
        if policy is None or not policy.ports:
            return tables.no_ports(self.name)
        gap = next((each for each in self.gaps if each.capability == "ports"), None)
        if gap is not None and gap.status is not Status.partial:
            return tables.kept_note(f"{gap.actual[:1].upper()}{gap.actual[1:]}: {gap.remedy}")
        return tables.ports(self.ports(), is_any=policy.ports == "any")

    def add_usage(self, number: int, source: str, usage: Usage) -> None:
        """Enter what a cell took: ``%usage`` lists it."""
        line, total = source.lstrip()[:MAX_LINE].partition("\n")[0], self._total
        self._usage.append(tables.UsageRow(number, line, **usage.as_dict()))
        self._total = tables.UsageTotals(
            total.cells + 1,
            total.wall_seconds + usage.wall_seconds,
            total.cpu_seconds + usage.cpu_seconds,
            total.output_bytes + usage.output_bytes,
            total.read_bytes + usage.read_bytes,
        )

    def _spent(self) -> dict[str, Budget]:
        return {name: ask() for name, ask in self.budgets.items()}


#: What the host shows in place of each magic that ``analysis.magic_table`` has as shown by it.
ANSWERS: Final[Mapping[str, Callable[[Views, Asked], Bundle | None]]] = {
    "changes": Views.changes_table,
    "output": Views.output_page,
    "policy": Views.policy_table,
    "ports": Views.ports_table,
    "template": Views.templates_table,
    "tools": Views.tools_table,
    "usage": Views.usage_table,
}


def _problem_shown(
    ename: str, title: str, detail: str, *parts: str, also: Sequence[str] = ()
) -> Shown:
    """Return a card and its error, of the parts of a ``PolicyError``; ``also`` are others."""
    card = problem(title, detail, *parts, also=also)
    return card, problem_failure(card, detail, ename)


def _refusal(policy: Policy, gaps: tuple[Gap, ...]) -> str:
    """Return why nothing may run with these gaps, or nothing."""
    fatal = reports.blocking(policy, gaps)
    return "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in fatal)


# --- what was stopped: a cell, a guest between cells, a handler of a comm's messages ------------
#
# ``policy`` is the one in force, whose limit it may have been.

#: What ends a cell at a limit, and the field that sets it.
FIELD_OF_STOP: Final = {
    "timeout": "timeout",
    "cpu": "cpu_seconds",
    "memory": "memory_max_bytes",
    "forks": "forks_max_bytes",
    "scratch": "scratch_max_bytes",
}


_REASONS: Final = {
    "deep": ("deep", f"{DEEPEST}"),
    "files": ("files", f"{MOST_ENTRIES:,} files"),
    "folders": ("folders", f"{MOST_REMOVED:,} removed folders"),
    "locked": ("locked", f"{STUCK:g} s"),
    "mapped": ("mapped", "four times the machine's memory"),
    "interrupt": ("interrupted", ""),
}


def stopped_card(stopped: Stopped, policy: Policy | None, *, of_variant: bool = False) -> Shown:
    """Return what is shown of a cell that was ended from outside."""
    why, limit = stop_reason(stopped, policy)
    state = cards.State.kept if stopped.kept else cards.State.gone
    lost: tuple[str, ...] = ()
    if stopped.restored is not None:
        state, lost = cards.State.restored, lacking(stopped.restored)
    if of_variant:
        state, lost = cards.State.apart, ()
    own = ""
    if stopped.seconds is not None:
        most = None if policy is None else policy.timeout
        own = f"timeout={most:g}, which the policy allows" if most else "a larger timeout"
    name = "" if policy is None else policy.name
    card = cards.stopped(
        why,
        limit,
        state=state,
        lost=lost,
        own=own,
        beside=stopped.beside,
        estimate=stopped.detail if stopped.detail in (ESTIMATED, CHARGED) else "",
        policy_name=name,
    )
    return card, replace(cards.stopped_failure(card), frames=frames(stopped))


#: How the lines of IPython's traceback begin that name the error, above the frames and below.
_OF_ERROR: Final = re.compile(r"(?:\x1b\[[\d;]*m)*(?:-{20}|KeyboardInterrupt\b)")


def frames(stopped: Stopped) -> tuple[str, ...]:
    """Return where a cell was that was interrupted, without the words of the interrupt."""
    if (error := stopped.error) is None:
        return ()
    cleaned = gateway.clean_error(error.ename, error.evalue, error.traceback)["traceback"]
    return tuple(line for line in cleaned if not _OF_ERROR.match(line))


def undone_card(stopped: Stopped, policy: Policy | None) -> Bundle:
    """Return the card for cells that were undone, or for a checkpoint that was gone back to."""
    if stopped.restored is None:  # every copy to go back to had ended
        return stopped_card(stopped, policy)[0]
    if stopped.detail:
        lost = lacking(stopped.restored)
        return cards.restored(stopped.detail, branch=stopped.branch, lost=lost)
    return cards.undone(stopped.undone, lost=lacking(stopped.restored))


def branches_card(found: BranchListing) -> Bundle:
    """Return the list of branches and checkpoints."""
    return tables.branches(*found[:3], begins=found.begins)


def comm_failure_card(ended: Stopped | str, policy: Policy | None) -> Bundle:
    """Return the card for a comm message whose handler did not come to its end."""
    if not isinstance(ended, str):
        return stopped_card(ended, policy)[0]
    return problem("A message from the page did not reach the cell", ended)


#: Said of a guest that reports one all the same.
_NO_BREACH: Final = "protocol violation: a breach where no source is checked"


def stop_reason(stopped: Stopped, policy: Policy | None) -> tuple[str, str]:
    """Return why a cell was stopped, and the limit or cause in words.

    A guest may have had a say in those: what would act on a terminal is spelled out.
    """
    detail = visible(stopped.detail)
    match stopped.why:
        case "timeout" | "cpu" | "memory" | "forks" | "scratch":
            field, value = FIELD_OF_STOP[stopped.why], stopped.seconds
            value = getattr(policy, field, None) if value is None else value
            return stopped.why, value_words(field, value)
        case "deep" | "files" | "folders" | "locked" | "mapped" | "interrupt":
            return _REASONS[stopped.why]
        case "violation":
            return "protocol", detail
        case "breach":
            is_checked = policy is None or policy.mode == "safe"
            return ("breach", cards.operation(detail)) if is_checked else ("protocol", _NO_BREACH)
        case "crash":
            ended = detail.removeprefix(EXITED)
            return "crashed" if ended == detail else "exited", ended
        case "silent" | "undo" | "narrowed" | "fork":
            return "lost", detail
