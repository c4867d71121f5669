from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from unit.guest.confine.cell import NOBODY, World


def identities():
    """As whoever runs the tests, and as nobody if that one may."""
    return [os.getuid(), NOBODY] if os.getuid() == 0 else [os.getuid()]


@pytest.fixture(scope="session", params=identities(), ids=lambda uid: f"uid{uid}")
def uid(request):
    return request.param


@pytest.fixture(scope="session")
def world(uid):
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
    sentinel = subprocess.Popen(["/bin/sleep", "600"], **user)
    listener = socket.create_server(("127.0.0.1", 0))
    yield World(*places, sentinel=sentinel.pid, port=listener.getsockname()[1])
    listener.close()
    sentinel.kill()
    sentinel.wait()
    shutil.rmtree(top)
