"""Fixtures for every test: kernels in a world of their own, none of which leaves a process."""

import os

import hypothesis
import pytest

from support import machines, processes
from support.kernels import Kernel, World, argv_for, nobody_prefix, world_of_nobody

# Backends are chosen in this process, too.
os.environ["PATH"] = machines.path()

# How quick an example is says something of the machine, which other tests share.
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared")


@pytest.fixture(scope="session", autouse=True)
def _adopt_orphans():
    processes.adopt_orphans()


def kernels():
    """Yield a function that starts kernels; all are ended and accounted for afterwards."""
    started = []

    def start(policy="safe", *options, argv=None, **keywords):
        kernel = Kernel(argv or argv_for(policy, *options), **keywords)
        started.append(kernel)
        return kernel.wait_ready()

    yield start
    for kernel in started:
        kernel.close()


@pytest.fixture
def world():
    """Return folders that stand in for a user's."""
    made = World()
    yield made
    made.close()


@pytest.fixture
def start(world):
    """Start a kernel for this test alone; the world outlives it."""
    assert world
    yield from kernels()


@pytest.fixture(scope="module")
def start_shared():
    """Start a kernel for a whole module."""
    yield from kernels()


@pytest.fixture(scope="module")
def safe(start_shared):
    """One kernel under preset safe, for tests that leave no state that matters."""
    return start_shared("safe")


@pytest.fixture(scope="module")
def unsafe(start_shared):
    """One kernel under preset unsafe, as `safe`."""
    return start_shared("unsafe", "--allow-unsafe")


#: Only root can start a kernel as another user; anybody else tests as themselves.
USERS = ["same user", "nobody"] if os.geteuid() == 0 else ["same user"]


@pytest.fixture(params=USERS)
def somebody(request):
    """Return the keywords that start a kernel as the user of this suite, then as nobody."""
    made, prefix = World(), ()
    if request.param == "nobody":
        made.close()
        made, prefix = world_of_nobody(), nobody_prefix()
    if prefix is None:
        made.close()
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    yield {"world": made, "prefix": prefix}
    made.close()
