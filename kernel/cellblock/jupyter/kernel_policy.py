"""The policy that a kernel is under: read at its start, and again at the launch of one that waits.

A zygote that was started before may be in another wrapping than the policy has: it is settled
here whether it serves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.host.session.config import SessionConfig, SessionOptions, predict_wrapping, resolve
from cellblock.jupyter.early_zygote import working_folder
from cellblock.policy.vocabulary import SESSION_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.errors import BackendError, PolicyError
    from cellblock.jupyter.early_zygote import EarlyZygote
    from cellblock.jupyter.start import Options


#: Files in a run-time folder that open a kernel or a server.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


def resolve_first(
    options: Options, early: EarlyZygote
) -> SessionConfig | PolicyError | BackendError:
    """Read the policy of a kernel that starts; return why nothing may run, where that is so.

    Where no zygote is started, one is at the first look at the policy. Raises ``StartError``.
    """
    asked = _asked(options, early.scratch)
    if not early.is_started:
        early.start(predict_wrapping(asked))
    config = resolve(asked)
    if isinstance(config, SessionConfig):
        early.settle(config.wrap)
    return config


def resolve_launched(
    options: Options, early: EarlyZygote
) -> SessionConfig | PolicyError | BackendError:
    """Read the policy of a kernel that waited for its launch: the one before it was a guess.

    Raises ``StartError``.
    """
    config = resolve(_asked(options, early.scratch))
    if isinstance(config, SessionConfig):
        early.settle(config.wrap)
        early.recollect(options.policy, working_folder())
    return config


def _asked(options: Options, scratch: Path) -> SessionOptions:
    keys = Path(options.connection_file)
    return SessionOptions(
        options.policy,
        working_folder(),
        scratch,
        options.allow_unsafe,
        # Of later ones see ``backends.plan``.
        (keys, *(key for pattern in _KEYS for key in keys.parent.glob(pattern))),
        options.inputs or {},
        asks=True,
        notebook=session_notebook(os.environ),
    )


def session_notebook(environ: Mapping[str, str]) -> Path | None:
    """Return the notebook that a kernel was started for, as far as its environment tells."""
    path = Path(environ.get(SESSION_NAME, ""))
    return path if path.is_absolute() and path.name.endswith(".ipynb") else None
