"""A user who does what a page says: commands in a world of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import commands, doc_pages


@pytest.fixture
def shell(world, monkeypatch):
    """Return a function that runs a script; it returns what came of it, as ``subprocess.run``."""
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    # What pytest would look for among all that is installed here takes it longer than the rest.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "nbmake.pytest_plugin")

    def run(script, cwd=world.work, **variables):
        monkeypatch.chdir(cwd)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        lines = script.strip().splitlines()
        if all(line.startswith("cellblock ") for line in lines):
            ran = [commands.in_this_process(line) for line in lines]
            return next((one for one in ran if one.returncode), ran[-1])
        command = ["bash", "-euo", "pipefail", "-c", script]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)

    return run


@pytest.fixture
def follow(world, shell):
    """Return a function that writes a page's files and runs its commands, each of which succeeds.

    Texts on the page may be replaced, and commands left out by how they begin.
    """

    def done(page, replaced=(), *, but=("pip ",)):
        for name, text in doc_pages.files(page).items():
            for old, new in replaced:
                text = text.replace(old, new)  # noqa: PLW2901
            world.write(name, text)
        for script in doc_pages.blocks(page, "bash"):
            lines = [line for line in script.splitlines() if not line.startswith(but)]
            ran = shell("\n".join(lines)) if lines else None
            assert not ran or ran.returncode == 0, ran.stdout + ran.stderr

    return done
