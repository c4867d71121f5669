"""A data task of three steps, as a model's client and a framework's agent do it.

Rows are read by a tool that a person allows; a cell is killed, and costs nothing; two ways are
tried on branches; the report is staged, and kept.
"""

import json

import mcp_types as types
import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from cellblock.integrations.pydantic_ai import SandboxToolset
from support.mcp_clients import go, run, stdio, text_of

POLICY = """
extends = "data"
approvals = "prompt"
filesystem_read_roots = ["{project}"]
filesystem_staged_roots = ["{project}"]

[ops.read_file]
roots = ["{project}"]
"""
LOAD = "import json\nrows = json.loads(ops.read_file('rows.json'))\nlen(rows)"
KILLED = "import os\nrows = None\nos.kill(os.getpid(), 9)"
WAYS = {
    way: f"import statistics\nanswer = statistics.{way}(rows)\nanswer" for way in ("mean", "median")
}
WRITE = "with open('report.txt', 'w') as file: print(answer, file=file)"


@pytest.fixture
def file(home, policy):
    (home / "rows.json").write_text(json.dumps([1, 2, 3, 4, 90]))
    return policy(POLICY)


def check(home, asked, loaded, killed, ways):
    assert "ops.read_file" in asked[0]
    assert loaded.endswith("result:\n5")
    assert killed.startswith("cellblock lost this cell: its interpreter crashed")
    assert "Your variables are as they were before it." in " ".join(killed.split())
    assert [way.rpartition("\n")[2] for way in ways] == ["20", "3"]
    assert (home / "report.txt").read_text() == "3\n"


def test_a_client_of_the_sdk_does_it(home, file):
    asked = []

    async def on_question(_, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "once"})

    async def main():
        async with stdio(
            "--policy", file, "--project", home, elicitation_callback=on_question
        ) as client:
            loaded, killed = text_of(await run(client, LOAD)), text_of(await run(client, KILLED))
            ways = []
            for way, code in WAYS.items():
                await client.call_tool("fork", {"name": way})
                tried = await client.call_tool("run_cell", {"code": code, "branch": way})
                ways.append(text_of(tried))
            await client.call_tool("fork", {"name": "median", "action": "pick"})
            await client.call_tool("fork", {"name": "mean", "action": "drop"})
            written = await run(client, WRITE)
            assert not written.is_error, text_of(written)
            assert not (home / "report.txt").exists()
            await client.call_tool("keep", {"paths": ["report.txt"]})
        check(home, asked, loaded, killed, ways)
        assert (len(asked), "keep 1 staged file" in asked[1]) == (2, True)

    go(main())


def test_an_agent_of_pydantic_ai_does_it(home, file):
    asked = []

    def approve(request):
        asked.append(request.text)
        return True

    def model_of(*cells):
        """Return a model that runs these cells."""
        left = list(cells)

        def answer(conversation, _info):
            seen.extend(p.content for p in conversation[-1].parts if isinstance(p, ToolReturnPart))
            if not left:
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(parts=[ToolCallPart("run_cell", {"code": left.pop(0)})])

        return FunctionModel(answer)

    async def main():
        toolset = SandboxToolset(file, approve=approve, project=home)
        agent = Agent(toolsets=[toolset])
        async with toolset:
            await agent.run("load", model=model_of(LOAD, KILLED))
            found = await toolset.sandbox.try_variants(list(WAYS.values()), lambda _: 1)
            await agent.run("report", model=model_of(WRITE))
            assert not (home / "report.txt").exists()
            await toolset.sandbox.keep(["report.txt"])
        loaded, killed, _ = seen
        check(home, asked, loaded, killed, [one.to_string() for one in found.results])

    seen = []
    go(main())
