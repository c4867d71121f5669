"""Measures what `cellblock mcp` over stdio adds, with the SDK's client. Asserts nothing.

python tests/bench/mcp_stdio.py [--starts 10] [--calls 200]

Milliseconds, the median and the least: from a server's start to the first cell's reply, and of that the
part behind the handshake; then of ``run_cell`` and of ``Sandbox.execute`` with the same cell.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cellblock import Sandbox
from support.mcp_clients import run, stdio

CELL = "x = 1"
POLICY = "safe"


async def starts(times: int) -> dict[str, list[float]]:
    """Time servers from their start."""
    took: dict[str, list[float]] = {"start to first reply": [], "first call, once connected": []}
    for _ in range(times):
        began = time.perf_counter()
        async with stdio("--policy", POLICY) as client:
            connected = time.perf_counter()
            await run(client, CELL)
            ended = time.perf_counter()
        took["start to first reply"].append(ended - began)
        took["first call, once connected"].append(ended - connected)
    return took


async def calls(times: int) -> dict[str, list[float]]:
    """Time a cell through a server and in a sandbox of this process, in turns."""
    took: dict[str, list[float]] = {"run_cell": [], "Sandbox.execute": []}
    with Sandbox(POLICY) as sandbox:
        async with stdio("--policy", POLICY) as client:
            for _ in range(times):
                began = time.perf_counter()
                await run(client, CELL)
                between = time.perf_counter()
                sandbox.execute(CELL)
                took["run_cell"].append(between - began)
                took["Sandbox.execute"].append(time.perf_counter() - between)
    return took


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    took = asyncio.run(starts(options.starts)) | asyncio.run(calls(options.calls))
    for name, seconds in took.items():
        print(f"{name:28} {statistics.median(seconds) * 1e3:8.1f} {min(seconds) * 1e3:8.1f}")


if __name__ == "__main__":
    main()
