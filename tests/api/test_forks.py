"""Forks of a sandbox: its variables, and nothing else of it or of each other."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cellblock import AsyncSandbox, Policy, Sandbox, SandboxPool
from cellblock.backends.layers import receives_mounts
from cellblock.errors import ExchangeError, GuestError
from support import machines, processes

pytestmark = pytest.mark.usefixtures("home")
IMPORTS = "import os, signal, sys, time, threading, random\n"


@pytest.fixture(params=["auto", "landlock"])
def unsafe(request):
    """A sandbox in which anything may be said, behind either backend."""
    policy = Policy.preset("unsafe", backend=request.param)
    with Sandbox(policy, allow_unsafe=True) as one:
        assert one.execute(IMPORTS + "own = os.getpid(); home = os.environ['HOME']").success
        yield one


def said(sandbox, code):
    r = sandbox.execute(code)
    assert r.success, r.to_string()
    return r.result


def refused(sandbox, code):
    return sandbox.execute(code).error.type


def test_a_name_of_a_builtins_is_the_cells_own_in_later_cells_and_forks_until_it_is_deleted(
    sandbox,
):
    said(sandbox, "def eval(x, env): return env[x]")
    assert said(sandbox, "eval('a', {'a': 1})") == "1"
    sandbox.set("compile", 3)
    (fork,) = sandbox.fork(1)
    with fork:
        assert said(fork, "eval('a', {'a': 2}) + compile") == "5"
        said(fork, "del eval")
        assert not fork.execute("eval('1 + 1')").success
    assert said(sandbox, "%time eval('a', {'a': 1})") == "1"


@pytest.mark.quick
def test_forks_have_the_variables_and_each_goes_its_own_way(sandbox):
    said(sandbox, "x = [0]; f = lambda: len(x)")
    forks = sandbox.fork(3)
    for number, fork in enumerate(forks):
        with fork:
            said(fork, f"x.extend(range({number}))")
            r = fork.execute("f()")
            assert (r.result, r.execution_count) == (str(number + 1), 3)
            assert fork.not_copied == ()
    assert said(sandbox, "f()") == "1"
    with pytest.raises(GuestError):
        forks[0].execute("1")


def test_a_fork_can_be_forked_and_ends_with_what_it_comes_from(sandbox):
    said(sandbox, "x = 1")
    (child,) = sandbox.fork()
    said(child, "x += 1")
    (grandchild,) = child.fork()
    said(grandchild, "x += 1")
    assert [said(one, "x") for one in (sandbox, child, grandchild)] == ["1", "2", "3"]
    child.close()
    with pytest.raises(GuestError):
        grandchild.execute("x")
    assert said(sandbox, "x") == "1"


def test_there_are_as_many_as_the_policy_allows_over_the_whole_tree():
    with Sandbox(Policy.preset("safe", max_branches=2)) as one:
        (child,) = one.fork()
        child.fork()
        for sandbox in (one, child):
            with pytest.raises(GuestError, match="max_branches allows 2 forks"):
                sandbox.fork()
        child.close()
        assert len(one.fork(2)) == 2


def test_they_hold_no_more_together_than_the_policy_allows_and_what_is_shared_counts_once():
    policy = Policy.preset("unsafe", forks_max_bytes=300_000_000)
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, "import time; x = bytearray(b'x' * 150_000_000)")
        forks = one.fork(4)
        for fork in forks:
            assert said(fork, "time.sleep(0.3); x.count(b'x')") == "150000000"
        write = "for at in range(0, {}, 4096): x[at] = 0"
        said(one, write.format(60_000_000) + "\ntime.sleep(0.3)")
        r = forks[1].execute(write.format(120_000_000) + "\ntime.sleep(10)")
        assert (r.status, r.stop.why, r.stop.state) == ("stopped", "forks", "restored")
        assert "memory (forks_max_bytes)" in " ".join(r.to_string().split())
        assert said(forks[1], "x.count(b'x')") == "150000000"
    with Sandbox(policy.replace(forks_max_bytes=50_000_000), allow_unsafe=True) as one:
        said(one, "x = bytearray(b'x' * 100_000_000)")
        one.fork()
        with pytest.raises(GuestError, match="forks_max_bytes allows 50,000,000 bytes"):
            one.fork()


LARGE = 120_000_000
ARRAY = f"import numpy as np, time; x = np.full({LARGE // 8}, {{}}.0)"


@pytest.fixture
def bounded():
    """A sandbox that has an array, and may hold three of the kind together with its forks."""
    policy = Policy.preset("unsafe", forks_max_bytes=3 * LARGE + (120 << 20))
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, ARRAY.format(0))
        yield one


@pytest.mark.skipif(os.geteuid() != 0, reason="the OS kernel tells only root what forks share")
def test_forks_that_replace_a_large_array_by_another_are_stopped(bounded):
    """Huge pages are given in one fault each, and the size stays what it was."""
    stops = set[str]()
    for number, fork in enumerate(bounded.fork(6)):
        r = fork.execute(ARRAY.format(number) + f"\ntime.sleep({30 if number == 5 else 0.3})")
        stops |= {r.stop.why} if r.stop else set()
    assert stops == {"forks"}


def test_forks_that_share_a_large_array_and_replace_another_by_turns_go_on(bounded):
    """What only their copies have still is not the forks'."""
    forks = bounded.fork(6)
    for number in range(3):
        for fork in forks[:2]:
            said(fork, f"y = np.full({LARGE // 16}, {number}.0); time.sleep(0.3)")
    for fork in forks:
        assert said(fork, "time.sleep(1.5); x.sum()")


def test_no_two_draw_the_same_secret(unsafe):
    forks = unsafe.fork(2)
    drawn = [said(one, "random.random(), os.urandom(8)") for one in (unsafe, *forks)]
    assert len(set(drawn)) == 3


def test_what_a_fork_lacks_is_named(unsafe):
    said(
        unsafe,
        "stop = threading.Event()\n"
        "t = threading.Thread(target=stop.wait, name='poller', daemon=True); t.start()",
    )
    (fork,) = unsafe.fork()
    assert fork.not_copied == ("1 running thread (poller)",)
    assert said(unsafe, "t.is_alive()") == "True"


def test_tools_and_their_records_are_each_forks_own(home):
    assert home
    heard = []

    def tell(number: int) -> None:
        heard.append(number)

    with SandboxPool("safe", tools={"tell": tell}) as pool, pool.sandbox() as one:
        said(one, "None")
        first, second = one.fork(2)
        assert len(first.execute("tell(1)").tool_calls) == 1
        assert len(second.execute("None").tool_calls) == 0
    assert heard == [1]


# --- attacks ------------------------------------------------------------------------------------


def test_a_fork_reaches_no_file_of_its_parent_nor_of_another_fork(unsafe):
    said(unsafe, "open(home + '/mine', 'w').write('parent')")
    first, second = unsafe.fork(2)
    said(first, "open(os.environ['HOME'] + '/mine', 'w').write('first')")  # its own it has
    theirs = said(first, "os.environ['HOME']").strip("'")
    for path in (said(unsafe, "home").strip("'"), theirs):
        assert path != said(second, "os.environ['HOME']").strip("'")
        for attack in (
            f"open('{path}/mine').read()",
            f"open('{path}/mine', 'a')",
            f"os.remove('{path}/mine')",
            f"os.listdir('{path}')",
            f"os.symlink('/', '{path}/link')",
            f"os.rename('{path}', '{path}2')",
        ):
            assert refused(second, attack) == "PermissionError", attack
    assert said(unsafe, "open(home + '/mine').read()") == "'parent'"


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_fork_sets_no_modes_and_times_of_its_parents_files_nor_of_another_forks(
    home, backend, monkeypatch
):
    monkeypatch.setenv("PATH", machines.path(backend))
    whole_may = backend == "bubblewrap" or not receives_mounts()
    project = home / f"modes-{backend}"
    project.mkdir()
    (project / "old.txt").write_text("old")
    policy = Policy.preset("data", backend=backend)
    with Sandbox(policy, project=project) as one:
        said(one, f"import os, subprocess; os.chdir('{project}'); open('new.txt', 'w').write('x')")
        said(one, "home = os.environ['HOME']; inside = os.open(home, os.O_RDONLY)")
        first, second = one.fork(2)
        said(second, "open(os.environ['HOME'] + '/mine', 'w').write('second')")
        theirs = said(second, "os.environ['HOME']").strip("'")
        (below,) = first.fork(shares_files=True)
        for fork in (first, below):
            for attack in (
                "os.chmod('new.txt', 0)",
                "os.utime('old.txt', (1, 1))",
                "os.chown('old.txt', os.getuid(), os.getgid())",
                "os.chmod(home, 0)",
                "os.fchmod(inside, 0)",
                f"os.chmod('{theirs}', 0)",
            ):
                assert refused(fork, attack) == "PermissionError", attack
            for around in ([], ["setsid", "--wait"]):
                touching = [*around, "touch", "-d", "@1", "old.txt"]
                assert said(fork, f"subprocess.run({touching}).returncode") == "1"
        assert [change.path for change in one.changes()] == ["new.txt"]
        assert said(second, "open(os.environ['HOME'] + '/mine').read()") == "'second'"
        (alike,) = one.fork(shares_files=True)
        for whole in (one, alike) if whole_may else ():  # which may write there
            said(whole, "os.chmod('new.txt', 0o600); os.utime('old.txt', (1, 1))")


def test_a_fork_that_begins_anew_sets_no_modes_and_times_of_its_parents_files_either(
    home, monkeypatch
):
    monkeypatch.setenv("PATH", machines.path("bubblewrap"))

    async def begin_anew():
        project = home / "anew"
        project.mkdir()
        (project / "old.txt").write_text("old")
        setting = "import os; os.utime('old.txt', (1, 1))"
        async with AsyncSandbox(
            Policy.preset("data", backend="bubblewrap"), project=project
        ) as one:
            assert (await one.execute(setting + "; x = 1")).success
            (fork,) = await one.fork()
            supervisor = fork.session_of().requests.supervisor
            supervisor.owner.on_stopping()
            supervisor._play(supervisor._core.end)  # its copies, too
            supervisor.ensure()
            assert (await fork.execute("x")).error.type == "NameError"
            assert (await fork.execute(setting)).error.type == "PermissionError"

    asyncio.run(asyncio.wait_for(begin_anew(), 60))


def test_copies_of_a_fork_that_was_cancelled_end():
    async def begin_and_cancel():
        async with AsyncSandbox("safe") as one:
            await one.execute("x = 1")
            snapshots = one.session_of().requests.supervisor.snapshots
            forking = asyncio.create_task(one.fork(4))
            while not snapshots.chain.apart:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
            forking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await forking
            while snapshots.chain.apart:  # noqa: ASYNC110 - nor that
                await asyncio.sleep(0.05)
            assert (await one.execute("x")).result == "1"

    asyncio.run(asyncio.wait_for(begin_and_cancel(), 60))


def test_no_link_leads_the_folder_of_a_fork_elsewhere(unsafe, tmp_path):
    (child,) = unsafe.fork()
    theirs = said(child, "os.environ['HOME']").strip("'")
    said(unsafe, f"os.rename('{theirs}', '{theirs}2'); os.symlink('{tmp_path}', '{theirs}')")
    before = tmp_path.stat().st_mtime_ns
    with pytest.raises(ExchangeError, match="scratch folder"):
        child.fork()
    assert tmp_path.stat().st_mtime_ns == before


def test_a_fork_does_not_have_its_parents_open_files(unsafe):
    said(
        unsafe,
        "f = open(home + '/log', 'w+'); f.write('one\\n'); f.flush(); r = open(home + '/log')",
    )
    said(unsafe, "z = open(os.__file__); z.readline()")
    (fork,) = unsafe.fork()
    assert fork.not_copied == ("the contents of 2 open files",)
    said(unsafe, "f.write('two\\n'); f.flush()")
    for attack in ("os.write(f.fileno(), b'fork')", "os.ftruncate(f.fileno(), 0)", "r.read()"):
        assert refused(fork, attack) == "OSError", attack
    assert said(fork, "z.readline()") == said(unsafe, "z.readline()")  # each has a place of its own
    assert fork.execute("os._exit(1)").status == "stopped"
    said(fork, "1")
    assert said(unsafe, "f.write('three\\n'); f.flush(); r.read()") == repr("one\ntwo\nthree\n")
    variants = unsafe.try_variants(["f.write('four\\n'); f.flush()"], lambda _: 0)
    assert variants.results[0].success
    assert said(unsafe, "r.read()") == repr("four\n")


def test_a_fork_lists_no_folder_of_its_parents_that_was_open_and_who_is_restored_does(unsafe):
    said(unsafe, "os.mkdir(home + '/theirs'); fd = os.open(home, os.O_RDONLY)")
    said(unsafe, "library = os.open(os.path.dirname(os.__file__), os.O_RDONLY)")
    (fork,) = unsafe.fork()
    assert fork.not_copied == ("the contents of 1 open file",)
    assert refused(fork, "os.listdir(fd)") == "OSError"
    assert said(fork, "'os.py' in os.listdir(library)") == "True"
    said(unsafe, "time.sleep(1.5)")  # its copy stands
    assert unsafe.execute("os._exit(1)").status == "stopped"
    assert said(unsafe, "'theirs' in os.listdir(fd)") == "True"


def test_a_fork_signals_nobody_else(unsafe):
    first, second = unsafe.fork(2)
    # By its number in its own pid namespace, where it has one.
    for victim in (said(unsafe, "os.getpid()"), said(first, "os.getpid()"), "1"):
        assert refused(second, f"os.kill({victim}, signal.SIGKILL)") == "PermissionError"
    assert said(first, "own") == said(unsafe, "own") == said(second, "own")


#: Start two programs that compute, and one that waits.
PROGRAMS_RUN = """
import os, resource, subprocess, sys
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
idle = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
[one.pid for one in (*busy, idle)]
"""
#: End the first, leave the third no open files and the second one processor, in other ways too.
AGAINST_PROGRAMS = [
    "resource.prlimit({0}, resource.RLIMIT_CPU, (0, 0))",
    "resource.prlimit({0}, resource.RLIMIT_CPU)",
    "resource.prlimit({2}, resource.RLIMIT_NOFILE, (0, 0))",
    "os.kill({0}, 9)",
    "os.killpg(os.getpgrp(), 9)",
    "os.getpgid({2})",
    "os.getsid({2})",
    "os.sched_setaffinity({1}, {{0}})",
    "os.sched_getscheduler({1})",
    "os.getpriority(os.PRIO_PROCESS, {1})",
    "os.setpgid({1}, 0)",
]


@pytest.mark.parametrize("shares_files", [False, True])
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_fork_ends_no_program_of_others_by_its_limits_or_in_any_way(
    home, backend, shares_files, monkeypatch
):
    assert home
    monkeypatch.setenv("PATH", machines.path(backend))
    with Sandbox(Policy.preset("data", backend=backend)) as one:
        programs = {one: eval(said(one, PROGRAMS_RUN))}
        first, second = one.fork(2, shares_files=shares_files)
        programs[first] = eval(said(first, PROGRAMS_RUN))
        for attacker, victim in ((second, one), (second, first), (first, one), (one, first)):
            said(attacker, "import os, resource")
            for attack in AGAINST_PROGRAMS:
                attacked = attack.format(*programs[victim])
                assert refused(attacker, attacked) in {"PermissionError", "OSError"}, attack
        for owner in programs:  # they live, and their owner may
            assert said(owner, "[each.poll() for each in (*busy, idle)]") == "[None, None, None]"
            assert said(owner, "resource.prlimit(idle.pid, resource.RLIMIT_NOFILE)[0] > 0")
            said(owner, "resource.prlimit(busy[0].pid, resource.RLIMIT_CPU, (0, 0))")
            assert said(owner, "busy[0].wait()") == "-9"


#: What a fork may try on a guest, whose filter it is under, too.
AGAINST_GUESTS = [
    "resource.prlimit({0}, resource.RLIMIT_CPU, (0, 0))",
    "resource.prlimit({0}, resource.RLIMIT_CPU)",
    "os.kill({0}, 9)",
    "os.kill({0}, 0)",
    "os.getpgid({0})",
    "os.getsid({0})",
    "os.sched_setaffinity({0}, {{0}})",
    "os.sched_getscheduler({0})",
    "os.getpriority(os.PRIO_PROCESS, {0})",
]


@pytest.mark.parametrize("programs", [False, True])
@pytest.mark.parametrize("shares_files", [False, True])
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_fork_ends_no_guest_of_others_by_its_limits_or_in_any_way(
    home, backend, shares_files, programs, monkeypatch
):
    assert home
    monkeypatch.setenv("PATH", machines.path(backend))
    policy = Policy.preset("unsafe", backend=backend, subprocess_execution=programs)
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, "import os, resource, signal, time; x = 1")
        first, second = one.fork(2, shares_files=shares_files)
        pids = [said(each, "os.getpid()") for each in (one, first, second)]
        for attacker, victim in ((second, 0), (second, 1), (first, 0), (one, 1)):
            for attack in AGAINST_GUESTS:
                attacked = attack.format(pids[victim])
                assert refused(attacker, attacked) in {"PermissionError", "OSError"}, attack
        for each, pid in zip((one, first, second), pids, strict=True):
            # Each may about itself, by its number too.
            assert said(each, "os.getsid(os.getpid()) == os.getsid(0)") == "True"
            assert said(each, "resource.prlimit(os.getpid(), resource.RLIMIT_CPU)[0] != 0")
            assert said(each, "signal.raise_signal(0); os.kill(os.getpid(), 0); os.getpid()") == pid


@pytest.mark.parametrize("programs", [False, True])
def test_a_fork_takes_no_ports_of_others(home, programs):
    """Whether cells may start programs or not."""
    assert home
    bind = (
        "import socket\n"
        "def bind():\n"
        "    with socket.socket() as one: one.bind(('127.0.0.1', 0))\n"
        "bind()"
    )
    policy = Policy.preset("unsafe", network_access=["127.0.0.1:9"], subprocess_execution=programs)
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, bind)
        greedy, other = one.fork(2)
        assert refused(greedy, "for _ in range(20_000): bind()") == "OSError"
        said(other, "for _ in range(100): bind()")
        said(one, "for _ in range(100): bind()")


@pytest.mark.parametrize("programs", [False, True])
def test_what_the_zygote_answers_a_fork_is_time_of_that_fork_alone(home, programs):
    assert home
    flood = (
        "import select, socket\n"
        "poll, ends = select.epoll(), socket.socketpair()\n"
        "def flood():\n"
        "    for _ in range(10_000):\n"
        "        poll.register(ends[0])\n"
        "        poll.unregister(ends[0])\n"
    )

    async def ask():
        policy = Policy.preset("unsafe", subprocess_execution=programs)
        async with AsyncSandbox(policy, allow_unsafe=True) as one:
            assert (await one.execute(flood)).success
            asking, other = await one.fork(2)
            supervisors = [each.session_of().requests.supervisor for each in (one, other)]
            before = [each.answering_cpu for each in supervisors]
            own = asking.session_of().requests.supervisor
            while own.answering_cpu < 0.2:
                assert (await asking.execute(flood + "flood()")).success
            assert [each.answering_cpu for each in supervisors] == before

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_a_fork_has_no_descriptor_of_anothers_channel(unsafe):
    look = (
        "found = set()\n"
        "for fd in range(256):\n"
        "    try:\n"
        "        s = os.fstat(fd)\n"
        "    except OSError:\n"
        "        continue\n"
        "    if s.st_mode & 0o170000 in (0o140000, 0o010000): found.add(s.st_ino)\n"
        "sorted(found)"
    )
    found = [set(eval(said(one, look))) for one in (unsafe, *unsafe.fork(2))]
    assert all(found)
    shared = found[0] & found[1] | found[0] & found[2] | found[1] & found[2]
    assert not shared


def test_a_killed_fork_has_its_own_state_back_and_harms_none(unsafe):
    said(unsafe, "x = 'parent'")
    first, second = unsafe.fork(2)
    said(first, "x = 'first'")
    said(second, "x = 'second'")
    time.sleep(0.5)  # their copies stand
    r = first.execute("x = None; os.kill(os.getpid(), signal.SIGKILL)")
    assert (r.status, r.stop.why) == ("stopped", "crash")
    assert [said(one, "x") for one in (first, second, unsafe)] == [
        "'first'",
        "'second'",
        "'parent'",
    ]
    r = unsafe.execute("x = None; os.kill(os.getpid(), signal.SIGKILL)")
    assert r.status == "stopped"
    assert [said(one, "x") for one in (first, second, unsafe)] == [
        "'first'",
        "'second'",
        "'parent'",
    ]


def test_a_killed_fork_leaves_the_programs_that_others_run():
    policy = Policy.preset("unsafe", subprocess_execution=True)
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, IMPORTS + "import subprocess")
        first, second = one.fork(2)
        said(second, "p = subprocess.Popen(['sleep', '60'])")
        time.sleep(0.5)
        assert first.execute("os.kill(os.getpid(), signal.SIGKILL)").status == "stopped"
        said(first, "1")
        assert said(second, "p.poll() is None") == "True"


def test_a_fork_does_not_narrow_what_its_gate_decides_for_others(unsafe):
    (fork,) = unsafe.fork()
    for one in (fork, unsafe):
        r = one.execute("%policy narrow max_open_files=100")
        assert not r.success
        assert "forks" in r.to_string()
    fork.close()
    assert unsafe.execute("%policy narrow max_open_files=100").success


@pytest.mark.parametrize("backend", ["auto", "landlock"])
def test_a_fork_by_another_zygote_ends_no_other_sandboxs_guest(backend):
    policy = Policy.preset("unsafe", backend=backend)
    with SandboxPool(policy, allow_unsafe=True) as pool, pool.sandbox() as other:
        said(other, "x = 1")
        with pool.sandbox() as one:
            assert one.execute("%policy narrow --fresh max_processes=20").success
            said(one, "y = 2")
            for attempt in (one.fork, lambda: one.try_variants(["y"], lambda _: 0)):
                with pytest.raises(GuestError, match="narrow has no forks"):
                    attempt()
            assert said(one, "y") == "2"
        assert said(other, "x") == "1"


def test_a_fork_reads_what_is_staged_and_stages_nothing(home):
    project = home / "staged"
    project.mkdir()
    (project / "old.txt").write_text("old")
    with Sandbox("data", project=project) as one:
        said(one, f"import os; os.chdir('{project}'); open('new.txt', 'w').write('new')")
        (fork,) = one.fork()
        assert said(fork, f"open('{project}/new.txt').read()") == "'new'"
        for attack in (
            "open('{}/new.txt', 'w')",
            "open('{}/other', 'w')",
            "os.remove('{}/old.txt')",
        ):
            assert refused(fork, attack.format(project)) in ("PermissionError", "OSError"), attack
        assert fork.changes() == ()
        assert [change.path for change in one.changes()] == ["new.txt"]


def test_forks_end_with_a_program_that_is_killed(home):
    program = textwrap.dedent("""
        import sys, time
        from cellblock import Sandbox
        one = Sandbox("safe")
        one.open()
        one.execute("x = 1")
        forks = one.fork(3)
        print("open", flush=True)
        time.sleep(600)
    """)
    assert home
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as host:
        assert host.stdout.readline() == b"open\n"
        ours = processes.tree(host.pid)[1:]
        assert len(ours) >= 5
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
    deadline = time.monotonic() + 10
    while any(
        Path(f"/proc/{pid}/cmdline").exists() and processes.read_file(pid, "cmdline")
        for pid in ours
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_budget_of_a_session_is_not_had_again_by_forking(home):
    out = home / "project" / "out"
    out.mkdir()
    (home / "budget.toml").write_text(f'extends = "safe"\n[ops.write_file]\nroots = ["{out}"]\n')
    with Sandbox(home / "budget.toml") as one:
        for fork in (one.fork, lambda: one.try_variants(["1"], lambda _: 0)):
            with pytest.raises(GuestError, match="another sandbox would have a new budget"):
                fork()


@pytest.fixture
def with_programs():
    """A sandbox whose cells may start programs, and the cells that start one of so many bytes."""
    policy = Policy.preset(
        "unsafe",
        subprocess_execution=True,
        memory_max_bytes=400_000_000,
        forks_max_bytes=500_000_000,
    )
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, "import subprocess, sys, time\n" + STARTING)
        yield one


STARTING = '''
def start(size, *around):
    """Start a program that holds ``size`` bytes, and return when it does."""
    program = f"x = b'x' * {size}; print(1, flush=True); import time; time.sleep(600)"
    started = subprocess.Popen(
        [*around, sys.executable, "-c", program], stdout=subprocess.PIPE
    )
    return started.stdout.read(1)
'''
#: Leaves what follows to whoever takes orphans, in a session of its own or not.
ORPHANED = ["'sh', '-c', '\"$@\" &', ''", "'sh', '-c', 'setsid \"$@\" &', ''"]


def test_what_programs_of_forks_hold_counts_for_the_tree(with_programs):
    forks = with_programs.fork(3)
    stops = []
    for fork in forks:
        r = fork.execute("start(200_000_000); time.sleep(1.5)")
        stops.append(r.stop.why if r.stop else "")
    assert stops == ["", "", "forks"]


@pytest.mark.parametrize("around", ORPHANED)
def test_what_an_orphan_holds_counts_for_the_fork_that_left_it(with_programs, around):
    policy = with_programs.policy.replace(forks_max_bytes=2_000_000_000)
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, "import subprocess, sys, time\n" + STARTING)
        careless, honest = one.fork(2)
        assert said(careless, f"start(250_000_000, {around})") == "b'1'"
        for other in (honest, one):
            assert said(other, "x = b'x' * 250_000_000; time.sleep(0.5); len(x)") == "250000000"
        r = careless.execute("x = b'x' * 250_000_000; time.sleep(5)")
        assert (r.status, r.stop.why) == ("stopped", "memory")
        # What it went back to is in its own session again, and what it leaves is its own.
        said(careless, "import time; time.sleep(0.5)")
        assert said(careless, f"start(250_000_000, {around})") == "b'1'"
        assert said(honest, "time.sleep(0.5); len(x)") == "250000000"


def test_a_fork_that_stays_in_its_parents_session_does_not_serve(with_programs):
    said(with_programs, "import cellblock.guest.snapshots as s; s._begin_session = int")
    with pytest.raises(GuestError, match="ended before it could serve"):
        with_programs.fork()
    assert said(with_programs, "1") == "1"


def test_what_a_sandbox_leaves_running_that_went_on_from_a_variant_is_its_own(with_programs):
    policy = with_programs.policy.replace(forks_max_bytes=2_000_000_000)
    with Sandbox(policy, allow_unsafe=True) as one:
        said(one, "import subprocess, sys, time\n" + STARTING)
        one.try_variants(["x = 1", "x = 2"], lambda _: 1)
        (fork,) = one.fork()
        assert said(one, f"start(250_000_000, {ORPHANED[0]})") == "b'1'"
        assert said(fork, "x = b'x' * 250_000_000; time.sleep(0.5); len(x)") == "250000000"
        r = one.execute("x = b'x' * 250_000_000; time.sleep(5)")
        assert (r.status, r.stop.why) == ("stopped", "memory")


# --- scratch folders ------------------------------------------------------------------------------

LOOKING = """
import os, time
def held(folder):
    "Return the bytes beneath a folder, without those of removed files."
    found = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try: found += os.stat(f"{at}/{name}").st_blocks * 512
            except OSError: pass
    return found
def wait(until):
    ends = time.monotonic() + 30
    while not until():
        assert time.monotonic() < ends
        time.sleep(0.05)
home = os.environ["HOME"]
"""
FILL = "with open(os.environ['HOME'] + '/large', 'wb') as f: f.write(os.urandom({} << 20))"
#: Beyond the folders within folders that are followed.
DEEP = """
at = os.open({}, os.O_RDONLY)
for _ in range(80):
    os.mkdir("d", dir_fd=at)
    at = os.open("d", os.O_RDONLY, dir_fd=at)
"""


def with_scratch(backend, monkeypatch, **limits):
    monkeypatch.setenv("PATH", machines.path(backend))
    return Policy.preset("data", backend=backend, scratch_max_bytes=16 << 20, **limits)


def beside(one, waiting, *others):
    """Run a cell in a sandbox and others in its forks meanwhile; return what came of each."""

    async def run():
        runs = [one.execute(waiting), *(fork.execute(source) for fork, source in others)]
        return await asyncio.gather(*runs)

    return run()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_what_forks_write_counts_for_each_of_them_and_not_for_their_parent(
    home, backend, monkeypatch
):
    assert home
    policy = with_scratch(backend, monkeypatch)

    async def write():
        async with AsyncSandbox(policy) as one:
            assert (await one.execute(LOOKING)).success
            first, second = await one.fork(2)
            (below,) = await first.fork()
            await first.execute("import os")
            written = "wait(lambda: held(home) >= 42 << 20)\ntime.sleep(1)"
            found = await beside(
                one, written, *((each, FILL.format(14)) for each in (first, second, below))
            )
            assert [each.status for each in found] == ["ok"] * 4, found
            r = await second.execute(FILL.format(90) + "\ntime.sleep(10)")
            assert (r.status, r.stop.why) == ("stopped", "scratch")
            r = await one.execute(FILL.format(20) + "\ntime.sleep(10)")
            assert (r.status, r.stop.why) == ("stopped", "scratch")

    asyncio.run(asyncio.wait_for(write(), 120))


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_fork_whose_folder_can_not_be_measured_ends_and_its_parents_cell_goes_on(
    home, backend, monkeypatch
):
    assert home
    policy = with_scratch(backend, monkeypatch)

    async def make_deep():
        async with AsyncSandbox(policy) as one:
            assert (await one.execute(LOOKING + "x = 1")).success
            (fork,) = await one.fork()
            theirs = (await fork.execute("os.environ['HOME']")).result
            deep = DEEP.format(theirs) + "time.sleep(20)"
            gone = f"wait(lambda: not os.path.exists({theirs}))"
            r, found = await beside(one, gone, (fork, deep))
            assert r.status == "ok", r
            for failed in (found, await fork.execute("1")):
                assert failed.status == "failed"
                assert "make another fork" in failed.error.message
            (other,) = await one.fork()
            assert (await other.execute("x")).result == "1"

    asyncio.run(asyncio.wait_for(make_deep(), 120))


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("hidden", ["deep", "large", "slow"])
def test_a_parent_hides_nothing_in_a_folder_of_its_fork(home, backend, hidden, monkeypatch):
    assert home
    policy = with_scratch(backend, monkeypatch, max_file_size=None)
    opened = "f = open(theirs + '/f', 'wb')\n"
    hide = {"deep": DEEP.format("theirs"), "large": opened, "slow": opened}[hidden]
    if hidden == "large":
        hide += "while os.path.exists(theirs): f.write(os.urandom(1 << 20))\n"
    if hidden == "slow":  # the fork's guest is ended, and restored, before there is too much
        hide += "while os.path.exists(theirs):\n"
        hide += "    f.write(os.urandom(24 << 20)); f.flush(); time.sleep(0.5)\n"
    with Sandbox(policy) as one:
        said(one, LOOKING)
        (fork,) = one.fork()
        said(one, f"theirs = {said(fork, 'os.environ[' + repr('HOME') + ']')}")
        r = one.execute(hide + "f = None\nwait(lambda: not os.path.exists(theirs))")
        assert r.status == "ok" or r.stop.why == "scratch"
        assert "make another fork" in fork.execute("1").error.message
        # What it moves away, or makes of that name, is its own.
        (fork,) = one.fork()
        said(one, f"theirs = {said(fork, 'os.environ[' + repr('HOME') + ']')}")
        moved = "os.rename(theirs, home + '/moved'); os.mkdir(theirs)\n"
        moved += "with open(home + '/moved/f', 'wb') as f: f.write(os.urandom(30 << 20))\n"
        r = one.execute(moved + "time.sleep(20)")
        assert (r.status, r.stop.why) == ("stopped", "scratch")


# --- variants -----------------------------------------------------------------------------------


def test_the_variant_that_is_picked_is_what_the_sandbox_goes_on_from(sandbox):
    said(sandbox, "x = 1; y = [0]")
    sources = ["x += 1; y.append(x); x", "x += 10; y.append(x); x", "1 / 0"]

    def largest(results):
        return max(range(3), key=lambda at: int(results[at].result or 0))

    for expected in (11, 21):
        found = sandbox.try_variants(sources, largest)
        assert found.kept == 1
        assert [r.status for r in found.results] == ["ok", "ok", "error"]
        assert found.results[1].result == said(sandbox, "x") == str(expected)
    assert said(sandbox, "y") == "[0, 11, 21]"
    assert sandbox.execute("None").execution_count == 7


def test_a_fork_is_gone_on_from_while_others_go_on(unsafe):
    said(unsafe, "x = [1]")
    first, second = unsafe.fork(2, shares_files=True)
    (apart,) = unsafe.fork()
    for one, number in ((first, 10), (second, 20), (unsafe, 30)):
        said(one, f"x.append({number})")
    unsafe.go_on_from(first)
    said(first, "x.append(11)")
    assert [said(one, "x") for one in (unsafe, first, second, apart)] == [
        "[1, 10]",
        "[1, 10, 11]",
        "[1, 20]",
        "[1]",
    ]
    assert unsafe.execute("os.kill(os.getpid(), signal.SIGKILL)").status == "stopped"
    unsafe.go_on_from(second)
    assert [said(one, "x") for one in (unsafe, first)] == ["[1, 20]", "[1, 10, 11]"]
    for other, one in ((unsafe, apart), (first, second)):
        with pytest.raises(GuestError, match="a fork of this sandbox that shares its files"):
            other.go_on_from(one)


def test_variants_of_which_none_is_picked_leave_the_sandbox_as_it_was(sandbox):
    said(sandbox, "x = 1")
    assert sandbox.try_variants(["x = 2", "x = 3"], lambda _: None).kept is None
    with pytest.raises(ZeroDivisionError):
        sandbox.try_variants(["x = 2", "x = 3"], lambda _: 1 // 0)
    assert said(sandbox, "x") == "1"


def test_variants_can_be_tried_again_and_again(sandbox):
    said(sandbox, "x = 0")
    for _ in range(12):  # more often than rulesets can be laid
        sandbox.try_variants(["x += 1"], lambda _: 0)
    assert said(sandbox, "x") == "12"


def test_a_variant_that_is_killed_or_hangs_harms_none(unsafe):
    said(unsafe, "x = 1")
    sources = ["x = 2", "os.kill(os.getpid(), signal.SIGKILL)", "while True: pass"]
    found = unsafe.try_variants(sources, lambda _: 0, timeout=2)
    assert [r.status for r in found.results] == ["ok", "stopped", "stopped"]
    assert said(unsafe, "x") == "2"
    time.sleep(0.5)
    r = unsafe.execute("x = None; os.kill(os.getpid(), signal.SIGKILL)")
    assert (r.status, r.stop.why, r.stop.state) == ("stopped", "crash", "restored")
    assert said(unsafe, "x") == "2"


def test_a_variant_that_ends_when_it_is_picked_costs_nothing(unsafe):
    said(unsafe, "x = 1")
    attack = "import cellblock.guest.snapshots as s; s.Snapshots.take_over = lambda *_: os._exit(3)"
    for attempt in range(2):
        with pytest.raises(GuestError, match="picked ended"):
            unsafe.try_variants([f"x = 2; {attack}"], lambda _: 0)
        assert said(unsafe, "x") == "1", attempt
    assert unsafe.try_variants(["x = 3"], lambda _: 0).kept == 0
    assert said(unsafe, "x") == "3"


def test_what_a_variant_narrowed_is_not_wide_again(unsafe):
    with pytest.raises(GuestError, match="narrowed its policy"):
        unsafe.try_variants(["%policy narrow timeout=5"], lambda _: 0)
    assert unsafe.policy.timeout == 60
    assert said(unsafe, "1") == "1"


def test_what_the_variant_wrote_and_staged_is_the_sandboxs(home):
    project = home / "varied"
    project.mkdir()
    with Sandbox("data", project=project) as one:
        said(one, f"import os; os.chdir('{project}')")
        one.try_variants(["open('a', 'w').write('a')", "x = 1"], lambda _: 0)
        assert [change.path for change in one.changes()] == ["a"]
        said(one, "open('b', 'w').write('b'); open(os.environ['HOME'] + '/c', 'w').write('c')")
        one.try_variants(["open(os.environ['HOME'] + '/c').read()"], lambda _: 0)
        assert said(one, "open(os.environ['HOME'] + '/c').read()") == "'c'"
        assert [change.path for change in one.changes()] == ["a", "b"]


def test_a_fork_of_a_narrowed_sandbox_has_the_host_do_no_more_for_it(home):
    folder = home / "project" / "read"
    folder.mkdir()
    (folder / "one.txt").write_text("one")
    (folder / "two.txt").write_text("two")
    policy = Policy.preset("data", ops={"read_file": {"roots": [str(folder)]}})
    read = f"ops.read_file('{folder}/{{}}.txt')"
    with Sandbox(policy) as one:
        assert said(one, read.format("two")) == "'two'"
        assert one.execute(f'%policy narrow add.read_deny_paths=["{folder}/two.txt"]').success
        (fork,) = one.fork()
        for each in (one, fork):
            assert said(each, read.format("one")) == "'one'"
            assert "NotGranted" in each.execute(read.format("two")).to_string()
