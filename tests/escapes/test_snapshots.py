"""What a guest that has taken over its own process can make of snapshots: nothing more.

A snapshot is the one fork that a guest has where cells may start no processes. Each attack here
has the guest's own objects in its hands (mode unsafe) and wants a process besides, one that runs
while it should wait, one that outlives whoever should end it, or a host that pays for it.
"""

import json
import os
import signal
from pathlib import Path

import pytest

from support import guest_processes, machines, processes, reading
from support.processes import until

PRELUDE = """
import ctypes, gc, os, random, signal, sys, threading, time
from cellblock.wire import frames, messages
# A fork's child runs on with the GIL, unless somebody asked for it who is not there any more.
sys.setswitchinterval(1_000)
fork = ctypes.PyDLL(None).fork
def find(name):
    own = lambda o: type(o).__name__ == name and type(o).__module__.startswith("cellblock")
    return next(o for o in gc.get_objects() if own(o))
snapshots, channel = find("Snapshots"), find("Channel")
def refuse(request):
    for fd in channel.take_descriptors(): os.close(fd)
    channel.send(messages.SnapshotFailed(id=request.id, errno=11))
"""
#: Answered when its snapshot is decided: it is long, and a word in it says that it may come out
#: otherwise.
LONG = "; import time; time.sleep(0.11)  # now"


@pytest.fixture
def kernel(start):
    """A kernel whose guest does as it likes with what is its own."""
    kernel = start("unsafe", "--allow-unsafe")
    run(kernel, PRELUDE)
    return kernel


def run(kernel, code, status="ok"):
    reply, published = kernel.run(code)
    assert reply["status"] == status, (reply, kernel.stderr())
    return reading.result(published)


def stopped(kernel, code):
    """Run a cell that ends its guest; return how its card reads."""
    reply, published = kernel.run(code)
    assert reply["ename"] == "CellStopped", reply
    return reading.card_text(published)


def state(pid):
    """Return a process's state and the ticks that it ran for, or None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[11]) + int(fields[12])


def running(kernel):
    """Return the descendants of the zygote that run, or can: the guest left out."""
    others = set(kernel.tree()) - {kernel.proc.pid, kernel.zygote(), kernel.guest()}
    return [pid for pid in others if (state(pid) or "Z")[0] == "R"]


# --- a process besides ------------------------------------------------------------------------


def test_a_fork_that_takes_a_snapshots_place_is_ended(kernel):
    run(
        kernel,
        "def steal(request):\n"
        "    if fork() == 0:\n"
        "        while True: pass\n"
        "    refuse(request)\n"
        "snapshots.take = steal" + LONG,
    )
    run(kernel, "1" + LONG)
    run(kernel, "2" + LONG)
    until(lambda: not running(kernel))


def test_forks_in_a_loop_get_no_further_than_one_that_is_due(kernel):
    code = (
        "made = []\n"
        "for _ in range(300):\n"
        "    pid = fork()\n"
        "    if pid == 0: time.sleep(60)\n"
        "    if pid > 0: made.append(pid)\n"
        "made"
    )
    made = json.loads(run(kernel, code))
    assert len(made) <= 1
    run(kernel, "1" + LONG)
    until(lambda: not made or (state(made[0]) or "Z")[0] == "Z")


IN_A_LOOP = """
def forks(seconds):
    made, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        pid = fork()
        if pid == 0: time.sleep(60)
        if pid > 0: made.append(pid)
    return made
"""


def test_a_cell_can_not_take_the_fork_that_its_snapshot_is_due(kernel):
    run(kernel, IN_A_LOOP)
    for _ in range(5):
        kernel.execute_send("random.random(); time.sleep(0.01)")
        assert run(kernel, "forks(0.2)") == "[]"


def test_a_copy_that_never_says_that_it_stands_is_ended(kernel):
    hang = "def hang():\n    while True: pass\nos.register_at_fork(after_in_child=hang)  # now"
    mid = kernel.execute_send(hang)
    until(lambda: running(kernel))
    until(lambda: not running(kernel))
    assert kernel.reply(mid)["content"]["status"] == "ok"
    kernel.until_idle(mid)
    assert run(kernel, "6 * 7") == "42"


def test_a_copy_that_runs_on_while_it_should_wait_is_stopped(kernel):
    run(
        kernel,
        "def stand(request, fds, threads):\n"
        "    for target, fd in zip((3, 1, 2), fds): os.dup2(fd, target)\n"
        "    channel.reset_after_fork()\n"
        "    channel.send(messages.SnapshotReady(id=request.id))\n"
        "    while True: pass\n"
        "snapshots._wait_as_copy = stand" + LONG,
    )
    run(kernel, "1" + LONG)
    until(lambda: not running(kernel))
    stopped(kernel, "os._exit(1)")  # the end of their parent must not set them going for good
    run(kernel, "1" + LONG)
    until(lambda: not running(kernel))


FILLING = {
    "new": ("B = []", "B.append(bytearray(b'x') * (120 << 20))", 0),
    # As many pages as the guest could write to; left are its own and the newest copy's.
    "written to": ("B = bytearray(b'x') * (120 << 20)", "B[::4096] = b'y' * (120 << 8)", 2),
}


@pytest.mark.parametrize("somebody", machines.users(wrapped=True), indirect=True)
@pytest.mark.parametrize("kind", FILLING)
def test_copies_that_fill_themselves_hold_no_more_than_the_limits(start, somebody, kind):
    made, fill, left = FILLING[kind]
    tight = "memory_max_bytes = 200_000_000\nundo_max_bytes = 60_000_000\n"
    policy = somebody["world"].policy(f"extends = 'unsafe'\n{tight}")
    kernel = start(policy, "--allow-unsafe", **somebody)
    run(
        kernel,
        f"{PRELUDE}\n{made}\n"
        "standing = snapshots._wait\n"
        "def filled(request, fds):\n"
        f"    {fill}\n"
        "    return standing(request, fds)\n"
        "snapshots._wait = filled" + LONG,
    )
    for number in range(4):
        run(kernel, f"{number}" + LONG)
    until(lambda: sum(anonymous(pid) > 60 << 10 for pid in kernel.tree()) <= left)


def anonymous(pid):
    """Return a process's part of pages that are no file's, in KiB; 0 when it is gone (proc(5))."""
    try:
        return processes.memory(pid, "Pss_Anon")
    except (OSError, AttributeError):
        return 0


def test_a_guest_that_answers_for_its_copy_is_no_copy(kernel):
    run(
        kernel,
        "def answer(request):\n"
        "    fds = channel.take_descriptors()\n"
        "    os.write(fds[0], bytes(frames.encode(messages.SnapshotReady(id=request.id))))\n"
        "snapshots.take = answer",
    )
    until(lambda: reading.result(kernel.run("6 * 7")[1]) == "42")


# --- ends -------------------------------------------------------------------------------------

ENDS = {
    "host": lambda kernel: [kernel.proc.pid],
    "zygote and host": lambda kernel: [kernel.zygote(), kernel.proc.pid],
    "host and zygote": lambda kernel: [kernel.proc.pid, kernel.zygote()],
    "guest and host": lambda kernel: [kernel.guest(), kernel.proc.pid],
}


@pytest.mark.parametrize("which", ENDS)
@pytest.mark.parametrize("restored", [False, True], ids=["first", "restored"])
def test_copies_that_wait_are_gone_with_whoever_is_killed(start, which, restored):
    kernel = start("unsafe", "--allow-unsafe")
    for number in range(3):
        run(kernel, f"{number}" + LONG)
    if restored:
        stopped(kernel, "import os; os._exit(1)")
        run(kernel, "1" + LONG)
    everybody = kernel.tree()
    for pid in ENDS[which](kernel):
        os.kill(pid, signal.SIGKILL)
    kernel.proc.wait()
    assert len(everybody) > 4
    assert processes.gone(everybody) == []


def test_what_was_forked_is_ended_with_its_zygote(kernel):
    kernel.execute_send(  # and answered, on a slow machine, when the copy is given up
        "def steal(request):\n"
        "    if fork() == 0:\n"
        "        while True: pass\n"
        "    time.sleep(60)\n"
        "snapshots.take = steal"
    )
    until(lambda: running(kernel))
    everybody = kernel.tree()
    os.kill(kernel.zygote(), signal.SIGKILL)
    assert processes.gone(everybody[1:]) == []


# --- out of turn ------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", ["messages.SnapshotReady(id=1)", "messages.Resumed()"])
def test_a_guest_that_speaks_as_a_snapshot_is_ended(kernel, frame):
    run(kernel, "kept = 7" + LONG)
    card = stopped(kernel, f"channel.send({frame})\nwhile True: pass")
    assert "it speaks as a snapshot" in card
    assert run(kernel, "kept") == "7"


def test_a_flood_of_undo_steps_back_once_and_only_to_what_there_is(kernel):
    run(kernel, "kept = 7" + LONG)
    run(kernel, "kept = 8" + LONG)
    run(kernel, "for _ in range(5_000): channel.send(messages.Undo(steps=1))")
    assert run(kernel, "kept") == "7"
    run(kernel, "for _ in range(5_000): channel.send(messages.Undo(steps=2**31 - 1))", "error")
    assert run(kernel, "kept") == "7"


def test_a_copy_that_says_again_and_again_that_it_stands_costs_the_host_no_descriptor(kernel):
    run(kernel, "kept = 7" + LONG)
    run(
        kernel,
        "def insist(resume):\n"
        "    one = bytes(frames.encode(messages.SnapshotReady(id=1)))\n"
        "    for _ in range(300): os.write(3, one)\n"
        "    time.sleep(60)\n"
        "snapshots.take_over = insist" + LONG,
    )
    stopped(kernel, "os._exit(1)")
    assert run(kernel, "kept") == "7"
    assert len(list(Path(f"/proc/{kernel.proc.pid}/fd").iterdir())) < 100


def test_what_a_guest_says_of_a_copy_it_did_not_make_is_told_in_the_hosts_words_and_once(kernel):
    run(
        kernel,
        "numbers = iter(range(1, 4_000))\n"
        "def refuse_anew(request):\n"
        "    channel.send(messages.SnapshotFailed(id=request.id, errno=next(numbers)))\n"
        "    for fd in channel.take_descriptors(): os.close(fd)\n"
        "snapshots.take = refuse_anew" + LONG,
    )
    for number in range(4):
        run(kernel, f"{number}" + LONG)
    said = reading.notices([m for channel, m in kernel.log if channel == "iopub"])
    why = "one could not be made"
    assert said in [  # the first may be known by its hanging up, which says nothing
        f"[cellblock takes no snapshot: {why} ({os.strerror(number)}). "
        "If a cell is killed, your variables may be lost]\n"
        for number in range(1, 6)
    ]


@pytest.mark.parametrize(
    "fields", ["'errno': 0", "'errno': 5_000", "'detail': '\\x1b]0;owned\\x07'"]
)
def test_a_guest_that_words_why_it_made_no_copy_is_ended_for_it(kernel, fields):
    kernel.run(  # answered well, or with its end where what ran before is not kept yet
        "from msgspec.msgpack import encode\n"
        "def word(request):\n"
        f"    body = encode({{'type': 'snapshot_failed', 'id': request.id, {fields}}})\n"
        "    os.write(3, len(body).to_bytes(4, 'big') + body)\n"
        "snapshots.take = word",
    )

    def ended():
        kernel.run("1")
        return reading.cards([m for channel, m in kernel.log if channel == "iopub"], "outcome")

    assert until(ended)[0]["reason"] == "protocol"


# --- taking over ------------------------------------------------------------------------------


def test_copies_that_do_not_take_over_hold_up_the_next_cell_for_a_bounded_time(kernel):
    run(kernel, "snapshots.take_over = lambda _: time.sleep(60)" + LONG)
    for _ in range(5):
        run(kernel, "1" + LONG)
    stopped(kernel, "os._exit(1)")  # answered within the client's deadline, or this fails
    assert run(kernel, "6 * 7") == "42"


def test_copies_that_say_twice_that_they_took_over_are_ended_and_no_cell_with_them(kernel):
    run(
        kernel,
        "real = snapshots.take_over\n"
        "def insist(resume):\n"
        "    resumed = real(resume)\n"
        "    channel.send(resumed)\n"
        "    return resumed\n"
        "snapshots.take_over = insist" + LONG,
    )
    for number in range(3):
        run(kernel, f"{number}" + LONG)
    stopped(kernel, "os._exit(1)")
    for _ in range(4):
        assert run(kernel, "6 * 7") == "42"
    cards = reading.cards([m for channel, m in kernel.log if channel == "iopub"], "outcome")
    assert [card["reason"] for card in cards[1:]] == ["protocol"] * len(cards[1:]), cards
    assert len(cards) > 1, "nobody was told"


def test_a_zygote_that_ends_during_a_restoration_takes_the_copy_with_it(kernel):
    run(
        kernel,
        "real = snapshots.take_over\n"
        "def slow(resume):\n"
        "    time.sleep(2)\n"
        "    return real(resume)\n"
        "snapshots.take_over = slow" + LONG,
    )
    before, guest = kernel.tree(), kernel.guest()
    mid = kernel.execute_send("os._exit(1)")
    until(lambda: (state(guest) or "Z")[0] == "Z")
    os.kill(kernel.zygote(), signal.SIGKILL)
    assert kernel.reply(mid)["content"]["ename"] == "CellStopped"
    assert processes.gone(before[1:]) == []
    run(kernel, "import threading; threading.Thread(target=print).start()")


def test_a_generator_that_a_cell_froze_does_not_keep_a_copy_from_taking_over(kernel):
    run(kernel, "kept = 7\ndef frozen(*_): raise RuntimeError\nrandom.seed = frozen" + LONG)
    assert "what" not in stopped(kernel, "os._exit(1)").partition("Not restored")[2]
    assert run(kernel, "kept") == "7"


def test_a_cell_that_may_start_programs_can_not_end_its_own_copies(start, world):
    policy = world.policy("extends = 'unsafe'\nsubprocess_execution = true\n")
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, "import os, subprocess, sys\nx = 41\n%checkpoint kept")
    guest = kernel.guest()
    # The host stops a copy once it stands.
    copies = until(
        lambda: [p for p in guest_processes.children(guest) if (state(p) or "Z")[0] == "T"]
    )
    ended = run(
        kernel,
        f"""
program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
def end(pid):
    try:
        return os.kill(pid, 9)
    except OSError as error:
        return error.errno
[end(pid) for pid in ({copies}[0], program.pid)]
""",
    )
    assert ended == "[1, None]"
    assert "Your variables are as they were before it." in stopped(
        kernel, "os.kill(os.getpid(), 9)"
    )
    assert run(kernel, "x") == "41"
