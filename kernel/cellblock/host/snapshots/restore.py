"""Going back to a snapshot: from a guest's end until a snapshot of it serves in its place."""

from __future__ import annotations

import contextlib
import math
import os
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from cellblock.errors import CellblockError, GuestError
from cellblock.host.output.gateway import clean_name
from cellblock.host.session.types import Restored, Stopped
from cellblock.host.snapshots.chain import LATELY, PastRequest, is_visible
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.host.snapshots.chain import Snapshot
    from cellblock.host.snapshots.store import Snapshots


#: Seconds that the first snapshot has to take over: half of what all have together, and so has each
#: one after it of what is left, since whoever waits has waited for those before.
PATIENCE: Final = 4.0
#: Those that each has at least.
_LEAST: Final = 0.25
#: A copy that runs cells again may need so many times as long as they took.
_SLOWER: Final = 4
#: Copies that end while they run the same cell again before it counts as what ends them.
_MAX_STUMBLES: Final = 4
#: Ends that a cell brings about which pretends to have ended: it would do so again.
_ITS_OWN_DOING: Final = frozenset({"violation", "silent", "breach"})
#: Ends that say the same of it when they come before the next request was taken up.
_NOT_TAKEN_UP: Final = frozenset({"timeout", "interrupt"})


class Serving(Protocol):
    """What a restoration needs of the supervisor, whose guest a snapshot becomes."""

    snapshots: Snapshots
    clock: Callable[[], float]
    #: Returns the descriptor at which a guest asks for connections, if any. Raises OSError.
    relay: Callable[[], list[int]]
    zygote: Zygote | None

    def on_text(self, written: messages.Stream) -> None:
        """Take text that the guest wrote."""

    def on_trying(self, guest: Guest | None) -> None:
        """Record which snapshot is tried; None when that failed."""

    def on_restored(self, restoration: Restoration, guest: Guest) -> None:
        """Serve by a snapshot that has taken over."""

    def on_gone(self, stopped: Stopped) -> None:
        """Start anew: there is no snapshot of what was lost."""


class Restoration:
    """Has the newest snapshot take over, or the one before it if that fails.

    It leaves a twin, is told to resume, says that it has, and runs again what it lacks; then it
    serves.
    ``running`` is the request that was under way, ``missed`` is what ran after a snapshot that was
    chosen, ``undone`` what ``%undo`` steps back over. Under a ``plan`` it has more locks first.
    ``emptied`` says that there were files in /dev/shm, which were removed.

    A request that had ended so lately that no snapshot holds what it did is run again, unheard:
    that is for a guest that ends in the millisecond between, and it was short (longer ones are not
    answered before their snapshot stands). So are those before it that come out the same.
    """

    def __init__(
        self,
        reactor: Reactor,
        supervisor: Serving,
        stopped: Stopped,
        running: Any = None,
        *,
        missed: Sequence[PastRequest] = (),
        undone: Sequence[PastRequest] = (),
        plan: messages.Plan | None = None,
        emptied: bool = False,
    ) -> None:
        self._reactor, self._supervisor = reactor, supervisor
        self._snapshots = supervisor.snapshots
        #: The outcome as it is when nothing can be restored, and what it is from the first failure.
        self._stopped = self.otherwise = stopped
        self._running, self._undone, self._emptied = running, undone, emptied
        self._lost_at = supervisor.clock()
        #: Locks that it has to have, and whether the zygote says that it has.
        self._plan, self.confined = plan, plan is None
        #: Of a fork: what it has for itself.
        self.place: messages.SessionSetup | None = None
        #: The snapshot that is tried, and the process of it that is to serve.
        self._snapshot: Snapshot | None = None
        self._guest: Guest | None = None
        #: What the chain has did not lead to it.
        self.leaves_chain = False
        self._resumed: messages.Resumed | None = None
        #: What ran after that was made; what of it is to be run again, and was.
        self._missed = list(missed)
        self._due: list[PastRequest] = []
        self._again: list[PastRequest] = []
        #: What was run again when each of those that were killed then was.
        self._stumbled: list[Any] = []
        self._timer: Timer | None = None
        #: Seconds that are left for all, with those for cells that are run again.
        self._left, self._again_left = 2 * PATIENCE, 0.0
        self._began = 0.0
        #: How processes ended since it was told to resume, by pid.
        self._exits: dict[int, int] = {}

    @property
    def is_running(self) -> bool:
        """Whether a snapshot is being tried."""
        return self._snapshot is not None

    def restore_newest(self) -> None:
        """Have the newest snapshot take over."""
        snapshot = self._snapshots.chain.newest()
        if snapshot is None:
            self._supervisor.on_gone(self._stopped)
            return
        missed = [*snapshot.after, *self._again, *self._missed]
        # What runs may have ended, but was not answered: it ends as stopped.
        self._missed = [request for request in missed if request.message is not self._running]
        self._again, self._resumed = [], None
        self.restore(snapshot)

    def restore(self, snapshot: Snapshot, process: Guest | None = None) -> None:
        """Have a snapshot take over: its process leaves a twin first.

        A ``process`` of it that is given was had serve by the caller, and has left one or none.
        """
        guest = self._guest = process or snapshot.guest
        self._snapshot, self.leaves_chain = snapshot, snapshot not in self._snapshots.chain
        snapshot.after.clear()
        self._due = self._may_run_again()
        self._start_timer(guest)
        self._exits.clear()

        def stands() -> None:
            if guest is self._guest:
                self._resume(guest, snapshot)

        guest.on_message = lambda message: self._on_message(guest, message)
        guest.on_text = self._supervisor.on_text
        guest.on_lost = lambda reason: self._fail(guest, killed=not reason)
        self._supervisor.on_trying(guest)
        if process is None:
            self._snapshots.go_to(snapshot, stands)
        else:
            stands()

    def _resume(self, guest: Guest, snapshot: Snapshot) -> None:
        """Tell a process to take over; until it says that it did, nothing else is sent to it."""
        snapshot.unseen |= self._unseen()
        resume = messages.Resume(
            seed=os.urandom(32),
            again=len(self._due),
            inputs=sorted(snapshot.unseen.items()),
            plan=self._plan,
            place=self.place,
            fork=self._stopped.why == "fork",
        )
        relay = list[int]()  # a way to it of its own
        with contextlib.suppress(OSError):  # the guest is told that there is none when it asks
            relay = self._supervisor.relay()
        try:
            if not (relay and guest.send_with(resume, relay)):
                guest.send(resume)
        except CellblockError:
            self._fail(guest, killed=guest.closed)
        finally:
            for fd in relay:
                os.close(fd)

    def _start_timer(self, guest: Guest) -> None:
        again = _SLOWER * sum(request.seconds for request in self._due)
        self._left += max(0.0, again - self._again_left)
        self._again_left = max(again, self._again_left)
        allowed = again + max(0.0, self._left - again) / 2
        self._began = self._supervisor.clock()
        self._timer = self._reactor.call_later(
            max(_LEAST, min(allowed, self._left)), lambda: self._fail(guest)
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what it lacks ------------------------------------------------------------------------

    def _may_run_again(self) -> list[PastRequest]:
        """Return what of what is missing is run again: all, or what is repeatable before the rest.

        What was short had just ended, or a snapshot would hold it: the newest has ended with its
        guest where there is more than one. After an attack they are suspects.
        """
        suspect = _ITS_OWN_DOING if self._running is not None else _ITS_OWN_DOING | _NOT_TAKEN_UP
        trusted = self._stopped.why not in suspect
        once = [request for request in self._missed if not request.repeatable]
        lately = all(one.short and self._lost_at - one.ended < LATELY for one in once)
        if trusted and lately:
            return list(self._missed)
        return list(takewhile(lambda one: one.repeatable, self._missed))

    def _unseen(self) -> dict[int, str]:
        """Return the cells that it has not seen, for ``In``: what was undone is marked."""
        found = dict[int, str]()
        for request in self._undone:
            found[request.message.execution_count] = f"# undone\n{request.message.raw}"
        for request in self._missed:
            if request.visible and request not in self._due:
                found[request.message.execution_count] = request.message.raw
        if is_visible(self._running):
            found[self._running.execution_count] = self._running.raw
        return found

    # --- what it says -------------------------------------------------------------------------

    def _on_message(self, guest: Guest, message: messages.FromGuest) -> None:
        """Hear that it stands, that it has left a twin and resumed, that it caught up."""
        if guest is not self._guest:
            return
        if isinstance(message, messages.SnapshotFailed):
            self._snapshots.not_standing(message)
            return
        if self._has_twin(message):
            return
        if not self.confined and self._supervisor.zygote is not None:
            self._supervisor.zygote.read_rest()  # it says so before the snapshot can
        resumed = isinstance(message, messages.Resumed)
        try:
            serves = self._take(message, guest)
            if resumed:
                self._snapshots.end_programs()
            if serves:
                self._serve(guest)
                return
            ended = isinstance(message, messages.Done)
            if self._resumed is not None and self._due and (resumed or ended):
                guest.send(_again(self._due[0]))
        except CellblockError:
            self._fail(guest)

    def _has_twin(self, message: messages.FromGuest) -> bool:
        """Return whether it says that it has parted with its twin, which speaks for itself."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.guest is self._guest:
            return False
        return isinstance(message, messages.SnapshotReady) and message.id == snapshot.number

    def _take(self, message: messages.FromGuest, guest: Guest) -> bool:
        """Act on what it says; return whether it serves now. Raises GuestError."""
        match message:
            case messages.SnapshotReady() if guest.sender_is_ours():
                return False
            case messages.Resumed() if not self.confined:
                raise GuestError("it goes on without its locks")
            case messages.Resumed() if self._resumed is None and guest.pidfd is not None:
                self._resumed = message
                return not self._due
            case messages.Done(id=number, error=error) if (
                self._due and number == self._due[0].message.id
            ):
                if error is not None and self._due[0].repeatable:
                    raise GuestError("it fails now")
                self._again.append(self._due.pop(0))
                self._missed.pop(0)
                return not self._due
            case (
                messages.Breach()
                | messages.InputRequest()
                | messages.SnapshotReady()
                | messages.ToolCall()
            ):
                raise GuestError("it does not catch up")
            case _ if not self._due:
                raise GuestError("it speaks out of turn")
        return False

    # --- how it ends --------------------------------------------------------------------------

    def _serve(self, guest: Guest) -> None:
        snapshot, self._snapshot, self._guest = self._snapshot, None, None
        if snapshot is not None:
            snapshot.served = 0  # it is not what ended others that had its state
            if snapshot.on_serving is not None:
                snapshot.on_serving()  # what waited is safe; what comes next is not sent yet
        for number, request in enumerate(self._again, 1 - len(self._again)):
            # An older snapshot lacks it, should this guest end at once. Behind the last, random
            # numbers are new: what comes next is not run again from before that.
            repeatable, now = request.repeatable and number < 0, self._supervisor.clock()
            self._snapshots.record(replace(request, ended=now, repeatable=repeatable))
        self._stop_timer()
        self._supervisor.on_restored(self, guest)

    def fail(self) -> None:
        """Give up the snapshot that is tried."""
        if self._guest is not None:
            self._fail(self._guest)

    def _fail(self, guest: Guest, *, killed: bool = False) -> None:
        """Have another take over: its twin, where this one was killed, or the snapshot before.

        One that did not get over a cell that it ran again was right up to there: its twin takes
        over without that cell and those behind it, which are told.
        """
        snapshot = self._snapshot
        if snapshot is None or guest is not self._guest:
            return
        if self._resumed is not None and self._due:
            stumbled = self._due[0].message
            self._stumbled.append(stumbled)
            often = self._stumbled.count(stumbled) >= _MAX_STUMBLES
            if not killed or often:  # else whoever killed it is at fault
                self._missed[0] = replace(self._missed[0], repeatable=False, ended=-math.inf)
            killed = True
        self._snapshot, self._guest, self._stopped = None, None, self.otherwise
        self._exits.clear()
        self._supervisor.on_trying(None)
        self._stop_timer()
        self._left -= self._supervisor.clock() - self._began
        guest.close()
        if not killed:
            self._snapshots.let_go(snapshot)  # its twin could not take over either
        self.restore_newest()

    def reaped(self, pid: int, status: int) -> None:
        """Record how a process ended while a snapshot is tried."""
        self._exits[pid] = status

    def exit_status(self, guest: Guest) -> int | None:
        """Return how a guest ended that has taken over, if it did before that was heard."""
        return None if guest.pid is None else self._exits.get(guest.pid)

    def outcome(self) -> Stopped:
        """Return the outcome, with what became of the state."""
        resumed = self._resumed or messages.Resumed()
        return replace(
            self._stopped,
            restored=Restored(
                threads=tuple(resumed.threads),
                tasks=resumed.tasks,
                files=resumed.files,
                connections=resumed.connections,
                emptied=self._emptied,
                again=_counts([request for request in self._again if not request.repeatable]),
                missed=_counts(self._missed),
            ),
        )


def _again(request: PastRequest) -> messages.ToGuest:
    """Return what has a request run again."""
    message: messages.ToGuest = request.message
    if request.repeatable and isinstance(message, messages.Execute):
        return replace(message, again=True)
    return message


def _counts(requests: Sequence[PastRequest]) -> tuple[int, ...]:
    return tuple(one.message.execution_count for one in requests if one.visible)


# --- in words ---------------------------------------------------------------------------------


def lacking(restored: Restored) -> tuple[str, ...]:
    """Name what a snapshot that took over does not have."""
    said = []
    if restored.threads:
        names = ", ".join(filter(None, map(clean_name, restored.threads)))
        said.append(f"{_count(len(restored.threads), 'running thread')} ({names})")
    if restored.tasks:
        said.append(_count(restored.tasks, "running task"))
    if restored.files:
        said.append(f"the contents of {_count(restored.files, 'open file')}")
    if restored.connections:
        said.append(_count(restored.connections, "network connection"))
    if restored.emptied:
        said.append("the files in /dev/shm")
    if restored.missed:
        said.append(f"what {_cells(restored.missed)} did: run them again")
    if restored.again:
        said.append(f"{_cells(restored.again)}, which had just ended and was run again")
    return tuple(said)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cells(counts: tuple[int, ...]) -> str:
    return ", ".join(f"[{count}]" for count in counts)
