"""Tools that hang, crash or are not there, and cells that are stopped while they wait."""

import os
import signal
import time

import pytest

from support import processes, reading, tool_kernels
from support.client import is_idle


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared):
    settings = "tool_timeout = 0.7\ntimeout = 20.0\n[tool_timeouts]\nslow = 30.0"
    return start_shared(argv=tool_kernels.argv(shared_world, settings=settings), world=shared_world)


def run(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply
    return reading.result(published)


def failure(kernel, code):
    content, _ = kernel.run(code)
    return f"{content['ename']}: {content['evalue']}"


def test_a_tool_that_never_ends_is_stopped_and_the_next_call_works(kernel):
    before = run(kernel, "worker_pid()")
    said = "ToolError: spin: TimeoutError: it took longer than 0.7 s (tool_timeout)"
    assert failure(kernel, "spin()") == said
    assert run(kernel, "add(1)") == "2"
    # It ran Python, so it could be stopped without the others.
    assert run(kernel, "worker_pid()") == before


def test_an_async_tool_that_takes_too_long_is_cancelled(kernel):
    before = run(kernel, "worker_pid()")
    said = "ToolError: fetch: TimeoutError: it took longer than 0.7 s (tool_timeout)"
    assert failure(kernel, "await fetch('a', 60)") == said
    assert run(kernel, "worker_pid()") == before


def test_a_worker_that_crashes_is_replaced(kernel):
    said = "ToolError: crash: WorkerLost: the tools' worker ended: exit status 3"
    assert failure(kernel, "crash()") == said
    assert run(kernel, "add(1)") == "2"


def test_calls_beside_one_that_crashes_are_told(kernel):
    code = "found = await asyncio.gather(asyncio.to_thread(slow, 20), asyncio.to_thread(crash),"
    code += " return_exceptions=True)\n[error.kind for error in found]"
    assert run(kernel, f"import asyncio\n{code}") == "['WorkerLost', 'WorkerLost']"


#: A thread goes on waiting, whoever has awaited it.
WAITS = {
    "slow(20)": "withdrawn",
    "import asyncio\nawait asyncio.to_thread(slow, 20)": "unfinished",
}


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_ends_the_wait_and_not_the_session(kernel, wait):
    run(kernel, "x = 41")
    mid = kernel.execute_send(wait)
    kernel.until(lambda m: m["msg_type"] == "execute_input", mid)
    time.sleep(0.3)
    kernel.interrupt()
    reply = kernel.reply(mid)
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    (call,) = tool_kernels.calls(reply)
    assert call["status"] == WAITS[wait]
    kernel.until(is_idle, mid)
    assert run(kernel, "add(x)") == "42"


def test_a_guest_that_dies_with_a_call_under_way_is_restored_and_calls_again(kernel):
    run(kernel, "y = [1]")
    time.sleep(0.3)
    mid = kernel.execute_send("y.append(slow(20))")
    kernel.until(lambda m: m["msg_type"] == "execute_input", mid)
    time.sleep(0.3)
    os.kill(kernel.guest(), signal.SIGKILL)
    assert kernel.reply(mid)["content"]["status"] == "error"
    kernel.until(is_idle, mid)
    # The copy numbers its calls as the guest did: the old answer must not be taken for the new.
    assert run(kernel, "y, [add(n) for n in range(3)]") == "([1], [1, 2, 3])"


def test_a_cell_waits_for_a_task_that_waits_for_a_tool(kernel):
    # Longer than a request may be silent: it is read beside the answer, and not lost.
    run(kernel, "async def wait(): return slow(5.5)")
    run(kernel, "import asyncio\nwaiting = asyncio.create_task(wait())")
    time.sleep(0.3)
    assert run(kernel, "waiting.result()") == "'slept'"


def test_no_worker_outlives_a_host_that_is_killed(start, world):
    kernel = start(argv=tool_kernels.argv(world), world=world)
    pid = int(run(kernel, "worker_pid()"))
    os.kill(kernel.proc.pid, signal.SIGKILL)
    kernel.proc.wait()
    assert processes.gone([pid]) == []


def test_a_tool_of_the_notebooks_folder_is_none_and_the_first_cell_says_so(start, world):
    world.write("only_here.py", "def f(): return 1")
    with pytest.raises(RuntimeError) as refused:
        start(argv=tool_kernels.argv(world, ("operators_tools:add", "only_here:f")), world=world)
    said = str(refused.value)
    assert "mine" in said
    assert "no such module here" in said
    assert "'only_here'" in said.replace("\\", "")
