"""What cells stand on: their folder, their policy, what enforces that, what a zygote is told.

Imported first, and little with it: a zygote that a backend wraps can't start before this is laid.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec.structs import replace

from cellblock.backends.choose import choose
from cellblock.backends.plan import make_plan, make_view, outermost, preloaded
from cellblock.errors import BackendError, PolicyError, StartError
from cellblock.host.guests import spawn
from cellblock.host.session.history import default_path
from cellblock.policy import load, paths
from cellblock.policy.folders import data_folder, state_folder
from cellblock.policy.paths import links, within
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from cellblock.backends.base import Backend, View
    from cellblock.backends.choose import Chosen
    from cellblock.host.services.operations.catalog import OperationGrants
    from cellblock.policy.model import Policy


# What keeps a policy that can be read from holding here: limits, names, places in cells' reach.

#: Descriptors of the host's for a copy of the guest: a socket, two pipes, a pidfd.
_FILES_OF_A_COPY: Final = 4
#: What is not for cells' eyes.
_SECRETS: Final = {"approval.key": "key of approvals", "audit.folder": "audit log"}


def check_file_limit(policy: Policy) -> None:
    """Raise PolicyError where fewer files may be open than the policy's snapshots take."""
    limit = os.sysconf("SC_OPEN_MAX")
    copies = 0 if policy.snapshots == "off" else policy.undo_depth
    if 0 <= limit < spawn.LEAST_FILES + copies * _FILES_OF_A_COPY:
        most = max(0, limit - spawn.LEAST_FILES) // _FILES_OF_A_COPY
        raise PolicyError(
            f"only {limit} files may be open, and each snapshot takes {_FILES_OF_A_COPY}",
            file=policy.name,
            key="undo_depth",
            value=str(policy.undo_depth),
            remedy=f"Raise the limit: ulimit -n 1024. Or have undo_depth be {most}.",
        )


def check_apart(policy: Policy, plan: messages.Plan) -> None:
    """Raise PolicyError for an audit log or a key that lies in what is always readable.

    And for manifests or templates in what cells may write.
    """
    readable = (*plan.read_roots, *plan.write_roots)
    by_host = paths.written_by_host(policy).values()
    writable = (*plan.write_roots, *itertools.chain.from_iterable(by_host))
    secret = {"audit.folder": policy.audit.folder} if policy.audit.log else {}
    deciding = [("templates.folders", folder) for folder in policy.templates.folders]
    if policy.admission == "approved":
        secret["approval.key"] = policy.approval.key
        deciding.append(("approval.folder", policy.approval.folder))
    for key, path in secret.items():
        _refuse_within(path, readable, f"cells could read the {_SECRETS[key]}", key, policy)
    for key, path in deciding:
        _refuse_within(path, writable, "cells could write what decides", key, policy)


def _refuse_within(path: str, roots: Sequence[str], what: str, key: str, policy: Policy) -> None:
    """Raise PolicyError where ``path``, a link on its way or its end lies in one of ``roots``."""
    names = (path, os.path.realpath(path), *(link for link, _ in links([path])))
    for root in roots:
        if any(within(name, root) for name in names):
            raise PolicyError(
                f"{what}: {root} is within their reach",
                file=policy.name,
                key=key,
                value=repr(path),
                remedy="Choose a folder elsewhere.",
            )


def check_artifacts(policy: Policy, told: messages.Prepare) -> None:
    """Raise PolicyError for files to be copied out that no cell can write, or not safely."""
    if not policy.artifact_export_paths:
        return
    from cellblock.host.services import artifacts  # noqa: PLC0415 - most name none

    file, roots, folder = policy.name, written(policy), policy.artifact_folder
    for pattern in policy.artifact_export_paths:
        absolute = artifacts.rooted(pattern, told.cwd)
        states = artifacts.Patterns([absolute])
        if not any(states.leads_on(states.at(root)) for root in roots):
            what, key = "cells can't write what this means", "artifact_export_paths"
            remedy = _fillable(artifacts.begins_in(absolute), roots, told.scratch)
            raise PolicyError(what, file=file, key=key, value=repr(pattern), remedy=remedy)
    theirs = (*roots, *paths.written_by_host(policy).get("ops.write_file.roots", ()))
    if root := next((root for root in theirs if within(folder, root)), None):
        what, key = f"cells could change what was copied out: {root} is writable", "artifact_folder"
        remedy = "Choose a folder elsewhere."
        raise PolicyError(what, file=file, key=key, value=repr(folder), remedy=remedy)


def _fillable(folder: str, roots: Sequence[str], scratch: str) -> str:
    """Say what has cells write the files of a pattern that begins in ``folder``.

    A write root that may be missing, as preset data's work folder, is none until it is made.
    """
    named = ", ".join(root.replace(scratch, "{scratch}", 1) for root in roots)
    place = Path(folder)
    missing = next((one for one in (*reversed(place.parents), place) if not one.exists()), None)
    make = f"Make the folder {missing}, if the policy lets cells write there. Or n"
    return f"{make if missing else 'N'}ame what is beneath a write root: {named}."


def written(policy: Policy) -> tuple[str, ...]:
    """Return the folders that cells may write, canonical and none within another."""
    return outermost(policy.filesystem_write_roots)


def check_text(told: messages.Prepare, policy_name: str, scratch: Path) -> None:
    """Raise PolicyError for a path, or a variable's value, that the wire can't carry."""
    try:
        frames.encode(told)
    except UnicodeEncodeError as exc:
        remedy = "Give the folder a name in UTF-8, or take it out of the policy."
        if str(scratch) in exc.object:
            remedy = "Set TMPDIR to a folder with a name in UTF-8."
        what, value = "a name that cells need is not UTF-8", ascii(exc.object)
        raise PolicyError(what, file=policy_name, key="", value=value, remedy=remedy) from None


# The guest's environment: made here, nothing inherited but what the policy names.


class _Policy(Protocol):
    @property
    def env_var_access(self) -> tuple[str, ...]: ...


def guest_environment(
    policy: _Policy,
    scratch: Path,
    host: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of a guest.

    The fixed values win over what the policy passes on: a guest's HOME is its scratch folder.
    """
    passed = {name: host[name] for name in policy.env_var_access if name in host}
    folder = str(scratch)
    return passed | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": f"{folder}/.matplotlib",
    }


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked for: a policy, by its name or file or as it is, and where it is to hold.

    ``project`` is the folder that cells are run for, ``scratch`` the one that they have for
    themselves. ``private`` are places that no guest reads, whatever the policy says.
    """

    policy: str | Policy
    project: Path
    scratch: Path
    allow_unsafe: bool = False
    private: tuple[Path, ...] = ()
    #: What cells find in ``inputs``: a file, or each value as JSON.
    inputs: str | dict[str, str] = field(default_factory=dict)
    #: How to allow what has to be asked for, and whether the user may be asked about that.
    ask: str = load.ASK
    asks: bool = False
    #: The notebook that cells are of, which may make the policy narrower.
    notebook: Path | None = None


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
        return self.backend.repeatable(spawn.zygote_argv(0), self.view)


@dataclass(frozen=True, slots=True)
class Ground:
    """A policy that can be kept, what keeps it, and what the zygote is told of it."""

    policy: Policy
    chosen: Chosen
    told: messages.Prepare
    wrap: Wrapping | None
    project: Path
    #: What operations of the host's may touch; None where none is granted.
    operations: OperationGrants | None = None
    #: The host's own places, and the front's.
    private: tuple[Path, ...] = ()
    #: The policy as it was asked for, where a notebook has made it narrower.
    operators: Policy | None = None
    #: The notebook that asked for that.
    notebook: str = ""
    #: Why it is not known whether the notebook does, where that is so.
    notice: str = ""
    #: What has to be asked for, where that is left to the user: no guest may start before.
    condition: PolicyError | None = None
    #: Where the policy is, for messages: its file as it was named, or a preset's name.
    file: str = ""

    def with_artifacts(self, folder: str) -> Ground:
        """Return one that has files copied there; raises PolicyError where they can't be."""
        policy = self.policy.replace(artifact_folder=folder)
        check_apart(policy, self.told.plan)
        check_artifacts(policy, self.told)
        return dataclasses.replace(self, policy=policy)


def lay(terms: Terms) -> Ground | PolicyError | BackendError:
    """Read the policy and decide what keeps it; return why nothing may run, where that is so."""
    name = ""
    try:
        policy = _policy(terms)
        name = policy.name
        check_file_limit(policy)
        narrowed, notice = _narrowed(policy, terms)
        condition = _condition(narrowed, terms)
        # Not probed: the guest's own witness tries the locks before the first user byte.
        chosen = choose(narrowed, "attempt")
        base = _Base(chosen, terms.project, terms.scratch, tuple(_private(terms, policy)))
        wanted = _begun_in(policy, terms.project, terms.scratch)
        laid = _laid(base, narrowed, wanted, _inputs(terms, policy))
        check_artifacts(policy, laid.told)
    except BackendError as exc:
        return exc
    except PolicyError as exc:
        exc.file = _named(terms) if exc.file == name else exc.file
        return exc
    return dataclasses.replace(
        laid,
        operators=policy if narrowed != policy else None,
        notebook=str(terms.notebook or ""),
        notice=notice,
        condition=condition,
        file=_named(terms),
    )


def relaid(ground: Ground, policy: Policy) -> Ground:
    """Return the same ground under a narrower policy. Raises PolicyError, BackendError."""
    told = ground.told
    base = _Base(ground.chosen, ground.project, Path(told.scratch), ground.private)
    laid = _laid(base, policy, told.cwd, told.inputs)
    return dataclasses.replace(laid, operators=ground.operators, file=ground.file)


@dataclass(frozen=True, slots=True)
class _Base:
    """What of a ground stays, however narrow its policy becomes."""

    chosen: Chosen
    project: Path
    scratch: Path
    private: tuple[Path, ...]


def _laid(base: _Base, policy: Policy, wanted: str, inputs: dict[str, str]) -> Ground:
    """Return the ground of a policy; guests begin in ``wanted`` where they read any of that."""
    project, scratch, private = base.project, base.scratch, base.private
    operations = _operations(policy, project, private)
    folders: Any = {"project": project, "scratch": scratch}
    plan, wrap = planned(policy, base.chosen.backend, private=private, **folders)
    check_apart(policy, plan)
    told = told_of(policy, plan, project, scratch, inputs)
    told = replace(told, cwd=wanted if _sees(plan, wanted) else told.cwd)
    check_text(told, policy.name, scratch)
    return Ground(policy, base.chosen, told, wrap, project, operations, private)


def _sees(plan: messages.Plan, folder: str) -> bool:
    """Say whether a folder, or only a part of it, can be read."""
    roots = (*plan.read_roots, *plan.write_roots)
    return any(within(root, folder) or within(folder, root) for root in roots)


def _begun_in(policy: Policy, project: Path, scratch: Path) -> str:
    reads_project = any(project.is_relative_to(root) for root in policy.filesystem_read_roots)
    return str(project if reads_project else scratch)


def _narrowed(policy: Policy, terms: Terms) -> tuple[Policy, str]:
    """Return what the notebook that cells are of leaves of a policy; see ``Ground.notice``."""
    if terms.notebook is None:
        return policy, ""
    from cellblock.policy import narrow_requests  # noqa: PLC0415 - not for every kernel

    return narrow_requests.of_file(
        terms.notebook, policy, project=terms.project, scratch=terms.scratch
    )


def foresee(terms: Terms) -> Wrapping | None:
    """Return what ``lay`` will most likely have a zygote wrapped in, some time before it does."""
    try:
        policy = load.foresee(_named(terms), project=terms.project, scratch=terms.scratch)
        chosen = choose(policy, "glance")
        folders: Any = {"project": terms.project, "scratch": terms.scratch}
        return planned(policy, chosen.backend, private=_private(terms, policy), **folders)[1]
    except Exception:  # noqa: BLE001 - whatever is wrong with a policy, ``lay`` finds it
        return None


def _policy(terms: Terms) -> Policy:
    """Return the policy. Raises PolicyError, also where nobody is there to allow it."""
    # Whether it is allowed is looked at below.
    rest: dict[str, Any] = {"allow_unsafe": True, "scratch": terms.scratch}
    if isinstance(terms.policy, str):
        policy = load.load(terms.policy, project=terms.project, **rest)
    else:
        policy = load.checked(terms.policy, project=terms.project, **rest)
    condition = _condition(policy, terms)
    if condition is not None and not (terms.asks and policy.approvals == "prompt"):
        raise condition
    return policy


def _condition(policy: Policy, terms: Terms) -> PolicyError | None:
    """Return what has to be asked for of a policy, and was not."""
    if terms.allow_unsafe:
        return None
    return load.condition(policy, _named(terms), ask=terms.ask, asks=terms.asks)


def _inputs(terms: Terms, policy: Policy) -> dict[str, str]:
    if not isinstance(terms.inputs, str):
        return terms.inputs
    from cellblock.host.session import history  # noqa: PLC0415 - most kernels have none

    return history.from_file(terms.inputs, policy.filesystem_write_roots)


def _named(terms: Terms) -> str:
    return terms.policy if isinstance(terms.policy, str) else terms.policy.name


def _private(terms: Terms, policy: Policy) -> list[Path]:
    """Return what no guest reads: history, kept output, logs, approvals, what is the front's own.

    Keys of kernels that start later are not readable either: see ``backends.plan``.
    """
    own = [default_path().parent, Path(policy.audit.folder)]
    approvals = [Path(data_folder()), Path(policy.approval.key), Path(state_folder())]
    return [*own, *approvals, *terms.private]


def planned(
    policy: Policy, backend: Backend, *, private: Sequence[Path], project: Path, scratch: Path
) -> tuple[messages.Plan, Wrapping | None]:
    """Return what guests lock, and what is put around their zygote, if anything is.

    ``private`` are places that no guest reads, whatever the policy says.
    """
    folders: Any = {"scratch": scratch, "project": project, "private": private}
    plan = make_plan(policy, backend, **folders)
    if not backend.wraps:
        return plan, None
    view = make_view(policy, plan, **folders)
    around = {name: getattr(backend, name)(view) for name in ("unseen", "mounted", "bounded")}
    return replace(plan, **around), Wrapping(backend, view)


def _operations(policy: Policy, project: Path, private: Sequence[Path]) -> OperationGrants | None:
    if policy.ops is None:
        return None
    from cellblock.host.services.operations import catalog  # noqa: PLC0415 - most policies grant none

    return catalog.grants_of(policy, project=project, private=private)


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
    inputs: dict[str, str] | None = None,
) -> messages.Prepare:
    """Return what a zygote is told of a policy, and of what cells are given."""
    return messages.Prepare(
        rules=policy.rules().to_builtins(),
        preload=policy.preload,
        pre_imported=policy.pre_imported,
        policy_name=policy.name,
        ipython_dir=str(scratch / ".ipython"),
        scratch=str(scratch),
        cwd=_begun_in(policy, project, scratch),
        environment=guest_environment(policy, scratch, os.environ),
        plan=plan,
        charts=_CHARTS[policy.display],
        tool_max_in_flight=policy.tool_max_in_flight,
        tool_max_bytes=policy.tool_max_bytes,
        inputs=inputs or {},
        preloaded=preloaded(policy, plan),
    )


# The guest's private folder.


def make_scratch() -> str:
    """Make it and return its path, without links. Raises StartError."""
    try:
        folder = os.path.realpath(tempfile.mkdtemp(prefix="cellblock-"))
    except OSError as exc:
        raise StartError(f"no folder for temporary files: {exc}") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        os.rmdir(folder)  # noqa: PTH106 - start-up: without pathlib
        what = f"a folder made in {tempfile.gettempdir()} can't be used, though it is ours"
        raise StartError(f"{what}. Give its owner all rights: umask 077.")
    return folder
