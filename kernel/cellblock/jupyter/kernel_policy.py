"""The policy that a kernel is under: read at its start, and again at the launch of one that waits.

A zygote that was started before may be in another wrapping than the policy has: it is settled
here whether it serves. What an ended kernel staged is adopted here, as that is what a zygote lays.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cellblock.analysis.magics import may_configure
from cellblock.descriptors import remove_tree
from cellblock.host.guests import worker_process
from cellblock.host.services import adoption, changes
from cellblock.host.session.config import (
    SessionConfig,
    SessionOptions,
    can_see,
    resolve,
)
from cellblock.jupyter.early_zygote import working_folder
from cellblock.policy import paths
from cellblock.policy.folders import scratch_name
from cellblock.policy.vocabulary import SESSION_NAME
from cellblock.render.text import encodable
from cellblock.wire.messages import Launch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.errors import BackendError, PolicyError
    from cellblock.jupyter.command_line import Options
    from cellblock.jupyter.early_zygote import EarlyZygote
    from cellblock.policy.model import Policy


#: Where the operator's tools run: its process is started before the host imports its own end.
_WORKER = "cellblock.host.services.tools.worker"
#: Files in a run-time folder that open a kernel or a server.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


def resolve_first(
    options: Options, early: EarlyZygote
) -> SessionConfig | PolicyError | BackendError:
    """Read the policy of a kernel that starts; return why nothing may run, where that is so.

    Raises ``StartError``.
    """
    config = resolve(_asked(options, Path(early.scratch)))
    if isinstance(config, SessionConfig):
        config = _with_launch(config, options)
        early.settle(config.wrap)
        if not options.warm:
            _start_tools(config, early)
            config = _adopted(config, options)
    return config


def resolve_launched(
    options: Options, early: EarlyZygote
) -> SessionConfig | PolicyError | BackendError:
    """Read the policy of a kernel that waited for its launch: the one before it was a guess.

    Raises ``StartError``.
    """
    config = resolve(_asked(options, Path(early.scratch)))
    if isinstance(config, SessionConfig):
        config = _with_launch(config, options)
        early.settle(config.wrap)
        early.launch(options.policy)
        _start_tools(config, early)
        config = _adopted(config, options)
    return config


def _start_tools(config: SessionConfig, early: EarlyZygote) -> None:
    """Have the operator's tools imported from now on, unless a person is asked about the start."""
    if config.policy.tools and config.condition is None:
        try:
            started = worker_process.start(_WORKER)
        except OSError:  # it is tried again, and reported
            return
        from cellblock.host.services.tools import providers, worker  # noqa: PLC0415 - few have any

        with contextlib.suppress(OSError):  # it has ended: who takes it hears that
            worker.load_ahead(started, providers.functions_of(config.policy))
        early.worker = started


def _asked(options: Options, scratch: Path) -> SessionOptions:
    keys = Path(options.connection_file)
    return SessionOptions(
        options.policy,
        Path(working_folder()),
        scratch,
        options.allow_unsafe,
        # Of later ones see ``backends.plan``.
        (keys, *(key for pattern in _KEYS for key in keys.parent.glob(pattern))),
        options.inputs or {},
        asks=True,
        notebook=session_notebook(os.environ),
        stages_home=True,
    )


def _with_launch(config: SessionConfig, options: Options) -> SessionConfig:
    """Return one whose guests are told what Jupyter started the kernel with.

    They are not told what the session is called where that names a folder which they can't see.
    """
    given = options.ipykernel
    plan = config.prepare.plan
    session = os.environ.get(SESSION_NAME, "")
    if (path := Path(session)).is_absolute() and not can_see(plan, str(path.parent)):
        session = ""
    traits = {
        kind: {trait: _plain(value) for trait, value in section.items()}
        for kind, section in given.shell.items()
    }
    launch = Launch(
        arguments=("-f", encodable(options.connection_file)),
        session=encodable(session),
        has_parent=bool(os.environ.get("JPY_PARENT_PID")),
        searches_folder=given.searches_folder,
        config=traits,
    )
    said = _refused_traits(config.policy, traits) if traits else ""
    return replace(
        config,
        prepare=replace(config.prepare, launch=launch),
        notice="; and ".join(filter(None, (config.notice, said))),
    )


def _refused_traits(policy: Policy, traits: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what the user is told of traits that guests do not set; empty where they set all."""
    rules = policy.rules()
    refused = [
        f"--{kind}.{trait}"
        for kind, section in traits.items()
        for trait, value in section.items()
        if not may_configure(rules, kind, trait, value)
    ]
    if not refused:
        return ""
    return (
        f"does not set {', '.join(refused)}: in mode {policy.mode} options set what %config may "
        "set in a cell, and nothing else"
    )


def _plain(value: Any) -> Any:
    """Return a trait's value as the wire takes it: traitlets have types of their own for some."""
    if isinstance(value, list | tuple):
        return [encodable(str(one)) for one in value]
    return (
        value if value is None or isinstance(value, bool | int | float) else encodable(str(value))
    )


def _adopted(config: SessionConfig, options: Options) -> SessionConfig:
    """Return one that goes on with what an ended kernel staged, where that was this one.

    That is one of the same connection file, which a restart keeps, or of the same notebook.
    """
    prepare = config.prepare
    scratch = config.scratch
    if not prepare.plan.layers:
        return config
    names = [f"connection {os.path.realpath(options.connection_file)}"]
    if (notebook := session_notebook(os.environ)) is not None:
        names.append(f"notebook {notebook}")
    policy = paths.without_scratch(config.policy, scratch)
    found = adoption.adopt(prepare.plan.layers, policy, names)
    if found.staged is not None:
        remove_tree(changes.Staged(scratch_name(scratch), ()).folder)
        prepare = replace(prepare, plan=replace(prepare.plan, layers=found.layers))
    return replace(
        config,
        prepare=prepare,
        names=tuple(names),
        adopted=found.staged,
        notice="; and ".join(filter(None, (config.notice, found.said))),
    )


def session_notebook(environ: Mapping[str, str]) -> Path | None:
    """Return the notebook that a kernel was started for, as far as its environment tells."""
    path = Path(environ.get(SESSION_NAME, ""))
    return path if path.is_absolute() and path.name.endswith(".ipynb") else None
