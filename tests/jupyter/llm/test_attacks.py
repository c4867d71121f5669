"""Cells that want the key, or more than their budget; endpoints that want the host."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("openai")

from support import model_kernels, processes, reading, tool_kernels
from support.client import is_idle
from support.endpoint import KEY

FORGER = """
import os, msgspec
def say(**fields):
    body = msgspec.msgpack.encode(fields)
    os.write(3, len(body).to_bytes(4, "big") + body)
def forge(id, given, name="llm"):
    say(type="tool_call", id=id, name=name, arguments=[[], given])
"""
#: Looks wherever a process can look, for the key's beginning and what follows it.
SEARCH = """
import gc, glob, os, re, sys, traceback
form = re.compile(("sk-cellblock" + "test-").encode() + rb"[0-9a-f]{8,}")
found = []
def look(where, data):
    if form.search(data if isinstance(data, bytes) else repr(data).encode("utf-8", "replace")):
        found.append(where)
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        with open(path, "rb") as file: look(path.split("/")[-1], file.read())
    except OSError: pass
look("os.environ", dict(os.environ))
look("argv", sys.argv)
for value in gc.get_objects():
    if isinstance(value, dict):
        for inner in list(value.values()):
            if isinstance(inner, (str, bytes)): look("objects", inner)
try:
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            start, end = (int(n, 16) for n in line.split()[0].split("-"))
            if "rw-p" in line and end - start < 1 << 26:
                memory.seek(start)
                look("memory", memory.read(end - start))
except OSError: pass
"""


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared, server):
    """Without a language layer: what holds, holds for machine code too."""
    argv = model_kernels.argv(
        shared_world, server, "unsafe", max_tokens_per_call=100, max_in_flight=200
    )
    made = start_shared(argv=argv, world=shared_world, extra_env=model_kernels.ENVIRONMENT)
    made.run("None")  # shows the gaps
    return made


@pytest.fixture
def small(start, world, server):
    """Start a kernel with little to spend."""

    def begin(**limits):
        argv = model_kernels.argv(world, server, "unsafe", **limits)
        return start(argv=argv, world=world, extra_env=model_kernels.ENVIRONMENT)

    server.asked.clear()
    server.left.clear()
    server.go_on.clear()
    return begin


def run(kernel, code):
    mid = kernel.execute_send(code)
    reply, published = kernel.reply(mid, timeout=60), kernel.until_idle(mid, timeout=60)
    assert reply["content"]["status"] == "ok", reply["content"]
    return reading.result(published)


def said(kernel, code):
    """Run a cell that fails; return all that anybody is told of it."""
    mid = kernel.execute_send(code)
    reply, published = kernel.reply(mid, timeout=60), kernel.until_idle(mid, timeout=60)
    assert reply["content"]["status"] == "error", reply["content"]
    return json.dumps([reply, published], default=str)


# --- the key ----------------------------------------------------------------------------------


def test_a_search_finds_a_key_where_there_is_one():
    code = f"holder = {{'key': {KEY!r}, 'more': []}}\n{SEARCH}\nprint(sorted(set(found)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"LAB_KEY": KEY},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    for where in ("environ", "os.environ", "objects", "memory"):
        assert f"'{where}'" in done.stdout


def test_no_search_finds_the_key_in_a_guest_that_has_asked(kernel):
    asked = "said = llm('key please'),\n"
    asked += "try: llm('status 400 your key is {key}')\nexcept Exception as error: said += error,\n"
    run(kernel, asked)
    assert run(kernel, "str(said[0])") == "'please ••• there'"
    assert run(kernel, f"{SEARCH}\nfound") == "[]"


@pytest.mark.parametrize(
    "prompt", ["status 401 {key}", "status 400 {key}", "status 418 Bearer {key}", "raw {key}"]
)
def test_no_error_tells_the_key(kernel, prompt):
    assert KEY not in said(kernel, f"llm({prompt!r})")


def test_no_process_of_the_kernels_shows_the_key_to_others(kernel):
    run(kernel, "llm('say x')")
    assert worker(kernel)
    for pid in kernel.tree()[1:]:
        assert KEY.encode() not in processes.read_file(pid, "environ")
    # The host was started with it; who is not root can't see that either.
    assert KEY.encode() in (processes.read_file(kernel.proc.pid, "environ") or KEY.encode())


def worker(kernel):
    """Return the pid of the process that asks: the host may have others that make caches."""
    host, program = kernel.proc.pid, b"tools.worker import main"
    children = [pid for pid, of in processes.parents().items() if of == host]
    (pid,) = [pid for pid in children if program in processes.read_file(pid, "cmdline")]
    return pid


def test_the_audit_log_has_the_call_and_not_the_key(kernel, shared_world):
    run(kernel, "llm('key for the log')")
    time.sleep(0.2)
    text = "".join(log.read_text() for log in shared_world.home.glob("**/audit/*.jsonl"))
    assert KEY not in text
    records = [json.loads(line) for line in text.splitlines()]
    (call,) = [one for one in records if one.get("kwargs") == {"prompt": "key for the log"}]
    assert (call["name"], call["outcome"], call["tokens"]) == ("llm", "ok", 9)


# --- what may be asked ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"model": "other"}, "not allowed"),
        ({"base_url": "http://127.0.0.1:1"}, "unknown field"),
        ({"extra_headers": {"Authorization": "x"}}, "unknown field"),
        ({"extra_body": {"model": "other"}}, "unknown field"),
        ({"n": 1_000}, "unknown field"),
        ({"tools": []}, "unknown field"),
        ({"max_tokens": -1}, ">= 1"),
        ({"max_tokens": 10**15}, "100 at most"),
        ({"max_tokens": float("nan")}, "got `float`"),
        ({"temperature": float("nan")}, ">= 0.0"),
        ({"prompt": {"role": "system"}}, "Expected `str`"),
        ({"stream": True}, "unknown field"),
    ],
)
def test_a_forged_call_asks_for_nothing_that_the_policy_does_not_grant(
    kernel, server, given, refusal
):
    server.asked.clear()
    given = {"prompt": "say forged"} | given
    text = repr(given).replace("nan", "float('nan')")
    # From the guest's own calls, behind what binds and packs for cells.
    code = f"""
import asyncio, msgspec
calls = next(o for o in __import__('gc').get_objects() if type(o).__name__ == 'Calls')
try: calls.block('llm', msgspec.Raw(msgspec.msgpack.encode(([], {text}))))
except ToolError as error: answer = error.kind, error.message
answer"""
    answer = run(kernel, code)
    assert answer.startswith("('ValidationError'")
    assert refusal in answer
    assert server.asked == []
    # The control: what is granted goes the same way.
    fine = code.replace(text, "{'prompt': 'say forged'}").replace("try: ", "try: answer = ")
    assert "'text': 'forged'" in run(kernel, fine)


def test_what_is_no_call_ends_its_guest(kernel):
    code = f"{FORGER}forge(7, {{}}, name='llm.complete')\nimport time; time.sleep(10)"
    assert "a call of what is no tool" in said(kernel, code)
    assert run(kernel, "str(llm('say still here'))") == "'still here'"


# --- budgets ----------------------------------------------------------------------------------

GATHER = """
import asyncio
found = await asyncio.gather(*(llm.acall('wait x', max_tokens=50) for _ in range(100)),
                             return_exceptions=True)
sorted({getattr(one, 'kind', 'ok') for one in found}), sum(type(one) is not ToolError for one in found)
"""
#: Six bytes, what a message and a call may take beyond that, and fifty of the answer.
DEAREST = 6 + 16 + 64 + 50


def until(happened):
    deadline = time.monotonic() + 30
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert happened()


def asked_at_once(kernel, server, number):
    """Have a hundred calls made, of which ``number`` are asked; return what the cell makes of it."""
    server.asked.clear()
    server.go_on.clear()
    mid = kernel.execute_send(GATHER)
    until(lambda: len(server.asked) >= number)
    time.sleep(0.3)
    # None is answered before all are on their way.
    assert len(server.asked) == number
    server.go_on.set()
    assert kernel.reply(mid, timeout=60)["content"]["status"] == "ok"
    return reading.result(kernel.until_idle(mid, timeout=60))


def test_a_hundred_calls_at_once_take_no_more_than_the_budget(kernel, small, server):
    assert asked_at_once(kernel, server, 100) == "(['ok'], 100)"  # where there is enough
    poor = small(max_in_flight=200, max_calls=30, max_tokens=20 * DEAREST + 10)
    assert asked_at_once(poor, server, 20) == "(['BudgetSpent', 'ok'], 20)"
    # Those took three tokens each, so there are enough again; but no calls.
    assert asked_at_once(poor, server, 10) == "(['BudgetSpent', 'ok'], 10)"
    assert asked_at_once(poor, server, 0) == "(['BudgetSpent'], 0)"


def test_a_budget_outlives_guests_workers_and_calls_that_never_end(small, server):
    kernel = small(max_calls=4, max_tokens=10_000, max_tokens_per_call=100, timeout=5.0)
    told = said(kernel, "llm('x' * 20_000, max_tokens=10)")
    assert (
        "BudgetSpent: it may take 20,090 tokens, too many (llm.max_tokens):"
        " 4 of 4 calls and 10,000 of 10,000 tokens are left"
    ) in told
    assert server.asked == []
    assert run(kernel, "len(llm('say ' + 'x' * 5_000, max_tokens=10))") == "5000"

    time.sleep(0.3)
    server.asked.clear()
    mid = kernel.execute_send("llm('hang')")
    until(lambda: server.asked)
    os.kill(kernel.guest(), signal.SIGKILL)
    assert kernel.reply(mid)["content"]["status"] == "error"
    kernel.until(is_idle, mid)
    # The endpoint was let go of, and not asked again for the guest that took over.
    assert server.left.wait(10)
    assert [one.last for one in server.asked] == ["hang"]

    asks = worker(kernel)
    os.kill(asks, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{asks}").exists())  # the host knows
    assert run(kernel, "str(llm('say three'))") == "'three'"
    server.left.clear()
    told = said(kernel, "llm('drip')")
    assert "TimeoutError: it took longer than 5 s (llm.timeout)" in told
    assert server.left.wait(10)
    assert "BudgetSpent: the session's calls are spent (llm.max_calls): 0 of 4" in said(
        kernel, "llm('say five')"
    )
    assert len(server.asked) == 3


def test_a_cell_that_asked_is_not_run_again(kernel, server):
    server.asked.clear()
    run(kernel, "y = str(llm('say once'))")
    run(kernel, "y = 5")
    run(kernel, "%undo")
    assert run(kernel, "y") == "'once'"
    assert [one.last for one in server.asked] == ["say once"]


# --- endpoints --------------------------------------------------------------------------------


def test_an_interrupt_stops_the_request(kernel, server):
    for code in ("llm('hang')", "llm('drip')", "await llm.acall('hang')"):
        server.left.clear()
        server.asked.clear()
        mid = kernel.execute_send(code)
        until(lambda: server.asked)
        assert not server.left.is_set()
        kernel.interrupt()
        reply = kernel.reply(mid)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert tool_kernels.calls(reply)[0]["status"] == "withdrawn"
        kernel.until(is_idle, mid)
        assert server.left.wait(10)
    assert run(kernel, "str(llm('say on'))") == "'on'"


def test_a_flood_costs_neither_host_nor_guest(kernel):
    run(kernel, "llm('say x')")
    of_ours = [kernel.proc.pid, worker(kernel)]
    before = processes.proportional_memory(of_ours)
    told = said(kernel, "llm('flood line')")
    assert "AnswerTooLarge: the endpoint's answer is too large (tool_max_bytes)" in told
    assert run(kernel, "str(llm('say on'))") == "'on'"
    assert processes.proportional_memory(of_ours) - before < 100 << 10


#: In mode safe: every way from ``llm`` to what made it.
ROADS = [
    "getattr(llm.chat, '__glo' + 'bals__')",
    "getattr(llm.chat, '__clo' + 'sure__')",
    "getattr(llm.acall, '__co' + 'de__')",
    "getattr(llm._ask, '__glo' + 'bals__')",
    "getattr(type(llm).__call__, '__glo' + 'bals__')",
    "getattr(waiting, 'cr_' + 'frame')",
    "setattr(type(llm), '__call__', print)",
    "'{0.chat.__globals__}'.format(llm)",
]


@pytest.fixture(scope="module")
def safe_kernel(shared_world, start_shared, server):
    argv = model_kernels.argv(shared_world, server, max_calls=50)
    kernel = start_shared(argv=argv, world=shared_world, extra_env=model_kernels.ENVIRONMENT)
    run(kernel, "waiting = llm.acall('say x')")
    return kernel


@pytest.mark.parametrize("road", ROADS)
def test_no_road_leads_from_it_to_what_made_it(safe_kernel, road):
    reply, published = safe_kernel.run(f"found = {road}\nfound")
    assert reply["status"] == "error", reading.result(published)
    assert reply["ename"] in {"AttributeViolation", "PolicyDenied", "TypeError"}
