"""Sandboxes in this process, in folders of their own, and nothing left of them afterwards."""

import gc
import os
import tempfile
import threading
from pathlib import Path

import pytest

from cellblock import Policy, Sandbox, SandboxPool
from support import processes

FOLDERS = ("cache", "data", "tmp", "project")
VARIABLES = {"XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data", "TMPDIR": "tmp"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder in which all are that a sandbox may write to; the current one is in it."""
    root = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in FOLDERS:
            (root / name).mkdir()
        for variable, name in VARIABLES.items():
            patch.setenv(variable, str(root / name))
        patch.setattr(tempfile, "tempdir", None)
        patch.chdir(root / "project")
        yield root


@pytest.fixture(scope="module")
def pool(home):
    """One warm zygote under preset safe for a whole module."""
    assert home
    with SandboxPool("safe") as made:
        yield made


@pytest.fixture
def sandbox(pool):
    """A sandbox of that pool."""
    with pool.sandbox() as one:
        yield one


@pytest.fixture(scope="module")
def unsafe(home):
    """A sandbox in which anything may be said."""
    assert home
    with Sandbox("unsafe", allow_unsafe=True) as one:
        yield one


@pytest.fixture(scope="module")
def asking_policy(home):
    """A policy under which its user is asked, with a file to be read."""
    (home / "project" / "a.txt").write_text("text")
    return Policy.preset(
        "safe",
        name="asking",
        approvals="prompt",
        timeout=5.0,
        ops={"read_file": {"roots": ["{project}"]}},
    )


@pytest.fixture
def nothing_left(home):
    """See to it that a test leaves no process, no temporary file, no descriptor and no thread."""
    gc.collect()  # what other tests dropped would be missing afterwards
    before = seen(home), threading.active_count()
    yield
    processes.until(lambda: (seen(home), threading.active_count()) == before)


def seen(home):
    folders = (home / "tmp", home / "cache" / "cellblock" / "output")
    files = [sorted(folder.iterdir()) for folder in folders if folder.exists()]
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return processes.tree(os.getpid())[1:], files, descriptors
