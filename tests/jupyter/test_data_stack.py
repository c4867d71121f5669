"""Honest programs, one per file: the list of system calls is there for them, and has what they need.

Those in `honest/data` run under preset data, those in `honest/unsafe`, which import what the
language layer does not let in, under unsafe; as whoever runs the tests, and as nobody. The list is
the same for either user: those of data run under unsafe as whoever runs the tests alone.
"""

import re
from pathlib import Path

import pytest

from conftest import USERS
from support import reading
from support.kernels import NOBODY, World, argv_for, nobody_prefix

for module in ("matplotlib", "pandas", "polars", "pyarrow", "scipy", "sklearn"):
    pytest.importorskip(module, reason="extra 'data' is not installed")

FOLDER = Path(__file__).parent / "honest"
OF_DATA = sorted(FOLDER.glob("data/*.py"))
OF_UNSAFE = sorted(FOLDER.glob("unsafe/*.py"))
ALL = [*OF_DATA, *OF_UNSAFE]

#: What is said once of files that a cell leaves below ~, where nothing is staged.
AT_HOME = "[cellblock notes: ~ is the cells' own scratch folder"
#: What a guest is told that holds much, on a machine that is busy; it is no fault of the program's.
SLOW = "[cellblock takes no snapshot: the last one took"

pytestmark = pytest.mark.timeout(300)


#: Its folder is the scratch folder; all of these libraries in one guest take more than 1 GiB.
LARGE = "extends = 'unsafe'\nmemory_max_bytes = 8_589_934_592\nmax_file_size = 'none'"


@pytest.fixture(scope="module")
def start(start_shared):
    """Start one kernel per user and policy, in a world with a work folder."""
    started = {}

    def of(user, policy, *options):
        prefix = nobody_prefix() if user == "nobody" else ()
        if prefix is None:
            pytest.skip("this interpreter is out of reach for uid 65534, also in a namespace")
        if (user, policy) not in started:
            world = World(NOBODY if prefix else None)
            (world.work / "work").mkdir()
            world.give(world.work / "work")
            argv = argv_for(world.policy(policy) if "=" in policy else policy, *options)
            started[user, policy] = start_shared(argv=argv, world=world, prefix=prefix)
            started[user, policy].own_world = True
        return started[user, policy]

    return of


def run(kernel, path, before=""):
    mid = kernel.execute_send(before + path.read_text())
    reply = kernel.reply(mid, timeout=60)["content"]
    published = kernel.until_idle(mid)
    lines = reading.stream(published, "stderr").splitlines()
    said = "\n".join(line for line in lines if not line.startswith((SLOW, AT_HOME)))
    assert reply["status"] == "ok", "\n".join([path.name, *reply["traceback"]]) + said
    # Warnings name the cell, which is in the session's folder for temporary files.
    assert "cellblock" not in re.sub(r"\S+/ipykernel_\d+/", "", said), path.name
    # joblib finds no processes to use, says so, and goes on in one.
    assert "ermission" not in said or "joblib will operate in serial mode" in said, path.name


@pytest.mark.parametrize("user", USERS)
def test_they_run_under_preset_data(user, start):
    for path in OF_DATA:
        run(start(user, "data"), path)


@pytest.mark.parametrize("user", USERS)
def test_they_run_under_preset_unsafe(user, start):
    kernel = start(user, LARGE, "--allow-unsafe")
    for path in OF_UNSAFE if user == "nobody" else ALL:
        run(kernel, path, "import os; os.makedirs('work', exist_ok=True)\n")


EXPLAINED = {
    "subprocess_execution": [
        "import os; os.system('true') == 0 or os.fork()",
        "import multiprocessing; multiprocessing.Pool(2)",
        "import multiprocessing; multiprocessing.Process(target=print).start()",
        "import multiprocessing; multiprocessing.Lock()",
        "from multiprocessing.shared_memory import SharedMemory; SharedMemory(create=True, size=9)",
        "from concurrent.futures import ProcessPoolExecutor as P; P(2).submit(abs, 1).result()",
        "import asyncio; await asyncio.create_subprocess_exec('true')",
    ],
    "network_access": [
        "import pandas as pd; pd.read_csv('http://127.0.0.1:9/a.csv')",
    ],
    "filesystem_write_roots": [
        "import sqlite3; sqlite3.connect('/srv/made.db').execute('create table t(a)')",
        "import pandas as pd; pd.DataFrame({'a': [1]}).to_parquet('/srv/made.parquet')",
        "import polars as pl; pl.DataFrame({'a': [1]}).write_parquet('/srv/made.parquet')",
        "import pyarrow as pa; pa.OSFile('/srv/made', 'wb')",
        "import numpy as np; np.save('/srv/made.npy', [1])",
    ],
    "filesystem_read_roots": [
        "import pandas as pd; pd.read_parquet('/etc/passwd')",
        "import polars as pl; pl.read_csv('/etc/passwd')",
        "import pyarrow.csv as c; c.read_csv('/etc/passwd')",
    ],
}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("field", EXPLAINED)
def test_what_is_refused_names_the_field_that_would_allow_it(field, user, start):
    kernel = start(user, "unsafe", "--allow-unsafe")
    for code in EXPLAINED[field]:
        reply, published = kernel.run(code)
        assert reply["status"] == "error", code
        (shown,) = reading.cards(published, "refusal")
        assert shown["field"] == field or field in shown["instead"], (code, shown)
