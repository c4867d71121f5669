"""Functions of a program that do not end: what they cost the cells, the sandbox and the program."""

import asyncio
import subprocess
import sys
import threading
import time
from timeit import timeit

import pytest

from cellblock import Policy, Sandbox
from support import processes

pytestmark = pytest.mark.usefixtures("home")


#: A program of which every line is traced, as a debugger does, with tools that hang in C code.
_TRACED = """
import asyncio, sys, threading
from cellblock import Policy, Sandbox

def tracer(*_):
    return tracer

free = threading.Lock()
free.acquire()

def hang():
    free.acquire()

async def hang_apart():
    free.acquire()

threading.settrace(tracer)
sys.settrace(tracer)
with Sandbox(Policy.preset("safe", tool_timeout=0.5), tools=[hang, hang_apart]) as s:
    for code in ("hang()", "await hang_apart()", "hang()"):
        assert "TimeoutError" in s.execute(code).error.message
print("ended")
"""


def tool_threads():
    return [one for one in threading.enumerate() if one.name.startswith("tool")]


def ok() -> str:
    """Answer at once."""
    return "ok"


@pytest.fixture
def free():
    """What hanging tools wait for, without end; set when the test has ended."""
    made = threading.Event()
    yield made
    made.set()


def hanging(calls):
    """Return a cell that has so many calls hang at the same time."""
    return (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def attempt(_):\n"
        "    try: hang()\n"
        "    except ToolError as exc: return exc.kind\n"
        f"with ThreadPoolExecutor({calls}) as pool: kinds = set(pool.map(attempt, range({calls})))\n"
        "kinds"
    )


def test_forty_that_hang_do_not_keep_another_from_being_called(free):
    before, policy = set(tool_threads()), Policy.preset("safe", tool_timeout=1.0)
    with Sandbox(policy, tools={"hang": lambda: free.wait(60), "ok": ok}) as s:
        assert s.execute(hanging(40)).result == "{'TimeoutError'}"
        assert s.execute("ok()").result == "'ok'"
        assert len(set(tool_threads()) - before) <= 42


def test_more_than_may_hang_are_answered_at_once_and_say_so(free, monkeypatch):
    monkeypatch.setattr("cellblock.host.services.tools.runner.MAX_STUCK", 2)
    policy = Policy.preset("safe", tool_timeout=0.5)
    with Sandbox(policy, tools={"hang": lambda: free.wait(60), "ok": ok}) as s:
        assert s.execute(hanging(2)).result == "{'TimeoutError'}"
        r = s.execute("ok()")
        assert r.error.message == (
            "ok: WorkerLost: it was not begun: 2 calls before it did not stop when they were told to"
        )
        free.set()
        processes.until(lambda: s.execute("ok()").result == "'ok'")


def test_a_calls_time_begins_when_a_thread_takes_it():
    policy = Policy.preset("safe", tool_timeout=2.0)
    with Sandbox(policy, tools={"hang": lambda: time.sleep(0.8)}) as s:
        assert s.execute(hanging(80)).result == "{None}"


def test_python_code_stops_when_its_time_is_over_and_nothing_runs_after_close():
    counted = [0]

    def count() -> None:
        while True:
            counted[0] += 1

    async def count_apart() -> None:
        count()

    before, policy = set(tool_threads()), Policy.preset("safe", tool_timeout=0.5)
    with Sandbox(policy, tools=[count, count_apart]) as s:
        assert "TimeoutError" in s.execute("count()").error.message
        processes.until(lambda: stands(counted))
        assert s.execute("await count_apart()", timeout=0.3).status == "stopped"
        s.execute("count()", timeout=0.3)
    processes.until(lambda: stands(counted) and not set(tool_threads()) - before)


def test_one_that_hangs_does_not_stop_a_program_that_is_traced():
    done = subprocess.run(
        [sys.executable, "-c", _TRACED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ended\n", done.stderr


def test_what_hangs_costs_other_threads_nothing_much(free):
    """No mark is left that has the interpreter look up after every instruction."""

    def seconds():
        return min(timeit(lambda: sum(n for n in range(100_000)), number=1) for _ in range(20))

    policy = Policy.preset("safe", tool_timeout=0.2)
    with Sandbox(policy, tools={"hang": lambda: free.wait(60)}) as s:
        before = seconds()
        assert "TimeoutError" in s.execute("hang()").error.message
        assert seconds() < 2 * before + 0.01


def test_what_cleans_up_when_it_is_stopped_is_not_stopped_again():
    ended = []

    def tidy() -> None:
        try:
            while True:
                pass
        finally:
            for _ in range(50):
                time.sleep(0.01)
            ended.append(1)

    with Sandbox(Policy.preset("safe", tool_timeout=0.2), tools=[tidy]) as s:
        assert "TimeoutError" in s.execute("tidy()").error.message
        processes.until(lambda: ended == [1])


def test_what_waits_in_c_code_is_stopped_when_it_comes_back():
    ended, free = [], threading.Lock()
    free.acquire()

    def wait() -> None:
        try:
            free.acquire()
            while True:
                pass
        finally:
            ended.append(1)

    with Sandbox(Policy.preset("safe", tool_timeout=0.2), tools=[wait]) as s:
        assert "TimeoutError" in s.execute("wait()").error.message
        time.sleep(0.5)
        assert not ended
        free.release()
        processes.until(lambda: ended == [1])


def stands(counted):
    """Say whether a count has stopped."""
    seen = counted[0]
    time.sleep(0.1)
    return counted[0] == seen


def test_what_was_not_begun_in_time_is_never_run(free):
    before, run = set(tool_threads()), []

    def hang() -> None:
        run.append(1)
        free.wait(60)

    with Sandbox("safe", tools=[hang]) as s:
        assert s.execute(hanging(40), timeout=1.0).status == "stopped"
    free.set()
    processes.until(lambda: not set(tool_threads()) - before)
    assert len(run) == 32


def test_an_async_one_that_blocks_does_not_put_off_the_cells_time_limit(free):
    async def block() -> None:
        free.wait(60)

    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    with Sandbox("safe", tools=[block, fine]) as s:
        begun = time.monotonic()
        assert s.execute("await block()", timeout=0.5).status == "stopped"
        assert time.monotonic() - begun < 5
        processes.until(lambda: s.execute("await fine()").result == "'fine'")


def test_an_async_one_has_a_moment_to_end_before_its_sandbox_is_closed():
    ended = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            ended.append(1)

    with Sandbox("safe", tools=[wait]) as s:
        code = "async def go(): await wait()\ntask = asyncio.create_task(go())\n"
        assert s.execute(f"{code}await asyncio.sleep(0.2)").success
    assert ended == [1]
