"""``Views``: makes the cards, tables and notices in which a session shows its own state.

A session has one ``Views``. It holds what the cards need: the policy in force, the guest's report
of its locks and what that is worth, what was used and staged, and what has been shown already.
Sections, in order:

- what is in force: the policy, and the bounds of outputs that follow from it
- what is enforced: takes reports and proofs, and says which gaps there are
- why a cell did not run, or a call failed: cards of denials, problems and refusals
- what a cell asks to see: the tables of ``%policy``, ``%usage`` and others (``ANSWERS``)
- functions after the class: the cards of cells and guests that were stopped

The words and the HTML are made in ``render``. Nothing here publishes: callers show the bundles.
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

from cellblock.analysis.findings import ONLY_THE_POLICY
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
    judge_programs,
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
from cellblock.render.allowing import who_allows_more
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


#: A card, and the error that is published with it.
Shown = tuple["Bundle", "Failure"]

#: Bytes that a table counts as in the cell's quota. The quota is asked before the table is made.
TABLE_BYTES: Final = 32 << 10
_IN_HOME: Final = (
    "Nothing is staged in your home folder: put the notebook in a folder of its own: mkdir "
    "~/analysis"
)
#: Seconds that the diffs in one listing of staged files may take.
_MOST_DIFFS: Final = 0.5
#: Seconds that all listings which one cell asks for may take.
_MOST_LISTING: Final = 2.0
_BUSY_NOTE: Final = (
    f"What was written can't be listed within {_MOST_LISTING:g} s: cells keep its folders busy. "
    "End what they have started, or try again."
)
#: Names given to ``%changes`` that it repeats if no staged file has them.
_MOST_NAMED: Final = 3
#: Entries that ``%changes`` lists. The host does nothing else meanwhile, for 0.3 s at most.
_MOST_LISTED: Final = 10_000
#: Cells that ``%usage`` lists one by one.
MAX_CELLS: Final = 1_000
#: Characters of a cell's first line that ``%usage`` shows.
MAX_LINE: Final = 200
#: Notices that a session shows, of things that were not there and of names below ~. Each is shown
#: once.
MAX_SAID: Final = 500
#: Reports of things not found that a session takes from its guest.
_MOST_LOOKED_FOR: Final = 2_000
#: Names below ~ that one notice lists.
_MOST_NAMES: Final = 3
_LONGEST_NAME: Final = 100
#: The locks that a guest needs so that more can be added to it while it runs.
_BOUNDARY_LOCKS: Final = {"gate", "landlock", "seccomp"}
_LASTING_REMEDY: Final = "begin afresh, which costs the variables: %policy narrow --fresh …"


def _log(text: str) -> None:
    """Write a line to the kernel's stderr, which is a server's log.

    Errors are ignored: a guest must not fail because nobody reads the log.
    """
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():
            return  # a line would disturb the console's prompt; the first cell shows the gaps
        sys.stderr.write(f"cellblock: {text}\n")
        sys.stderr.flush()


def _below_home(
    folder: str, since: float, names_shown: Collection[tuple[str, str]]
) -> tuple[str, ...]:
    """Return the names in the cells' home folder that were changed at ``since`` or later.

    Leaves out hidden and temporary files, and those in ``names_shown``. Looks at the first
    ``MAX_SAID`` entries only.
    """
    names = list[str]()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MAX_SAID):
            skipped = entry.name.startswith((".", "tmp")) or ("~", entry.name) in names_shown
            if not skipped and entry.stat(follow_symlinks=False).st_mtime >= since:
                names.append(entry.name)
    return tuple(names)


class Asked(NamedTuple):
    """The call of a magic that the host answers."""

    argument: str
    #: The log that ``%output`` reads.
    kept: OutputLog
    #: The quota of the cell that calls.
    quota: Quota


class Views:
    """The cards, tables and notices of one session about itself.

    Made from the session's config, or from the error because of which there is none. Until a guest
    has reported its locks, nothing is known of what is enforced. ``log`` gets a line for each gap.
    """

    def __init__(
        self,
        config: SessionConfig | PolicyError | BackendError | None = None,
        log: Callable[[str], None] = _log,
    ) -> None:
        self._log = log
        self._config: SessionConfig | None = None
        #: The policy as the operator wrote it, before notebook and cells narrowed it.
        self.operators: Policy | None = None
        #: The guest's report of the locks that it achieved; None before the first report.
        self.report: LockReport | None = None
        #: What the report is worth, by capability, and where that is less than the policy asks.
        self.enforcement: Mapping[str, Enforcement] = {}
        self.gaps: tuple[Gap, ...] = ()
        #: When the suite of probes proved these locks; empty if it has not.
        self.proved = ""
        #: Of a narrowed session: what the running guest still has of the wider policy, by field.
        #: Emptied when a new guest reports its locks.
        self.lasting: dict[str, str] = {}
        #: Whether the next visible cell shows the card of gaps.
        self._gaps_due = False
        #: The gaps because of which the policy lets nothing run, in words; empty if there are none.
        self._missing = ""
        #: Whether no cell can run.
        self.failed = False
        #: The parts of the card that each cell shows then: ``_problem_shown`` takes them.
        self._problem: tuple[str, ...] = ("No guest could be started", "")
        #: Further errors of the policy, in words.
        self._also: tuple[str, ...] = ()
        self.tools_in_force: tuple[Tool, ...] = ()
        #: Templates by name; read from disk when one is looked up.
        self.templates_in_force: Mapping[str, Template] = {}
        #: Functions that tell how much of each budget is spent, by its name.
        self.budgets: dict[str, Callable[[], Budget]] = {}
        #: Returns the open ports, and which of them a cell listens at.
        self.ports: Callable[[], tuple[PortState, ...]] = lambda: ()
        #: The usage of the last cells, one by one.
        self._usage: deque[tables.UsageRow] = deque(maxlen=MAX_CELLS)
        #: The usage of all cells together.
        self._total = tables.UsageTotals(0, 0.0, 0.0, 0, 0)
        #: A line for the first visible cell to show; emptied when it is shown.
        self.notice = ""
        #: The staged changes of the project, if the policy stages any.
        self.staged: Staged | None = None
        #: Whether the card was shown that tells the user about staging.
        self.told_of_staging = False
        #: How this front's users keep staged changes, in words.
        self.how_to_keep = tables.BY_CELLS
        #: The staged commits that ``committed`` saw last.
        self._commits: tuple[State, ...] = ()
        #: The notices that were shown, each of which is shown once: a field and what it is about,
        #: or "~" and a name.
        self._shown = set[tuple[str, str]]()
        #: Reports of things not found that were taken so far.
        self._looked_for = 0
        #: The quota of the last cell that listed changes, and the seconds that its listings took.
        self._listing: tuple[Quota | None, float] = None, 0.0
        self._reading: Reading[Bundle] = Reading()
        #: The table of ``%policy``, and what it was made from. Kept, since making it takes ten
        #: milliseconds, and one read from a guest may ask for hundreds.
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
        """The policy in force; None if none could be read."""
        return self._config.policy if self._config is not None else None

    @property
    def scratch(self) -> str:
        """The cells' scratch folder."""
        return self._config.prepare.scratch if self._config is not None else ""

    @property
    def backend(self) -> str:
        """The name of the backend that enforces the policy."""
        return self._config.chosen.backend.name if self._config is not None else ""

    @property
    def name(self) -> str:
        """The name by which cards and notices call the policy in force."""
        policy = self.in_force
        if policy is None:
            return ""
        return policy.name if policy == self.operators else f"{policy.name} (narrowed)"

    @property
    def _display(self) -> str:
        return self._config.policy.display if self._config is not None else "sanitized"

    def show(self, data: Any) -> dict[str, Any]:
        """Return a bundle of a cell's output, cleaned as the policy's ``display`` says."""
        return gateway.for_display(self._display)(data)

    def show_in_passing(self, data: Any) -> dict[str, Any]:
        """Return a bundle for a pager, a tooltip or an expression, cleaned likewise."""
        return gateway.for_page(self._display)(data)

    def quota(self) -> Quota:
        """Return a fresh quota for one cell."""
        policy = self.in_force
        return Quota(
            {
                "stdout": policy.stdout_max_bytes if policy else None,
                "stderr": policy.stderr_max_bytes if policy else None,
                "display": policy.display_max_bytes if policy else None,
            }
        )

    def kept_bytes(self) -> int | None:
        """Return the cap of the output log in bytes; 0 if cells can't run ``%output``."""
        policy = self.in_force
        if policy is None or (policy.mode == "safe" and "output" not in policy.magics):
            return 0
        return policy.output_kept_max_bytes

    # --- what is enforced ---------------------------------------------------------------------

    def narrowed(self, config: SessionConfig) -> None:
        """Take the config of a narrower policy, and judge again what is enforced."""
        self._config = config
        if self.report is not None:
            self._judge(config, self.report)

    def locked(self, report: LockReport) -> str:
        """Take a new guest's report of its locks, and judge what they are worth.

        Return why nothing may run in the guest, or an empty text. The gaps of the session's first
        guest are logged, and shown above its first cell if the policy says "warn".
        """
        config = self._config
        is_first = self.report is None
        if config is None:
            return "no policy is in force"
        self.lasting = {}
        if is_first and self.backend == "noop":
            # In the server's log its owner sees this, which the notebook's user may not tell.
            problem_words = f"policy {config.policy.name!r} is audited, not enforced"
            consequence = "cells can read, change and send whatever this user can"
            self._log(f"WARN: backend noop: {problem_words}: {consequence}")
        refusal = self._judge(config, report)
        if report.begins_in:
            folder = visible(config.prepare.cwd)
            line = (
                f"begins cells in {visible(report.begins_in)}: they can't enter {folder}, which "
                "was removed or is shut to them. Make it again or change its mode, and restart"
            )
            self.notice = "; and ".join(filter(None, (self.notice, line)))
        if is_first:
            for gap in self.gaps:
                self._log(policy_card.gap_line(gap))
        matters = any(gap.matters for gap in self.gaps)
        self._gaps_due = is_first and matters and config.policy.on_unsupported == "warn"
        return refusal

    def inherit(self, views: Views) -> None:
        """Take over what is enforced from the views of the session that this one is a fork of."""
        self.report = views.report
        self.enforcement = views.enforcement
        self.gaps = views.gaps
        self.proved = views.proved

    @property
    def gated(self) -> bool:
        """Whether more locks can be added to the guest that runs, by its gate."""
        return self.report is not None and self.report.achieved.keys() >= _BOUNDARY_LOCKS

    def refusal_under(self, policy: Policy) -> str:
        """Return why nothing may run under this policy with the guest's locks, or an empty text."""
        if self._config is None or self.report is None:
            return ""
        chosen = self._config.chosen
        gaps = reports.gaps(policy, chosen.declare(policy), self.report, None)
        return _refusal(policy, gaps)

    def _judge(self, config: SessionConfig, report: LockReport) -> str:
        """Work out what of the policy is enforced, from the report and a proof, if there is one.

        Return why nothing may run, or an empty text.
        """
        policy = config.policy
        chosen = config.chosen
        proof = self._find_proof(config, report)
        declared = chosen.declare(policy)
        policy_gaps = reports.gaps(policy, declared, report, proof)
        enforcement = dict(reports.settle(declared, report, proof))
        gaps = [*reports.replaced(policy, chosen), *policy_gaps]
        # The running guest still has these parts of a wider policy, until it is replaced.
        for name, hole in self.lasting.items():
            entry = enforcement[name]
            status = Status.partial if entry.holds else entry.status
            enforcement[name] = replace(entry, status=status, holes=(*entry.holes, hole))
            gaps.append(
                Gap(
                    capability=name,
                    status=status,
                    asked=value_words(name, getattr(policy, name)),
                    actual=entry.mechanism,
                    consequence=hole,
                    remedy=_LASTING_REMEDY,
                )
            )
        self.report = report
        self.enforcement = enforcement
        self.gaps = tuple(gaps)
        self.proved = proof.time if proof is not None else ""
        self._missing = _refusal(policy, policy_gaps)
        return self._missing

    def look_for_proof(self) -> str:
        """Judge again what is enforced in the running guest, with a proof made since its start.

        Return why nothing may run in it any more, or an empty text. A lock that the proof
        contradicts is logged and shown, as if the proof had been there at the start.
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
        """Return the proof of exactly these locks on this machine; None if there is none."""
        folder = default_path().parent
        if not os.path.exists(folder / "proofs.json"):
            return None
        from cellblock.host import probes  # noqa: PLC0415 - only if there are proofs

        folders: Any = {"project": config.project, "scratch": config.scratch}
        with contextlib.suppress(OSError):  # such as a backend's program that is gone
            key = probes.key(config.policy, config.chosen.backend, report, **folders)
            proof = probes.Proofs(folder).find(key)
            return proof if proof is not None and probes.is_whole(proof, config.policy) else None
        return None

    def gaps_once(self) -> Bundle | None:
        """Return the card of the gaps that matter if it is due, and None from then on."""
        policy = self.in_force
        if not self._gaps_due or policy is None:
            return None
        self._gaps_due = False
        gaps_shown = [gap for gap in self.gaps if gap.matters]
        return policy_card.gaps(gaps_shown, policy_name=policy.name, backend=self.backend)

    def look(self, code: str, since: float, *, reads: bool) -> Callable[[], Written] | None:
        """Return a function that looks at what a cell wrote; None if there is nothing to look for.

        The function runs in a thread (``written.Looks``), since cells may keep the folders locked.
        ``since`` is when the cell began, in seconds since 1970: older files were there before.
        ``reads`` is whether somebody reads the cell's output as it comes.
        """
        config = self._config
        staged = self.staged if reads else None
        if config is None:
            return None
        home = self._home_to_look_at(code)
        secrets = reads_secrets(code)
        checks_staging = (
            staged is not None and not self.told_of_staging and bool(self.how_to_keep.first)
        )
        gpus = looks_for_gpus(code)
        if not (secrets or gpus or home or staged):
            return None
        names_shown = frozenset(self._shown)

        def look() -> Written:
            return Written(
                judge_secrets(code, config) if secrets else None,
                _below_home(home, since, names_shown) if home else (),
                staged is not None and checks_staging and staged.is_written_to(),
                staged.commits() if staged is not None else None,
                judge_gpus(code, config) if gpus else None,
            )

        return look

    def staging_once(self, written: Written) -> Bundle | None:
        """Return the card about staging when cells have first written to the project, once."""
        if self.staged is None or self.told_of_staging or not written.is_staged:
            return None
        self.told_of_staging = True
        below = " and below ~" if self.staged.has_home() else ""
        event = f"What cells write to your project{below} is put aside"
        return tables.kept_note(f"{event}: {self.how_to_keep.first}.")

    def committed(self, written: Written) -> str:
        """Return the notice under a cell that made a commit, which is staged and never kept."""
        if written.commits is None or written.commits == self._commits:
            return ""
        self._commits = written.commits
        if not any(written.commits):
            return ""
        return f"notes: {GIT} is staged and never kept, nor is this commit: commit in a terminal"

    # --- why a cell did not run, or a call failed ---------------------------------------------

    def denial(self, findings: Sequence[Finding], label: str = "") -> Shown:
        """Return the card and error of a cell that was denied for these findings.

        ``label`` names the source that has the findings, if it is not the cell's own.
        """
        more = who_allows_more(self.file, is_operators=self._is_operators)
        shown_findings = [
            replace(finding, remedy=more) if finding.remedy == ONLY_THE_POLICY else finding
            for finding in findings
        ]
        card = denial(
            shown_findings,
            policy_name=self.name,
            file=self.file,
            is_operators=self._is_operators,
            source_label=label or None,
        )
        return card, denial_failure(card, shown_findings)

    def too_long(self, count: int, cap: int, unit: str) -> Shown:
        """Return the card and error of a cell that is too long for the source check.

        It has ``count`` of ``unit`` (bytes or words); at most ``cap`` are allowed.
        """
        detail = f"It has {count:,} {unit}; at most {cap:,} are allowed."
        remedy = "Keep data in a file, or split the cell."
        return _problem_shown("PolicyProblem", "This cell is too long", detail, "", "", "", remedy)

    def unwritten(self, error: AuditError, *, runs: bool) -> Shown:
        """Return the card and error of a cell that the audit log could not take.

        ``runs`` says whether the cell runs all the same.
        """
        title = "This cell runs, but is not in the audit log"
        detail = error.message
        if not runs:
            title = "This cell did not run: it would not be in the audit log"
            detail = f"{detail}. Your variables are kept."
        where = (error.file, error.key, "", error.remedy)
        return _problem_shown("AuditProblem", title, detail, *where)

    def unadmitted(self, error: AdmissionError) -> Shown:
        """Return the card and error of a cell for which admission could not be decided."""
        title = "This cell did not run: cellblock can't tell which cells may run"
        where = (error.file, error.key, "", error.remedy)
        return _problem_shown("AdmissionProblem", title, error.message, *where)

    def refuse(self, error: PolicyError) -> None:
        """Have every cell show this error of the policy, or of the inputs, instead of running."""
        self.failed = True
        refused_thing = "these inputs" if isinstance(error, InputError) else "this policy"
        file = error.file
        if (config := self._config) is not None and file == config.policy.name:
            file = config.file or file
        title = f"cellblock can't run cells with {refused_thing}"
        remedy = f"{error.remedy} Then restart the kernel."
        self._problem = (title, error.message, file, error.key, error.value, remedy)
        self._also = tuple(
            f"{other_error.what()} {other_error.remedy}" for other_error in error.others
        )

    def allow(self) -> None:
        """Take ``refuse`` back: the user has now allowed the session."""
        self.failed = False

    def fail(self, detail: str) -> None:
        """Have every cell show why no guest runs (``detail``) instead of running."""
        self.failed = True
        remedy = "Run `cellblock doctor`; then restart the kernel."
        if detail and detail == self._missing:
            own = 'a policy with require = [] and on_unsupported = "warn"'
            remedy = f"Run `cellblock doctor`; or have {own} run cells all the same."
        if reason := self._wrapper_problem(detail):
            # The user must choose the other backend: it is weaker, so it is not taken unasked.
            detail = reason
            remedy = f'{remedy[:-1]}, or name another backend: backend = "landlock".'
        self._problem = ("The guest can't be started", detail, "", "", "", remedy)

    def _wrapper_problem(self, detail: str) -> str:
        """Return what is wrong with the backend that wraps the zygote; empty if it is not at fault.

        The card says this instead of "the zygote ended", which would tell the user little.
        """
        backend = self._config.chosen.backend if self._config is not None else None
        if backend is None or not backend.wraps:
            return ""
        support = backend.probe()
        if not support.usable:
            return f"backend {backend.name}: {support.why}"
        # The backend's probe succeeds, and yet a zygote behind it ends before it is ready.
        return f"backend {backend.name}: {detail}" if detail.endswith(ENDED) else ""

    def refusal_of(self, call: wire.FailedCall, code: str) -> Refusal | None:
        """Return the refusal behind a call that failed in a cell, with advice; None if none."""
        config = self._config
        refusal = judge(call, config, code) if config is not None else None
        return advised(refusal, code, config.policy) if config and refusal is not None else None

    def refusal_of_programs(self, addresses: Sequence[str], code: str) -> Refusal | None:
        """Return the policy's refusal behind programs that could not connect, or None."""
        config = self._config
        refusal = judge_programs(addresses, config) if config is not None else None
        return advised(refusal, code, config.policy) if config and refusal is not None else None

    def missing_once(self, message: wire.NotThere, code: str) -> str:
        """Return a notice about something that a cell looked for in vain, once for each thing.

        Empty if the policy was not behind it. ``code`` is the cell's source.
        """
        config = self._config
        self._looked_for += 1
        if config is None or self._looked_for > _MOST_LOOKED_FOR:
            return ""
        return self._once(judge_missing(message, config, code, os.environ))

    def secrets_once(self, written: Written) -> str:
        """Return a notice under a cell whose library finds no ``.env`` file, once."""
        return self._once(written.secrets)

    def gpus_once(self, written: Written) -> str:
        """Return a notice under a cell whose library finds no GPU, once."""
        return self._once(written.gpus)

    def _once(self, refusal: Refusal | None) -> str:
        """Return a refusal as a notice; empty if there is none, or if it was shown already."""
        if refusal is None or len(self._shown) >= MAX_SAID:
            return ""
        key = (refusal.field, refusal.asked)
        if key in self._shown:
            return ""
        self._shown.add(key)
        return f"notes{self.refusal_in_a_line(refusal).removeprefix('cellblock')}"

    def home_once(self, written: Written) -> str:
        """Return a notice with the new names that a cell wrote below ``~``; empty without any.

        Only if ``~`` is the cells' scratch folder, and is not staged. The names are the guest's:
        they are bounded and made visible, and no file is opened.
        """
        names = written.below_home
        self._shown.update(("~", name) for name in names)
        if not names:
            return ""
        shown_names = ", ".join(
            f"~/{visible(name[:_LONGEST_NAME])}" for name in sorted(names)[:_MOST_NAMES]
        )
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return (
            "notes: ~ is the cells' own scratch folder, which is removed when the session ends: "
            f"{shown_names}{more}. Write to the project what you want to keep"
        )

    def _home_to_look_at(self, code: str) -> str:
        """Return the cells' home folder if a look must list what the cell wrote there, or nothing.

        That is so if the cell names it, and if it is scratch. In a layer, ``%changes`` lists it.
        """
        config = self._config
        if config is None or config.policy.mode == "safe" or not names_home(code):
            return ""
        prepare = config.prepare
        return prepare.scratch if prepare.environment.get("HOME") == prepare.scratch else ""

    def refusal_in_a_line(self, refusal: Refusal) -> str:
        """Return a refusal's reason and remedy in one line, for an exception's message."""
        return cards.refusal_sentence(
            refusal, self.name, self.file, is_operators=self._is_operators
        )

    def refusal_reason(self, refusal: Refusal) -> str:
        """Return a refusal's reason alone, for a traceback above the refusal's card."""
        return f"cellblock: {cards.refusal_reason(refusal, self.name)}"

    def refusal_card(self, refusal: Refusal) -> Bundle:
        """Return a refusal's card."""
        return cards.refusal_card(refusal, self.name, self.file, is_operators=self._is_operators)

    @property
    def file(self) -> str:
        """The policy's file as it was named, or a preset's name."""
        return self._config.file if self._config is not None else ""

    @property
    def _is_operators(self) -> bool:
        """Whether the user can't change the policy's file, so that remedies name the operator."""
        return os.path.isfile(self.file) and not os.access(self.file, os.W_OK)

    def problem(self) -> Shown:
        """Return the card and error that every cell shows while none can run."""
        return _problem_shown("PolicyProblem", *self._problem, also=self._also)

    def artifacts(self, exported: CellArtifacts) -> Bundle:
        """Return the card for files that were copied out.

        Files below the project are shown as links, relative to the project.
        """
        project = str(self._config.project) if self._config is not None else ""
        files = []
        for artifact in exported.artifacts:
            linked = bool(project) and artifact.path.startswith(f"{project}/")
            path = artifact.path.removeprefix(f"{project}/") if linked else artifact.path
            files.append(
                tables.File(
                    artifact.name, path, artifact.size_bytes, artifact.content_type, linked=linked
                )
            )
        skipped_files = [tables.Left(artifact.name, artifact.why) for artifact in exported.skipped]
        return tables.artifacts(files, skipped_files, uncounted=exported.uncounted)

    # --- what a cell asks to see --------------------------------------------------------------

    def answer(self, question: wire.Show, log: OutputLog, quota: Quota) -> Bundle | None:
        """Return the table or page that a cell asks for; None where its quota has no room."""
        # A page of %output is counted by its own size, once it is made.
        if question.what != "output" and not quota.admits(TABLE_BYTES):
            return None
        return ANSWERS[question.what](self, Asked(question.argument, log, quota))

    def output_page(self, question: Asked) -> Bundle | None:
        """Return what ``%output`` shows, counted by its size; None if that does not fit."""
        if question.quota.spent(0):
            return None
        page = output_log.answer(question.kept, question.argument)
        return page if question.quota.admits(json_size(page)) else None

    def usage_table(self, question: Asked) -> Bundle:
        """Return what ``%usage`` shows."""
        return tables.usage(list(self._usage), self._total, question.argument, self._spent())

    def tools_table(self, _asked: Asked) -> Bundle:
        """Return what ``%tools`` shows."""
        return tables.tools(self.tools_in_force, self._spent())

    def templates_table(self, question: Asked) -> Bundle:
        """Return what ``%template`` shows: the list of templates, or the one that is named."""
        try:
            return tables.templates(dict(self.templates_in_force), question.argument)
        except AdmissionError as error:
            return self.unadmitted(error)[0]

    def changes_table(self, question: Asked) -> Bundle:
        """Return what ``%changes`` shows.

        Cells can slow down the listing, for which the host waits. So the host waits at most
        ``_MOST_LISTING`` seconds for each, and begins no other once the listings of one cell have
        taken more than that together.
        """
        if self._listing[0] is not question.quota:
            self._listing = question.quota, 0.0
        if self._listing[1] > _MOST_LISTING:
            return tables.kept_note("%changes was shown often in this cell: run it in the next.")
        if self._reading.is_under_way:
            return tables.kept_note(_BUSY_NOTE)
        began = time.monotonic()
        self._reading.begin(lambda: self._changes(question.argument), _MOST_LISTING)
        self._listing = question.quota, self._listing[1] + time.monotonic() - began
        return self._reading.take() or tables.kept_note(_BUSY_NOTE)

    def _changes(self, argument: str) -> Bundle:
        """List staged changes, of the files named in ``argument`` or all; runs in a thread."""
        staged = self.listable()
        if staged is None:
            config = self._config
            if config is not None and paths.reads_home_files(config.policy, config.project):
                return tables.kept_note(_IN_HOME)
            return tables.kept_note("Nothing is staged under this policy.")
        try:
            names = shlex.split(argument)
            changes = staged.changes(names, _MOST_LISTED)
            if names and not changes:
                alternatives = " or ".join(map(visible, names[:_MOST_NAMED]))
                remedy = "%changes alone lists all, with their differences."
                return tables.kept_note(f"No staged file is called {alternatives}. {remedy}")
            return self.changes_card(staged, changes)
        except (CellblockError, OSError, ValueError) as error:
            return tables.kept_note(f"What was written can't be listed: {error}")

    def listable(self) -> Staged | None:
        """Return the staged changes, without the paths that the policy in force denies."""
        if self.staged is None or self._config is None:
            return None
        denied = plan.denied(self._config.policy, private=self._config.private)
        return self.staged.without(denied)

    def changes_card(
        self, staged: Staged, changes: Sequence[Change], digests: Mapping[str, str] | None = None
    ) -> Bundle:
        """Return the card of staged changes, with the differences of as many as time allows.

        With ``digests``, by name, the card is part of the question whether to keep these changes:
        a difference is shown only of a file that still has that digest.
        """
        rows = []
        until = time.monotonic() + _MOST_DIFFS
        for change in changes[: tables.CHANGES]:
            digest = "" if digests is None else digests.get(change.name, "")
            in_time = time.monotonic() < until
            diff, cut = staged.diff(change, digest, most=tables.DIFF_LINES) if in_time else ("", 0)
            name = staged.label(change)
            note = change.why_not and f"not kept: {change.why_not}"
            if change.yours_since is not None:
                note = "yours was changed meanwhile"
            rows.append(
                tables.ChangeRow(name, change.kind, change.size, change.before, note, diff, cut)
            )
        keepable = sum(not change.why_not for change in changes)
        is_question = digests is not None
        return tables.changes(
            rows, len(changes), staged.id, keepable, self.how_to_keep, asked=is_question
        )

    def policy_table(self, _asked: Asked) -> Bundle:
        """Return what ``%policy`` shows."""
        policy = self.in_force
        operators = self.operators
        if policy is None:
            return {"text/plain": "No policy is in force."}
        sources = (policy, operators, self.enforcement, self.gaps, self.backend)
        table_made = self._policy_table
        if table_made is None or any(
            source_before is not source
            for source_before, source in zip(table_made[0], sources, strict=True)
        ):
            before = {}
            if operators is not None:
                before = {
                    name: getattr(operators, name) for name in changed_fields(operators, policy)
                }
            fields = policy.as_dict() | {"backend": self.backend}
            worth = tuple(self.enforcement.values())
            table_made = sources, policy_card.policy_table(fields, worth, self.gaps, before)
            self._policy_table = table_made
        return dict(table_made[1])

    def ports_table(self, _asked: Asked) -> Bundle:
        """Return what ``%ports`` shows."""
        policy = self.in_force
        if policy is None or not policy.ports:
            return tables.no_ports(self.name)
        gap = next((gap for gap in self.gaps if gap.capability == "ports"), None)
        if gap is not None and gap.status is not Status.partial:
            return tables.kept_note(f"{gap.actual[:1].upper()}{gap.actual[1:]}: {gap.remedy}")
        return tables.ports(self.ports(), opens_any=policy.ports == "any")

    def add_usage(self, number: int, source: str, usage: Usage) -> None:
        """Enter a cell's usage, which ``%usage`` lists with the first line of its source."""
        line = source.lstrip()[:MAX_LINE].partition("\n")[0]
        total = self._total
        self._usage.append(tables.UsageRow(number, line, **usage.as_dict()))
        self._total = tables.UsageTotals(
            total.cells + 1,
            total.wall_seconds + usage.wall_seconds,
            total.cpu_seconds + usage.cpu_seconds,
            total.output_bytes + usage.output_bytes,
            total.read_bytes + usage.read_bytes,
        )

    def _spent(self) -> dict[str, Budget]:
        """Return how much of each budget is spent now."""
        return {name: spent() for name, spent in self.budgets.items()}


#: The method that answers each magic which ``analysis.magic_table`` marks as ``shown`` by the host.
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
    """Return a card and its error.

    ``parts`` are a ``PolicyError``'s, after its message: file, key, value, remedy. ``also`` are
    further errors, in words.
    """
    card = problem(title, detail, *parts, also=also)
    return card, problem_failure(card, detail, ename)


def _refusal(policy: Policy, gaps: tuple[Gap, ...]) -> str:
    """Return why nothing may run under the policy with these gaps, or an empty text."""
    fatal = reports.blocking(policy, gaps)
    return "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in fatal)


# --- cards of what was stopped: a cell, a guest between cells, a handler of comm messages -------
#
# ``policy`` is the policy in force: its name, and its limits, are in the cards.

#: The policy field of each limit that ends cells.
FIELD_OF_STOP: Final = {
    "timeout": "timeout",
    "cpu": "cpu_seconds",
    "memory": "memory_max_bytes",
    "forks": "forks_max_bytes",
    "scratch": "scratch_max_bytes",
}


#: Why a cell was stopped at a bound of the host's own, and that bound in words, as ``stop_reason``
#: returns them.
_REASONS: Final = {
    "deep": ("deep", f"{DEEPEST}"),
    "files": ("files", f"{MOST_ENTRIES:,} files"),
    "folders": ("folders", f"{MOST_REMOVED:,} removed folders"),
    "locked": ("locked", f"{STUCK:g} s"),
    "mapped": ("mapped", "four times the machine's memory"),
    "interrupt": ("interrupted", ""),
}


def stopped_card(stopped: Stopped, policy: Policy | None, *, of_variant: bool = False) -> Shown:
    """Return the card and error of a cell that was ended from outside.

    ``of_variant``: the cell ran in a variant, whose variables are not the reader's.
    """
    why, limit = stop_reason(stopped, policy)
    state = cards.State.kept if stopped.kept else cards.State.gone
    lost: tuple[str, ...] = ()
    if stopped.restored is not None:
        state = cards.State.restored
        lost = lacking(stopped.restored)
    if of_variant:
        state = cards.State.apart
        lost = ()
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


#: How the lines of IPython's traceback begin that frame it and name the error.
_OF_ERROR: Final = re.compile(r"(?:\x1b\[[\d;]*m)*(?:-{20}|KeyboardInterrupt\b)")


def frames(stopped: Stopped) -> tuple[str, ...]:
    """Return the traceback's frames of an interrupted cell, without the lines about the error."""
    if (error := stopped.error) is None:
        return ()
    cleaned = gateway.clean_error(error.ename, error.evalue, error.traceback)["traceback"]
    return tuple(line for line in cleaned if not _OF_ERROR.match(line))


def undone_card(stopped: Stopped, policy: Policy | None) -> Bundle:
    """Return the card for cells that were undone, or for a checkpoint that was gone back to."""
    if stopped.restored is None:
        # No copy to go back to could take over.
        return stopped_card(stopped, policy)[0]
    if stopped.detail:
        lost = lacking(stopped.restored)
        return cards.restored(stopped.detail, branch=stopped.branch, lost=lost)
    return cards.undone(stopped.undone, lost=lacking(stopped.restored))


def branches_card(listing: BranchListing) -> Bundle:
    """Return the list of branches and checkpoints."""
    return tables.branches(*listing[:3], begins=listing.begins)


def comm_failure_card(failure: Stopped | str, policy: Policy | None) -> Bundle:
    """Return the card for a comm message whose handler was stopped, or whose reason is given."""
    if not isinstance(failure, str):
        return stopped_card(failure, policy)[0]
    return problem("A message from the page did not reach the cell", failure)


#: The detail for a guest that reports a breach under a policy that has none.
_NO_BREACH: Final = "protocol violation: a breach where no source is checked"


def stop_reason(stopped: Stopped, policy: Policy | None) -> tuple[str, str]:
    """Return why a cell was stopped, as ``render.outcomes`` names it, and the limit or cause.

    The cause may have a guest's words, so characters that act on a terminal are made visible.
    """
    detail = visible(stopped.detail)
    match stopped.why:
        case "timeout" | "cpu" | "memory" | "forks" | "scratch":
            field = FIELD_OF_STOP[stopped.why]
            value = stopped.seconds
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
            cause = detail.removeprefix(EXITED)
            return "crashed" if cause == detail else "exited", cause
        case "silent" | "undo" | "narrowed" | "fork":
            return "lost", detail
