"""Fixtures for every test: kernels in a world of their own, none of which leaves a process."""

import os
import signal

import hypothesis
import pytest

from support import machines, processes
from support.kernels import Kernel, World, argv_for, world_and_prefix

# Backends are chosen in this process, too.
os.environ["PATH"] = machines.path()

# Tests press Ctrl-C. What a script has begun in its background is deaf to it, as to SIGQUIT.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How quick an example is says something of the machine, which other tests share. The examples are
# the same each time, and few: `make fuzz` looks for others.
hypothesis.settings.register_profile(
    "shared",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("shared")


def pytest_collection_modifyitems(items):
    """Begin with what may take longest: at the end one worker would be busy and all others wait."""

    def allowed(item):
        marker = item.get_closest_marker("timeout")
        return marker.args[0] if marker is not None else 0

    items.sort(key=allowed, reverse=True)


@pytest.fixture(scope="session", autouse=True)
def _adopt_orphans():
    processes.adopt_orphans()


def kernels(*, begun=False):
    """Yield a function that starts kernels; all are ended and accounted for afterwards.

    A kernel that is ``begun`` has run a first cell.
    """
    started = []

    def start(policy="safe", *options, argv=None, **keywords):
        kernel = Kernel(argv or argv_for(policy, *options), **keywords)
        started.append(kernel)
        kernel.wait_ready()
        if begun:
            kernel.run("None")
        return kernel

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
    """Start a kernel for a whole module, and have it run a first cell.

    What a session shows on that, a test would see or not, by which tests its worker ran before.
    """
    yield from kernels(begun=True)


@pytest.fixture(scope="module")
def safe(start_shared):
    """One kernel under preset safe, for tests that leave no state that matters."""
    return start_shared("safe")


@pytest.fixture(scope="module")
def unsafe(start_shared):
    """One kernel under preset unsafe, as `safe`."""
    return start_shared("unsafe", "--allow-unsafe")


#: Only root can start a kernel as another user; anybody else tests as themselves.
USERS = machines.users()


@pytest.fixture(params=USERS)
def somebody(request):
    """Return the keywords that start a kernel as the user of this suite, then as nobody.

    A test may ask for one ``in namespaces`` besides, by ``machines.users(wrapped=True)``.
    """
    made, prefix = world_and_prefix(request.param)
    yield {"world": made, "prefix": prefix}
    made.close()
