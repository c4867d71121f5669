"""The config of a session: its policy, the backend that enforces it, the message to its zygote.

``resolve`` makes the config from a front's ``SessionOptions``; ``under_policy`` makes the config of
a narrower policy; the methods of ``SessionConfig`` make those of forks and of a pool's sandboxes.

This module is imported before the zygote of a wrapping backend is started, so it imports little.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from cellblock.backends.base import choose
from cellblock.backends.layers import cover, make_layers, why_not
from cellblock.backends.plan import (
    PROC,
    filled,
    make_plan,
    make_view,
    preloaded,
    real,
    standing,
)
from cellblock.errors import BackendError, FrameTooLargeError, InputError, PolicyError
from cellblock.host.files import AcceptedPolicies
from cellblock.host.guests import background, spawn
from cellblock.host.services.operations import catalog
from cellblock.host.session.history import default_path, inputs_from_file
from cellblock.policy import load, paths
from cellblock.policy.credentials import hosts_in_words
from cellblock.policy.folders import cache_folder, data_folder
from cellblock.policy.model import PATHS
from cellblock.policy.paths import links, within
from cellblock.policy.vocabulary import base_of
from cellblock.wire import frames, messages
from cellblock.wire.messages import SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cellblock.backends.base import Backend, Chosen, View
    from cellblock.host.services.changes import Staged
    from cellblock.host.services.operations.grants import OperationGrants
    from cellblock.host.session.granted_services import GrantedServices
    from cellblock.host.session.types import SessionSettings
    from cellblock.policy.model import Policy


#: Descriptors that the host needs for each copy of the guest: a socket, two pipes, a pidfd.
_FILES_OF_A_COPY: Final = 4
#: The folder in the project that cells write to if nothing can be staged.
WORK: Final = "work"
#: Files that the patterns of a narrowing's ``read_deny_paths`` may name: each is looked up and
#: hidden by itself.
MOST_NAMED: Final = 1_000
#: The folders in which guests look for programs.
_SEARCH_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


class SessionOptions(Struct, frozen=True):
    """What a front asks for: a policy and the folders that it applies to.

    ``policy`` is a preset's name, a file or a value. ``given_project`` is the folder that cells are
    run for, ``scratch`` a folder that they have for themselves. Without a project, scratch is all
    that cells have, and the policy's ``{project}`` grants nothing. ``private`` are paths that no
    guest may read, whatever the policy says.
    """

    policy: str | Policy
    given_project: Path | None
    scratch: Path
    allow_unsafe: bool = False
    private: tuple[Path, ...] = ()
    #: What cells find in ``inputs``: the path of a file, or each value as JSON text.
    inputs: str | dict[str, str] = field(default_factory=dict)
    #: The text that says how to allow an unsafe policy, and whether the user may be asked.
    ask: str = load.ASK
    asks: bool = False
    #: The notebook that the cells belong to; it may narrow the policy.
    notebook: Path | None = None
    #: Whether cells have a home folder that is staged like the project. Not for sandboxes:
    #: programs exchange files with cells in the scratch folder, which is their home folder.
    stages_home: bool = False
    #: Whether one zygote may have guests of several sessions: those of a pool's sandboxes.
    pooled: bool = False

    @property
    def project(self) -> Path:
        """The folder that cells are run for, or their scratch folder if there is none."""
        return self.given_project or self.scratch

    @property
    def policy_name(self) -> str:
        """What messages call the policy: the name of its file as it was given, or of the preset."""
        return self.policy if isinstance(self.policy, str) else self.policy.name

    @property
    def policy_file(self) -> str:
        """The policy's file as it was given, or its preset's name; empty for any other policy."""
        name = self.policy_name
        return name if isinstance(self.policy, str) or base_of(name) else ""


class Wrapping(Struct, frozen=True):
    """Makes the command that starts a zygote behind a backend. Equal values make equal commands."""

    backend: Backend
    view: View

    def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
        """Return the command that starts ``argv`` behind the backend."""
        return self.backend.command(argv, self.view)

    @property
    def stays(self) -> bool:
        """Whether the backend's process stays in front of the zygote, or else becomes it."""
        return self.backend.stays

    @property
    def words(self) -> tuple[str, ...]:
        """The backend's part of the command, if a later kernel may start its zygote with it."""
        return self.backend.repeatable(spawn.zygote_argv(0), self.view)


class SessionConfig(Struct, frozen=True):
    """A policy, the backend that can enforce it, and the message for the zygote."""

    policy: Policy
    chosen: Chosen
    prepare: messages.Prepare
    wrap: Wrapping | None
    project: Path
    #: What the host's operations may touch; None if the policy grants no operation.
    operations: OperationGrants | None = None
    #: Paths of the host and of the front that no guest may read.
    private: tuple[Path, ...] = ()
    #: Files beneath the policy's roots that are denied by their names.
    secrets: tuple[Path, ...] = ()
    #: The operator's policy, if a notebook or a cell narrowed it, and that notebook.
    operators: Policy | None = None
    notebook: str = ""
    #: What the user is told about the policy at the start, or nothing.
    notice: str = ""
    #: What the user must allow before a guest may start.
    condition: PolicyError | None = None
    #: The policy's file or preset as it was given, for messages.
    file: str = ""
    #: Names of the kernel, by which a later one adopts its staged changes, and the staged changes
    #: that this kernel adopted.
    names: tuple[str, ...] = ()
    adopted: Staged | None = None
    #: Environment variables that a program gives cells. The program says that none is a secret.
    variables: dict[str, str] = field(default_factory=dict)
    #: Whether staged changes are shown to the user and kept. A fork leaves that to its session.
    lists_staged: bool = True

    @property
    def has_project(self) -> bool:
        """Whether cells are run for a folder of the user."""
        return self.project != self.scratch

    @property
    def scratch(self) -> Path:
        """The folder that the session's cells have for themselves."""
        return Path(self.prepare.scratch)

    def with_artifacts(self, folder: str) -> SessionConfig:
        """Return a config that copies artifacts to ``folder``. Raises PolicyError if it can't."""
        changed = replace(self, policy=self.policy.replace(artifact_folder=folder))
        check_out_of_reach(changed.policy, self.prepare.plan)
        if services := granted_services(changed):
            services.check_artifacts()
        return changed

    def with_variables(self, variables: Mapping[str, str]) -> SessionConfig:
        """Return a config whose guests have these environment variables, which are not secret.

        No zygote is told of them. Raises InputError for a variable that can't be given: its name or
        value is impossible, or cellblock sets it, or the policy keeps a secret in it.
        """
        reserved = guest_environment((), self.scratch, os.environ, self.prepare.plan).keys() - {
            _USER
        }
        secret = self.policy.secret_variables()
        for name, value in variables.items():
            problem = ""
            remedy = "Leave it out."
            if not (isinstance(name, str) and isinstance(value, str)):
                problem = "not a text"
                remedy = "Give a text for each name."
            elif not name or "=" in name or "\0" in name + value:
                problem = "no variable can be that"
                remedy = "Give a name without =, and no zero bytes."
            elif len(f"{name}={value}".encode(errors="surrogatepass")) >= _LONGEST_VARIABLE:
                problem = "no program starts with a variable of 128 KiB"
                remedy = "Give it as one of inputs=, or in a file."
            elif name in reserved:
                problem = "cells have a value of cellblock's for it"
            elif name in secret:
                problem = f"the policy has {secret[name]} there, which no cell gets"
            if problem:
                raise InputError(problem, file="env", key=str(name), remedy=remedy)
        environment = self.prepare.environment | dict(variables)
        prepare = replace(self.prepare, environment=environment)
        check_encodable(prepare, self.policy.name, self.scratch)
        return replace(self, prepare=prepare, variables=dict(variables))

    @property
    def shareable(self) -> bool:
        """Whether sessions may share a zygote: Landlock keeps its guests apart, or nothing has to.

        They may not in a container, whose limits are for one guest and whose scratch folder does
        not exist outside of it. Nor if a session has layers, /dev/shm or /proc, which others must
        not see: unless each guest gets mounts of its own. Nor if a session has a network with
        listed hosts or ports, in which others must not be.
        """
        plan = self.prepare.plan
        locks = plan.locks
        if plan.own_mounts:
            return True
        if plan.layers or SHARED_MEMORY in plan.write_roots or PROC in plan.read_roots:
            return False
        if plan.neighbours or plan.serves:
            return False
        return not locks or ("landlock" in locks and "container" not in locks)

    def in_folder(
        self, folder: Path, *, inputs: dict[str, str], cwd: str | None = None
    ) -> SessionConfig:
        """Return a config for guests of the same zygote that have ``folder`` for themselves.

        ``folder`` lies in the scratch folder and takes its place in all paths. ``cwd`` is the
        folder that cells run in; by default it is moved likewise.
        """
        prepare, shared = self.prepare, self.prepare.scratch

        def moved(path: str) -> str:
            return f"{folder}{path.removeprefix(shared)}" if within(path, shared) else path

        def all_moved(paths: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(moved, paths))

        def policy_moved(policy: Policy) -> Policy:
            fields = (*PATHS, "artifact_export_paths")
            changed: dict[str, Any] = {name: all_moved(getattr(policy, name)) for name in fields}
            return policy.replace(**changed)

        plan = replace(
            prepare.plan,
            read_roots=all_moved(prepare.plan.read_roots),
            write_roots=all_moved(prepare.plan.write_roots),
        )
        own = replace(
            prepare,
            ipython_dir=moved(prepare.ipython_dir),
            scratch=str(folder),
            cwd=cwd or moved(prepare.cwd),
            environment={name: moved(value) for name, value in prepare.environment.items()},
            plan=plan,
            inputs=inputs,
        )
        operators = None if self.operators is None else policy_moved(self.operators)
        return replace(
            self,
            policy=policy_moved(self.policy),
            operators=operators,
            prepare=own,
            project=Path(moved(str(self.project))),
        )

    def in_fork(self, folder: Path | None, settings: SessionSettings) -> SessionConfig:
        """Return the config of a fork of this session, under the session's ``settings`` in force.

        Those may be narrower than this config, which is the one of the session's start.

        ``folder`` lies in the session's scratch folder and takes its place; the fork can read
        staged changes, but stages nothing. Without a ``folder`` the fork has all that the session
        has. It writes to the same layers, which count against its limits, too; the session goes on
        listing what is staged.
        """
        prepare, plan = settings.prepare, settings.prepare.plan
        operations = None if settings.tools is None else settings.tools.operations
        forked = replace(self, policy=settings.policy, prepare=prepare, operations=operations)
        if folder is None:
            return replace(forked, lists_staged=False)
        write_roots = tuple(root for root in plan.write_roots if root != SHARED_MEMORY)
        reads = (*plan.read_roots, *plan.staged_roots)
        plan = replace(plan, read_roots=reads, write_roots=write_roots, staged_roots=(), layers=())
        moved = replace(forked, prepare=replace(prepare, plan=plan))
        return moved.in_folder(folder, inputs=prepare.inputs)


# --- making a config ----------------------------------------------------------------------------


def resolve(options: SessionOptions) -> SessionConfig | PolicyError | BackendError:
    """Read the policy and choose what enforces it; return the config, or why nothing may run."""
    name = ""
    try:
        policy = _load(options)
        name = policy.name
        check_file_limit(policy)
        narrowed, notice = _narrowed_by_notebook(policy, options)
        condition = _condition(narrowed, options)
        # The locks are not probed here: the guest tries them itself before any user code runs.
        chosen = choose(narrowed, "attempt")
        secrets, scanned_all = _secrets(policy, narrowed, options.project)
        private = tuple(_private(options, policy))
        narrowed, layers, unstaged = _staged(
            narrowed, chosen.backend, options, (*private, *secrets)
        )
        secrets, opened = _apart_from_cells_own(secrets, narrowed, options.project)
        config = _resolved(
            narrowed,
            chosen,
            layers=layers,
            places=(options.project, options.scratch),
            unreadable=(private, secrets),
            cwd=_first_cwd(policy, options.project, options.scratch),
            inputs=inputs_from_file(options.inputs, policy.filesystem_write_roots)
            if isinstance(options.inputs, str)
            else options.inputs,
            pooled=options.pooled,
            file=options.policy_file,
        )
        # Checked with the operator's policy, because a notebook may narrow away all write roots.
        if services := granted_services(replace(config, policy=policy)):
            services.check_artifacts()
    except BackendError as exc:
        return exc
    except PolicyError as exc:
        for error in exc.all():
            error.file = options.policy_name if error.file == name else error.file
        return exc
    return replace(
        config,
        operators=policy if narrowed != policy else None,
        notebook=str(options.notebook or ""),
        notice="; and ".join(
            filter(
                None,
                (
                    *_notices(policy, options, opened, scanned_all=scanned_all),
                    *_missing_keys(narrowed),
                    notice,
                    unstaged,
                ),
            )
        ),
        condition=condition,
    )


def under_policy(config: SessionConfig, policy: Policy) -> SessionConfig:
    """Return a session's config for a narrower policy. Raises PolicyError, BackendError."""
    secrets, _ = _secrets(config.policy, policy, config.project)
    if len({*secrets} - {*config.secrets}) > MOST_NAMED:
        problem = f"name more than {MOST_NAMED:,} files"
        raise PolicyError(
            problem, key="read_deny_paths", remedy="Deny the folder that they are in."
        )
    # A file in a write root whose name was denied at the start came there since: it is the cells'
    # own. Only a file whose name was not denied before must be denied now.
    before = config.policy.read_deny_paths
    secrets = tuple(
        path
        for path in secrets
        if not _beneath(path, policy.filesystem_write_roots)
        or not paths.pattern_beneath(str(path), config.policy.filesystem_write_roots, before)
    )
    unreadable_secrets = tuple(dict.fromkeys((*config.secrets, *secrets)))
    narrowed = _resolved(
        policy,
        config.chosen,
        layers=cover(config.prepare.plan.layers, policy, (*config.private, *unreadable_secrets)),
        places=(config.project, config.scratch),
        unreadable=(config.private, unreadable_secrets),
        cwd=config.prepare.cwd,
        inputs=config.prepare.inputs,
        file=config.file,
    )
    environment = narrowed.prepare.environment | config.variables
    launch = config.prepare.launch
    prepare = replace(narrowed.prepare, launch=launch, environment=environment)
    return replace(
        narrowed,
        prepare=prepare,
        operators=config.operators or config.policy,
        variables=config.variables,
    )


def _staged(
    policy: Policy, backend: Backend, options: SessionOptions, private: tuple[Path, ...]
) -> tuple[Policy, tuple[messages.Layer, ...], str]:
    """Return the policy, the layers for its staged roots, and a notice for the user.

    If nothing can be staged here there are no layers. The policy then has no staged roots; instead
    cells may write to one folder of the project, and the notice says so.
    """
    if not policy.filesystem_staged_roots:
        return policy, (), ""
    folders: Any = {"scratch": options.scratch, "project": options.project, "private": private}
    layers = make_layers(policy, home=options.stages_home, **folders)
    placeholders = {"{scratch}": str(options.scratch), "{project}": str(options.project)}
    written = standing(filled(root, placeholders) for root in policy.filesystem_write_roots)
    reason = f"backend {backend.name} can't"
    if backend.stages:
        projects = tuple(layer for layer in layers if not layer.kept_in)
        reason = why_not(projects, backend, written)
        if not reason and why_not(layers[len(projects) :], backend, ()):
            # The scratch folder may be on a disk that no layer can lie over. Then it is the home
            # folder itself, without a layer.
            layers = projects
    if not reason:
        return policy, layers, ""
    project, work = str(options.project), options.project / WORK
    own = [root for root in written if within(root, project) and root != placeholders["{scratch}"]]
    # Not through a link: a checkout could bring one of that name, to any file of the user's.
    if not own:
        with contextlib.suppress(OSError):
            work.mkdir()
        own = [str(work)] if work.is_dir() and not work.is_symlink() else []
    where = f"{', '.join(own)} alone" if own else f"no folder: {work} is missing, or a link"
    notice = f"writes can't be staged here ({reason}): cells can write in {where}"
    roots = tuple(dict.fromkeys((*policy.filesystem_write_roots, *own)))
    if any(map(paths.is_pattern, policy.read_deny_paths)):
        notice += ", and read a .env or the like that is made while they run"
    return policy.replace(filesystem_write_roots=roots, filesystem_staged_roots=()), (), notice


def _resolved(  # noqa: PLR0913 - each comes from another place
    policy: Policy,
    chosen: Chosen,
    *,
    layers: tuple[messages.Layer, ...],
    places: tuple[Path, Path],
    unreadable: tuple[tuple[Path, ...], tuple[Path, ...]],
    cwd: str,
    inputs: dict[str, str],
    pooled: bool = False,
    file: str,
) -> SessionConfig:
    """Return the config of a policy. Raises PolicyError, BackendError.

    ``places`` are the project and scratch folders. ``unreadable`` are the private paths and the
    files denied by their names. Guests begin in ``cwd`` if they can read any of it. ``file`` is the
    policy's file as it was given.
    """
    (project, scratch), (private, secrets) = places, unreadable
    operations = catalog.grants_of(policy, project=project, private=private)
    folders: Any = {"private": (*private, *secrets), "project": project, "scratch": scratch}
    plan, wrap = planned(policy, chosen.backend, layers=layers, pooled=pooled, **folders)
    check_out_of_reach(policy, plan)
    prepare = prepare_message(policy, plan, project, scratch, inputs, file)
    if can_see(plan, cwd):
        prepare = replace(prepare, cwd=cwd)
    check_encodable(prepare, policy.name, scratch)
    config = SessionConfig(policy, chosen, prepare, wrap, project, operations, private, secrets)
    return replace(config, file=file)


def _load(options: SessionOptions) -> Policy:
    """Return the policy. Raises PolicyError, also if it must be allowed and nobody can be asked."""
    # Unsafe policies load here, because ``_condition`` below checks whether this one is allowed.
    rest: dict[str, Any] = {
        "allow_unsafe": True,
        "scratch": options.scratch,
        # Without a project, relative paths in a policy begin in the current folder.
        "project": options.given_project or Path.cwd(),
        "has_project": options.given_project is not None,
    }
    if isinstance(options.policy, str):
        accepted = AcceptedPolicies(Path(cache_folder(), "policies"))
        policy = load.load(options.policy, accepted=accepted, **rest)
    else:
        policy = load.check_policy(options.policy, **rest)
    condition = _condition(policy, options)
    if condition is not None and not (options.asks and policy.approvals == "prompt"):
        raise condition
    return policy


def _notices(
    policy: Policy, options: SessionOptions, opened: Sequence[Path], *, scanned_all: bool
) -> Iterator[str]:
    """Yield what the user is told about the files of the project that cells can read.

    ``opened`` are files with the name of a secret in folders that cells write to.
    ``scanned_all`` says whether the whole project was searched for such names.
    """
    if paths.reads_home_files(policy, options.project):
        yield (
            f"lets cells read the files in {options.project} that are not hidden, and none of its "
            "folders: it is your home folder, or holds it. To have more, put the notebook in a "
            "folder of its own"
        )
    if not scanned_all:
        yield (
            "hides passwords (.env and the like) in the project's outer folders only: it has more "
            f"than {paths.MOST_ENTRIES:,} files. To hide others: read_deny_paths"
        )

    if opened:
        more = f" and {len(opened) - 1:,} more like it" if opened[1:] else ""
        yield (
            f"lets cells read and change {opened[0]}{more}, for they may write there: move what is "
            "secret elsewhere"
        )


def _missing_keys(policy: Policy) -> Iterator[str]:
    """Yield what the user is told about credentials that can't be read, and so not sent."""
    if not policy.credentials:
        return
    from cellblock.host.services import secret_values  # noqa: PLC0415 - few policies have any

    for name, credential in policy.credentials.items():
        try:
            secret_values.read_secret(credential.value)
        except secret_values.NoSecretError as exc:
            yield (
                f"refuses requests to {hosts_in_words(credential)}, which take the key {name} "
                f"({credential.value}): {exc.message}. {exc.remedy}"
            )


def _condition(policy: Policy, options: SessionOptions) -> PolicyError | None:
    """Return the error that says what the user must still allow of a policy, or None."""
    if options.allow_unsafe:
        return None
    return load.unsafe_error(policy, options.policy_name, ask=options.ask, asks=options.asks)


def _narrowed_by_notebook(policy: Policy, options: SessionOptions) -> tuple[Policy, str]:
    """Apply the narrowing in the notebook's metadata to a policy; return it with a notice.

    The notice says why it is not known whether the notebook narrows the policy, or is empty.
    """
    if options.notebook is None:
        return policy, ""
    from cellblock.policy import narrow_requests  # noqa: PLC0415 - before a wrapped zygote starts

    return narrow_requests.narrow_for_file(
        options.notebook, policy, project=options.project, scratch=options.scratch
    )


def _private(options: SessionOptions, policy: Policy) -> list[Path]:
    """Return the paths that no guest may read.

    These are the history, kept output, audit logs, approvals, keys, and what the front calls
    private. ``backends.plan`` denies the keys of kernels that start later.
    """
    own = [default_path().parent, Path(policy.audit.folder)]
    approvals = [Path(data_folder()), Path(policy.approval.key)]
    keys = map(Path, policy.secret_files().values())
    return [*own, *approvals, *keys, *options.private]


def _secrets(policy: Policy, narrowed: Policy, project: Path) -> tuple[tuple[Path, ...], bool]:
    """Return the files beneath the policy's roots that are denied by their names.

    Also return whether everything there was looked at. A ``narrowed`` policy may deny more names.
    The roots are those of the policy before, so that narrowing a root takes no denial back.
    """
    roots = (*policy.filesystem_read_roots, *policy.filesystem_write_roots)
    filled = list(policy.filesystem_write_roots)
    filled += itertools.chain.from_iterable(paths.host_write_roots(policy).values())
    if policy.filesystem_staged_roots:  # cells have it where nothing can be staged: see ``_staged``
        filled.append(str(project / WORK))
    secrets, scanned_all = paths.find_secret_files(roots, narrowed.read_deny_paths, filled=filled)
    return tuple(map(Path, secrets)), scanned_all


def _apart_from_cells_own(
    secrets: tuple[Path, ...], policy: Policy, project: Path
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Split ``secrets`` into those that are denied, and those in folders that cells write to.

    In a folder that cells write to no file can be denied, and cells may have made the file
    themselves, so it does not keep a kernel from starting. But if the folder holds the project, the
    file is the user's: it stays denied, and so the policy is refused.
    """
    roots = [root for root in policy.filesystem_write_roots if not within(str(project), root)]
    opened = tuple(path for path in secrets if _beneath(path, roots))
    return tuple(path for path in secrets if not _beneath(path, roots)), opened


def _beneath(path: Path, roots: Iterable[str]) -> bool:
    """Return whether a path lies in one of these roots, or is one."""
    return any(within(str(path), root) for root in roots)


def _first_cwd(policy: Policy, project: Path, scratch: Path) -> str:
    """Return the folder that guests begin in: the project if they can read it, or else scratch.

    If the project is a home folder they can read files in it, but no folders. In mode confined
    that is enough to begin there.
    """
    roots = policy.filesystem_read_roots
    reads_project = any(project.is_relative_to(root) for root in roots)
    reads_files = policy.mode == "confined" and any(within(root, str(project)) for root in roots)
    return str(project if reads_project or reads_files else scratch)


def can_see(plan: messages.Plan, folder: str) -> bool:
    """Return whether guests can read a folder, or a part of it."""
    roots = (*plan.read_roots, *plan.write_roots)
    return any(within(root, folder) or within(folder, root) for root in roots)


def planned(
    policy: Policy,
    backend: Backend,
    *,
    private: Sequence[Path],
    project: Path,
    scratch: Path,
    layers: tuple[messages.Layer, ...] = (),
    pooled: bool = False,
) -> tuple[messages.Plan, Wrapping | None]:
    """Return the plan of the guests' locks, and the wrapping of their zygote.

    The wrapping is None for a backend that does not wrap zygotes.
    """
    folders: Any = {"scratch": scratch, "project": project, "private": private}
    plan = make_plan(policy, backend, layers=layers, pooled=pooled, **folders)
    if not backend.wraps:
        return plan, None
    view = make_view(policy, plan, **folders)
    folders_seen = {name: getattr(backend, name)(view) for name in ("unseen", "mounted", "bounded")}
    return replace(plan, **folders_seen), Wrapping(backend, view)


def prepare_message(
    policy: Policy,
    plan: messages.Plan,
    project: Path,
    scratch: Path,
    inputs: dict[str, str] | None = None,
    file: str = "",
) -> messages.Prepare:
    """Return the message that prepares a zygote: the policy's part, and what cells are given.

    ``file`` is the policy's file as it was given, for remedies.
    """
    return messages.Prepare(
        rules=policy.rules(file).to_builtins(),
        preload=policy.preload,
        pre_imported=policy.pre_imported,
        policy_name=policy.name,
        ipython_dir=str(scratch / ".ipython"),
        scratch=str(scratch),
        cwd=_first_cwd(policy, project, scratch),
        environment=guest_environment(policy.env_var_access, scratch, os.environ, plan),
        plan=plan,
        charts="pages" if policy.display == "isolated" else "stills",
        vega=policy.display == "isolated" and bool(background.read_vega()),
        tool_max_in_flight=policy.tool_max_in_flight,
        tool_max_bytes=policy.tool_max_bytes,
        inputs=inputs or {},
        preloaded=preloaded(policy, plan),
    )


_USER: Final = "USER"
#: Bytes of a variable (``name=value`` and a zero byte) from which no program starts (execve(2)).
_LONGEST_VARIABLE: Final = 2**17
#: Variables for programs that cells start.
_OF_PROGRAMS: Final = {"GIT_CONFIG_NOSYSTEM": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def guest_environment(
    passed_on: Sequence[str], scratch: Path, host: Mapping[str, str], plan: messages.Plan
) -> dict[str, str]:
    """Return the environment of a guest. Of the host's it has only the variables ``passed_on``.

    Fixed values win over those. HOME is the scratch folder, or a layer in it so that what a cell
    writes below ``~`` is staged like the project. If the guest may start programs, this
    interpreter's come first in PATH, and ``!`` uses the user's shell. joblib is told if it can
    have no workers, because it would warn or hang.
    """
    serial = plan.locks and (not plan.subprocess or PROC not in plan.read_roots)
    passed = {name: host[name] for name in passed_on if name in host}
    folder = str(scratch)
    shell = host.get("SHELL", "")
    home = next((layer.root for layer in plan.layers if layer.kept_in), folder)
    starts_shell = plan.subprocess and bool(shell)
    starts_shell = starts_shell and any(within(real(shell), root) for root in plan.read_roots)
    # No accounts are known to a guest: without a name getpass.getuser() fails.
    return (
        {_USER: "cellblock"}
        | passed
        | {
            "PATH": f"{sys.prefix}/bin:{_SEARCH_PATH}" if plan.subprocess else _SEARCH_PATH,
            "HOME": home,
            "TMPDIR": folder,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "MPLCONFIGDIR": f"{folder}/.matplotlib",
            **({"JOBLIB_MULTIPROCESSING": "0"} if serial else {}),
            **({"SHELL": shell} if starts_shell else {}),
            # git fails if it finds a file that it may not read, and so does pip's version check.
            **(_OF_PROGRAMS if plan.subprocess else {}),
        }
    )


def granted_services(config: SessionConfig) -> GrantedServices | None:
    """Return the host's services that a policy grants; None if it grants none."""
    policy = config.policy
    if policy.operations is None and not policy.llm.granted and not policy.artifact_export_paths:
        return None
    from cellblock.host.session.granted_services import GrantedServices  # noqa: PLC0415 - few do

    return GrantedServices(policy, config.prepare)


# --- why a policy can't be enforced here, though it could be read -------------------------------


def check_file_limit(policy: Policy) -> None:
    """Raise PolicyError if the policy's snapshots need more open files than the host may have."""
    limit = os.sysconf("SC_OPEN_MAX")
    copies = 0 if policy.snapshots == "off" else policy.undo_depth
    if 0 <= limit < spawn.LEAST_FILES + copies * _FILES_OF_A_COPY:
        affordable = max(0, limit - spawn.LEAST_FILES) // _FILES_OF_A_COPY
        problem = f"only {limit} files may be open, and each snapshot takes {_FILES_OF_A_COPY}"
        remedy = f"Raise the limit: ulimit -n 1024. Or set undo_depth to {affordable}."
        raise policy.error(problem, "undo_depth", policy.undo_depth, remedy)


def check_out_of_reach(policy: Policy, plan: messages.Plan) -> None:
    """Raise PolicyError if cells could read a secret, or write a file that decides about them.

    Secrets are the audit log, the key of approvals and the files of credentials. Manifests and
    templates decide about cells, and so do the secrets' files.
    """
    readable = (*plan.read_roots, *plan.write_roots)
    by_host = paths.host_write_roots(policy).values()
    writable = (*plan.write_roots, *itertools.chain.from_iterable(by_host))
    deciding = [("templates.folders", folder) for folder in policy.templates.folders]
    if policy.audit.log and not plan.hides(os.path.realpath(policy.audit.folder)):
        problem = "cells could read the audit log"
        _refuse_within(policy.audit.folder, readable, problem, "audit.folder", policy)
    if policy.admission == "approved":
        if not plan.hides(os.path.realpath(policy.approval.key)):
            problem = "cells could read the key of approvals"
            _refuse_within(policy.approval.key, readable, problem, "approval.key", policy)
        deciding.append(("approval.folder", policy.approval.folder))
    for key, path in policy.secret_files().items():
        if not plan.hides(path):
            _refuse_within(path, readable, "cells could read a key", key, policy)
        deciding.append((key, path))
    for key, path in deciding:
        _refuse_within(path, writable, "cells could write what decides", key, policy)


def _refuse_within(path: str, roots: Sequence[str], problem: str, key: str, policy: Policy) -> None:
    """Raise PolicyError if ``path``, a link on the way to it, or its target lies in a root."""
    names = (path, os.path.realpath(path), *(link for link, _ in links([path])))
    for root in roots:
        if any(within(name, root) for name in names):
            problem += f": {root} is within their reach"
            raise policy.error(problem, key, path, "Choose a folder elsewhere.")


def check_encodable(prepare: messages.Prepare, policy_name: str, scratch: Path) -> None:
    """Raise PolicyError if the message to the zygote can't be encoded.

    A path or a variable's value may not be UTF-8. Or the message is too large: plan and inputs are
    bounded, but the policy's lists and the variables are not.
    """
    try:
        frames.encode(prepare)
    except UnicodeEncodeError as exc:
        remedy = "Give the folder a name in UTF-8, or take it out of the policy."
        if str(scratch) in exc.object:
            remedy = "Set TMPDIR to a folder with a name in UTF-8."
        problem = "a name that cells need is not UTF-8"
        value = ascii(exc.object)
        raise PolicyError(problem, file=policy_name, value=value, remedy=remedy) from None
    except FrameTooLargeError as exc:
        problem = f"more than cells can be given: {exc}"
        remedy = "Shorten the variables (env=, env_var_access), or the policy's lists."
        raise PolicyError(problem, file=policy_name, remedy=remedy) from None
