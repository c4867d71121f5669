"""P3 and P6: whatever becomes of the guest, the kernel lives and the next cell runs."""

import os
import signal
import time

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
    "exit": ("import os\nos._exit(3)", "crashed", "status 3"),
    "segfault": ("import ctypes\nctypes.string_at(0)", "crashed", "SIGSEGV"),
    "abort": ("import os\nos.abort()", "crashed", "SIGABRT"),
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


def test_a_guest_killed_from_outside_costs_one_cell(kernel):
    mid = begin(kernel, "while True: pass")
    os.kill(kernel.guest(), signal.SIGKILL)
    card, text = ended(kernel, mid)
    assert card["reason"] == "crashed"
    assert "SIGKILL" in text
    next_cell_runs(kernel)


def test_a_guest_killed_while_idle_is_replaced_and_its_loss_is_said(kernel):
    next_cell_runs(kernel)
    lost = kernel.guest()
    os.kill(lost, signal.SIGKILL)
    shown = kernel.until(lambda m: m["msg_type"] == "display_data")
    assert "Your variables are as they were before it." in reading.card_text(shown)
    assert kernel.guest() != lost
    next_cell_runs(kernel)


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


def test_a_request_that_was_stolen_on_its_way_runs_in_the_next_guest(kernel):
    kernel.run(
        "import threading, os, time\n"
        "def steal():\n"
        "    while True:\n"
        "        try: os.read(3, 1 << 16)\n"
        "        except OSError: time.sleep(0.001)\n"
        "threading.Thread(target=steal, daemon=True).start()",
    )
    for _ in range(50):  # thief and guest race for each request; every one is answered
        mid = kernel.execute_send("'ran'")
        assert kernel.reply(mid)["content"]["status"] == "ok"
        published = kernel.until_idle(mid)
        assert reading.result(published) == "'ran'"
        if "Your variables are as they were" in reading.card_text(published):
            return
    pytest.fail("no request was stolen in fifty")


def test_a_huge_frame_is_refused_on_its_header(kernel):
    code = "import os\nos.write(3, b'\\xff\\xff\\xff\\xff' + b'x' * 1000)\nwhile True: pass"
    card, _ = ended(kernel, begin(kernel, code))
    assert card["reason"] == "protocol"
    next_cell_runs(kernel)


def test_memory_beyond_the_limit_is_a_memory_error_and_the_variables_stay(start, world):
    policy = world.policy("memory_max_bytes = 400_000_000")
    kernel = start(policy, world=world)
    kernel.run("kept = 1")
    reply, _ = kernel.run("hoard = [b'x' * 50_000_000 for _ in range(20)]")
    assert reply["ename"] == "MemoryError"
    assert reading.result(kernel.run("kept")[1]) == "1"


# --- the clock --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty(start_shared, tmp_path_factory):
    """A kernel whose cells may take a second."""
    policy = tmp_path_factory.mktemp("policy") / "hasty.toml"
    policy.write_text("timeout = 1.0\n")
    return start_shared(policy)


def test_a_cell_over_its_time_is_interrupted_and_the_variables_stay(hasty):
    hasty.run("kept = 'here'")
    card, text = ended(hasty, hasty.execute_send("while True: pass"))
    assert (card["reason"], card["state"]) == ("timeout", "kept")
    assert "it ran longer than 1 s (timeout)" in text
    assert "Raise it: timeout in the policy" in text
    assert reading.result(hasty.run("kept")[1]) == "'here'"


def test_a_cell_that_swallows_the_interrupt_is_killed_and_costs_nothing(hasty):
    hasty.run("kept = 'here'")
    code = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
    card, text = ended(hasty, hasty.execute_send(code))
    assert card["reason"] == "timeout"
    assert card["state"] == "restored"
    assert "Your variables are as they were before it." in text
    assert reading.result(hasty.run("kept")[1]) == "'here'"


def test_a_long_c_call_is_killed(hasty):
    code = "sum(range(10**12))"
    card, _ = ended(hasty, hasty.execute_send(code))
    assert card["reason"] == "timeout"
    next_cell_runs(hasty)


def test_the_clock_starts_anew_with_every_cell(hasty):
    for _ in range(3):
        assert hasty.run("import time\ntime.sleep(0.4)")[0]["status"] == "ok"


def test_a_cell_that_never_began_has_one_card_and_all_of_its_time_anew(hasty):
    hasty.run("import asyncio\nx = 1")
    hasty.run("asyncio.get_running_loop().call_later(0.2, sum, range(10**12))")
    time.sleep(0.6)
    reply, published = hasty.run("import asyncio\nawait asyncio.sleep(0.1)\n'ran'")
    assert reply["status"] == "ok", reply
    cards = [c["data"]["text/plain"] for c in reading.of(published, "display_data")]
    assert len([card for card in cards if "variables" in card]) == 1
    assert "Your variables are as they were" in "".join(cards)
    assert reading.result(hasty.run("x")[1]) == "1"
