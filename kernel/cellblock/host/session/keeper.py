"""``%changes keep`` and ``%changes drop``: cells that say nothing else, and that the host does.

A guest has no part in it: no code of a cell's can keep a file. Whether one is kept, a person says,
whatever else the policy has users asked about: with the code that stands in the question, at the
front end that sent the cell. What is asked about is what was read when the question was put, by its
digest, so threads that go on beside it change nothing of it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from cellblock.errors import ChangesError
from cellblock.host.consent.approver import Approver, Prompt
from cellblock.host.consent.grants import GrantContext, Grants
from cellblock.host.consent.request import of_keeping
from cellblock.host.services import keeping
from cellblock.host.session.types import Outcome
from cellblock.render import tables
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.analysis import Rules
    from cellblock.analysis.admission import Ruling
    from cellblock.host.cell.cell import Front
    from cellblock.host.consent.approver import Decision
    from cellblock.host.services.changes import Change, Staged
    from cellblock.host.session.types import ExecuteRequest, Reactor

    Done = Callable[[Outcome], None]

#: Seconds of one step of copying.
_STEP: Final = 0.02
_MAGIC: Final = "changes"
_WORDS: Final = ("keep", "drop")
#: Characters of a cell that is looked at.
_LONGEST: Final = 20_000
OVERWRITE: Final = "--overwrite"


def asked_in(cell: str) -> list[str] | None:
    """Return the words behind ``%changes`` in a cell that keeps or drops; None for any other."""
    if f"%{_MAGIC}" not in cell or len(cell) > _LONGEST:
        return None
    lines = [line.strip() for line in cell.splitlines()]
    said = [line for line in lines if line and not line.startswith("#")]
    if len(said) != 1 or said[0].split()[0] != f"%{_MAGIC}" or said[0].split()[1:2] == []:
        return None
    if said[0].split()[1] not in _WORDS:
        return None
    try:
        return shlex.split(said[0], comments=True)[1:]
    except ValueError:  # a quote that is not closed
        return said[0].split()[1:]


class Keeper:
    """Does what such cells say, for one session."""

    def __init__(self, reactor: Reactor, front: Front, policy: str) -> None:
        self._front = front
        self._grants = Grants(GrantContext(scope="", policy=policy, digest=""), None)
        self._steps = keeping.StepRunner(reactor, _STEP)
        self._failed: Callable[[str], None] = lambda _why: None
        self._approver: Approver | None = None

    def handles(self, request: ExecuteRequest, ruling: Ruling, rules: Rules) -> bool:
        """Return whether a cell keeps or drops, and says nothing else."""
        allowed = not rules.language or _MAGIC in rules.magics
        plain = not ruling.findings and ruling.run is None
        return allowed and plain and asked_in(request.code) is not None

    def run(self, request: ExecuteRequest, done: Done, *, admitted_by: str = "") -> None:
        """Do what a cell says; ``done`` gets the outcome."""
        audit, words = self._front.audit, asked_in(request.code) or []
        if (unwritten := audit.decided(request, (), (), by=admitted_by)) is not None:
            done(Outcome("refused", unwritten=unwritten))
            return
        number = audit.number

        def ended(outcome: Outcome) -> None:
            self._approver = None
            done(outcome)
            audit.ended(number, outcome)

        def failed(why: str) -> None:
            error = messages.Error(ename="ChangesError", evalue=why, traceback=[why])
            ended(Outcome("error", error=error))

        self._failed, staged = failed, self._front.views.listable()
        try:
            if staged is None:
                failed("nothing is staged under this policy")
            elif words[0] == "drop":
                self._drop(staged, words[1:])
                ended(Outcome("ok"))
            else:
                self._keep(staged, words[1:], request, ended)
        except (ChangesError, OSError) as error:
            failed(str(error))

    def interrupt(self) -> bool:
        """Keep nothing of what is asked about or copied now; return whether anything is."""
        if self._approver is not None:
            self._approver.interrupt()
        elif self._steps.runs:
            self._steps.stop()
            self._failed("nothing was kept: it was interrupted")
        else:
            return False
        return True

    def close(self) -> None:
        """Take back what is not whole: the session ends."""
        self._steps.stop()

    # --- dropping -----------------------------------------------------------------------------

    def _drop(self, staged: Staged, words: Sequence[str]) -> None:
        if words:
            raise ChangesError("%changes drop takes nothing: it drops all that is staged")
        dropped = staged.drop()
        self._front.outputs.card(tables.settled_changes(_rows(staged, dropped), kept=False))

    # --- keeping ------------------------------------------------------------------------------

    def _keep(
        self, staged: Staged, words: Sequence[str], request: ExecuteRequest, ended: Done
    ) -> None:
        """Read what is to be kept, ask, and keep it. Raises ChangesError, OSError."""
        options = [word for word in words if word.startswith("--")]
        if other := next((word for word in options if word != OVERWRITE), None):
            raise ChangesError(f"%changes keep has no option {other}: there is {OVERWRITE}")
        paths = [word for word in words if not word.startswith("--")]
        chosen = staged.chosen(paths, overwrite=bool(options))
        words = [staged.id, *options, *staged.named(paths)]
        where = f"`cellblock changes keep {shlex.join(words)}` in a terminal"
        if not chosen:
            raise ChangesError("nothing is staged that could be kept")
        if self._front.consult is None:
            where += ", Sandbox.keep() in the program, or --changes keep of `cellblock run`"
        if self._front.consult is None or not request.allow_stdin:
            raise ChangesError(f"nobody can be asked here, and keeping is yours to say: {where}")
        if not of_keeping(chosen, {}, paths).whole:
            raise ChangesError(
                f"{len(chosen):,} files in so many folders can't be asked about at once: name some "
                f"of the folders, or keep them with {where}"
            )

        def read(digests: Mapping[str, str]) -> None:
            self._front.outputs.card(self._front.views.changes_card(staged, chosen, digests))
            wanted = of_keeping(chosen, digests, paths)
            approver.ask_keeping(wanted, lambda decision: decided(decision, digests))

        def decided(decision: Decision, digests: Mapping[str, str]) -> None:
            approver.end()
            self._approver = None
            if decision.scope is None:
                self._failed(f"nothing was kept: {decision.why}")
            else:
                self._steps.run(keeping.steps(staged, chosen, digests), kept, self._failed)

        def kept(found: Sequence[keeping.Kept]) -> None:
            self._front.audit.kept(found, staged.session, "a code")
            self._front.outputs.card(tables.settled_changes(_rows(staged, chosen), kept=True))
            ended(Outcome("ok"))

        prompt, audit = Prompt(self._front.consult, self._grants), self._front.audit
        approver = self._approver = Approver(
            prompt, self._grants, observe=audit.approved, tell=self._front.outputs.notice
        )
        approver.begin(request)
        self._steps.run(keeping.digests(staged, chosen), read, self._failed)


def _rows(staged: Staged, changes: Sequence[Change]) -> list[tables.ChangeRow]:
    return [
        tables.ChangeRow(staged.label(one), one.kind, one.size, one.before, one.why_not, "")
        for one in changes
    ]
