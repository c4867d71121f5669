"""What a zygote prepares once, and how a fork of it becomes a guest."""

from __future__ import annotations

import builtins
import fcntl
import getpass
import importlib
import os
import random
import signal
import socket
import sys
from typing import Any

import comm  # noqa: F401 - imported here so that no guest has to
from IPython.core.displayhook import DisplayHook  # noqa: F401 - as above

from cellblock.analysis import Rules
from cellblock.guest import charts, guards, loop, magics, serve, shell, streams
from cellblock.guest.channel import Channel
from cellblock.guest.confine import ConfineError, close_inherited, confine, libc
from cellblock.guest.confine import prepare as prepare_locks
from cellblock.guest.confine.adapt import mend_library
from cellblock.guest.display import Out
from cellblock.wire import messages

#: Names that IPython puts into the namespace and mode safe takes out of it.
_IPYTHON_NAMES = ("__builtin__", "get_ipython", "exit", "quit", "open", "_dh")
CHANNEL_FD = 3
_PR_SET_PDEATHSIG = 1


class Prepared:
    """A shell with its guards, ready to be forked."""

    def __init__(self, request: messages.Prepare) -> None:
        self.request = request
        self.rules = Rules.from_builtins(request.rules)
        self.servers: list[serve.Server] = []
        mend_library(processes=request.plan.subprocess)
        loop.allow_nested_run()
        builtins.input = serve.reader(self.servers, password=False)
        getpass.getpass = serve.reader(self.servers, password=True)
        names = self._guarded_builtins()
        self.shell: Any = shell.build(self.rules, names)
        if self.rules.language:
            shell.strip_globals(self.shell, _IPYTHON_NAMES)
        shell.register_magic(self.shell, "policy", self._show_policy)
        shell.register_magic(self.shell, "usage", self._show_usage)
        self._bind_modules(names)
        prepare_locks(request.plan)

    def _guarded_builtins(self) -> dict[str, Any]:
        from IPython.display import display  # noqa: PLC0415

        extra = {
            "display": display,
            "get_ipython": magics.answer_for(self.rules),
            "input": builtins.input,
            "getpass": getpass.getpass,
        }
        return guards.install(self.rules, extra)

    def _bind_modules(self, names: dict[str, Any]) -> None:
        """Bind the policy's ``pre_imported`` as a cell's own import would."""
        for name in self.request.pre_imported:
            module = names["__import__"](name, {"__name__": "__main__"}, {}, (), 0)
            self.shell.user_ns[name] = module
            shell.hide(self.shell, name)

    def _show_policy(self, _line: str) -> None:
        """Show the policy in force and what this machine enforces of it."""
        self.out.send(messages.ShowPolicy())

    def _show_usage(self, line: str) -> None:
        """Show what each cell of the session took: all, ``top`` or one by its number."""
        self.out.send(messages.ShowUsage(line=line.strip()[:20]))

    def become_guest(self, fds: list[int], seed: bytes) -> None:
        """Turn this fork into a guest: own session, own descriptors, locks, then serve."""
        _die_with_zygote()
        os.setsid()
        _take_descriptors(fds)
        channel = Channel(socket.socket(fileno=CHANNEL_FD))
        random.seed(seed)
        os.chdir(self.request.cwd)
        sys.dont_write_bytecode = True
        self._lock(channel)
        plan = self.request.plan
        if not self.rules.raw_modules:
            # Raw packages reach the OS layer anyhow, and its refusals name the policy's field.
            def report(operation: str) -> None:
                channel.last_words(messages.Breach(operation=operation))

            guards.arm(self.rules, report, network=plan.network, processes=plan.subprocess)
        self._serve(channel)

    def _lock(self, channel: Channel) -> None:
        try:
            report = confine(self.request.plan)
        except ConfineError as exc:
            channel.send(messages.NotReady(lock=exc.lock, detail=str(exc)))
            raise SystemExit(1) from None
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
        server = serve.Server(self.shell, self.rules, channel, self.out, plan)
        self.servers.append(server)
        server.forever()


def prepare(request: messages.Prepare) -> Prepared:
    """Build everything that guests share. Runs in the zygote, before any fork."""
    os.environ.update(request.environment)
    os.environ["IPYTHONDIR"] = request.ipython_dir
    if request.charts:
        charts.install(request.charts)
    for name in request.preload:
        importlib.import_module(name)
    return Prepared(request)


def _die_with_zygote() -> None:
    """Have the OS kernel kill this process when the zygote ends, however it ends (prctl(2))."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        raise SystemExit(1)


def _take_descriptors(fds: list[int]) -> None:
    """Put channel, stdout and stderr where they belong and close everything else."""
    null = os.open(os.devnull, os.O_RDONLY)
    # Out of each other's way first, as low as a limit on open files may want it.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, CHANNEL_FD + 1) for fd in (null, *fds)]
    for target, fd in zip((0, CHANNEL_FD, 1, 2), high, strict=True):
        os.dup2(fd, target)
    close_inherited({0, 1, 2, CHANNEL_FD})
    os.set_inheritable(CHANNEL_FD, False)
