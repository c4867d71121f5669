"""A session's front, as far as it is the same for every one: what is shown of what it tells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from cellblock.host.cells.run import CellRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.errors import PolicyError
    from cellblock.host.approvals.clerk import Clerk
    from cellblock.host.artifacts.exports import Exports
    from cellblock.host.audit.trail import Audit
    from cellblock.host.cells.front import Asked, Parent, Starting
    from cellblock.host.cells.outputs import Outputs
    from cellblock.host.cells.views import Views
    from cellblock.host.history import History
    from cellblock.host.outcome import Stopped
    from cellblock.host.session import Session
    from cellblock.host.tools.approval import Approval
    from cellblock.wire import messages as wire


class Station(ABC):
    """Where cells come in, one at a time, and where what a session says of them arrives.

    Without a ``session`` nothing can run, and ``views`` know why.
    """

    def __init__(
        self, outputs: Outputs, views: Views, audit: Audit, history: History | None = None
    ) -> None:
        self.outputs, self.views, self.audit, self.history = outputs, views, audit, history
        self.session: Session | None = None
        #: What copies files out after cells, if the policy has that done.
        self.exports: Exports | None = None
        #: Where the user has to allow that there is a session: what asks for it.
        self.starting: Starting | None = None
        #: Asks the user, where the policy has that and somebody is there to be asked. To be set
        #: before the session is founded, as is what decides about calls in its place.
        self.clerk: Clerk | None = None
        self.approval: Approval | None = None
        self.execution_count = 0
        #: The cell that runs.
        self.cell: CellRun | None = None

    def run(self, asked: Asked, parent: Parent) -> CellRun:
        """Run a cell, whose outputs belong to ``parent``; ``end_cell`` gets its end."""
        self.cell = cell = CellRun(self, asked)
        self.outputs.begin(parent, cell)
        cell.start()
        return cell

    @abstractmethod
    def end_cell(self, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool) -> None:
        """Answer the running cell; with ``abort``, what was to run next is not."""

    # --- what a session tells -----------------------------------------------------------------

    @abstractmethod
    def asked(self, request: wire.InputRequest) -> bool:
        """Put the running cell's question, or don't."""

    def consulted(self, text: str, told: Callable[[str], None]) -> Callable[[], None] | None:  # noqa: ARG002 - who can ask does
        """Put a question of the host's to whoever runs the cell; None: nobody can be asked."""
        return None

    @abstractmethod
    def hurry(self) -> None:
        """Stop holding the guest."""

    def shown(self, message: wire.FromGuest) -> None:
        """Pass a guest's output on."""
        self.outputs.shown(message)

    def restarted(self, stopped: Stopped) -> None:
        """Say that the guest was lost while nothing ran."""
        from cellblock.host.cells import stops  # noqa: PLC0415 - few guests are lost

        self.outputs.card(stops.shown(stopped, self.views.in_force)[0])

    def undone(self, stopped: Stopped) -> None:
        """Show which cells were undone, and note it beside the cell that did it."""
        from cellblock.host.cells import stops  # noqa: PLC0415 - as above

        self.outputs.card(stops.undone(stopped, self.views.in_force))
        if stopped.undone and self.history is not None:
            counts = ", ".join(f"[{count}]" for count in stopped.undone)
            self.history.annotate(self.execution_count, f"# undid {counts}")

    def noticed(self, text: str) -> None:
        """Say that no snapshots are taken for now."""
        self.outputs.notice(f"takes no snapshot: {text}. A killed cell may cost its variables")

    def equipped(self, tools: tuple[wire.Tool, ...]) -> None:
        """Remember the tools: ``%tools`` lists them."""
        self.views.tools_in_force = tools

    def refused(self, error: PolicyError) -> None:
        """Remember why the policy can't be kept: every cell says so."""
        self.views.refuse(error)

    def failed(self, detail: str) -> None:
        """Remember why no guest runs: every cell says so."""
        self.views.fail(detail)

    def locked(self, report: wire.LockReport) -> str:
        """Take note of what a guest's locks achieved."""
        refusal = self.views.locked(report)
        views = self.views
        self.audit.locked(views.enforcement, views.gaps, report.achieved, views.proved)
        self.outputs.forget_comms()
        if self.cell is not None:
            self.cell.show_gaps()
        return refusal
