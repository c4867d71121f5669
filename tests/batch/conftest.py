"""Runs in folders of their own, and no process left of any."""

import tempfile

import pytest

from support import processes
from support.kernels import World
from support.runs import Runs


def runs():
    world = World()
    yield Runs(world)
    left = processes.gone([])
    processes.end(left)
    world.close()
    assert left == []


@pytest.fixture
def run():
    """Return what runs the command in folders for one test."""
    yield from runs()


@pytest.fixture(scope="module")
def run_shared():
    """Return the same for a whole module."""
    yield from runs()


@pytest.fixture
def here(run, monkeypatch):
    """Have this process in a run's folders, and return the one for notebooks."""
    for name, value in run.world.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(run.work)
    return run.work
