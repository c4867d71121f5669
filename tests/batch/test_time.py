"""A notebook's time is its own: what all of a run wait for is nobody's."""

import asyncio
import os
import signal
import time
from types import SimpleNamespace

from cellblock import AsyncSandboxPool
from cellblock.batch.run import execution
from cellblock.batch.run.execution import Execution, Job, PolicyPools, RunOptions
from support import processes
from support.runs import notebook


def send(pids, number):
    for pid in pids:
        os.kill(pid, number)


def test_a_zygotes_start_takes_no_notebooks_time_and_a_guests_does(here, monkeypatch):
    passed = [0.0]  # for notebooks, beside the time that it takes
    slow = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(execution, "time", slow)

    async def run_all():
        async with AsyncSandboxPool("safe") as pool, PolicyPools(pool) as pools:

            def begin(timeout):
                job = Job("a.ipynb", notebook("'ran'"), str(here))
                ran = Execution(job, RunOptions(timeout=timeout)).run(pools)
                return asyncio.ensure_future(ran)

            async def open_sandboxes(number):
                while len(pool.sandboxes) < number:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)

            zygote = processes.tree(pool._open.zygote.zygote.pid)
            send(zygote, signal.SIGSTOP)
            cold = begin(100.0), begin(100.0)
            await open_sandboxes(2)
            passed[0] = 200.0
            send(zygote, signal.SIGCONT)
            records = await asyncio.gather(*cold)

            zygote = processes.tree(pool._open.zygote.zygote.pid)
            send(zygote, signal.SIGSTOP)
            late = begin(0.5)
            await open_sandboxes(1)
            await asyncio.sleep(1.0)  # its time is over before this is
            send(zygote, signal.SIGCONT)
            return *records, await late

    first, second, third = asyncio.run(run_all())
    for record in (first, second):
        assert (record.status, record.cells) == ("passed", 1), record
        assert 0 < record.seconds < 100
    assert (third.status, third.cell, third.cells) == ("timed out", 0, 0)
    assert third.reason == "the notebook took longer than 0.5 s (--timeout)"
