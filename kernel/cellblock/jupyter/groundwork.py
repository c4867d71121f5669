"""What a kernel stands on: its folder, its policy, what enforces that, what a zygote is told.

Imported first, and little with it: a zygote that a backend wraps can't start before this is laid.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from cellblock import backends
from cellblock.errors import BackendError, PolicyError
from cellblock.host import launch
from cellblock.host.environment import guest_environment
from cellblock.host.history import default_path
from cellblock.jupyter.app import LEAST_FILES
from cellblock.policy import load
from cellblock.policy.paths import within
from cellblock.policy.vocabulary import SESSION_NAME
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from cellblock.backends import Chosen
    from cellblock.backends.base import Backend, View
    from cellblock.jupyter.app import Options
    from cellblock.policy.model import Policy

#: Descriptors of the host's for a copy of the guest: a socket, two pipes, a pidfd.
_FILES_OF_A_COPY: Final = 4
#: Files in a run-time folder that open a kernel or a server.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What makes the command that starts a zygote another; equal ones make the same."""

    backend: Backend
    view: View

    def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
        """Return the command that starts ``argv`` behind what the backend puts in front."""
        return self.backend.command(argv, self.view)

    @property
    def stays(self) -> bool:
        """Whether what is put in front stays there; else it becomes the zygote."""
        return self.backend.stays

    @property
    def words(self) -> tuple[str, ...]:
        """What is put in front, where a later kernel may start its zygote in the same."""
        return self.backend.words(launch.zygote_argv(0), self.view)


@dataclass(frozen=True, slots=True)
class Ground:
    """A policy that can be kept, what keeps it, and what the zygote is told of it."""

    policy: Policy
    chosen: Chosen
    told: messages.Prepare
    wrap: Wrapping | None
    project: Path
    #: The policy that the kernel was started with, where its notebook has made it narrower.
    operators: Policy | None = None
    #: Why it is not known whether the notebook does, where that is so.
    notice: str = ""


def lay(options: Options, started: str, private: str) -> Ground | PolicyError | BackendError:
    """Read the policy and decide what keeps it; return why nothing may run, where that is so."""
    project, scratch = Path(started), Path(private)
    try:
        policy = load.load(
            options.policy,
            project=project,
            scratch=scratch,
            allow_unsafe=options.allow_unsafe,
        )
        _check_file_limit(policy)
        narrowed, notice = _narrowed(policy, project, scratch)
        # Not probed: the guest's own witness tries the locks before the first user byte.
        chosen = backends.choose(narrowed, probe=False)
        laid = _laid(narrowed, policy, chosen, options, scratch, project)
    except (PolicyError, BackendError) as exc:
        return exc
    return dataclasses.replace(laid, operators=policy, notice=notice)


def relaid(ground: Ground, policy: Policy, options: Options) -> Ground:
    """Return the same ground under a narrower policy. Raises PolicyError, BackendError."""
    scratch, operators = Path(ground.told.scratch), ground.operators or ground.policy
    laid = _laid(policy, operators, ground.chosen, options, scratch, ground.project)
    return dataclasses.replace(laid, operators=ground.operators)


def _laid(  # noqa: PLR0913, PLR0917 - what ground is made of
    policy: Policy,
    operators: Policy,
    chosen: Chosen,
    options: Options,
    scratch: Path,
    project: Path,
) -> Ground:
    folders: Any = {"project": project, "scratch": scratch}
    private = _private(options.connection_file, policy)
    plan, wrap = planned(policy, chosen.backend, private=private, **folders)
    _check_apart(policy, plan)
    told = told_of(policy, plan, project, scratch)
    told = replace(told, cwd=_started_in(told.cwd, plan, operators, project))
    _check_text(told, policy.name, scratch)
    return Ground(policy, chosen, told, wrap, project)


def _started_in(cwd: str, plan: messages.Plan, operators: Policy, project: Path) -> str:
    """Return where guests begin: in the project also when only a part of it is left to be read."""
    roots = (*plan.read_roots, *plan.write_roots)
    part = any(within(root, str(project)) for root in roots)
    return str(project) if part and _reads(operators, project) else cwd


def _reads(policy: Policy, project: Path) -> bool:
    return any(project.is_relative_to(root) for root in policy.filesystem_read_roots)


def _narrowed(policy: Policy, project: Path, scratch: Path) -> tuple[Policy, str]:
    """Return what the notebook that the kernel is for leaves of a policy; see ``Ground.notice``."""
    if SESSION_NAME not in os.environ:
        return policy, ""
    from cellblock.policy import notebook  # noqa: PLC0415 - not for every kernel

    file = notebook.file_of(os.environ)
    if file is None:
        return policy, ""
    return notebook.of_file(file, policy, project=project, scratch=scratch)


def foresee(options: Options, started: str, private: str) -> Wrapping | None:
    """Return what ``lay`` will most likely have a zygote wrapped in, some time before it does."""
    project, scratch = Path(started), Path(private)
    try:
        policy = load.foresee(options.policy, project=project, scratch=scratch)
        chosen = backends.choose(policy, probe=False, guess=True)
        folders: Any = {"project": project, "scratch": scratch}
        hidden = _private(options.connection_file, policy)
        return planned(policy, chosen.backend, private=hidden, **folders)[1]
    except Exception:  # noqa: BLE001 - whatever is wrong with a policy, ``lay`` finds it
        return None


def planned(
    policy: Policy, backend: Backend, *, private: Sequence[Path], project: Path, scratch: Path
) -> tuple[messages.Plan, Wrapping | None]:
    """Return what guests lock, and what is put around their zygote, if anything is.

    ``private`` are places that no guest reads, whatever the policy says.
    """
    folders: Any = {"scratch": scratch, "project": project, "private": private}
    plan = backends.plan(policy, backend, **folders)
    if not backend.wraps:
        return plan, None
    view = backends.view(policy, plan, **folders)
    around = replace(plan, unseen=backend.unseen(view), bounded=backend.bounded(view))
    return around, Wrapping(backend, view)


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


def _private(connection_file: str, policy: Policy) -> list[Path]:
    """Return what no guest reads: history, kept output, audit logs, and keys, others' beside ours.

    Keys of kernels that start later are not readable either: see ``backends.roots``.
    """
    keys = Path(connection_file)
    beside = [found for name in _KEYS for found in keys.parent.glob(name)]
    own = [default_path().parent, Path(policy.audit.folder)]
    return [*own, keys, *beside]


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
    return messages.Prepare(
        rules=policy.rules().to_builtins(),
        preload=policy.preload,
        pre_imported=policy.pre_imported,
        policy_name=policy.name,
        ipython_dir=str(scratch / ".ipython"),
        scratch=str(scratch),
        cwd=str(project if _reads(policy, project) else scratch),
        environment=guest_environment(policy, scratch, os.environ),
        plan=plan,
        charts=_CHARTS[policy.display],
        tool_max_in_flight=policy.tool_max_in_flight,
        tool_max_bytes=policy.tool_max_bytes,
    )
