"""Sessions with snapshots, and no process."""

import pytest

from support.stepwise import Stepwise


@pytest.fixture
def stepwise(monkeypatch):
    made = []

    def simulation(**settings):
        made.append(Stepwise(monkeypatch, **settings))
        return made[-1]

    yield simulation
    for simulation in made:
        simulation.close()


@pytest.fixture
def sim(stepwise):
    """A session whose first copy stands."""
    made = stepwise()
    made.stands(made.guest.copy())
    return made
