"""Whether a session can have a network of its own here, with listed hosts as neighbours in it.

That is tried once (``guest.confine.own_network``), in a process behind the backend that cells will
be behind. If it works that is remembered until the machine is started anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cellblock.backends.base import run_trial, trial_argv
from cellblock.backends.plan import interpreter_view
from cellblock.errors import BackendError
from cellblock.policy.folders import cache_folder

if TYPE_CHECKING:
    from cellblock.backends.base import Backend

#: Seconds that a trial may take. It takes about 0.1 s.
_PATIENCE: Final = 10.0
_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_HOSTS: Final = "/etc/hosts"
_WORKS: Final = "works"
_MOST_SAID: Final = 300
#: What may forbid such a network, for the user to look at.
_SETTINGS: Final = (
    "see user.max_user_namespaces, user.max_net_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns, and the container's system call filter"
)


@cache
def why_not(backend: Backend) -> str:
    """Return why sessions can't have such a network behind a backend, or ""."""
    marker = Path(cache_folder(), f"network-{_circumstances(backend)}")
    if marker.exists():
        return ""
    if (answer := _try(backend)) != _WORKS:
        return f"no network namespace can be made here ({answer}): {_SETTINGS}"
    with contextlib.suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    return ""


def _circumstances(backend: Backend) -> str:
    """Return a name for the circumstances on which the answer depends."""
    try:
        boot = Path(_BOOT).read_text("ascii")
    except OSError as error:
        boot = str(error)
    facts = (boot, os.uname().release, os.getuid(), backend.name, backend.fingerprint())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _try(backend: Backend) -> str:
    """Have a process make such a network and connect in it; return "works", or why not."""
    try:
        with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
            folder_path = os.path.realpath(folder)
            argv = trial_argv("cellblock.guest.confine.own_network", "run_trial", folder_path)
            view = interpreter_view(writable=(folder_path,))
            readable = (*view.readable, os.path.realpath(_HOSTS))
            view = structs.replace(view, readable=readable, names=(*view.names, _HOSTS))
            with backend.command(argv, view) as command:
                completed = run_trial(command, _PATIENCE)
    except (OSError, ValueError, BackendError) as error:
        return str(error)
    answer = (completed.stdout or completed.stderr).decode(errors="replace").strip()
    return answer[-_MOST_SAID:] or f"the trial ended with status {completed.returncode}"
