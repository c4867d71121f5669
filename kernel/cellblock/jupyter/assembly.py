"""Putting a kernel together from its policy, its backend and its sockets."""

from __future__ import annotations

import contextlib
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
from cellblock.host.monitor import Bounds
from cellblock.host.session import Session
from cellblock.host.snapshots import Settings
from cellblock.host.tools import Tooling
from cellblock.jupyter import sockets
from cellblock.jupyter.groundwork import Ground
from cellblock.jupyter.kernel import Kernel
from cellblock.jupyter.messages import Composer
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.jupyter.views import Views
from cellblock.policy import load

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.backends.contract import Proof
    from cellblock.jupyter.app import Options
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport


#: Seconds after which what killed kernels left is removed: past the first reply.
_SWEEP = 1.0


def assemble(
    options: Options,
    scratch: Path,
    ground: Ground | PolicyError | BackendError,
    prestarted: list[tuple[socket.socket, int]],
) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Return the loop, the kernel and what to call at the end.

    ``prestarted`` holds a zygote that is already importing; it is taken, or ended.
    """
    views = _views(ground)
    context: zmq.Context[Any] = zmq.Context()
    connection = sockets.read_connection(options.connection_file)
    bound = sockets.bind(context, connection)
    reactor = ZmqReactor()
    composer = Composer(connection.key, connection.scheme)
    kept = Kept(default_path().parent / "output", views.kept_bytes())
    audit = _audit(views)
    kernel = Kernel(reactor, bound, composer, History(default_path()), views, kept, audit)
    reactor.call_later(_SWEEP, kept.sweep)
    if isinstance(ground, Ground):
        policy = load.unplaced(ground.policy, scratch)
        _enter_start(audit, policy, views.backend, ground.project)
        kernel.session = _session(ground, reactor, kernel, prestarted)
    else:
        _end(prestarted)

    def cleanup() -> None:
        kernel.history.close()  # first: the rest may take long, and we may be killed over it
        audit.close()
        kept.close()
        gone = kernel.session is None or kernel.session.close()
        if gone:  # else its zygote is still at it
            removal.remove(str(scratch))
        context.destroy(linger=200)

    return reactor, kernel, cleanup


def _views(ground: Ground | PolicyError | BackendError) -> Views:
    views = Views()
    if isinstance(ground, PolicyError):
        views.refuse(ground)
    elif isinstance(ground, BackendError):
        views.fail(str(ground))
    else:
        views.configured(ground.policy, ground.chosen, _proofs(ground))
    return views


def _proofs(ground: Ground) -> Callable[[LockReport], Proof | None]:
    """Return what finds a proof for this kernel, once it is known what its guests have locked."""

    def find(report: LockReport) -> Proof | None:
        folder = default_path().parent
        if not os.path.exists(folder / "proofs.json"):  # noqa: PTH110 - never raises
            return None
        from cellblock.host import proofs  # noqa: PLC0415 - where there are any

        backend, scratch = ground.chosen.backend, Path(ground.told.scratch)
        folders: Any = {"project": ground.project, "scratch": scratch}
        with contextlib.suppress(OSError):  # what wraps the zygote is gone, say
            wanted = proofs.key(ground.policy, backend, report, **folders)
            found = proofs.Proofs(folder).find(wanted)
            return found if found is not None and proofs.is_whole(found, ground.policy) else None
        return None

    return find


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
        bounds=Bounds(
            cpu_seconds=policy.cpu_seconds,
            memory_max_bytes=policy.memory_max_bytes,
            scratch_max_bytes=policy.scratch_max_bytes,
            scratch=ground.told.scratch,
            processes=policy.subprocess_execution,
        ),
        clock=time.monotonic,
        zygote=zygote,
        audit=kernel.audit,
        snapshots=Settings(
            mode=policy.snapshots,
            depth=policy.undo_depth,
            most_bytes=policy.undo_max_bytes,
            processes=policy.subprocess_execution,
        ),
        tools=_tooling(policy, kernel.audit),
        addresses=_addresses(ground),
    )
    session.start()
    return session


def _addresses(ground: Ground) -> tuple[str, ...]:
    """Return what a relay connects to; nothing where none is in force."""
    listed = ground.policy.network_access
    return listed if ground.told.plan.relayed and isinstance(listed, tuple) else ()


def _tooling(policy: Policy, audit: Audit) -> Tooling | None:
    """Return what a session is told of the operator's tools; None where there are none."""
    if not policy.tools:
        return None
    from cellblock.host.tools.broker import Limits  # noqa: PLC0415 - most kernels have none
    from cellblock.host.tools.workshop import Settings as ToolSettings  # noqa: PLC0415

    settings = ToolSettings(
        entries=policy.tools,
        timeout=policy.tool_timeout,
        timeouts=policy.tool_timeouts,
        max_bytes=policy.tool_max_bytes,
        policy=policy.name,
    )
    limits = Limits(
        in_flight=policy.tool_max_in_flight,
        calls=policy.tool_max_calls,
        max_bytes=policy.tool_max_bytes,
    )
    return Tooling(settings, limits, audit.called)


def _end(prestarted: list[tuple[socket.socket, int]]) -> None:
    while prestarted:
        launch.drop(*prestarted.pop())
