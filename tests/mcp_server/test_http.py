"""`cellblock mcp --http`: who may come, sessions beside each other, and their ends."""

import asyncio
import subprocess

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import MCPError

from cellblock import AsyncSandboxPool
from cellblock.mcp.http import HttpServer
from cellblock.mcp.settings import HttpSettings
from support import processes
from support.mcp_clients import TOKEN, argv, environment, go, http_server, over_http, run, text_of

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def test_a_session_is_a_sandbox_of_its_own_and_ends_with_its_client(home):
    assert home

    async def main(address, server):
        async with over_http(address) as one, over_http(address) as other:
            assert one.session.protocol_version == "2025-11-25"
            await run(one, "x = 1")
            assert "NameError" in text_of(await run(other, "x"))
            assert text_of(await run(one, "x")).endswith("result:\n1")
            both = len(processes.tree(server.pid))
            with anyio.move_on_after(1):
                await run(one, "while True: pass")
            assert text_of(await run(one, "x")).endswith("result:\n1")
        await asyncio.to_thread(
            processes.until, lambda: len(processes.tree(server.pid)) <= both - 2
        )

    with http_server() as (server, address):
        go(main(address, server))
        started = processes.tree(server.pid)
    assert processes.gone(started) == []


def test_only_who_has_the_token_comes_in_and_no_page_of_the_web(home):
    assert home
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with http_server() as (server, address), httpx2.Client(headers=ACCEPT) as web:
        before = len(processes.tree(server.pid))
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            answer = web.post(address, json=INITIALIZE, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        # Which names those are: tests/unit/mcp.
        for other in ("evil.example", "127.0.0.1:80@evil.example"):
            rebound = web.post(address, json=INITIALIZE, headers={**bearer, "Host": other})
            assert rebound.status_code == 421
            origin = {**bearer, "Origin": f"http://{other}"}
            assert web.post(address, json=INITIALIZE, headers=origin).status_code == 403
        gone = {**bearer, "Mcp-Session-Id": "0" * 32}
        assert web.post(address, json=INITIALIZE, headers=gone).status_code == 404
        large = web.post(address, content=b" " * (11 << 20), headers=bearer)
        assert large.status_code == 413
        newer = web.post(
            address,
            json=INITIALIZE | {"method": "server/discover"},
            headers={**bearer, "MCP-Protocol-Version": "2026-07-28"},
        )
        assert newer.status_code == 400
        assert newer.json()["id"] == 7
        assert "2025-11-25" in newer.json()["error"]["data"]["supported"]
        # None of these has left a session behind.
        processes.until(lambda: len(processes.tree(server.pid)) <= before)


def test_a_person_is_asked_over_http_too(home, policy):
    (home / "a.txt").write_text("text")
    file = policy(
        'extends = "safe"\napprovals = "prompt"\n[ops.read_file]\nroots = ["{project}"]\n'
    )

    async def on_question(_context, _params):
        return types.ElicitResult(action="accept", content={"answer": "once"})

    async def main(address):
        async with over_http(address, elicitation_callback=on_question) as client:
            assert "'text'" in text_of(await run(client, "ops.read_file('a.txt')"))

    with http_server("--policy", file, "--project", home) as (_, address):
        go(main(address))


def test_a_client_that_vanishes_costs_its_sandbox_after_a_while(home):
    assert home
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with http_server("--idle", 1) as (server, address), httpx2.Client(headers=ACCEPT) as web:
        before = len(processes.tree(server.pid))
        number = web.post(address, json=INITIALIZE, headers=bearer).headers["mcp-session-id"]
        processes.until(lambda: len(processes.tree(server.pid)) > before)
        processes.until(lambda: len(processes.tree(server.pid)) <= before)
        again = web.post(address, json=INITIALIZE, headers={**bearer, "Mcp-Session-Id": number})
        assert again.status_code == 404


def test_a_client_that_stays_connected_and_asks_nothing_costs_its_sandbox_too(home):
    """The SDK's holds a stream open to be told of things (GET)."""
    assert home

    async def main(address):
        async with over_http(address) as client:
            await run(client, "x = 1")
            await asyncio.to_thread(
                processes.until, lambda: len(processes.tree(server.pid)) <= before
            )
            with pytest.raises(MCPError, match=r"[Ss]ession"):
                await run(client, "x")

    with http_server("--idle", 1) as (server, address):
        before = len(processes.tree(server.pid))
        go(main(address))


@pytest.mark.parametrize("params", [{}, INITIALIZE["params"]])
def test_a_client_that_does_not_come_back_after_its_first_request_keeps_no_session(home, params):
    assert home
    headers = {**ACCEPT, "Authorization": f"Bearer {TOKEN}"}
    settings = HttpSettings(token=TOKEN, max_sessions=1, opening=0.5)

    async def main():
        async with AsyncSandboxPool("safe") as pool:
            server = HttpServer(pool, settings)
            transport = httpx2.ASGITransport(server)
            async with httpx2.AsyncClient(transport=transport, headers=headers) as web:
                address = "http://127.0.0.1:8765/mcp"
                first = await web.post(address, json={**INITIALIZE, "params": params})
                assert first.status_code == 200
                assert (await web.post(address, json=INITIALIZE)).status_code == 503
                for _ in range(100):
                    again = await web.post(address, json=INITIALIZE)
                    if again.status_code != 503:
                        break
                    await anyio.sleep(0.1)
                assert again.status_code == 200
            await server.close()

    go(main())


def test_sessions_are_bounded_in_number_and_a_hundred_are_served(home):
    assert home

    async def one(address, number):
        async with over_http(address, mode="legacy") as client:
            return text_of(await run(client, f"{number} + 1"))

    async def main(address):
        async with over_http(address), over_http(address):
            headers = {**ACCEPT, "Authorization": f"Bearer {TOKEN}"}
            async with httpx2.AsyncClient(headers=headers) as web:
                refused = await web.post(address, json=INITIALIZE)
            assert refused.status_code == 503
            assert refused.json()["error"]["message"] == "Too many open sessions"
        for start in range(0, 100, 2):
            said = await asyncio.gather(one(address, start), one(address, start + 1))
            assert [text.rpartition("\n")[2] for text in said] == [
                f"{start + 1}",
                f"{start + 2}",
            ]

    with http_server("--max-sessions", 2) as (server, address):
        go(main(address))
        assert len(processes.tree(server.pid)) < 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 is reached from elsewhere"),
        (["--token-file", "/dev/null"], "a bearer token has 16 printable characters at least"),
    ],
)
def test_what_would_let_others_in_is_refused_with_what_to_say(home, options, said):
    assert home
    ended = subprocess.run(
        argv("--http", *options), check=False, capture_output=True, text=True, env=environment()
    )
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_port_that_is_taken_is_told_with_what_to_choose(home):
    assert home
    with http_server() as (_, address):
        port = address.rpartition(":")[2].removesuffix("/mcp")
        command = argv("--http", "--port", port)
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment()
        )
    assert ended.returncode == 2
    said = f"nothing can listen at 127.0.0.1, port {port}: Address already in use. Choose another"
    assert said in ended.stderr
