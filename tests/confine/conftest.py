"""One process confined for real, by forks of the tests' own process: no kernel is started."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from confine.cell import NOBODY, World


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.quick)


def identities():
    """As whoever runs the tests, and as nobody if that one may."""
    return [os.getuid(), NOBODY] if os.getuid() == 0 else [os.getuid()]


@pytest.fixture(params=identities(), ids=lambda uid: f"uid{uid}")
def uid(request):
    return request.param


@pytest.fixture(scope="session")
def worlds():
    """Return the world of a user, made once."""
    made = []

    @cache
    def of(uid):
        # Not tmp_path: its parents are closed to other users.
        top = Path(tempfile.mkdtemp(prefix="cellblock-test-"))
        places = [top / name for name in ("readable", "scratch", "outside")]
        for place in places:
            place.mkdir()
            (place / "file").write_text(f"contents of {place.name}\n")
            (place / "spare").write_text("to be truncated")
            (place / "link").symlink_to(top / "outside" / "file")
        for path in (top, *top.rglob("*")):
            os.chown(path, uid, -1, follow_symlinks=False)
        top.chmod(0o755)
        user = {} if uid == os.getuid() else {"user": uid, "group": uid, "extra_groups": []}
        sentinel = subprocess.Popen(["/bin/sleep", "infinity"], **user)
        listener = socket.create_server(("127.0.0.1", 0))
        made.append((top, sentinel, listener))
        return World(*places, sentinel=sentinel.pid, port=listener.getsockname()[1])

    yield of
    for top, sentinel, listener in made:
        listener.close()
        sentinel.kill()
        sentinel.wait()
        shutil.rmtree(top)


@pytest.fixture
def world(worlds, uid):
    return worlds(uid)
