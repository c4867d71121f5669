"""Two MCP servers behind the page's proxy: one is killed, and what that costs is what it says."""

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import subprocess

import pytest
from mcp import MCPError

from cellblock.mcp.settings import HttpSettings
from cellblock.policy.load import load
from support import doc_pages, processes
from support.mcp_clients import argv, go, http_server, over_http, run, text_of
from support.ports import next_port

PAGE = "howto/mcp-machines.md"
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")


def configuration(port, addresses):
    """Return the page's, which finds servers by their names, for servers on this machine."""
    (text,) = doc_pages.files(PAGE, "cfg").values()
    text, replaced = re.subn(r"bind :8080\b", f"bind 127.0.0.1:{port}", text)
    servers = "\n".join(
        f"    server s{number} {address}" for number, address in enumerate(addresses)
    )
    text, found = re.subn(r"^ *server-template .*$", servers, text, flags=re.MULTILINE)
    assert (replaced, found) == (1, 1)
    return text


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def proxy(folder, port, addresses):
    """Have the page's proxy listen at a port, before these servers."""
    file = folder / "haproxy.cfg"
    file.write_text(configuration(port, addresses))
    process = subprocess.Popen([HAPROXY, "-db", "-f", file], stderr=subprocess.DEVNULL)
    try:
        processes.until(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None
        yield
    finally:
        process.kill()
        process.wait(20)


async def at_both(stack, address, servers):
    """Open sessions until each server has one; return a client of each, in their order."""
    found = {}
    for number in itertools.count():
        before = [len(processes.tree(one.pid)) for one in servers]
        client = await stack.enter_async_context(over_http(address))
        await run(client, f"x = {number}")
        grown = [
            len(processes.tree(one.pid)) > had for one, had in zip(servers, before, strict=True)
        ]
        found.setdefault(grown.index(True), (client, number))
        if len(found) == len(servers):
            return [found[at] for at in range(len(servers))]
    raise AssertionError


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
def test_a_killed_server_ends_its_own_sessions_with_an_error_and_no_others(home, tmp_path):
    assert home
    port = next_port()
    names = ("--allow-host", f"127.0.0.1:{port}")
    address = f"http://127.0.0.1:{port}/mcp"

    async def main(servers):
        async with contextlib.AsyncExitStack() as stack:
            (lost, _), (kept, number) = await at_both(stack, address, servers)
            began = asyncio.Event()

            async def said(*_):
                began.set()

            call = asyncio.create_task(
                run(lost, "print('began')\nwhile True: pass", progress_callback=said)
            )
            await began.wait()
            servers[0].kill()
            servers[0].wait()
            for each, told in (
                (call, "SSE stream ended without a response"),
                (run(lost, "x"), "No such session"),
            ):
                with pytest.raises(MCPError, match=told):
                    await each
            for _ in range(3):
                assert text_of(await run(kept, "x")).endswith(f"result:\n{number}")
            async with over_http(address) as new:
                assert text_of(await run(new, "1 + 1")).endswith("result:\n2")

    with http_server(*names) as (one, first), http_server(*names) as (other, second):
        where = [re.search(r"127\.0\.0\.1:\d+", each)[0] for each in (first, second)]
        with proxy(tmp_path, port, where):
            go(main([one, other]))


def options(words):
    return {word for word in words if word.startswith("--")}


def test_compose_and_kubernetes_start_what_there_is(tmp_path):
    """Servers with options that exist, under the page's policy, at the port and names of the proxy."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab and with bokeh")
    compose, manifest = doc_pages.files(PAGE, "yaml").values()
    (image,) = doc_pages.blocks(PAGE, "dockerfile")
    (proxied,) = doc_pages.files(PAGE, "cfg").values()
    services = yaml.safe_load(compose)["services"]
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(manifest)}
    pod = found["Deployment", "cellblock"]["spec"]["template"]["spec"]["containers"][0]

    help_text = subprocess.run(argv("--help"), check=True, capture_output=True, text=True).stdout
    entry = json.loads(re.search(r"ENTRYPOINT (.*)", image)[1])
    for given in (entry, services["cellblock"]["command"], pod["args"]):
        assert {one for one in options(given) if one not in help_text} == set()
    assert services["cellblock"]["command"] == pod["args"]

    (port,) = (one["port"] for one in found["Service", "cellblock"]["spec"]["ports"])
    assert f" cellblock:{port} " in proxied
    assert port == HttpSettings(token="").port
    (public,) = (one["port"] for one in found["Service", "mcp"]["spec"]["ports"])
    assert services["proxy"]["ports"] == [f"{public}:{public}"]
    assert f"bind :{public} " in proxied
    assert f"mcp.example.org:{public}" in pod["args"]

    (policy,) = doc_pages.files(PAGE, "toml").values()
    (tmp_path / "agent.toml").write_text(policy)
    loaded = load(str(tmp_path / "agent.toml"), project=tmp_path, allow_unsafe=False)
    assert loaded.timeout == 60


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
def test_the_proxy_takes_the_pages_configuration(tmp_path):
    (text,) = doc_pages.files(PAGE, "cfg").values()
    (tmp_path / "haproxy.cfg").write_text(text)
    checked = [HAPROXY, "-c", "-f", tmp_path / "haproxy.cfg"]
    ran = subprocess.run(checked, check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
