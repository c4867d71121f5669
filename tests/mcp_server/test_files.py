"""Files of a sandbox as resources: what a model can list and fetch, and what not."""

import base64
from urllib.parse import quote

import pytest

from cellblock import AsyncSandboxPool
from cellblock.mcp import session as sessions
from support.mcp_clients import MODES, go, run, stdio, text_of

MAKE = """
import os
open('made.csv', 'w').write('a,b\\n1,2\\n')
open('page.html', 'w').write('<script>alert(1)</script>')
open('escape.txt', 'w').write('\\x1b[2J')
open('acts.html', 'w').write('<script>alert(1)</script>\\x0c')
open('a b#?.bin', 'wb').write(bytes(range(256)))
open('chart.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n\\xff')
os.symlink('/etc/passwd', 'passwd')
os.symlink({outside!r}, 'outside')
os.truncate(os.open('large', os.O_CREAT | os.O_WRONLY), 4 * 2**20 + 1)
"""


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["private", "staged"])
def options(request, home):
    """The options of a server without a project, or with one."""
    (home / "mine.csv").write_text("mine")
    (home / ".env").write_text("key")
    return ("--policy", "data", *(("--project", home) if request.param else ()))


def uri(name):
    return f"cellblock://files/{quote(name)}"


def test_a_model_lists_and_fetches_what_cells_made(home, mode, options):
    before = sorted(home.iterdir())

    async def main():
        async with stdio(*options, mode=mode) as client:

            async def listed():
                found = (await client.list_resources()).resources
                return {one.name: one for one in found if "/files/" in one.uri}

            async def read(name):
                (found,) = (await client.read_resource(uri(name))).contents
                return found

            assert await listed() == {}
            made = await run(client, MAKE.format(outside=str(home.parent)))
            assert not made.is_error, text_of(made)
            found = await listed()
            names = [
                "a b#?.bin",
                "acts.html",
                "chart.png",
                "escape.txt",
                "large",
                "made.csv",
                "page.html",
            ]
            assert sorted(found) == names
            assert (found["made.csv"].uri, found["made.csv"].size) == (uri("made.csv"), 8)
            text = await read("made.csv")
            assert (text.text, text.mime_type) == ("a,b\n1,2\n", "text/csv")
            page = await read("page.html")
            assert (page.text, page.mime_type) == ("<script>alert(1)</script>", "text/plain")
            image = await read("chart.png")
            assert image.mime_type == "image/png"
            assert base64.b64decode(image.blob) == b"\x89PNG\r\n\x1a\n\xff"
            assert base64.b64decode((await read("a b#?.bin")).blob) == bytes(range(256))
            assert base64.b64decode((await read("escape.txt")).blob) == b"\x1b[2J"
            # One byte that is no text, and a client that goes by types would run it.
            acts = (found["acts.html"].mime_type, (await read("acts.html")).mime_type)
            assert acts == ("text/plain", "application/octet-stream")
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "cellblock://files/{+name}"
            await client.call_tool("reset", {})
            assert await listed() == {}

    go(main())
    assert sorted(home.iterdir()) == before


def test_a_model_fetches_nothing_that_cells_can_not(home, options):
    names = [
        *("passwd", "outside/secret", "large", "gone", "", ".env", "../secret", "/etc/passwd"),
        *("%2e%2e/secret", str(home.parent / "secret"), "own/../../secret", "~/../secret"),
    ]
    (home.parent / "secret").write_text("secret")

    async def main():
        async with stdio(*options) as client:
            await run(client, MAKE.format(outside=str(home.parent)))
            for name in names:
                for address in (uri(name), f"cellblock://files/{name}"):
                    with pytest.raises(Exception, match=r"sandbox|large|file|resource"):
                        await client.read_resource(address)
            mine = client.read_resource(uri("mine.csv"))
            if "--project" in options:
                assert (await mine).contents[0].text == "mine"
            else:
                with pytest.raises(Exception, match="No such file"):
                    await mine

    go(main())


def test_where_cells_are_admitted_a_model_gets_what_those_show(home, policy):
    (home / "mine.csv").write_text("mine")
    admits = policy('extends = "data"\nadmission = "approved"\n')

    async def main():
        async with stdio("--policy", admits, "--project", home) as client:
            with pytest.raises(Exception, match="resource"):
                await client.read_resource(uri("mine.csv"))

    go(main())


def test_what_is_listed_is_bounded_and_a_running_cell_holds_nothing_up(monkeypatch, home):
    assert home
    monkeypatch.setattr(sessions, "MAX_FILES", 5)

    async def main():
        pool = AsyncSandboxPool("data")
        async with pool, sessions.Session(pool) as session:
            code = {"code": "for n in range(9): open(f'{n}', 'w').close()"}
            assert not (await session.begin("run_cell", code, can_ask=False).next()).failed

            async def listed():
                return [link.name for link, _ in await session.resources() if "/files/" in link.uri]

            assert await listed() == ["0", "1", "2", "3", "4"]
            waits = {"code": "open('new', 'w').close()\nwhile True: pass"}
            call = session.begin("run_cell", waits, can_ask=False)
            assert await listed() == ["0", "1", "2", "3", "4"]
            session.end(call)

    go(main())
