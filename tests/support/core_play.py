"""``Play``: the core of ``host.state`` with simulated processes, time and session.

A process's state is the list of the cells that led to it. ``Play`` has the processes, the messages
to and from each, the clock, and a session that runs one cell at a time as ``host.session.requests``
does. The test decides what happens next. The invariants are asserted after each event (``check``).
"""

from __future__ import annotations

import errno
import heapq
import itertools
import re
from collections import deque
from dataclasses import dataclass, field
from functools import cache

from cellblock.host.session.types import Stopped
from cellblock.host.snapshots.memory import Reading
from cellblock.host.state import core as rules
from cellblock.host.state.actions import Cause, Reminder
from cellblock.host.state.chain import LATELY, PastRequest
from cellblock.host.state.core import Core, Phase
from cellblock.host.state.takeover import MAX_STUMBLES
from cellblock.policy.model import Policy
from cellblock.wire import messages

#: The ways in which a process may go wrong with its next message.
FAULTS = ("never", "fails", "lies", "twice", "hangs", "out of turn")


@dataclass
class Process:
    """A guest, or a copy of one."""

    number: int
    state: tuple[int, ...] = ()
    #: Whether it has been forked. Before that, only the host's end of its channel exists.
    exists: bool = False
    alive: bool = True
    stopped: bool = False
    #: Whether it did something wrong, or had too little time. Its state may then be lost.
    blamed: bool = False
    #: Whether it does nothing any more.
    hangs: bool = False
    #: What it will do wrong with its next message.
    fault: str = ""
    #: The number of the process that forked it.
    maker: int = 0
    #: Messages on their way to it, and from it to the host.
    inbox: deque = field(default_factory=deque)
    outbox: deque = field(default_factory=deque)


@dataclass
class Request:
    """A cell under way; ``does`` is what it asks for at its end, such as an undo."""

    count: int
    message: messages.Execute
    does: tuple = ()
    seconds: float = 0.0
    repeatable: bool = False
    side_effects: bool = False
    sent: bool = False
    began: bool = False
    ending: bool = False


class Budget:
    """A memory budget that allows everything, unless memory is short."""

    def __init__(self):
        self.said = []
        #: Whether memory is short. Then older copies are dropped, and none is made.
        self.is_short = False

    def allows(self, _resident, drop_oldest):
        while self.is_short and drop_oldest():
            pass
        return not self.is_short

    affords = allows

    def took(self, _seconds, _resident):
        pass

    def say(self, reason, _detail):
        self.said.append(reason)

    def notify(self, text):
        self.said.append(text)


@cache
def _snake(name):
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


class Play:
    """One simulated session, from its first guest on."""

    def __init__(self, **settings):
        policy = Policy().replace(**{"undo_depth": 3, "undo_max_bytes": None} | settings)
        self.budget = Budget()
        self.core = Core(policy, self.budget, self)
        self.time, self._serial = 0.0, itertools.count()
        #: Processes that use a device.
        self.device_users = set()
        self._reminders = []
        #: The processes with an open channel, and all that ever existed, by number.
        self.open, self.processes = {}, {}
        #: Numbers of the forks that the gate allows.
        self._allowed = set()
        self.request = None
        self._counts = itertools.count(1)
        #: The cells whose effects the user relies on, and those of each named state.
        self.truth, self.named = [], {}
        #: How cells ended, by number; and how many other callbacks are still to be called.
        self.ended, self.owed = {}, 0
        #: Copies for other sessions, and the outcome told for each lost guest.
        self.forks, self.outcomes = [], []
        #: The copies that could take over from the guest that was lost last.
        self._holders = []
        #: Whether nothing happened so far that may cost a state.
        self.is_sheltered = True
        self._busy = False
        self.start()

    # --- the world ------------------------------------------------------------------------------

    def now(self):
        return self.time

    def resident(self, _process):
        return 1 << 20

    def reading(self, _process, resident, given):
        return Reading(resident, given + 1)

    def uses_device(self, process):
        return process in self.device_users

    def is_idle(self):
        return self.request is None

    def runs_beside(self):
        return False

    def running(self):
        return self.request.message if self.request is not None and self.request.began else None

    def others_are_settled(self):
        return True

    # --- events and actions ---------------------------------------------------------------------

    def play(self, event, *arguments, **named):
        """Tell the core an event, carry out its actions, and check the invariants."""
        result = event(*arguments, **named)
        if not self._busy:
            self._busy = True
            while self.core.actions:
                action = self.core.actions.popleft()
                getattr(self, f"_do_{_snake(type(action).__name__)}")(action)
            self._busy = False
            self.check()
        return result

    def _do_tell(self, action):
        action.then(*action.with_)

    def _do_remind(self, action):
        heapq.heappush(self._reminders, (self.time + action.seconds, next(self._serial), action.of))

    def _do_fork(self, action):
        made = Process(action.number, maker=action.maker)
        maker = self.open.get(action.maker)
        self.open[action.number] = self.processes[action.number] = made
        if maker is None or not maker.alive:
            made.alive = False
        else:
            maker.inbox.append(("fork", action.number))
            self._allowed.add(action.number)

    def _do_stop(self, action):
        self.open[action.number].stopped = True

    def _do_continue(self, action):
        self.open[action.number].stopped = False

    def _do_wake(self, action):
        assert action.number == self.core.guest
        self.open[action.number].stopped = False

    def _do_drop(self, action):
        dropped = self.open.pop(action.number)
        others = (self.open.get(one.copy.number) for one in self.core.chain if one.kept)
        if any(other is not None and other.state == dropped.state for other in others):
            dropped.blamed = True  # another has the same state
        self._end(dropped)

    def _do_protect(self, action):
        assert action.number in self.open

    def _do_end_unknown(self, _action):
        self._allowed &= self.open.keys()
        for process in self.processes.values():
            if process.number not in self.open and process not in self.forks:
                process.alive = False

    _do_end_all = _do_end_unknown

    def _do_take_over(self, action):
        if action.number in self.open and self.core.restores:  # else it was ended meanwhile
            twin = self.core.takeover.snapshot
            assert twin.copy.stands or twin not in self.core.chain
            self.open[action.number].inbox.append(("take over", action.plan is not None))

    def _do_replay(self, action):
        if action.number in self.open:
            message = action.request.message
            self.open[action.number].inbox.append(("replay", message.id, message.execution_count))

    def _do_unwatch(self, _action):
        self._holders = [
            self.open[one.copy.number]
            for one in self.core.chain
            if one.copy.number in self.open and one.copy.stands
        ]

    def _do_end_guest(self, action):
        if action.number is not None:
            self._end(self.open.pop(action.number))

    def _do_serve(self, action):
        self.play(self.core.served, action.number)

    def _do_restored(self, action):
        assert action.number == self.core.guest
        self._account(action.outcome, self.open[action.number].state)
        self.on_loss(action.outcome)
        self._send()

    def _do_start_anew(self, action):
        self._account(action.stopped, None)
        self.play(self.core.end)
        self.start()
        self.on_loss(action.stopped)

    def _end(self, process):
        process.alive = False
        process.inbox.clear()
        process.outbox.clear()
        if process.exists:
            for other in self.processes.values():  # prctl(2), PR_SET_PDEATHSIG
                if other.maker == process.number:
                    other.stopped = False

    # --- invariants -----------------------------------------------------------------------------

    def check(self):
        """Assert the invariants, which hold after each event."""
        core = self.core
        snapshots = core.chain.all()
        copies = {one.copy.number for one in snapshots}
        guest = {core.guest} - {None}
        # At most one process serves, none both serves and is a copy, and none is forgotten.
        assert len(copies) == len(snapshots)
        assert not copies & guest
        assert set(self.open) == copies | guest
        assert (core.guest is None) == (core.phase is Phase.absent)
        assert (core.takeover is not None) == (core.phase is Phase.restoring)
        assert len({id(one) for one in snapshots}) == len(snapshots)
        assert self.guest is None or not self.guest.stopped
        looks = Reminder(Cause.look) in core._soon
        for one in snapshots:
            assert not one.lost
            if one.kept:  # it stands still, has something to do, or will be looked at
                assert one.copy.stopped or one.copy.forks or looks
        # What waits can still come.
        assert all(waits in snapshots and not waits.kept for waits, _ in core._waiting)
        if core.serves:
            assert all(one.own in core.chain and not one.own.kept for one in core._promises)
        # All is bounded.
        assert sum(not one.kept for one in core.chain) <= 4
        assert len(core.chain) <= core.policy.undo_depth + 1 + 4
        assert len(core.chain.named()) <= core.policy.max_branches + 1
        assert core.chain.named().keys() <= self.named.keys()
        assert len(core._promises) <= 1
        most = (
            core.policy.undo_depth + 1 + 4
        )  # each snapshot may have had a twin that did not stand
        assert core._unknown <= rules._MAX_UNKNOWN + most

    def _account(self, outcome, state):
        """Compare the state that serves with what the user was told; None is no state."""
        self.outcomes.append(outcome)
        missed = set(self.truth) if outcome.restored is None else set(outcome.restored.missed)
        if outcome.restored is not None and outcome.why == "undo" and outcome.undone:
            assert self.truth[-len(outcome.undone) :] == list(outcome.undone)
            del self.truth[-len(outcome.undone) :]
        elif outcome.restored is not None and outcome.why == "undo":
            self.truth = list(self.named[outcome.detail])
        expected = [count for count in self.truth if count not in missed]
        assert list(state or ()) == expected, (state, self.truth, outcome)
        lost = set(self.truth) - set(expected)
        if lost:
            assert not self.is_sheltered, (lost, outcome)
        if lost and outcome.why not in {"undo", "narrowed"} and not self._is_given_up():
            for holder in self._holders:
                assert holder.blamed or list(holder.state) != self.truth, (holder, outcome)
        self.truth = expected

    def _is_given_up(self):
        """Return whether guests were lost so often that no state is restored any more."""
        return self.core._losses > rules.MAX_LOSSES

    def is_held(self):
        """Return whether the guest, or the copy taking over, may be killed without a loss."""
        if self.core.restores:
            snapshot = self.core.takeover.snapshot
            twin = self.open.get(snapshot.copy.number)
            told = snapshot.kept and snapshot in self.core.chain
            # Once it serves it is the only one that has what it ran again, until it has forked.
            good = told and twin is not None and self._is_good(twin) and not self.guest.outbox
            return good and len(self.core.takeover._stumbled) < MAX_STUMBLES - 1
        if not self.core.serves or self._is_given_up():
            return False
        for one in reversed(self.core.chain):
            copy = self.open[one.copy.number]
            if one.kept and self._is_good(copy):
                if list(copy.state) != self.truth[: len(copy.state)]:
                    return False
                after = one.after
                newer = self.core.chain[self.core.chain.index(one) + 1 :]
                after = after + [request for other in newer for request in other.after]
                once = [request for request in after if not request.repeatable]
                return all(request.short and self.time - request.ended < LATELY for request in once)
        return False

    @staticmethod
    def _is_good(process):
        return process.alive and not (process.blamed or process.fault or process.hangs)

    # --- the session ----------------------------------------------------------------------------

    def start(self):
        """Let the zygote fork a guest."""
        guest = Process(self.core.guest_starts(), exists=True)
        self.open[guest.number] = self.processes[guest.number] = guest
        guest.outbox.append(("ready",))

    @property
    def guest(self):
        """The process that starts, serves or takes over, or None."""
        return self.open.get(self.core.guest)

    def run(self, *does, seconds=0.0, repeatable=False, side_effects=False):
        """Begin a cell, which at its end asks for ``does``."""
        assert self.request is None
        count = next(self._counts)
        message = messages.Execute(
            id=count, source="x = 1", raw="x = 1", execution_count=count, store_history=True
        )
        request = Request(count, message, does, seconds, repeatable, side_effects)
        self.play(self.core.cell_began)
        self.request = request
        self._send()

    def _send(self):
        request = self.request
        if request is None or not self.core.serves or request.sent:
            return
        request.sent = True
        if request.does == ("narrow",):  # the guest hears nothing of that
            self._narrow(request)
        else:
            self.guest.inbox.append(("execute", request))

    def _done(self, request):
        request.ending = True
        if request.does:
            event, *arguments = request.does
            getattr(self, f"_end_{event}")(request, *arguments)
        else:
            self._keep(request)

    def _keep(self, request, *, refused=False):
        """Answer a request that has run, as ``Requests._record_and_answer`` does."""
        if self.request is not request:
            return

        def answer():
            if self.request is not request:
                return  # it was ended with its guest
            assert request.count not in self.ended
            self.ended[request.count] = "refused" if refused else "ok"
            self.truth.append(request.count)
            self.request = None
            if not (self.core.restores or self.is_faulty()):
                self._assert_safe(request)

        self.play(
            self.core.cell_ended,
            PastRequest(
                request.message,
                request.seconds,
                request.repeatable and not request.does,
                ended=self.time,
                side_effects=request.side_effects,
            ),
            answer,
        )

    def is_faulty(self):
        """Return whether anything went wrong so far that may have prevented a copy."""
        return not self.is_sheltered

    def _assert_safe(self, request):
        """Assert that the request just answered is in a copy's state, or can be replayed."""
        once = []
        for one in reversed(self.core.chain):
            once += [past.message for past in one.after if not past.repeatable]
            assert all(past.short or past.repeatable for past in one.after), (request, one)
            if one.kept:
                kept = request.count in self.open[one.copy.number].state
                assert kept or request.repeatable or request.message in once
                return

    def on_loss(self, outcome):
        """End the request that was lost with its guest; send it again if it never began."""
        request = self.request
        if request is None:
            return
        if outcome.why == "undo" or request.does == ("narrow",):
            self.ended[request.count] = "done"
            self.request = None
        elif request.began:
            assert request.count not in self.ended
            self.ended[request.count] = "stopped"
            self.request = None
        else:
            request.sent = False
            self._send()

    def _end_undo(self, request, steps):
        known = self.core.steps()
        if 0 < steps <= len(known):
            self.play(self.core.undo, known[steps - 1])
        else:
            self._keep(request, refused=True)

    def _waits(self, then):
        """Return ``then``, wrapped so that a second call fails and a missing one is counted."""
        self.owed += 1
        told = []

        def once(*arguments):
            assert not told
            told.append(1)
            self.owed -= 1
            then(*arguments)

        return once

    def _end_checkpoint(self, request, name):
        state = [*self.truth, request.count]

        def then(why):
            if not why:
                assert self.request is request  # a cell that was stopped keeps nothing
                self.named[name] = state
            self._keep(request, refused=bool(why))

        if name not in self.core.chain.named():
            self.named.pop(name, None)
        self.play(self.core.checkpoint, name, self._waits(then), request.count)

    def _end_restore(self, request, name):
        self.play(self.core.restore, name, lambda why: self._keep(request, refused=bool(why)))

    def _end_branch(self, request, name, start):
        left, state = self.core.branch, [*self.truth, request.count]
        before = self.named.get(left)
        self.named[left] = state

        def then(why):
            if why and self.core.chain.named().get(left) is None:
                self.named[left] = before or state
            self._keep(request, refused=bool(why))

        self.play(self.core.go_to_branch, name, start, then)

    def _narrow(self, request):
        guest = self.core.guest

        def then(copy):
            if self.request is not request or self.core.guest != guest:
                return
            if copy is None:
                self.ended[request.count], self.request = "refused", None
            else:
                self.play(self.core.relock, messages.Plan())

        self.play(self.core.copy_guest, self._waits(then))

    def ask_for_forks(self, count):
        """Fork copies for other sessions, which take them."""

        def then(copies):
            for copy in filter(lambda copy: copy.kept, copies):
                self.core.give_away(copy)
                self.forks.append(self.open.pop(copy.copy.number))

        self.play(self.core.fork, count, self._waits(then))

    # --- steps of the processes and of time -----------------------------------------------------

    def acts(self, process):
        """Let a process handle its next message; return whether it did anything."""
        if not process.inbox or process.stopped or process.hangs or not process.exists:
            return False
        fault, process.fault = process.fault, ""
        if fault:
            process.blamed = True
            self.is_sheltered = False
        told, *arguments = process.inbox.popleft()
        if fault == "hangs":
            process.hangs = True
        elif fault == "out of turn":
            process.outbox.append(("said", messages.Stream(name="stdout", text="")))
        else:
            getattr(self, f"_act_{told.replace(' ', '_')}")(process, fault, *arguments)
        return True

    def _act_fork(self, process, fault, number):
        made = self.open.get(number)
        is_copy = process.number != self.core.guest or self.core.restores
        if fault in {"never", "fails"}:
            if made is not None:
                made.alive = made.alive and fault == "never"
                made.blamed = True
            if fault == "fails":
                process.outbox.append(("failed", number, errno.ENOMEM))
            return
        if made is None and number not in self._allowed:  # the gate does not let it through
            process.outbox.append(("failed", number, errno.EPERM))
            return
        if made is None:  # the host gave up: the process is there, and unknown
            made = self.processes[number] = Process(number, maker=process.number)
            made.state, made.exists = process.state, True
            return
        made.state, made.exists, made.maker = process.state, True, process.number
        made.blamed |= fault in {"lies", "twice"}
        ready = ("stood", number + (fault == "lies"))
        made.outbox.extend([ready] * (2 if fault == "twice" else 1))
        if is_copy:
            process.outbox.append(("parted", number))

    def _act_execute(self, process, fault, request):
        process.outbox.append(("began", request))
        if fault == "lies":
            process.outbox.append(("said", messages.Resumed()))
            return
        process.state += (request.count,)
        process.outbox.append(("done", request))

    def _act_take_over(self, process, fault, with_locks):
        if with_locks and fault != "lies":
            process.outbox.append(("locked",))
        if fault != "never":
            process.outbox.append(("said", messages.Resumed()))

    def _act_replay(self, process, fault, number, count):
        error = None
        if fault in {"fails", "lies"}:
            error = messages.Error(ename="E", evalue="", traceback=[])
        process.state += (count,)
        if fault != "never":
            process.outbox.append(("said", messages.Done(id=number, error=error)))

    def says(self, process):
        """Let the host receive a process's next message, or its end; return False if none."""
        if process.number not in self.open:
            return False
        if process.outbox:
            said, *arguments = process.outbox.popleft()
            getattr(self, f"_hear_{said}")(process, *arguments)
            return True
        if process.alive:
            return False
        if self._is_guests(process):
            self.play(self.core.guest_lost, Stopped("crash"))
        else:
            self.play(self.core.copy_ended, process.number)
        return True

    def _is_guests(self, process):
        return process.number == self.core.guest and not self.core.restores

    def _hear_ready(self, process):
        if self._is_guests(process):
            self.play(self.core.guest_is_ready, idle=self.request is None)
            self._send()

    def _hear_began(self, process, request):
        assert self._is_guests(process)
        request.began = True

    def _hear_done(self, process, request):
        assert self._is_guests(process)
        self.time += request.seconds
        self._done(request)

    def _hear_stood(self, process, number):
        if self._is_guests(process):
            self.play(self.core.guest_lost, Stopped("violation"))
        elif number != process.number:
            self.play(self.core.fork_parted, process.number, number)
        elif (held := self.core._held_by(number)) is not None and held.copy.stands:
            self.play(self.core.copy_ended, number, killed=False)  # its process is known by now
        else:
            self.play(self.core.fork_stood, number, 0)

    def _hear_parted(self, process, number):
        if self._is_guests(process):
            self.play(self.core.guest_lost, Stopped("violation"))
        else:
            self.play(self.core.fork_parted, process.number, number)

    def _hear_failed(self, process, number, error):
        self.play(self.core.fork_failed, process.number, number, error)

    def _hear_locked(self, _process):
        self.play(self.core.locks_are_on)

    def _hear_said(self, process, message):
        if self._is_guests(process):
            self.play(self.core.guest_lost, Stopped("violation"))
        elif process.number == self.core.guest:
            self.play(self.core.takeover_said, message)
        else:
            self.play(self.core.copy_ended, process.number, killed=False)

    def kill(self, process):
        """Kill a process. The host will be told."""
        process.alive, process.blamed = False, True
        process.inbox.clear()
        self._end_children(process)

    def _end_children(self, process):
        for other in self.processes.values():
            if other.maker == process.number and not other.exists:
                other.alive = False  # nobody holds the other end of its channel any more
            elif other.maker == process.number:
                other.stopped = False

    def kill_zygote(self):
        """Kill the zygote, with which all processes end."""
        for process in self.open.values():
            process.alive, process.blamed = False, True
        self.is_sheltered = False
        self.play(self.core.guest_lost, Stopped("crash"), with_copies=True)

    def pass_time(self, seconds):
        """Let time pass, with the reminders that are due."""
        end = self.time + seconds
        while self._reminders and self._reminders[0][0] <= end:
            self.time, _, reminder = heapq.heappop(self._reminders)
            self._remind(reminder)
        self.time = end

    def next_reminder(self):
        """Let time pass until the next reminder; return False if there is none."""
        if not self._reminders:
            return False
        at, _, reminder = heapq.heappop(self._reminders)
        self.time = max(self.time, at)
        self._remind(reminder)
        return True

    def _remind(self, reminder):
        late = self.processes.get(reminder.number)
        if reminder.cause is Cause.too_long and late is self.guest and self.core.restores:
            late.blamed = True
            self.is_sheltered = False
        if reminder.cause is Cause.late and late is not None:
            held = self.core._held_by(reminder.number)
            if held is not None and not held.kept:
                late.blamed = True
                self.is_sheltered = False
        if reminder.cause is Cause.look:
            self.core.reminded(reminder)
            self.play(self.core.stop_again)
            self.play(self.core.copies_read, {})
        else:
            self.play(self.core.reminded, reminder)

    def settle(self):
        """Let everything happen that is under way, until nothing is."""
        for _ in range(2_000):
            found = [one for one in self.open.values() if self.acts(one)]
            found += [one for one in tuple(self.open.values()) if self.says(one)]
            if not found and not self.next_reminder():
                return
        raise AssertionError("it does not come to rest")
