"""The wire, attacked from its guest: one program per attack, in mode unsafe, in a real kernel.

Each program is arbitrary code that writes to its channel as it likes, behind `wire/prelude.txt`.
Lines at its head say what must come of it:

    # ends: protocol      how its cell ends: ok, any, or the reason on the card
    # after: protocol     a card that comes by itself when the cell has ended
    # next: protocol      how the cell behind it ends, where that is not well: `ok after protocol`
                          where it runs, but in the next guest
    # ask: complete       a query to put before the next cell
    # interrupt: once     how often the user presses the button
    # timeout, stdin      seconds that a cell may take (3, or 60 where it ends as a violation, for a busy
                          machine), whether it may ask (no)

Always: the front end gets reply and idle, the host stays under its bound, the next cell runs, and
nothing is left when the kernel has ended.

Programs share a kernel, each in a guest that no other was in, and the host's bound holds for all of
them together.
"""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

from cellblock.host.files import HOST_MEMORY
from support import machines, processes, reading
from support.kernels import Kernel, argv_changed, argv_for, world_and_prefix
from support.processes import peak_memory

FOLDER = Path(__file__).parent / "wire"
PRELUDE = (FOLDER / "prelude.txt").read_text()
PROGRAMS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.py"))}
#: What a head says of a program whose guest is ended for what it sent.
PLAIN = {"ends": "protocol"}
QUICK = pytest.mark.quick
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


def is_quick(name):
    """Say whether a program's guest is ended for what it sent, at once."""
    return expected(PROGRAMS[name]) == PLAIN and not re.search("flood|_million|closed|splice", name)


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
    for number in range(times):
        time.sleep(1.0 if number else 0.5)
        kernel.interrupt()


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
    """Run a program, and what its head says comes with it; the next cell runs."""
    program = PROGRAMS[name]
    plan = expected(program)
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


class Target:
    """A kernel to attack, and the memory that its host had before."""

    def __init__(self, user, seconds):
        self.world, prefix = world_and_prefix(user)
        argv = argv_for(policy(self.world, seconds), "--allow-unsafe")
        self.kernel = Kernel(argv, world=self.world, prefix=prefix)
        self.before = peak_memory(self.kernel.wait_ready().proc.pid)

    def lasting(self):
        """Return the names of the host's descendants, without those that wait as snapshots."""
        names = map(processes.name, self.kernel.tree()[1:])
        return sorted(name for name in names if name != "cb-snapshot")

    def attack(self, name):
        """Run a program; return by how many bytes the host had grown at most by then."""
        attack(self.kernel, name)
        grown = peak_memory(self.kernel.proc.pid) - self.before
        assert grown < HOST_MEMORY
        return grown

    def renew(self):
        """Have the next attack begin in a fresh guest, not in this one's snapshot either."""
        while self.kernel.run("CAP")[0].get("ename") != "NameError":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.kernel.zygote(), signal.SIGKILL)  # no copy outlives it
        self.kernel.log.clear()
        processes.until(lambda: self.lasting() == ["cb-guest", "cb-reaper", "cb-zygote"])

    def end(self):
        """End the kernel, of which nothing stays."""
        assert self.kernel.end() == []
        assert self.kernel.proc.returncode == 0
        assert list((self.world.root / "tmp").glob("cellblock-*")) == []

    def close(self):
        """Clear away what a failure left."""
        processes.end(self.kernel.end())
        self.world.close()


@pytest.fixture(scope="module")
def targets():
    """Kernels to attack, by user and time limit, while they withstand it."""
    made = {}
    yield made
    try:
        for target in made.values():
            target.end()
    finally:
        for target in made.values():
            target.close()


USERS = machines.users()
CASES = [
    pytest.param(user, name, marks=QUICK if is_quick(name) else [])
    for user in USERS
    for name in (PROGRAMS if user == USERS[0] else OF_OTHERS)
]


@pytest.mark.parametrize(("user", "name"), CASES)
def test_the_next_cell_runs_and_a_violation_is_said(targets, user, name):
    plan = expected(PROGRAMS[name])
    kind = user, plan.get("timeout", 60 if plan["ends"] == "protocol" else 3)
    target = targets.pop(kind, None) or Target(*kind)
    try:
        print(f"the host grew by {target.attack(name) >> 20} MiB")
        target.renew()
    except BaseException:
        target.close()
        raise
    targets[kind] = target


#: What a host would have to lack for these to go unnoticed.
_ANY = "requests.Requests._find = lambda self, _: self.request"
LACKING = {
    "end_of_a_cell_to_come": f"requests.check_reply = lambda *_: ''; {_ANY}",
    "beginning_of_another_cell": f"requests.check_began = lambda *_: ''; {_ANY}",
    "question_where_none_may_be_asked": "requests.check_question = lambda *_: ''",
}


@pytest.mark.parametrize("name", LACKING)
def test_a_host_that_lets_it_pass_would_be_noticed(start, world, name):
    change = f"from cellblock.host.session import requests; {LACKING[name]}"
    argv = argv_changed(change, policy(world, 3), "--allow-unsafe")
    kernel = start(argv=argv, world=world)
    mid = kernel.execute_send(PRELUDE + PROGRAMS[name])
    assert outcome(kernel, mid) != "protocol"
