"""Reads the policy of a kernel and makes the session's config.

``resolve_first`` does so at a kernel's start, ``resolve_launched`` at the launch of a kernel that
waited. Both then decide three things that depend on the policy:

- whether the zygote that was started early is wrapped as the policy's backend wraps it
- whether the operator's tools are imported ahead, in a worker process
- whether the kernel adopts changes that an ended kernel staged, since its zygote lays the layers
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


#: The module of the worker in which the operator's tools run.
_WORKER = "cellblock.host.services.tools.worker"
#: Files in a run-time folder whose keys give access to a kernel or a server. Guests must not read
#: them.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


def resolve_first(
    options: Options, early: EarlyZygote
) -> SessionConfig | PolicyError | BackendError:
    """Read the policy at a kernel's start. Return the config, or the error why nothing may run.

    A waiting kernel does not load tools or adopt changes yet. Raises ``StartError``.
    """
    config = resolve(_session_options(options, Path(early.scratch)))
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
    """Read the policy at the launch of a kernel that waited; the one before was a guess.

    Return the config, or the error why nothing may run. Raises ``StartError``.
    """
    config = resolve(_session_options(options, Path(early.scratch)))
    if isinstance(config, SessionConfig):
        config = _with_launch(config, options)
        early.settle(config.wrap)
        early.launch(options.policy)
        _start_tools(config, early)
        config = _adopted(config, options)
    return config


def _start_tools(config: SessionConfig, early: EarlyZygote) -> None:
    """Start the worker of the operator's tools, which imports them while the kernel starts.

    Starts nothing if the user must first consent to the kernel's start.
    """
    if config.policy.tools and config.condition is None:
        try:
            # Before the import below, which takes long too.
            worker_started = worker_process.start(_WORKER)
        except OSError:
            return  # the session tries again, and reports the error
        from cellblock.host.services.tools import providers, worker  # noqa: PLC0415 - few have any

        # If the worker has ended by now, the session notices when it takes the worker.
        with contextlib.suppress(OSError):
            worker.load_ahead(worker_started, providers.functions_of(config.policy))
        early.worker = worker_started


def _session_options(options: Options, scratch: Path) -> SessionOptions:
    """Return the options for ``resolve``: policy, folders, and files to keep from guests."""
    keys = Path(options.connection_file)
    return SessionOptions(
        options.policy,
        Path(working_folder()),
        scratch,
        options.allow_unsafe,
        # ``backends.plan`` keeps later key files from guests.
        (keys, *(key for pattern in _KEYS for key in keys.parent.glob(pattern))),
        options.inputs or {},
        asks=True,
        notebook=session_notebook(os.environ),
        stages_home=True,
    )


def _with_launch(config: SessionConfig, options: Options) -> SessionConfig:
    """Return the config with what guests are told of the kernel's start (``Launch``).

    The session's name is left out if it is a path in a folder that guests can't see.
    """
    ipykernel = options.ipykernel
    plan = config.prepare.plan
    session = os.environ.get(SESSION_NAME, "")
    if (path := Path(session)).is_absolute() and not can_see(plan, str(path.parent)):
        session = ""
    traits = {
        kind: {trait: _plain(value) for trait, value in section.items()}
        for kind, section in ipykernel.shell.items()
    }
    launch = Launch(
        arguments=("-f", encodable(options.connection_file)),
        session=encodable(session),
        has_parent=bool(os.environ.get("JPY_PARENT_PID")),
        searches_folder=ipykernel.searches_folder,
        config=traits,
    )
    notice = _refused_traits(config.policy, traits) if traits else ""
    return replace(
        config,
        prepare=replace(config.prepare, launch=launch),
        notice="; and ".join(filter(None, (config.notice, notice))),
    )


def _refused_traits(policy: Policy, traits: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a notice of traits that guests may not set; empty if they may set all."""
    rules = policy.rules()
    options = [
        f"--{kind}.{trait}"
        for kind, section in traits.items()
        for trait, value in section.items()
        if not may_configure(rules, kind, trait, value)
    ]
    if not options:
        return ""
    return (
        f"does not set {', '.join(options)}: in mode {policy.mode} options set what %config may "
        "set in a cell, and nothing else"
    )


def _plain(value: Any) -> Any:
    """Return a trait's value in a type that can be sent; traitlets have types of their own."""
    if isinstance(value, list | tuple):
        return [encodable(str(entry)) for entry in value]
    return (
        value if value is None or isinstance(value, bool | int | float) else encodable(str(value))
    )


def _adopted(config: SessionConfig, options: Options) -> SessionConfig:
    """Return the config with the staged changes of an ended kernel, if that was this one before.

    It was if it had the same connection file, which a restart keeps, or the same notebook.
    """
    prepare = config.prepare
    scratch = config.scratch
    if not prepare.plan.layers:
        return config
    names = [f"connection {os.path.realpath(options.connection_file)}"]
    if (notebook := session_notebook(os.environ)) is not None:
        names.append(f"notebook {notebook}")
    policy = paths.without_scratch(config.policy, scratch)
    adopted = adoption.adopt(prepare.plan.layers, policy, names)
    if adopted.staged is not None:
        remove_tree(changes.Staged(scratch_name(scratch), ()).folder)
        prepare = replace(prepare, plan=replace(prepare.plan, layers=adopted.layers))
    return replace(
        config,
        prepare=prepare,
        names=tuple(names),
        adopted=adopted.staged,
        notice="; and ".join(filter(None, (config.notice, adopted.said))),
    )


def session_notebook(environ: Mapping[str, str]) -> Path | None:
    """Return the notebook that a kernel was started for; None if its environment has none."""
    path = Path(environ.get(SESSION_NAME, ""))
    return path if path.is_absolute() and path.name.endswith(".ipynb") else None
