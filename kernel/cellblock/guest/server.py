"""A guest's main loop: one request at a time, in order."""

from __future__ import annotations

import mmap
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest import comms, native_pools
from cellblock.guest.channel import Channel, HostGone, take_input
from cellblock.guest.completion import complete, inspect
from cellblock.guest.confine import landlock
from cellblock.guest.loop import Driver
from cellblock.guest.runner import Runner
from cellblock.guest.snapshots import Snapshots
from cellblock.guest.tool_calls import Calls
from cellblock.wire import messages

if TYPE_CHECKING:
    from types import FrameType

    from cellblock.guest.network import Network
    from cellblock.guest.output import Out, Outlet
    from cellblock.guest.runner import RulesInForce
    from cellblock.guest.shell import GuestShell


# Memory set aside, so that a cell can make room in a guest that is full.
#
# RLIMIT_DATA counts private writable mappings, touched or not. A few that nobody touches stand
# for memory that cells can't have until a cell has left nothing: one is given back then, for the
# next.

#: Pieces, bytes of each at most, and which part of the limit all of them are at most.
_PIECES: Final = 4
_LARGEST: Final = 8 << 20
_PART: Final = 16
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Reserve:
    """What is set aside of ``limit`` bytes; nothing where there is no limit."""

    def __init__(self, limit: int | None) -> None:
        self._size = min(_LARGEST, (limit or 0) // _PART // _PIECES)
        self._most = _PIECES if self._size else 0
        self._pieces: list[mmap.mmap] = []
        self.settle()

    def settle(self) -> None:
        """Have as many pieces as there is room for besides one; at least one less if there is none.

        It is given back first, so that there is memory for whatever follows.
        """
        self.give()
        try:
            while len(self._pieces) < self._most:
                mmap.mmap(-1, 2 * self._size, flags=_FLAGS).close()
                self._pieces.append(mmap.mmap(-1, self._size, flags=_FLAGS))
        except (OSError, MemoryError):
            return

    def give(self) -> bool:
        """Give a piece back; return whether there was one."""
        if not self._pieces:
            return False
        self._pieces.pop().close()
        return True


#: Seconds without a request after a fork, before the way of one is rehearsed.
REST = 0.005


def _on_wake(_number: int, _frame: FrameType | None) -> None: ...


class Server:
    """Answers the host until it hangs up."""

    def __init__(  # noqa: PLR0913 - what a server is made of
        self,
        shell: GuestShell,
        current: RulesInForce,
        channel: Channel,
        out: Out,
        plan: messages.Plan,
        *,
        outlet: Outlet,
        zygote: int,
        network: Network | None = None,
        tools: int = 0,
    ) -> None:
        self._shell, self._rules, self._channel, self._out = shell, current.rules, channel, out
        self._driver = Driver(channel)
        self.calls = Calls(channel, self._driver.watch, tools)
        raw = bool(self._rules.raw_modules) or not self._rules.language
        self._snapshots = Snapshots(
            channel,
            outlet,
            self._driver,
            zygote,
            native_pools.OpenMP() if raw else None,
            network,
            # Where no library is let in, nobody has a socket.
            connects=raw and (plan.network or plan.relayed),
        )
        self._reserve = Reserve(plan.limits.memory_max_bytes)
        self._current = current
        self._runner = Runner(shell, current, self._driver, out, plan, self._reserve)
        self._request: messages.Execute | None = None
        #: A request has begun that an interrupt is for.
        self._begun = False
        #: One may have come while none had: before this can hear of one, nobody knows.
        self._interrupted = True
        self._handler = self._on_interrupt  # one object, to be told from a cell's
        self._kernel = comms.install(out)
        # Where ipywidgets looks for what it needs to know; IPython's own shell has no kernel.
        vars(shell)["kernel"] = self._kernel

    def forever(self) -> None:
        """Serve; returns never, raises ``HostGone`` when the host hangs up."""
        signal.signal(signal.SIGINT, self._handler)
        # Ignored, as it is by default, it would cut no wait short; the host sends it for that.
        signal.signal(signal.SIGURG, _on_wake)
        while True:
            self.handle(self._next())

    def _next(self) -> messages.ToGuest:
        while True:
            try:
                return self._driver.next_message()
            except HostGone:
                raise
            except MemoryError:
                # Trying for ever would answer nobody; the host goes on with a copy.
                if not self._reserve.give():
                    os._exit(1)
            except BaseException:  # noqa: S112 - a background task's end is not the loop's
                continue

    def handle(self, message: messages.ToGuest) -> None:
        """Act on one message from the host."""
        match message:
            case messages.Execute():
                self._execute(message)
            case messages.Complete():
                nothing = messages.Completed(id=message.id, matches=[], start=0, end=0)
                found = self._runner.query(
                    lambda: complete(self._shell, self._rules, message),
                    nothing,
                )
                self._out.send(found)
            case messages.Inspect():
                unknown = messages.Inspected(id=message.id, data={})
                found = self._runner.query(
                    lambda: inspect(self._shell, self._rules, message),
                    unknown,
                )
                self._out.send(found)
            case messages.CommIn():
                self._comm(message)
            case messages.Snapshot():
                resume = self._snapshots.take(message)
                if resume is not None:
                    self._take_over(resume)
                elif not self._channel.comes(REST):
                    self._runner.rehearse()
            case messages.Input():
                pass  # an answer that came after its question was interrupted

    def _take_over(self, resume: messages.Resume) -> None:
        """Go on as the guest; a narrower policy's locks come last, and before any request."""
        self._reserve.give()
        self._interrupted = True  # as for a new one
        self.calls.renew()
        self._shell_inputs(resume)
        resumed = self._snapshots.go_on(resume)
        if resume.plan is not None:
            self._runner.plan = resume.plan
            landlock.ask()
        self._channel.send(resumed)

    def _shell_inputs(self, resume: messages.Resume) -> None:
        """Have ``In`` number the cells that this copy has not seen, too."""
        for count, text in resume.inputs:
            self._shell.note_input(count, text)

    def _execute(self, message: messages.Execute) -> None:
        self._request, self._kernel.request = message, message.id
        self._begin(message.id)
        try:
            done = self._runner.run(message)
        except (KeyboardInterrupt, MemoryError) as exc:
            # It came between two pieces of user code: the cell ends where it stands.
            error = messages.Error(ename=type(exc).__name__, evalue="", traceback=[])
            done = messages.Done(id=message.id, error=error)
        finally:
            self._request = None
            self._end()
        self._out.end(done)

    def _comm(self, message: messages.CommIn) -> None:
        self._kernel.request = message.id
        self._begin(message.id)
        self._current.grant(message.granted)
        with self._driver.entered():
            self._runner.attempt(lambda: comms.deliver(self._kernel.comm_manager, message))
        self._current.grant(None)
        self._end()
        self._out.send(messages.Done(id=message.id))

    def _begin(self, number: int) -> None:
        """Have interrupts be for this request, and tell the host whether one came before."""
        self._begun = True
        # A cell may have replaced it; the next one must be interruptible again. What came
        # meanwhile was told to the cell's: it may have been one.
        before = signal.signal(signal.SIGINT, self._handler)
        came, self._interrupted = self._interrupted or before is not self._handler, False
        self._channel.send(messages.Began(id=number, interrupted=came))

    def _end(self) -> None:
        self._begun = self._runner.interrupted = False

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not self._begun:
            self._interrupted = True
        if not self._runner.running and not self._driver.in_task():
            # The request was taken, its code does not run yet: it will not start.
            self._runner.interrupted = self._begun
            return
        if self._channel.defer() or self._driver.interrupt():
            return
        raise KeyboardInterrupt

    @property
    def runs_cell(self) -> bool:
        """Whether a cell is under way, and no handler."""
        return self._request is not None

    def ask(self, prompt: object = "", *, password: bool = False) -> str:
        """``input()`` and ``getpass()`` for cells."""
        request = self._request
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("input() works in the main thread only")
        if request is None or not request.allow_stdin:
            raise RuntimeError("input() was called, but this front end does not take input")
        return take_input(
            self._channel,
            messages.InputRequest(id=request.id, prompt=str(prompt), password=password),
        )


def reader(holder: list[Server], *, password: bool) -> Any:
    """Return a stand-in for ``input`` or ``getpass`` that finds its server when called."""

    def ask(prompt: object = "Password: " if password else "", stream: object = None) -> str:
        del stream
        return holder[0].ask(prompt, password=password)

    return ask
