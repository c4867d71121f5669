"""Tools of sandboxes in pydantic-ai and LangChain, called by models that say what a test says."""

import asyncio
import threading

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("pydantic_ai")

from langchain_core.messages import ToolCall as LangChainCall
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from cellblock import Policy, Sandbox
from cellblock.integrations.langchain import sandbox_tools
from cellblock.integrations.pydantic_ai import SandboxToolset

pytestmark = pytest.mark.usefixtures("home")
CELLS = ["x = 20", "import subprocess", "x + 22"]


def scripted(calls, seen):
    """Return a model that makes these calls of tools, and notes what each came to."""
    left = list(calls)

    def answer(conversation, _info):
        seen.extend(p.content for p in conversation[-1].parts if isinstance(p, ToolReturnPart))
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*left.pop(0))])

    return FunctionModel(answer)


def check(texts):
    assert texts[0] == "The cell ran and showed nothing."
    assert "import-not-allowed: subprocess" in texts[1]
    assert texts[2] == "The cell ran.\n\nresult:\n  42"


def test_a_pydantic_ai_agent_runs_cells_and_each_run_has_a_sandbox_of_its_own():
    calls, seen = [("run_cell", {"code": one}) for one in CELLS], []
    toolset = SandboxToolset("safe")
    agent = Agent(scripted([*calls, ("variables", {})], seen), toolsets=[toolset])
    assert agent.run_sync("task").output == "done"
    check(seen)
    assert seen[3].startswith("x int ")
    assert toolset.sandbox is None
    again = []
    agent.run_sync("task", model=scripted([("variables", {})], again))
    assert again == ["There are no variables."]


def test_runs_within_one_toolset_share_its_sandbox():
    async def use():
        seen, toolset = [], SandboxToolset("safe")
        async with toolset:
            for one in ("x = 1", "x"):
                model = scripted([("run_cell", {"code": one})], seen)
                await Agent(model, toolsets=[toolset]).run("task")
        return seen

    assert asyncio.run(use())[1] == "The cell ran.\n\nresult:\n  1"


def test_runs_of_one_agent_at_the_same_time_have_a_sandbox_each():
    async def use():
        seen, agent = [[], [], []], Agent(toolsets=[SandboxToolset("safe")])
        cells = ["n = {0}", "n"]
        calls = [[("run_cell", {"code": one.format(at)}) for one in cells] for at in range(3)]
        models = map(scripted, calls, seen)
        await asyncio.gather(*(agent.run("task", model=model) for model in models))
        return [texts[1] for texts in seen]

    assert asyncio.run(use()) == [f"The cell ran.\n\nresult:\n  {n}" for n in range(3)]


def test_to_cancel_a_call_of_langchains_interrupts_its_cell():
    began = threading.Event()

    def begin() -> None:
        """Say that the cell runs."""
        began.set()

    with Sandbox(Policy.preset("safe", timeout=600.0), tools=[begin]) as sandbox:
        run_cell, _ = sandbox_tools(sandbox)

        async def main():
            call = asyncio.ensure_future(
                run_cell.ainvoke({"code": "q = 1\nbegin()\nwhile True: pass"})
            )
            await asyncio.to_thread(began.wait)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return await run_cell.ainvoke({"code": "q"})

        assert asyncio.run(main()).endswith("  1")


def test_langchain_tools_run_cells_and_hand_on_results():
    with Sandbox("safe") as sandbox:
        run_cell, variables = sandbox_tools(sandbox)
        said = [
            run_cell.invoke(
                LangChainCall(name="run_cell", args={"code": one}, id="1", type="tool_call")
            )
            for one in CELLS
        ]
        check([one.content for one in said])
        assert [one.artifact.status for one in said] == ["ok", "denied", "ok"]
        assert asyncio.run(run_cell.ainvoke({"code": "x"})).endswith("20")
        assert variables.invoke({}).startswith("x int ")
        assert set(run_cell.args) == {"code"}
