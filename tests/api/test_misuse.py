"""What programs do to a sandbox besides using it: nothing of it hangs, ends another, or stays."""

import asyncio
import gc
import os
import signal
import subprocess
import sys

import pytest

from cellblock import AsyncSandbox, AsyncSandboxPool, Sandbox
from cellblock.errors import GuestError
from support import machines, processes

pytestmark = pytest.mark.timeout(60)
WHY_NOT = machines.no_bubblewrap()
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"no bubblewrap: {WHY_NOT}")


def in_fork(action):
    """Return what ``action`` says in a fork of this process, where it may take 10 s."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        said = "nothing"
        try:
            said = repr(action())
        except (GuestError, SystemExit) as exc:
            said = f"{type(exc).__name__}: {exc}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return said


def test_an_open_sandbox_that_is_opened_again_goes_on(sandbox):
    sandbox.execute("x = 1")
    for again in (sandbox.open, sandbox.__enter__):
        with pytest.raises(GuestError, match="opened once"):
            again()
    assert sandbox.execute("x").result == "1"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_fork_is_told_to_open_its_own_and_ends_nothing(sandbox, pool):
    for use in (lambda: sandbox.execute("1"), lambda: pool.sandbox().open()):
        assert in_fork(use).startswith("GuestError: a sandbox belongs to the process")
    assert in_fork(sandbox.close) == in_fork(pool.close) == "None"
    assert in_fork(sys.exit).startswith("SystemExit")
    assert sandbox.execute("1").status == "ok"


FORKING = """
import os, sys, time
from cellblock import Policy, Sandbox
with Sandbox(Policy.preset("safe", backend=sys.argv[1])) as sandbox:
    sandbox.execute("1")
    forked = os.fork()
    if forked:
        print(forked, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("backend", ["landlock", pytest.param("bubblewrap", marks=needs_bwrap)])
def test_guests_end_with_their_program_when_a_fork_of_it_lives_on(home, backend):
    assert home
    argv = [sys.executable, "-c", FORKING, backend]
    env = os.environ | {"PATH": machines.path(backend)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as program:
        forked = int(program.stdout.readline())
        pids = processes.tree(program.pid)
        assert len(pids) > 3
        program.kill()
        program.wait()
        try:
            processes.until(lambda: {*pids} & {*processes.parents()} == {forked})
        finally:
            processes.end(pids)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_whatever_a_callback_raises_the_call_returns(sandbox, capfd, error):
    def fail(_):
        raise error("mine")

    assert sandbox.execute("print(1)", on_output=fail).output == "1\n"
    assert f"{error.__name__}: mine" in capfd.readouterr().err
    assert sandbox.execute("1").status == "ok"


async def raising(error):
    raise error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("sync", SystemExit),
        ("sync", StopIteration),
        ("sync", KeyboardInterrupt),
        ("async", SystemExit),
        ("async", StopIteration),
    ],
)
def test_whatever_an_answer_raises_is_an_end_of_file(pool, capfd, answer, error):
    def fail(_):
        if answer == "async":
            return raising(error)
        raise error

    with pool.sandbox(input=fail) as one:
        assert one.execute("input()", timeout=20).error.type == "EOFError"
        assert one.execute("1").status == "ok"
    assert error.__name__ in capfd.readouterr().err


def test_a_callback_that_runs_a_cell_in_its_own_sandbox_is_refused_and_in_another_is_not(pool):
    with pool.sandbox() as other:
        with pool.sandbox(input=lambda _: other.execute("6 * 7").result) as one:
            assert one.execute("input()").result == "'42'"

        def again(_):
            for call in (
                lambda: one.execute("1"),
                one.fork,
                lambda: one.try_variants(["1"], lambda _: 0),
                lambda: one.upload(__file__),
                lambda: one.download("a", "b"),
            ):
                with pytest.raises(GuestError, match="waits for the callback"):
                    call()
            return "refused"

        with pool.sandbox(input=again) as one:
            assert one.execute("input()", timeout=20).result == "'refused'"


def called(name):
    """Return which descendants of this process call themselves that."""
    return {pid for pid in processes.tree(os.getpid()) if processes.name(pid) == name}


def drop(held):
    held.clear()
    gc.collect()


@pytest.mark.usefixtures("nothing_left")
def test_a_sandbox_that_is_dropped_is_closed_with_a_warning():
    before = called("cb-zygote")
    held = [Sandbox("safe")]
    held[0].open()
    assert called("cb-zygote") > before
    with pytest.warns(ResourceWarning, match="was not closed"):
        drop(held)
    processes.until(lambda: called("cb-zygote") == before)


def test_one_of_a_pool_that_is_dropped_is_closed_and_the_pool_goes_on(home):
    assert home

    async def use():
        async with AsyncSandboxPool("safe") as pool, pool.sandbox() as one:
            before = called("cb-guest")
            held = [pool.sandbox()]
            await held[0].open()
            await held[0].execute("1")
            assert called("cb-guest") > before
            with pytest.warns(ResourceWarning, match="was not closed"):
                drop(held)
            await asyncio.to_thread(processes.until, lambda: called("cb-guest") == before)
            assert (await one.execute("1")).status == "ok"

    asyncio.run(use())


def test_an_async_sandbox_is_opened_once(home):
    assert home

    async def use():
        async with AsyncSandbox("safe") as one:
            with pytest.raises(GuestError, match="opened once"):
                await one.open()
            assert (await one.execute("1")).status == "ok"

    asyncio.run(use())
