"""The host's own comm with JupyterLab's extension, over the wire."""

import pytest

from support import reading, toolbox
from support.approvals import code_in
from support.client import Client
from support.lab import LabFront

pytestmark = pytest.mark.quick


@pytest.fixture
def lab(safe):
    safe.log.clear()
    return LabFront(safe)


def test_a_front_end_is_told_what_is_in_force(lab):
    state = lab.until("state")
    assert (state["policy"]["name"], state["policy"]["mode"]) == ("safe", "safe")
    assert len(state["policy"]["digest"]) == 64
    assert not state["verified"]
    assert state["unverified_because"]
    assert all(row["what"] and row["how"] for row in state["enforced"])


def test_a_cell_is_told_of_when_it_begins_and_ends(safe, lab):
    lab.until("state")
    safe.run("x = 1\nx", store_history=True)
    cell = lab.until("cell", state="done")
    assert cell["source"] == "x = 1"
    assert cell["seconds"] >= 0
    assert cell["memory_bytes"] > 1 << 20
    safe.run("open('a')")
    assert lab.until("cell", state="refused")["seconds"] is None
    safe.run("1/0")
    assert lab.until("cell", state="error")["number"] == cell["number"] + 2
    safe.run("silent = 1", silent=True, store_history=False)
    assert lab.answer("refresh", what=["state"])["ok"]
    assert not any("silent" in one.get("source", "") for one in lab.told)


def test_what_is_typed_is_checked_as_the_cell_would_be(safe, lab):
    code = "x = '🙂'; import socket\n%policy narrow timeout = 999\n"
    found = lab.answer("check", "findings", code="x = '🙂'; import socket")["findings"]
    (finding,) = found
    assert finding["rule"] == "import-not-allowed"
    assert (finding["line"], finding["column"], finding["end_column"]) == (1, 17, 23)
    assert finding["title"] == "A module that is not on the allowlist"
    assert finding["reason"].startswith("socket ")
    assert finding["remedy"]
    (finding,) = lab.answer("check", "findings", code="%policy narrow timeout = 999")["findings"]
    assert finding["rule"] == "policy-only-narrows"
    assert lab.answer("check", "findings", code="1 +")["findings"] == []
    count = safe.run("1")[0]["execution_count"]
    lab.answer("check", "findings", code=code)
    assert safe.run("1")[0]["execution_count"] == count + 1


def test_only_the_last_of_many_checks_is_done(lab):
    ids = [lab.ask("check", code=f"x = {number}") for number in range(30)]
    lab.until("findings", id=ids[-1])
    answered = [one["id"] for one in lab.told if one["kind"] in {"done", "findings"}]
    assert sorted(answered) == sorted(ids)
    assert any(one.get("message") == "overtaken" for one in lab.told)


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "run", "id": "1", "code": "1"},
        {"kind": "check", "id": "1"},
        {"kind": "check", "id": "1", "code": ["x"]},
        {"kind": "check", "id": "1", "code": "x", "more": 1},
        {"kind": "check", "id": "1", "code": "x" * 30_000},
        {"kind": "refresh", "id": "1", "what": ["state"] * 100},
        {"kind": ["check"], "id": "1"},
        {"id": "1"},
    ],
)
def test_what_is_no_request_is_answered_so(lab, data):
    content = {"comm_id": lab.name, "data": data}
    lab.client.send("comm_msg", content)
    answer = lab.until("done", id="1")
    assert not answer["ok"]
    assert answer["message"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"version": 2, "secret": "A" * 43 + "="},
        {"version": 1, "secret": "AAAA"},
        {"version": 1, "secret": "not base64"},
        {"version": 1, "secret": 7},
    ],
)
def test_a_comm_without_a_secret_is_closed(safe, data):
    opened = {"comm_id": "bad", "target_name": "cellblock.lab", "data": data}
    mid = safe.send("comm_open", opened)
    safe.log.clear()
    safe.until_idle(mid)
    (closed,) = [m["content"] for _, m in safe.log if m["msg_type"] == "comm_close"]
    assert closed["comm_id"] == "bad"
    assert closed["data"]["reason"]


def test_the_ninth_comm_closes_the_first(safe):
    safe.log.clear()
    fronts = [LabFront(safe) for _ in range(9)]
    assert fronts[-1].answer("refresh", what=[])["ok"]
    closed = [m["content"]["comm_id"] for _, m in safe.log if m["msg_type"] == "comm_close"]
    assert fronts[0].name in closed
    assert fronts[-1].name not in closed


def test_a_kernel_is_still_busy_with_its_cell_when_a_check_was_answered(unsafe):
    unsafe.log.clear()
    lab = LabFront(unsafe)
    lab.until("state")
    mid = unsafe.execute_send("import time\nprint('go', flush=True)\ntime.sleep(1.5)")
    unsafe.until(lambda m: m["msg_type"] == "stream", mid)
    unsafe.log.clear()
    lab = LabFront(unsafe)
    lab.answer("check", "findings", code="1")
    states = [m["content"]["execution_state"] for _, m in unsafe.log if m["msg_type"] == "status"]
    assert states[-1] == "busy"
    assert reading.of(unsafe.until_idle(mid), "error") == []


# --- questions --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asking(shared_world, start_shared):
    return start_shared(
        argv=toolbox.argv(shared_world, settings='approvals = "prompt"'), world=shared_world
    )


def ask(kernel, lab, code):
    """Run a cell that asks; return its id, the prompt and what the extension is told."""
    mid = kernel.execute_send(code, allow_stdin=True)
    prompt = kernel.recv("stdin")
    return mid, prompt, lab.until("question")


def test_a_choice_counts_as_the_code_typed_and_the_prompt_is_taken_back(asking):
    asking.log.clear()
    lab = LabFront(asking)
    mid, prompt, question = ask(asking, lab, "add(1)")
    assert question["title"] == "cellblock asks: may cell [2] call add?"
    assert "a = 1" in question["text"]
    assert [one["id"] for one in question["choices"]] == ["once", "session", "always", "no"]
    assert question["yours"]
    assert question["request"] == mid
    assert code_in(prompt["content"]["prompt"]) not in str(question)
    assert lab.answer("answer", id=question["id"], choice="once")["ok"]
    assert any(one["kind"] == "answered" for one in lab.told)
    assert asking.reply(mid)["content"]["status"] == "ok"
    # Who types into the prompt that was left answers nothing, not the next question either.
    mid, _, question = ask(asking, lab, "add(1)")
    value = f"{code_in(prompt['content']['prompt'])} always"
    asking.send("input_reply", {"value": value}, "stdin", parent=prompt["header"])
    assert not lab.answer("answer", id=str(int(question["id"]) - 1), choice="once")["ok"]
    assert not lab.answer("answer", id=question["id"], choice="maybe")["ok"]
    assert lab.answer("answer", id=question["id"], choice="no")["ok"]
    assert asking.reply(mid)["content"]["ename"] == "ToolError"
    assert not lab.answer("answer", id=question["id"], choice="once")["ok"]


def test_a_question_that_was_answered_at_the_prompt_is_told_to_be(asking):
    asking.log.clear()
    lab = LabFront(asking)
    mid, prompt, question = ask(asking, lab, "add(1)")
    asking.send("input_reply", {"value": code_in(prompt["content"]["prompt"])}, "stdin")
    assert lab.until("answered")["id"] == question["id"]
    assert asking.reply(mid)["content"]["status"] == "ok"


def test_a_question_of_an_interrupted_cell_is_over(asking):
    asking.log.clear()
    lab = LabFront(asking)
    mid, _, question = ask(asking, lab, "add(1)")
    asking.interrupt()
    assert lab.until("answered")["id"] == question["id"]
    assert asking.reply(mid)["content"]["status"] == "error"
    assert not lab.answer("answer", id=question["id"], choice="always")["ok"]


def test_another_front_end_sees_the_question_and_can_not_answer_it(asking):
    asking.log.clear()
    lab = LabFront(asking)
    with Client(asking.info) as client:
        other = LabFront(client.wait_heard())
        mid, _, question = ask(asking, lab, "add(1)")
        theirs = other.until("question")
        assert not theirs["yours"]
        assert not other.answer("answer", id=theirs["id"], choice="once")["ok"]
        # Nor by the comm of the first: whoever opened it is asked.
        other.name = lab.name
        other.ask("answer", id=question["id"], choice="always")
        client.ask("kernel_info_request", {}, "control")
        assert asking.shell.poll(0) == 0
    assert lab.answer("answer", id=question["id"], choice="no")["ok"]
    assert asking.reply(mid)["content"]["ename"] == "ToolError"
