"""A first cell runs where its imports were made, and only time tells that they were (P1, P6)."""

import contextlib
import time

import pytest

from support import processes, reading
from support.kernels import Kernel, argv_for

#: What names a module without importing it, and shows whether it is there.
LOOK = "import sys\n'numpy' in getattr(sys, 'mod' + 'ules')"


def guests(kernel):
    return [pid for pid in kernel.tree() if processes.name(pid) == "cb-guest"]


def left_alone(kernel):
    """Return a kernel once its spare guest rests, or is gone."""
    kernel.wait_heard()
    processes.until(lambda: len(guests(kernel)) == 2)
    spent, before = 0.0, -1.0
    while len(guests(kernel)) == 2 and not spent == before > 0.2:
        time.sleep(0.5)
        before, spent = spent, sum(map(processes.cpu_seconds, guests(kernel)))
    return kernel


@pytest.fixture
def idle(world):
    """Return what starts a kernel of preset data and leaves it alone."""
    with contextlib.ExitStack() as stack:

        def made():
            kernel = Kernel(argv_for("data"), world=world)
            return left_alone(stack.enter_context(contextlib.closing(kernel)))

        yield made


def test_a_first_cell_does_not_wait_for_what_it_names(idle):
    kernel = idle()
    assert reading.result(kernel.run(LOOK)[1]) == "True"
    processes.until(lambda: len(guests(kernel)) == 1)
    kernel.run("x = 1")
    reply, _ = kernel.run("import os\nos.kill(os.getpid(), 9)")
    assert reply["ename"] == "CellStopped"
    assert reading.result(kernel.run("x")[1]) == "1"


@pytest.mark.parametrize(
    "code",
    [
        LOOK.replace("'numpy'", "'num' + 'py'"),
        f"import os\nos.environ['OMP_NUM_THREADS'] = '1'\n{LOOK}",
        f"%cd /tmp\n{LOOK}",
    ],
    ids=["names nothing", "sets the environment", "changes the folder"],
)
def test_a_first_cell_that_may_import_otherwise_finds_nothing_imported(idle, code):
    kernel = idle()
    assert reading.result(kernel.run(code)[1]) == "False"
    processes.until(lambda: len(guests(kernel)) == 1)


def test_a_kill_in_the_first_cell_leaves_a_kernel_that_runs(idle):
    kernel = idle()
    reply, published = kernel.run("import numpy, os\nos.kill(os.getpid(), 9)")
    assert reply["ename"] == "CellStopped"
    assert "Your variables are as they were before it." in reading.card_text(published)
    assert reading.result(kernel.run("import numpy\nint(numpy.arange(3).sum())")[1]) == "3"


def test_opening_a_notebook_runs_no_module_beside_it(idle, world):
    world.write("pandas.py", "open('ran', 'w').close()\nmine = True")
    kernel = idle()
    assert reading.result(kernel.run("import os\nos.path.exists('ran')")[1]) == "False"
    assert reading.result(kernel.run("import pandas\npandas.mine")[1]) == "True"
