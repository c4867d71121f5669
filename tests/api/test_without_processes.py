"""A user who may have no more processes: what that costs the sandboxes that there are."""

import subprocess
import sys
from pathlib import Path

import pytest

from support import kernels

#: Of root the OS kernel asks for no such limit.
WITHOUT_PROCESSES = """
import os, resource, sys
from cellblock import Policy, SandboxPool
from cellblock.errors import CellblockError
from support import processes

def limit(most):
    for pid in processes.tree(os.getpid())[1:]:
        _, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (most or hard, hard))

policy = Policy.preset("data", backend=sys.argv[1])
with SandboxPool(policy) as pool, pool.sandbox() as one:
    one.execute("kept = 1")
    limit(1)
    try:
        pool.sandbox().open()
    except CellblockError as error:
        print(" ".join(str(error).split()))
    limit(None)
    print(one.get("kept"))
    with pool.sandbox() as other:
        print(other.execute("2").value)
"""


@pytest.fixture(params=["nobody", "nobody in namespaces"])
def nobody(request):
    """A world of an ordinary user, and what to put before commands."""
    world, prefix = kernels.world_and_prefix(request.param)
    yield world, prefix
    world.close()


def test_a_guest_that_can_not_be_forked_costs_the_others_nothing(nobody):
    world, prefix = nobody
    done = subprocess.run(
        [*prefix, sys.executable, "-c", WITHOUT_PROCESSES, world.backend],
        env=world.environment(PYTHONPATH=str(Path(__file__).parents[1])),
        cwd=world.work,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said, *others = done.stdout.splitlines()
    assert "no process could be made for it: Resource temporarily unavailable" in said
    assert others == ["1", "2"]
