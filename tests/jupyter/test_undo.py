"""%undo: back to the state before the last cell that ran, and further."""

import contextlib
import os
import signal
import time

import pytest

from support import processes, reading
from support.client import Client, is_idle
from support.kernels import argv_changed
from support.reading import run


@pytest.fixture(scope="module")
def kernel(safe):
    """The kernel that most tests share: they count cells from the first of their own."""
    return safe


def value(kernel, expression):
    return reading.result(run(kernel, expression))


def began(kernel, code="x = [1]"):
    """Run a cell, of which there is a copy from before; return its number.

    On a loaded machine those of the cells before it may still be made, and only three are at once.
    """
    settled()
    kernel.run("print(end='')")
    settled()
    return kernel.run(code)[0]["execution_count"]


def settled():
    """Leave the kernel idle for long enough to have a copy of what ran last."""
    time.sleep(0.3)


def undone(published):
    (card,) = reading.cards(published, "outcome")
    assert card["outcome"] == "undone"
    return card["cells"]


@pytest.mark.quick
def test_it_steps_back_over_the_last_cell(kernel):
    first = began(kernel)
    run(kernel, "x.append(2)")
    published = run(kernel, "%undo")
    assert undone(published) == [first + 1]
    assert f"Cell [{first + 1}] is undone." in reading.card_text(published)
    assert f"as they were before [{first + 1}]." in " ".join(reading.card_text(published).split())
    assert value(kernel, "x") == "[1]"


def test_it_steps_back_over_several(kernel):
    first = began(kernel, "x = 0")
    for number in range(1, 6):
        run(kernel, f"import random; x = {number}; r = random.random()")
    assert undone(run(kernel, "%undo 3")) == [first + 3, first + 4, first + 5]
    assert value(kernel, "x") == "2"


def test_it_steps_back_over_cells_that_followed_each_other_at_once(kernel):
    sent = [kernel.execute_send(code) for code in ("x = 1", "x += 1", "x += 1", "x += 1")]
    replies = [kernel.reply(mid)["content"] for mid in sent]
    assert [reply["status"] for reply in replies] == ["ok"] * 4
    assert undone(run(kernel, "%undo 2")) == [reply["execution_count"] for reply in replies[2:]]
    assert value(kernel, "x") == "2"


def test_cells_that_did_not_run_silent_ones_and_those_without_history_are_no_steps(kernel):
    first = began(kernel)
    run(kernel, "x.append(2)")
    assert kernel.run("import gc")[0]["ename"] == "PolicyDenied"
    run(kernel, "x.append(3)", silent=True)
    run(kernel, "x.append(4)", store_history=False)
    assert undone(run(kernel, "%undo")) == [first + 1]
    assert value(kernel, "x") == "[1]"


def test_a_cell_that_failed_halfway_is_undone_too(kernel):
    run(kernel, "x = [1]")
    assert kernel.run("x.append(2)\n1 / 0")[0]["ename"] == "ZeroDivisionError"
    run(kernel, "%undo")
    assert value(kernel, "x") == "[1]"


def test_in_and_out_say_what_was_undone(start):
    kernel = start("unsafe", "--allow-unsafe")
    run(kernel, "x = [1]")
    run(kernel, "x.append(2); x")
    run(kernel, "%undo")
    assert value(kernel, "In[1:5]") == (
        "['x = [1]', '# undone\\nx.append(2); x', '%undo', 'In[1:5]']"
    )
    assert value(kernel, "sorted(Out)") == "[4]"


def test_the_history_says_what_was_undone(kernel):
    first = began(kernel)
    run(kernel, "x.append(2)")
    run(kernel, "%undo")
    asked = {"hist_access_type": "tail", "n": 1, "raw": True, "output": False}
    ((_, line, text),) = kernel.ask("history_request", asked)["content"]["history"]
    assert (line, text) == (first + 2, f"%undo  # undid [{first + 1}]")
    assert undone(run(kernel, text)) == [first]  # as it is recalled, it runs


def test_more_than_there_is_is_refused_by_name_and_changes_nothing(start):
    kernel = start("safe")
    mid = kernel.execute_send("x = sum(range(1000)); print(x)\n%undo 9")
    message = kernel.reply(mid)
    kernel.until_idle(mid)
    said = "%undo 9: there is nothing to undo"
    assert (message["content"]["ename"], message["content"]["evalue"]) == ("UndoRefused", said)
    assert message["metadata"]["cellblock"]["usage"]["output_bytes"] == len("499500\n")
    assert value(kernel, "x") == "499500"
    reply, _ = kernel.run("%undo 9")
    assert (reply["status"], reply["evalue"]) == (
        "error",
        "%undo 9: only the last 2 cells can be undone",
    )
    assert value(kernel, "x") == "499500"


def test_anything_but_a_number_is_refused(kernel):
    for line in ("%undo x", "%undo 0", "%undo -1", "%undo " + "9" * 5_000):
        assert kernel.run(line)[0]["ename"] == "UsageError", line


def test_without_snapshots_there_is_nothing_to_undo(start, world):
    kernel = start(world.policy('snapshots = "off"\n'), world=world)
    run(kernel, "x = 1")
    run(kernel, "x = 2")
    assert kernel.copies() == []
    assert kernel.run("%undo")[0]["evalue"] == "%undo 1: there is nothing to undo"


def test_as_many_copies_as_the_policy_says(start, world):
    kernel = start(world.policy("undo_depth = 2\n"), world=world)
    for number in range(6):
        run(kernel, f"import random; x = {number}; r = random.random()")
    assert kernel.run("%undo 3")[0]["evalue"] == "%undo 3: only the last 2 cells can be undone"
    # The newest besides. One that was let go of takes a moment to be gone.
    processes.until(lambda: len(kernel.copies()) <= 2 + 1, seconds=10)


def test_it_waits_for_a_question_that_another_front_end_was_asked(kernel):
    first = began(kernel)
    run(kernel, "x.append(2)")
    with Client(kernel.info) as other:
        asked = other.execute_send("x.append(input('more? '))", allow_stdin=True)
        assert other.recv("stdin")["content"]["prompt"] == "more? "
        mid = kernel.execute_send("%undo 2")
        other.send("input_reply", {"value": "3"}, "stdin")
        assert other.reply(asked)["content"]["status"] == "ok"
        assert kernel.reply(mid)["content"]["status"] == "ok"
        assert undone(kernel.until_idle(mid)) == [first + 1, first + 2]
    assert value(kernel, "x") == "[1]"


def test_both_of_two_front_ends_see_each_card(kernel):
    with Client(kernel.info) as other:
        other.until(lambda m: m["msg_type"] == "iopub_welcome")
        first = began(kernel)
        run(kernel, "x.append(2)")
        mid = kernel.execute_send("%undo")
        assert undone(kernel.until_idle(mid)) == undone(other.until_idle(mid)) == [first + 1]
        os.kill(kernel.sole_guest(), signal.SIGKILL)
        cards = [
            client.until(lambda m: m["msg_type"] == "display_data")[-1]["content"]["data"]
            for client in (kernel, other)
        ]
        assert cards[0] == cards[1]
        assert "Your variables are as they were before it." in cards[0]["text/plain"]
        other.send("execute_request", {"code": "x"})
        assert reading.result(other.until(is_idle)) == "[1]"


def test_when_all_copies_were_killed_the_state_stays_or_is_said_to_be_gone(start):
    kernel = start("safe")
    run(kernel, "x = [1]")
    for number in (2, 3, 4):
        run(kernel, f"x.append({number})")
    settled()
    kernel.proc.send_signal(
        signal.SIGSTOP
    )  # so that it learns of the deaths and of the cell at once
    for pid in kernel.copies():
        os.kill(pid, signal.SIGKILL)
    mid = kernel.execute_send("%undo")
    time.sleep(0.05)
    kernel.proc.send_signal(signal.SIGCONT)
    status = kernel.reply(mid)["content"]["status"]
    text = reading.card_text(kernel.until_idle(mid))
    if status == "ok":
        assert "Your variables are gone" in text
        assert kernel.run("x")[0]["ename"] == "NameError"
    else:
        assert value(kernel, "x") == "[1, 2, 3, 4]"
    run(kernel, "import random; y = random.random(); x = [5]")
    settled()
    run(kernel, "x.append(6)")
    assert undone(run(kernel, "%undo"))
    assert value(kernel, "x") == "[5]"


# --- what they may hold --------------------------------------------------------------------------


def held_by_copies(kernel):
    """Return the bytes that are kept because the guest's copies have them, and it has not."""
    guest = kernel.sole_guest()
    everybody = [kernel.zygote(), guest, *kernel.copies()]
    kept = 0
    for pid in everybody:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it was let go of
            kept += processes.memory(pid, "Pss_Anon")
    return 1024 * (kept - processes.memory(guest, "Anonymous"))


# Let go of, an array's memory stays the guest's or does not, as malloc likes.
@pytest.mark.parametrize("change", ["a[:] = {n}", "a = np.full(4_000_000, {n}.0)"])
def test_the_oldest_goes_first_when_arrays_fill_what_they_may_hold(start, world, change):
    kernel = start(
        world.policy("extends = 'unsafe'\nundo_max_bytes = 60_000_000\nundo_depth = 9\n"),
        "--allow-unsafe",
        world=world,
    )
    run(kernel, "import time, numpy as np; a = np.zeros(4_000_000); a[:] = 0")
    for number in range(1, 7):
        run(kernel, f"{change.format(n=number)}; time.monotonic(); time.sleep(0.11)")
    # Beside theirs, of the zygote's own, and the newest's; what was let go of takes a moment to end.
    assert processes.until(lambda: held_by_copies(kernel) < 60_000_000 + 32_000_000)
    refused = kernel.run("%undo 9")[0]["evalue"]
    assert refused in {
        "%undo 9: only the last cell can be undone",
        *(f"%undo 9: only the last {number} cells can be undone" for number in (2, 3)),
    }
    assert undone(run(kernel, "%undo")) == [7]
    assert value(kernel, "float(a[0]), float(a[-1])") == "(5.0, 5.0)"


# --- when they take too long ---------------------------------------------------------------------


def test_two_slow_copies_in_a_row_begin_a_rest_that_is_said_once(start):
    rest = "budget.TOO_LONG = -1.0; budget.SMALL = 0; budget._REST = 1e9"
    kernel = start(
        argv=argv_changed(f"from cellblock.host.snapshots import memory as budget; {rest}", "safe")
    )
    for number in range(6):
        run(kernel, f"import time; x = {number}; time.monotonic(); time.sleep(0.11)")
    said = reading.notices([message for _, message in kernel.log])
    assert said.count("takes no snapshot") == 1
    assert "If a cell is killed, your variables may be lost" in "".join(said)
