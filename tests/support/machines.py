"""Environments with and without bubblewrap, by which ``auto`` chooses another backend.

Tests use backend landlock unless they say otherwise, since most machines have only that, and
bubblewrap adds to it. With ``CELLBLOCK_TEST_BACKEND=bubblewrap`` all tests use bubblewrap.
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
#: The machine's own PATH. The process that starts pytest-xdist's workers has changed it.
WITH_BUBBLEWRAP = os.environ.setdefault("CELLBLOCK_TEST_PATH", os.environ["PATH"])
BACKEND = os.environ.get("CELLBLOCK_TEST_BACKEND", "landlock")


def users(*, wrapped: bool = False) -> list[str]:
    """Return the users as whom kernels are started.

    With ``wrapped`` the one with the fewest rights is also there in namespaces.
    """
    found = ["same user", "nobody"] if os.geteuid() == 0 else ["same user"]
    return [*found, f"{found[-1]} in namespaces"] if wrapped else found


def places() -> list[tuple[str, str]]:
    """Return each user with each backend."""
    return [(user, backend) for user in users() for backend in ("landlock", "bubblewrap")]


def has_ipv6() -> bool:
    """Return whether a socket can listen at ::1."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def path(backend: str = BACKEND) -> str:
    """Return a PATH with which ``auto`` chooses ``backend``."""
    return WITH_BUBBLEWRAP if backend == "bubblewrap" else _without_bubblewrap()


@lru_cache(maxsize=1)
def no_bubblewrap() -> str:
    """Return why guests can't be started behind the real bwrap here; empty if they can."""
    with pytest.MonkeyPatch.context() as machine:
        machine.setenv("PATH", WITH_BUBBLEWRAP)
        found = Bubblewrap().probe()
    return "" if found.usable else found.why


@lru_cache(maxsize=1)
def _without_bubblewrap() -> str:
    folders = dict.fromkeys(os.path.realpath(name) for name in WITH_BUBBLEWRAP.split(":") if name)
    return ":".join(_mirrored(name) if Path(name, BWRAP).exists() else name for name in folders)


def _mirrored(folder: str) -> str:
    """Return a folder of links to all files of another, without bwrap."""
    made = Path(tempfile.mkdtemp(prefix="cb-path-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    made.chmod(0o755)
    for entry in os.scandir(folder):
        if entry.name != BWRAP:
            (made / entry.name).symlink_to(entry.path)
    return str(made)
