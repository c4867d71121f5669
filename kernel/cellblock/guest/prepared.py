"""What a zygote prepares once, and how a fork of it becomes a guest."""

from __future__ import annotations

import array
import builtins
import contextlib
import fcntl
import getpass
import importlib
import os
import random
import socket
import sys
from typing import TYPE_CHECKING, Any

import comm  # noqa: F401 - imported here so that no guest has to
from IPython.core.displayhook import DisplayHook  # noqa: F401 - as above
from IPython.core.error import UsageError

from cellblock.analysis import Rules
from cellblock.analysis.magics import without_comment
from cellblock.guest import charts, guards, loop, magics, pools, serve, shell, streams, tools
from cellblock.guest.calls import ToolError
from cellblock.guest.channel import Channel
from cellblock.guest.confine import ConfineError, confine, process
from cellblock.guest.confine import prepare as prepare_locks
from cellblock.guest.confine.adapt import mend_library
from cellblock.guest.confine.apart import stand_apart
from cellblock.guest.confine.gates import HANDING_OVER
from cellblock.guest.display import Out
from cellblock.guest.text import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.guest.network import Network
    from cellblock.guest.trying import Trier

#: Names that IPython puts into the namespace and mode safe takes out of it.
_IPYTHON_NAMES = ("__builtin__", "get_ipython", "exit", "quit", "open", "_dh")
CHANNEL_FD = 3
#: Where the listener of the gate is given away, until that is done.
GATE_FD = 4
#: Where the relay is asked, under a list of addresses.
RELAY_FD = 5
#: Where what the host sends along belongs: channel, stdout, stderr.
_TARGETS = (CHANNEL_FD, 1, 2)
#: Of a number of cells to step back over, one too many.
_DIGITS = 10
#: Characters of a magic's argument that are passed on.
_MOST_ARGUMENT = 100


class Prepared:
    """A shell with its guards, ready to be forked."""

    def __init__(self, request: messages.Prepare) -> None:
        self.request = request
        #: Guests are forked from whoever makes this.
        self.zygote = os.getpid()
        self.rules = Rules.from_builtins(request.rules)
        self.servers: list[serve.Server] = []
        mend_library(processes=request.plan.subprocess)
        self._network = _mended_network() if request.plan.relayed else None
        loop.allow_nested_run()
        builtins.input = serve.reader(self.servers, password=False)
        getpass.getpass = serve.reader(self.servers, password=True)
        self._tools = self._build_tools()
        names = self._guarded_builtins()
        self.shell: Any = shell.build(self.rules, names)
        if self.rules.language:
            shell.strip_globals(self.shell, _IPYTHON_NAMES)
        shell.register_magic(self.shell, "policy", self._show_policy)
        shell.register_magic(self.shell, "undo", self._undo)
        shell.register_magic(self.shell, "output", self._show_output)
        shell.register_magic(self.shell, "usage", self._show_usage)
        shell.register_magic(self.shell, "tools", self._show_tools)
        self._bind_modules(names)
        self._bind_tools()
        prepare_locks(request.plan)
        self._arm = self._arming()

    @property
    def targets(self) -> tuple[int, ...]:
        """Where the descriptors that the host sends for a guest belong."""
        return _TARGETS if self._network is None else (*_TARGETS, RELAY_FD)

    def _guarded_builtins(self) -> dict[str, Any]:
        from IPython.display import display  # noqa: PLC0415

        extra = {
            "display": display,
            "get_ipython": magics.answer_for(self.rules),
            "input": builtins.input,
            "getpass": getpass.getpass,
            **self._tools,
        }
        return guards.install(self.rules, extra)

    def _arming(self) -> Callable[[Callable[[str], None]], None]:
        if self.rules.raw_modules:
            # Raw packages reach the OS layer anyhow, and its refusals name the policy's field.
            return lambda _report: None
        plan = self.request.plan
        return guards.arming(self.rules, network=plan.network, processes=plan.subprocess)

    def _bind_modules(self, names: dict[str, Any]) -> None:
        """Bind the policy's ``pre_imported`` as a cell's own import would."""
        for name in self.request.pre_imported:
            module = names["__import__"](name, {"__name__": "__main__"}, {}, (), 0)
            self.shell.user_ns[name] = module
            shell.hide(self.shell, name)

    def _build_tools(self) -> dict[str, Any]:
        request = self.request
        if not request.tools:
            return {}
        found = tools.build(request.tools, request.tool_max_bytes, lambda: self.servers[0].calls)
        return {"ToolError": ToolError, **found}

    def _bind_tools(self) -> None:
        """Have completion and inspection find the tools, where they look for names."""
        self.shell.user_ns.update(self._tools)
        shell.hide(self.shell, *self._tools)

    def _show_policy(self, line: str) -> None:
        """Show the policy in force; %policy narrow timeout=10, in a cell of its own, narrows it."""
        if without_comment(line):
            # The host settles a narrowing before a cell comes here.
            raise UsageError("%policy takes nothing; %policy narrow stands in a cell of its own")
        self.out.send(messages.ShowPolicy())

    def _undo(self, line: str) -> None:
        """Step back to the state before the last cell that ran; ``%undo 3`` over three cells."""
        steps = line.partition("#")[0].strip() or "1"
        if not (steps.isascii() and steps.isdigit() and len(steps) < _DIGITS and int(steps)):
            raise UsageError(f"%undo takes a number of cells, not {steps!r}")
        if not self.servers[0].runs_cell:
            raise UsageError("%undo steps back from a cell, not from a handler or a task")
        self.out.send(messages.Undo(steps=int(steps)))

    def _show_output(self, line: str) -> None:
        """Page through what the host kept of a cell's output: %output 7, %output 7 stderr last."""
        self.out.send(messages.ShowOutput(argument=encodable(line[:_MOST_ARGUMENT])))

    def _show_tools(self, _line: str) -> None:
        """List the host tools that cells may call, with their signatures."""
        self.out.send(messages.ShowTools())

    def _show_usage(self, line: str) -> None:
        """Show what each cell of the session took: all, ``top`` or one by its number."""
        self.out.send(messages.ShowUsage(line=line.strip()[:20]))

    def become_guest(
        self, fds: list[int], seed: bytes, trial: messages.Trial | None = None
    ) -> None:
        """Turn this fork into a guest: own session, own descriptors, locks, then serve.

        With a ``trial`` it is one up to there: then it tries its locks, says so and ends.
        """
        process.call_itself("guest")
        trier = None if trial is None else _trier(trial, self.request, fds)
        gated = len(fds) > len(self.targets)
        kept = _take_descriptors(fds, (*self.targets, GATE_FD))
        channel = Channel(socket.socket(fileno=CHANNEL_FD))
        with _refusals_told(channel):
            stand_apart(self.zygote, kept)
        if self._network is not None:
            self._network.begin(RELAY_FD)
        random.seed(seed)
        os.chdir(self.request.cwd)
        sys.dont_write_bytecode = True
        if trier is not None:
            trier.before_the_locks()
        self._lock(channel, gated=gated)
        if trier is not None:
            channel.send(trier.tried())
            return

        def report(operation: str) -> None:
            channel.last_words(messages.Breach(operation=operation))

        self._arm(report)
        self._serve(channel)

    def _lock(self, channel: Channel, *, gated: bool) -> None:
        with _refusals_told(channel):
            try:
                report = confine(self.request.plan, hand_over=_hand_over if gated else None)
            finally:
                if gated:
                    os.close(GATE_FD)
        channel.send(messages.Ready(report=report))

    def _serve(self, channel: Channel) -> None:
        outlet = streams.Outlet(channel)
        sys.stdout = streams.out_stream("stdout", 1, outlet)
        sys.stderr = streams.out_stream("stderr", 2, outlet)
        self.out = Out(channel, outlet)
        self.shell.display_pub.bind(self.out)
        self.shell.displayhook.bind(self.out)
        sys.displayhook = self.shell.displayhook
        plan = self.request.plan
        server = serve.Server(
            self.shell,
            self.rules,
            channel,
            self.out,
            plan,
            outlet=outlet,
            zygote=self.zygote,
            network=self._network,
            tools=self.request.tool_max_in_flight,
        )
        self.servers.append(server)
        server.forever()


def prepare(request: messages.Prepare) -> Prepared:
    """Build everything that guests share. Runs in the zygote, before any fork."""
    os.environ.update(request.environment)
    os.environ["IPYTHONDIR"] = request.ipython_dir
    if request.charts:
        charts.install(request.charts)
    pools.install()
    for name in request.preload:
        importlib.import_module(name)
    return Prepared(request)


@contextlib.contextmanager
def _refusals_told(channel: Channel) -> Iterator[None]:
    """Tell the host what could not be locked, and end."""
    try:
        yield
    except ConfineError as exc:
        channel.send(messages.NotReady(lock=exc.lock, detail=exc.why))
        raise SystemExit(1) from None


def _trier(trial: messages.Trial, request: messages.Prepare, fds: list[int]) -> Trier:
    from cellblock.guest.trying import Trier  # noqa: PLC0415 - no other guest needs it

    return Trier(trial, request, fds)


def _mended_network() -> Network:
    from cellblock.guest.network import Network  # noqa: PLC0415 - most policies have no list

    network = Network()
    network.mend()
    return network


def _take_descriptors(fds: list[int], where: tuple[int, ...]) -> set[int]:
    """Put what the host and the gate sent where it belongs; return that.

    All others are for ``stand_apart`` to close.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    targets = (0, *where)[: 1 + len(fds)]
    # Out of each other's way first, as low as a limit on open files may want it.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, RELAY_FD + 1) for fd in (null, *fds)]
    for target, fd in zip(targets, high, strict=True):
        os.dup2(fd, target)
    for fd in {CHANNEL_FD, RELAY_FD}.intersection(targets):
        os.set_inheritable(fd, False)
    return set(targets)


def _hand_over(listener: int) -> None:
    """Give the gate's listener to the zygote, which answers from then on."""
    with socket.socket(fileno=os.dup(GATE_FD)) as way:
        # Not ``send_fds``, which drops its flags (CPython 3.11).
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))
        way.sendmsg([b"g"], [rights], HANDING_OVER)
