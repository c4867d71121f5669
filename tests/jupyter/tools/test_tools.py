"""Tools as cells call them: plain functions, by every way that Python has to wait."""

import pytest

from support import reading, tool_kernels


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared):
    argv = tool_kernels.argv(shared_world, settings="timeout = 300.0")
    kernel = start_shared(argv=argv, world=shared_world)
    run(kernel, "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor")
    return kernel


def run(kernel, code):
    """Run a cell that ends well; return its reply and what it published."""
    mid = kernel.execute_send(code)
    # Thousands of calls take a second, or however long others leave them.
    reply, published = kernel.reply(mid, timeout=300), kernel.until_idle(mid)
    assert reply["content"]["status"] == "ok", reply["content"]
    return reply, published


def value(kernel, code):
    return reading.result(run(kernel, code)[1])


def failure(kernel, code):
    content, _ = kernel.run(code)
    return f"{content['ename']}: {content['evalue']}"


CALLED = {
    "add(1, 2)": "3",
    "add(a='4')": "5",
    "forecast('Rome', days=1)": "{'city': 'Rome', 'degrees': [20.5]}",
    "await fetch('a')": "'<a>'",
    "fetch('a')": "'<a>'",
    "def named(key): return fetch(key) + '!'\n[named('a'), named('b')]": "['<a>!', '<b>!']",
    "import asyncio\nasyncio.run(fetch('b'))": "'<b>'",
    "async def both(): return await asyncio.gather(fetch('a', 0.05), fetch('b'))\n"
    "asyncio.run(both())": "['<a>', '<b>']",
    "await asyncio.gather(fetch('a', 0.05), fetch('b'))": "['<a>', '<b>']",
    "await asyncio.gather(*(asyncio.to_thread(add, n) for n in range(5)))": "[1, 2, 3, 4, 5]",
    "await asyncio.gather(asyncio.to_thread(fetch, 'c'), fetch('d'))": "['<c>', '<d>']",
    "async def both(): return await fetch('e'), add(1)\nawait both()": "('<e>', 2)",
    "from concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(6) as pool: found = list(pool.map(add, range(60)))\n"
    "found == list(range(1, 61))": "True",
    "async def waited():\n    async with asyncio.timeout(20):\n"
    "        async with asyncio.TaskGroup() as group:\n"
    "            tasks = [group.create_task(fetch(str(n), 0.01)) for n in range(9)]\n"
    "    return [task.result() for task in tasks]\n"
    "len(await waited())": "9",
}


@pytest.mark.quick
def test_a_tool_is_called_and_waited_for_as_any_function(kernel):
    for code, expected in CALLED.items():
        assert value(kernel, code) == expected, code


FAILS = {
    "add()": "TypeError: add() missing a required argument: 'a'. Call it as add(a: int, b: int = 1) -> int",
    "echo(object())": "TypeError: echo(): argument 'value': object can't be passed as data",
    "echo(value={1: 2})": "TypeError: echo(): argument 'value': a dict with keys of type int can't be passed:"
    " use str",
    "add('x')": "ToolError: add: ValidationError: a: Input should be a valid integer, unable to parse"
    " string as an integer",
    "fail()": "ToolError: fail: LookupError: no such city",
    "fail('see /srv/operator/x.db, https://a.org/b/c')": "ToolError: fail: LookupError: see <path>, https://a.org/b/c",
    "missing()": "ToolError: missing: FileNotFoundError: No such file or directory",
    "opaque()": "ToolError: opaque: TypeError: what it returned can't be passed: TextIOWrapper can't"
    " be passed as data",
}


@pytest.mark.parametrize("code", FAILS)
def test_what_fails_says_what_and_nothing_of_the_host(kernel, code):
    assert failure(kernel, code) == FAILS[code]


def test_an_error_shows_the_cells_own_line_and_none_of_ours(kernel):
    _, published = kernel.run("def f():\n    fail()\nf()")
    text = reading.traceback(published)
    assert "fail()" in text
    assert "cellblock/" not in text
    assert "operators_tools" not in text


def test_an_error_can_be_caught_and_read(kernel):
    code = "try: fail()\nexcept ToolError as error: found = error.tool, error.kind, error.message"
    assert value(kernel, f"{code}\nfound") == "('fail', 'LookupError', 'no such city')"


def test_a_tool_has_the_operators_signature_and_words(kernel):
    code = "forecast.__name__, forecast.__doc__.splitlines()[0]"
    assert value(kernel, code) == "('forecast', 'Tell the weather of the next days.')"
    asked = kernel.ask("inspect_request", {"code": "forecast", "cursor_pos": 8, "detail_level": 0})
    shown = reading.ANSI.sub("", asked["content"]["data"]["text/plain"])
    assert "forecast(city: str, *, days: int = 2) -> Forecast" in shown
    assert "The second paragraph" in shown


def test_a_tool_is_completed(kernel):
    asked = kernel.ask("complete_request", {"code": "forec", "cursor_pos": 5})
    assert asked["content"]["matches"] == ["forecast"]


def test_tools_are_listed(kernel):
    _, published = run(kernel, "%tools")
    (card,) = reading.cards(published, "tools")
    listed = {tool["name"]: tool for tool in card["tools"]}
    assert set(listed) == set(tool_kernels.NAMES)
    assert listed["fetch"]["signature"] == "async fetch(key: str, delay: float = 0.0) -> str"
    assert listed["fetch"]["doc"] == "Fetch something, later."
    assert "  add(a: int, b: int = 1) -> int\n      Add two numbers." in reading.card_text(
        published
    )


def test_they_are_not_the_users_variables(kernel):
    assert "forecast" not in reading.stream(run(kernel, "%who")[1])


def test_the_reply_tells_of_every_call(kernel):
    reply, _ = run(kernel, "add(1, b=2)\ntry: fail()\nexcept ToolError: pass")
    first, second = tool_kernels.calls(reply)
    assert first.pop("seconds") > 0
    assert first == {"name": "add", "args": [1], "kwargs": {"b": 2}, "status": "ok", "result": 3}
    assert second["status"] == "error"
    assert second["error"] == {"type": "LookupError", "message": "no such city"}


def test_the_reply_tells_of_no_secret(kernel):
    reply, published = run(kernel, "log_in('me', password='hunter2')")
    assert reading.result(published) == "'token of me 7'"
    (call,) = tool_kernels.calls(reply)
    assert call["args"] == ["me"]
    assert call["kwargs"] == {"password": "•••"}
    assert call["result"] == "•••"


def test_many_calls_are_counted_and_the_first_are_told(kernel):
    reply, _ = run(kernel, "for n in range(150): add(n)")
    assert len(tool_kernels.calls(reply)) == 100
    assert reply["metadata"]["cellblock"]["tool_calls_left_out"] == 50


def test_a_cell_without_calls_tells_of_none(kernel):
    assert "tool_calls" not in run(kernel, "1")[0]["metadata"]["cellblock"]


def test_what_a_tool_prints_is_the_hosts(kernel):
    _, published = run(kernel, "print_something()")
    assert reading.kinds(published) == []
    # The worker's own buffer is emptied when it likes: it ends, at the latest, with the kernel.


def test_thousands_of_calls_in_one_cell(kernel):
    """How long each takes, `make bench-fleet PART=tools` measures."""
    assert value(kernel, "[add(n) for n in range(2_000)] == [*range(1, 2_001)]") == "True"


def test_a_thousand_calls_at_once_are_answered_once_each(kernel):
    code = "found = await asyncio.gather(*(fetch(str(n)) for n in range(1_000)))\n"
    assert value(kernel, f"{code}found == [f'<{{n}}>' for n in range(1_000)]") == "True"


BESIDE = """
found = []
def many(which):
    for number in range(100):
        found.append(add(1_000 * which, b=number))
threads = [asyncio.create_task(asyncio.to_thread(many, which)) for which in range(8)]
await asyncio.sleep(0)
many(8)
many(9)
await asyncio.gather(*threads)
len(found), len(set(found))
"""


def test_a_thousand_calls_of_threads_and_the_cell_itself_are_answered_once_each(kernel):
    assert value(kernel, BESIDE) == "(1000, 1000)"


def test_more_at_once_than_there_may_be_is_an_error_and_no_breach(kernel):
    code = "found = await asyncio.gather(*(fetch(str(n), 0.3) for n in range(1_030)),"
    code += " return_exceptions=True)\nrefused = [e for e in found if type(e) is ToolError]\n"
    assert value(kernel, f"{code}len(refused), refused[0].kind") == "(6, 'TooManyCalls')"


def test_a_call_in_a_plain_cell_can_be_a_task_all_the_same(kernel):
    run(kernel, "tasks = [asyncio.create_task(fetch(key)) for key in 'ab']")
    assert value(kernel, "await asyncio.gather(*tasks, fetch('c'))") == "['<a>', '<b>', '<c>']"
    said = failure(kernel, "fetch('a')\nasyncio.run('<b>')")
    assert said.startswith(("ValueError: a coroutine was", "TypeError: An asyncio.Future, a corou"))


def test_a_task_goes_on_calling_between_cells(kernel):
    code = "heard = []\nasync def listen(): heard.append(await fetch('late', 0.05))\n"
    run(kernel, f"{code}task = asyncio.create_task(listen())")
    run(kernel, "await task")
    assert value(kernel, "heard") == "['<late>']"


def test_a_thread_goes_on_calling_between_cells(kernel):
    code = "pool = ThreadPoolExecutor(2)\nfuture = pool.submit(lambda: [slow(0.05), add(1)])\n1"
    assert value(kernel, code) == "1"
    assert value(kernel, "future.result()") == "['slept', 2]"
    run(kernel, "pool.shutdown()")


def test_answers_for_a_thread_hide_no_cell_that_begins(kernel):
    code = "pool = ThreadPoolExecutor(3)\ngoes_on = [True]\n"
    code += "def call():\n    while goes_on: add(1)\n    return 'done'\n"
    run(kernel, f"{code}futures = [pool.submit(call) for _ in range(3)]")
    for number in range(30):
        assert value(kernel, f"{number}") == f"{number}"
    run(kernel, "goes_on.clear()")
    assert value(kernel, "[future.result() for future in futures]") == "['done', 'done', 'done']"
    run(kernel, "pool.shutdown()")
