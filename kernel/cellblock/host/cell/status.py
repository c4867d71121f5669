"""What a session shows of itself: what is in force and enforced, why a cell did not run."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from cellblock.errors import AdmissionError, InputError
from cellblock.host.cell import output_log
from cellblock.host.cell.quota import Quota
from cellblock.host.output import gateway
from cellblock.host.output.text import json_size
from cellblock.host.session.settings import judge, with_lasting
from cellblock.host.session.types import Account
from cellblock.host.snapshots import restore
from cellblock.policy.narrowing import changed
from cellblock.policy.paths import within
from cellblock.render import stopped as cards
from cellblock.render.cards import problem, value_words
from cellblock.render.denial import AMBIENT
from cellblock.render.policy_card import policy_table
from cellblock.render.tables import UsageRow, UsageTotals, templates, tools, usage
from cellblock.render.text import visible
from cellblock.wire import messages as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cellblock.analysis import Finding
    from cellblock.analysis.admission import Template
    from cellblock.backends.choose import Chosen
    from cellblock.backends.probes import Proof
    from cellblock.errors import AuditError, PolicyError
    from cellblock.host.cell.output_log import Kept
    from cellblock.host.services.artifacts import CellArtifacts
    from cellblock.host.session.types import Stopped
    from cellblock.policy.enforcement import Enforcement, Gap
    from cellblock.policy.model import Policy
    from cellblock.render.cards import Bundle, Failure
    from cellblock.render.tables import Budget
    from cellblock.wire.messages import LockReport, Tool


#: Locks of a guest's on which more can be laid, and what is asked for that.
_GATE = {"gate", "landlock", "seccomp"}


def _log(text: str) -> None:
    """Tell whoever keeps the kernel's stderr; that nobody does costs no guest."""
    with contextlib.suppress(OSError, ValueError):
        print(f"cellblock: {text}", file=sys.stderr, flush=True)  # noqa: T201


Shown = tuple["Bundle", "Failure"]


class Views:
    """Cards for one session. Until a guest is locked, what is enforced is not known.

    ``log`` gets what is not enforced, a line each.
    """

    def __init__(self, log: Callable[[str], None] = _log) -> None:
        self._log = log
        self._policy: Policy | None = None
        self._chosen: Chosen | None = None
        self._proofs: Callable[[LockReport], Proof | None] = lambda _report: None
        self._project = ""
        #: Where the policy is, as it was named, and the folder that cells have for themselves.
        self.file = self.scratch = ""
        #: What the kernel was started with, before notebook and cells made it narrower.
        self.operators: Policy | None = None
        #: What the guest that there is said of its locks.
        self.report: LockReport | None = None
        #: What the guest that there is has of a wider policy, by field: until there is another.
        self.lasting: dict[str, str] = {}
        #: What a guest that was locked is worth, and what is missing.
        self.enforcement: Mapping[str, Enforcement] = {}
        self.gaps: tuple[Gap, ...] = ()
        #: When the suite of probes saw what is verified; empty where it did not.
        self.proved = ""
        self._gaps_due = False
        #: What is missing, where the policy has nothing run without it.
        self._missing = ""
        self._problem: tuple[str, ...] = ("No guest could be started", "")
        self.tools_in_force: tuple[Tool, ...] = ()
        #: Templates by name, read when somebody looks.
        self.templates_in_force: Mapping[str, Template] = {}
        #: How a session's budgets stand, by the name of what takes of each.
        self.budgets: dict[str, Callable[[], Budget]] = {}
        #: What the session's cells took.
        self.account = Account()
        #: Whether nothing can run, and ``problem`` says why.
        self.failed = False
        #: Something that the first cell is to say, once.
        self.notice = ""

    @property
    def in_force(self) -> Policy | None:
        """The policy in force, None when none could be read."""
        return self._policy

    @property
    def backend(self) -> str:
        """What carries the policy in force."""
        return self._chosen.backend.name if self._chosen is not None else ""

    def show(self, data: Any) -> dict[str, Any]:
        """Return what the policy's ``display`` lets a cell's output show of a bundle."""
        return gateway.for_display(self._display)(data)

    def show_in_passing(self, data: Any) -> dict[str, Any]:
        """Return the same for pagers, tooltips and expressions."""
        return gateway.for_page(self._display)(data)

    @property
    def _display(self) -> str:
        return self._policy.display if self._policy else "sanitized"

    def configured(
        self,
        policy: Policy,
        chosen: Chosen,
        proofs: Callable[[LockReport], Proof | None],
        project: str = "",
    ) -> None:
        """Take note of the policy in force and of the backend that carries it.

        ``proofs`` finds what a suite of probes saw here, for the locks that a guest reports.
        Links lead from ``project``.
        """
        self._policy, self._chosen, self._proofs = policy, chosen, proofs
        self._project = project
        self.operators = policy

    def narrowed(self, policy: Policy, proofs: Callable[[LockReport], Proof | None]) -> None:
        """Take note that the policy in force has become narrower."""
        self._policy, self._proofs = policy, proofs
        if self.report is not None:
            self._judge(self.report)

    @property
    def gated(self) -> bool:
        """Whether the zygote decides on what the guest that there is starts, and locks."""
        return self.report is not None and self.report.achieved.keys() >= _GATE

    def refusal_under(self, policy: Policy) -> str:
        """Return why nothing might run under this policy in the guest that there is, or nothing."""
        if self._chosen is None or self.report is None:
            return ""
        return judge(policy, self._chosen, self.report, None).refusal

    def _judge(self, report: LockReport) -> str:
        if self._policy is None or self._chosen is None:
            return "no policy is in force"
        self.report = report
        judged = judge(self._policy, self._chosen, report, self._proofs(report))
        if self.lasting:
            judged = with_lasting(judged, self._policy, self.lasting)
        self.enforcement, self.gaps, self.proved = judged.enforcement, judged.gaps, judged.proved
        self._missing = judged.refusal
        return judged.refusal

    def locked(self, report: LockReport) -> str:
        """Take note of what a guest's locks achieved; return why nothing may run, or nothing."""
        if self._policy is None or self._chosen is None:
            return "no policy is in force"
        first = self.report is None
        self.lasting = {}
        if first and self._chosen.backend.name == "noop":
            self._warn(self._policy.name)
        refusal = self._judge(report)
        if first:
            from cellblock.render.policy_card import gap_line  # noqa: PLC0415

            for gap in self.gaps:
                self._log(gap_line(gap))
        self._gaps_due = first and bool(self.gaps) and self._policy.on_unsupported == "warn"
        return refusal

    def _warn(self, policy_name: str) -> None:
        """Tell the server's log, which the user of a notebook does not see and its owner does."""
        what = f"policy {policy_name!r} is audited, not enforced"
        why = "cells can read, change and send whatever this user can"
        self._log(f"WARN: backend noop: {what}: {why}")

    def quota(self) -> Quota:
        """Return a fresh count of what one cell may show."""
        policy = self._policy
        return Quota(
            {
                "stdout": policy.stdout_max_bytes if policy else None,
                "stderr": policy.stderr_max_bytes if policy else None,
                "display": policy.display_max_bytes if policy else None,
            },
        )

    def kept_bytes(self) -> int | None:
        """Return the cap on what is kept for ``%output``; 0 where cells can't run that."""
        policy = self._policy
        if policy is None or (policy.mode == "safe" and "output" not in policy.magics):
            return 0
        return policy.output_kept_max_bytes

    def gaps_once(self) -> Bundle | None:
        """Return the card of gaps the first time there are any to show."""
        if not self._gaps_due or self._policy is None or self._chosen is None:
            return None
        self._gaps_due = False
        from cellblock.render.policy_card import gaps  # noqa: PLC0415

        return gaps(self.gaps, policy_name=self._policy.name, backend=self._chosen.backend.name)

    @property
    def name(self) -> str:
        """Return what messages call the policy in force."""
        if self._policy is None:
            return ""
        own = self._policy == self.operators
        return self._policy.name if own else f"{self._policy.name}, narrowed"

    def denial(self, findings: Sequence[Finding], label: str = "") -> Shown:
        """Return what is shown of a cell that was refused; ``label`` says what the findings are in.

        Empty, it is the cell.
        """
        from cellblock.render.denial import denial, denial_failure  # noqa: PLC0415

        words: Any = {"policy_name": self.name, "source_label": label or None}
        if self._policy is not None:
            words["principle"] = principle(self._policy, self._project, self.scratch)
        card = denial(findings, **words)
        return card, denial_failure(card, findings)

    def too_long(self, has: int, cap: int, what: str) -> Shown:
        """Return what is shown of a cell that is too long to be looked at."""
        from cellblock.render.cards import problem, problem_failure  # noqa: PLC0415

        detail = f"It has {has:,} {what}; {cap:,} are looked at."
        remedy = "Keep data in a file, or divide the cell."
        card = problem("This cell is too long", detail, remedy=remedy)
        return card, problem_failure(card, detail)

    def unwritten(self, error: AuditError, *, runs: bool) -> Shown:
        """Return what is shown of a cell that is not on the audit log, and runs or does not."""
        from cellblock.render.cards import problem, problem_failure  # noqa: PLC0415

        title, detail = "This cell runs, and is not on the audit log", error.message
        if not runs:
            title = "This cell did not run: it would not be on the audit log"
            detail = f"{detail}. Your variables are kept."
        card = problem(title, detail, error.file, error.key, remedy=error.remedy)
        return card, problem_failure(card, detail, "AuditProblem")

    def unadmitted(self, error: AdmissionError) -> Shown:
        """Return what is shown of a cell about which nobody can tell whether it may run."""
        from cellblock.render.cards import problem, problem_failure  # noqa: PLC0415

        title = "This cell did not run: what may run can't be told"
        card = problem(title, error.message, error.file, error.key, remedy=error.remedy)
        return card, problem_failure(card, error.message, "AdmissionProblem")

    def artifacts(self, found: CellArtifacts) -> Bundle:
        """Return the card for files that were copied out; links lead from the project."""
        from cellblock.render.tables import File, Left, artifacts  # noqa: PLC0415

        files = []
        for one in found.artifacts:
            below = self._project and one.path.startswith(f"{self._project}/")
            path = one.path[len(self._project) + 1 :] if below else one.path
            files.append(File(one.name, path, one.size_bytes, one.content_type, linked=bool(below)))
        left = [Left(one.name, one.why) for one in found.skipped]
        return artifacts(files, left, uncounted=found.uncounted)

    def refuse(self, error: PolicyError) -> None:
        """Have every cell end with this error."""
        self.failed = True
        what = "these inputs" if isinstance(error, InputError) else "this policy"
        ours = self._policy is not None and self.file and error.file == self._policy.name
        parts = (error.message, self.file if ours else error.file, error.key, error.value)
        self._problem = (f"cellblock can't run cells with {what}", *parts, error.remedy)

    def allow(self) -> None:
        """Take a refusal back: the user has allowed what the policy has to be asked for."""
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
        """Return what is wrong with what wraps a zygote; that one ended tells little."""
        backend = self._chosen.backend if self._chosen else None
        if backend is None or not backend.wraps:
            return ""
        support = backend.probe()
        if not support.usable:
            return f"backend {backend.name}: {support.why}"
        from cellblock.host.guests.supervisor import ZYGOTE_ENDED  # noqa: PLC0415 - where it failed alone

        # Its probe was told that all is well, by whom no zygote comes up behind.
        return f"backend {backend.name}: {detail}" if detail.endswith(ZYGOTE_ENDED) else ""

    def problem(self) -> Shown:
        """Return what every cell shows when nothing can run."""
        from cellblock.render.cards import problem, problem_failure  # noqa: PLC0415

        card = problem(*self._problem)
        return card, problem_failure(card, self._problem[1])


# What a cell asks to see of ours: the tables of ``%policy`` and the like, pages of ``%output``.

#: Bytes that a table is counted as, before it is made.
TABLE_BYTES: Final = 32 << 10
View = wire.ShowPolicy | wire.ShowUsage | wire.ShowTools | wire.ShowTemplates | wire.ShowOutput


class _Made(NamedTuple):
    """The table of a policy, and what it was made of."""

    of: tuple[object, ...]
    table: Bundle


#: Each takes ten milliseconds, and one read from a guest may ask for hundreds.
_made: Final[WeakKeyDictionary[Views, _Made]] = WeakKeyDictionary()


def answer(asked: View, views: Views, kept: Kept, quota: Quota) -> Bundle | None:
    """Return the table or page that a cell asks for; None where its quota has no room for one."""
    if not isinstance(asked, wire.ShowOutput):
        return _table(asked, views) if quota.admits(TABLE_BYTES) else None
    if quota.spent(0):
        return None
    page = output_log.answer(kept, asked.argument)
    return page if quota.admits(json_size(page)) else None


def _table(asked: View, views: Views) -> Bundle:
    match asked:
        case wire.ShowUsage(line=line):
            return _usage(views, line)
        case wire.ShowTools():
            return tools(views.tools_in_force, _spent(views))
        case wire.ShowTemplates(name=name):
            return _templates(views, name)
    return _policy(views)


def _policy(views: Views) -> Bundle:
    if views.in_force is None:
        return {"text/plain": "No policy is in force."}
    of = (views.in_force, views.operators, views.enforcement, views.gaps, views.backend)
    known = _made.get(views)
    if known is None or any(was is not now for was, now in zip(known.of, of, strict=True)):
        shown = views.in_force.as_dict() | {"backend": views.backend}
        worth = tuple(views.enforcement.values())
        known = _made[views] = _Made(of, policy_table(shown, worth, views.gaps, _before(views)))
    return dict(known.table)


def _before(views: Views) -> dict[str, object]:
    """Return what the operator's policy has in fields that are narrower now."""
    if views.in_force is None or views.operators is None:
        return {}
    names = changed(views.operators, views.in_force)
    return {name: getattr(views.operators, name) for name in names}


def _usage(views: Views, line: str) -> Bundle:
    account = views.account
    rows = [UsageRow(e.number, e.line, **e.usage.as_dict()) for e in account]
    totals = UsageTotals(
        account.cells,
        account.wall_seconds,
        account.cpu_seconds,
        account.output_bytes,
        account.read_bytes,
    )
    return usage(rows, totals, line, _spent(views))


def _spent(views: Views) -> dict[str, Budget]:
    return {name: ask() for name, ask in views.budgets.items()}


def _templates(views: Views, name: str) -> Bundle:
    """Return all that there are, or the one that is named."""
    try:
        return templates(dict(views.templates_in_force), name)
    except AdmissionError as error:
        return views.unadmitted(error)[0]


# What a policy gives cells, in a sentence: said once on a card, whatever the policy is called.

#: What makes a list of packages the scientific stack.
_STACK: Final = frozenset(("numpy", "pandas", "scipy"))
#: Names that are said of a list.
_MOST: Final = 3


def principle(policy: Policy, project: str, scratch: str) -> str:
    """Return it for mode ``safe``; empty for ``unsafe``, which refuses no import.

    ``project`` and ``scratch`` are the session's folders, as they stand in the policy.
    """
    if policy.mode != "safe":
        return ""
    given = [*_packages(policy), *_files(policy, project, scratch), *_beyond(policy)]
    if not given:
        return AMBIENT
    return f"Policy {policy.name} allows {', '.join(given)}, clock, randomness, bundled data."


def _packages(policy: Policy) -> Iterator[str]:
    allowed = policy.allowed_modules
    if _STACK.issubset(allowed):
        yield "the scientific stack"
    elif allowed:
        yield f"importing {_listed(allowed)}"


def _files(policy: Policy, project: str, scratch: str) -> Iterator[str]:
    reads = policy.filesystem_read_roots
    if project in reads:
        yield "the project folder's files to read"
    elif reads:
        yield f"files below {_listed(reads)} to read"
    writes = [root for root in policy.filesystem_write_roots if not within(root, scratch)]
    if writes:
        own = [root.removeprefix(f"{project}/").removesuffix("?") for root in writes]
        yield f"writing below {_listed(own)}"


def _beyond(policy: Policy) -> Iterator[str]:
    if policy.network_access is True:
        yield "the network"
    elif policy.network_access:
        yield f"connections to {_listed(policy.network_access)}"
    if policy.env_var_access:
        yield f"environment variables {_listed(policy.env_var_access)}"
    if policy.subprocess_execution:
        yield "starting programs"


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _MOST
    head = ", ".join(names[:_MOST])
    return f"{head} and {left} more" if left > 0 else head


# How what was stopped is shown: a cell, a guest between cells, a handler of a comm's messages.
#
# ``policy`` is the one in force, whose limit it may have been.

#: What ends a cell at a limit, and the field that sets it.
LIMITS: Final = {
    "timeout": "timeout",
    "cpu": "cpu_seconds",
    "memory": "memory_max_bytes",
    "scratch": "scratch_max_bytes",
}


def shown(stopped: Stopped, policy: Policy | None) -> Shown:
    """Return what is shown of a cell that was ended from outside."""
    why, limit = reason(stopped, policy)
    state = cards.State.kept if stopped.kept else cards.State.gone
    lost: tuple[str, ...] = ()
    if stopped.restored is not None:
        state, lost = cards.State.restored, restore.lacking(stopped.restored)
    own = stopped.seconds is not None
    card = cards.stopped(why, limit, state=state, lost=lost, own=own)
    return card, cards.stopped_failure(card)


def undone(stopped: Stopped, policy: Policy | None) -> Bundle:
    """Return the card for cells that were stepped back over."""
    if stopped.restored is None:  # every copy to go back to had ended
        return shown(stopped, policy)[0]
    return cards.undone(stopped.undone, lost=restore.lacking(stopped.restored))


def unheard(ended: Stopped | str, policy: Policy | None) -> Bundle:
    """Return the card for a comm message whose handler did not come to its end."""
    if not isinstance(ended, str):
        return shown(ended, policy)[0]
    return problem("A message from the page did not reach the cell", ended)


def reason(stopped: Stopped, policy: Policy | None) -> tuple[str, str]:
    """Return why a cell was stopped, and the limit or cause in words.

    A guest may have had a say in those: what would act on a terminal is spelled out.
    """
    detail = visible(stopped.detail)
    match stopped.why:
        case "timeout" | "cpu" | "memory" | "scratch":
            return stopped.why, _limit(stopped.why, policy, stopped.seconds)
        case "interrupt":
            return "interrupted", ""
        case "violation":
            return "protocol", detail
        case "breach":
            return "breach", cards.operation(detail)
        case "crash":
            return "crashed", detail
        case _:
            return "lost", detail


def _limit(why: str, policy: Policy | None, own: float | None) -> str:
    """Return the limit behind a stop in words: the policy's, or the cell's own."""
    field = LIMITS[why]
    return value_words(field, getattr(policy, field, None) if own is None else own)
