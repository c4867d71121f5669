"""What a sandbox needs, what it leaves, and on which loops and threads it works."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cellblock import AsyncSandbox, Policy, Sandbox, SandboxPool
from cellblock.backends.base import trial_argv
from cellblock.errors import BackendError, GuestError, PolicyError
from cellblock.host.guests.spawn import zygote_argv
from support import processes

pytestmark = pytest.mark.usefixtures("home")


def test_a_policy_that_can_not_be_kept_is_an_error_in_the_kernels_words(home):
    with pytest.raises(PolicyError) as error:
        Sandbox("unsafe").open()
    assert str(error.value) == (
        "unsafe: mode: mode unsafe has to be asked for (got 'unsafe'). "
        "Pass allow_unsafe=True, or choose a policy of mode confined or safe."
    )
    with pytest.raises(PolicyError, match="wrong value"):
        Sandbox(Policy(timeout=-1.0)).open()
    with pytest.raises(PolicyError, match="no such module here"):
        Sandbox(Policy(allowed_modules=("no_such",))).open()
    with pytest.raises(PolicyError, match="no such policy"):
        Sandbox("saef").open()
    (home / "project" / "bad.toml").write_text("timout = 1")
    with pytest.raises(PolicyError, match=r"bad\.toml: timout: no such key"):
        Sandbox(Path("bad.toml")).open()
    with pytest.raises(PolicyError, match="safe: project: no such folder"):
        Sandbox(project="/no/such").open()
    required = Policy.preset("safe", backend="noop", require=("network_access",))
    with pytest.raises((BackendError, GuestError), match="network_access"):
        Sandbox(required).open()


def test_what_is_enforced_and_what_is_not_can_be_asked(sandbox):
    assert sandbox.backend in {"landlock", "bubblewrap"}
    assert sandbox.enforcement["network_access"].holds
    assert all(gap.capability in sandbox.enforcement for gap in sandbox.gaps)
    assert sandbox.policy.name == "safe"


@pytest.mark.usefixtures("nothing_left")
def test_what_is_not_enforced_is_logged_once_a_program_and_fits_a_terminal(home):
    code = """
from cellblock import Policy, Sandbox
for _ in range(2):
    with Sandbox(Policy(backend="landlock")) as one:
        said = len(one.gaps)
print(said)
"""
    environment = os.environ | {"HOME": str(home)}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = ran.stderr.splitlines()
    told = [line for line in lines if line.startswith("gap: ")]
    assert len(told) == len(set(told)) == int(ran.stdout)
    assert max(map(len, lines)) <= 80


def test_the_guests_interpreter_is_named_without_folders_that_no_mount_has(home, monkeypatch):
    real = sys.executable
    monkeypatch.setattr(sys, "executable", f"{home}/../{os.path.relpath(real, home.parent)}")
    assert zygote_argv(3)[0] == trial_argv("os", "listdir", "/")[0] == real


@pytest.mark.quick
def test_closing_leaves_no_process_file_descriptor_or_thread():
    with Sandbox("unsafe", allow_unsafe=True) as s:
        s.execute("x = 1\nopen('left', 'w').write('x')")
        s.execute("import threading, time\nthreading.Thread(target=time.sleep, args=[60]).start()")
        s.execute("while True: pass", timeout=0.2)


@pytest.mark.usefixtures("nothing_left")
def test_a_sandbox_that_fails_to_open_leaves_nothing():
    for policy in ("no_such", Policy.preset("safe", backend="noop", require=("network_access",))):
        with pytest.raises((PolicyError, BackendError, GuestError)):
            Sandbox(policy).open()


def test_a_program_that_is_killed_leaves_no_process_and_no_file(home):
    script = (
        "from cellblock import Sandbox\ns = Sandbox('safe')\ns.open()\ns.execute('x = 1')\n"
        "print('up', flush=True)\ns.execute('import time; time.sleep(60)')"
    )
    tmp = home / "tmp" / "killed"
    tmp.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp)},
    ) as program:
        assert program.stdout.readline() == b"up\n"
        theirs = processes.tree(program.pid)
        program.kill()
    processes.until(lambda: not {*theirs} & {*processes.parents()})
    processes.until(lambda: not list(tmp.iterdir()))


def test_what_is_closed_or_not_open_says_so(pool):
    s = pool.sandbox()
    with pytest.raises(GuestError, match="the sandbox is not open: use `with Sandbox"):
        s.execute("1")
    with s:
        pass
    with pytest.raises(GuestError, match="the sandbox is not open"):
        s.execute("1")
    s.close()
    with pytest.raises(GuestError, match="the pool is not open: use `with SandboxPool"):
        SandboxPool("safe").sandbox()


def test_an_async_one_that_is_not_open_says_so():
    async def use(one):
        return await one.execute("1")

    with pytest.raises(
        GuestError, match=r"the sandbox is not open: use .*`async with`.* or call its open\(\)"
    ):
        asyncio.run(use(AsyncSandbox("safe")))


def test_what_is_no_source_or_no_time_is_the_callers_mistake(sandbox):
    with pytest.raises(TypeError, match="code must be a str, not bytes"):
        sandbox.execute(b"1")
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        sandbox.execute("1", timeout=0)


def test_source_that_is_too_long_is_refused(sandbox):
    r = sandbox.execute("1;" * 400_000)
    assert (r.status, r.usage) == ("refused", None)
    assert r.to_string().startswith("The cell was not run: ")


def test_decisions_are_on_an_audit_log_of_its_own(home, pool):
    folder = home / "cache" / "cellblock" / "audit"
    before = set(folder.iterdir())
    with pool.sandbox() as s:
        s.execute("import gc")
    (log,) = set(folder.iterdir()) - before
    text = log.read_text()
    assert '"decision":"denied"' in text
    assert '"session-end"' in text.splitlines()[-1]


# --- loops and threads ------------------------------------------------------------------------


def test_it_works_beside_a_running_loop(pool):
    async def main():
        with pool.sandbox() as s:
            return s.execute("6 * 7")

    assert asyncio.run(main()).result == "42"


def test_threads_take_turns(sandbox):
    sandbox.execute("n = 0")
    threads = [threading.Thread(target=sandbox.execute, args=["n += 1\nm = n"]) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sandbox.execute("n").result == "8"


@pytest.mark.quick
@pytest.mark.usefixtures("nothing_left")
def test_the_async_one_runs_on_its_callers_loop():

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        async with AsyncSandbox("safe") as s:
            first, second = await asyncio.gather(s.execute("x = 1\nx"), s.execute("2"))
            before = ticks
            await s.execute("import time\ntime.sleep(0.5)")
        ticking.cancel()
        return first.result, second.result, ticks - before

    first, second, ticks = asyncio.run(main())
    assert (first, second) == ("1", "2")
    assert ticks > 10


def test_cancelling_ends_the_cell_and_the_sandbox_goes_on():

    async def main():
        async with AsyncSandbox("safe") as s:
            await s.execute("x = 1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(s.execute("x = 2\nwhile True: pass"), 0.4)
            return await s.execute("x")

    assert asyncio.run(main()).result == "2"


@pytest.mark.usefixtures("nothing_left")
def test_closing_while_a_cell_runs_ends_the_wait():

    async def main():
        s = AsyncSandbox("safe")
        await s.open()
        running = asyncio.create_task(s.execute("while True: pass"))
        await asyncio.sleep(0.3)
        await s.close()
        with pytest.raises(GuestError, match="the sandbox was closed"):
            await running

    asyncio.run(main())
