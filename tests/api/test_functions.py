"""Functions of a program that its sandboxes' cells call."""

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pydantic
import pytest

from cellblock import AsyncSandbox, Policy, Sandbox
from cellblock.errors import PolicyError
from support import processes

pytestmark = pytest.mark.usefixtures("home")

#: Holds all threads, and has a megabyte passed to one call after the other that it takes back.
_TAKEN_BACK = """
import msgspec, os
def say(**fields):
    body = msgspec.msgpack.encode(fields)
    os.write(3, len(body).to_bytes(4, "big") + body)
for n in range(32):
    say(type="tool_call", id=1_000 + n, name="wait", arguments=[[], {}])
for n in range(300):
    say(type="tool_call", id=2_000, name="take", arguments=[["x" * 1_000_000], {}])
    say(type="tool_withdrawn", id=2_000)
"""


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def sales() -> pd.DataFrame:
    """Return a table."""
    return pd.DataFrame({"a": [1, 2]}, index=["x", "y"])


def total(table: pd.DataFrame | pd.Series) -> int:
    """Add all numbers of a table."""
    return int(table.to_numpy().sum())


def test_tables_and_columns_cross_both_ways():
    with Sandbox("data", tools=[sales, total]) as sandbox:
        assert sandbox.execute("list(sales().index)").value == ["x", "y"]
        assert sandbox.execute("total(sales()) + total(table=sales()['a'])").value == 6
        assert "Input should be a pandas.DataFrame" in sandbox.execute("total(3)").error.message
        page = sandbox.execute("total?").pages[0]
        assert "total(table: pandas.DataFrame | pandas.Series) -> int" in page
        calls = sandbox.execute("total(sales())").tool_calls
        assert calls[1].args == ("<a pandas table: 2 rows, 2 columns>",)


def test_a_variable_that_hides_a_tool_is_told_of_once():
    with Sandbox("safe", tools=[add]) as sandbox:
        hidden = sandbox.execute("add = 3")
        assert "your variable add hides the tool add" in hidden.to_string()
        assert "hides" not in sandbox.execute("add = 4").to_string()
        assert sandbox.execute("del add\nadd(1)").value == 2


def test_a_table_is_no_way_around_the_modules_that_a_policy_allows():
    with Sandbox("safe", tools=[sales]) as sandbox:
        said = sandbox.execute("sales()").error.message
        assert said.endswith("it takes pandas, which this policy does not let cells have")
        assert sandbox.execute("1 + 1").value == 2


async def whisper(text: str) -> str:
    """Say it quietly."""
    await asyncio.sleep(0)
    return text.lower()


def fail(text: str) -> None:
    """Fail."""
    raise LookupError(text)


@pytest.fixture(scope="module")
def talking(home):
    assert home
    with Sandbox("safe", tools=[add, whisper, fail]) as s:
        yield s


@pytest.mark.quick
def test_they_are_called_and_told_of(talking):
    r = talking.execute("add(1, b=2), await whisper('ABC')")
    assert r.result == "(3, 'abc')"
    first, second = r.tool_calls
    assert (first.name, first.args, first.kwargs, first.status, first.result) == (
        "add", (1,), {"b": 2}, "ok", 3,
    )  # fmt: skip
    assert (second.name, second.result) == ("whisper", "abc")


def test_they_run_in_this_process():
    seen = []

    def note(text):
        seen.append(text)

    with Sandbox("safe", tools={"note": note}) as s:
        assert s.execute("note('a')\nnote(text='b')").success
    assert seen == ["a", "b"]


@pytest.mark.quick
def test_what_they_raise_and_what_does_not_fit_is_a_tool_error(talking):
    r = talking.execute("fail('no such city')")
    assert r.error.type == "ToolError"
    assert "no such city" in r.error.message
    assert r.tool_calls[0].error == ("LookupError", "no such city")
    assert "ValidationError" in talking.execute("add('x')").error.traceback


def test_async_ones_run_on_the_callers_loop():

    async def main():
        own = asyncio.get_running_loop()

        async def same() -> bool:
            return asyncio.get_running_loop() is own

        async with AsyncSandbox("safe", tools=[same]) as s:
            return await s.execute("await same()")

    assert asyncio.run(main()).result == "True"


def test_several_run_at_once():
    together = threading.Barrier(4)

    def meet() -> int:
        return together.wait(10)

    with Sandbox("safe", tools=[meet]) as s:
        r = s.execute("await asyncio.gather(*(asyncio.to_thread(meet) for _ in range(4)))")
        assert r.success, r


def test_one_that_takes_too_long_is_answered_and_the_sandbox_closes():
    free = threading.Event()
    policy = Policy.preset("safe", tool_timeout=0.5)
    with Sandbox(policy, tools={"stuck": free.wait}) as s:
        r = s.execute("stuck()")
        assert "it took longer than 0.5 s (tool_timeout)" in r.error.message
    free.set()


def test_calls_that_are_taken_back_while_no_thread_is_free_are_not_held():
    free = threading.Event()

    def wait() -> None:
        free.wait(30)

    def take(text: str) -> None:
        pass

    before = processes.peak_memory(os.getpid())
    with Sandbox("unsafe", allow_unsafe=True, tools=[wait, take]) as s:
        r = s.execute(_TAKEN_BACK)
        free.set()
        assert r.success, r.to_string()
        assert s.execute("take('x')").success
    assert processes.peak_memory(os.getpid()) - before < 150 << 20


def test_one_that_is_interrupted_is_withdrawn():
    free, begun = threading.Event(), time.monotonic()
    with Sandbox("safe", tools={"stuck": free.wait}) as s:
        r = s.execute("stuck()", timeout=0.5)
        assert (r.status, r.tool_calls[0].status) == ("stopped", "withdrawn")
        assert s.execute("1").result == "1"
    assert time.monotonic() - begun < 15
    free.set()


def test_what_is_no_tool_is_refused_before_anything_runs():
    for tools, said in (
        ([3], "tools: int can't be the name of a tool"),
        ({"print": add}, "tools: print can't be the name of a tool: it means something else"),
        ({"inputs": add}, "inputs can't be the name of a tool"),
        ([lambda x: x], """<lambda> is not a name that a cell can call (got '<lambda>')"""),
        ([lambda x: x], """Give it one: def, or in a program tools={"name": …}."""),
        ({"x": 3}, "tools: it is not a function (got 'x')"),
        ([add, add], "tools: another tool is named add (got 'add')"),
    ):
        with pytest.raises(PolicyError) as error:
            Sandbox("safe", tools=tools).open()
        assert said in str(error.value)


def test_they_are_beside_the_policys_own_and_no_name_is_taken_twice(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[1] / "support")])
    policy = Policy.preset("safe", tools=("operators_tools:forecast", "operators_tools:add"))
    with Sandbox(policy, tools=[whisper]) as s:
        r = s.execute("forecast('Rome', days=1)['degrees'], await whisper('A'), add(1)")
        assert r.result == "([20.5], 'a', 2)"
    with pytest.raises(PolicyError, match="the policy has a tool of this name already"):
        Sandbox(policy, tools=[add]).open()


def test_a_fork_has_the_policys_tools_from_its_first_cell_on(monkeypatch, capfd):
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[1] / "support")])
    policy = Policy.preset("safe", tools=("operators_tools:add",), backend="landlock")
    with Sandbox(policy, tools=[whisper]) as s:
        (fork,) = s.fork()
        r = fork.execute("add(1), await whisper('A')")
        assert r.result == "(2, 'a')", r.to_string()
        (grandchild,) = fork.fork(shares_files=True)
        assert grandchild.execute("add(2)").result == "3"
        variants = s.try_variants(["add(3)", "x = 1"], lambda _: 0)
        assert variants.results[0].result == "4"
        s.fork()[0].close()
    assert "Traceback" not in capfd.readouterr().err


def test_help_and_listing_know_them(talking):
    assert "Add two numbers." in str(talking.execute("%tools").displays[0])
    r = talking.execute("add?")
    assert len(r.pages) == 1
    assert "Signature: add(a: int, b: int = 1)" in str(r)
    assert "Docstring: Add two numbers." in r.pages[0]
    assert str(r).startswith("The cell ran.\n\n")
    assert talking.execute("add.__name__, add.__doc__").result == "('add', 'Add two numbers.')"


class Login(pydantic.BaseModel):
    """Who logs in."""

    user: str
    password: pydantic.SecretStr


def test_no_secret_within_a_model_is_in_the_result_nor_on_the_audit_log(home):
    def log_in(login: Login) -> None:
        """Fail, and say too much."""
        raise PermissionError(f"{login.password.get_secret_value()} is not the password")

    with Sandbox("safe", tools=[log_in]) as s:
        r = s.execute("log_in({'user': 'ada', 'password': 'hun' + 'ter2'})")
        session = s.session
    (call,) = r.tool_calls
    assert (call.args, call.error) == (("•••",), ("PermissionError", "••• is not the password"))
    (log,) = (home / "cache" / "cellblock" / "audit").glob(f"*-{session}.*")
    assert "log_in" in log.read_text()
    assert "hunter2" not in f"{log.read_text()}{r}"


class Untold(pydantic.BaseModel):
    """Fails when it is made data of."""

    @pydantic.model_serializer
    def told(self) -> dict:
        """Fail."""
        raise LookupError("no data")


def test_what_fails_while_it_is_made_data_is_an_answer_too():
    def odd() -> Untold:
        return Untold()

    async def odd_later() -> Untold:
        return Untold()

    with Sandbox("safe", tools=[odd, odd_later]) as s:
        for call in ("odd()", "await odd_later()"):
            assert "no data" in s.execute(call).error.message


def test_refused_calls_beyond_a_hundred_are_one_record(home):
    policy = Policy.preset("safe", tool_max_calls=30)
    code = "for n in range(140):\n    try: add(n)\n    except ToolError: pass"
    with Sandbox(policy, tools=[add]) as s:
        assert s.execute(code).success
        s.execute("1")
        session = s.session
    (log,) = (home / "cache" / "cellblock" / "audit").glob(f"*-{session}.*")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["calls"] for entry in entries if entry["kind"] == "refusals"] == [10]
    assert sum(entry["kind"] == "tool" for entry in entries) == 130
