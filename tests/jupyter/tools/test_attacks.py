"""Calls that no honest guest makes, from cells that may write to the channel as they like."""

import pytest

from support import processes, reading, tool_kernels

FORGER = """
import os, msgspec
def say(**fields):
    body = msgspec.msgpack.encode(fields)
    os.write(3, len(body).to_bytes(4, "big") + body)
def call(name, id=7, arguments=None):
    say(type="tool_call", id=id, name=name, arguments=arguments or [[], {}])
"""


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared):
    settings = "tool_max_in_flight = 4\ntool_max_bytes = 20_000\ntool_max_calls = 200"
    argv = tool_kernels.argv(shared_world, settings=settings, mode="unsafe")
    return start_shared(argv=argv, world=shared_world)


def run(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply
    return reading.result(published)


def still_works(kernel):
    return run(kernel, "add(1)") == "2"


BREACHES = {
    "call('no_tool')": "a call of what is no tool",
    "call('slow', 7, [[30], {}]); call('add', 7)": "a call under an id that is in use",
    "for n in range(5): call('slow', n, [[30], {}])": "more calls at once than there may be",
    "call('echo', 7, [['x' * 20_001], {}])": "a call with larger arguments than there may be",
    "say(type='tool_result', id=1, value=1, kind='', message='')": "undecodable frame",
    "say(type='tool_call', id=-1, name='add', arguments=[])": "undecodable frame",
    "say(type='tool_call', id=1, name='add', arguments=[], more=1)": "undecodable frame",
    "call('echo', 7, [[{(n,): n for n in range(9_000)}], {}])": "an array or a map is the key of a map",
    "body = msgspec.msgpack.encode({'type': 'tool_call', 'id': 1, 'name': 'echo',"
    " 'arguments': msgspec.Raw(b'\\x91' * 19_000)})\n"
    "os.write(3, len(body).to_bytes(4, 'big') + body)": "undecodable frame",
}


@pytest.mark.parametrize("attack", BREACHES)
def test_a_forged_call_ends_its_guest(kernel, attack):
    reply, published = kernel.run(f"{FORGER}{attack}\nimport time; time.sleep(10)")
    assert reply["status"] == "error"
    assert BREACHES[attack] in reading.card_text(published).replace("\n", " ")
    assert still_works(kernel)


@pytest.mark.parametrize(
    "attack",
    [
        # Never asked for by anybody who waits, so whatever comes back is nobody's.
        "for n in range(1_000_000, 1_000_003): call('add', n, [[1], {}])",
        "call('add', 2**53, [[1, 2, 3, 4], {'b': 5}])",
        "call('add', 99, [1, 2])",
        "call('echo', 98, {'value': 1})",
        "call('echo', 97, [[], {'__class__': 1}])",
        "for n in range(300): say(type='tool_withdrawn', id=n)",
        "call('slow', 96, [[5], {}]); say(type='tool_withdrawn', id=96)",
    ],
)
def test_a_forged_call_that_is_none_of_anybodys_harms_nobody(kernel, attack):
    assert run(kernel, f"kept = 1{FORGER}{attack}\n2") == "2"
    assert still_works(kernel)
    assert run(kernel, "kept") == "1"


def test_the_last_call_of_a_cell_is_answered_to_nobody(kernel):
    assert run(kernel, f"{FORGER}for n in range(4): call('add', 5_000 + n, [[n], {{}}])") is None
    assert run(kernel, "[add(n) for n in range(4)]") == "[1, 2, 3, 4]"


def test_a_flood_is_refused_and_outlived(kernel):
    code = f"""{FORGER}
import select
for n in range(3_000):
    call('add', 10_000 + n, [[1], {{}}])
    if select.select([3], [], [], 0)[0]: os.read(3, 1 << 16)
"""
    # Who takes more calls than there may be at once is ended, who takes one by one is refused.
    kernel.run(code)
    assert still_works(kernel)


def test_calls_that_are_taken_back_again_and_again_pile_up_nowhere(start, world):
    """Their worker is busy: what it was sent it would hold, and what it was not sent, the host."""
    names = ("add", "echo", "fetch", "stall", "worker_pid")
    entries = tuple(f"operators_tools:{name}" for name in names)
    kernel = start(argv=tool_kernels.argv(world, entries, mode="unsafe"))
    worker = int(run(kernel, "worker_pid()"))
    both = (worker, kernel.proc.pid)
    before = [processes.peak_memory(pid) for pid in both]
    code = f"""{FORGER}
call('stall', 1, [[3], {{}}])
for n in range(300):
    call('fetch', 2, [['x' * 1_000_000], {{}}])
    say(type='tool_withdrawn', id=2)
"""
    run(kernel, code)
    assert run(kernel, "add(1)") == "2"
    grown = [processes.peak_memory(pid) - was for pid, was in zip(both, before, strict=True)]
    assert max(grown) < 230 << 20
    assert int(run(kernel, "worker_pid()")) == worker


def test_an_honest_flood_is_refused_one_by_one(kernel):
    code = "said = []\nfor n in range(205):\n    try: add(n)\n"
    code += "    except ToolError as error: said.append(error.kind)\nsaid"
    assert run(kernel, code) == str(["CallRefused"] * 5)


def test_no_tool_is_called_while_a_name_is_completed(kernel):
    code = "heard = []\nclass Eager:\n    def __dir__(self):\n        try: heard.append(add(1))\n"
    code += "        except ToolError as error: heard.append(error.kind)\n        return []\n"
    run(kernel, f"{code}eager = Eager()")
    kernel.ask("complete_request", {"code": "eager.", "cursor_pos": 6})
    assert run(kernel, "set(heard)") == "{'CallRefused'}"


def test_a_session_without_tools_knows_no_call(start):
    kernel = start("unsafe", "--allow-unsafe")
    _, published = kernel.run(f"{FORGER}call('add')\nimport time; time.sleep(10)")
    assert "a call of what is no tool" in reading.card_text(published).replace("\n", " ")
    # The host's own operations are known, and none of them is granted.
    forged = f"{FORGER}call('ops.read_file', 7, [['x' * 70_000], {{}}])\n"
    assert kernel.run(f"{forged}1")[0]["status"] == "ok"
    assert kernel.run("ops.read_file('x')")[0]["ename"] == "ToolError"


#: In mode safe: every way from a tool to what made it.
ROADS = [
    "getattr(add, '__glo' + 'bals__')",
    "getattr(add, '__clo' + 'sure__')",
    "getattr(add, '__co' + 'de__')",
    "getattr(type(add), '__glo' + 'bals__')",
    "getattr(ToolError.__init__, '__glo' + 'bals__')",
    "getattr(waiting, 'cr_' + 'frame')",
    "getattr(waiting, 'cr_' + 'code')",
    "getattr(error.__traceback__, 'tb_' + 'frame')",
    "getattr(error.__traceback__.tb_next, 'tb_' + 'frame')",
    "setattr(add, '__co' + 'de__', None)",
    "add.__class__.__call__.__self__.cr_frame",
    "'{0.__globals__}'.format(add)",
]


@pytest.fixture(scope="module")
def safe_kernel(shared_world, start_shared):
    kernel = start_shared(argv=tool_kernels.argv(shared_world), world=shared_world)
    run(kernel, "waiting = fetch('x')\ntry: fail()\nexcept ToolError as caught: error = caught")
    return kernel


@pytest.mark.parametrize("road", ROADS)
def test_no_road_leads_from_a_tool_to_what_made_it(safe_kernel, road):
    reply, published = safe_kernel.run(f"found = {road}\nfound")
    assert reply["status"] == "error", reading.result(published)
    assert reply["ename"] in {"AttributeViolation", "PolicyDenied"}


def test_what_a_cell_makes_of_a_tools_class_stays_with_it(safe_kernel):
    code = "try:\n    ToolError.__str__ = lambda self: 'mine'\nexcept TypeError as refused:\n"
    assert "immutable" in run(safe_kernel, f"{code}    said = str(refused)\nsaid")
