"""A first cell runs where its imports were made, and only time tells that they were (P1, P6)."""

import contextlib
import time

import pytest

from support import machines, processes, reading
from support.kernels import Kernel, argv_for

#: What names a module without importing it, and shows whether it is there.
LOOK = "import sys\n'numpy' in getattr(sys, 'mod' + 'ules')"


def guests(kernel):
    return [pid for pid in kernel.tree() if processes.name(pid) == "cb-guest"]


@pytest.fixture
def idle():
    """Return what starts a kernel of preset data, left alone until its spare guest rests."""
    with contextlib.ExitStack() as stack:

        def made(**somebody):
            kernel = Kernel(argv_for("data"), **somebody)
            stack.enter_context(contextlib.closing(kernel))
            kernel.wait_heard()
            processes.until(lambda: len(guests(kernel)) == 2)

            def spent():
                return sum(map(processes.cpu_seconds, guests(kernel)))

            processes.until(lambda: len(guests(kernel)) != 2 or spent() > 0.2)
            # On a busy machine it waits for a processor for a while.
            processes.settled(spent, 3.0)
            return kernel

        yield made


@pytest.mark.parametrize("somebody", machines.users(wrapped=True), indirect=True)
def test_a_first_cell_does_not_wait_for_what_it_names(idle, somebody):
    kernel = idle(**somebody)
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
        f"import own\n{LOOK}",
    ],
    ids=["names nothing", "sets the environment", "changes the folder", "imports what is beside"],
)
def test_a_first_cell_that_may_import_otherwise_finds_nothing_imported(idle, world, code):
    world.write("own.py", "import os; os.environ['MPLBACKEND'] = 'pdf'")
    kernel = idle(world=world)
    assert reading.result(kernel.run(code)[1]) == "False"
    processes.until(lambda: len(guests(kernel)) == 1)


def test_a_kill_in_the_first_cell_leaves_a_kernel_that_runs(idle, world):
    kernel = idle(world=world)
    reply, published = kernel.run("import numpy, os\nos.kill(os.getpid(), 9)")
    assert reply["ename"] == "CellStopped"
    assert "Your variables are as they were before it." in reading.card_text(published)
    assert reading.result(kernel.run("import numpy\nint(numpy.arange(3).sum())")[1]) == "3"


def test_opening_a_notebook_runs_no_module_beside_it(idle, world):
    world.write("pandas.py", "open('ran', 'w').close()\nmine = True")
    kernel = idle(world=world)
    assert reading.result(kernel.run("import os\nos.path.exists('ran')")[1]) == "False"
    assert reading.result(kernel.run("import pandas\npandas.mine")[1]) == "True"


def test_opening_a_notebook_reads_no_settings_beside_it(world):
    world.write("matplotlibrc", "figure.dpi: 33")
    with contextlib.closing(Kernel(argv_for("data"), world=world)) as kernel:
        kernel.wait_heard()
        time.sleep(4)  # it is forked after one, and gone at once
        assert reading.result(kernel.run(LOOK)[1]) == "False"
        code = "import matplotlib\nmatplotlib.rcParams['figure.dpi']"
        assert reading.result(kernel.run(code)[1]) == "33.0"
