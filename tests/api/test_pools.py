"""Sandboxes of one pool share a zygote and nothing else."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from cellblock import AsyncSandboxPool, Policy, SandboxPool
from cellblock.errors import GuestError, PolicyError
from support import processes

pytestmark = pytest.mark.usefixtures("home")


def zygote(pool):
    found = pool.inner._open.zygote.zygote
    return found.pid if found is not None else 0


def guests(pool):
    return [pid for pid in processes.tree(zygote(pool)) if processes.name(pid) == "cb-guest"]


@pytest.fixture(scope="module")
def open_pool(home):
    """A pool in which cells may say anything, and write files."""
    assert home
    with SandboxPool("unsafe", allow_unsafe=True) as made:
        yield made


@pytest.mark.quick
def test_sandboxes_at_once_have_one_zygote_and_a_guest_each(open_pool):
    with open_pool.sandbox() as a, open_pool.sandbox() as b:
        processes.until(lambda: len(guests(open_pool)) == 2)  # a copy has its name late
        a.execute("x = 'a'")
        b.execute("x = 'b'")
        assert (a.execute("x").result, b.execute("x").result) == ("'a'", "'b'")


#: Says how often a pattern, which does not match itself, is found in the guest's own memory.
HOLDS = """
import ctypes, os, re
write = ctypes.CDLL(None).write  # fails where memory is there no more; a read by us would not
write.argtypes, write.restype = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_ssize_t
def holds(pattern):
    found = 0
    for line in open("/proc/self/maps").readlines():
        where, rights, *_ = line.split()
        if rights[:2] == "rw":
            start, end = (int(part, 16) for part in where.split("-"))
            file = os.open("memory", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            size = write(file, start, end - start)
            found += len(re.findall(pattern, os.pread(file, max(size, 0), 0)))
            os.close(file)
    return found
"""


def test_no_sandbox_finds_in_its_memory_what_another_was_given(open_pool):
    for many in (900, 200, 50, 10):  # the next may overwrite what one has left
        rows = [f"{n}, whose card is 4111" for n in range(many)]
        with open_pool.sandbox(inputs={"name": "Ada", "rows": rows}) as first:
            assert first.execute("len(inputs['rows'])").result == str(many)
    with open_pool.sandbox(inputs={"name": "Grace, whose card is 5222"}) as second:
        second.execute(HOLDS)
        assert int(second.execute("holds(b'[c]ard is 5222')").result) > 0
        assert second.execute("holds(b'[c]ard is 4111')").result == "0"


def test_neither_reads_writes_nor_finds_the_others_files(open_pool):
    with open_pool.sandbox() as a, open_pool.sandbox() as b:
        a.execute("import os\nopen('mine', 'w').write('secret')")
        folder = a.execute("os.getcwd()").result.strip("'")
        assert Path(folder, "mine").read_text() == "secret"
        for attempt in (
            f"open({folder!r} + '/mine').read()",
            f"open({folder!r} + '/more', 'w')",
            f"import os; os.listdir({folder!r})",
            f"import os; os.listdir(os.path.dirname({folder!r}))",
            f"import os; os.link({folder!r} + '/mine', 'mine')",
        ):
            # Landlock says of a link between hierarchies that it is one between file systems.
            assert b.execute(attempt).error.type in {"PermissionError", "OSError"}, attempt
        assert b.execute("import os\nos.environ['HOME'] == os.getcwd() == os.environ['TMPDIR']")
        assert b.execute("import tempfile\ntempfile.gettempdir() == os.getcwd()").result == "True"


def test_neither_signals_nor_sees_the_other(open_pool):
    with open_pool.sandbox() as a, open_pool.sandbox() as b:
        pid = a.execute("import os\nos.getpid()").result
        assert b.execute(f"import os\nos.kill({pid}, 9)").status == "error"
        assert b.execute(f"open('/proc/{pid}/environ').read()").status == "error"
        assert a.execute("1").result == "1"


@pytest.mark.quick
def test_a_killed_guest_has_its_own_state_back_and_the_other_is_left_alone(open_pool):
    with open_pool.sandbox() as a, open_pool.sandbox() as b:
        a.execute("x = 'a'")
        b.execute("x = 'b'")
        r = a.execute("import os\nos._exit(1)")
        assert r.stop.state == "restored"
        assert (a.execute("x").result, b.execute("x").result) == ("'a'", "'b'")


def test_a_guest_that_closes_is_gone_with_its_folder_and_the_other_goes_on(open_pool):
    with open_pool.sandbox() as a:
        with open_pool.sandbox() as b:
            folder = b.execute("import os\nos.getcwd()").result.strip("'")
            b.execute("open('left', 'w').write('x')")
            b.execute("import threading, time")
            b.execute("threading.Thread(target=time.sleep, args=[60]).start()")
            mine = a.execute("import os\nos.getpid()").result
        assert not Path(folder).exists()
        processes.until(lambda: guests(open_pool) == [int(mine)])
        assert a.execute("1").result == "1"


def test_a_lost_zygote_costs_the_variables_and_no_sandbox(open_pool):
    with open_pool.sandbox() as a, open_pool.sandbox() as b:
        a.execute("x = 1")
        lost = zygote(open_pool)
        os.kill(lost, signal.SIGKILL)
        processes.until(lambda: zygote(open_pool) not in {0, lost})
        assert a.execute("'x' in dir()").result == "False"
        assert b.execute("2").result == "2"
        processes.until(lambda: len(guests(open_pool)) == 2)  # a copy has its name late


@pytest.mark.usefixtures("nothing_left")
def test_a_pool_that_closes_ends_all_that_is_open():
    pool = SandboxPool("safe")
    pool.open()
    s = pool.sandbox()
    s.open()
    s.execute("x = 1")
    pool.close()
    with pytest.raises(GuestError):
        s.execute("x")
    with pytest.raises(GuestError, match="the pool is not open"):
        pool.sandbox()


@pytest.mark.usefixtures("nothing_left")
def test_twenty_at_once_run_and_leave_nothing():

    async def one(pool, number):
        async with pool.sandbox(inputs={"n": number}) as s:
            return (await s.execute("inputs['n'] ** 2")).result

    async def main():
        async with AsyncSandboxPool(Policy.preset("safe", snapshots="off")) as pool:
            return await asyncio.gather(*(one(pool, n) for n in range(20)))

    assert asyncio.run(main()) == [str(n * n) for n in range(20)]


def test_cells_run_in_a_folder_that_is_named_if_they_may_read_it(home):
    (home / "project" / "inner").mkdir()
    (home / "project" / "inner" / "a.txt").write_text("here")
    roots = {"filesystem_read_roots": ("{project}",)}
    policy = Policy.preset("unsafe", **roots)
    with SandboxPool(policy, project=home / "project", allow_unsafe=True) as pool:
        with pool.sandbox(cwd="inner") as s:
            assert s.execute("open('a.txt').read()").result == "'here'"
        with pytest.raises(PolicyError, match="not a folder that cells can read"):
            pool.sandbox(cwd="/etc").open()


@pytest.mark.parametrize("when", [0.0, 0.05, 0.2])
@pytest.mark.usefixtures("nothing_left")
def test_a_sandbox_that_is_given_up_while_it_opens_leaves_nothing(when):

    async def main():
        async with AsyncSandboxPool("safe") as pool:
            for _ in range(3):
                opening = asyncio.create_task(pool.sandbox().open())
                await asyncio.sleep(when)
                opening.cancel()
                await asyncio.wait({opening})
            async with pool.sandbox() as s:
                return await s.execute("1")

    assert asyncio.run(main()).result == "1"
