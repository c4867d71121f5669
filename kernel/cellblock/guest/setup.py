"""What a zygote prepares once, and how a fork of it becomes a guest."""

from __future__ import annotations

import array
import builtins
import contextlib
import fcntl
import getpass
import importlib
import json
import os
import random
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import comm  # noqa: F401 - imported here so that no guest has to
import msgspec
from IPython.core.displayhook import DisplayHook  # noqa: F401 - as above

from cellblock.analysis import Rules
from cellblock.guest import (
    audit_hook,
    charts,
    guards,
    host_services,
    loop,
    native_pools,
    output,
    server,
    shell,
)
from cellblock.guest.channel import Channel
from cellblock.guest.confine import ConfineError, confine, process
from cellblock.guest.confine import prepare as prepare_locks
from cellblock.guest.confine.adapt import mend_library
from cellblock.guest.confine.process import isolate_fork
from cellblock.guest.confine.syscall_args import HANDING_OVER
from cellblock.guest.output import Out
from cellblock.guest.runner import RulesInForce
from cellblock.guest.shell import Asking
from cellblock.guest.tool_calls import ToolError
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.guest.network import Network
    from cellblock.guest.probes import Trier


# ``inputs``: what whoever runs the cells has given them, to be read and not to be changed.

_SHOWN: Final = 60
_NAMED: Final = 10
_GIVEN: Final = "whoever runs the cells gives inputs: --input FILE, or Sandbox(inputs={…})"


class Inputs(Mapping[str, Any]):
    """Values by name. Each look-up gives a copy of its own, of JSON's types.

    ``encoded`` are the values as JSON.
    """

    __slots__ = ("_encoded",)

    _encoded: Mapping[str, str]

    def __init__(self, encoded: Mapping[str, str]) -> None:
        object.__setattr__(self, "_encoded", MappingProxyType(dict(encoded)))

    def __getitem__(self, name: str) -> Any:
        if name not in self._encoded:
            raise KeyError(self._missing(name))
        return json.loads(self._encoded[name])

    def _missing(self, name: object) -> str:
        names, more = list(self._encoded)[:_NAMED], len(self._encoded) - _NAMED
        known = f"but {', '.join(names)}" if names else "and no other"
        known += f" and {more:,} more" if more > 0 else ""
        return f"there is no input {name!r}, {known}; {_GIVEN}"

    def __contains__(self, name: object) -> bool:
        return name in self._encoded

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("inputs can be read only")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name!r}: {_short(text)}" for name, text in self._encoded.items())
        return f"inputs({{{shown}}})"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


#: Names that IPython puts into the namespace and mode safe takes out of it.
_IPYTHON_NAMES = ("__builtin__", "get_ipython", "exit", "quit", "open", "_dh")
#: Variables by which libraries find folders of the user's.
_AT_HOME = (
    "HOME", "IPYTHONDIR", "MPLCONFIGDIR", "TMPDIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
)  # fmt: skip
CHANNEL_FD = 3
#: Where the listener of the gate is given away, until that is done.
GATE_FD = 4
#: Where the relay is asked, under a list of addresses.
RELAY_FD = 5
#: Where what the host sends along belongs: channel, stdout, stderr.
_TARGETS = (CHANNEL_FD, 1, 2)


class Prepared:
    """A shell with its guards, ready to be forked."""

    def __init__(self, request: messages.Prepare) -> None:
        self.request = request
        #: Guests are forked from whoever makes this.
        self.zygote = os.getpid()
        self.rules = Rules.from_builtins(request.rules)
        self._current = RulesInForce(self.rules)
        self.servers: list[server.Server] = []
        mend_library(processes=request.plan.subprocess)
        self._network = _mended_network() if request.plan.relayed else None
        loop.allow_nested_run()
        builtins.input = server.reader(self.servers, password=False)
        getpass.getpass = server.reader(self.servers, password=True)
        self._tools = self._build_tools()
        names = self._guarded_builtins()
        self.shell: Any = shell.build(self.rules, names)
        if self.rules.language:
            shell.strip_globals(self.shell, _IPYTHON_NAMES)
        self._asking = Asking(self.shell, self.servers)
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
            "get_ipython": shell.answer_for(self.rules),
            "input": builtins.input,
            "getpass": getpass.getpass,
            **self._tools,
        }
        return guards.install(self._current, extra)

    def _arming(self) -> Callable[[Callable[[str], None]], None]:
        if self.rules.raw_modules:
            # Raw packages reach the OS layer anyhow, and its refusals name the policy's field.
            return lambda _report: None
        plan = self.request.plan
        return audit_hook.arming(self.rules, network=plan.network, processes=plan.subprocess)

    def _bind_modules(self, names: dict[str, Any]) -> None:
        """Bind the policy's ``pre_imported`` as a cell's own import would."""
        for name in self.request.pre_imported:
            module = names["__import__"](name, {"__name__": "__main__"}, {}, (), 0)
            self.shell.user_ns[name] = module
            shell.hide(self.shell, name)

    def _build_tools(self) -> dict[str, Any]:
        request = self.request
        most, calls = request.tool_max_bytes, lambda: self.servers[0].calls
        known = {tool.name: tool for tool in request.tools}
        asked = (host_services.NAME, host_services.CHAT) if host_services.CHAT in known else ()
        plain = tuple(tool for tool in request.tools if tool.name not in asked)
        found = host_services.build_tools(plain, most, calls)
        others = host_services.build_tools(host_services.withheld(plain), most, calls)
        asking = host_services.build_llm(known, most, calls)
        return {"ToolError": ToolError, **host_services.gathered(found, others), **asking}

    def _bind_tools(self) -> None:
        """Have completion and inspection find the tools, where they look for names."""
        self.shell.user_ns.update(self._tools)
        shell.hide(self.shell, *self._tools)

    def _bind_inputs(self) -> None:
        """Have cells find what they are given, as a name of theirs that they may take for more."""
        namespace = self.shell.user_ns
        namespace["__builtins__"]["inputs"] = namespace["inputs"] = Inputs(self.request.inputs)
        shell.hide(self.shell, "inputs")

    def become_guest(self, fds: list[int], fork: messages.Fork) -> None:
        """Turn this fork into a guest: own session, own descriptors, locks, then serve.

        With a ``trial`` it is one up to there: then it tries its locks, says so and ends.
        """
        process.set_name("guest")
        trial = fork.trial
        trier = None if trial is None else _trier(trial, self.request, fds)
        gated = len(fds) > len(self.targets)
        kept = _take_descriptors(fds, (*self.targets, GATE_FD))
        channel = Channel(socket.socket(fileno=CHANNEL_FD))
        with _refusals_told(channel):
            isolate_fork(self.zygote, kept)
        if self._network is not None:
            self._network.begin(RELAY_FD)
        place = channel.recv()
        if not isinstance(place, messages.Place):
            raise TypeError("the first frame must be Place")
        self._take(place)
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

    def _take(self, place: messages.Place) -> None:
        """Have this guest's own in the place of what was prepared for all."""
        own = msgspec.structs.asdict(place)
        random.seed(own.pop("seed"))
        self.request = msgspec.structs.replace(self.request, **own)
        for name in _AT_HOME:
            os.environ.pop(name, None)
        os.environ.update(place.environment)
        os.environ["IPYTHONDIR"] = self.shell.ipython_dir = place.ipython_dir
        tempfile.tempdir = None  # the zygote's may have been looked up

    def _lock(self, channel: Channel, *, gated: bool) -> None:
        with _refusals_told(channel):
            try:
                report = confine(self.request.plan, hand_over=_hand_over if gated else None)
            finally:
                if gated:
                    os.close(GATE_FD)
        channel.send(messages.Ready(report=report))

    def _serve(self, channel: Channel) -> None:
        outlet = output.Outlet(channel)
        sys.stdout = output.out_stream("stdout", 1, outlet)
        sys.stderr = output.out_stream("stderr", 2, outlet)
        out = Out(channel, outlet)
        self._asking.out = out
        self.shell.display_pub.bind(out)
        self.shell.displayhook.bind(out)
        sys.displayhook = self.shell.displayhook
        self._bind_inputs()
        plan = self.request.plan
        serving = server.Server(
            self.shell,
            self._current,
            channel,
            out,
            plan,
            outlet=outlet,
            zygote=self.zygote,
            network=self._network,
            tools=self.request.tool_max_in_flight,
        )
        self.servers.append(serving)
        serving.forever()


def prepare(request: messages.Prepare) -> Prepared:
    """Build everything that guests share. Runs in the zygote, before any fork.

    At home in a folder that is new, and empty: in one that guests have had, or in a checkout,
    what is imported would read settings and follow links that somebody else put there
    (promise P12).
    """
    home = tempfile.mkdtemp(prefix=".prepared-", dir=request.scratch)
    os.chdir(home)
    os.environ.update(request.environment | dict.fromkeys(_AT_HOME, home))
    if request.charts:
        charts.install_charts(request.charts)
    native_pools.install()
    sys.path.extend(request.paths)
    for name in request.preload:
        importlib.import_module(name)
    prepared = Prepared(request)
    os.chdir("/")
    return prepared


@contextlib.contextmanager
def _refusals_told(channel: Channel) -> Iterator[None]:
    """Tell the host what could not be locked, and end."""
    try:
        yield
    except ConfineError as exc:
        channel.send(messages.NotReady(lock=exc.lock, detail=exc.why))
        raise SystemExit(1) from None


def _trier(trial: messages.Trial, request: messages.Prepare, fds: list[int]) -> Trier:
    from cellblock.guest.probes import Trier  # noqa: PLC0415 - no other guest needs it

    return Trier(trial, request, fds)


def _mended_network() -> Network:
    from cellblock.guest import network  # noqa: PLC0415 - most policies have no list
    from cellblock.guest.network import Network  # noqa: PLC0415 - as above

    connected = Network()
    network.mend(connected)
    return connected


def _take_descriptors(fds: list[int], where: tuple[int, ...]) -> set[int]:
    """Put what the host and the gate sent where it belongs; return that.

    All others are for ``isolate_fork`` to close.
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
