"""The host's own comm with JupyterLab's extension, over the wire."""

import time

import pytest

from support import reading, tool_kernels
from support.approvals import code_in
from support.cell_servers import serving_cell
from support.client import Client
from support.kernels import World
from support.lab import LabFront
from support.ports import next_port

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
    found = lab.answer("check", "findings", code="x = '🙂'; import socket")["findings"]
    (finding,) = found
    assert finding["rule"] == "import-not-allowed"
    assert (finding["line"], finding["column"], finding["end_column"]) == (1, 17, 23)
    assert finding["title"] == "A module that is not on the allowlist"
    assert finding["reason"].startswith("socket ")
    assert finding["allows"][0] == 'add.allowed_modules = ["socket"]'
    (finding,) = lab.answer("check", "findings", code="%policy narrow timeout = 999")["findings"]
    assert finding["rule"] == "policy-only-narrows"
    assert lab.answer("check", "findings", code="1 +")["findings"] == []
    count = safe.run("1")[0]["execution_count"]
    lab.answer("check", "findings", code="print(1)")
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


def test_requests_come_through_a_subshell_too_as_jupyterlab_sends_them(unsafe):
    unsafe.log.clear()
    lab = LabFront(unsafe)
    made = unsafe.ask("create_subshell_request", {}, "control")["content"]["subshell_id"]
    asked = lab.ask("check", subshell=made, code="1")
    assert lab.until("findings", id=asked)["findings"] == []
    unsafe.run("x = 1")
    unsafe.run("x = 2")
    assert lab.until("done", id=lab.ask("undo", subshell=made))["ok"]
    assert reading.result(unsafe.run("x")[1]) == "1"
    unsafe.ask("delete_subshell_request", {"subshell_id": made}, "control")


# --- questions --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asking_kernel(shared_world, start_shared):
    return start_shared(
        argv=tool_kernels.argv(shared_world, settings='approvals = "prompt"'), world=shared_world
    )


@pytest.fixture
def asking(asking_kernel):
    """A kernel whose cells ask; a question that a failed test leaves is ended with its cell."""
    yield asking_kernel
    asking_kernel.ask("interrupt_request", {}, "control")


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
    # Ids are drawn by chance, and may have these digits.
    words = {key: value for key, value in question.items() if key not in ("id", "request")}
    assert code_in(prompt["content"]["prompt"]) not in str(words)
    assert lab.answer("answer", id=question["id"], choice="once")["ok"]
    assert any(one["kind"] == "answered" for one in lab.told)
    assert asking.reply(mid)["content"]["status"] == "ok"
    first = question["id"]
    # Who types into the prompt that was left answers nothing, not the next question either.
    mid, _, question = ask(asking, lab, "add(1)")
    value = f"{code_in(prompt['content']['prompt'])} always"
    asking.send("input_reply", {"value": value}, "stdin", parent=prompt["header"])
    assert not lab.answer("answer", id=first, choice="once")["ok"]
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


def test_a_question_that_stands_and_the_last_cells_are_told_again_when_asked_for(asking):
    asking.log.clear()
    lab = LabFront(asking)
    mid, _, question = ask(asking, lab, "add(1)")
    cell = lab.find("cell", state="running")  # before the question, or soon
    before = len(lab.told)
    assert lab.answer("refresh", what=["cells", "question"])["ok"]
    told = [{**one, "n": 0} for one in lab.told[before:] if one["kind"] in {"cell", "question"}]
    assert told[-2:] == [cell | {"n": 0}, question | {"n": 0}]
    assert lab.answer("answer", id=question["id"], choice="no")["ok"]
    asking.reply(mid)
    before = len(lab.told)
    assert lab.answer("refresh", what=["question"])["ok"]
    assert "question" not in [one["kind"] for one in lab.told[before:]]


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


# --- calls, checkpoints, the audit log --------------------------------------------------------


def test_calls_are_told_of_when_they_begin_and_end(asking):
    asking.log.clear()
    lab = LabFront(asking)
    mid, _, question = ask(asking, lab, "add(2, 3)")
    call = lab.find("call", state="running")  # before the question, or soon
    assert (call["tool"], call["arguments"], call["seconds"]) == ("add", "2, 3", None)
    assert lab.answer("answer", id=question["id"], choice="no")["ok"]
    count = asking.reply(mid)["content"]["execution_count"]
    assert lab.find("call", id=call["id"], state="denied")["cell"] == count
    assert lab.find("cell", number=count, state="error")["calls"] == 1


def test_a_call_that_goes_on_is_told_of_after_many_that_ended(start, world):
    """Of these ten are told at once, to all pages together: that it began is told next time."""
    kernel = start(argv=tool_kernels.argv(world), world=world)
    *_, lab = [LabFront(kernel) for _ in range(8)]
    mid = kernel.execute_send("for _ in range(20): add(2, 3)\nslow(20.0)")
    call = lab.until("call", tool="slow", state="running", timeout=10)
    kernel.interrupt()
    kernel.reply(mid)
    assert lab.until("call", id=call["id"])["state"] != "running"


def test_a_loop_of_calls_says_no_more_to_many_pages_than_a_server_lets_through(start, world):
    """JupyterLab's server drops what comes faster than a thousand messages a second, outputs too."""
    kernel = start(argv=tool_kernels.argv(world), world=world)
    for _ in range(8):
        LabFront(kernel)
    began = time.monotonic()
    published = kernel.run("for _ in range(3_000): add(2, 3)\nprint('end')")[1]
    seconds = time.monotonic() - began
    assert reading.stream(published) == "end\n"
    told = [m for _, m in kernel.log if m["msg_type"] == "comm_msg"]
    calls = [m for m in told if '"kind":"call"' in m["content"]["data"]["body"]]
    assert calls
    assert len(calls) < 800 * (seconds + 1)


def test_a_cell_is_undone_and_a_state_kept_and_gone_back_to(unsafe):
    unsafe.log.clear()
    lab = LabFront(unsafe)
    unsafe.run("x = 1")
    unsafe.run("x = 2")
    steps = lab.latest("checkpoints")["steps"]
    assert [one["source"] for one in steps[:2]] == ["x = 2", "x = 1"]
    assert lab.answer("checkpoint", name="two")["ok"]
    count = unsafe.run("x")[0]["execution_count"]
    assert lab.latest("checkpoints")["named"] == [{"name": "two", "cell": count - 1}]
    unsafe.run("x = 3")
    assert lab.answer("undo")["ok"]
    assert reading.result(unsafe.run("x")[1]) == "2"
    unsafe.run("x = 4")
    assert lab.answer("restore", name="two")["ok"]
    assert reading.result(unsafe.run("x")[1]) == "2"
    missing = lab.answer("restore", name="three")
    assert not missing["ok"]
    assert "there is no checkpoint or branch three" in missing["message"]
    assert not lab.answer("checkpoint", name="two\nimport os")["ok"]


def test_what_goes_back_waits_for_the_cell_that_runs(unsafe):
    unsafe.log.clear()
    lab = LabFront(unsafe)
    mid = unsafe.execute_send("import time\nprint('go', flush=True)\ntime.sleep(0.5)\nx = 5")
    unsafe.until(lambda m: m["msg_type"] == "stream", mid)
    asked = lab.ask("checkpoint", name="after")
    behind = unsafe.execute_send("x = 6")
    unsafe.reply(behind)
    assert lab.until("done", id=asked)["ok"]
    assert lab.answer("restore", name="after")["ok"]
    assert reading.result(unsafe.run("x")[1]) == "5"


def test_the_last_records_of_the_audit_log_are_told(unsafe):
    unsafe.log.clear()
    front = LabFront(unsafe)
    unsafe.run("1 + 1")
    front.until("cell", state="done")
    records = front.latest("audit")["records"]
    assert 0 < len(records) <= 50
    assert records[-1]["kind"] == "outcome"
    assert "status ok" in records[-1]["text"]
    assert not front.answer("refresh", what=["secrets"])["ok"]


# --- staged changes ---------------------------------------------------------------------------

STAGED = 'extends = "data"\nfilesystem_staged_roots = ["{project}"]\n'


@pytest.fixture(scope="module")
def staging(start_shared):
    world = World()
    world.write("old.csv", "before\n")
    yield start_shared(world.policy(STAGED), world=world)
    world.close()


def listed(lab):
    """Return what is staged now, by path, and the digest of the list."""
    told = lab.latest("changes")
    assert told["problem"] == ""
    return {one["path"]: one for one in told["files"]}, told["digest"]


def test_what_is_staged_is_listed_compared_kept_and_dropped(staging, records):
    staging.log.clear()
    lab, project = LabFront(staging), staging.world.work
    staging.run(
        "_ = open('new.csv', 'w').write('a\\n'); _ = open('old.csv', 'w').write('after\\n');"
        "_ = open('conftest.py', 'w').write('1'); _ = open('third', 'w').write('3')"
    )
    lab.until("changes")
    files, digest = listed(lab)
    assert {path: one["kind"] for path, one in files.items()} == {
        "conftest.py": "new",
        "new.csv": "new",
        "old.csv": "changed",
        "third": "new",
    }
    assert not files["conftest.py"]["keepable"]
    assert files["new.csv"]["bytes"] == 2
    diff = lab.answer("diff", "diff", path="old.csv")
    assert "-before\n+after" in diff["text"]
    assert not lab.answer("diff", path="../../etc/passwd")["ok"]
    for wrong in (
        {"digest": ""},
        {"digest": "0" * 64},
        {"paths": ["elsewhere"]},
        {"paths": ["conftest.py"]},
    ):
        refused = lab.answer("keep", **({"digest": digest, "paths": ["new.csv"]} | wrong))
        assert not refused["ok"]
        assert refused["message"].startswith("nothing was kept: ")
    assert sorted(path.name for path in project.iterdir()) == ["old.csv"]
    assert lab.answer("keep", digest=digest, paths=["new.csv"])["message"] == "kept 1 file"
    assert (project / "new.csv").read_text() == "a\n"
    (kept,) = records(staging.world, "kept")
    assert (kept["by"], kept["name"]) == ("the panel", str(project / "new.csv"))
    assert lab.answer("drop", paths=["third"])["message"] == "dropped 1 file"
    assert lab.answer("refresh", what=["changes"])["ok"]
    files, _ = listed(lab)
    assert set(files) == {"conftest.py", "old.csv"}
    assert (project / "old.csv").read_text() == "before\n"


def test_what_changed_since_it_was_shown_is_not_kept(staging):
    staging.log.clear()
    lab, project = LabFront(staging), staging.world.work
    staging.run("_ = open('mine', 'w').write('shown')")
    _, digest = listed(lab)
    staging.run("_ = open('mine', 'w').write('other')")
    refused = lab.answer("keep", digest=digest, paths=["mine"])
    assert not refused["ok"]
    assert not (project / "mine").exists()
    _, digest = listed(lab)
    assert lab.answer("keep", digest=digest, paths=["mine"])["ok"]
    assert (project / "mine").read_text() == "other"


def test_ports_are_told_of_under_a_policy_that_has_some_also_when_a_server_begins_later(
    start, world
):
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    kernel.run("1")
    front = LabFront(kernel)
    (one,) = front.until("ports")["ports"]
    assert (one["number"], one["listens"]) == (port, False)
    later = "\n".join(f"    {line}" for line in serving_cell(port).splitlines())
    kernel.run(f"import threading\ndef later():\n{later}\nthreading.Timer(0.5, later).start()")
    while not (now := front.until("ports")["ports"][0])["listens"]:
        pass
    assert (now["number"], now["url"]) == (port, one["url"])


def test_without_ports_nothing_is_said_of_them(safe, lab):
    safe.run("1")
    assert lab.answer("refresh", what=["state"])["ok"]
    assert "ports" not in {one["kind"] for one in lab.told}
