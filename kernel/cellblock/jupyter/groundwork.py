"""What a kernel stands on: its folder, its policy, what enforces that, what a zygote is told.

Imported first, and little with it: a zygote that a backend wraps can't start before this is laid.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from cellblock import backends
from cellblock.errors import BackendError, PolicyError, StartError
from cellblock.host.environment import guest_environment
from cellblock.host.history import default_path
from cellblock.jupyter.app import LEAST_FILES
from cellblock.policy import load
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.backends import Chosen
    from cellblock.jupyter.app import Options
    from cellblock.policy.model import Policy

    #: Makes the command that starts a zygote another.
    Wrap = Callable[[list[str]], list[str]]

#: Descriptors of the host's for a copy of the guest: a socket, two pipes, a pidfd.
_FILES_OF_A_COPY: Final = 4
#: Files in a run-time folder that open a kernel or a server.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


@dataclass(frozen=True, slots=True)
class Ground:
    """A policy that can be kept, what keeps it, and what the zygote is told of it."""

    policy: Policy
    chosen: Chosen
    told: messages.Prepare
    wrap: Wrap | None


@dataclass(frozen=True, slots=True)
class Groundwork:
    """The guests' folder, and the ground; or why nothing may run."""

    scratch: Path
    ground: Ground | PolicyError | BackendError


def lay(options: Options, project: Path) -> Groundwork:
    """Read the policy and decide what keeps it. Raises StartError."""
    scratch = _scratch()
    try:
        return Groundwork(scratch, _ground(options, project, scratch))
    except (PolicyError, BackendError) as exc:
        return Groundwork(scratch, exc)


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


def _ground(options: Options, project: Path, scratch: Path) -> Ground:
    policy = load.load(
        options.policy,
        project=project,
        scratch=scratch,
        allow_unsafe=options.allow_unsafe,
    )
    _check_file_limit(policy)
    # At a glance: the guest's own witness tries the locks before the first user byte.
    chosen = backends.choose(policy, probe=False)
    private = _private(options.connection_file)
    folders: Any = {"scratch": scratch, "project": project, "private": private}
    plan = backends.plan(policy, chosen.backend, **folders)
    wrap = None
    if chosen.backend.wraps:
        view = backends.view(policy, plan, **folders)
        plan = replace(plan, unseen=chosen.backend.unseen(view))
        wrap = partial(chosen.backend.wrap, view=view)
    told = told_of(policy, plan, project, scratch)
    _check_text(told, policy.name, scratch)
    return Ground(policy, chosen, told, wrap)


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


def told_of(
    policy: Policy,
    plan: messages.Plan,
    project: Path,
    scratch: Path,
) -> messages.Prepare:
    """Return what a zygote is told of a policy."""
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
