"""Operations as cells call them: what is granted, what is not, and what is told of it."""

import json
import os

import pytest

from cellblock.host.services.operations import catalog
from support import processes, reading, tool_kernels
from support.kernels import argv_for
from support.web import Web, answer

GRANTS = """
timeout = 120.0
[ops.read_file]
roots = ["{project}/data"]
max_bytes = 3_000_000
[ops.write_file]
roots = ["{project}/data"]
max_bytes = 2_000_000
max_total_bytes = 2_500_000
[ops.list_dir]
roots = ["{project}/data"]
[ops.http]
hosts = ["http://127.0.0.1:PORT"]
methods = ["GET", "POST"]
paths = ["/v1/"]
allow_private = true
"""


def say(path, _head):
    if path == "/v1/items":
        return answer(b'[{"n": 1}]', content_type="application/json; charset=utf-8")
    if path == "/v1/latin":
        return answer(b"caf\xe9", content_type="text/plain; charset=latin-1")
    return answer(b"gone", "404 Not Found")


@pytest.fixture(scope="module")
def web():
    with Web(say) as made:
        yield made


@pytest.fixture(scope="module")
def shared_world(shared_world):
    (shared_world.work / "data").mkdir()
    (shared_world.work / "data" / "a.csv").write_text("x,y\n1,2\n")
    (shared_world.work / "data" / "large").write_text("x" * 2_500_000)
    (shared_world.work / "outside.txt").write_text("outside")
    return shared_world


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared, web):
    policy = shared_world.policy(GRANTS.replace("PORT", str(web.port)))
    return start_shared(argv=argv_for(policy), world=shared_world)


@pytest.fixture(scope="module")
def bare(start_shared):
    """Return a kernel whose policy grants nothing."""
    return start_shared("safe")


def run(kernel, code):
    mid = kernel.execute_send(code)
    reply, published = kernel.reply(mid, timeout=120), kernel.until_idle(mid)
    assert reply["content"]["status"] == "ok", reply["content"]
    return reply, published


def value(kernel, code):
    return reading.result(run(kernel, code)[1])


def failure(kernel, code):
    content, _ = kernel.run(code)
    return f"{content['ename']}: {content['evalue']}"


# --- called, and waited for -------------------------------------------------------------------


WAITED_FOR = {
    "ops.read_file('data/a.csv')": r"'x,y\n1,2\n'",
    "ops.read_file('data/a.csv', binary=True)[:3]": "b'x,y'",
    "await ops.read_file('data/a.csv', size=1)": "'x'",
    "len(ops.read_file('data/large'))": "2500000",
    "{'a.csv', 'large'} <= {e['name'] for e in ops.list_dir('data')}": "True",
    "len(await asyncio.gather(*(ops.read_file('data/a.csv') for _ in range(40))))": "40",
    "await asyncio.gather(*(asyncio.to_thread(ops.list_dir, 'data') for _ in '12')) and 3": "3",
    "async def first(): return await ops.read_file('data/a.csv', size=1)\nawait first()": "'x'",
    "asyncio.run(first())": "'x'",
}


@pytest.mark.quick
def test_an_operation_is_waited_for_as_one_can(kernel):
    assert {code: value(kernel, code) for code in WAITED_FOR} == WAITED_FOR


def test_what_is_written_is_there_to_be_read(kernel, shared_world):
    assert value(kernel, "ops.write_file('data/new.txt', 'é')") == "2"
    assert (shared_world.work / "data" / "new.txt").read_text("utf-8") == "é"
    code = (
        "ops.write_file('data/new.bin', b'\\x00\\xff'), ops.read_file('data/new.bin', binary=True)"
    )
    assert value(kernel, code) == r"(2, b'\x00\xff')"


def test_a_session_writes_no_more_than_it_may(kernel):
    code = (
        "ops.write_file('data/much', 'x' * 1_500_000)\nops.write_file('data/more', 'x' * 1_500_000)"
    )
    said = failure(kernel, code)
    assert said.startswith("ToolError: ops.write_file: BudgetSpent: it counts as 1,500,0")
    assert said.endswith(" of 2,500,000 bytes are left for this session")
    left = said.rpartition(": ")[2]
    assert f"ops.write_file: {left}." in reading.card_text(run(kernel, "%tools")[1])
    assert f"ops.write_file: {left}." in reading.card_text(run(kernel, "%usage")[1])


def test_a_response_is_read_in_every_way(kernel, web):
    code = f"url = 'http://127.0.0.1:{web.port}/v1/'\n"
    code += "items = await ops.http(url + 'items')\n"
    run(kernel, f"{code}latin, gone = await ops.http(url + 'latin'), await ops.http(url + 'none')")
    assert value(kernel, "items") == "<Response 200: 10 bytes of application/json>"
    assert value(kernel, "items.json(), items.headers['content-type'], items.ok") == (
        "([{'n': 1}], 'application/json; charset=utf-8', True)"
    )
    assert value(kernel, "latin.text, latin.content") == r"('café', b'caf\xe9')"
    assert value(kernel, "gone.status, gone.ok, gone.url == url + 'none'") == "(404, False, True)"
    assert failure(kernel, "gone.raise_for_status()") == (
        f"ToolError: ops.http: HTTPStatusError: 404 for http://127.0.0.1:{web.port}/v1/none"
    )


def test_a_request_is_made_without_await(kernel, web):
    code = f"ops.http('http://127.0.0.1:{web.port}/v1/items', params={{'a': 1}}).status"
    assert value(kernel, code) == "404"
    assert web.asked[-1].startswith("GET /v1/items?a=1 ")


# --- what is not granted ----------------------------------------------------------------------


@pytest.mark.quick
def test_what_no_section_grants_says_which_would(bare):
    assert {name: failure(bare, f"ops.{name}('x')") for name in catalog.ALL} == {
        name: f"ToolError: ops.{name}: NotGranted: {catalog.refusal(f'ops.{name}')}"
        for name in catalog.ALL
    }
    assert catalog.refusal("ops.read_file") == (
        "this policy does not grant ops.read_file; a section [ops.read_file] in it would, with"
        " roots, the folders that may be read"
    )
    assert failure(bare, "await ops.http('x', y=1)").startswith("ToolError: ops.http: NotGranted")
    assert value(bare, "ops") == "<operations: this policy grants none>"
    assert value(bare, "dir(ops)") == "[]"
    assert failure(bare, "ops.other") == "AttributeError: there is no operation ops.other"


def test_what_is_refused_is_told_with_what_was_asked(bare):
    reply, _ = run(bare, "try: ops.read_file('secret.txt')\nexcept ToolError: pass")
    (call,) = tool_kernels.calls(reply)
    assert (call["name"], call["args"], call["status"]) == (
        "ops.read_file",
        ["secret.txt"],
        "refused",
    )


def test_nothing_runs_on_the_host_for_what_is_not_granted(bare):
    run(bare, "try: ops.read_file('x')\nexcept ToolError: pass")
    assert _workers(bare) == []


def test_the_first_call_of_what_is_granted_starts_one_worker(kernel):
    run(kernel, "ops.list_dir('data')\nops.list_dir('data')")
    assert len(_workers(kernel)) == 1


def _workers(kernel):
    """Return the pids of processes in which the host runs what cells call."""
    return [
        pid
        for pid in kernel.tree()
        if b"services.tools.worker" in processes.read_file(pid, "cmdline")
    ]


@pytest.mark.parametrize(
    "code",
    [
        "ops.read_file('outside.txt')",
        "ops.read_file('data/../outside.txt')",
        "ops.read_file('/etc/passwd')",
        "ops.read_file('/proc/self/environ')",
        "ops.write_file('data/../outside.txt', 'x')",
        "ops.list_dir('.')",
        "ops.http('http://127.0.0.1:1/v1/')",
        "ops.http('http://localhost/v1/')",
    ],
)
def test_what_a_section_does_not_cover_is_not_granted(kernel, code):
    said = failure(kernel, code)
    assert said.startswith(f"ToolError: {code.partition('(')[0]}: NotGranted: ")
    assert "cb-world" not in said


def test_a_method_or_path_beyond_the_section_is_not_granted(kernel, web):
    url = f"http://127.0.0.1:{web.port}"
    before = len(web.asked)
    for code in (f"ops.http('{url}/v2/')", f"ops.http('{url}/v1/', method='DELETE')"):
        assert failure(kernel, code).startswith("ToolError: ops.http: NotGranted: ")
    assert len(web.asked) == before


WRONG = {
    "ops.read_file()": "TypeError: ops.read_file() missing a required argument: 'path'."
    " Call it as ops.read_file(path: str, *, binary: bool = False, offset: int = 0, size: int | None = None)"
    " -> str | bytes",
    "ops.read_file(object())": "TypeError: ops.read_file(): argument 'path': object can't be passed as data",
    "ops.read_file(7)": "ToolError: ops.read_file: ValidationError: path: Input should be a valid string",
    "ops.write_file('data/x', 'x' * 3_000_000)": "ValueError: ops.write_file(): the arguments: it takes 3,000,015 bytes; 2,065,536"
    " may be passed (max_bytes)",
    "ops.read_file('data/none')": "ToolError: ops.read_file: FileNotFoundError: data/none: No such file or directory",
}


@pytest.mark.parametrize("code", WRONG)
def test_what_is_wrong_says_so(kernel, code):
    assert failure(kernel, code) == WRONG[code]


# --- seen -------------------------------------------------------------------------------------


def test_ops_is_completed_and_described(kernel):
    asked = kernel.ask("complete_request", {"code": "ops.", "cursor_pos": 4})
    names = [match.rpartition(".")[2] for match in asked["content"]["matches"]]
    assert sorted(names) == ["http", "list_dir", "read_file", "write_file"]
    asked = kernel.ask(
        "inspect_request", {"code": "ops.read_file", "cursor_pos": 13, "detail_level": 0}
    )
    shown = reading.ANSI.sub("", asked["content"]["data"]["text/plain"])
    assert "ops.read_file(" in shown
    assert "path: str" in shown
    assert "Relative paths are relative to the folder" in shown
    assert "ops" not in reading.stream(run(kernel, "%who")[1]).split()


def test_tools_lists_what_is_granted(kernel, bare):
    _, published = run(kernel, "%tools")
    (card,) = reading.cards(published, "tools")
    assert [tool["name"] for tool in card["tools"]] == [
        "ops.read_file",
        "ops.write_file",
        "ops.list_dir",
        "ops.http",
    ]
    assert card["tools"][1]["signature"] == "ops.write_file(path: str, data: str | bytes) -> int"
    assert reading.card_text(published).startswith("4 tools of the host's\n")
    _, published = run(bare, "%tools")
    assert reading.card_text(published) == (
        "There are no tools: the policy names none, and grants no operation."
    )


def test_the_policy_shows_each_grant(kernel):
    text = reading.card_text(run(kernel, "%policy")[1])
    assert "ops.read_file.roots" in text
    assert "ops.http.paths" in text


def test_each_call_is_one_event_and_headers_are_secret(kernel, shared_world, web, records):
    url = f"http://127.0.0.1:{web.port}/v1/items"
    run(kernel, f"ops.http('{url}', headers={{'Authorization': 'Bearer hunter2'}}).status")
    kernel.run("ops.read_file('outside.txt')")
    run(kernel, "1")  # what is entered after a reply is, by now
    calls = records(shared_world, "tool")
    asked = [one for one in calls if one["name"] == "ops.http" and one["args"] == [url]][-1]
    assert (asked["outcome"], asked["kwargs"]) == ("ok", {"headers": "•••"})
    refused = [one for one in calls if one["args"] == ["outside.txt"]][-1]
    assert (refused["name"], refused["outcome"], refused["error"]) == (
        "ops.read_file",
        "error",
        "NotGranted",
    )
    assert "hunter2" not in json.dumps(records(shared_world))


def test_the_reply_tells_of_a_call_what_it_came_to(kernel):
    reply, _ = run(kernel, "ops.read_file('data/a.csv', size=1)")
    (call,) = tool_kernels.calls(reply)
    assert call.pop("seconds") > 0
    assert call == {
        "name": "ops.read_file",
        "args": ["data/a.csv"],
        "kwargs": {"size": 1},
        "status": "ok",
        "result": "x",
    }


def test_a_denial_shows_the_operation_that_does_the_job(kernel, bare):
    _, published = kernel.run("rows = open('data/a.csv').readlines()")
    text = reading.card_text(published)
    assert '    text = ops.read_file("data/a.csv")\n    lines = text.splitlines()' in text
    _, published = bare.run("rows = open('data/a.csv').readlines()")
    text = " ".join(reading.card_text(published).split())
    assert 'ops.read_file.roots = ["{project}"] add.read_deny_paths = ["@secrets"]' in text


# --- whatever cells do ------------------------------------------------------------------------

ROADS = [
    "getattr(ops.read_file, '__glo' + 'bals__')",
    "getattr(ops.read_file, '__clo' + 'sure__')",
    "getattr(ops.read_file, '__co' + 'de__')",
    "getattr(type(ops).__repr__, '__glo' + 'bals__')",
    "getattr(type(items).json, '__glo' + 'bals__')",
    "getattr(type(items).text.fget, '__glo' + 'bals__')",
    "getattr(ops.http, '__clo' + 'sure__')",
    "'{0.__globals__}'.format(ops.http)",
]


@pytest.mark.parametrize("road", ROADS)
def test_no_road_leads_from_an_operation_to_what_made_it(kernel, web, road):
    run(kernel, f"items = ops.http('http://127.0.0.1:{web.port}/v1/items')")
    reply, published = kernel.run(f"found = {road}\nfound")
    assert reply["status"] == "error", reading.result(published)
    assert reply["ename"] in {"AttributeViolation", "PolicyDenied"}


@pytest.mark.parametrize(
    "code",
    ["type(ops).__repr__ = None", "type(ops).x = 1", "type(items).json = None", "items.more = 1"],
)
def test_what_a_cell_makes_of_our_classes_stays_with_it(kernel, web, code):
    run(kernel, f"items = ops.http('http://127.0.0.1:{web.port}/v1/items')")
    assert kernel.run(code)[0]["ename"] in {"TypeError", "AttributeError"}


def test_a_name_of_the_users_own_takes_the_place_of_ops_and_gives_it_back(bare):
    assert value(bare, "ops = [1]\nops") == "[1]"
    assert value(bare, "del ops\nops") == "<operations: this policy grants none>"


def test_a_killed_cell_costs_no_file(kernel):
    run(kernel, "kept = ops.write_file('data/before.txt', 'a')")
    os.kill(kernel.guest(), 9)
    run(kernel, "1")
    assert value(kernel, "kept, ops.read_file('data/before.txt')") == "(1, 'a')"
