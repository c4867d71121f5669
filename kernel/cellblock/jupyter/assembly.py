"""Putting a kernel together from its policy, its backend and its sockets."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from cellblock import __version__
from cellblock.errors import BackendError, PolicyError
from cellblock.guest import removal
from cellblock.host import launch
from cellblock.host.audit import records
from cellblock.host.audit.log import Log
from cellblock.host.audit.trail import Audit
from cellblock.host.history import History, default_path
from cellblock.host.kept import Kept
from cellblock.host.session import Session
from cellblock.jupyter import sockets
from cellblock.jupyter.groundwork import Ground
from cellblock.jupyter.kernel import Kernel
from cellblock.jupyter.messages import Composer
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.jupyter.scope import PolicyScope, enter_notebook
from cellblock.jupyter.terms import addresses_of, bounds_of, proofs_of, settings_of, tooling_of
from cellblock.jupyter.views import Views
from cellblock.policy import load

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.jupyter.app import Options
    from cellblock.jupyter.early import Early
    from cellblock.policy.model import Policy

#: Seconds after which what killed kernels left is removed: past the first reply.
_SWEEP = 1.0


def assemble(
    options: Options,
    scratch: str,
    ground: Ground | PolicyError | BackendError,
    early: Early,
) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Return the loop, the kernel and what to call at the end.

    ``early`` holds the zygote that is already importing, if one is; it is taken, or ended.
    """
    views = _views(ground)
    context: zmq.Context[Any] = zmq.Context()
    connection = sockets.read_connection(Path(options.connection_file))
    bound = sockets.bind(context, connection)
    reactor = ZmqReactor()
    composer = Composer(connection.key, connection.scheme)
    kept = Kept(default_path().parent / "output", views.kept_bytes())
    audit = _audit(views)
    kernel = Kernel(reactor, bound, composer, History(default_path()), views, kept, audit)
    reactor.call_later(_SWEEP, kept.sweep)
    reactor.call_later(_SWEEP, early.remember)
    if isinstance(ground, Ground):
        policy = load.unplaced(ground.operators or ground.policy, Path(scratch))
        _enter_start(audit, policy, views.backend, ground.project)
        enter_notebook(ground, kernel)
        kernel.session = _session(ground, options, reactor, kernel, early.zygotes)
    else:
        _end(early.zygotes)

    def cleanup() -> None:
        kernel.history.close()  # first: the rest may take long, and we may be killed over it
        if kernel.session is not None:
            kernel.session.disconnect()  # what the last cell asked for is accounted for
        audit.close()
        early.remember()
        kept.close()
        gone = kernel.session is None or kernel.session.close()
        if gone:  # else its zygote is still at it
            removal.remove(scratch)
        context.destroy(linger=200)

    return reactor, kernel, cleanup


def _views(ground: Ground | PolicyError | BackendError) -> Views:
    views = Views()
    if isinstance(ground, PolicyError):
        views.refuse(ground)
    elif isinstance(ground, BackendError):
        views.fail(str(ground))
    else:
        views.configured(ground.operators or ground.policy, ground.chosen, proofs_of(ground))
        views.narrowed(ground.policy, proofs_of(ground))
        views.notice = ground.notice
    return views


def _audit(views: Views) -> Audit:
    """Return the audit log that the policy in force asks for."""
    asked = views.in_force.audit if views.in_force is not None else None
    if asked is None or not asked.log:
        return Audit()
    log = Log(Path(asked.folder), max_bytes=asked.max_bytes, fsync=asked.fsync)
    return Audit(log, required=asked.required, sources=asked.sources)


def _enter_start(audit: Audit, policy: Policy, backend: str, project: Path) -> None:
    system = os.uname()
    audit.enter(
        records.SessionStart(
            cellblock=__version__,
            python=".".join(map(str, sys.version_info[:3])),
            os_kernel=f"{system.sysname} {system.release}",
            uid=os.getuid(),
            pid=os.getpid(),
            project=records.whole(str(project)),
            policy=policy.name,
            digest=policy.digest(),
            mode=policy.mode,
            backend=backend,
            asked=policy.backend,
        )
    )


def _session(
    ground: Ground,
    options: Options,
    reactor: ZmqReactor,
    kernel: Kernel,
    prestarted: list[tuple[socket.socket, int]],
) -> Session:
    policy = ground.policy

    def zygote() -> tuple[socket.socket, int]:
        return prestarted.pop() if prestarted else launch.start(ground.wrap)

    session = Session(
        reactor,
        kernel,
        policy.rules(),
        prepare=ground.told,
        timeout=policy.timeout,
        bounds=bounds_of(ground),
        clock=time.monotonic,
        zygote=zygote,
        audit=kernel.audit,
        snapshots=settings_of(policy),
        tools=tooling_of(policy, kernel.audit),
        addresses=addresses_of(ground),
        scope=PolicyScope(ground, options, kernel),
    )
    session.start()
    return session


def _end(prestarted: list[tuple[socket.socket, int]]) -> None:
    while prestarted:
        launch.drop(*prestarted.pop())
