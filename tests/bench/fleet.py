"""Compares many sandboxes in one program with other ways to run a model's code, as ratios.

python tests/bench/fleet.py [--rounds 15] [--many 200] [--json FILE]

These take turns, so that a busy machine is busy for all:

- the next sandbox of a pool, until a cell has used pandas: under data, without a project, and with
  one, where each sandbox has a zygote; under safe, without pandas
- a sandbox alone
- a fresh ``python -c "import pandas"``
- smolagents' local executor, in this process, confined only by its own interpreter
- sandlock's SDK, if it is installed, with the same command

Then calls, memory, and ``--many`` sandboxes open at once. This is never a timed test.
docs/performance.md has the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cellblock import AsyncSandbox, AsyncSandboxPool, Policy
from support import processes

PRELOAD = ("numpy", "pandas", "matplotlib")
PANDAS = "import pandas as pd\nint(pd.DataFrame({'a': [1, 2, 3]}).a.sum())"
COMMAND = [sys.executable, "-c", PANDAS]
#: The targets, on a quiet machine.
GOALS = {
    "data pool: next, pandas used": 40.0,
    "Sandbox('data') alone: ready": 400.0,
    "data pool: a call": 1.5,
}
PSS_GOAL, MANY_GOAL = 15.0, 4096.0
FRESH = 'python -c "import pandas"'


def pss(pids: list[int]) -> float:
    """Return the MiB that processes hold, with each shared page divided among its sharers."""
    found = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        found += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found / 1024


def held() -> float:
    return pss(processes.tree(os.getpid()))


async def timed(work) -> float:
    """Return the milliseconds that ``work`` takes."""
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


async def ran(sandbox: AsyncSandbox, code: str) -> None:
    result = await sandbox.execute(code)
    assert result.success, result.to_string()


async def next_of(pool: AsyncSandboxPool, code: str) -> float:
    """Return the milliseconds until the pool's next sandbox has run a cell."""
    async with AsyncExitStack() as stack:

        async def go() -> None:
            sandbox = await stack.enter_async_context(pool.sandbox())
            await ran(sandbox, code)

        return await timed(go())


async def alone() -> float:
    sandbox = AsyncSandbox("data")
    took = await timed(sandbox.open())
    await sandbox.close()
    return took


async def fresh() -> float:
    return await timed(asyncio.to_thread(subprocess.run, COMMAND, check=True, capture_output=True))


async def smolagents() -> float:
    """Return the milliseconds until an executor has used pandas, which is imported already."""
    from smolagents.local_python_executor import LocalPythonExecutor  # noqa: PLC0415 - takes 2 s

    async def go() -> None:
        executor = LocalPythonExecutor(["pandas"])
        executor.send_tools({})
        executor(PANDAS)

    return await timed(go())


def sandlock():
    """Return a function that runs the command in sandlock, or None if it is not available."""
    try:
        from sandlock import Sandbox  # noqa: PLC0415 - may not be there

        box = Sandbox(fs_readable=["/"], fs_writable=[tempfile.mkdtemp(prefix="cb-fleet-")])
        if not box.run(COMMAND).success:
            return None
    except Exception:  # noqa: BLE001 - it is not installed, or not for this machine
        return None

    async def run() -> float:
        return await timed(asyncio.to_thread(box.run, COMMAND))

    return run


async def starts(rounds: int, project: Path) -> dict[str, list[float]]:
    """Return the milliseconds of starts, by the kind of start."""
    policy = Policy.preset("data", preload=PRELOAD)
    async with AsyncExitStack() as stack:
        pools = {}
        for name, arguments in {
            "data pool: next, pandas used": {"policy": policy},
            "data with a project, a zygote each: next, pandas used": {
                "policy": policy,
                "project": project,
            },
            "safe pool: next, 1 + 1": {"policy": "safe"},
        }.items():
            pools[name] = await stack.enter_async_context(AsyncSandboxPool(**arguments))
        ways = {
            name: lambda pool=pool, name=name: next_of(pool, PANDAS if "pandas" in name else "1+1")
            for name, pool in pools.items()
        }
        ways |= {"Sandbox('data') alone: ready": alone, FRESH: fresh}
        ways["smolagents, in this process, pandas imported"] = smolagents
        if (boxed := sandlock()) is not None:
            ways["sandlock, the same command"] = boxed
        found = {name: [] for name in ways}
        for way in ways.values():
            await way()  # warm
        for _ in range(rounds):
            for name, way in ways.items():
                found[name].append(await way())
        return found


async def calls(count: int = 400) -> dict[str, list[float]]:
    """Return the milliseconds of calls that do almost nothing."""
    from smolagents.local_python_executor import LocalPythonExecutor  # noqa: PLC0415 - as above

    executor = LocalPythonExecutor([])
    executor.send_tools({})
    found = {"data pool: a call": [], "smolagents: a call": []}
    async with AsyncSandboxPool("data") as pool, pool.sandbox() as sandbox:
        for _ in range(count):
            found["data pool: a call"].append(await timed(sandbox.execute("1 + 1")))
            began = time.perf_counter()
            executor("1 + 1")
            found["smolagents: a call"].append((time.perf_counter() - began) * 1000)
    return found


async def memory(many: int, project: Path) -> dict[str, tuple[int, float, float]]:
    """Return the number of open sandboxes, the MiB of one more and of all, by the kind of pool."""
    policy = Policy.preset("data", preload=PRELOAD)
    found = {}
    number, table = "x = {0}", PANDAS.replace("1, 2, 3", "{0}, 0")
    for name, count, code, arguments in (
        ("data pool, a number each", many, number, {"policy": policy}),
        ("data pool, a table each", 20, table, {"policy": policy}),
        ("the same without snapshots", 20, table, {"policy": policy.replace(snapshots="off")}),
        (
            "data with a project, a zygote each, a number each",
            20,
            number,
            {"policy": policy, "project": project},
        ),
        ("safe pool, a number each", 20, number, {"policy": "safe"}),
    ):
        async with AsyncSandboxPool(**arguments) as pool:
            opened = [pool.sandbox() for _ in range(count + 1)]
            await opened[0].open()
            before = held()
            for number, sandbox in enumerate(opened[1:]):
                await sandbox.open()
                await ran(sandbox, code.replace("{0}", str(number)) + f"\nmine = {number}")
            for number, sandbox in enumerate(opened[1:]):
                assert (await sandbox.execute("mine")).result == str(number)
            total = held()
            found[name] = count, (total - before) / count, total
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--many", type=int, default=200)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    logging.getLogger("cellblock").addHandler(logging.NullHandler())  # gaps are told elsewhere
    with tempfile.TemporaryDirectory(prefix="cb-fleet-project-") as folder:
        project = Path(folder)
        (project / "a.csv").write_text("a\n1\n")
        took = asyncio.run(starts(args.rounds, project)) | asyncio.run(calls())
        base = statistics.median(took[FRESH])
        print(f"{'load':54}{os.getloadavg()[0]:>9.1f}")
        print(f"{'':54}{'ms':>9}{'least':>9}{'of fresh':>9}{'goal':>7}")
        for name, each in took.items():
            middle, goal = statistics.median(each), GOALS.get(name, "")
            print(f"{name:54}{middle:>9.1f}{min(each):>9.1f}{middle / base:>9.2f}{goal:>7}")
        print(f"{'':54}{'open':>9}{'each':>9}{'all':>9}  MiB (PSS)", flush=True)
        sizes = asyncio.run(memory(args.many, project))
        for name, (count, each, total) in sizes.items():
            print(f"{name:54}{count:>9}{each:>9.1f}{total:>9.0f}")
    print(f"goals: {PSS_GOAL:g} MiB each, {MANY_GOAL:g} MiB for 200")
    if args.json:
        args.json.write_text(json.dumps({"ms": took, "mib": sizes, "load": os.getloadavg()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
