"""After a hundred restorations nothing is left of them, and kills that hurry cost nothing."""

import contextlib
import os
import signal
import time
from pathlib import Path

from cellblock.host.limits.processes import private_bytes
from support import processes, reading
from support.guest_processes import replaceable_guest

LONG = "; import time; time.sleep(0.11)  # now"  # it has a snapshot, and is answered when that is decided

TIMES = 100
#: Bytes that the host may come to hold over all of them, and the guest: caches, and no leak.
MOST_HOST, MOST_GUEST = 8 << 20, 16 << 20


def run(kernel, code):
    reply, _ = kernel.run(code)
    assert reply["status"] == "ok", reply


def test_a_hundred_restorations_leave_nothing_behind(start):
    kernel = start("unsafe", "--allow-unsafe")
    run(kernel, "import os; kept = list(range(1000))" + LONG)

    def go_on(times):
        for _ in range(times):
            assert kernel.run("kept[0] += 1; os._exit(1)")[0]["ename"] == "CellStopped"
            run(kernel, "kept[0] += 1")  # or it would be a state that ends every guest
        run(kernel, "kept" + LONG)

    go_on(25)  # what is imported for the first card, and all copies for %undo
    before = size(kernel)
    go_on(TIMES)
    after = size(kernel)
    # There are up to six copies at any time, which cost the host some five descriptors each.
    assert after["descriptors"] <= before["descriptors"] + 30
    # Some may be on their way out.
    processes.until(lambda: len(processes.tree(kernel.proc.pid)) <= 3 + 6 + 2)
    assert after["host"] < before["host"] + MOST_HOST
    assert after["guest"] < before["guest"] + MOST_GUEST
    assert reading.result(kernel.run("kept[0]")[1]) == str(25 + TIMES)


#: Milliseconds from a kill to the one of what takes over, at least: that leaves a twin first, is told
#: to, begins, serves.
STAGES = (0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25)


def test_whenever_what_takes_over_is_killed_too_nothing_is_lost(start):
    kernel = start("unsafe", "--allow-unsafe")
    run(kernel, "kept = []" + LONG)
    for number, pause in enumerate(STAGES):
        run(kernel, f"kept.append({number})" + LONG)  # too long to be run again
        for wait in (pause / 1000, 0):
            (heir,) = processes.until(lambda: replaceable_guest(kernel.zygote()))
            with contextlib.suppress(ProcessLookupError):  # the first kill's, on its way out
                os.kill(heir, signal.SIGKILL)
            time.sleep(wait)
        reply, published = kernel.run("kept")
        if reply["status"] != "ok":  # it was with the one that was killed, on a busy machine
            assert reply["ename"] == "CellStopped"
            _, published = kernel.run("kept")
        assert reading.result(published) == str([*range(number + 1)])
    published = [message for channel, message in kernel.log if channel == "iopub"]
    cards = reading.cards(published, "outcome")
    assert {card["state"] for card in cards} == {"restored"}
    # The same: it was killed before its snapshot was decided, and its cell was run again.
    assert all("was run again" in lost for card in cards for lost in card["lost"])
    assert len(cards) >= len(STAGES)


def size(kernel):
    """Return what could grow without anybody looking; bytes are of memory of their own."""
    host = Path(f"/proc/{kernel.proc.pid}")
    return {
        "descriptors": len(list((host / "fd").iterdir())),
        "host": private_bytes(kernel.proc.pid),
        "guest": private_bytes(kernel.sole_guest()),
    }
