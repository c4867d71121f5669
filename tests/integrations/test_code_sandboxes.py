"""Datalayer's code-sandboxes with sandboxes of ours behind its interface."""

import asyncio
import threading

import pytest

pytest.importorskip("code_sandboxes")

from code_sandboxes import Sandbox
from code_sandboxes.exceptions import VariableNotFoundError
from code_sandboxes.models import SandboxConfig

from cellblock import Policy
from cellblock.errors import GuestError
from cellblock.integrations.code_sandboxes import MAX_LINES, CellblockSandbox, _Messages

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def sandbox(home):
    """A started sandbox under preset data, so that there are files."""
    assert home
    with CellblockSandbox(policy="data") as one:
        yield one


def test_code_runs_and_variables_and_output_come_back(sandbox):
    assert isinstance(sandbox, Sandbox)
    assert sandbox.provider_name == "cellblock"
    heard = []
    ran = sandbox.run_code("x = 20\nprint('one\\ntwo')\nx + 22", on_stdout=heard.append)
    assert (ran.success, ran.text, ran.stdout) == (True, "42", "one\ntwo")
    assert [one.line for one in heard] == ["one", "two"]
    sandbox.set_variable("given", {"a": [1]})
    assert (sandbox.get_variable("given"), sandbox.get_variable("x")) == ({"a": [1]}, 20)
    with pytest.raises(VariableNotFoundError, match="no such variable"):
        sandbox.get_variable("gone")


@pytest.fixture(scope="module")
def stepwise(home):
    """A sandbox whose cells can wait until the program has heard what they printed."""
    assert home
    heard = threading.Event()

    def wait_until_heard() -> bool:
        """Wait until the program has heard of what was printed."""
        return heard.wait(60)

    policy = Policy.preset("safe", timeout=600.0, tool_timeout=100.0)
    with CellblockSandbox(
        SandboxConfig(timeout=600.0), policy=policy, tools=[wait_until_heard]
    ) as one:
        one.heard = heard
        yield one
        heard.set()


STEPS = "print('one\\n.', end='')\nwait_until_heard()"


def test_output_is_told_in_the_callers_thread_while_the_cell_runs(stepwise):
    stepwise.heard.clear()
    heard, shown, threads = [], [], set()

    def hear(message):
        heard.append((message.line, message.error, message.terminated))
        threads.add(threading.current_thread())
        stepwise.heard.set()

    ran = stepwise.run_code(STEPS, on_stdout=hear, on_stderr=hear, on_result=shown.append)
    assert ran.text == "True"
    assert heard == [("one", False, True), (".", False, False)]
    assert (shown, threads) == (ran.results, {threading.current_thread()})
    assert ran.stdout == "one\n."


def test_output_can_be_iterated_over_while_the_cell_runs(stepwise):
    stepwise.heard.clear()
    events = stepwise.run_code_streaming(f"{STEPS}\n1 / 0")
    assert next(events).line == "one"
    stepwise.heard.set()
    assert [getattr(one, "line", None) or one.name for one in events] == [".", "ZeroDivisionError"]

    async def collect():
        stepwise.heard.clear()
        found = []
        async for event in stepwise.run_code_streaming_async(STEPS):
            found.append(event)
            stepwise.heard.set()
        return found

    assert [getattr(one, "line", None) or one.text for one in asyncio.run(collect())] == [
        "one",
        ".",
        "True",
    ]


def test_who_stops_listening_or_waiting_interrupts_the_cell(stepwise):
    endless = "print('x')\nwhile True: pass"

    def fail(_):
        raise LookupError("the program's own")

    with pytest.raises(LookupError, match="own"):
        stepwise.run_code(endless, on_stdout=fail)
    for _ in stepwise.run_code_streaming(endless):
        break

    async def cancel():
        began = asyncio.Event()
        loop = asyncio.get_running_loop()
        call = asyncio.ensure_future(
            stepwise.run_code_async(
                endless, on_stdout=lambda _: loop.call_soon_threadsafe(began.set)
            )
        )
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel())
    ran = stepwise.run_code(endless, on_stdout=lambda _: stepwise.interrupt())
    assert (ran.interrupted, ran.success, stepwise.is_executing) == (True, False, False)
    assert stepwise.run_code("1").text == "1"


def test_an_exit_is_a_status_and_no_failure_of_the_code(sandbox):
    ran = sandbox.run_code("import sys\nsys.exit(3)")
    assert (ran.exit_code, ran.code_error, ran.success) == (3, None, False)
    assert sandbox.run_code("sys.exit()").success


def test_files_go_in_and_come_out(sandbox, tmp_path):
    (tmp_path / "a").write_text("text")
    sandbox.upload_file(str(tmp_path / "a"), "in/a")
    assert sandbox.run_code("import os\nopen(os.path.expanduser('~/in/a')).read()").text == "'text'"
    sandbox.download_file("in/a", str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "text"


def test_what_fails_or_is_refused_is_told_apart():
    with CellblockSandbox(SandboxConfig(timeout=1.0)) as strict:
        failed = strict.run_code("1 / 0")
        assert (failed.execution_ok, failed.code_error.name) == (True, "ZeroDivisionError")
        refused = strict.run_code("import subprocess")
        assert (refused.success, refused.code_error.name) == (False, "PolicyDenied")
        assert "import-not-allowed: subprocess" in refused.code_error.traceback
        late = strict.run_code("while True: pass")
        assert (late.success, late.interrupted) == (False, True)
    with pytest.raises(ValueError, match="cells are Python"):
        strict.run_code("ls", language="bash")
    assert "was not started" in strict.run_code("1").execution_error
    with pytest.raises(GuestError, match="was not started"):
        strict.set_variable("x", 1)


def test_a_flood_of_lines_is_few_messages_and_nothing_of_it_is_missing(sandbox):
    """Four million empty lines were as many messages, of 2.4 GB."""
    heard = []
    ran = sandbox.run_code(
        "print('a\\n' * 200_000 + 'b\\n\\nc')\nimport sys\nprint('e\\nf', file=sys.stderr)",
        on_stdout=heard.append,
    )
    assert ran.stdout == "a\n" * 200_000 + "b\n\nc"
    assert ran.stderr == "e\nf"
    assert len(ran.logs.stdout) == MAX_LINES + 1
    assert [one.terminated for one in ran.logs.stdout[-2:]] == [True, True]
    assert MAX_LINES < len(heard) < MAX_LINES + 100
    text = "".join(one.line + "\n" * one.terminated for one in heard)
    assert text == "a\n" * 200_000 + "b\n\nc\n"


@pytest.mark.parametrize("end", ["\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", ""])
def test_a_message_is_a_line_whatever_ends_it(end):
    text = f"a{end}{end}b{end}\nc"
    said = [one.line + "\n" * one.terminated for one in _Messages().of(text)]
    assert said == text.splitlines(keepends=True)
