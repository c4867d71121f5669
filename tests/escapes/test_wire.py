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

Two attacks are under way at a time, since most wait for a limit. Programs that say no more than that
their cell ends as a violation share a kernel: each loses its guest, and the host's bound holds for
all of them together.
"""

import os
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock.host.memory import HOST_MEMORY
from support import processes, reading
from support.kernels import Kernel, World, argv_changed, argv_for, nobody_prefix, world_of_nobody
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
        nobody = user == "nobody"
        self.world = world_of_nobody() if nobody else World()
        argv = argv_for(policy(self.world, seconds), "--allow-unsafe")
        prefix = nobody_prefix() if nobody else ()
        self.kernel = Kernel(argv, world=self.world, prefix=prefix)
        self.before = 0

    @staticmethod
    def can_be(user):
        """Say whether a kernel can be started as ``user`` here."""
        return user != "nobody" or nobody_prefix() is not None

    def attack(self, name):
        """Run a program; return by how many bytes the host had grown at most by then."""
        if not self.before:
            self.before = peak_memory(self.kernel.wait_ready().proc.pid)
        attack(self.kernel, name)
        grown = peak_memory(self.kernel.proc.pid) - self.before
        assert grown < HOST_MEMORY
        return grown

    def end(self):
        """End the kernel, of which nothing stays."""
        assert self.kernel.end() == []
        assert self.kernel.proc.returncode == 0
        assert list((self.world.root / "tmp").glob("cellblock-*")) == []

    def close(self):
        """Clear away what a failure left."""
        processes.end(self.kernel.end())
        self.world.close()


def attack_alone(user, name):
    target = Target(user, expected(PROGRAMS[name]).get("timeout", 3))
    try:
        grown = target.attack(name)
        target.end()
    finally:
        target.close()
    return grown


def attack_in_turn(told):
    """Run programs against one kernel; ``told`` takes the result of each, by its name."""
    target = Target("same user", 3)
    try:
        for name, result in told.items():
            if not result.set_running_or_notify_cancel():
                break
            try:
                result.set_result(target.attack(name))
            except BaseException as exc:  # noqa: BLE001 - raised where it is waited for
                result.set_exception(exc)
                target.close()
                target = Target("same user", 3)
        target.end()
    finally:
        target.close()


#: What a head says of a program after which the guest is another, and nothing else is to be seen.
PLAIN = {"ends": "protocol"}


@pytest.fixture(scope="module")
def attacks(request):
    """Return the results of the attacks that this run asks for, by user and name."""
    asked_for = [
        (item.callspec.params["user"], item.callspec.params["name"])
        for item in request.session.items
        if getattr(item, "originalname", "") == "test_the_next_cell_runs_and_a_violation_is_said"
    ]
    shared = {
        name: Future()
        for user, name in asked_for
        if user == USERS[0] and expected(PROGRAMS[name]) == PLAIN
    }
    results = {(USERS[0], name): result for name, result in shared.items()}
    with ThreadPoolExecutor(2) as pool:
        in_turn = pool.submit(attack_in_turn, shared) if shared else None
        for case in asked_for:
            if case not in results and Target.can_be(case[0]):
                results[case] = pool.submit(attack_alone, *case)
        yield results
        for result in results.values():
            result.cancel()
    if in_turn is not None:
        in_turn.result()


USERS = ["same user", "nobody"] if os.geteuid() == 0 else ["same user"]
CASES = [(user, name) for user in USERS for name in (PROGRAMS if user == USERS[0] else OF_OTHERS)]


@pytest.mark.parametrize(("user", "name"), CASES)
def test_the_next_cell_runs_and_a_violation_is_said(attacks, user, name):
    if not Target.can_be(user):
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    print(f"the host grew by {attacks[user, name].result() >> 20} MiB")


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
