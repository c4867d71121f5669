"""Measures calls of tools, and a sandbox's first cell. Prints targets, and asserts nothing.

python tests/bench/tools.py [--calls 10000]

Measured are the microseconds of a call in a cell that makes so many, one after another, and of a
call when a thousand are under way; what tools add to a kernel's start; and the milliseconds from a
pool's ``sandbox()`` to the end of its first cell, with a warm zygote.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cellblock import SandboxPool
from support import reading, tool_kernels
from support.kernels import Kernel, World, argv_for

SETTINGS = "timeout = 600.0\ntool_max_calls = 1_000_000"
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
began = perf_counter()
found = await asyncio.gather(*(fetch(str(n)) for n in range(1_000)))
assert len(set(found)) == 1_000
round((perf_counter() - began) * 1e3)
"""
PATIENCE = 600.0
#: Median microseconds of a call; milliseconds of a first cell; milliseconds that tools may add to a
#: start.
CALL_TARGETS, FIRST_TARGET, START_TARGET = {"sync": 250, "async": 350}, 100, 100
#: Starts of each kind, which take turns.
STARTS = 5


def value(kernel: Kernel, code: str) -> str:
    """Run a cell, which must succeed; return its result."""
    mid = kernel.execute_send(code)
    reply = kernel.reply(mid, timeout=PATIENCE)["content"]
    published = kernel.until_idle(mid)
    if reply["status"] != "ok":
        raise RuntimeError(f"{reply}\n{kernel.stderr()}")
    return reading.result(published)


def started(argv: list[str], world: World) -> tuple[Kernel, float]:
    """Start a kernel; return it, and the milliseconds until its first reply."""
    kernel = Kernel(argv, world=world).wait_ready()
    return kernel, (time.perf_counter() - kernel.started) * 1e3


def first_cells(rounds: int = 9) -> float:
    """Return the median milliseconds to open a sandbox and run a cell in it."""
    logging.getLogger("cellblock").setLevel(logging.ERROR)  # gaps of this machine, each time
    took = []
    with SandboxPool("safe") as pool:
        with pool.sandbox() as warm:
            warm.execute("1")
        for _ in range(rounds):
            began = time.perf_counter()
            with pool.sandbox() as one:
                one.execute("1")
                took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    world = World()
    kinds = {
        "with": tool_kernels.argv(world, settings=SETTINGS),
        "without": argv_for("safe"),
    }
    starts = dict[str, list[float]]()
    for _ in range(STARTS):
        for kind, argv in kinds.items():
            one, took = started(argv, world)
            one.close()
            starts.setdefault(kind, []).append(took)
    kernel, _ = started(kinds["with"], world)
    try:
        for what, call in (("sync", "add(n)"), ("async", "await fetch('a')")):
            value(kernel, call.replace("n", "1") if what == "sync" else call)
            shown = value(kernel, ONE_BY_ONE.format(calls=calls, call=call))
            target = f" (target of p50: {CALL_TARGETS[what]})"
            print(f"{what:>6}, {calls} calls: p10, p50, p90, p99 in µs: {shown}{target}")
        print(f"1,000 at once: {value(kernel, AT_ONCE)} ms in all")
        middle = {kind: statistics.median(took) for kind, took in starts.items()}
        more = f"{middle['with'] - middle['without']:.0f} ms more (target: {START_TARGET})"
        print(f"start: {middle['with']:.0f} ms with tools, {middle['without']:.0f} without: {more}")
        print(f"first cell of a sandbox: {first_cells():.0f} ms (target: {FIRST_TARGET})")
    finally:
        kernel.close()
        world.close()


if __name__ == "__main__":
    main()
