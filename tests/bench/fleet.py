"""Measures many sandboxes, notebooks, calls and clients at once, beside other programs.

python tests/bench/fleet.py [sandboxes|run|cluster|tools|mcp] [options]

- sandboxes: milliseconds until the next sandbox of a pool serves, and of a call, beside a fresh
  Python, smolagents' local executor and sandlock
- run: notebooks per second of ``cellblock run``, beside nbconvert and nbclient with stock ipykernel
- cluster: notebooks per second of ``cellblock run --cluster``, and an estimate for more workers
- tools: microseconds of a call of a tool, and what tools add to a start
- mcp: milliseconds of a start and of a call of ``cellblock mcp`` over stdio

limits.py measures the memory of many sandboxes. docs/performance.md, docs/run.md and docs/tools.md
have figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import Comparison, Part, Table, run_parts, timed, timed_async

from cellblock import AsyncSandbox, AsyncSandboxPool, Policy, Sandbox, SandboxPool
from support import mcp_clients, processes, reading, tool_kernels
from support.clusters import Cluster
from support.kernels import Kernel, World, argv_for
from support.runs import MAIN, Runs, write

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

# --- sandboxes --------------------------------------------------------------------------------

PRELOAD = ("numpy", "pandas", "matplotlib")
USE_PANDAS = "import pandas as pd\nint(pd.DataFrame({'a': [1, 2, 3]}).a.sum())"
COMMAND = [sys.executable, "-c", USE_PANDAS]
FRESH = 'python -c "import pandas"'
#: Milliseconds, on a quiet machine.
SANDBOX_TARGETS = {
    "data pool: next, pandas used": 40.0,
    "Sandbox('data') alone: ready": 400.0,
    "data pool: a call": 1.5,
}


def sandboxes(options: argparse.Namespace) -> object:
    """Measure starts of sandboxes and calls: milliseconds, and ratios to a fresh Python.

    In turns: the next sandbox of a pool, until a cell has used pandas, under data without a project
    and with one, where each sandbox has a zygote; the same under safe, without pandas; a sandbox
    alone; a fresh Python that imports pandas; smolagents' local executor in this process, which is
    confined by its own interpreter only; and sandlock with the command of the fresh Python, if
    sandlock is installed.
    """
    print(f"load {os.getloadavg()[0]:.1f}")
    starts = Comparison(FRESH)
    calls = Comparison("smolagents: a call")
    with tempfile.TemporaryDirectory(prefix="cb-fleet-project-") as folder:
        (Path(folder) / "a.csv").write_text("a\n1\n")
        asyncio.run(compare_starts(starts, options.rounds, Path(folder)))
    asyncio.run(compare_calls(calls, options.calls))
    table = Table("until ready, or until a call's result", "ms", "least", "of fresh", "target")
    fresh = starts.median("start", FRESH)
    for comparison in (starts, calls):
        for measure, by_contestant in comparison.figures.items():
            for name in by_contestant:
                median = comparison.median(measure, name)
                least = comparison.least(measure, name)
                target = SANDBOX_TARGETS.get(name, "")
                table.row(name, median, least, median / fresh, target)
    return {"ms": starts.figures | calls.figures, "load": os.getloadavg()}


async def compare_starts(comparison: Comparison, rounds: int, project: Path) -> None:
    """Add the milliseconds of each kind of start; the first start of each kind is not counted."""
    policy = Policy.preset("data", preload=PRELOAD)
    ways: dict[str, Callable[[], Awaitable[float]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, cell, arguments in (
            ("data pool: next, pandas used", USE_PANDAS, {"policy": policy}),
            (
                "data with a project, a zygote each: pandas used",
                USE_PANDAS,
                {"policy": policy, "project": project},
            ),
            ("safe pool: next, 1 + 1", "1+1", {"policy": "safe"}),
        ):
            pool = await stack.enter_async_context(AsyncSandboxPool(**arguments))
            ways[name] = lambda pool=pool, cell=cell: start_next(pool, cell)
        ways["Sandbox('data') alone: ready"] = start_alone
        ways[FRESH] = start_python
        ways["smolagents, in this process, pandas imported"] = start_smolagents
        if start_sandlock := find_sandlock():
            ways["sandlock, the same command"] = start_sandlock
        for way in ways.values():
            await way()
        for _ in range(rounds):
            await comparison.take_turns_async("start", ways)


async def start_next(pool: AsyncSandboxPool, cell: str) -> float:
    """Return the milliseconds until the pool's next sandbox has run a cell."""
    async with contextlib.AsyncExitStack() as stack:

        async def start() -> None:
            sandbox = await stack.enter_async_context(pool.sandbox())
            result = await sandbox.execute(cell)
            assert result.success, result.to_string()

        return await timed_async(start())


async def start_alone() -> float:
    """Return the milliseconds until a sandbox without a pool is ready."""
    sandbox = AsyncSandbox("data")
    milliseconds = await timed_async(sandbox.open())
    await sandbox.close()
    return milliseconds


async def start_python() -> float:
    """Return the milliseconds of a fresh Python that uses pandas."""
    return await timed_async(
        asyncio.to_thread(subprocess.run, COMMAND, check=True, capture_output=True)
    )


async def start_smolagents() -> float:
    """Return the milliseconds until an executor has used pandas, which is imported already."""
    from smolagents.local_python_executor import LocalPythonExecutor  # noqa: PLC0415 - takes 2 s

    def start() -> None:
        executor = LocalPythonExecutor(["pandas"])
        executor.send_tools({})
        executor(USE_PANDAS)

    return timed(start)


def find_sandlock() -> Callable[[], Awaitable[float]] | None:
    """Return a function that runs the command in sandlock, or None if sandlock does not work."""
    try:
        from sandlock import Sandbox as Sandlock  # noqa: PLC0415 - may not be installed

        box = Sandlock(fs_readable=["/"], fs_writable=[tempfile.mkdtemp(prefix="cb-fleet-")])
        if not box.run(COMMAND).success:
            return None
    except Exception:  # noqa: BLE001 - it is not installed, or not for this machine
        return None

    async def start() -> float:
        return await timed_async(asyncio.to_thread(box.run, COMMAND))

    return start


async def compare_calls(comparison: Comparison, count: int) -> None:
    """Add the milliseconds of ``count`` calls of each kind, which do almost nothing."""
    from smolagents.local_python_executor import LocalPythonExecutor  # noqa: PLC0415 - as above

    executor = LocalPythonExecutor([])
    executor.send_tools({})
    async with AsyncSandboxPool("data") as pool, pool.sandbox() as sandbox:
        for _ in range(count):
            took = await timed_async(sandbox.execute("1 + 1"))
            comparison.add("call", "data pool: a call", took)
            comparison.add("call", "smolagents: a call", timed(lambda: executor("1 + 1")))


# --- run --------------------------------------------------------------------------------------

#: The five small cells of a notebook, also of the part ``cluster``.
SMALL_CELLS = (
    "import math\nimport json",
    "def area(r):\n    return math.pi * r ** 2",
    "rows = [{'r': r, 'area': area(r)} for r in range(100)]\nprint(len(rows))",
    "sum(row['area'] for row in rows)",
    "print(json.dumps(rows[:3], indent=1))",
)
PANDAS_CELLS = (
    "import pandas as pd",
    "df = pd.DataFrame({'a': range(100), 'b': range(100)})\ndf.describe()",
    "df.groupby('a').b.sum().head()",
    "print(len(df))",
    "df.head()",
)
#: A policy that preloads pandas for notebooks that use it.
PRELOADING = 'extends = "data"\npreload = ["numpy", "pandas"]\n'
#: Processors that all programs are limited to.
PROCESSORS = 2
#: How many times as fast as another program ``cellblock run`` should be.
RUN_TARGETS = {"jupyter nbconvert --execute": 15.0, "nbclient in one process": 10.0}
#: The policy of the pool whose guests are started, and the cell that shows a table.
GUEST_CHANGES = {"preload": ("pandas",), "snapshots": "off"}
SHOW_TABLE = "import pandas as pd\npd.DataFrame({'a': [1, 2, 3]})"
READY_TARGET = 60.0
NBCLIENT = """
import sys, nbformat
from nbclient import NotebookClient
for path in sys.argv[1:]:
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    nbformat.write(notebook, path + ".out")
"""


def run_command(paths: list[Path], out: Path, policy: str = "safe") -> list[str]:
    """Return the command of ``cellblock run``: confined guests of one warm zygote."""
    folder = str(paths[0].parent)
    return [sys.executable, "-c", MAIN, "run", folder, "-o", str(out), "--policy", policy]


def run_under_data(paths: list[Path], out: Path) -> list[str]:
    """Return the command under preset data, where each notebook imports pandas."""
    return run_command(paths, out, "data")


def run_preloading(paths: list[Path], out: Path) -> list[str]:
    """Return the command under a policy that preloads pandas."""
    policy = out.parent / "preloading.toml"
    policy.write_text(PRELOADING)
    return run_command(paths, out, str(policy))


def nbconvert_command(paths: list[Path], out: Path) -> list[str]:
    """Return the command of nbconvert: stock ipykernel, not confined."""
    nbconvert = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute"]
    quiet = ["--log-level=ERROR", "--ExecutePreprocessor.kernel_name=python3"]
    return [*nbconvert, *quiet, f"--output-dir={out}", *map(str, paths)]


def nbclient_command(paths: list[Path], _out: Path) -> list[str]:
    """Return the command of a program that uses nbclient: stock ipykernel, not confined."""
    return [sys.executable, "-c", NBCLIENT, *map(str, paths)]


OURS = "cellblock run"
NBCONVERT = "jupyter nbconvert --execute"
SMALL_PROGRAMS = {
    OURS: run_command,
    NBCONVERT: nbconvert_command,
    "nbclient in one process": nbclient_command,
}
PANDAS_PROGRAMS = {
    "cellblock run, data with preload": run_preloading,
    "cellblock run, data": run_under_data,
    NBCONVERT: nbconvert_command,
}


def run(options: argparse.Namespace) -> object:
    """Measure notebooks per second of ``cellblock run`` beside nbconvert and nbclient.

    The programs take turns, on two processors: with notebooks of five small cells under policy
    safe, then with notebooks of pandas under data. Last are the milliseconds until a guest is
    ready, and until it shows a table, where pandas is preloaded and snapshots are off.
    """
    processors = limit_processors(PROCESSORS)
    print(f"{processors} processors")

    small = compare_programs(SMALL_PROGRAMS, options.notebooks, SMALL_CELLS, options.rounds)
    title = f"{options.notebooks} notebooks of {len(SMALL_CELLS)} small cells"
    table = Table(title, "notebooks/s", "ours / its", "target")
    for program in SMALL_PROGRAMS:
        times_as_fast = 1 / small.ratio("rate", program)
        rate = small.median("rate", program)
        table.row(program, rate, times_as_fast, RUN_TARGETS.get(program, ""))

    pandas = compare_programs(
        PANDAS_PROGRAMS, options.pandas_notebooks, PANDAS_CELLS, options.rounds, base=NBCONVERT
    )
    title = f"{options.pandas_notebooks} notebooks with pandas"
    table = Table(title, "notebooks/s", "/ nbconvert")
    for program in PANDAS_PROGRAMS:
        table.row(program, pandas.median("rate", program), pandas.ratio("rate", program))

    guest = asyncio.run(time_guests(options.guests))
    table = Table("a guest, pandas preloaded", "ms", "target")
    table.row("ready", guest["ready_ms"], READY_TARGET)
    table.row("shows a table", guest["table_ms"], "")
    return {
        "processors": processors,
        "python": platform.python_version(),
        "rates": small.figures["rate"],
        "pandas_rates": pandas.figures["rate"],
        "guest": guest,
    }


def limit_processors(most: int) -> int:
    """Limit this process and its children to ``most`` processors; return how many there are."""
    allowed = sorted(os.sched_getaffinity(0))[:most]
    os.sched_setaffinity(0, allowed)
    return len(allowed)


def compare_programs(
    programs: dict[str, Callable[[list[Path], Path], list[str]]],
    notebooks: int,
    cells: tuple[str, ...],
    rounds: int,
    *,
    base: str = OURS,
) -> Comparison:
    """Return the notebooks per second of each program, which run the same notebooks in turns."""
    comparison = Comparison(base)
    for _ in range(rounds):
        for program, command in programs.items():
            comparison.add("rate", program, notebook_rate(command, notebooks, cells))
    return comparison


def notebook_rate(
    command: Callable[[list[Path], Path], list[str]], notebooks: int, cells: tuple[str, ...]
) -> float:
    """Return notebooks per second, from the command's start to its end."""
    folder = Path(tempfile.mkdtemp(prefix="cb-bench-"))
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    paths = [folder / "nb" / f"n{number:03}.ipynb" for number in range(notebooks)]
    for path in paths:
        write(path, *cells, metadata=spec)
    argv = command(paths, folder / "out")
    began = time.perf_counter()
    ran = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder)
    elapsed = time.perf_counter() - began
    if ran.returncode:
        raise RuntimeError(ran.stdout[-2000:] + ran.stderr[-2000:])
    shutil.rmtree(folder)
    return notebooks / elapsed


async def time_guests(rounds: int) -> dict[str, float]:
    """Return the median milliseconds until a pool's next guest is ready, and shows a table."""
    ready = []
    shown = []
    async with AsyncSandboxPool(Policy.preset("data", **GUEST_CHANGES)) as pool:
        async with pool.sandbox() as first:
            await first.execute(SHOW_TABLE)
        for _ in range(rounds):
            began = time.perf_counter()
            async with pool.sandbox() as sandbox:
                ready.append((time.perf_counter() - began) * 1000)
                result = await sandbox.execute(SHOW_TABLE)
                shown.append((time.perf_counter() - began) * 1000)
                assert result.success, result.to_string()
    return {"ready_ms": statistics.median(ready), "table_ms": statistics.median(shown)}


# --- cluster ----------------------------------------------------------------------------------

#: Numbers of workers whose rate is estimated.
MODELLED = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ClusterRate:
    """A rate, and the milliseconds of processor time that run and scheduler use for a notebook."""

    workers: int
    rate: float
    run_ms: float
    scheduler_ms: float

    @property
    def limit(self) -> float:
        """Return the notebooks per second at which the busier process needs all its time."""
        return 1000 / max(self.run_ms, self.scheduler_ms)


def cluster(options: argparse.Namespace) -> object:
    """Measure ``cellblock run --cluster`` in notebooks per second, and estimate more workers.

    The scheduler and workers of one thread run on this machine, whose processors limit what can be
    measured. A model estimates the rest: w workers are w times as fast as one, until the run's own
    process or the scheduler is busy, so the rate is min(w * r, limit).
    """
    rates = [measure_cluster(workers, options.notebooks) for workers in options.workers]
    table = Table("workers", "notebooks/s", "")
    for measured in rates:
        table.row(str(measured.workers), measured.rate, "measured")
    first = rates[0]
    for workers in MODELLED:
        modelled = min(workers * first.rate / first.workers, first.limit)
        table.row(str(workers), modelled, "modelled")
    print(
        f"a notebook takes {first.run_ms:.1f} ms of the run's process and {first.scheduler_ms:.1f}"
        f" ms of the scheduler's: at most {first.limit:.0f} notebooks/s;"
        f" {os.cpu_count()} processors here"
    )
    return [asdict(measured) for measured in rates]


def measure_cluster(workers: int, notebooks: int) -> ClusterRate:
    """Run ``notebooks`` notebooks on a cluster of ``workers`` workers."""
    dask = Cluster()
    try:
        for _ in range(workers):
            dask.worker()
        processes.until(lambda: dask.logs().count("Registered to:") >= workers, 60)
        return run_on_cluster(dask, workers, notebooks)
    finally:
        dask.close()


def run_on_cluster(dask: Cluster, workers: int, notebooks: int) -> ClusterRate:
    """Run notebooks; the first tenth is not counted, so that starts do not matter."""
    runs = Runs(dask.world)
    for number in range(notebooks):
        write(runs.work / f"nb/{number:04}.ipynb", *SMALL_CELLS)
    process = runs.start("nb", "-o", "out", "--cluster", dask.address)

    def clocks() -> tuple[float, float, float]:
        return (
            time.perf_counter(),
            processes.cpu_seconds(process.pid),
            processes.cpu_seconds(dask.scheduler.pid),
        )

    skipped = notebooks // 10
    wait_until_passed(process, skipped)
    before = clocks()
    counted = notebooks - skipped - 1  # the run ends with the last one
    wait_until_passed(process, counted)
    after = clocks()
    out, err = process.communicate(timeout=60)
    if process.returncode:
        raise RuntimeError(out + err)
    elapsed, run_s, scheduler_s = (end - start for start, end in zip(before, after, strict=True))
    return ClusterRate(
        workers,
        rate=counted / elapsed,
        run_ms=run_s / counted * 1000,
        scheduler_ms=scheduler_s / counted * 1000,
    )


def wait_until_passed(process: subprocess.Popen[str], count: int) -> None:
    """Wait until the run has reported ``count`` more notebooks as passed."""
    assert process.stdout is not None
    while count:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(process.communicate()[1])
        count -= line.startswith("passed")


# --- tools ------------------------------------------------------------------------------------

TOOL_SETTINGS = "timeout = 600.0\ntool_max_calls = 1_000_000"
ONE_BY_ONE = """
from time import perf_counter
took = []
for n in range({calls}):
    began = perf_counter()
    {call}
    took.append(perf_counter() - began)
took.sort()
[round(took[int(len(took) * part)] * 1e6) for part in (0.1, 0.5, 0.9, 0.99)]
"""
AT_ONCE = """
import asyncio
from time import perf_counter
began = perf_counter()
found = await asyncio.gather(*(fetch(str(n)) for n in range(1_000)))
assert len(set(found)) == 1_000
round((perf_counter() - began) * 1e3)
"""
#: Seconds that a cell with all calls may take.
TOOL_PATIENCE = 600.0
#: A call by kind, and the target of its median in microseconds.
TOOL_CALLS = {"sync": ("add(n)", 250), "async": ("await fetch('a')", 350)}
#: Milliseconds of a sandbox's first cell, and that tools may add to a kernel's start.
FIRST_CELL_TARGET = 100
TOOLS_START_TARGET = 100
#: First cells that are measured.
FIRST_CELLS = 9


def tools(options: argparse.Namespace) -> object:
    """Measure calls of tools in a cell (microseconds), starts, and first cells (milliseconds).

    Calls follow each other in one cell, then a thousand are under way at once. Starts are those of
    kernels with tools and without, in turns. A first cell is timed from a pool's ``sandbox()`` to
    the cell's end, with a warm zygote.
    """
    world = World()
    commands = {
        "with tools": tool_kernels.argv(world, settings=TOOL_SETTINGS),
        "without": argv_for("safe"),
    }
    starts = Comparison("without")
    try:
        for _ in range(options.starts):
            for kind, argv in commands.items():
                starts.add("start", kind, start_kernel(argv, world))
        calls, at_once = time_calls(commands["with tools"], world, options.calls)
    finally:
        world.close()

    table = Table(f"{options.calls} calls, one by one (µs)", "p10", "p50", "p90", "p99", "target")
    for kind, percentiles in calls.items():
        table.row(kind, *percentiles, TOOL_CALLS[kind][1])
    with_tools = starts.median("start", "with tools")
    without = starts.median("start", "without")
    first_cell = time_first_cells()
    table = Table("", "ms", "target")
    table.row("1,000 calls at once, all of them", at_once, "")
    table.row("start with tools", with_tools, "")
    table.row("start without", without, "")
    table.row("tools add to a start", with_tools - without, TOOLS_START_TARGET)
    table.row("first cell of a sandbox", first_cell, FIRST_CELL_TARGET)
    return {
        "call_us": calls,
        "at_once_ms": at_once,
        "start_ms": starts.figures["start"],
        "first_cell_ms": first_cell,
    }


def start_kernel(argv: list[str], world: World) -> float:
    """Start a kernel and end it; return the milliseconds until its first reply."""
    kernel = Kernel(argv, world=world).wait_ready()
    milliseconds = (time.perf_counter() - kernel.started) * 1000
    kernel.close()
    return milliseconds


def time_calls(argv: list[str], world: World, calls: int) -> tuple[dict[str, list[int]], float]:
    """Return four percentiles of a call in microseconds, by kind; milliseconds of 1,000 at once."""
    kernel = Kernel(argv, world=world).wait_ready()
    try:
        percentiles = {}
        for kind, (call, _) in TOOL_CALLS.items():
            cell_result(kernel, call.replace("n", "1") if kind == "sync" else call)
            code = ONE_BY_ONE.format(calls=calls, call=call)
            percentiles[kind] = json.loads(cell_result(kernel, code))
        return percentiles, float(cell_result(kernel, AT_ONCE))
    finally:
        kernel.close()


def cell_result(kernel: Kernel, code: str) -> str:
    """Run a cell, which must succeed; return its result as text."""
    mid = kernel.execute_send(code)
    reply = kernel.reply(mid, timeout=TOOL_PATIENCE)["content"]
    published = kernel.until_idle(mid)
    if reply["status"] != "ok":
        raise RuntimeError(f"{reply}\n{kernel.stderr()}")
    return reading.result(published)


def time_first_cells() -> float:
    """Return the median milliseconds to open a pool's next sandbox and run a cell in it."""
    took = []
    with SandboxPool("safe") as pool:
        with pool.sandbox() as warm:
            warm.execute("1")
        for _ in range(FIRST_CELLS):
            began = time.perf_counter()
            with pool.sandbox() as sandbox:
                sandbox.execute("1")
                took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


# --- mcp --------------------------------------------------------------------------------------

MCP_CELL = "x = 1"
MCP_POLICY = "safe"


def mcp(options: argparse.Namespace) -> object:
    """Measure ``cellblock mcp`` over stdio with the SDK's client, in milliseconds.

    From a server's start to the first cell's reply, and of that the time after the handshake; then
    ``run_cell`` beside ``Sandbox.execute`` in this process with the same cell, in turns.
    """
    comparison = Comparison("Sandbox.execute")
    asyncio.run(time_servers(comparison, options.starts))
    asyncio.run(compare_mcp_calls(comparison, options.calls))
    table = Table("MCP over stdio", "ms", "least")
    for measure, by_contestant in comparison.figures.items():
        for name in by_contestant:
            table.row(name, comparison.median(measure, name), comparison.least(measure, name))
    return comparison.figures


async def time_servers(comparison: Comparison, count: int) -> None:
    """Add the milliseconds of ``count`` starts of a server."""
    for _ in range(count):
        began = time.perf_counter()
        async with mcp_clients.stdio("--policy", MCP_POLICY) as client:
            connected = time.perf_counter()
            await mcp_clients.run(client, MCP_CELL)
            replied = time.perf_counter()
        comparison.add("start", "start to first reply", (replied - began) * 1000)
        comparison.add("start", "first call, once connected", (replied - connected) * 1000)


async def compare_mcp_calls(comparison: Comparison, count: int) -> None:
    """Add the milliseconds of a cell through a server, and in a sandbox of this process."""
    with Sandbox(MCP_POLICY) as sandbox:
        async with mcp_clients.stdio("--policy", MCP_POLICY) as client:
            for _ in range(count):
                took = await timed_async(mcp_clients.run(client, MCP_CELL))
                comparison.add("call", "run_cell", took)
                comparison.add("call", "Sandbox.execute", timed(lambda: sandbox.execute(MCP_CELL)))


PARTS = {
    "sandboxes": Part(
        sandboxes,
        {
            "--rounds": {"type": int, "default": 15},
            "--calls": {"type": int, "default": 400},
        },
    ),
    "run": Part(
        run,
        {
            "--notebooks": {"type": int, "default": 100},
            "--pandas-notebooks": {"type": int, "default": 20},
            "--rounds": {"type": int, "default": 1},
            "--guests": {"type": int, "default": 20, "help": "starts of a guest"},
        },
    ),
    "cluster": Part(
        cluster,
        {
            "--notebooks": {"type": int, "default": 200},
            "--workers": {"type": int, "nargs": "+", "default": [1, 2]},
        },
    ),
    "tools": Part(
        tools,
        {
            "--calls": {"type": int, "default": 10_000},
            "--starts": {"type": int, "default": 5, "help": "starts of each kind"},
        },
    ),
    "mcp": Part(
        mcp,
        {
            "--starts": {"type": int, "default": 10},
            "--calls": {"type": int, "default": 200},
        },
    ),
}

if __name__ == "__main__":
    sys.exit(run_parts(__doc__, PARTS))
