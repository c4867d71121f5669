"""Tools of sandboxes in pydantic-ai and LangChain, called by models that say what a test says."""

import asyncio
import re
import threading

import pydantic
import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("pydantic_ai")

from langchain_core.messages import ToolCall as LangChainCall
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from cellblock import AsyncSandbox, Policy, Sandbox
from cellblock.errors import GuestError
from cellblock.integrations.langchain import sandbox_tools
from cellblock.integrations.pydantic_ai import SandboxToolset

pytestmark = pytest.mark.usefixtures("home")
CELLS = ["x = 20", "import subprocess", "x + 22"]
TABLE = "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': 3})"
ASSIGNED = "The cell ran and showed nothing.\n\nIt assigned df: DataFrame, 2 rows \N{MULTIPLICATION SIGN} 2 columns"
#: Five pictures, the first of which is too large to be sent as it is.
PICTURES = """
import io, os
from IPython.display import Image, display
from PIL import Image as Pillow

for side in (700, 10, 10, 10, 10):
    file = io.BytesIO()
    Pillow.frombytes("RGB", (side, side), os.urandom(side * side * 3)).save(file, "png")
    display(Image(file.getvalue()))
"""
LEFT_OUT = "Pictures that could not be sent to you: 5 of 5. Show fewer, or smaller ones."


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
    assert texts[2] == "The cell ran.\n\nresult:\n42"


def test_a_pydantic_ai_agent_runs_cells_and_each_run_has_a_sandbox_of_its_own():
    calls, seen = [("run_cell", {"code": one}) for one in CELLS], []
    toolset = SandboxToolset("safe")
    agent = Agent(scripted([*calls, ("variables", {})], seen), toolsets=[toolset])
    assert agent.run_sync("task").output == "done"
    check(seen)
    assert seen[3].startswith("x: int, ")
    with pytest.raises(GuestError, match="within `async with toolset:` only"):
        _ = toolset.sandbox
    again = []
    agent.run_sync("task", model=scripted([("variables", {})], again))
    assert again == ["There are no variables."]


def test_runs_within_one_toolset_share_its_sandbox():
    async def use():
        seen, toolset = [], SandboxToolset("safe")
        async with toolset:
            await toolset.sandbox.write("a.txt", "a")
            for one in ("x = 1", "x"):
                model = scripted([("run_cell", {"code": one})], seen)
                await Agent(model, toolsets=[toolset]).run("task")
        return seen

    assert asyncio.run(use())[1] == "The cell ran.\n\nresult:\n1"


def test_runs_of_one_agent_at_the_same_time_have_a_sandbox_each():
    async def use():
        seen, agent = [[], [], []], Agent(toolsets=[SandboxToolset("safe")])
        cells = ["n = {0}", "n"]
        calls = [[("run_cell", {"code": one.format(at)}) for one in cells] for at in range(3)]
        models = map(scripted, calls, seen)
        await asyncio.gather(*(agent.run("task", model=model) for model in models))
        return [texts[1] for texts in seen]

    assert asyncio.run(use()) == [f"The cell ran.\n\nresult:\n{n}" for n in range(3)]


def test_pictures_are_image_content_for_a_pydantic_ai_agent():
    seen = []
    agent = Agent(scripted([("run_cell", {"code": PICTURES})], seen))
    agent.run_sync("task", toolsets=[SandboxToolset("data")])
    text, *images = seen[0]
    assert text.endswith(LEFT_OUT)
    assert [one.media_type for one in images] == ["image/png"] * 4
    assert 2**18 < len(images[0].base64) <= 2**20
    assert images[1].data.startswith(b"\x89PNG")


def test_tools_that_a_program_adds_to_a_toolset_are_there_in_each_run():
    toolset = SandboxToolset("safe")

    @toolset.tool_plain
    def look_up(city: str) -> str:
        """Look a city up."""
        return f"{city} is a city"

    for _ in range(2):
        seen = []
        calls = [("look_up", {"city": "Rome"}), ("run_cell", {"code": "7"})]
        Agent(scripted(calls, seen), toolsets=[toolset]).run_sync("task")
        assert seen == ["Rome is a city", "The cell ran.\n\nresult:\n7"]


def test_pictures_are_image_blocks_for_a_langchain_agent():
    with Sandbox("data") as sandbox:
        run_cell, _ = sandbox_tools(sandbox)
        call = LangChainCall(name="run_cell", args={"code": PICTURES}, id="1", type="tool_call")
        for said in (run_cell.invoke(call), asyncio.run(run_cell.ainvoke(call))):
            text, *images = said.content_blocks
            assert text["text"].endswith(LEFT_OUT)
            assert [one["mime_type"] for one in images] == ["image/png"] * 4
            assert 2**18 < len(images[0]["base64"]) <= 2**20
            assert said.artifact.status == "ok"


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

        assert asyncio.run(main()).endswith("\n1")


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
        assert variables.invoke({}).startswith("x: int, ")
        assert set(run_cell.args) == {"code", "timeout"}


def test_a_model_may_give_a_cell_less_time_than_the_policy():
    endless, seen = {"code": "while True: pass", "timeout": 0.5}, []
    stopped = "cellblock stopped this cell: it ran longer than 0.5 s"
    with Sandbox("safe") as sandbox:
        run_cell, _ = sandbox_tools(sandbox)
        assert stopped in run_cell.invoke(endless)
        assert stopped in asyncio.run(run_cell.ainvoke(endless))
        with pytest.raises(pydantic.ValidationError, match="greater than 0"):
            run_cell.invoke({"code": "1", "timeout": 0})
    model = scripted([("run_cell", endless)], seen)
    Agent(model, toolsets=[SandboxToolset("safe")]).run_sync("task")
    assert stopped in seen[0]


def test_langchain_tools_of_what_is_no_open_sandbox_are_refused_at_once():
    with pytest.raises(TypeError, match="sandbox_tools takes no AsyncSandbox: pass a "):
        sandbox_tools(AsyncSandbox("safe"))
    with pytest.raises(GuestError, match="not open"):
        sandbox_tools(Sandbox("safe"))


def price(item: str) -> float:
    """Look up a price."""
    return float(len(item))


def test_models_read_what_cells_can_call_and_what_the_policy_allows():
    """In all frameworks the same, and what MCP's tool ``explain`` says."""
    with Sandbox("safe", tools=[price]) as sandbox:
        langchain = sandbox_tools(sandbox)[0].description
    read = []

    def answer(_conversation, info):
        read.extend(one.description for one in info.function_tools if one.name == "run_cell")
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(answer), toolsets=[SandboxToolset("safe", tools=[price])])
    agent.run_sync("task")
    scratch = re.compile(r"/\S+/scratch\S*")
    assert scratch.sub("", read[0]) == scratch.sub("", langchain)
    for said in (
        *("Run a cell of Python, and return", "\n  price(item: str) -> float\n"),
        *("\nPolicy safe, mode safe:\n", "\nmodules that cells can import: ", "\ntimeout: 60 s\n"),
    ):
        assert said in langchain
    assert len(langchain) < 3_300


def test_a_cell_that_only_assigns_says_what():
    """On a loop and without one, and no ``__len__`` or ``__repr__`` of a cell's is called for it."""
    loud = "ran = []\nclass Loud(list):\n    __len__ = __repr__ = lambda self: ran.append(1)\ndf = Loud()"
    with Sandbox("data") as sandbox:
        run_cell, _ = sandbox_tools(sandbox)
        assert run_cell.invoke({"code": TABLE}) == ASSIGNED
        assert asyncio.run(run_cell.ainvoke({"code": TABLE})) == ASSIGNED
        assert run_cell.invoke({"code": loud}) == "The cell ran and showed nothing."
        assert run_cell.invoke({"code": "ran"}) == "The cell ran.\n\nresult:\n[]"
    seen = []
    calls = [("run_cell", {"code": TABLE})]
    Agent(scripted(calls, seen), toolsets=[SandboxToolset("data")]).run_sync("task")
    assert seen == [ASSIGNED]


def test_a_result_that_is_cut_tells_the_model_to_print_less():
    with Sandbox("safe") as sandbox:
        run_cell, _ = sandbox_tools(sandbox, limit=1_000)
        told = run_cell.invoke({"code": "print('x' * 5_000)"})
        assert told.endswith("\n\nCut to 1,000 characters: print less, or a part of it at a time.")
        assert len(told) <= 1_000
        assert "Cut to" not in run_cell.invoke({"code": "print('x' * 500)"})
