"""input() and getpass()."""

import pytest

from support import reading


def ask(kernel, code, answer):
    """Run ``code``, answer its question, and return the request, the reply and the output."""
    mid = kernel.execute_send(code, allow_stdin=True)
    request = kernel.recv("stdin")
    reading.validate(request)
    assert request["parent_header"]["msg_id"] == mid
    kernel.send("input_reply", {"value": answer}, "stdin")
    return request["content"], kernel.reply(mid)["content"], kernel.until_idle(mid)


@pytest.mark.quick
def test_input_asks_the_front_end_and_returns_its_answer(safe):
    request, reply, published = ask(safe, "input('Name? ').upper()", "ada")
    assert request == {"prompt": "Name? ", "password": False}
    assert reply["status"] == "ok"
    assert reading.result(published) == "'ADA'"


def test_what_was_printed_stands_before_the_question(safe):
    mid = safe.execute_send("print('first')\ninput()", allow_stdin=True)
    safe.recv("stdin")
    safe.until(lambda m: m["msg_type"] == "stream", mid)
    safe.send("input_reply", {"value": ""}, "stdin")
    assert safe.reply(mid)["content"]["status"] == "ok"
    safe.until_idle(mid)


def test_debug_fails_where_nobody_can_be_asked(unsafe):
    unsafe.run("1/0")
    assert unsafe.run("%debug", allow_stdin=False)[0]["ename"] == "StdinNotImplementedError"


def test_pdb_on_asks_after_an_error_that_is_shown_before_the_prompt(unsafe):
    try:
        unsafe.run("%pdb on")
        request, reply, published = ask(unsafe, "1/0", "q")
        kinds = reading.kinds(published)
        assert kinds.index("error") < kinds.index("stream")
        assert (request["prompt"], reply["ename"]) == ("ipdb> ", "ZeroDivisionError")
        assert "----> 1" in reading.stream(published)
        reply, published = unsafe.run("1/0")  # nobody can be asked
        assert reply["ename"] == "ZeroDivisionError"
    finally:
        assert unsafe.run("%pdb off")[0]["status"] == "ok"


def test_getpass_asks_for_a_password(unsafe):
    request, _, published = ask(unsafe, "from getpass import getpass\nlen(getpass())", "secret")
    assert request == {"prompt": "Password: ", "password": True}
    assert reading.result(published) == "6"


def test_two_questions_are_asked_one_after_the_other(safe):
    mid = safe.execute_send("[input('a'), input('b')]", allow_stdin=True)
    for prompt, answer in (("a", "1"), ("b", "2")):
        assert safe.recv("stdin")["content"]["prompt"] == prompt
        safe.send("input_reply", {"value": answer}, "stdin")
    safe.reply(mid)
    assert reading.result(safe.until_idle(mid)) == "['1', '2']"


def test_without_stdin_input_is_an_error_that_says_why(safe):
    reply, _ = safe.run("input()", allow_stdin=False)
    assert (reply["ename"], reply["evalue"]) == (
        "StdinNotImplementedError",
        "raw_input was called, but this frontend does not support input requests.",
    )
    assert not safe.stdin.poll(0)


def test_an_interrupt_ends_the_wait_for_an_answer(safe):
    mid = safe.execute_send("input()", allow_stdin=True)
    safe.recv("stdin")
    safe.interrupt()
    reply = safe.reply(mid)["content"]
    assert (reply["ename"], reply["evalue"]) == ("KeyboardInterrupt", "Interrupted by user")
    safe.until_idle(mid)
    safe.send("input_reply", {"value": "too late"}, "stdin")
    _, _, published = ask(safe, "input()", "in time")
    assert reading.result(published) == "'in time'"


def test_the_users_time_to_answer_is_not_the_cells(start, world):
    policy = world.policy("timeout = 0.5")
    kernel = start(policy, world=world)
    mid = kernel.execute_send("input()", allow_stdin=True)
    kernel.recv("stdin")
    assert not kernel.shell.poll(1_000)
    kernel.send("input_reply", {"value": "slow"}, "stdin")
    assert kernel.reply(mid)["content"]["status"] == "ok"
