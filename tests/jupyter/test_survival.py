"""P3 and P6: whatever becomes of the guest, the kernel lives and the next cell runs."""

import os
import signal

import pytest

from support import processes, reading

GO = "print('go', flush=True)\n"


@pytest.fixture(scope="module")
def kernel(start_shared):
    """A kernel in mode unsafe, whose guests may do to themselves what they like."""
    return start_shared("unsafe", "--allow-unsafe")


def begin(kernel, code):
    mid = kernel.execute_send(GO + code)
    kernel.until(lambda m: m["msg_type"] == "stream", mid)
    return mid


def ended(kernel, mid):
    """Return the reply of a cell that was stopped, its card, and how it reads."""
    reply, published = kernel.reply(mid)["content"], kernel.until_idle(mid)
    assert (reply["status"], reply["ename"]) == ("error", "CellStopped"), reply
    (card,) = reading.cards(published, "outcome")
    *_, error = reading.of(published, "error")
    assert (error["ename"], error["evalue"]) == (reply["ename"], reply["evalue"])
    return card, reading.card_text(published)


def next_cell_runs(kernel):
    reply, published = kernel.run("6 * 7")
    assert reply["status"] == "ok", reply
    assert reading.result(published) == "42"


DEATHS = {
    "exit": ("import os\nos._exit(3)", "exited", "status 3"),
    "segfault": ("import ctypes\nctypes.string_at(0)", "crashed", "SIGSEGV"),
    "abort": ("import os\nos.abort()", "crashed", "SIGABRT"),
    "a kill": ("import os\nos.kill(os.getpid(), 9)", "crashed", "SIGKILL"),
    "a huge frame": (
        "import os\nos.write(3, b'\\xff\\xff\\xff\\xff' + b'x' * 1000)\nwhile True: pass",
        "protocol",
        "",
    ),
    "garbage": ("import os\nos.write(3, b'\\xff' * 100)\nwhile True: pass", "protocol", ""),
    "a frame that is no message": (
        "import os\nos.write(3, b'\\0\\0\\0\\4\\x81\\xa1a\\1')\nwhile True: pass",
        "protocol",
        "",
    ),
    "a reply to no request": (
        """import os, msgspec
frame = msgspec.msgpack.encode({'type': 'done', 'id': 2**40})
os.write(3, len(frame).to_bytes(4, 'big') + frame)
while True: pass""",
        "protocol",
        "",
    ),
    "a closed channel": ("import os\nos.close(3)\nwhile True: pass", "", ""),
    "everything closed": ("import os\nos.closerange(0, 256)\nwhile True: pass", "", ""),
}


@pytest.mark.parametrize("kind", DEATHS)
def test_a_guest_that_ends_itself_costs_one_cell(kernel, kind):
    code, reason, detail = DEATHS[kind]
    card, text = ended(kernel, begin(kernel, code))
    assert card["reason"] == reason or not reason
    assert detail in text
    assert "Your variables are as they were before it." in text
    assert card["state"] == "restored"
    next_cell_runs(kernel)


def test_what_a_cell_printed_before_it_ended_its_guest_is_shown(kernel):
    code = "import os, sys\nprint('.' * 100_000 + 'end', flush=True)\nos._exit(3)"
    for _ in range(5):
        mid = kernel.execute_send(code)
        kernel.reply(mid)
        shown = reading.of(kernel.until_idle(mid), "stream")
        assert "".join(content["text"] for content in shown).endswith("end\n")


@pytest.mark.quick
def test_a_dead_zygote_is_replaced(kernel):
    next_cell_runs(kernel)
    mid = begin(kernel, "while True: pass")
    zygote, guest = kernel.zygote(), kernel.guest()
    os.kill(zygote, signal.SIGKILL)
    ended(kernel, mid)
    assert processes.gone([zygote, guest]) == []
    next_cell_runs(kernel)


def test_a_stopped_guest_can_be_interrupted_away(kernel):
    mid = begin(kernel, "while True: pass")
    os.kill(kernel.guest(), signal.SIGSTOP)
    kernel.interrupt()
    assert not kernel.shell.poll(700)
    kernel.interrupt()
    ended(kernel, mid)
    next_cell_runs(kernel)


STEAL = """
import asyncio, os, threading, time
def steal():
    while True:
        try: os.read(3, 1 << 16)
        except OSError: time.sleep(0.001)
def look_away():  # so that the thief is the only one who reads
    print('looks away', flush=True)
    time.sleep(1)
threading.Thread(target=steal, daemon=True).start()
asyncio.get_running_loop().call_later(0.1, look_away)
"""


def test_a_request_that_was_stolen_on_its_way_runs_in_the_next_guest(kernel):
    kernel.execute_send(STEAL)
    kernel.until(lambda m: "looks away" in m["content"].get("text", ""))
    reply, published = kernel.run("'ran'")
    assert reply["status"] == "ok"
    assert "Your variables are as they were" in reading.card_text(published)
    assert reading.result(published) == "'ran'"


# --- the clock --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty(start_shared, tmp_path_factory):
    """A kernel whose cells may take a second."""
    policy = tmp_path_factory.mktemp("policy") / "hasty.toml"
    policy.write_text("timeout = 1.0\n")
    return start_shared(policy)


@pytest.mark.quick
def test_a_cell_over_its_time_is_interrupted_and_the_variables_stay(hasty):
    hasty.run("kept = 'here'")
    card, text = ended(hasty, hasty.execute_send("while True: pass"))
    assert (card["reason"], card["state"]) == ("timeout", "kept")
    assert "it ran longer than 1 s (timeout)" in text
    assert "To raise it, set timeout in the file of policy" in text
    assert reading.result(hasty.run("kept")[1]) == "'here'"


@pytest.mark.quick
def test_a_cell_that_swallows_the_interrupt_is_killed_and_costs_nothing(hasty):
    hasty.run("kept = 'here'")
    code = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
    card, text = ended(hasty, hasty.execute_send(code))
    assert card["reason"] == "timeout"
    assert card["state"] == "restored"
    assert "Your variables are as they were before it." in text
    assert reading.result(hasty.run("kept")[1]) == "'here'"


def test_the_clock_starts_anew_with_every_cell(hasty):
    for _ in range(3):
        assert hasty.run("import time\ntime.sleep(0.4)")[0]["status"] == "ok"
