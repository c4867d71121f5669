"""``CellblockProvisioner``: keeps a kernel waiting in a server, so that the next starts at once.

Jupyter's servers load it through its entry point, for kernelspecs that name it. It does what
``LocalProvisioner`` does, and one thing more. Some seconds after a server has started a kernel, it
starts a second one with the same command, which waits (``warm``; ADR 0008), and it hands the next
launch over to that. At most one kernel waits for each kernelspec. It ends if it is not launched for
some minutes, and when the server ends.

Kernels of other kinds are started as by ``LocalProvisioner``, so this may be a server's default
provisioner. Only managers of several kernels have one wait: a program that runs one notebook needs
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

    #: A waiting kernel: the server's end of its socket, and the process.
    Waiting = tuple[socket.socket, subprocess.Popen[bytes]]

#: The arguments of a launch that can be handed over. With any other the kernel is started plainly.
_HANDED_OVER: Final = {"cwd", "env"}
#: Bytes that a socket accepts before anybody reads (unix(7), wmem_default).
_LONGEST: Final = 100_000
#: Seconds to wait for a kernel to start, or to end.
_PATIENCE: Final = 5.0


class CellblockProvisioner(LocalProvisioner):
    """Starts kernels as ``LocalProvisioner`` does, or hands the launch to a waiting kernel."""

    warm = Bool(
        default_value=True,
        config=True,
        help="Once a kernel was started, keep another of its kernelspec ready.",
    )
    warm_after = Float(
        3.0, config=True, help="Seconds after a kernel's start until another is started."
    )
    warm_seconds = Float(
        600.0, config=True, help="Seconds that a ready kernel waits before it ends."
    )

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Launch a kernel; then start another one some seconds later, which waits."""
        options_start = _options_at(cmd)
        if options_start is None or not self.warm:
            return await super().launch_kernel(cmd, **kwargs)
        arguments = self._scrub_kwargs(kwargs)
        name = (self.kernel_spec.resource_dir, *cmd[:options_start])
        waiting = None
        if set(arguments) <= _HANDED_OVER:
            waiting = _waiting.launch(name, cmd[options_start:], arguments)
        if waiting is None or not await _has_started(*waiting):
            await super().launch_kernel(cmd, **kwargs)
        else:
            # ``LocalProvisioner`` would set these.
            _, self.process = waiting
            self.pid = self.pgid = self.process.pid  # the kernel leads a session
            self.cwd = arguments.get("cwd") or Path.cwd()
        if isinstance(getattr(self.parent, "parent", None), MultiKernelManager):
            environment = _shared(arguments.get("env", os.environ), self.kernel_spec.env)
            launch_options: dict[str, Any] = {"env": environment, "cwd": arguments.get("cwd")}
            start = partial(launch_kernel, [*cmd, WARM], **launch_options)
            _waiting.begin_later(name, start, self.warm_after, self.warm_seconds)
        return self.connection_info


def _options_at(cmd: list[str]) -> int | None:
    """Return where cellblock's own options begin in a command; None if it is another kernel's."""
    pairs = enumerate(pairwise(cmd), start=2)
    return next((index for index, pair in pairs if pair == ("-m", "cellblock")), None)


async def _has_started(control: socket.socket, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a launched kernel says that its sockets are bound; return False if it has ended.

    After ``_PATIENCE`` seconds it counts as started.
    """
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
    return True  # it takes long; started plainly it would take longer


def _shared(environment: Mapping[str, str], spec: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all kernels have: the server's own and the kernelspec's.

    The others belong to one launch, so a waiting kernel must not have them.
    """
    return {
        name: value
        for name, value in environment.items()
        if value in (os.environ.get(name), spec.get(name))
    }


class _Waiting:
    """The waiting kernels of a server, at most one for each name. May be used from any thread.

    A name is the kernelspec's folder, and the command up to cellblock's own options.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kernels: dict[tuple[str, ...], Waiting] = {}
        self._timers: dict[tuple[str, ...], threading.Timer] = {}

    def launch(
        self, name: tuple[str, ...], arguments: list[str], options: Mapping[str, Any]
    ) -> Waiting | None:
        """Hand a launch over to the waiting kernel of this name; return that, or None.

        ``options`` may have the folder (``cwd``) and the environment (``env``).
        """
        with self._lock:
            waiting = self._kernels.pop(name, None)
        if waiting is None:
            return None
        control, process = waiting
        environment = {**options.get("env", os.environ), "JPY_PARENT_PID": str(os.getpid())}
        folder = Path(options.get("cwd") or "").absolute()
        launch = {"arguments": arguments, "folder": str(folder), "environment": environment}
        text = json.dumps(launch).encode()
        if process.poll() is None and len(text) <= _LONGEST and folder.is_dir():
            with contextlib.suppress(OSError):  # raised if the kernel is ending
                control.sendall(text)
                control.shutdown(socket.SHUT_WR)
                return waiting
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
        """Start a waiting kernel in ``after`` seconds; end it if it is not launched in ``seconds``.

        Replaces the timer of this name, whether it would start a kernel or end one.
        """

        def begin() -> None:
            with self._lock:
                if self._timers.get(name) is not timer:
                    return
                if name not in self._kernels:
                    ours, theirs = socket.socketpair()
                    with theirs:
                        self._kernels[name] = ours, start(stdin=theirs)
                self._set(name, threading.Timer(seconds, self._end, [name]))

        with self._lock:
            timer = threading.Timer(after, begin)
            self._set(name, timer)

    def _set(self, name: tuple[str, ...], timer: threading.Timer) -> None:
        """Start a timer in place of the one that this name has."""
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = timer
        timer.daemon = True
        timer.start()

    def _end(self, name: tuple[str, ...]) -> None:
        """End the waiting kernel: it ends when its socket is closed."""
        with self._lock:
            waiting = self._kernels.pop(name, None)
        if waiting is not None:
            waiting[0].close()
            _wait(waiting[1])


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait until a kernel that was told to end has ended; kill it if it takes too long."""
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_waiting: Final = _Waiting()
