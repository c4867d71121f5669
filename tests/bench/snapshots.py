"""Measures the costs of snapshots, and the time that they save. Prints, and asserts nothing.

python tests/bench/snapshots.py [--sizes 0,0.1,1,4] [--kinds numpy,objects] [--seconds 2]

For each amount of data it measures the milliseconds from a cell's reply until its copy is ready, of
a cell that follows at once and waits for that, and from SIGKILL to the next result; and the memory
that the copies add. Then it measures a round trip with ``snapshots`` auto and off, and a kill in
comparison with stock ipykernel, which is restarted and runs its cells again.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from typing import TYPE_CHECKING

from bench import UsersWorld, timed
from support import processes
from support.guest_processes import children, guests_and_copies
from support.kernels import Kernel, World, argv_for, argv_of

if TYPE_CHECKING:
    from collections.abc import Callable

#: ``{size}`` is in bytes. An int and its slot in a list take about 40.
FILL = {
    "numpy": "import numpy\ndata = numpy.ones({size} // 8)\nprint(data.nbytes)",
    "objects": "data = [i + 10**6 for i in range({size} // 40)]\nprint(len(data))",
}
POLICY = 'extends = "{base}"\nsnapshots = "{mode}"\nundo_depth = {depth}\n'
LIMITS = "memory_max_bytes = {most}\ntimeout = 300.0\n"
TRIVIAL, CALLING = "x = 1", "y = [str(i).rjust(5) for i in range(10)]; f = hash(str(y))"
GIB = 1 << 30
#: Seconds that may pass until a copy is ready. Filling 4 GiB takes long.
PATIENCE = 120.0


def kernel(world: World, base: str = "safe", mode: str = "auto", most: int = 0, depth: int = 1):
    """Start a kernel whose policy has ``snapshots`` set to ``mode``."""
    text = POLICY.format(base=base, mode=mode, depth=depth)
    path = world.policy(text + (LIMITS.format(most=most) if most else ""), f"{base}-{mode}-{depth}")
    return Kernel(argv_for(path), world=world).wait_ready()


def ok(made: Kernel, code: str) -> None:
    """Run a cell, which must succeed."""
    mid = made.execute_send(code)
    reply = made.reply(mid, timeout=PATIENCE)["content"]
    made.until_idle(mid, timeout=PATIENCE)
    if reply["status"] != "ok":
        raise RuntimeError(f"{code[:50]!r}: {reply}\n{made.stderr()}")


def serving(made: Kernel) -> int:
    """Return the guest's pid."""
    return guests_and_copies(made.zygote())[0][-1]


def until_copied(made: Kernel, known: set[int]) -> None:
    """Wait until the guest has a copy that is not among ``known``."""
    deadline = time.perf_counter() + PATIENCE
    while not set(children(serving(made))) - known:
        if time.perf_counter() > deadline:
            raise RuntimeError("there is no snapshot")
        time.sleep(0.0002)


def standing(made: Kernel) -> float:
    """Return the milliseconds from a cell's reply until its copy is ready."""
    pid = serving(made)
    known = set(children(pid))
    mid = made.execute_send("z = hash('a')")
    made.reply(mid)
    began = time.perf_counter()
    until_copied(made, known)
    took = (time.perf_counter() - began) * 1000
    made.until_idle(mid)
    time.sleep(0.1)
    return took


def following(made: Kernel) -> float:
    """Return the milliseconds of a cell that is sent as soon as the one before is answered."""
    ok(made, "z = hash('a')")
    took = timed(lambda: ok(made, "z = hash('b')"))
    time.sleep(0.1)
    return took


def restoring(made: Kernel) -> float:
    """Return the milliseconds from SIGKILL to the next result."""
    ok(made, "z = hash('a')")
    until_copied(made, set())
    time.sleep(0.2)
    victim = serving(made)

    def once() -> None:
        os.kill(victim, signal.SIGKILL)
        ok(made, "len(data)")

    return timed(once)


def row(kind: str, gigabytes: float) -> str:
    """Measure one kind and size of data; return its line."""
    world, size = World(), int(gigabytes * GIB)
    made = kernel(world, "data" if kind == "numpy" else "safe", "always", 6 * size + 2 * GIB)
    try:
        ok(made, FILL[kind].format(size=size))
        time.sleep(0.5)
        stand = statistics.median(standing(made) for _ in range(5))
        follow = statistics.median(following(made) for _ in range(5))
        time.sleep(1)  # copies that were let go take their time to go
        extra = sum(map(held, children(serving(made))))
        restore = statistics.median(restoring(made) for _ in range(3))
    finally:
        made.close()
        world.close()
    return (
        f"{kind:10}{gigabytes:>7g} GiB{stand:>12.1f}{follow:>12.1f}{restore:>12.1f}{extra:>12.0f}"
    )


def held(pid: int) -> float:
    """Return the MiB of a copy's own: pages that it does not share, and its page tables."""
    pages = Path(f"/proc/{pid}/smaps_rollup").read_text()
    tables = Path(f"/proc/{pid}/status").read_text()
    found = re.findall(r"^(?:Private_\w+|VmPTE):\s+(\d+) kB", pages + tables, re.MULTILINE)
    return sum(map(int, found)) / 1024


def round_trips(rounds: int = 200) -> list[str]:
    """Return the cost of a cell with snapshots and without, measured in turns."""
    world, lines = World(), list[str]()
    made = {mode: kernel(world, mode=mode, depth=5) for mode in ("auto", "off")}
    try:
        for name, code in (("trivial", TRIVIAL), ("with calls", CALLING)):
            for pause, how in ((0.0, "at once"), (0.05, "after 50 ms")):
                took: dict[str, list[float]] = {"auto": [], "off": []}
                for _ in range(rounds if not pause else rounds // 4):
                    for mode, one in made.items():
                        time.sleep(pause)
                        took[mode].append(timed(lambda one=one, code=code: ok(one, code)))
                auto, off = (statistics.median(took[mode]) for mode in ("auto", "off"))
                lines.append(f"{name:12}{how:14}{auto:>9.2f} ms{off:>9.2f} ms{auto / off:>8.2f}")
    finally:
        for one in made.values():
            one.close()
        world.close()
    return lines


def recovery(seconds: float) -> list[str]:
    """Return the time until a killed session has its variables again."""
    work = f"import time\ntime.sleep({seconds})\nkept = 41"
    world = World()
    ours = kernel(world)
    try:
        ok(ours, work)
        until_copied(ours, set())
        time.sleep(0.2)
        ours_took = _recovered(ours, lambda: os.kill(serving(ours), signal.SIGKILL), [])
    finally:
        ours.close()
        world.close()
    theirs_took = _ipykernel(work)
    return [
        f"cellblock, a snapshot takes over{ours_took:>12.1f} ms",
        f"ipykernel, restart and rerun    {theirs_took:>12.1f} ms",
    ]


def _recovered(made: Kernel, end: Callable[[], None], again: list[str]) -> float:
    def once() -> None:
        end()
        for code in [*again, "kept + 1"]:
            ok(made, code)

    return timed(once)


def _ipykernel(work: str) -> float:
    first = Kernel(argv_of("python3"), world=UsersWorld())
    ok(first, work)
    began = time.perf_counter()
    os.kill(first.proc.pid, signal.SIGKILL)
    first.proc.wait()
    second = Kernel(argv_of("python3"), world=UsersWorld())
    try:
        ok(second, work)
        ok(second, "kept + 1")
        return (time.perf_counter() - began) * 1000
    finally:
        for one in (first, second):
            one.close()
            one.world.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="0,0.1,1,4")
    parser.add_argument("--kinds", default="numpy,objects")
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    processes.adopt_orphans()
    print("snapshots, in ms; memory in MiB that two copies have for themselves")
    heads = ("stands", "next cell", "restored", "kept")
    print(f"{'data':10}{'size':>11}" + "".join(f"{head:>12}" for head in heads))
    for kind in args.kinds.split(","):
        for size in map(float, args.sizes.split(",")):
            print(row(kind, size), flush=True)
    print(f"\n{'round trip':26}{'auto':>12}{'off':>12}{'ratio':>8}")
    print("\n".join(round_trips()))
    print(f"\nrecovery of a session whose cells took {args.seconds:g} s")
    print("\n".join(recovery(args.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
