"""Putting a kernel together from its policy, its backend and its sockets."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import zmq

from cellblock import __version__, backends
from cellblock.errors import BackendError, PolicyError, StartError
from cellblock.guest import removal
from cellblock.host import launch
from cellblock.host.audit import records
from cellblock.host.audit.log import Log
from cellblock.host.audit.trail import Audit
from cellblock.host.environment import guest_environment
from cellblock.host.history import History, default_path
from cellblock.host.kept import Kept
from cellblock.host.monitor import Bounds
from cellblock.host.session import Session
from cellblock.host.snapshots import Settings
from cellblock.jupyter import sockets
from cellblock.jupyter.app import LEAST_FILES
from cellblock.jupyter.kernel import Kernel
from cellblock.jupyter.messages import Composer
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.jupyter.views import Views
from cellblock.policy import load
from cellblock.policy.paths import state_folder, within
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.jupyter.app import Options
    from cellblock.policy.model import Policy


#: Seconds after which what killed kernels left is removed: past the first reply.
_SWEEP = 1.0
#: Descriptors of the host's for a copy of the guest: a socket, two pipes, a pidfd.
_FILES_OF_A_COPY: Final = 4
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
    kept = Kept(default_path().parent / "output", views.kept_bytes())
    audit = _audit(views)
    kernel = Kernel(reactor, bound, composer, History(default_path()), views, kept, audit)
    reactor.call_later(_SWEEP, kept.sweep)
    if prepared is None:
        _end(prestarted)
    else:
        policy, prepare = prepared
        _enter_start(audit, load.unplaced(policy, scratch), views.backend, project)
        kernel.session = _session(policy, prepare, reactor, kernel, prestarted)

    def cleanup() -> None:
        kernel.history.close()  # first: the rest may take long, and we may be killed over it
        audit.close()
        kept.close()
        gone = kernel.session is None or kernel.session.close()
        if gone:  # else its zygote is still at it
            removal.remove(str(scratch))
        context.destroy(linger=200)

    return reactor, kernel, cleanup


def _scratch() -> Path:
    """Return the guest's private folder. Raises StartError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="cellblock-"))
    except OSError as exc:
        raise StartError(f"no folder for temporary files: {exc}") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        folder.rmdir()
        what = f"a folder made in {folder.parent} can't be used, though it is ours"
        raise StartError(f"{what}. Give its owner all rights: umask 077.")
    return folder


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
        _check_file_limit(policy)
        # At a glance: the guest's own witness tries the locks before the first user byte.
        chosen = backends.choose(policy, probe=False)
        plan = backends.plan(
            policy,
            chosen.backend,
            scratch=scratch,
            project=project,
            private=[*_private(options.connection_file), Path(policy.audit.folder)],
        )
        _check_apart(policy, plan)
        told = _told(policy, plan, project, scratch)
        _check_text(told, policy.name, scratch)
        views.configured(policy, chosen)
    except PolicyError as exc:
        views.refuse(exc)
        return None
    except BackendError as exc:
        views.fail(str(exc))
        return None
    return policy, told


def _check_file_limit(policy: Policy) -> None:
    """Raise PolicyError where fewer files may be open than the policy's snapshots take."""
    limit = os.sysconf("SC_OPEN_MAX")
    copies = 0 if policy.snapshots == "off" else policy.undo_depth
    if 0 <= limit < LEAST_FILES + copies * _FILES_OF_A_COPY:
        most = max(0, limit - LEAST_FILES) // _FILES_OF_A_COPY
        raise PolicyError(
            f"only {limit} files may be open, and each snapshot takes {_FILES_OF_A_COPY}",
            file=policy.name,
            key="undo_depth",
            value=str(policy.undo_depth),
            remedy=f"Raise the limit: ulimit -n 1024. Or have undo_depth be {most}.",
        )


def _check_apart(policy: Policy, plan: messages.Plan) -> None:
    """Raise PolicyError for an audit log that lies in what is always readable."""
    folder = policy.audit.folder
    for root in (*plan.read_roots, *plan.write_roots):
        if policy.audit.log and within(folder, root):
            raise PolicyError(
                f"cells could read the audit log: {root} is readable",
                file=policy.name,
                key="audit.folder",
                value=repr(folder),
                remedy="Choose a folder elsewhere.",
            )


def _check_text(told: messages.Prepare, policy_name: str, scratch: Path) -> None:
    """Raise PolicyError for a path, or a variable's value, that the wire can't carry."""
    try:
        frames.encode(told)
    except UnicodeEncodeError as exc:
        remedy = "Give the folder a name in UTF-8, or take it out of the policy."
        if str(scratch) in exc.object:
            remedy = "Set TMPDIR to a folder with a name in UTF-8."
        what, value = "a name that cells need is not UTF-8", ascii(exc.object)
        raise PolicyError(what, file=policy_name, key="", value=value, remedy=remedy) from None


def _private(connection_file: Path) -> list[Path]:
    """Return what no guest reads: history, kept output, and keys, those beside our own too.

    Keys of kernels that start later are not readable either: see ``backends.roots``.
    """
    beside = [found for name in _KEYS for found in connection_file.parent.glob(name)]
    return [default_path().parent, Path(state_folder()), connection_file, *beside]


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
        )
    )


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
        audit=kernel.audit,
        snapshots=Settings(
            mode=policy.snapshots,
            depth=policy.undo_depth,
            most_bytes=policy.undo_max_bytes,
            processes=policy.subprocess_execution,
        ),
    )
    session.start()
    return session


def _end(prestarted: list[tuple[socket.socket, int]]) -> None:
    for sock, pid in prestarted:
        sock.close()
        os.waitpid(pid, 0)
    prestarted.clear()
