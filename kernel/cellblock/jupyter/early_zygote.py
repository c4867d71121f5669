"""The policy that a kernel is under, and the zygote that starts before that is known.

A bare zygote is started first of all (``start``). One that a backend wraps is started in what
wrapped the last one, or in what a first look at the policy says. Once the policy is read, a zygote
in anything else is ended: it was told nothing yet.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.errors import StartError
from cellblock.host.guests import spawn
from cellblock.host.guests.wrapping_cache import WrappingCache
from cellblock.host.guests.zygote import first_frame, tell
from cellblock.host.session.config import (
    SessionConfig,
    SessionOptions,
    make_scratch,
    predict_wrapping,
    resolve,
)
from cellblock.policy.folders import cache_folder
from cellblock.policy.vocabulary import SESSION_NAME

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from cellblock.errors import BackendError, PolicyError
    from cellblock.host.guests.wrapping_cache import Recalled
    from cellblock.host.session.config import Wrapping
    from cellblock.jupyter.start import Options
    from cellblock.wire.messages import Prepare

    #: The host's end of a zygote's socket, and its pid.
    Zygote = tuple[socket.socket, int]


#: Files in a run-time folder that open a kernel or a server.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


def resolve_config(
    options: Options, bare: Zygote | None
) -> tuple[SessionConfig | PolicyError | BackendError, EarlyZygote]:
    """Close this process to others, and read the policy; the zygote starts meanwhile.

    Returns why nothing may run, where that is so. Raises ``StartError``.
    """
    spawn.protect_host()
    project = _project()
    early = EarlyZygote(options.policy, project, Path(make_scratch()), bare)
    asked = _asked(options, project, early.scratch)
    if not early.is_started:
        early.start(predict_wrapping(asked))
    config = resolve(asked)
    if isinstance(config, SessionConfig):
        early.settle(config.wrap)
    return config, early


def resolve_launched(
    options: Options, early: EarlyZygote
) -> SessionConfig | PolicyError | BackendError:
    """Read the policy of a kernel that waited for its launch: the one before it was a guess.

    Raises ``StartError``.
    """
    project = _project()
    config = resolve(_asked(options, project, early.scratch))
    if isinstance(config, SessionConfig):
        early.settle(config.wrap)
        early.recollect(options.policy, project)
    return config


def _project() -> Path:
    try:
        return Path.cwd()
    except OSError as exc:
        what = f"the folder it was started in: {exc.strerror}"
        raise StartError(f"{what}. Start it in one that is there.") from None


def _asked(options: Options, project: Path, scratch: Path) -> SessionOptions:
    keys = Path(options.connection_file)
    return SessionOptions(
        options.policy,
        project,
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


class EarlyZygote:
    """At most one zygote, for a kernel with this policy in this folder."""

    def __init__(self, policy: str, project: Path, scratch: Path, bare: Zygote | None) -> None:
        self.scratch = scratch
        #: It, if it is started and not taken yet, and what is around it.
        self._zygote = bare
        self._around: Wrapping | Recalled | None = None
        self._due: Wrapping | None = None
        #: What it was told, where it waits for a launch.
        self._told: Prepare | None = None
        self._memory: WrappingCache | None = None
        if bare is None:
            self.start(self.recollect(policy, project).recall())

    def recollect(self, policy: str, project: Path) -> WrappingCache:
        """Have the wrapping kept for kernels of this policy and folder; return where that is."""
        self._memory = WrappingCache(cache_folder(), policy, str(project), str(self.scratch))
        return self._memory

    @property
    def is_started(self) -> bool:
        """Whether it is started and not taken yet."""
        return self._zygote is not None

    def start(self, around: Wrapping | Recalled | None) -> None:
        """Start it in ``around``, if that is known."""
        if around is not None:
            with contextlib.suppress(OSError):  # it is tried again, and reported
                self._zygote = spawn.start(around)
                self._around = around

    def settle(self, due: Wrapping | None) -> None:
        """End it unless it is in the wrapping that is due."""
        self._due = due
        if not is_alike(self._around, due):
            self.end()

    def prepare(self, config: SessionConfig) -> None:
        """Have it prepare for a kernel as the last one was, which the next one may differ from.

        Not where somebody is asked first, where the zygote is a container, or mounts anything over
        the project.
        """
        is_foreseen = config.policy.approvals == "never" and not config.prepare.plan.layers
        if is_foreseen and (config.wrap is None or config.wrap.words):
            if not self.is_started:
                self.start(config.wrap)
            if self._zygote is not None:
                self._told = first_frame(config.prepare)
                tell(self._zygote[0], self._told)

    def is_told(self, first: Prepare) -> bool:
        """Whether the zygote was told just this; one that was told anything else is ended."""
        told, self._told = self._told, None
        if told is not None and told != first:
            self.end()
        return self.is_started and told == first

    def take(self) -> Zygote:
        """Return the zygote; another one if it is taken or was not started. Raises OSError."""
        zygote, self._zygote = self._zygote, None
        return zygote or spawn.start(self._due)

    def end(self) -> None:
        """End the zygote, if it was started and is not taken."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            spawn.drop(*zygote)

    def remember(self) -> None:
        """Keep the wrapping for the next kernel."""
        memory, self._memory = self._memory, None
        if memory is not None and self._due is not None and (words := self._due.words):
            memory.keep(words)


def is_alike(around: Wrapping | Recalled | None, due: Wrapping | None) -> bool:
    """Return whether a zygote in ``around`` is in the wrapping that is due."""
    if around is None or due is None:
        return around is due
    # A foreseen wrapping is equal as a value; words are made anew each time.
    return around == due or (bool(around.words) and around.words == due.words)
