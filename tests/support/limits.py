"""Kernels with tight limits, and helpers about cells that reached one."""

from __future__ import annotations

from support import processes, reading
from support.kernels import argv_changed

#: Limits that are enough for an interpreter, and quickly reached.
TIGHT = {
    "timeout": 20.0,
    "cpu_seconds": 1,
    "memory_max_bytes": 300_000_000,
    "max_open_files": 64,
    "max_file_size": 8 << 20,
    "scratch_max_bytes": 16 << 20,
    "stdout_max_bytes": 10_000,
    "stderr_max_bytes": 20_000,
    "display_max_bytes": 30_000,
}
#: Bytes that a cell may hold before it is killed: the limit, the slack, and what a late look misses.
MOST_HELD = TIGHT["memory_max_bytes"] + 2 * (64 << 20)


def tight_argv(world, *, mode="unsafe", grace=2.0, **changes):
    """Return the command of a kernel under the limits ``TIGHT`` with these changes.

    ``grace`` is how many seconds the host gives a cell that is over a limit.
    """
    values = {k: v for k, v in (TIGHT | changes).items() if v is not None}
    lines = [f'mode = "{mode}"', *(f"{key} = {str(v).lower()}" for key, v in values.items())]
    policy = world.policy("\n".join(lines) + "\n", name="tight")
    patience = f"from cellblock.host.limits import deadlines; deadlines.GRACE = {grace}"
    return argv_changed(patience, policy, "--allow-unsafe")


def stop_card(reply, published):
    """Return the JSON of a stopped cell's card, after comparing it with reply and error."""
    assert (reply["status"], reply["ename"]) == ("error", "CellStopped"), reply
    (card,) = reading.cards(published, "outcome")
    *_, error = reading.of(published, "error")
    assert (error["ename"], error["evalue"]) == (reply["ename"], reply["evalue"])
    return card


def assert_runs_cells(kernel):
    """Assert that the kernel still runs cells."""
    reply, published = kernel.run("6 * 7")
    assert reply["status"] == "ok", reply
    assert reading.result(published) == "42"


def with_new_guest(kernel):
    """Kill the guest and all its copies; return the kernel when a new guest serves."""
    killed = [*kernel.copies(), kernel.guest()]
    processes.end(killed)
    assert processes.gone(killed) == []
    processes.until(lambda: kernel.run("1")[0]["status"] == "ok")
    return kernel
