"""The operator's tools, the host's operations and language models: one way for all of them."""

import pytest

pytest.importorskip("openai")

from support import model_kernels, reading, tool_kernels

ALL = "add(1), ops.read_file('a.txt'), str(llm('say yes'))"
SETTINGS = """
timeout = 120.0
tool_max_calls = 5
[ops.read_file]
roots = ["{{project}}"]
[ops.write_file]
roots = ["{{project}}"]
max_total_bytes = 10_000
[llm]
base_url = "{url}"
models = ["small"]
key_env = "{key}"
max_calls = 7
max_tokens = 100_000
"""
#: Has whoever is asked about calls refuse those that are named in a file.
ASKING = """
from pathlib import Path
from cellblock.host.session import narrowing
class Asked:
    def decide(self, call, proceed, refuse):
        refused = Path({path!r}).read_text().split()
        refuse("the user said no") if call.tool.name in refused else proceed()
    def dropped(self, number):
        pass
narrowing.approval_of = lambda *_: Asked()
"""


@pytest.fixture(scope="module")
def shared_world(shared_world):
    (shared_world.work / "a.txt").write_text("text")
    (shared_world.root / "refused").write_text("")
    return shared_world


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared, server):
    settings = SETTINGS.format(url=server.base_url, key=next(iter(model_kernels.ENVIRONMENT)))
    argv = tool_kernels.argv(shared_world, ("operators_tools:add",), settings)
    first = argv.index("-c") + 1
    argv[first] = ASKING.format(path=str(shared_world.root / "refused")) + argv[first]
    return start_shared(argv=argv, world=shared_world, extra_env=model_kernels.ENVIRONMENT)


def test_one_cell_calls_all_of_them_and_each_call_is_on_record(kernel):
    mid = kernel.execute_send(ALL)
    reply, published = kernel.reply(mid, timeout=60), kernel.until_idle(mid, timeout=60)
    assert reading.result(published) == "(2, 'text', 'yes')"
    assert [(one["name"], one["status"]) for one in tool_kernels.calls(reply)] == [
        ("add", "ok"),
        ("ops.read_file", "ok"),
        ("llm", "ok"),
    ]


def test_all_of_them_are_in_one_list_with_what_is_left(kernel):
    mid = kernel.execute_send("%tools")
    published = kernel.until_idle(mid)
    text = reading.card_text(published)
    assert text.startswith("1 tool of the policy's, 4 tools of the host's\n")
    (card,) = reading.cards(published, "tools")
    assert [tool["name"] for tool in card["tools"]] == [
        "add",
        "ops.read_file",
        "ops.write_file",
        "llm",
        "llm.chat",
    ]
    assert set(card["budgets"]) == {"llm", "ops.write_file"}


@pytest.mark.parametrize("name", ["add", "ops.read_file", "llm"])
def test_whoever_is_asked_about_calls_is_asked_about_all(kernel, shared_world, server, name):
    (shared_world.root / "refused").write_text(name)
    asked = len(server.asked)
    content, _ = kernel.run(ALL)
    assert (content["ename"], content["evalue"]) == (
        "ToolError",
        f"{name}: NotApproved: the user said no",
    )
    (shared_world.root / "refused").write_text("")
    assert len(server.asked) == asked, "no call that is refused costs anything"


def test_a_cell_may_make_so_many_calls_whoever_is_called(kernel):
    content, _ = kernel.run(f"{ALL}\n{ALL}")
    assert content["evalue"] == ("llm: CallRefused: a cell may call tools 5 times (tool_max_calls)")
