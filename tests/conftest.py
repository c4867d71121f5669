"""Fixtures for every test: kernels in a world of their own, none of which leaves a process."""

import os
import signal

import hypothesis
import pytest

from support import machines, processes
from support.kernels import NOBODY, Kernel, World, argv_for, nobody_prefix

# Backends are chosen in this process, too.
os.environ["PATH"] = machines.path()

# Tests press Ctrl-C. What a script has begun in its background is deaf to it, as to SIGQUIT.
signal.signal(signal.SIGINT, signal.default_int_handler)

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
USERS = machines.users()


@pytest.fixture(params=USERS)
def somebody(request):
    """Return the keywords that start a kernel as the user of this suite, then as nobody.

    A test may ask for one ``in namespaces`` besides, by ``machines.users(wrapped=True)``.
    """
    user, _, wrapped = request.param.partition(" in ")
    if wrapped and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    prefix = nobody_prefix() if user == "nobody" else ()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    backend = "bubblewrap" if wrapped else machines.BACKEND
    made = World(NOBODY if user == "nobody" else None, backend)
    yield {"world": made, "prefix": prefix}
    made.close()
