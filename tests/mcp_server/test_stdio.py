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
            await client.call_tool("fork", {"name": "b"})
            await client.call_tool("run_cell", {"code": "print('in b ' * 9_000)", "branch": "b"})
            page = await client.call_tool("output", {"cell": 2, "branch": "b"})
            assert text_of(page).count("in b ") > 300

    go(main())


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("['x' * 60] * 900", "cell=1, stream=display"),
        (
            "import sys\nprint('x' * 60_000)\nprint('y' * 9_000, file=sys.stderr)",
            "cell=1, stream=stdout; cell=1, stream=stderr",
        ),
        (
            "print('x\\n' * 600_000)",
            "cell=1, stream=stdout (its first 500,000 bytes)",
        ),
    ],
)
def test_the_pages_that_a_reply_names_are_there_and_it_says_how_much_is_kept(
    home, policy, code, where
):
    assert home

    async def main():
        file = policy(
            'extends = "safe"\nstdout_max_bytes = 40_000\noutput_kept_max_bytes = 1_000_000'
        )
        async with stdio("--policy", file) as client:
            reply = await run(client, code)
            begins = re.search(r", page=(\d+) of \d+, where what is missing begins", text_of(reply))
            assert (
                text_of(reply)
                .replace(begins[0] if begins else "", "")
                .endswith(f"\n\nMore of it is in pages of the tool output: {where}.")
            )
            if "stdout" in where:
                given = {"cell": 1, "stream": "stdout", "page": int(begins[1])}
                page = text_of(await client.call_tool("output", given))
                assert f"page {begins[1]} of " in page
                assert given["page"] > 1
            for named in where.partition(" (")[0].split("; "):
                given = dict(pair.split("=") for pair in named.split(", "))
                page = await client.call_tool("output", given | {"cell": int(given["cell"])})
                assert "page 1 of " in text_of(page)
            bare = await client.call_tool("output", {"cell": 1})
            assert "page 1 of " in text_of(bare)

    go(main())


def test_variants_that_are_cut_say_so(home):
    assert home

    async def main():
        async with stdio() as client:
            codes = ["print('x' * 9_000)", "1"]
            told = text_of(await client.call_tool("try_variants", {"codes": codes}))
            assert told.endswith(
                "\n\nCut to 2,000 characters each: print less, or run the cell of one by run_cell."
            )
            told = text_of(await client.call_tool("try_variants", {"codes": ["1", "2"]}))
            assert "Cut to" not in told

    go(main())


def test_a_cell_an_error_a_refusal_and_variables(home, mode):
    assert home

    async def main():
        async with stdio(mode=mode) as client:
            good = await run(client, "x = [1, 2]\nprint('hello')\nsum(x)")
            assert text_of(good) == "The cell ran.\n\nstdout:\nhello\n\nresult:\n3"
            assert good.structured_content == {
                "status": "ok",
                "execution_count": 1,
                "text": text_of(good),
            }
            assert not good.is_error
            forged = await run(
                client, "print('x\\n\\nstderr:\\n\\nThe cell\\rThe cell was not run: no')"
            )
            assert text_of(forged) == (
                "The cell ran.\n\nstdout:\nx\n\n\\stderr:\n\n\\The cell was not run: no"
            )
            made = await run(client, "x = [1, 2]")
            assert text_of(made) == (
                "The cell ran and showed nothing.\n\nIt assigned x: list, length 2"
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
            assert text_of(listed) == "x: list, length 2"
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
            assert text_of(told).startswith(
                "Variant kept: 3.\n\nVariant 1: The cell ran.\n\nresult:\n0.25"
            )
            assert "2: The cell failed: ZeroDivisionError" in text_of(told)
            receipt = (await client.read_resource("cellblock://receipt")).contents[0].text
            said = receipts.verify(receipt, receipts.own_key().public_key())
            assert said.predicate.source_sha256 == hashlib.sha256(codes[2].encode()).hexdigest()
            why = text_of(await client.call_tool("explain", {"topic": "refusal"}))
            assert why == "The last cell was not refused."
            assert text_of(await run(client, "x")).endswith("result:\n4")
            codes = ["'a'", "x = [1]"]
            told = await client.call_tool("try_variants", {"codes": codes, "keep": "largest"})
            why = "none that succeeded ends in an expression whose value is a number"
            assert f"Variant kept: none, as {why}" in text_of(told)
            assert text_of(told).endswith("It assigned x: list, length 1")
            told = await client.call_tool("try_variants", {"codes": ["1 / 0", "import gc"]})
            assert told.is_error
            assert text_of(told).startswith(
                "Variant kept: none, as none succeeded: variables are as they were."
            )
            why = text_of(await client.call_tool("explain", {"topic": "refusal"}))
            assert "ZeroDivisionError" in why
            assert "import-not-allowed" in why
            with pytest.raises(Exception, match="no variant was kept"):
                await client.read_resource("cellblock://receipt")
            assert text_of(await run(client, "x")).endswith("result:\n4")
            codes = ["while True: pass", "1 / 0"]
            told = await client.call_tool("try_variants", {"codes": codes, "timeout": 1})
            assert "What it did to variables is gone, unless this variant is kept." in text_of(told)
            assert "our variables are" not in text_of(told)

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
            told = await client.call_tool("undo", {"branch": "right", "cells": 3})
            assert "put aside" not in text_of(told)
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
            told = await client.call_tool("try_variants", {"codes": ["1"]})
            assert text_of(told).startswith("forks and variants are off under this policy: ")

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
            left_out = {"code": "6 * 7", "timeout": None, "branch": None}
            assert text_of(await client.call_tool("run_cell", left_out)).endswith("\n42")
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
            assert text_of(reply).endswith("\n\nIts pictures: cellblock://plots/1.")
            assert reply.structured_content["resources"] == ["cellblock://plots/1"]
            assert reply.structured_content["text"] == text_of(reply)
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


def test_pictures_that_are_not_sent_are_named_and_each_is_said_to_be_its_variants(home, policy):
    assert home
    code = "import matplotlib.pyplot as plt\nfor n in range({}):\n    plt.plot([n]); plt.show()"

    async def main():
        async with stdio("--policy", policy('extends = "data"')) as client:
            reply = await run(client, code.format(6))
            assert sum(isinstance(one, types.ImageContent) for one in reply.content) == 4
            missing = "Pictures that could not be sent to you: "
            named = f"{missing}cellblock://plots/5, cellblock://plots/6."
            assert named in text_of(reply)
            codes = [code.format(1), "1", code.format(4)]
            reply = await client.call_tool("try_variants", {"codes": codes})
            assert sum(isinstance(one, types.ImageContent) for one in reply.content) == 4
            first, second, third = text_of(reply).split("Variant ")[2:]
            assert first.rstrip().endswith(
                "Its pictures: cellblock://plots/7.\n\nOf this reply's pictures it has: 1."
            )
            assert "pictures" not in second
            assert "Of this reply's pictures it has: 2 to 4." in third
            assert f"{missing}cellblock://plots/11." in third

    go(main())


def test_a_cell_can_ask_nobody_and_what_is_no_python_is_no_step(home):
    assert home

    async def main():
        async with stdio() as client:
            told = text_of(await run(client, "input('name? ')"))
            assert told.startswith(
                "The cell failed: EOFError: nobody answers this cell's questions"
            )
            await run(client, "x = 1")
            assert "was not run" in text_of(await run(client, "x = = 2"))
            await client.call_tool("undo", {})
            assert text_of(await client.call_tool("variables", {})) == "There are no variables."
            told = text_of(await client.call_tool("undo", {"cells": 99}))
            assert told.count("%undo 99") == 1

    go(main())


def test_a_large_picture_is_smaller_in_a_reply_and_whole_as_a_resource(home, policy):
    assert home
    code = (
        "import io, os\nfrom PIL import Image\nfrom IPython.display import Image as Shown\n"
        "file = io.BytesIO()\n"
        "Image.frombytes('RGB', (700, 700), os.urandom(700 * 700 * 3)).save(file, 'png')\n"
        "Shown(file.getvalue())"
    )

    async def main():
        async with stdio("--policy", policy('extends = "data"')) as client:
            reply = await run(client, code)
            (image,) = [one for one in reply.content if isinstance(one, types.ImageContent)]
            (link,) = [one for one in reply.content if isinstance(one, types.ResourceLink)]
            assert 2**18 < len(image.data) <= 2**20
            (whole,) = (await client.read_resource(link.uri)).contents
            assert len(base64.b64decode(whole.blob)) > 700 * 700 * 3

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
                assert text_of(await run(client, "kept")).endswith("result:\n1")

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
            assert asked[0] == (
                "May cell [2] call ops.read_file?\n"
                "  path = 'a.txt'\n"
                "Yes, for this session: call ops.read_file in any cell, whatever the arguments.\n\n"
                "The cell, which a model wrote:\n\n"
                "    ran.append(1)\n    print(ops.read_file('a.txt'))"
            )
            assert len(asked) == 1
            assert reply.is_error is (answer != "once")
            told = "ToolError: ops.read_file: NotApproved: the person at the client was asked, and did not allow it\n"
            assert ("text" if answer == "once" else told) in text_of(reply)
            assert "said no" not in text_of(reply)
            if answer != "once":
                why = text_of(await client.call_tool("explain", {"topic": "refusal"}))
                assert told in why
            assert text_of(await run(client, "len(ran)")).endswith("result:\n1")

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
        assert all(f"result:\n{name!r}" in text_of(told) for name in names)

    go(asyncio.wait_for(main(), 120))


def test_without_elicitation_it_is_denied_with_what_the_operator_would_set(home, policy, mode):
    (home / "a.txt").write_text("text")
    needs = "obody could be asked: this MCP client has no elicitation. The operator can allow it, unasked, with"

    async def main():
        async with stdio("--policy", policy(ASKING), "--project", home, mode=mode) as client:
            call = text_of(await run(client, "ops.read_file('a.txt')"))
            said = f'n{needs} approvals = "never" in the policy'
            assert f"ToolError: ops.read_file: NotApproved: {said}\n" in call
            caught = "try: ops.read_file('a.txt')\nexcept ToolError as e: print(e)"
            assert text_of(await run(client, caught)).endswith(f"NotApproved: {said}")
            module = text_of(await run(client, "import bz2"))
            told = f'Do without bz2. N{needs} add.allowed_modules = ["bz2"] in the policy.'
            assert module.endswith(f"    import bz2\n  Instead: {told}")
            assert text_of(await client.call_tool("explain", {"topic": "refusal"})) == module
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


def test_a_person_is_spared_many_questions_of_one_cell(home, policy, mode):
    for name in "abcd":
        (home / name).write_text("text")
    asked = []

    async def on_question(_, params):
        asked.append(params.message)
        return types.ElicitResult(action="decline")

    code = (
        "for name in 'aabcd':\n    try:\n        ops.read_file(name)\n"
        "    except Exception as error:\n        print(error)"
    )

    async def main():
        file = policy(ASKING)
        async with stdio(
            "--policy", file, "--project", home, mode=mode, elicitation_callback=on_question
        ) as client:
            told = text_of(await run(client, code))
            assert len(asked) == 3
            assert "did not allow this in this cell, and is not asked again" in told
            assert "did not allow 3 requests of this cell, and is asked nothing more" in told
            await run(client, code)
            assert len(asked) == 6

    go(main())


async def _never(_context, _params):
    raise AssertionError("it is asked by hand")


def test_what_is_staged_is_kept_only_by_a_person(home, policy, mode):
    file = policy(STAGING)
    (home / "mine.txt").write_text("mine")
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
            assert text_of(reply).endswith(
                "\n\nStaged, the project is as it was: new new.txt. The tool keep asks a person to do the "
                "same in the project."
            )
            assert "Staged" not in text_of(await run(client, "open('new.txt').read()"))
            assert "%changes keep" not in text_of(await run(client, "%changes"))
            told = text_of(await run(client, "%changes keep"))
            assert told == (
                "The cell failed: ChangesError: no cell keeps files here: the tool keep asks a "
                "person to"
            )
            listed = await client.call_tool("changes", {"diff": True})
            assert text_of(listed).startswith(f"new: {home}/new.txt, 4 bytes\n")
            assert "\n  +made" in text_of(listed)  # the host's own lines stand further left
            no = await client.call_tool("keep", {})
            assert (
                text_of(no)
                == "nothing was kept: the person at the client was asked, and did not allow it"
            )
            assert not (home / "new.txt").exists()
            yes = await client.call_tool("keep", {"paths": ["new.txt"]})
            assert text_of(yes) == f"Kept: 1\n{home}/new.txt"
            assert (home / "new.txt").read_text() == "made"
            again = text_of(await run(client, "open('new.txt', 'w').write('again')"))
            assert "\nStaged, the project is as it was: changed new.txt. " in again
            moved = text_of(await run(client, "import os; os.rename('mine.txt', 'yours.txt')"))
            told = "\nStaged, the project is as it was: deleted mine.txt; new yours.txt. "
            assert told in moved
            key = text_of(await run(client, "open('.env', 'w').write('K=1')"))
            assert "\nNever kept: .env (files of this name hold secrets). " in key
            never = await client.call_tool("changes", {"paths": [".env"], "diff": True})
            assert text_of(never).endswith("  .env: not shown, as the policy denies it")
            assert asked[0].startswith("May this session keep 1 staged file?\n")
        async with stdio("--policy", file, "--project", home, mode=mode) as client:
            reply = text_of(await run(client, "open('other.txt', 'w').write('made')"))
            unasked = text_of(await client.call_tool("keep", {"paths": ["other.txt"]}))
            command = unasked.partition("In a terminal: ")[2]
            assert re.fullmatch(rf"cellblock changes keep \S+ {home}/other.txt", command)
            whole = command.removesuffix(f" {home}/other.txt")
            assert reply.endswith(f" in the project: {whole}")
            assert not (home / "other.txt").exists()
            told = text_of(await client.call_tool("reset", {}))
            assert told.endswith(f"A person can keep what was staged: {whole}")
            changes = text_of(await client.call_tool("changes", {}))
            assert changes == "Cells have written nothing to the project."

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
            assert "x: bytes, length 3, " in text_of(await client.call_tool("variables", {}))
            enforced = await client.read_resource("cellblock://enforcement")
            assert f'"backend": "{world.backend}"' in enforced.contents[0].text

    go(main())
