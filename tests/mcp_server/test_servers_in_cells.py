"""`[tools.mcp.NAME]`: tools of the operator's MCP servers are functions in cells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock import Sandbox
from cellblock.errors import PolicyError
from support import mcp_toolserver, processes
from support.mcp_clients import go, run, stdio, text_of
from support.ports import next_port

SERVER = [sys.executable, "-P", mcp_toolserver.__file__]
TABLE = """
extends = "safe"
tool_timeout = 3.0
tool_max_calls = 20
{more}
[tools.mcp.office]
{where}
tools = {tools}
"""


@pytest.fixture
def office(policy):
    """Return a function that writes a policy with one server."""

    def write(tools=("*",), where=f"command = {SERVER!r}", more=""):
        return policy(TABLE.format(tools=list(tools), where=where, more=more))

    return write


def test_its_tools_are_functions_validated_bounded_and_logged(home, office, monkeypatch):
    assert home
    monkeypatch.setenv("GIVEN", "yes")
    monkeypatch.setenv("NOT_GIVEN", "no")
    file = office(where=f"command = {SERVER!r}\nenv = ['GIVEN']")
    with Sandbox(file) as s:
        ran = s.execute("[office_add(n, b=2) for n in range(3)], office_de_lete('x')")
        assert ran.result == "([2, 3, 4], 'deleted x')"
        assert [call.status for call in ran.tool_calls] == ["ok"] * 4
        given = s.execute("print(office_secret())").output
        assert given == "{'GIVEN': 'yes', 'NOT_GIVEN': None}\n"
        for call, said in {
            "office_add('many')": "ValidationError: $.a: 'many' is not of type 'integer'",
            "office_add(1, c=2)": "c",
            "office_fail()": "no such row in <path>",
            "office_slow()": "TimeoutError: it took longer than 3 s (tool_timeout)",
        }.items():
            failed = s.execute(call)
            assert failed.status == "error", call
            assert said in failed.error.message, failed.error.message
        assert s.execute("office_picture()").result.count("image/png") == 1
        shown = s.execute("office_add?").pages[0]
        assert "The MCP server office says of it: " in shown
        assert "\x1b" not in shown
        flood = s.execute("for n in range(21): office_add(n)")
        assert "tool_max_calls" in flood.error.message
        started = processes.tree(os.getpid())[1:]
        assert any("toolserver" in command(pid) for pid in started)
    processes.until(lambda: not any("toolserver" in command(p) for p in processes.parents()))


def test_cells_see_what_its_tools_return_and_get_just_that(home, office):
    assert home
    with Sandbox(office()) as s:
        found = s.execute("[one['title'] for one in office_search('x', tags=['a'])]")
        assert found.result == "['x0', 'x1']"
        assert s.execute("office_totals()").result == "{'result': 1.5, 'tax': 0.5}"
        page = "".join(s.execute("office_search?").pages[0].split())
        signature = "(query:str,*,tags:list[str]|None=None,limit:int=2)->list[dict]"
        assert f"office_search{signature}" in page


def test_a_server_that_ends_is_named_and_takes_no_other_with_it(home, policy, monkeypatch):
    monkeypatch.setenv("CHANGES_BY", str(home / "started"))
    servers = "".join(
        f"[tools.mcp.{name}]\ncommand = {SERVER!r}\nenv = ['CHANGES_BY']\ntools = ['*']\n"
        for name in ("office", "wiki")
    )
    cell = (
        "import asyncio\n"
        "other = asyncio.create_task(wiki_slow())\n"
        "await wiki_add(1)\n"
        "try: await office_leave()\n"
        "except ToolError as exc: print(exc.kind, exc.message)\n"
        "print(await wiki_add(2), await office_add(3), other.done())\n"
        "other.cancel()\n"
    )
    with Sandbox(policy(f'extends = "safe"\n{servers}')) as s:
        assert s.execute("office_changing('a')").result == "'a'"
        assert s.execute(cell).output.splitlines() == [
            "WorkerLost the MCP server office has ended: the next call starts it again",
            "3 4 False",
        ]
        changed = s.execute("office_changing('a')").error.message
        assert "WorkerLost: its signature has changed since the kernel started" in changed


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_only_tools_that_are_named_are_offered(home, office):
    assert home
    with Sandbox(office(tools=["add"])) as s:
        assert [tool.name for tool in s.tools] == ["office_add"]
        assert "office_de_lete" in s.execute("office_de_lete('x')").error.message


def test_a_call_is_approved_as_any_other(home, office):
    assert home
    asked = []

    def approve(request):
        asked.append(request.text)
        return len(asked) == 1

    with Sandbox(office(more='approvals = "prompt"'), approve=approve) as s:
        assert s.execute("office_add(1)").success
        refused = s.execute("office_add(2)")
    assert asked == [
        "may cell [1] call office_add?\n  a = 1",
        "may cell [2] call office_add?\n  a = 2",
    ]
    assert "NotApproved" in refused.error.message


def test_over_http(home, office):
    assert home
    port = next_port()
    with subprocess.Popen([*SERVER, str(port)], stderr=subprocess.PIPE, text=True) as server:
        try:
            line = server.stderr.readline()
            while "running" not in line:
                line = server.stderr.readline()
            with Sandbox(office(where=f"url = 'http://127.0.0.1:{port}/mcp'")) as s:
                assert s.execute("office_add(1, 2)").status == "error"
                assert s.execute("office_add(1, b=2)").result == "3"
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tools": ["fly"]}, "it has no tool fly (got 'office'). It has: add, de-lete"),
        ({"where": "command = ['/nowhere']"}, "it can't be had: "),
        (
            {"where": "url = 'https://localhost:9/mcp'\ntoken_env = 'NO_SUCH_TOKEN'"},
            "the host's environment has no NO_SUCH_TOKEN",
        ),
        ({"tools": []}, "tools.mcp.office.tools: none is named"),
        ({"where": ""}, "it needs exactly one of command and url"),
        (
            {"where": "url = 'http://a.org/'\ntoken_env = 'T'"},
            "would cross the network in the clear",
        ),
        ({"where": "comand = ['x']"}, "tools.mcp.office.comand: no such key"),
        ({"where": "command = 'x'"}, "tools.mcp.office.command: wrong value"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(home, office, change, said):
    assert home
    with pytest.raises(PolicyError) as refused, Sandbox(office(**change)):
        pass
    assert said in str(refused.value)


def test_code_mode_a_model_loops_over_a_servers_tools_in_one_cell(home, office):
    assert home

    async def main():
        async with stdio("--policy", office()) as client:
            code = "sum(office_add(n) for n in range(10))"
            assert text_of(await run(client, code)).endswith("result:\n55")
            told = text_of(await client.call_tool("explain", {"topic": "tools"}))
            assert "office_add" in told

    go(main())
