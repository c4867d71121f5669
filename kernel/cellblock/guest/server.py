"""A guest's main loop: one request at a time, in order."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import tempfile
import threading
from _thread import start_new_thread
from collections import deque
from functools import partial
from importlib.machinery import FileFinder, PathFinder
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import StdinNotImplementedError
from msgspec import structs

from cellblock.guest import launch
from cellblock.guest.channel import Channel, HostGone, take_input
from cellblock.guest.confine import landlock
from cellblock.guest.host_services import Calls
from cellblock.guest.images import smaller
from cellblock.guest.inspection import complete, get_variable, inspect, list_variables
from cellblock.guest.kernel import GuestApp, GuestKernel
from cellblock.guest.loop import ChannelReaders, Driver
from cellblock.guest.output import current_cell, current_subshell, encodable
from cellblock.guest.reserve import Reserve
from cellblock.guest.runner import Runner
from cellblock.guest.snapshots import Snapshots
from cellblock.guest.violations import run_exempt
from cellblock.wire import arrays, messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cellblock.guest.output import Outlet
    from cellblock.guest.runner import RulesInForce
    from cellblock.guest.shell import GuestShell

    #: Answers a message on the loop of its thread.
    Answer = Callable[[Any, Driver], None]


# --- subshells (JEP 91): threads that take cells and comm messages while the main one runs a cell
#
# The host says which there are; a snapshot has none, so it says so again to one that takes over. A
# thread has nothing but its event loop, in which the tasks of its cells go on between them. Nobody
# forks while one of them runs a request (``host.session.requests``).

#: Seconds that an idle one has to end.
_IDLE_TIMEOUT: Final = 1.0


class Subshell:
    """One thread, and what has arrived for it."""

    def __init__(
        self, number: int, calls: Calls, answer: Answer, driver: Driver | None = None
    ) -> None:
        self.number = number
        self._calls, self._answer = calls, answer
        self._messages = deque[Any]()
        self._arrived = threading.Event()
        self.on_message: Callable[[], None] = lambda: None
        #: Made in the thread, or what a thread before a fork had.
        self.driver = driver
        name = f"cellblock-subshell-{number}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError, MemoryError where there is no room for one."""
        run_exempt(self._thread.start)

    def put(self, message: messages.ToGuest | None) -> None:
        """Hand a message over; None ends the thread when it has answered those before."""
        self._messages.append(message)
        self._arrived.set()
        self.on_message()

    def join(self) -> None:
        """Wait until an idle thread has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_IDLE_TIMEOUT)

    def waiting(self) -> bool:
        """Whether a message is here."""
        return bool(self._messages)

    def recv(self) -> Any:
        """Return the next message, waiting for it; read for others meanwhile, if nobody does."""
        self._calls.wait_beside_main(self.waiting, self._arrived)
        return self._messages.popleft()

    def _run(self) -> None:
        current_subshell.set(self.number)
        driver = self.driver or Driver(self, self._calls.readers)
        self.driver = driver.begin(self)
        while self._answer_next(driver):
            pass

    def _answer_next(self, driver: Driver) -> bool:
        """Answer the next message; return whether there may be another."""
        try:
            message = driver.next_message()
            if message is not None:
                self._answer(message, driver)
        except HostGone:
            return False
        except BaseException:  # of a task; a cell's is told by its end
            return True
        if message is None:
            driver.loop.close()
        return message is not None


class Subshells:
    """All of one guest, by number; ``keep`` gets what the main thread is to answer."""

    def __init__(
        self, calls: Calls, answer: Answer, keep: Callable[[messages.ToGuest], None]
    ) -> None:
        self._calls, self._answer, self._keep = calls, answer, keep
        self._all: dict[int, Subshell] = {}
        #: Event loops of those that a copy had before it was one.
        self._drivers: dict[int, Driver] = {}
        self._changing = threading.Lock()

    def of_message(self, message: messages.ToGuest) -> Callable[[], None] | None:
        """Return what hands a message to its subshell; None where the main thread is to have it."""
        if isinstance(message, messages.Subshells):
            return partial(self._change, message.numbers)
        if isinstance(message, messages.OfSubshell) and message.subshell:
            return partial(self._deliver, message)
        return None

    def _deliver(self, message: Any) -> None:
        subshell = self._all.get(message.subshell)
        (self._keep if subshell is None else subshell.put)(message)

    def _change(self, numbers: tuple[int, ...]) -> None:
        """Have exactly these. The main thread takes the messages of one that can't be had."""
        with self._changing:
            for number in self._all.keys() - set(numbers):
                ended = self._all.pop(number)
                ended.put(None)
                ended.join()
            for number in numbers:
                if number not in self._all:
                    driver = self._drivers.pop(number, None)
                    made = Subshell(number, self._calls, self._answer, driver)
                    with contextlib.suppress(RuntimeError, MemoryError):
                        made.start()
                        self._all[number] = made

    def forget(self) -> int:
        """Forget, in a copy, all threads; return how many tasks are lost with them."""
        found = {number: one.driver for number, one in self._all.items()}
        self._drivers |= {number: one for number, one in found.items() if one is not None}
        self._all.clear()
        self._changing = threading.Lock()
        return sum(driver.resume() for driver in self._drivers.values())


# --- the main thread ------------------------------------------------------------------------------

#: Seconds without a request after a fork, before the way of one is rehearsed.
REST = 0.005


class ModuleListing:
    """Python's own list of the modules in the working folder, to be read anew after a pause.

    The user may have added one meanwhile. The host has the layer over that folder forget what it
    knew (``Refresh``), which leaves the folder's time as it was, and by that Python would judge.
    """

    def __init__(self) -> None:
        self._ended = 0.0

    def begin_cell(self) -> None:
        """Have the list forgotten where the last cell ended a while ago."""
        if monotonic() - self._ended < messages.PAUSE:
            return
        with contextlib.suppress(OSError):  # the folder is gone
            if isinstance(finder := sys.path_importer_cache.get(os.getcwd()), FileFinder):
                finder.invalidate_caches()

    def end_cell(self) -> None:
        """Note when a cell ended."""
        self._ended = monotonic()


class Server:
    """Answers the host until it hangs up. ``request`` is what the zygote prepared for."""

    def __init__(
        self,
        shell: GuestShell,
        current: RulesInForce,
        channel: Channel,
        out: Outlet,
        request: messages.Prepare,
        *,
        zygote: int,
    ) -> None:
        #: Where layers are, the user may change what lies below them between cells.
        self._listing = ModuleListing() if request.plan.layers else None
        self._shell, self._rules, self._channel, self.out = shell, current.rules, channel, out
        self._current = current
        self._driver = Driver(channel, ChannelReaders(channel))
        self.calls = Calls(
            channel, self._driver.readers, request.tool_max_in_flight, self._may_have
        )
        self._subshells = Subshells(self.calls, self._answer_beside, channel.keep)
        channel.on_subshell = self._subshells.of_message
        plan, rules = request.plan, self._rules
        raw = bool(rules.raw_modules) or not rules.language
        self._snapshots = Snapshots(
            channel,
            out,
            self._driver,
            zygote=zygote,
            # Where no library is let in, nobody has either.
            openmp=raw,
            connects=raw and plan.has_sockets,
            serves=plan.loopback,
        )
        self._reserve = Reserve(plan.limits.memory_max_bytes)
        self._driver.deliver = self._deliver_beside
        self._runner = Runner(shell, current, self._driver, out, plan, self._reserve)
        shell.refill = self._reserve.refill
        self._request: messages.Execute | None = None
        #: A request has begun that an interrupt is for.
        self._begun = False
        #: One may have come while none had: before this can hear of one, nobody knows.
        self._interrupted = True
        self._handler = self._on_interrupt  # one object, to be told from a cell's
        self._kernel = GuestKernel(shell, out, lambda: self._request is not None)
        # Where ipywidgets looks for what it needs to know.
        shell.kernel = self._kernel
        if GuestApp.initialized():
            app: Any = GuestApp.instance()
            app.kernel = self._kernel

    def serve_forever(self) -> None:
        """Serve; returns never, raises ``HostGone`` when the host hangs up."""
        signal.signal(signal.SIGINT, self._handler)
        # Ignored, as it is by default, it would cut no wait short; the host sends it for that.
        signal.signal(signal.SIGURG, self._on_wake)
        while True:
            self._handle(self._next())

    def _on_wake(self, _number: int, _frame: FrameType | None) -> None:
        """Have read what arrived while a cell runs: a first subshell may be among it.

        In a thread, as the cell may be anywhere; without the locks of ``threading``.
        """
        if self._runner.running:
            with contextlib.suppress(RuntimeError, MemoryError):
                run_exempt(start_new_thread, self._read_now, ())

    def _read_now(self) -> None:
        with contextlib.suppress(HostGone, OSError, RuntimeError):
            self.calls.read_now()

    def _next(self) -> messages.ToGuest:
        message = None
        while message is None:
            try:
                message = self._driver.next_message()
            except HostGone:
                raise
            except MemoryError:
                # Trying for ever would answer nobody; the host goes on with a copy.
                if not self._reserve.give_back():
                    os._exit(1)
            except BaseException:  # a background task's end is not the loop's
                message = None
        return message

    def _handle(self, message: messages.ToGuest) -> None:
        # Of a subshell that has no thread, if of any. An ``Input`` is an answer whose question was
        # interrupted.
        current_subshell.set(getattr(message, "subshell", 0))
        match message:
            case messages.Execute():
                self._execute(message)
            case messages.Launch():
                run_exempt(launch.begin, message, self._shell, self._rules)
            case messages.Query():
                self._answer_query(message)
            case messages.SetVariables():
                self._set_variables(message)
            case messages.CommIn():
                self._comm(message)
            case messages.Snapshot():
                resume = self._snapshots.take(message)
                if resume is not None:
                    self._take_over(resume)
                elif not self._channel.is_readable(REST):
                    self._runner.rehearse()
            case messages.Preload(modules=modules):
                self.out.send(messages.Preloaded(same=_import_ahead(modules)))

    def _answer_query(self, message: Any) -> None:
        """Answer what runs no cell, or with nothing when that is interrupted."""
        number, shell, query = message.id, self._shell, self._runner.query
        answer: Any
        match message:
            case messages.Complete():
                nothing = messages.Completed(id=number, matches=[], start=0, end=0)
                answer = query(lambda: complete(shell, self._rules, message), nothing)
            case messages.Inspect():
                unknown = messages.Inspected(id=number, data={})
                answer = query(lambda: inspect(shell, self._rules, message), unknown)
            case messages.ListVariables():
                empty = messages.Variables(id=number)
                answer = query(lambda: list_variables(shell, number), empty)
            case messages.GetVariable():
                late = messages.VariableValue(id=number, why="it took too long")
                answer = query(lambda: get_variable(shell, message), late)
            case messages.ShrinkImage(image=image, most=most):
                none = messages.ShrunkImage(id=number)
                answer = query(lambda: structs.replace(none, image=smaller(image, most)), none)
        self.out.send(answer)

    def _take_over(self, resume: messages.Resume) -> None:
        """Go on as the guest; a narrower policy's locks come last, and before any request."""
        self._reserve.give_back()
        self._interrupted = True  # as for a new one
        self.calls.reset_after_fork()
        # Have ``In`` number the cells that this copy has not seen, too.
        history: Any = self._shell.history_manager
        for count, text in resume.inputs:
            history.store_inputs(count, text)
        lost = self._subshells.forget()
        resumed = self._snapshots.take_over(resume)
        resumed = structs.replace(resumed, tasks=resumed.tasks + lost)
        if (place := resume.place) is not None:
            os.environ.update(place.environment, IPYTHONDIR=place.ipython_dir)
            tempfile.tempdir = place.environment["TMPDIR"]
            run_exempt(lambda: enter_nearest(place.cwd))
        if resume.plan is not None:
            self._runner.plan = resume.plan
            landlock.request_ruleset()
            # By its name: what is denied now was mounted over, and who is in it stays below that.
            with contextlib.suppress(FileNotFoundError):  # it was removed
                run_exempt(lambda: enter_nearest(os.getcwd()))
        self._channel.send(structs.replace(resumed, files=self._snapshots.have_files(resume)))

    def _may_have(self, library: str) -> bool:
        """Return whether cells may have a library's objects: those are as it made them."""
        rules = self._current.rules
        return not rules.language or rules.is_raw(library)

    def _answer_beside(self, message: Any, driver: Driver) -> None:
        """Answer a cell or a comm message in its subshell's thread."""
        self._channel.send(messages.Began(id=message.id))
        runner = Runner(
            self._shell, self._current, driver, self.out, self._runner.plan, Reserve(None)
        )
        done = messages.Done(id=message.id)
        try:
            if isinstance(message, messages.Execute):
                done = runner.run(message)
            else:
                with driver.entered():
                    runner.run_handler(lambda: self._kernel.deliver(message))
        except BaseException as exc:  # between two pieces of user code
            error = messages.Error(ename=type(exc).__name__, evalue="", traceback=[])
            done = structs.replace(done, error=error)
        try:
            self.out.end(done)
        except MemoryError:
            error = messages.Error(ename="MemoryError", evalue="", traceback=[])
            self._channel.send(messages.Done(id=message.id, error=error))

    def _execute(self, message: messages.Execute) -> None:
        self._request, self._kernel.request = message, message.id
        if self._listing is not None:
            self._listing.begin_cell()
        self._kernel.cell = message.execution_count if message.store_history else 0
        self.out.begin(self._kernel.cell)
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
            self._snapshots.ran_again()
            if self._listing is not None:
                self._listing.end_cell()
            if self._channel.is_parents:
                self.out.flush()
                os._exit(1)  # a fork that the cell left by an error: its parent goes on
        # No cell runs now. Once the host has read the end it may send the next cell, and would take
        # what a task or thread of this one prints before that begins for the next one's, if it had
        # no number. So it has one from before the end on: threads print meanwhile.
        self.out.begin(0)
        self.out.end(done)
        self.out.cell_ended()

    def _set_variables(self, message: messages.SetVariables) -> None:
        late = messages.Error(ename="Interrupted", evalue="it took too long", traceback=[])

        def set_it() -> messages.Error | None:
            try:
                made = {name: arrays.decode(value) for name, value in message.values.items()}
                self._shell.user_ns.update(made)
            except Exception as exc:  # a library that is not there, for one
                why = encodable(str(exc))
                return messages.Error(ename=type(exc).__name__, evalue=why, traceback=[])
            return None

        self._begin(message.id)
        with self._driver.entered():
            error = self._runner.query(set_it, late)
        self._end()
        self._snapshots.ran_again()
        self.out.send(messages.Done(id=message.id, error=error))

    def _comm(self, message: messages.CommIn) -> None:
        self._kernel.request, self._kernel.cell = message.id, 0
        self.out.begin(0)
        self._begin(message.id)
        self._current.grant(message.granted)
        with self._driver.entered():
            self._runner.run_handler(lambda: self._kernel.deliver(message))
        self._current.grant(None)
        self._end()
        self._snapshots.ran_again()
        self.out.send(messages.Done(id=message.id))

    def _deliver_beside(self) -> None:
        """Hand over comm messages that came while a cell awaits, which may be what it awaits."""
        kernel = self._kernel
        while (message := self._channel.take_comm()) is not None:
            before = kernel.request, kernel.cell
            kernel.request, kernel.cell = message.id, 0
            # In the context of this call of the loop's, and no other.
            current_subshell.set(message.subshell)
            current_cell.set(0)
            self._channel.send(messages.Began(id=message.id))
            try:
                self._runner.run_handler(partial(kernel.deliver, message))
            finally:
                kernel.request, kernel.cell = before
                self.out.send(messages.Done(id=message.id))

    def _begin(self, number: int) -> None:
        """Direct interrupts to this request, and tell the host whether one came before."""
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
        if self._channel.defer_interrupt() or self._driver.interrupt():
            return
        raise KeyboardInterrupt

    @property
    def runs_cell(self) -> bool:
        """Whether a cell of the main shell is under way, and no handler."""
        return self._request is not None and not current_subshell.get()

    def ask(self, prompt: object = "", *, password: bool = False) -> str:
        """``input()`` and ``getpass()`` for cells."""
        request = self._request
        if current_subshell.get():
            request = None
        elif threading.current_thread() is not threading.main_thread():
            raise RuntimeError("input() works in the main thread only")
        if request is None or not request.allow_stdin:
            # As ipykernel says it, which programs compare.
            name = "getpass" if password else "raw_input"
            raise StdinNotImplementedError(
                f"{name} was called, but this frontend does not support input requests."
            )
        asked = messages.InputRequest(id=request.id, prompt=str(prompt), password=password)
        try:
            return take_input(self._channel, self.out.marked(asked))
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Interrupted by user") from None


#: What matplotlib reads of the folder that it is imported in.
_SETTINGS_FILE: Final = "matplotlibrc"


def enter_nearest(folder: str) -> str:
    """Enter a folder, or the nearest one above it that can be entered; return which.

    Cells may have removed the folder where they write, or have changed its mode.
    """
    while folder != "/":
        with contextlib.suppress(OSError):
            os.chdir(folder)
            return folder
        folder = os.path.dirname(folder)
    os.chdir(folder)
    return folder


def _import_ahead(modules: tuple[str, ...]) -> bool:
    """Import these modules; return whether a cell's import would have had the same.

    Cells may look for modules beside the notebook first. This does not, so that nothing there is
    run; where one lies there of the name of anything imported, theirs would have been another.
    Nor does it read settings there, which matplotlib evaluates in part.
    """
    if os.path.lexists(_SETTINGS_FILE):
        return False
    known, places = set(sys.modules), sys.path[:]
    sys.path[:] = filter(None, places)
    try:
        for name in modules:
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)
    except BaseException:  # the cell that imports it is to see that
        return False
    finally:
        sys.path[:] = places
    beside = [os.getcwd()] if "" in places else []
    found = {name.partition(".")[0] for name in set(sys.modules) - known}
    specs = [PathFinder.find_spec(name, beside) for name in found]
    return all(spec is None or spec.loader is None for spec in specs)


def reader(find: Callable[[], Server], *, password: bool) -> Any:
    """Return a stand-in for ``input`` or ``getpass`` that finds its server when called."""

    def ask(prompt: object = "Password: " if password else "", stream: object = None) -> str:
        del stream
        return find().ask(prompt, password=password)

    return ask
