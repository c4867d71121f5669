"""A notebook's time is its own: what all of a run wait for is nobody's."""

import asyncio
import os
import signal
import tempfile

import pytest

from cellblock import AsyncSandboxPool
from cellblock.batch.run.execution import Execution, Job
from cellblock.batch.run.narrowing import Pools
from cellblock.batch.run.terms import Terms
from support import processes
from support.runs import notebook


class Saver:
    """``execution.Saver`` that keeps nothing."""

    def begun(self, written): ...

    def cell(self, index, cell, widgets): ...

    def ended(self, record): ...


@pytest.fixture
def here(run, monkeypatch):
    """Have this process in a run's folders, and return the one for notebooks."""
    for name, value in run.world.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(run.work)
    return run.work


def stand_still(pool, seconds):
    """Have a pool's zygote stand still for so long, from now on."""
    pids = processes.tree(pool._shared.zygote.pid)
    send(pids, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(seconds, send, pids, signal.SIGCONT)


def send(pids, number):
    for pid in pids:
        os.kill(pid, number)


def test_a_zygotes_start_takes_no_notebooks_time_and_a_guests_does(here):
    async def run_all():
        async with AsyncSandboxPool("safe") as pool, Pools(pool) as pools:

            def begin(timeout):
                job = Job("a.ipynb", notebook("'ran'"), str(here))
                return Execution(job, Terms(timeout=timeout), Saver()).run(pools)

            stand_still(pool, 4.0)
            cold = await asyncio.gather(begin(3.0), begin(3.0))
            stand_still(pool, 1.5)
            return *cold, await begin(0.5)

    first, second, third = asyncio.run(run_all())
    for record in (first, second):
        assert (record.fate, record.cells) == ("passed", 1), record
        assert 0 < record.seconds < 3
    assert (third.fate, third.cell, third.cells) == ("timed out", 0, 0)
    assert third.reason == "the notebook took longer than 0.5 s (--timeout)"
