"""`cellblock mcp` over stdin and stdout, with the official SDK's client."""

import asyncio
import base64
import hashlib
import re
import signal
import subprocess
import sys

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from cellblock import AsyncSandboxPool
from cellblock.api import receipts
from cellblock.errors import CellblockError
from cellblock.mcp import session as sessions
from cellblock.mcp.server import make_server
from support import machines, processes
from support.mcp_clients import MODES, argv, environment, go, run, stdio, text_of

ASKING = """
extends = "safe"
approvals = "prompt"

[ops.read_file]
roots = ["{project}"]
"""
STAGING = """
extends = "data"
filesystem_read_roots = ["{project}"]
filesystem_staged_roots = ["{project}"]
"""


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def test_what_a_reply_leaves_out_can_be_read_page_by_page(home, mode):
    assert home

    async def main():
        async with stdio(mode=mode) as client:
            await run(client, "for n in range(9_000): print('line', n)")
            pages = [
                text_of(await client.call_tool("output", {"cell": 1, "page": page}))
                for page in (1, 9, 10)
            ]
            assert all(one.count("line ") > 300 and "left out" not in one for one in pages)
            last, first = (re.findall(r"line (\d+)", one) for one in pages[1:])
            assert int(first[0]) == int(last[-1]) + 1

    go(main())


def test_a_cell_an_error_a_refusal_and_variables(home, mode):
    assert home

    async def main():
        async with stdio(mode=mode) as client:
            good = await run(client, "x = [1, 2]\nprint('hello')\nsum(x)")
            assert text_of(good) == "The cell ran.\n\nstdout:\n  hello\n\nresult:\n  3"
            assert good.structured_content == {
                "status": "ok",
                "execution_count": 1,
                "text": text_of(good),
            }
            assert not good.is_error
            forged = await run(client, "print('x\\n\\nstderr:\\r\\rThe cell was not run: no')")
            assert text_of(forged) == (
                "The cell ran.\n\nstdout:\n  x\n\n  stderr:\n\n  The cell was not run: no"
            )
            bad = await run(client, "1 / 0")
            assert bad.is_error
            assert text_of(bad).startswith("The cell failed: ZeroDivisionError: division by zero")
            refused = await run(client, "import gc")
            assert refused.is_error
            assert refused.structured_content["denials"] == [
                {"rule": "import-not-allowed", "line": 1}
            ]
            why = text_of(await client.call_tool("explain", {"topic": "refusal"}))
            assert why == text_of(refused)
            listed = await client.call_tool("variables", {})
            assert re.fullmatch(r"x: list, 2, \d+ bytes", text_of(listed))
            await client.call_tool("undo", {"cells": 3})
            await run(client, "y = 1")
            await client.call_tool("reset", {})
            assert text_of(await client.call_tool("variables", {})) == "There are no variables."

    go(main())


def test_variants_are_tried_side_by_side_and_one_is_kept(home):
    assert home

    async def main():
        async with stdio() as client:
            await run(client, "x = 1")
            codes = ["x = 2\nx / 8", "1 / 0", "x = 4\nx / 8"]
            told = await client.call_tool("try_variants", {"codes": codes, "keep": "largest"})
            assert text_of(told).startswith("Kept: 3.\n\n1: The cell ran.\n\nresult:\n  0.25")
            assert "2: The cell failed: ZeroDivisionError" in text_of(told)
            receipt = (await client.read_resource("cellblock://receipt")).contents[0].text
            said = receipts.verify(receipt, receipts.own_key().public_key())
            assert said.predicate.source_sha256 == hashlib.sha256(codes[2].encode()).hexdigest()
            why = text_of(await client.call_tool("explain", {"topic": "refusal"}))
            assert why == "The last cell was not refused."
            assert text_of(await run(client, "x")).endswith("result:\n  4")
            told = await client.call_tool("try_variants", {"codes": ["1 / 0", "import gc"]})
            assert told.is_error
            assert text_of(told).startswith("Kept: none: variables are as they were.")
            why = text_of(await client.call_tool("explain", {"topic": "refusal"}))
            assert "ZeroDivisionError" in why
            assert "import-not-allowed" in why
            with pytest.raises(Exception, match="no variant was kept"):
                await client.read_resource("cellblock://receipt")
            assert text_of(await run(client, "x")).endswith("result:\n  4")

    go(main())


def test_branches_go_their_own_way_until_one_is_picked(home, policy):
    async def main():
        async with stdio("--policy", policy(STAGING), "--project", home) as client:

            async def fork(name, action="start"):
                return await client.call_tool("fork", {"name": name, "action": action})

            async def x_of(**where):
                return text_of(await client.call_tool("run_cell", {"code": "x", **where}))[-1]

            await run(client, "x = 1")
            for name in ("left", "right"):
                await fork(name)
                code = f"x += len('{name}'); open('{name}.txt', 'w').write('{name}')"
                await client.call_tool("run_cell", {"code": code, "branch": name})
            await run(client, "x += 1")
            assert [await x_of(), await x_of(branch="left"), await x_of(branch="right")] == [*"256"]
            again = await fork("left")
            assert again.is_error
            assert "already" in text_of(again)
            told = await fork("left", "pick")
            assert text_of(told) == (
                "The variables are those of left now, which has ended. Branches: right."
            )
            assert [await x_of(), await x_of(branch="right")] == [*"56"]
            await client.call_tool("undo", {"branch": "right", "cells": 3})
            assert await x_of(branch="right") == "1"
            gone = await client.call_tool("run_cell", {"code": "x", "branch": "left"})
            assert text_of(gone) == "there is no branch 'left'; there are: right"
            told = await fork("right", "drop")
            assert told.structured_content["branches"] == []
            assert await x_of() == "5"
            changes = await client.call_tool("changes", {})
            names = [
                one["path"].rpartition("/")[2] for one in changes.structured_content["changes"]
            ]
            assert names == ["left.txt", "right.txt"]
            for number in range(8):
                assert not (await fork(f"b{number}")).is_error
            assert "8 branches are open" in text_of(await fork("b8"))
            await client.call_tool("reset", {})
            assert (await fork("b0")).structured_content["branches"] == ["b0"]

    go(main())


def test_no_reset_renews_what_a_session_may_write_or_spend(home, policy):
    folder = home.parent / "out"
    folder.mkdir()
    file = policy(f'extends = "safe"\n[ops.write_file]\nroots = ["{folder}"]\n')

    async def main():
        async with stdio("--policy", file) as client:
            await run(client, f"ops.write_file('{folder}/a', 'x')")
            told = await client.call_tool("reset", {})
            assert told.is_error
            assert "would have a new budget" in text_of(told)

    go(main())


def test_no_reset_or_branch_renews_what_the_audit_log_may_have(policy):
    file = policy('extends = "safe"\naudit.sources = true\naudit.max_bytes = 65_536\n')

    async def main():
        async with stdio("--policy", file) as client:
            await run(client, f"x = '{'a' * 30_000}'")
            assert not (await client.call_tool("reset", {})).is_error
            await client.call_tool("fork", {"name": "b"})
            code = {"code": f"x = '{'b' * 30_000}'", "branch": "b"}
            assert not (await client.call_tool("run_cell", code)).is_error
            for name, given in (
                ("run_cell", {"code": "1"}),
                ("reset", {}),
                ("fork", {"name": "c"}),
            ):
                told = await client.call_tool(name, given)
                assert told.is_error, name
                assert "it has the 65,536 bytes that the log of a session may have" in text_of(told)

    go(main())


def test_the_audit_logs_end_is_short_however_long_its_lines_are(policy):
    file = policy('extends = "safe"\naudit.sources = true\n')

    async def main():
        async with stdio("--policy", file) as client:
            for at in range(3):
                await run(client, f"x = '{'a' * 700_000}{at}'")
            (found,) = (await client.read_resource("cellblock://audit")).contents
            assert '"kind":"cell"' in found.text
            assert "aaa2" in found.text
            assert len(found.text) < 1_000_000

    go(main())


def test_arguments_that_do_not_fit_are_told_to_the_model(home):
    assert home

    async def main():
        async with stdio() as client:
            for arguments in (
                {},
                {"code": 1},
                {"code": "1", "policy": "unsafe"},
                {"code": "1", "timeout": -1},
            ):
                reply = await client.call_tool("run_cell", arguments)
                assert reply.is_error
                assert text_of(reply).startswith("run_cell: ")
            with pytest.raises(Exception, match="Unknown tool: fly"):
                await client.call_tool("fly", {})
            with pytest.raises(Exception, match="No such resource"):
                await client.read_resource("cellblock://artifacts/../../etc/passwd")
            # Lone surrogates, and an id that is no sequence, end nothing.
            assert "The cell" in text_of(await run(client, "print('\\ud800')\nprint('\\x1b[2J')"))

    go(main())


def test_images_are_image_content_and_resources(home, policy):
    assert home
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"

    async def main():
        async with stdio("--policy", policy('extends = "data"')) as client:
            reply = await run(client, code)
            (image,) = [one for one in reply.content if isinstance(one, types.ImageContent)]
            assert image.mime_type == "image/png"
            assert base64.b64decode(image.data).startswith(b"\x89PNG")
            uris = [one.uri for one in (await client.list_resources()).resources]
            assert uris == [
                "cellblock://policy",
                "cellblock://enforcement",
                "cellblock://audit",
                "cellblock://receipt",
                "cellblock://plots/1",
            ]
            found = {uri: (await client.read_resource(uri)).contents[0] for uri in uris}
            assert found["cellblock://plots/1"].blob == image.data
            assert found["cellblock://policy"].text.startswith("Policy agent")
            assert '"kind":"cell"' in found["cellblock://audit"].text
            receipt = receipts.verify(
                found["cellblock://receipt"].text, receipts.own_key().public_key()
            )
            assert receipt.predicate.source_sha256 == hashlib.sha256(code.encode()).hexdigest()

    go(main())


def test_a_link_to_a_file_leads_to_no_other_later(home, policy):
    (home / "work").mkdir()
    exporting = 'extends = "data"\nartifact_export_paths = ["work/*.csv"]'

    async def main():
        async with stdio("--policy", policy(exporting), "--project", home) as client:

            async def write(*names):
                code = f"for n in {names}:\n    with open(f'work/{{n}}.csv', 'w') as f:\n"
                reply = await run(client, f"{code}        print(n, end='', file=f)")
                return [one for one in reply.content if isinstance(one, types.ResourceLink)]

            await write(*range(200))  # as many as are kept
            (first,) = await write(200)
            (second,) = await write(201)
            assert first.uri != second.uri
            found = [(await client.read_resource(one.uri)).contents[0] for one in (first, second)]
            assert [base64.b64decode(one.blob) for one in found] == [b"200", b"201"]

    go(main())


def test_progress_is_reported_as_a_cell_prints(home, mode):
    assert home

    async def main():
        said = []

        async def on_progress(progress, total, message):
            said.append((progress, total, message))

        async with stdio(mode=mode) as client:
            code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)"
            await run(client, code, progress_callback=on_progress)
        assert [one[0] for one in said] == sorted({one[0] for one in said})
        assert "".join(one[2] for one in said).split() == ["0", "1", "2"]

    go(main())


@pytest.mark.parametrize("code", ["while True: pass", "import time\ntime.sleep(1000)"])
def test_a_cancelled_call_interrupts_its_cell_and_costs_no_variables(home, mode, code):
    assert home

    async def main():
        async with stdio(mode=mode) as client:
            await run(client, "kept = 1")
            with anyio.move_on_after(1):
                await run(client, code)
            with anyio.fail_after(10):
                assert text_of(await run(client, "kept")).endswith("result:\n  1")

    go(main())


def test_a_model_asks_for_less_time_and_never_for_more(home, policy):
    assert home

    async def main():
        async with stdio("--policy", policy('extends = "safe"\ntimeout = 2.0')) as client:
            for seconds, limit in ((0.5, "0.5 s"), (1_000, "2 s")):
                arguments = {"code": "while True: pass", "timeout": seconds}
                reply = await client.call_tool("run_cell", arguments)
                assert f"longer than {limit}" in text_of(reply)
                assert reply.structured_content["stop"]["why"] == "timeout"

    go(main())


@pytest.mark.parametrize("answer", ["once", "no", "decline", "forged"])
def test_a_person_is_asked_while_the_cell_waits_and_it_runs_once(home, policy, mode, answer):
    (home / "a.txt").write_text("text")
    asked = []

    async def on_question(_, params):
        asked.append(params.message)
        if answer == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"answer": answer})

    async def main():
        async with stdio(
            *("--policy", policy(ASKING), "--project", home),
            mode=mode,
            elicitation_callback=on_question,
        ) as client:
            await run(client, "ran = []")
            reply = await run(client, "ran.append(1)\nprint(ops.read_file('a.txt'))")
            assert asked[0].startswith("may cell [2] call ops.read_file?\n  path = 'a.txt'")
            source = "    ran.append(1)\n    print(ops.read_file('a.txt'))"
            assert asked[0].endswith(f"The cell, which a model wrote:\n\n{source}")
            assert len(asked) == 1
            assert reply.is_error is (answer != "once")
            told = "The person at the client was asked about ops.read_file, and said no."
            assert text_of(reply).endswith("text" if answer == "once" else told)
            assert text_of(await run(client, "len(ran)")).endswith("result:\n  1")

    go(main())


def test_what_variants_ask_at_the_same_time_is_put_one_after_the_other(home, policy, mode):
    asked = []

    async def on_question(_, params):
        asked.append(params.message.splitlines()[1])
        return types.ElicitResult(action="accept", content={"answer": "once"})

    async def main():
        names = [f"{number}.txt" for number in range(4)]
        for name in names:
            (home / name).write_text(name)
        codes = [f"ops.read_file({name!r})" for name in names]
        async with stdio(
            *("--policy", policy(ASKING), "--project", home),
            mode=mode,
            elicitation_callback=on_question,
        ) as client:
            told = await client.call_tool("try_variants", {"codes": codes})
        assert sorted(asked) == [f"  path = {name!r}" for name in names]
        assert all(f"result:\n  {name!r}" in text_of(told) for name in names)

    go(asyncio.wait_for(main(), 120))


def test_without_elicitation_it_is_denied_with_what_the_operator_would_set(home, policy, mode):
    (home / "a.txt").write_text("text")
    needs = "this MCP client has no elicitation. The operator allows it, unasked, with"

    async def main():
        async with stdio("--policy", policy(ASKING), "--project", home, mode=mode) as client:
            call = text_of(await run(client, "ops.read_file('a.txt')"))
            assert call.endswith(f'{needs} approvals = "never" in the policy.')
            module = text_of(await run(client, "import bz2"))
            assert module.endswith(f'{needs} add.allowed_modules = ["bz2"] in the policy.')
        remedy = ASKING.replace('"prompt"', '"never"') + '[add]\nallowed_modules = ["bz2"]\n'
        async with stdio("--policy", policy(remedy), "--project", home, mode=mode) as client:
            assert not (await run(client, "import bz2\nops.read_file('a.txt')")).is_error

    go(main())


def test_a_question_that_nobody_comes_back_for_ends_with_the_client(home, policy):
    (home / "a.txt").write_text("text")

    async def main():
        async with stdio(
            *("--policy", policy(ASKING), "--project", home),
            mode="2026-07-28",
            elicitation_callback=_never,
        ) as client:
            state = None
            async with asyncio.timeout(10):
                first = await client.session.call_tool(
                    "run_cell", {"code": "ops.read_file('a.txt')"}, allow_input_required=True
                )
            assert isinstance(first, types.InputRequiredResult)
            state = first.request_state
            # A yes to some other question counts for nothing: this one is still open.
            yes = types.ElicitResult(action="accept", content={"answer": "once"})
            again = await client.session.call_tool(
                "run_cell",
                {"code": "ops.read_file('a.txt')"},
                input_responses={"approval": yes},
                request_state=state,
                allow_input_required=True,
            )
            assert isinstance(again, types.InputRequiredResult)
            assert again.request_state == state
            forged = await client.session.call_tool(
                "run_cell", {"code": "1"}, request_state="0" * 32, allow_input_required=True
            )
            assert text_of(forged) == "Nothing waits for this answer any more."
            assert state

    go(main())
    processes.until(lambda: not processes.orphans())


def test_a_question_that_is_left_for_another_call_holds_the_session_no_longer(
    home, policy, monkeypatch
):
    (home / "a.txt").write_text("text")
    monkeypatch.setattr(sessions, "AWAY_TIMEOUT", 0.1)

    async def main():
        pool = AsyncSandboxPool(policy(ASKING), project=home)
        async with pool, sessions.Session(pool) as session:
            made = make_server(session)
            async with Client(made, mode="2026-07-28", elicitation_callback=_never) as client:
                code = {"code": "ops.read_file('a.txt')"}
                await client.session.call_tool("run_cell", code, allow_input_required=True)
                async with asyncio.timeout(20):
                    told = await client.call_tool("variables", {})
                assert text_of(told) == "There are no variables."

    go(main())


def test_a_call_that_ended_and_was_left_makes_room(home, policy, monkeypatch):
    (home / "a.txt").write_text("text")
    monkeypatch.setattr(sessions, "MAX_CALLS", 1)
    monkeypatch.setattr(sessions, "ANSWER_TIMEOUT", 0.1)

    async def main():
        code = {"code": "ops.read_file('a.txt')"}
        pool = AsyncSandboxPool(policy(ASKING), project=home)
        async with pool, sessions.Session(pool) as session:
            left = session.begin("run_cell", code, can_ask=True)
            question = await left.next()
            with pytest.raises(CellblockError, match="calls are under way"):
                session.begin("variables", {}, can_ask=False)
            await asyncio.wait({question.closed})
            assert (await left.next()).failed
            reply = await session.begin("variables", {}, can_ask=False).next()
            assert reply.text == "There are no variables."

    go(main())


async def _never(_context, _params):
    raise AssertionError("it is asked by hand")


def test_what_is_staged_is_kept_only_by_a_person(home, policy, mode):
    file = policy(STAGING)
    asked, answers = [], ["no", "once"]

    async def on_question(_, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": answers.pop(0)})

    async def main():
        async with stdio(
            "--policy", file, "--project", home, mode=mode, elicitation_callback=on_question
        ) as client:
            reply = await run(client, "open('new.txt', 'w').write('made')")
            if reply.is_error:
                pytest.skip(f"nothing can be staged here: {text_of(reply)}")
            listed = await client.call_tool("changes", {"diff": True})
            assert text_of(listed).startswith(f"new: {home}/new.txt, 4 bytes\n")
            assert "\n  +made" in text_of(listed)  # the host's own lines stand further left
            no = await client.call_tool("keep", {})
            assert text_of(no) == "nothing was kept: the person at the client said no"
            assert not (home / "new.txt").exists()
            yes = await client.call_tool("keep", {"paths": ["new.txt"]})
            assert text_of(yes) == f"Kept: 1\n{home}/new.txt"
            assert (home / "new.txt").read_text() == "made"
            assert asked[0].startswith("May this keep 1 staged file?\n")
        async with stdio("--policy", file, "--project", home, mode=mode) as client:
            await run(client, "open('other.txt', 'w').write('made')")
            unasked = text_of(await client.call_tool("keep", {}))
            assert "In a terminal: cellblock changes keep " in unasked
            assert not (home / "other.txt").exists()

    go(main())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_nothing_is_left_of_a_client_or_server_that_vanishes(home, how):
    assert home
    server = subprocess.Popen(
        argv(), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    server.stdin.write(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        '"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'
        '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_cell",'
        '"arguments":{"code":"while True: pass"}}}\n'
    )
    server.stdin.flush()
    assert "cellblock" in server.stdout.readline()
    processes.until(lambda: len(processes.tree(server.pid)) > 2)
    started = processes.tree(server.pid)
    if how is None:
        server.stdin.close()
    else:
        server.send_signal(how)
    server.wait(20)
    assert processes.gone(started) == []
    server.stdout.close()


def test_a_policy_that_is_wrong_is_told_before_anything_is_served(home):
    assert home
    command = argv("--policy", "nowhere.toml")
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "cellblock: nowhere.toml: no such file. Check the path.\n"


def test_the_command_is_usable_without_the_sdk_being_imported_first():
    code = "import cellblock.cli.mcp, sys; print('mcp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


@pytest.mark.parametrize("somebody", machines.users(wrapped=True), indirect=True)
def test_it_serves_whoever_it_runs_as_on_either_backend(somebody):
    world, prefix = somebody["world"], somebody["prefix"]
    command, *rest = [*prefix, *argv("--policy", "data")]
    server = StdioServerParameters(
        command=command, args=rest, env=world.environment(), cwd=world.work
    )

    async def main():
        async with Client(server) as client:
            said = text_of(await run(client, "import os\nopen('/root/x', 'w')"))
            assert said.startswith("The cell failed: ")
            await run(client, "x = b'abc'")
            assert "x: bytes, 3, " in text_of(await client.call_tool("variables", {}))
            enforced = await client.read_resource("cellblock://enforcement")
            assert f'"backend": "{world.backend}"' in enforced.contents[0].text

    go(main())
