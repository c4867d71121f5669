"""The gateway alone: every program of `escapes/display` without the language layer.

Whatever it shows, no message that a front end gets holds anything active; the stock kernel sends
it on as it is, and then the same reader sees it.
"""

import pytest

from support import reading
from support.active_content import in_message
from support.attacks import ATTACKS, prelude
from support.client import is_idle
from support.kernels import argv_of

NOWHERE = dict.fromkeys(ATTACKS, 9)
UNSAFE = "mode = 'unsafe'\non_unsupported = 'ignore'\ndisplay_max_bytes = 64_000_000\n"
MODES = ["sanitized", "isolated"]


@pytest.fixture(scope="module")
def stock(start_shared):
    kernel = start_shared(argv=argv_of("python3"))
    kernel.run(prelude(NOWHERE))
    return kernel


@pytest.fixture(scope="module")
def gateways(start_shared, tmp_path_factory):
    """Return a kernel by each way to display that lets markup pass."""
    return {mode: gateway(start_shared, tmp_path_factory.mktemp("policy"), mode) for mode in MODES}


def gateway(start, folder, mode):
    policy = folder / "attacked.toml"
    policy.write_text(f"{UNSAFE}display = '{mode}'\n")
    kernel = start(policy, "--allow-unsafe")
    kernel.run(prelude(NOWHERE))
    return kernel


def found(kernel, attack):
    """Run an attack's cells; return what of their messages acts."""
    acting = []
    for cell in attack.cells:
        reply, published = kernel.run(cell, allow_stdin=False)
        if reply["status"] == "error" and reading.cards(published, "outcome"):
            # Killed for what it said on the wire: that is an end of its own, and a new guest serves.
            kernel.run(prelude(NOWHERE))
            continue
        answer = {"msg_type": "execute_reply", "content": reply}
        acting += [hit for msg in [*published, answer] for hit in in_message(msg)]
    return acting


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_that_acts_passes_the_gateway_and_the_stock_kernel_passes_it_on(
    gateways, stock, name
):
    for mode, kernel in gateways.items():
        assert found(kernel, ATTACKS[name]) == [], mode
    assert found(stock, ATTACKS[name]) != []


def test_there_are_enough_of_them():
    assert len(ATTACKS) > 200
    assert all(attack.about for attack in ATTACKS.values())


DENIED_WHILE_CLEARING = """
import asyncio
from IPython.display import clear_output
async def clear():
    for _ in range(40):
        await asyncio.sleep(0.05)
        clear_output()
task = asyncio.get_running_loop().create_task(clear())
"""


def test_a_denial_is_not_cleared_away(start):
    kernel = start("safe")
    assert kernel.run(DENIED_WHILE_CLEARING)[0]["status"] == "ok"
    refused, waits = kernel.execute_send("import gc"), kernel.execute_send("await task")
    heard = kernel.until(lambda msg: is_idle(msg) and of_request(msg) == waits)
    shown = [msg for msg in heard if of_request(msg) == refused]
    assert len(reading.cards(shown, "denial")) == 1
    assert reading.of(shown, "clear_output") == []
    assert reading.of(heard, "clear_output") != []  # positive control


def of_request(msg):
    return msg["parent_header"].get("msg_id")


HOSTILE = r"""
class Hostile:
    "\x1b]0;title\x07\x1b[2J<script>hit()</script>"
    def __dir__(self): return ["ab\x1b]0;title\x07", "ac\nforged", "ad"]
    def __getattr__(self, name): raise AttributeError(name)
    def __repr__(self): return "\x1b]0;title\x07\x9b2J"
    def _repr_html_(self): return "<img src=x onerror=hit()>"
hostile = Hostile()
"""


def answers(kernel):
    """Return what acts in completions, inspections, expressions and a question."""
    kernel.run(HOSTILE)
    code = "hostile.a"
    replies = [
        kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)}),
        kernel.ask("inspect_request", {"code": "hostile", "cursor_pos": 3, "detail_level": 1}),
        {
            "msg_type": "execute_reply",
            "content": kernel.run("", user_expressions={"a": "hostile"})[0],
        },
    ]
    return [[hit for hit in in_message(reply) if hit != "\n"] for reply in replies]


def test_answers_hold_nothing_that_acts_and_the_stock_kernels_do(gateways, stock):
    for mode, kernel in gateways.items():
        assert answers(kernel) == [[], [], []], mode
    assert all(answers(stock)[1:])


def test_a_question_is_one_line_of_plain_text(gateways):
    gateway = gateways["sanitized"]
    mid = gateway.execute_send(r"input('\x1b]0;t\x07a\n\x1b[2Jb\r<b>')", allow_stdin=True)
    question = gateway.recv("stdin")
    gateway.send("input_reply", {"value": "x"}, "stdin")
    gateway.reply(mid)
    gateway.until_idle(mid)
    assert question["content"]["prompt"] == "a b<b>"
