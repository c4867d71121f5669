"""Kernels under tight limits, for the user of this suite and for nobody."""

import pytest

from conftest import USERS, kernels
from support.kernels import World, nobody_prefix, world_of_nobody
from support.limits import tight_argv


@pytest.fixture(scope="module")
def start_tight():
    """Start a kernel of this module's."""
    worlds = []
    starter = kernels()
    start = next(starter)

    def started(user="same user", **changes):
        world = world_of_nobody() if user == "nobody" else World()
        worlds.append(world)
        prefix = nobody_prefix() if user == "nobody" else ()
        if prefix is None:
            pytest.skip("this interpreter is out of reach for uid 65534, also in a namespace")
        return start(argv=tight_argv(world, **changes), world=world, prefix=prefix)

    yield started
    for _ in starter:
        pass
    for world in worlds:
        world.close()


@pytest.fixture(scope="module", params=USERS)
def tight(request, start_tight):
    """One kernel under tight limits, in mode unsafe."""
    return start_tight(request.param)
