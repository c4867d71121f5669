"""A guest's main loop: it answers the host's requests, one at a time and in order.

``setup`` makes the ``Server`` once the guest is locked, and calls ``serve_forever``. The main
thread takes cells, comm messages, queries, variables and snapshots from the channel:

    waiting ── request ──> begun (``Began``, interrupts are for it) ── ``Done`` ──> waiting
       ├────── query ────> answered by one message ───────────────────────────────> waiting
       └────── Snapshot ─> in the copy: waits in ``Snapshots.take`` for ``Resume``, then takes over

``Subshells`` are threads that take cells and comm messages beside it.
"""

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
# The host says which subshells there are. A snapshot has no threads, so the host says it again to a
# copy that takes over. All that a subshell keeps is its event loop, in which the tasks of its cells
# go on between cells. No snapshot is forked while a subshell runs a request
# (``host.session.requests``).

#: Seconds to wait for the end of an idle subshell's thread.
_IDLE_TIMEOUT: Final = 1.0


class Subshell:
    """A subshell: one thread, and the messages that have arrived for it.

    ``answer`` handles a message in the thread. ``driver`` may be given in a copy: the event loop
    that the subshell had before the fork. Without one the thread makes its own.
    """

    def __init__(
        self, number: int, calls: Calls, answer: Answer, driver: Driver | None = None
    ) -> None:
        self.number = number
        self._calls = calls
        self._answer = answer
        self._messages = deque[Any]()
        self._arrived = threading.Event()
        self.on_message: Callable[[], None] = lambda: None
        #: The subshell's event loop. Made in the thread if it is None.
        self.driver = driver
        name = f"cellblock-subshell-{number}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError, MemoryError if there can't be one more thread."""
        run_exempt(self._thread.start)

    def put(self, message: messages.ToGuest | None) -> None:
        """Queue a message; None ends the thread when it has answered the messages before."""
        self._messages.append(message)
        self._arrived.set()
        self.on_message()

    def join(self) -> None:
        """Wait until the thread has ended, for a second at most: a busy one goes on."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_IDLE_TIMEOUT)

    def waiting(self) -> bool:
        """Return whether a message has arrived."""
        return bool(self._messages)

    def recv(self) -> Any:
        """Wait for the next message and return it.

        Meanwhile, read the channel on behalf of all threads if no other thread does.
        """
        self._calls.wait_beside_main(self.waiting, self._arrived)
        return self._messages.popleft()

    def _run(self) -> None:
        current_subshell.set(self.number)
        driver = self.driver or Driver(self, self._calls.readers)
        self.driver = driver.begin(self)
        while self._answer_next(driver):
            pass

    def _answer_next(self, driver: Driver) -> bool:
        """Answer the next message; return False when the thread must end."""
        try:
            message = driver.next_message()
            if message is not None:
                self._answer(message, driver)
        except HostGone:
            return False
        except BaseException:  # raised by a task: a cell's exception is in its ``Done``
            return True
        if message is None:
            driver.loop.close()
        return message is not None


class Subshells:
    """The subshells of a guest, by number.

    ``answer`` handles a message in a subshell's thread. ``keep`` queues one for the main thread.
    """

    def __init__(
        self, calls: Calls, answer: Answer, keep: Callable[[messages.ToGuest], None]
    ) -> None:
        self._calls = calls
        self._answer = answer
        self._keep = keep
        self._all: dict[int, Subshell] = {}
        #: In a copy, by number: the event loops of its original's subshells.
        self._drivers: dict[int, Driver] = {}
        self._changing = threading.Lock()

    def of_message(self, message: messages.ToGuest) -> Callable[[], None] | None:
        """Return a function that delivers this message to its subshell, or changes the subshells.

        Return None if the message is for the main thread. Called by whichever thread reads the
        channel. That thread calls the returned function when it holds no lock.
        """
        if isinstance(message, messages.Subshells):
            return partial(self._change, message.numbers)
        if isinstance(message, messages.OfSubshell) and message.subshell:
            return partial(self._deliver, message)
        return None

    def _deliver(self, message: Any) -> None:
        subshell = self._all.get(message.subshell)
        (self._keep if subshell is None else subshell.put)(message)

    def _change(self, numbers: tuple[int, ...]) -> None:
        """End and start threads, so that there are exactly these subshells.

        If a thread can't be started, the main thread takes that subshell's messages.
        """
        with self._changing:
            for number in self._all.keys() - set(numbers):
                subshell = self._all.pop(number)
                subshell.put(None)
                subshell.join()
            for number in numbers:
                if number not in self._all:
                    driver = self._drivers.pop(number, None)
                    new_subshell = Subshell(number, self._calls, self._answer, driver)
                    with contextlib.suppress(RuntimeError, MemoryError):
                        new_subshell.start()
                        self._all[number] = new_subshell

    def forget(self) -> int:
        """Forget all threads, which a copy does not have; return how many tasks are lost.

        Called in a copy that takes over. Event loops are kept for the threads that come.
        """
        drivers = {number: value.driver for number, value in self._all.items()}
        self._drivers |= {number: value for number, value in drivers.items() if value is not None}
        self._all.clear()
        self._changing = threading.Lock()
        return sum(driver.resume() for driver in self._drivers.values())


# --- the main thread ------------------------------------------------------------------------------

#: Seconds without a request after a snapshot, after which the guest rehearses a cell
#: (``Runner.rehearse``).
REST = 0.005


class ModuleListing:
    """Makes Python list the modules in the working folder again, after a pause between cells.

    The user may have added a module meanwhile. Python lists a folder again if its modification time
    has changed. That is not enough if a layer is over the folder: the host makes the layer forget
    what it looked up (``Refresh``), but its folder's time stays the same.
    """

    def __init__(self) -> None:
        self._ended = 0.0

    def begin_cell(self) -> None:
        """Discard Python's list if the last cell ended ``PAUSE`` ago or earlier."""
        if monotonic() - self._ended < messages.PAUSE:
            return
        with contextlib.suppress(OSError):  # the folder is gone
            if isinstance(finder := sys.path_importer_cache.get(os.getcwd()), FileFinder):
                finder.invalidate_caches()

    def end_cell(self) -> None:
        """Note when a cell ended."""
        self._ended = monotonic()


class Server:
    """Answers the host until it closes the channel.

    ``current`` are the rules in force, ``out`` sends what cells show. ``request`` is the zygote's
    ``Prepare`` with the session's own values. ``zygote`` is the zygote's pid.
    """

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
        #: None if there are no layers: only below these may folders change unnoticed.
        self._listing = ModuleListing() if request.plan.layers else None
        self._shell = shell
        self._rules = current.rules
        self._channel = channel
        self.out = out
        self._current = current
        self._driver = Driver(channel, ChannelReaders(channel))
        self.calls = Calls(
            channel, self._driver.readers, request.tool_max_in_flight, self._may_have
        )
        self._subshells = Subshells(self.calls, self._answer_beside, channel.keep)
        channel.on_subshell = self._subshells.of_message
        plan = request.plan
        rules = self._rules
        raw = bool(rules.raw_modules) or not rules.language
        self._snapshots = Snapshots(
            channel,
            out,
            self._driver,
            zygote=zygote,
            # Only raw libraries have OpenMP threads or connections.
            openmp=raw,
            connects=raw and plan.has_sockets,
            serves=plan.loopback,
        )
        self._reserve = Reserve(plan.limits.memory_max_bytes)
        self._driver.deliver = self._deliver_beside
        self._runner = Runner(shell, current, self._driver, out, plan, self._reserve)
        shell.refill = self._reserve.refill
        #: The cell of the main shell that runs, if one does.
        self._request: messages.Execute | None = None
        #: A request has begun, and interrupts are for it.
        self._begun = False
        #: An interrupt may have come while no request had begun. True at first: one may have come
        #: before the handler was set.
        self._interrupted = True
        # A bound method is a new object at each access. Kept, so that it can be compared with the
        # handler that is set, which may be a cell's.
        self._handler = self._on_interrupt
        self._kernel = GuestKernel(shell, out, lambda: self._request is not None)
        # ipywidgets looks for the kernel there.
        shell.kernel = self._kernel
        if GuestApp.initialized():
            app: Any = GuestApp.instance()
            app.kernel = self._kernel

    def serve_forever(self) -> None:
        """Serve. Never returns; raises ``HostGone`` when the host closes the channel."""
        signal.signal(signal.SIGINT, self._handler)
        # The host sends SIGURG to cut a wait short. By default the signal is ignored and would not.
        signal.signal(signal.SIGURG, self._on_wake)
        while True:
            self._handle(self._next())

    def _on_wake(self, _number: int, _frame: FrameType | None) -> None:
        """Read the channel while a cell runs: the message that begins the first subshell is there.

        Reads in another thread, because this handler may interrupt the cell anywhere, also while it
        holds a lock of ``threading``. So the thread is not started by that module, either.
        """
        if self._runner.running:
            with contextlib.suppress(RuntimeError, MemoryError):
                run_exempt(start_new_thread, self._read_now, ())

    def _read_now(self) -> None:
        with contextlib.suppress(HostGone, OSError, RuntimeError):
            self.calls.read_now()

    def _next(self) -> messages.ToGuest:
        """Wait for the next message; errors of background tasks don't end the loop."""
        message = None
        while message is None:
            try:
                message = self._driver.next_message()
            except HostGone:
                raise
            except MemoryError:
                # Without memory no request could be answered. The host goes on with a copy.
                if not self._reserve.give_back():
                    os._exit(1)
            except BaseException:  # raised by a background task, which must not end the guest
                message = None
        return message

    def _handle(self, message: messages.ToGuest) -> None:
        """Answer one message in the main thread.

        Ignores all other messages. An ``Input`` here answers a question whose cell was interrupted.
        """
        # A message of a subshell comes here if the subshell has no thread.
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
        """Answer a query, which runs no cell; if it is interrupted, send the empty answer."""
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
                empty_answer = messages.ShrunkImage(id=number)
                answer = query(
                    lambda: structs.replace(empty_answer, image=smaller(image, most)), empty_answer
                )
        self.out.send(answer)

    def _take_over(self, resume: messages.Resume) -> None:
        """Become the session's guest. Called in a copy when the host has sent ``Resume``.

        The locks of a narrower policy are taken last, and before any request.
        """
        self._reserve.give_back()
        self._interrupted = True  # as in a new guest
        self.calls.reset_after_fork()
        # ``In`` must also have the cells that ran after this copy was forked.
        history: Any = self._shell.history_manager
        for count, text in resume.inputs:
            history.store_inputs(count, text)
        lost_tasks = self._subshells.forget()
        resumed = self._snapshots.take_over(resume)
        resumed = structs.replace(resumed, tasks=resumed.tasks + lost_tasks)
        if (session_setup := resume.place) is not None:
            os.environ.update(session_setup.environment, IPYTHONDIR=session_setup.ipython_dir)
            tempfile.tempdir = session_setup.environment["TMPDIR"]
            run_exempt(lambda: enter_nearest(session_setup.cwd))
        if resume.plan is not None:
            self._runner.plan = resume.plan
            landlock.request_ruleset()
            # Enter the working folder again by its name. If it is denied now, something is mounted
            # over it, and a process that was in there before would stay below that mount.
            with contextlib.suppress(FileNotFoundError):  # it was removed
                run_exempt(lambda: enter_nearest(os.getcwd()))
        self._channel.send(structs.replace(resumed, files=self._snapshots.have_files(resume)))

    def _may_have(self, library: str) -> bool:
        """Return whether cells may hold objects of a library just as the library made them."""
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
        except BaseException as exc:  # raised between two pieces of the user's code
            error = messages.Error(ename=type(exc).__name__, evalue="", traceback=[])
            done = structs.replace(done, error=error)
        try:
            self.out.end(done)
        except MemoryError:
            error = messages.Error(ename="MemoryError", evalue="", traceback=[])
            self._channel.send(messages.Done(id=message.id, error=error))

    def _execute(self, message: messages.Execute) -> None:
        """Run one cell of the main shell, and send its ``Done``."""
        self._request = message
        self._kernel.request = message.id
        if self._listing is not None:
            self._listing.begin_cell()
        self._kernel.cell = message.execution_count if message.store_history else 0
        self.out.begin(self._kernel.cell)
        self._begin(message.id)
        try:
            done = self._runner.run(message)
        except (KeyboardInterrupt, MemoryError) as exc:
            # Raised between two pieces of the user's code: the cell ends there.
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
                os._exit(1)  # a process that the cell forked, and that left the cell by an error
        # No cell runs now. The host may send the next cell as soon as it has read ``Done``, and
        # tasks and threads of this cell may print before that cell begins. The host would take text
        # without a number for the next cell's. So their text gets a number even before ``Done``.
        self.out.begin(0)
        self.out.end(done)
        self.out.cell_ended()

    def _set_variables(self, message: messages.SetVariables) -> None:
        late = messages.Error(ename="Interrupted", evalue="it took too long", traceback=[])

        def set_variables() -> messages.Error | None:
            try:
                values = {name: arrays.decode(value) for name, value in message.values.items()}
                self._shell.user_ns.update(values)
            except Exception as exc:  # such as a library that is missing
                why = encodable(str(exc))
                return messages.Error(ename=type(exc).__name__, evalue=why, traceback=[])
            return None

        self._begin(message.id)
        with self._driver.entered():
            error = self._runner.query(set_variables, late)
        self._end()
        self._snapshots.ran_again()
        self.out.send(messages.Done(id=message.id, error=error))

    def _comm(self, message: messages.CommIn) -> None:
        self._kernel.request = message.id
        self._kernel.cell = 0
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
        """Handle comm messages that arrived while a cell awaits: it may await just these."""
        kernel = self._kernel
        while (message := self._channel.take_comm()) is not None:
            before = kernel.request, kernel.cell
            kernel.request = message.id
            kernel.cell = 0
            # Context variables: these hold in this call from the event loop only.
            current_subshell.set(message.subshell)
            current_cell.set(0)
            self._channel.send(messages.Began(id=message.id))
            try:
                self._runner.run_handler(partial(kernel.deliver, message))
            finally:
                kernel.request, kernel.cell = before
                self.out.send(messages.Done(id=message.id))

    def _begin(self, number: int) -> None:
        """Direct interrupts to this request, and tell the host whether one may have come before."""
        self._begun = True
        # An earlier cell may have replaced the handler, and this request must be interruptible. If
        # so, that handler may have got an interrupt, of which nothing is known here.
        before = signal.signal(signal.SIGINT, self._handler)
        interrupted, self._interrupted = self._interrupted or before is not self._handler, False
        self._channel.send(messages.Began(id=number, interrupted=interrupted))

    def _end(self) -> None:
        """End the request: interrupts are for no request now."""
        self._begun = self._runner.interrupted = False

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not self._begun:
            self._interrupted = True
        if not self._runner.running and not self._driver.in_task():
            # If a request has begun, its code does not run yet, and now will not start.
            self._runner.interrupted = self._begun
            return
        if self._channel.defer_interrupt() or self._driver.interrupt():
            return
        raise KeyboardInterrupt

    @property
    def runs_cell(self) -> bool:
        """Whether a cell of the main shell runs, and not a comm handler or a subshell's cell."""
        return self._request is not None and not current_subshell.get()

    def ask(self, prompt: object = "", *, password: bool = False) -> str:
        """Ask the user: ``input()`` and ``getpass()`` of cells.

        Raises StdinNotImplementedError if the front end or a subshell can't be asked.
        """
        request = self._request
        if current_subshell.get():
            request = None
        elif threading.current_thread() is not threading.main_thread():
            raise RuntimeError("input() works in the main thread only")
        if request is None or not request.allow_stdin:
            # ipykernel's words, with which programs compare.
            name = "getpass" if password else "raw_input"
            raise StdinNotImplementedError(
                f"{name} was called, but this frontend does not support input requests."
            )
        question = messages.InputRequest(id=request.id, prompt=str(prompt), password=password)
        try:
            return take_input(self._channel, self.out.marked(question))
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Interrupted by user") from None


#: File that matplotlib reads in the folder in which it is imported.
_SETTINGS_FILE: Final = "matplotlibrc"


def enter_nearest(folder: str) -> str:
    """Enter a folder, or the nearest folder above it that can be entered; return its path.

    Cells that may write there may have removed the folder, or changed its mode.
    """
    while folder != "/":
        with contextlib.suppress(OSError):
            os.chdir(folder)
            return folder
        folder = os.path.dirname(folder)
    os.chdir(folder)
    return folder


def _import_ahead(modules: tuple[str, ...]) -> bool:
    """Import these modules; return whether a cell's own import would have given the same.

    Cells may import modules from the notebook's folder first. This function does not, so that it
    runs no code from there. If that folder has a module of a name that was imported, a cell would
    have got that one instead. Nor does this function read settings there, which matplotlib
    evaluates in part.
    """
    if os.path.lexists(_SETTINGS_FILE):
        return False
    modules_before = set(sys.modules)
    path = sys.path[:]
    sys.path[:] = filter(None, path)
    try:
        for name in modules:
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)
    except BaseException:  # the cell's own import must raise it
        return False
    finally:
        sys.path[:] = path
    beside = [os.getcwd()] if "" in path else []
    imported = {name.partition(".")[0] for name in set(sys.modules) - modules_before}
    specs = [PathFinder.find_spec(name, beside) for name in imported]
    return all(spec is None or spec.loader is None for spec in specs)


def reader(find: Callable[[], Server], *, password: bool) -> Any:
    """Return a replacement for ``input`` or ``getpass`` that asks the guest's server.

    It is made in the zygote, where there is no server yet; ``find`` returns it when a cell calls.
    """

    def ask(prompt: object = "Password: " if password else "", stream: object = None) -> str:
        del stream
        return find().ask(prompt, password=password)

    return ask
