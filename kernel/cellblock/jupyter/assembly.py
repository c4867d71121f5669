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
from cellblock.host.kept import Kept
from cellblock.host.monitor import Bounds
from cellblock.host.session import Session
from cellblock.host.snapshots import Settings
from cellblock.host.tools import Tooling
from cellblock.jupyter import sockets
from cellblock.jupyter.app import LEAST_FILES
from cellblock.jupyter.kernel import Kernel
from cellblock.jupyter.messages import Composer
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.jupyter.views import Views
from cellblock.policy import load
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
    kernel = Kernel(reactor, bound, composer, History(default_path()), views, kept)
    reactor.call_later(_SWEEP, kept.sweep)
    if prepared is None:
        _end(prestarted)
    else:
        policy, prepare = prepared
        kernel.session = _session(policy, prepare, reactor, kernel, prestarted)

    def cleanup() -> None:
        kernel.history.close()  # first: the rest may take long, and we may be killed over it
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
            private=_private(options.connection_file),
        )
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
        tool_max_in_flight=policy.tool_max_in_flight,
        tool_max_bytes=policy.tool_max_bytes,
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
        snapshots=Settings(
            mode=policy.snapshots,
            depth=policy.undo_depth,
            most_bytes=policy.undo_max_bytes,
            processes=policy.subprocess_execution,
        ),
        tools=_tooling(policy),
    )
    session.start()
    return session


def _tooling(policy: Policy) -> Tooling | None:
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
    return Tooling(settings, limits)


def _end(prestarted: list[tuple[socket.socket, int]]) -> None:
    for sock, pid in prestarted:
        sock.close()
        os.waitpid(pid, 0)
    prestarted.clear()
