"""A kernel provisioner that has a kernel waiting, so that the next one is there at once.

Jupyter's servers load it by its entry point, for kernelspecs that name it. It is theirs in all but
this: some seconds after a server started a kernel, it starts another one of the same command that
waits (``warm``), and hands the next launch over to it. There is at most one for each kernelspec,
and it ends unused after a while, or with the server.

It starts kernels of other kinds as ``LocalProvisioner`` does, so it may be the default provisioner
of a server. Only managers of several kernels have one wait: a program that runs one notebook needs
no second kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jupyter_client.launcher import launch_kernel
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Bool, Float

from cellblock.jupyter.command_line import WARM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyter_client.connect import KernelConnectionInfo

    #: Our end of its socket, and a kernel.
    Waiting = tuple[socket.socket, subprocess.Popen[bytes]]

#: What a server asks for that can be handed over; anything else is a plain start.
_HANDED_OVER: Final = {"cwd", "env"}
#: Bytes that a socket takes while nobody reads yet (unix(7), wmem_default).
_LONGEST: Final = 100_000
#: Seconds that one which is let go of may take to end.
_PATIENCE: Final = 5.0


class CellblockProvisioner(LocalProvisioner):
    """Starts a kernel as ``LocalProvisioner`` does, or has one that waits be it."""

    warm = Bool(
        default_value=True,
        config=True,
        help="Have a kernel of each kernelspec wait, once one was started.",
    )
    warm_after = Float(3.0, config=True, help="Seconds after a kernel's start until one waits.")
    warm_seconds = Float(600.0, config=True, help="Seconds that a kernel waits before it ends.")

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Launch a kernel."""
        place = _options_at(cmd)
        if place is None or not self.warm:
            return await super().launch_kernel(cmd, **kwargs)
        asked = self._scrub_kwargs(kwargs)
        name = (self.kernel_spec.resource_dir, *cmd[:place])
        there = None
        if set(asked) <= _HANDED_OVER:
            there = _waiting.launch(name, cmd[place:], asked)
        if there is None or not await _has_started(*there):
            await super().launch_kernel(cmd, **kwargs)
        else:
            _, self.process = there
            self.pid = self.pgid = self.process.pid  # it leads a session
            self.cwd = asked.get("cwd") or Path.cwd()
        if isinstance(getattr(self.parent, "parent", None), MultiKernelManager):
            environment = _shared(asked.get("env", os.environ), self.kernel_spec.env)
            again: dict[str, Any] = {"env": environment, "cwd": asked.get("cwd")}
            start = partial(launch_kernel, [*cmd, WARM], **again)
            _waiting.begin_later(name, start, self.warm_after, self.warm_seconds)
        return self.connection_info


def _options_at(cmd: list[str]) -> int | None:
    """Return where a kernel's own options begin in a command; None in another kernel's."""
    pairs = enumerate(pairwise(cmd), start=2)
    return next((place for place, pair in pairs if pair == ("-m", "cellblock")), None)


async def _has_started(control: socket.socket, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the kernel says that its sockets are bound; return False where it has ended."""
    control.setblocking(False)
    loop = asyncio.get_running_loop()
    with control, contextlib.suppress(TimeoutError):
        try:
            if await asyncio.wait_for(loop.sock_recv(control, 1), _PATIENCE):
                return True
        except OSError:
            pass
        await loop.run_in_executor(None, _wait, process)
        return False
    return True  # it takes long, as it would without


def _shared(environment: Mapping[str, str], spec: Mapping[str, str]) -> dict[str, str]:
    """Return of a kernel's environment what is every one's: the server's and the kernelspec's."""
    return {
        name: value
        for name, value in environment.items()
        if value in (os.environ.get(name), spec.get(name))
    }


class _Waiting:
    """The kernels that wait: one for each name, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[tuple[str, ...], Waiting] = {}
        self._timers: dict[tuple[str, ...], threading.Timer] = {}

    def launch(
        self, name: tuple[str, ...], arguments: list[str], asked: Mapping[str, Any]
    ) -> Waiting | None:
        """Hand a launch over to the kernel that waits; return it, None where none does."""
        with self._lock:
            there = self._there.pop(name, None)
        if there is None:
            return None
        control, process = there
        environment = {**asked.get("env", os.environ), "JPY_PARENT_PID": str(os.getpid())}
        folder = Path(asked.get("cwd") or "").absolute()
        launch = {"arguments": arguments, "folder": str(folder), "environment": environment}
        text = json.dumps(launch).encode()
        if process.poll() is None and len(text) <= _LONGEST and folder.is_dir():
            with contextlib.suppress(OSError):  # it is ending
                control.sendall(text)
                control.shutdown(socket.SHUT_WR)
                return there
        control.close()
        threading.Thread(target=_wait, args=[process], daemon=True).start()
        return None

    def begin_later(
        self,
        name: tuple[str, ...],
        start: Callable[..., subprocess.Popen[bytes]],
        after: float,
        seconds: float,
    ) -> None:
        """Start one ``after`` so many seconds, which ends when it was not launched ``seconds`` on.

        Whatever was to happen with this name does not.
        """

        def begin() -> None:
            with self._lock:
                if self._timers.get(name) is not timer:
                    return
                if name not in self._there:
                    ours, theirs = socket.socketpair()
                    with theirs:
                        self._there[name] = ours, start(stdin=theirs)
                self._set(name, threading.Timer(seconds, self._end, [name]))

        with self._lock:
            timer = threading.Timer(after, begin)
            self._set(name, timer)

    def _set(self, name: tuple[str, ...], timer: threading.Timer) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = timer
        timer.daemon = True
        timer.start()

    def _end(self, name: tuple[str, ...]) -> None:
        with self._lock:
            there = self._there.pop(name, None)
        if there is not None:
            there[0].close()
            _wait(there[1])


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_waiting: Final = _Waiting()
