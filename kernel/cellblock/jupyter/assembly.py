"""Putting a kernel together from its policy, its backend and its sockets."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import zmq

from cellblock import backends
from cellblock.errors import BackendError, PolicyError, StartError
from cellblock.guest import removal
from cellblock.host import launch
from cellblock.host.environment import guest_environment
from cellblock.host.history import History, default_path
from cellblock.host.monitor import Bounds
from cellblock.host.session import Session
from cellblock.jupyter import sockets
from cellblock.jupyter.kernel import Kernel
from cellblock.jupyter.messages import Composer
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.jupyter.views import Views
from cellblock.policy import load
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.jupyter.app import Options
    from cellblock.policy.model import Policy


#: Files in a run-time folder that open a kernel or a server.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


def assemble(
    options: Options,
    project: Path,
    prestarted: list[tuple[socket.socket, int]],
) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Return the loop, the kernel and what to call at the end.

    ``prestarted`` holds a zygote that is already importing; it is taken, or ended.
    """
    scratch = _scratch()
    views = Views()
    prepared = _prepare(options, project, scratch, views)
    context: zmq.Context[Any] = zmq.Context()
    connection = sockets.read_connection(options.connection_file)
    bound = sockets.bind(context, connection)
    reactor = ZmqReactor()
    composer = Composer(connection.key, connection.scheme)
    kernel = Kernel(reactor, bound, composer, History(default_path()), views)
    if prepared is None:
        _end(prestarted)
    else:
        policy, prepare = prepared
        kernel.session = _session(policy, prepare, reactor, kernel, prestarted)

    def cleanup() -> None:
        kernel.history.close()  # first: the rest may take long, and we may be killed over it
        gone = kernel.session is None or kernel.session.close()
        if gone:  # else its zygote is still at it
            removal.remove(str(scratch))
        context.destroy(linger=200)

    return reactor, kernel, cleanup


def _scratch() -> Path:
    """Return the guest's private folder. Raises StartError."""
    try:
        return Path(tempfile.mkdtemp(prefix="cellblock-"))
    except OSError as exc:
        raise StartError(f"no folder for temporary files: {exc}") from None


def _prepare(
    options: Options,
    project: Path,
    scratch: Path,
    views: Views,
) -> tuple[Policy, messages.Prepare] | None:
    """Return the policy and what the zygote is told of it; None when nothing may run."""
    try:
        policy = load.load(
            options.policy,
            project=project,
            scratch=scratch,
            allow_unsafe=options.allow_unsafe,
        )
        # At a glance: the guest's own witness tries the locks before the first user byte.
        chosen = backends.choose(policy, probe=False)
        plan = backends.plan(
            policy,
            chosen.backend,
            scratch=scratch,
            project=project,
            private=_private(options.connection_file),
        )
        views.configured(policy, chosen)
    except PolicyError as exc:
        views.refuse(exc)
        return None
    except BackendError as exc:
        views.fail(str(exc))
        return None
    return policy, _told(policy, plan, project, scratch)


def _private(connection_file: Path) -> list[Path]:
    """Return what no guest reads: history, and keys, those beside our own too.

    Keys of kernels that start later are not readable either: see ``backends.roots``.
    """
    beside = [found for name in _KEYS for found in connection_file.parent.glob(name)]
    return [default_path().parent, connection_file, *beside]


_CHARTS: Final[dict[str, Literal["pages", "stills", ""]]] = {
    "text": "stills",
    "sanitized": "stills",
    "isolated": "pages",
    "trusted": "",
}


def _told(
    policy: Policy,
    plan: messages.Plan,
    project: Path,
    scratch: Path,
) -> messages.Prepare:
    reads_project = any(project.is_relative_to(root) for root in policy.filesystem_read_roots)
    return messages.Prepare(
        rules=policy.rules().to_builtins(),
        preload=policy.preload,
        pre_imported=policy.pre_imported,
        policy_name=policy.name,
        ipython_dir=str(scratch / ".ipython"),
        scratch=str(scratch),
        cwd=str(project if reads_project else scratch),
        environment=guest_environment(policy, scratch, os.environ),
        plan=plan,
        charts=_CHARTS[policy.display],
    )


def _session(
    policy: Policy,
    prepare: messages.Prepare,
    reactor: ZmqReactor,
    kernel: Kernel,
    prestarted: list[tuple[socket.socket, int]],
) -> Session:
    def zygote() -> tuple[socket.socket, int]:
        return prestarted.pop() if prestarted else launch.start()

    session = Session(
        reactor,
        kernel,
        policy.rules(),
        prepare=prepare,
        timeout=policy.timeout,
        bounds=Bounds(
            cpu_seconds=policy.cpu_seconds,
            memory_max_bytes=policy.memory_max_bytes,
            scratch_max_bytes=policy.scratch_max_bytes,
            scratch=prepare.scratch,
            processes=policy.subprocess_execution,
        ),
        clock=time.monotonic,
        zygote=zygote,
    )
    session.start()
    return session


def _end(prestarted: list[tuple[socket.socket, int]]) -> None:
    for sock, pid in prestarted:
        sock.close()
        os.waitpid(pid, 0)
    prestarted.clear()
