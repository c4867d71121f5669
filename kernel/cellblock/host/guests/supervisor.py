"""The supervisor: provides a session with guests, and replaces a guest that is lost.

A session has one guest at a time, forked from one zygote; the supervisor replaces both when they
end. The session's requests are its ``owner``. The core knows which process is the guest and how far
it is (``host.state.core``, which draws the states).

- A guest *starts* (``_start``). It may have been forked ahead, before there was a session
  (``take_guests``). Otherwise it is forked from the zygote; from a new zygote if there is none, or
  if guests of the present one would have more than they may after a narrowing (``narrow_to``). The
  guest reports its locks. After ``MAX_FAILED_STARTS`` failures in a row no guest is started any
  more.
- It *serves* (``guest``): the session speaks to it. Before the first cell a *spare* guest may take
  its place, which has already imported what that cell will (``begin``).
- It is *lost*: the session ended it (``replace``), it broke the protocol (``on_channel_lost``), it
  ended (``on_zygote``), or its zygote ended (``on_zygote_lost``).
- A copy *restores* it. If none can, a new guest is started (``on_gone``).
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import structs

from cellblock.errors import CellblockError, GuestError
from cellblock.host.guests.process import Guest
from cellblock.host.guests.spare import SpareGuest, imported_ahead
from cellblock.host.guests.zygote import ZygoteSource, exit_reason, kill_session
from cellblock.host.session import types
from cellblock.host.session.types import NarrowingStep, Stopped
from cellblock.host.snapshots.driver import SnapshotOwner, Snapshots
from cellblock.host.state.core import PICKED_ENDED
from cellblock.host.state.takeover import Takeover
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.limits.shared_memory import SharedMemory
    from cellblock.host.reactor import Reactor
    from cellblock.host.session.types import SessionSettings
    from cellblock.host.state.chain import PastRequest, Snapshot
    from cellblock.policy.model import Policy


#: Guests in a row that may fail to start before no more are started.
MAX_FAILED_STARTS: Final = 3
#: Seconds until the next attempt if the host itself could not start a guest.
NEXT_START = 0.5
#: Seconds that a guest has to exit after it closed its channel. A guest that ends by itself is all
#: but gone by then.
EXIT_GRACE = 1.0
#: Characters kept of what a guest writes before it is ready, and of the reason shown to the user if
#: no guest can be started.
LAST_WORDS: Final = 2_000
#: Numbers the requests for locks. They are unique in this program, because all users of a shared
#: zygote hear the answer to each.
_TICKETS: Final = itertools.count(1)


class Owner(SnapshotOwner, Protocol):
    """The session's requests, for which the supervisor provides guests."""

    def on_ready(self, report: messages.LockReport) -> str:
        """Judge what a new guest's locks achieved; return why nothing may run in it, or ""."""

    def on_served(self) -> None:
        """Send what waits to a guest that begins to serve."""

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on a message of the guest."""

    def on_text(self, text: messages.Stream) -> None:
        """Show text that cells, and programs that they started, have written."""

    def on_loss(self, stopped: Stopped) -> None:
        """End the requests that were lost with their guest. Send again those that had not begun."""

    def on_failure(self, detail: str) -> None:
        """End all requests, because no guest can be started."""


class Supervisor:
    """Provides guests for its ``owner``, a session's requests, from the source ``zygotes``.

    ``on_network`` is called when a guest is ready. It gets the sockets at which the guest's
    connections to listed hosts arrive, and a socket of the guest's network, or None if the host has
    no way into it.
    """

    def __init__(
        self,
        reactor: Reactor,
        owner: Owner,
        policy: Policy,
        prepare: messages.Prepare,
        zygotes: ZygoteSource,
        clock: Callable[[], float],
        on_network: Callable[
            [Mapping[messages.Neighbour, int], int | None], None
        ] = lambda _listeners, _network: None,
    ) -> None:
        self._reactor = reactor
        self.owner = owner
        self.clock = clock
        self._on_network = on_network
        #: The message for the next zygote, and the source that it comes from.
        self._prepare = prepare
        self._next_zygotes = zygotes
        #: The present zygote, the source that it came from, and the message that it was sent.
        self.zygote: Zygote | None = None
        self._zygotes = zygotes
        self._prepared = prepare
        self._last_session = -1
        self.snapshots = Snapshots(reactor, clock, policy, self)
        self._core = self.snapshots.core
        self._play = self.snapshots.play
        #: Exit statuses, by pid, of processes that ended since a copy was last woken to take over.
        self._exits: dict[int, int] = {}
        self._spare = SpareGuest(reactor, self.fork, imported_ahead(policy), prepare.cwd)
        #: The first request, if it came before there was a guest.
        self._first_request: Any = None
        # Sandboxes of a pool have none: they may wait for long, and a spare guest takes memory.
        self._has_spare = not zygotes.is_shared
        #: How many guests in a row failed to start, and what they wrote.
        self._failed_starts = 0
        self._last_words = ""
        #: Called when the locks that were asked for with this ticket are ready, or can't be had.
        self._on_locks: Callable[[str], None] | None = None
        self._ticket = 0
        self._output_held = False
        self._closed = False
        #: Seconds of processor time that orphaned processes of this session's guests used.
        self.orphans_cpu = 0.0
        #: Seconds of processor time that the zygote used to answer calls of this session's guests.
        self.answering_cpu = 0.0
        #: How many Landlock rulesets are stacked on this session's guests, and whether the first
        #: guest will be a copy of another session's guest.
        self.rulesets = 1
        self.awaits_fork = False

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""
        return self.snapshots.guest

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...]) -> None:
        """Set the tools and folders of packages that guests know. Before the first one starts."""
        self._prepare = structs.replace(self._prepare, tools=tools, paths=paths)

    def shared_memory(self) -> int:
        """Return the bytes that guests hold in their /dev/shm."""
        memory = self._shared_memory()
        return 0 if memory is None else memory.held()

    def _shared_memory(self) -> SharedMemory | None:
        lineage = self.snapshots.lineage
        if self.zygote is None or lineage is None:
            return None
        return self.zygote.shared_memory(lineage)

    def refresh(self, done: Callable[[str], None]) -> None:
        """Have layers forget what they looked up; ``done`` is called with why that failed, or "".

        It is not called if the zygote is lost; then there is no guest, either.
        """
        if self.zygote is not None:
            self.zygote.refresh(done)

    def check_zygote(self) -> None:
        """Have the zygote replaced if it hangs. Guests wait for its answers at the gate, too."""
        if self.zygote is not None:
            self.zygote.check()

    def hold(self, *, held: bool) -> None:
        """Stop listening to the guest, so that its output waits; or listen again."""
        self._output_held = held
        if self.guest is not None:
            self.guest.hold(held=held)

    def interrupt(self) -> None:
        """Interrupt the guest, unless it is being restored: then it runs nothing of the user's."""
        guest = self.snapshots.current
        if guest is not None and not self._core.restores:
            guest.interrupt()

    # --- starting -----------------------------------------------------------------------------

    def ensure(self) -> None:
        """Start a guest unless there is one. A failure is tried again, and then reported."""
        self._play(self._core.cell_began)
        if self._core.guest is not None or self._closed or self.awaits_fork:
            return
        try:
            self._start()
        except OSError as exc:
            # The host may lack processes or descriptors for a moment only, so try again.
            self._failed_starts += 1
            if self._failed_starts < MAX_FAILED_STARTS:
                self._reactor.call_later(NEXT_START, self.ensure)
            else:
                self.give_up(f"its process could not be started: {exc.strerror}")

    def _start(self) -> None:
        """Take a guest that was forked ahead, or have one forked. Raises OSError."""
        if self.zygote is not None and self._prepared != self._prepare:
            self._leave_zygote(self.zygote)
        if self.zygote is None:
            self._zygotes = self._next_zygotes
            self._prepared = self._prepare
            self.zygote = self._zygotes.get(self._prepare, self)
        self.rulesets = 1
        if (ahead := self._zygotes.take_guests()) is not None:
            guest, self._spare = ahead
            self._spare.fork_guest = self.fork
            self.snapshots.start(guest)
            guest.hold(held=False)  # its report has not been read yet
            return
        guest = Guest(self._reactor)
        self.snapshots.start(guest)
        self._zygotes.fork(self.zygote, guest)

    def fork(self, guest: Guest) -> Zygote | None:
        """Have the zygote fork a spare guest; return it."""
        if self.zygote is not None:
            self._zygotes.fork(self.zygote, guest)
        return self.zygote

    def _leave_zygote(self, zygote: Zygote) -> None:
        """End the zygote and all its guests, because they have more than the policy now allows."""
        self._play(self._core.end)
        self.zygote = None
        if not self._zygotes.leave(zygote):
            kill_session(self._last_session)

    def _on_ready(self, report: messages.LockReport) -> None:
        """Have the guest serve, if its report has all the required locks; else give up."""
        guest = self.snapshots.current
        missing = [lock for lock in self._prepare.plan.required if lock not in report.achieved]
        if missing:
            self.give_up(f"these locks were not applied: {', '.join(missing)}")
        elif refusal := self.owner.on_ready(report):
            self.give_up(refusal)
        elif guest is not None:
            self._failed_starts = 0
            if self.zygote is not None:
                self._on_network(self.zygote.listeners, self.zygote.network)
            guest.hold(held=self._output_held)
            self._tell_launch(guest)
            self.snapshots.begin(idle=self.owner.idle())
            if self._has_spare:
                self._spare.fork_later(report, idle=self.owner.idle())
            if (first := self._first_request) is not None:
                self._first_request = None
                self._use_spare(first)
            self.owner.on_served()

    def _tell_launch(self, guest: Guest) -> None:
        """Send a guest that is about to serve what Jupyter started the kernel with."""
        if self._prepare.launch is not None:
            with contextlib.suppress(CellblockError):  # a guest that is gone will be replaced
                guest.send(self._prepare.launch)

    def give_up(self, detail: str) -> None:
        """End the guest and its copies for good, and tell the user the reason."""
        self._closed = True
        self._play(self._core.end)
        self.owner.on_failure(detail[:LAST_WORDS])

    # --- serving ------------------------------------------------------------------------------

    def begin(self, message: Any) -> None:
        """Have the first cell served by the spare guest, if that has imported what the cell names.

        A spare guest that was forked before the launch is used only when a guest with the same
        locks has reported ready; the message waits for that.
        """
        if self._spare.ahead:
            self._first_request = message
        elif self._use_spare(message):
            self.owner.on_served()

    def _use_spare(self, message: Any) -> bool:
        """Make the spare guest the guest, if it suits the message; return whether it did."""
        spare = self._spare.take(message)
        if spare is None or self.guest is None or self.zygote is None:
            return False
        self._play(self._core.end)  # the guest has run nothing
        self.snapshots.start(spare)
        spare.hold(held=self._output_held)
        self._tell_launch(spare)
        self.snapshots.begin(idle=False)
        return True

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on a message of the guest, which starts or serves."""
        breach = types.unasked(message, served=self._core.serves)
        guest = self._core.guest
        if isinstance(message, messages.SnapshotFailed) and guest is not None:
            self._play(self._core.fork_failed, guest, message.id, message.errno)
        elif breach:
            self.replace(Stopped("violation", f"protocol violation: {breach}"))
        elif isinstance(message, messages.Ready):
            self._on_ready(message.report)
        elif isinstance(message, messages.NotReady):
            self.give_up(f"{message.lock}: {message.detail}")
        else:
            self.owner.on_message(message)

    def on_text(self, written: messages.Stream) -> None:
        """Pass on text of a guest that serves; of any other, keep the end as its last words."""
        if self.guest is None:
            self._last_words = (self._last_words + written.text)[-LAST_WORDS:]
        else:
            self.owner.on_text(written)

    def ran(self, request: PastRequest, answer: Callable[[], None], *, alone: bool = True) -> None:
        """Record that a request ran to its end; ``answer`` is called when it may be answered.

        If it did not run ``alone``, and another still runs, no snapshot is taken before the other's
        end.
        """
        self._play(self._core.cell_ended, request, answer, alone=alone)

    # --- the guest is lost --------------------------------------------------------------------

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; the newest snapshot takes over, or else a new guest.

        /dev/shm is emptied, because what the guest left there counts as held by the next one, which
        could then exceed its limit from the start.
        """
        self._play(self._core.guest_lost, stopped)

    def empty_shared_memory(self) -> bool:
        """Remove what guests left in their /dev/shm; return whether they left anything."""
        memory = self._shared_memory()
        return memory is not None and memory.empty()

    def on_ending(self, guest: Guest | None, *, has_failed: bool) -> None:
        """Note that the process which was the guest is being ended. Called by the driver.

        ``has_failed`` says that it was starting and never served.
        """
        self._spare.end()
        if guest is not None:
            self._failed_starts += has_failed
            if guest.session > 0:
                self._last_session = guest.session

    def on_channel_lost(self, guest: Guest, reason: str) -> None:
        """Act on a channel that broke. Without a ``reason``, wait for the guest's exit status."""
        if reason:
            self.replace(Stopped("violation", reason))
            return

        def late() -> None:
            if guest is self.snapshots.current:
                self.replace(Stopped("violation", "protocol violation: it closed its channel"))

        self._reactor.call_later(EXIT_GRACE, late)

    def on_zygote(self, message: messages.FromZygote) -> None:
        """Act on a message of the zygote: a process ended, locks are ready, or a fork failed."""
        guest = self.snapshots.current
        match message:
            case messages.Reaped():
                self._on_ended(guest, message)
            case messages.Answered(id=number, user=user, seconds=seconds):
                own = guest is not None and guest.lineage.number == number
                if own and user == self.snapshots.user:  # not for calls of a fork of this sandbox
                    self.answering_cpu += seconds
            case messages.ForkFailed(id=number, detail=detail):
                if guest is not None and guest.lineage.number == number:
                    self.replace(Stopped("crash", detail))
            case messages.Narrowed():
                self._on_narrowed(message)
            case messages.ZygoteFailed():
                self.give_up(message.detail)

    def _on_ended(self, guest: Guest | None, message: messages.Reaped) -> None:
        """Act on the end of the guest, or of an orphan.

        Only this message says how much processor time an orphan used.
        """
        if self._core.restores:
            self._exits[message.pid] = message.status
        elif guest is not None and guest.pid == message.pid:
            self._on_reaped(guest, message.status)
        elif self.snapshots.had_started(message):
            self.orphans_cpu += message.seconds

    def _on_reaped(self, guest: Guest, status: int) -> None:
        """Replace a guest that ended, after reading its last messages.

        One of these may itself be the reason to replace the guest, which is then done already.
        """
        guest.reaped()
        guest.read_rest()
        if guest is self.snapshots.current:
            guest.drain()
            self.replace(Stopped("crash", exit_reason(status)))

    def on_zygote_lost(self, why: str) -> None:
        """Replace the zygote and its guests. Called when the zygote has ended."""
        self.zygote = None
        if (guest := self.snapshots.current) is not None:
            kill_session(guest.session)
        if self._closed:
            self._play(self._core.end)
        else:
            self._play(self._core.guest_lost, Stopped("crash", why), with_copies=True)

    # --- restoring ----------------------------------------------------------------------------

    def undo(self, steps: int) -> int:
        """Go back to the state before the last ``steps`` cells; return how many can be undone.

        If that is fewer than ``steps``, nothing was done.
        """
        possible = self.snapshots.steps() if self._core.serves else []
        if 0 < steps <= len(possible):
            self._play(self._core.undo, possible[steps - 1])
        return len(possible)

    def on_waking(self, guest: Guest) -> None:
        """Have the zygote report the end of a copy that will take over."""
        self._exits.clear()
        self._announce_serving(guest)

    def _announce_serving(self, guest: Guest) -> None:
        """Tell the zygote's end that this copy serves, so that its end is reported."""
        if self.zygote is not None:
            self.zygote.serves(guest)

    def on_serving(self, guest: Guest) -> None:
        """Treat a copy that has taken over like any other guest."""
        self._failed_starts = 0
        # Once more: a copy that was tried before it stood had no pid when it was woken.
        self._announce_serving(guest)
        guest.hold(held=self._output_held)

    def on_restored(self, guest: Guest, outcome: Stopped) -> None:
        """Tell the session what its restored state lacks, and send what waits."""
        self.owner.on_loss(outcome)
        status = None if guest.pid is None else self._exits.get(guest.pid)
        if status is None:
            self.owner.on_served()
        else:
            self._on_reaped(guest, status)  # the copy took over, and ended before that was read

    def on_gone(self, stopped: Stopped) -> None:
        """Start a new guest, because no snapshot of the lost one is left. Or give up."""
        if self._closed:
            return
        if stopped.why == "fork":
            self.give_up("the fork ended before it could serve")
            return
        self._play(self._core.end)
        if self._failed_starts >= MAX_FAILED_STARTS:
            last_words = self._last_words.strip() or stopped.detail
            self.give_up(f"the guest ended {MAX_FAILED_STARTS} times while starting: {last_words}")
            return
        served = not self._failed_starts
        self.ensure()
        # A guest that never served lost nothing, and the next one serves what waits.
        if served:
            self.owner.on_loss(stopped)

    # --- forks ----------------------------------------------------------------------------------

    def adopt(
        self,
        copy: Snapshot,
        parent: Supervisor,
        log_id: str,
        place: messages.SessionSetup | None,
    ) -> None:
        """Serve by a copy of the guest of ``parent``, whose session has this audit log id.

        With a ``place`` of its own the copy is under one more ruleset than its guest. A copy that
        does not take that ruleset does not come to serve (``guest.confine.landlock``). Raises
        GuestError.
        """
        if self.zygote is None:
            self._prepared, self.zygote = self._prepare, self._zygotes.get(self._prepare, self)
        if self.zygote is not parent.zygote:
            # The numbers of the parent's zygote mean other guests in ours: their locks, forks and
            # ends would be taken for this guest's.
            raise GuestError("a sandbox that took a new guest by %policy narrow has no forks")
        if not copy.kept:
            raise GuestError("the copy ended before it could serve")
        stopped = on_failure = Stopped("fork", log_id)
        if self._core.guest is not None:
            # A variant was picked. If it ends before it serves, the session stays as it was.
            on_failure = Stopped("crash", PICKED_ENDED)
        self.rulesets = parent.rulesets + (place is not None)
        plan = None if place is None else place.plan
        takeover = Takeover(stopped, self.clock(), otherwise=on_failure, plan=plan, place=place)
        guest = parent.snapshots.give_away(copy)
        number = self.snapshots.adopt(guest, copy.had, takeover, parent.snapshots)

        def ready(failure: str) -> None:
            self.awaits_fork = False
            if failure:
                self.give_up(f"the fork's locks can't be had: {failure}")
            else:
                self._play(self._core.locks_are_ready, number)

        if plan is None:
            ready("")
        else:
            self._on_locks, self._ticket = ready, next(_TICKETS)
            rulesets = parent.rulesets
            self.zygote.narrow(guest, plan, self._ticket, rulesets=rulesets, fork=True)

    # --- a narrower policy --------------------------------------------------------------------

    def narrow_to(self, settings: SessionSettings) -> None:
        """Have guests under a narrower policy from now on.

        The guest is replaced at once if ``settings.step`` says so.
        """
        self._spare.end()
        former = self._prepare
        tools = tuple(tool for tool in former.tools if tool.name not in settings.tools_gone)
        self._prepare = structs.replace(settings.prepare, tools=tools, paths=former.paths)
        if self._prepare != former:
            self._next_zygotes = ZygoteSource(self._reactor, settings.zygote)
        self._core.policy = settings.policy  # this also limits snapshots that are kept already
        if settings.step is NarrowingStep.relock:
            # A copy that goes on without these locks is ended like any other that lies
            # (``guest.confine.landlock``).
            self._play(self._core.relock, settings.prepare.plan)
        elif settings.step is NarrowingStep.fresh:
            # Nothing of the guest and its snapshots may be left.
            self.owner.on_stopping()
            self._play(self._core.end)
            self._failed_starts = 0
            self.ensure()

    def copy_guest(self, then: Callable[[Snapshot | None], None]) -> None:
        """Have a snapshot taken of the guest as it is; ``then`` is called with it, or with None."""
        self._play(self._core.copy_guest, then)

    def prepare_locks(
        self, snapshot: Snapshot, plan: messages.Plan, then: Callable[[str], None]
    ) -> None:
        """Have the zygote prepare more locks for a snapshot.

        ``then`` is called with why they can't be had, or with "". After that the snapshot must take
        over (``narrow_to``): nothing more can start until then, or until locks for another are
        asked for.
        """
        guest = self.snapshots.process_of(snapshot)
        if guest is None or len(guest.lineage.users) > 1:
            then("the sandbox has forks, or is one")
            return
        self._on_locks, self._ticket = then, next(_TICKETS)
        if self.zygote is not None:
            self.zygote.narrow(guest, plan, self._ticket, rulesets=self.rulesets)
            self.rulesets += 1

    def _on_narrowed(self, message: messages.Narrowed) -> None:
        """Act on the zygote's report that locks are ready, can't be had, or were applied."""
        if message.ticket != self._ticket:
            return  # the locks of a snapshot that was dropped, or of another session
        if message.ready or message.failure:
            then = self._on_locks
            self._on_locks = None
            if then is not None:
                then(message.failure)
        else:
            self._play(self._core.locks_are_on)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> bool:
        """End guests and zygote; return whether they and their folder are gone."""
        self._closed = True
        self._play(self._core.end)
        zygote = self.zygote
        self.zygote = None
        return zygote is None or self._zygotes.end(zygote)
