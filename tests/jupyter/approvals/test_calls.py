"""Calls that users are asked about in a kernel, and what comes of their answers."""

import pytest

from support import reading, tool_kernels
from support.approvals import answer_question, run


@pytest.fixture(scope="module")
def shared_world(shared_world):
    (shared_world.work / "a.txt").write_text("ada\n")
    return shared_world


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared):
    settings = """
approvals = "prompt"
[ops.read_file]
roots = ["{project}"]
[ops.list_dir]
roots = ["{project}"]
[ops.http]
hosts = ["a.example"]
paths = ["/v1/"]
[ops.install]
index = "http://127.0.0.1:9/simple"
allow = ["tabulate"]
"""
    argv = tool_kernels.argv(shared_world, settings=settings)
    return start_shared(argv=argv, world=shared_world)


@pytest.mark.quick
def test_a_call_is_run_when_it_is_allowed(kernel):
    (prompt,), reply, published = run(kernel, "add(20, b=22)", "{}")
    count = reply["execution_count"]
    assert prompt.startswith(f"┃ cellblock asks: may cell [{count}] call add?\n┃   a = 20\n")
    assert reading.result(published) == "42"


@pytest.mark.quick
def test_a_call_that_is_not_allowed_is_an_error_that_says_so(kernel):
    code = (
        "try: add(1)\nexcept ToolError as error: said = error.tool, error.kind, error.message\nsaid"
    )
    _, _, published = run(kernel, code, "no")
    assert reading.result(published) == "('add', 'NotApproved', 'you said no')"


def test_an_operation_is_asked_about_within_what_is_granted(kernel):
    (prompt,), _, published = run(kernel, "ops.read_file('a.txt')", "{} once")
    assert "┃   path = 'a.txt'\n" in prompt
    assert reading.result(published) == r"'ada\n'"
    _, reply, _ = run(kernel, "ops.write_file('b.txt', 'x')")
    assert "NotGranted" in reply["evalue"]


NOT_GRANTED = {
    "ops.read_file('/etc/passwd')": "/etc/passwd: it is not beneath a root of [ops.read_file]",
    "ops.http('https://elsewhere.example/')": "https://elsewhere.example is not one of its hosts ([ops.http] hosts)",
    "ops.install('numpy', 'evil')": "evil: it is not in allow of [ops.install]",
}


@pytest.mark.parametrize("code", NOT_GRANTED)
def test_nobody_is_asked_about_a_call_that_is_not_granted(kernel, code):
    _, reply, _ = run(kernel, code)
    name = code.partition("(")[0]
    assert reply["evalue"] == f"{name}: NotGranted: {NOT_GRANTED[code]}"


def test_calls_at_once_wait_in_line_and_one_answer_may_be_for_all(kernel):
    code = "await asyncio.gather(*(fetch(k) for k in 'abc'))"
    prompts, _, published = run(kernel, code, "{}", "{}", "{}")
    assert [f"key = '{k}'" in p for k, p in zip("abc", prompts, strict=True)] == [True] * 3
    assert reading.result(published) == "['<a>', '<b>', '<c>']"
    code = "sum(await asyncio.gather(*(asyncio.to_thread(echo, n) for n in range(40))))"
    _, _, published = run(kernel, code, "{} session")
    assert reading.result(published) == "780"
    assert reading.result(run(kernel, "echo(7)")[2]) == "7"


def test_without_input_a_call_is_refused_and_nobody_asked(kernel):
    reply, _ = kernel.run("add(1)")
    why = "NotApproved: nobody can be asked: this front end takes no input"
    assert why in reply["evalue"]


def test_the_reply_tells_of_a_call_that_was_not_approved(kernel):
    mid = kernel.execute_send(
        "try: log_in('ada', 'hunter2')\nexcept ToolError: pass", allow_stdin=True
    )
    prompt = answer_question(kernel, "no")
    assert "password = •••, kept out of sight" in prompt
    assert "hunter2" not in prompt.replace("log_in('ada', 'hunter2')", "")
    (told,) = tool_kernels.calls(kernel.reply(mid))
    assert (told["status"], told["error"]["type"]) == ("refused", "NotApproved")
    kernel.until_idle(mid)


def test_an_interrupt_takes_a_question_back(kernel):
    mid = kernel.execute_send("try: add(1)\nfinally: kept = 1", allow_stdin=True)
    prompt = kernel.recv("stdin")["content"]["prompt"]
    kernel.interrupt()
    assert kernel.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
    kernel.until_idle(mid)
    kernel.send("input_reply", {"value": f"{prompt.partition('type ')[2][:3]} session"}, "stdin")
    _, _, published = run(kernel, "add(2)", "{}")
    assert reading.result(published) == "3"
