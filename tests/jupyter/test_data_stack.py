"""Honest programs, one per file: the list of system calls is there for them, and has what they need.

Those in `honest/data` run under presets data and unsafe, those in `honest/unsafe`, which import
what the language layer does not let in, under unsafe; as whoever runs the tests, and as nobody.
"""

import os
from pathlib import Path

import pytest

from support import reading
from support.kernels import Kernel, World, argv_for, nobody_prefix, world_of_nobody

for module in ("matplotlib", "pandas", "polars", "pyarrow", "scipy", "sklearn"):
    pytest.importorskip(module, reason="extra 'data' is not installed")

FOLDER = Path(__file__).parent / "honest"
OF_DATA = sorted(FOLDER.glob("data/*.py"))
ALL = [*OF_DATA, *sorted(FOLDER.glob("unsafe/*.py"))]
USERS = ["same user", "nobody"] if os.geteuid() == 0 else ["same user"]

#: What a guest is told that holds much, on a machine that is busy; it is no fault of the program's.
SLOW = "[cellblock takes no snapshot: the last one took"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=USERS)
def start(request):
    """Start one kernel per policy, in a world with a work folder."""
    prefix = nobody_prefix() if request.param == "nobody" else ()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    started = {}

    def of(policy, *options):
        if policy not in started:
            world = world_of_nobody() if prefix else World()
            (world.work / "work").mkdir()
            world.give(world.work / "work")
            argv = argv_for(world.policy(policy) if "=" in policy else policy, *options)
            started[policy] = Kernel(argv, world=world, prefix=prefix)
            started[policy].wait_ready()
        return started[policy]

    yield of
    for kernel in started.values():
        kernel.close()
        kernel.world.close()


def run(kernel, path, before=""):
    mid = kernel.execute_send(before + path.read_text())
    reply = kernel.reply(mid, timeout=60)["content"]
    published = kernel.until(
        lambda m: m["msg_type"] == "status" and m["content"]["execution_state"] == "idle", mid
    )
    lines = reading.stream(published, "stderr").splitlines()
    said = "\n".join(line for line in lines if not line.startswith(SLOW))
    assert reply["status"] == "ok", "\n".join(reply["traceback"]) + said
    assert "cellblock" not in said
    # joblib finds no processes to use, says so, and goes on in one.
    assert "ermission" not in said or "joblib will operate in serial mode" in said


@pytest.mark.parametrize("path", OF_DATA, ids=lambda path: path.stem)
def test_it_runs_under_preset_data(path, start):
    run(start("data"), path)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_it_runs_under_preset_unsafe(path, start):
    # Its folder is the scratch folder; all of these libraries in one guest take more than 1 GiB.
    unsafe = "extends = 'unsafe'\nmemory_max_bytes = 8_589_934_592\nmax_file_size = 'none'"
    run(start(unsafe, "--allow-unsafe"), path, "import os; os.makedirs('work', exist_ok=True)\n")


EXPLAINED = {
    "subprocess_execution": [
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true') == 0 or os.fork()",
        "import multiprocessing; multiprocessing.Pool(2)",
        "import multiprocessing; multiprocessing.Process(target=print).start()",
        "import multiprocessing; multiprocessing.Lock()",
        "from multiprocessing.shared_memory import SharedMemory; SharedMemory(create=True, size=9)",
        "from concurrent.futures import ProcessPoolExecutor as P; P(2).submit(abs, 1).result()",
        "import asyncio; await asyncio.create_subprocess_exec('true')",
    ],
    "network_access": [
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import pandas as pd; pd.read_csv('http://127.0.0.1:9/a.csv')",
    ],
    "filesystem_write_roots": [
        "open('/tmp/made', 'w')",
        "import sqlite3; sqlite3.connect('/tmp/made.db').execute('create table t(a)')",
        "import pandas as pd; pd.DataFrame({'a': [1]}).to_parquet('/tmp/made.parquet')",
        "import polars as pl; pl.DataFrame({'a': [1]}).write_parquet('/tmp/made.parquet')",
        "import pyarrow as pa; pa.OSFile('/tmp/made', 'wb')",
        "import numpy as np; np.save('/tmp/made.npy', [1])",
    ],
    "filesystem_read_roots": [
        "open('/etc/passwd')",
        "import os; os.listdir('/home')",
        "import pandas as pd; pd.read_parquet('/etc/passwd')",
        "import polars as pl; pl.read_csv('/etc/passwd')",
        "import pyarrow.csv as c; c.read_csv('/etc/passwd')",
    ],
}


@pytest.mark.parametrize(
    ("field", "code"), [(field, code) for field, codes in EXPLAINED.items() for code in codes]
)
def test_what_is_refused_names_the_field_that_would_allow_it(field, code, start):
    reply, published = start("unsafe", "--allow-unsafe").run(code)
    assert reply["status"] == "error"
    said = reading.traceback(published)
    assert "The operator can allow it" in said, said[-600:]
    assert field in said
