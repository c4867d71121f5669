"""Whoever has tools says so before the first guest, and no name is anybody's twice."""

import msgspec
import pytest

from cellblock.host.services.tools.calls import Call, Tooling
from cellblock.host.services.tools.providers import Providers
from cellblock.policy.model import Llm, Policy
from cellblock.wire.messages import Tool


class Source:
    """Has tools of these names, when the test has it say so."""

    def __init__(self, *names):
        self.tools = tuple(Tool(name=name) for name in names)
        self.begun, self.closed = [], False

    def open(self, on_tools, on_failed):
        self.say, self.fail = lambda: on_tools(self.tools), on_failed

    def begin(self, call):
        self.begun.append(call.tool.name)

    def narrow_to(self, timeout, timeouts):
        self.held = timeout, timeouts

    def close(self):
        self.closed = True


@pytest.fixture
def made():
    """Make providers of a program's functions, with language models or without."""

    def make(source, policy=PLAIN):
        providers = Providers(None, Tooling(functions=lambda: source, policy=policy))
        reported = []
        providers.open(
            lambda: reported.append("ready"), lambda error: reported.append(str(error)), print
        )
        return providers, reported

    return make


PLAIN = Policy()
MODELS = Policy(llm=Llm(base_url="http://127.0.0.1:1/v1", models=("small",), max_calls=1))


def test_no_guest_is_started_before_a_programs_functions_are_known(made):
    source = Source("add", "look_up")
    providers, reported = made(source)
    assert (providers.awaited, providers.tools, reported) == (True, (), [])
    source.say()
    assert (providers.awaited, providers.tools, reported) == (False, source.tools, ["ready"])
    providers.close()
    assert source.closed


def test_a_call_goes_to_whoever_has_the_tool(made):
    source = Source("add")
    providers, _ = made(source, MODELS)
    source.say()
    assert [tool.name for tool in providers.tools] == ["add", "llm", "llm.chat"]
    providers.begin(Call(1, source.tools[0], msgspec.Raw(), print))
    assert source.begun == ["add"]


def test_tools_that_a_narrower_policy_has_not_are_gone_before_they_are_known_and_after(made):
    source = Source("add", "look_up")
    providers, _ = made(source)
    narrower = Tooling(policy=Policy(tool_timeout=2.0, tool_timeouts={"add": 1.0}))
    providers.narrow_to(narrower, {"add"})
    assert source.held == (2.0, {"add": 1.0})
    source.say()
    assert [tool.name for tool in providers.tools] == ["look_up"]
    providers.narrow_to(narrower, {"look_up"})
    assert providers.tools == ()


def test_a_name_that_the_policy_has_is_no_functions(made):
    source = Source("llm")
    providers, reported = made(source, MODELS)
    source.say()
    assert reported == [
        "tools: the policy has a tool of this name already (got 'llm'). Rename one of them."
    ]
    assert providers.awaited is True


def test_a_fork_has_the_operators_tools_that_are_not_gone_before_any_worker_starts():
    policy = Policy(tools=("module:look_up", "module:add"))
    ready = []
    fork = Providers(None, Tooling(policy=policy))
    fork.expect({"tools": (Tool(name="look_up"), Tool(name="add"))})
    fork.open(lambda: ready.append(True), pytest.fail, print)
    assert (fork.awaited, ready, [tool.name for tool in fork.tools]) == (
        False,
        [True],
        ["look_up", "add"],
    )
    fork.narrow_to(Tooling(policy=policy), {"add"})
    assert fork.from_workers == {"tools": (Tool(name="look_up"),)}
    fork.close()
