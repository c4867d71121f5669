"""Runs in folders of their own, and no process left of any."""

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
