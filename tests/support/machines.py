"""A machine with bubblewrap on it, and the same without: what ``auto`` takes hangs on that.

Tests are of backend landlock unless they say otherwise: it is what most machines have, and what
bubblewrap is around. With ``CELLBLOCK_TEST_BACKEND=bubblewrap`` all of them are of bubblewrap.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

from cellblock.backends.bubblewrap import Bubblewrap

BWRAP = "bwrap"
#: The machine's own PATH. Workers of pytest-xdist are started by a process that has changed it.
WITH_BUBBLEWRAP = os.environ.setdefault("CELLBLOCK_TEST_PATH", os.environ["PATH"])
BACKEND = os.environ.get("CELLBLOCK_TEST_BACKEND", "landlock")


def users(*, wrapped: bool = False) -> list[str]:
    """Return as whom kernels are started; ``wrapped``, and who may do least also in namespaces."""
    found = ["same user", "nobody"] if os.geteuid() == 0 else ["same user"]
    return [*found, f"{found[-1]} in namespaces"] if wrapped else found


def places() -> list[tuple[str, str]]:
    """Return each user that starts kernels, with each backend that confines them here."""
    return [(user, backend) for user in users() for backend in ("landlock", "bubblewrap")]


def has_ipv6() -> bool:
    """Return whether something can listen at ::1."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def path(backend: str = BACKEND) -> str:
    """Return a PATH by which ``auto`` takes ``backend``."""
    return WITH_BUBBLEWRAP if backend == "bubblewrap" else _without_bubblewrap()


@lru_cache(maxsize=1)
def no_bubblewrap() -> str:
    """Return why guests can't be put behind the real bwrap here; nothing where they can."""
    with pytest.MonkeyPatch.context() as machine:
        machine.setenv("PATH", WITH_BUBBLEWRAP)
        found = Bubblewrap().probe()
    return "" if found.usable else found.why


@lru_cache(maxsize=1)
def _without_bubblewrap() -> str:
    folders = dict.fromkeys(os.path.realpath(name) for name in WITH_BUBBLEWRAP.split(":") if name)
    return ":".join(_mirrored(name) if Path(name, BWRAP).exists() else name for name in folders)


def _mirrored(folder: str) -> str:
    """Return a folder of links to all that there is in another, but for one."""
    made = Path(tempfile.mkdtemp(prefix="cb-path-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    made.chmod(0o755)
    for entry in os.scandir(folder):
        if entry.name != BWRAP:
            (made / entry.name).symlink_to(entry.path)
    return str(made)
