"""A program that says itself what its cells may do, where the policy has somebody asked."""

import asyncio
import json
import threading
import time

import pandas as pd
import pytest

from cellblock import AsyncSandbox, Policy, Sandbox, SandboxPool
from cellblock.errors import GuestError, PolicyError


def add(a: int, *, b: int = 1) -> int:
    """Add."""
    return a + b


@pytest.fixture(scope="module")
def pool(asking_policy, home):
    with SandboxPool(asking_policy, project=home / "project", tools=[add]) as made:
        yield made


@pytest.fixture
def asking(pool):
    """Return a function that opens a sandbox with answers, and the requests that it had."""
    opened = []

    def begin(*answers):
        requests, left = [], list(answers)

        def approve(request):
            requests.append(request)
            answer = left.pop(0) if len(left) > 1 else left[0]
            return answer() if callable(answer) else answer

        opened.append(pool.sandbox(approve=approve))
        opened[-1].open()
        return opened[-1], requests

    yield begin
    for one in opened:
        one.close()


def test_a_call_is_shown_whole_and_made_if_the_program_says_so(asking):
    s, requests = asking(True, False)
    r = s.execute("add(1, b=2), ops.read_file('a.txt')")
    first, second = requests
    assert (first.kind, first.names, first.args, first.kwargs) == ("call", ("add",), (1,), {"b": 2})
    assert first.text == "may cell [1] call add?\n  a = 1\n  b = 2"
    assert (first.source, first.execution_count) == ("add(1, b=2), ops.read_file('a.txt')", 1)
    assert second.names == ("ops.read_file",)
    assert r.error.message == "ops.read_file: NotApproved: the program said no"
    assert [call.status for call in r.tool_calls] == ["ok", "refused"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("add('North')", "add: ValidationError: a: Input should be a valid integer"),
        ("add(1, b=None)", "add: ValidationError: b: Input should be a valid integer"),
        ("ops.read_file([1])", "ops.read_file: ValidationError: path: Input should be a valid"),
    ],
)
def test_nobody_is_asked_about_a_call_that_can_not_run(asking, call, said):
    s, requests = asking(True)
    r = s.execute(call)
    assert said in r.error.message
    assert requests == []
    assert s.execute("add(1)").result == "2"
    assert len(requests) == 1


def test_an_import_is_asked_about_before_the_cell_starts(asking):
    s, requests = asking(False, True)
    r = s.execute("import bz2")
    assert (r.status, r.denials[0].remedy) == ("denied", "The program said no.")
    assert s.execute("import bz2\nbz2.compress(b'') > b''").result == "True"
    assert s.execute("bz2.compress(b'') > b''").result == "True"
    assert [(request.kind, request.names) for request in requests] == [("import", ("bz2",))] * 2
    assert s.execute("import gc").status == "denied"
    assert len(requests) == 2


def test_what_is_allowed_for_the_session_is_so_in_that_sandbox_alone(asking):
    s, requests = asking("session")
    assert s.execute("sum(add(n) for n in range(5))").result == "15"
    assert s.execute("add(1)").result == "2"
    assert len(requests) == 1
    other, asked = asking(False)
    assert "NotApproved" in other.execute("add(1)").error.message
    assert len(asked) == 1


def test_a_call_that_can_not_be_shown_whole_is_offered_for_the_session_alone(asking):
    s, requests = asking(True, "session")
    call = "ops.read_file('\\n'.join(map(str, range(1000))))"
    why = "its arguments are too long to be shown whole, so a yes to this one call does not count"
    assert s.execute(call).error.message.startswith(f"ops.read_file: NotApproved: {why}. Give it")
    assert "NotApproved" not in s.execute(call).error.message
    s.execute("add(1)")
    assert [one.offers for one in requests] == [("session",)] * 2 + [("once", "session")]


def test_a_table_is_shown_and_the_program_has_it_as_one(home):
    assert home
    requests = []

    def rows(df: pd.DataFrame) -> int:
        return len(df)

    def approve(request):
        requests.append(request)
        return request.offers[0]

    careful = Policy.preset("data", approvals="prompt")
    with Sandbox(careful, tools=[rows], approve=approve) as s:
        made = "import pandas as pd\ndf = pd.DataFrame({'n': range(2)})\nrows(df)"
        assert s.execute(made).result == "2"
        assert s.execute("rows(pd.concat([df] * 20_000))").result == "40000"
    small, large = requests
    assert small.text.splitlines()[1:] == [
        "  df = a table of pandas: 2 rows, 1 column",
        *("    columns: 'n' (int64)", "    row 0: 0", "    row 1: 1"),
    ]
    assert list(small.args[0]["n"]) == [0, 1]
    assert (small.offers, large.offers) == (("once", "session"), ("session",))
    assert len(large.args[0]) == 40_000


def test_a_program_does_not_tire(asking):
    s, requests = asking(*([False] * 4), True)
    code = (
        "said = []\nfor _ in range(30):\n    try: said.append(add(1))\n    except ToolError: pass\n"
    )
    assert s.execute(f"{code}len(said)").result == "26"
    assert len(requests) == 30


def _raises():
    raise RuntimeError("a fault of the program's")


@pytest.mark.parametrize("answer", [None, "always", "yes", 1, "", _raises])
def test_whatever_is_no_yes_is_a_no(asking, answer, capfd):
    s, _ = asking(answer)
    assert "the program said no" in s.execute("add(1)").error.message
    assert ("Error" in capfd.readouterr().err) == (answer is not None)


def test_the_time_that_the_program_takes_is_not_the_cells(asking):
    s, _ = asking(lambda: time.sleep(1.2) or True)
    r = s.execute("add(1)", timeout=1.0)
    assert (r.status, r.result) == ("ok", "2")


def test_an_interrupt_takes_the_question_back(asking):
    asked, go = threading.Event(), threading.Event()

    def waits():
        asked.set()
        return go.wait(20)

    s, _ = asking(waits)
    caller = threading.Thread(target=lambda: asked.wait(20) and s.interrupt())
    caller.start()
    r = s.execute("add(1)")
    caller.join()
    go.set()
    assert r.error.type == "KeyboardInterrupt"
    assert "import-not-allowed" not in s.execute("1").to_string()


@pytest.mark.usefixtures("nothing_left")
def test_an_async_answer_is_awaited_on_the_loop_and_closing_waits_for_none(asking_policy):
    async def double(a: int) -> int:
        """Double."""
        return 2 * a

    async def approve(request):
        await asyncio.sleep(60 if request.args == (2,) else 0)
        return True

    async def main():
        async with AsyncSandbox(asking_policy, project=".", tools=[double], approve=approve) as s:
            assert (await s.execute("await double(1)")).result == "2"
            waits = asyncio.create_task(s.execute("await double(2)"))
            await asyncio.sleep(0.3)
        with pytest.raises(GuestError, match="the sandbox was closed"):
            await waits

    asyncio.run(main())


def test_each_answer_is_on_the_audit_log(asking_policy, home):
    kept = asking_policy.replace(audit={"log": True, "folder": str(home / "logs")})
    with Sandbox(kept, project=".", tools=[add], approve=lambda request: request.args == (1,)) as s:
        s.execute("add(1)")
        s.execute("add(2)")
    (file,) = (home / "logs").glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    told = [
        (one["subjects"], one["decision"], one["asked"], one.get("why", ""))
        for one in records
        if one["kind"] == "approval"
    ]
    assert told == [(["add"], "once", True, ""), (["add"], "no", True, "the program said no")]


def test_a_policy_that_asks_nobody_takes_no_answers(home):
    assert home
    with pytest.raises(PolicyError, match="approve= would never be called") as raised:
        Sandbox("safe", approve=lambda _wish: True).open()
    assert raised.value.key == "approvals"
