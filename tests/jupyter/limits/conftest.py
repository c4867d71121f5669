"""Kernels under tight limits, for the user of this suite and for nobody."""

import pytest

from conftest import USERS
from support.kernels import world_and_prefix
from support.limits import tight_argv


@pytest.fixture(scope="module")
def start_tight(start_shared):
    """Start a kernel of this module's."""

    def started(user="same user", **changes):
        world, prefix = world_and_prefix(user)
        made = start_shared(argv=tight_argv(world, **changes), world=world, prefix=prefix)
        made.own_world = True
        return made

    return started


@pytest.fixture(scope="module", params=USERS)
def tight(request, start_tight):
    """One kernel under tight limits, in mode unsafe."""
    made = start_tight(request.param)
    made.run("None")  # shows the gaps
    return made
