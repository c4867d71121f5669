"""The wire, attacked from its guest: one program per attack, in mode unsafe, in a real kernel.

Each program is arbitrary code that writes to its channel as it likes, behind `wire/prelude.txt`.
Lines at its head say what must come of it:

    # ends: protocol      how its cell ends: ok, any, or the reason on the card
    # after: protocol     a card that comes by itself when the cell has ended
    # next: protocol      how the cell behind it ends, where that is not well: `ok after protocol`
                          where it runs, but in the next guest
    # ask: complete       a query to put before the next cell
    # interrupt: once     how often the user presses the button
    # timeout, stdin      seconds that a cell may take (3), whether it may ask (no)

Always: the front end gets reply and idle, the host stays under its bound, the next cell runs, and
nothing is left when the kernel has ended.
"""

import re
import time
from pathlib import Path

import pytest

from cellblock.host.memory import HOST_MEMORY
from support import reading
from support.kernels import argv_changed
from support.processes import peak_memory

FOLDER = Path(__file__).parent / "wire"
PRELUDE = (FOLDER / "prelude.txt").read_text()
PROGRAMS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.py"))}
#: Attacks on what a user's rights decide: signals, descriptors, processes.
OF_OTHERS = [
    "credentials_on_the_channel",
    "descriptor_on_the_channel",
    "end_told_twice",
    "interrupt_blocked",
    "interrupt_ignored",
    "interrupt_while_stopped",
    "large_socket_buffers",
    "out_of_band_data",
    "pipes_that_do_not_block",
    "process_that_stays_behind",
    "signals_by_way_of_its_descriptors",
    "stopped_by_itself",
]


def expected(program):
    return dict(re.findall(r"^# (\w+): (.*)$", program, re.MULTILINE))


def policy(world, seconds):
    return world.policy(f"mode = 'unsafe'\ntimeout = {float(seconds)}")


def card_of(published):
    """Return the reason on the card of a cell or an interpreter that was stopped, or None."""
    cards = reading.cards(published, "outcome")
    return cards[-1]["reason"] if cards else None


def awaited_card(kernel):
    """Return the reason on a card that was shown, or will be, without a request."""
    seen = [message for channel, message in kernel.log if channel == "iopub"]
    return card_of(seen) or card_of(kernel.until(lambda m: m["msg_type"] == "display_data"))


def outcome(kernel, mid, seconds=20):
    """Return how a request ended: ok, error, or the reason on its card."""
    reply = kernel.reply(mid, timeout=seconds)["content"]
    published = kernel.until_idle(mid)
    if reply["status"] == "error" and reply["ename"] == "CellStopped":
        reason = card_of(published)
        assert reply["evalue"] == reading.of(published, "error")[-1]["evalue"]
        assert (reason == "protocol") == ("broke the kernel's protocol" in reply["evalue"])
        return reason
    lost = card_of(published)
    return f"{reply['status']} after {lost}" if lost else reply["status"]


def press(kernel, times):
    """Interrupt as a user does: when the cell runs, and again when nothing came of it."""
    time.sleep(0.5)
    for _ in range(times):
        kernel.interrupt()
        time.sleep(1.0)


def asked(kernel, what):
    """Put a query; a reply, whatever is in it, is what a front end waits for."""
    size = 20 << 20 if "20 MB" in what else 10
    content = {"code": "x" * 10, "cursor_pos": 1, "detail_level": 0}
    if what.startswith("comms of"):
        data = {"comm_id": "a", "target_name": "t", "data": {"x": "x" * size}}
        mids = [kernel.send("comm_open", data) for _ in range(4)]
    else:
        mids = [kernel.send(f"{what}_request", content)]
        kernel.reply(mids[0], timeout=15)
    for mid in mids:
        kernel.until_idle(mid, timeout=15)


def next_cell(kernel):
    """Return how the next cell ends; one that hangs behind what is left is interrupted."""
    mid = kernel.execute_send("6 * 7")
    if not kernel.shell.poll(8_000):
        kernel.interrupt()
    return outcome(kernel, mid)


def attack(kernel, name):
    program = PROGRAMS[name]
    plan = expected(program)
    before = peak_memory(kernel.proc.pid)
    if "before" in plan:
        assert kernel.run(plan["before"])[0]["status"] == "ok"
    mid = kernel.execute_send(PRELUDE + program, allow_stdin="stdin" in plan)
    if "interrupt" in plan:
        press(kernel, {"once": 1, "twice": 2}[plan["interrupt"]])
    ended = outcome(kernel, mid)
    # A card that came in between, when a guest was lost at once, is looked for below.
    assert plan["ends"] in {ended, ended.partition(" after ")[0], "any"}, ended
    if "ask" in plan:
        asked(kernel, plan["ask"])
    if "after" in plan:
        assert awaited_card(kernel) == plan["after"]
    if "next" in plan:
        reached = next_cell(kernel)
        if reached == "ok":  # the card that is awaited came before it
            reached = f"ok after {awaited_card(kernel)}"
        assert reached == plan["next"]
    reached = next_cell(kernel)
    # What ends in any way may be found out while the next cell is on its way to that guest.
    assert reached == "ok" or (plan["ends"] == "any" and reached == "ok after protocol")
    grown = peak_memory(kernel.proc.pid) - before
    print(f"the host grew by {grown >> 20} MiB")
    assert grown < HOST_MEMORY
    assert kernel.end() == []
    assert kernel.proc.returncode == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_next_cell_runs_and_a_violation_is_said(start, world, name):
    seconds = expected(PROGRAMS[name]).get("timeout", 3)
    attack(start(policy(world, seconds), "--allow-unsafe", world=world), name)


@pytest.mark.parametrize("name", OF_OTHERS)
def test_the_same_holds_for_another_user(somebody, start, name):
    seconds = expected(PROGRAMS[name]).get("timeout", 3)
    world = somebody["world"]
    attack(start(policy(world, seconds), "--allow-unsafe", **somebody), name)
    assert list((world.root / "tmp").glob("cellblock-*")) == []


#: What a host would have to lack for these to go unnoticed.
LACKING = {
    "end_of_a_cell_to_come": "conduct.reply = lambda *_: ''",
    "beginning_of_another_cell": "conduct.began = lambda *_: ''",
    "question_where_none_may_be_asked": "conduct.question = lambda *_: ''",
}


@pytest.mark.parametrize("name", LACKING)
def test_a_host_that_lets_it_pass_would_be_noticed(start, world, name):
    change = f"from cellblock.host import conduct; {LACKING[name]}"
    argv = argv_changed(change, policy(world, 3), "--allow-unsafe")
    kernel = start(argv=argv, world=world)
    mid = kernel.execute_send(PRELUDE + PROGRAMS[name])
    assert outcome(kernel, mid) != "protocol"
