"""Kernels with tight limits, and how a cell that met one ended."""

from __future__ import annotations

from support import processes, reading
from support.kernels import argv_changed

#: Enough for an interpreter, and quickly used up.
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
#: What a cell may come to hold before it is killed: the slack, and what a look may be late for.
MOST_HELD = TIGHT["memory_max_bytes"] + 2 * (64 << 20)


def tight_argv(world, *, mode="unsafe", grace=2.0, **changes):
    """Return the command for a kernel under ``TIGHT`` with these changes.

    ``grace`` are the seconds that its host leaves a cell that is over a limit.
    """
    values = {k: v for k, v in (TIGHT | changes).items() if v is not None}
    lines = [f'mode = "{mode}"', *(f"{key} = {str(v).lower()}" for key, v in values.items())]
    policy = world.policy("\n".join(lines) + "\n", name="tight")
    patience = f"from cellblock.host.limits import deadlines; deadlines.GRACE = {grace}"
    return argv_changed(patience, policy, "--allow-unsafe")


def stopped(reply, published):
    """Return the JSON of the card that ended a cell, checked against its error."""
    assert (reply["status"], reply["ename"]) == ("error", "CellStopped"), reply
    (card,) = reading.cards(published, "outcome")
    *_, error = reading.of(published, "error")
    assert (error["ename"], error["evalue"]) == (reply["ename"], reply["evalue"])
    return card


def goes_on(kernel):
    """Run a cell that has to end well."""
    reply, published = kernel.run("6 * 7")
    assert reply["status"] == "ok", reply
    assert reading.result(published) == "42"


def anew(kernel):
    """Kill a guest and all that could take over; return the kernel once a new guest serves."""
    killed = [*kernel.copies(), kernel.guest()]
    processes.end(killed)
    assert processes.gone(killed) == []
    processes.until(lambda: kernel.run("1")[0]["status"] == "ok")
    return kernel
