"""Guests are killed at random moments: nothing that was answered is lost, nothing hangs.

``STORM_KILLS`` says how often; ``make storm`` kills 1,000 times each.
"""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kill_storm import Size, Storm

from cellblock.host.snapshots.memory import FRESH
from support import machines, reading
from support.guest_processes import guests_and_copies
from support.kernels import argv_changed

KILLS = int(os.environ.get("STORM_KILLS", "30"))
SEED = int(os.environ.get("STORM_SEED", "0")) or int(time.time())
#: A busy machine may take long over a copy; whether it rests then is not what is asked here.
PATIENT = "from cellblock.host.snapshots import memory as budget; budget.TOO_LONG = 60.0"
#: Of the host, over a whole storm.
MOST_GROWTH = 24 << 20
#: Host, zygote and what is in front, guest; copies to step back to, the newest, those that do not
#: stand yet.
MOST_PROCESSES = 4 + 5 + 1 + 3
pytestmark = pytest.mark.timeout(max(180, KILLS))


def rage(kernel, seed, *, pressed=False):
    """Storm until it is enough; return the storm."""
    storm, began = Storm(kernel, seed, pressed=pressed), time.monotonic()
    for _ in range(10):
        storm.blow()
    before = Size.of(kernel)
    while storm.tally.kills < KILLS:
        storm.blow()
        assert len(kernel.tree()) <= MOST_PROCESSES
    storm.look()
    after = Size.of(kernel)
    assert after.descriptors <= before.descriptors + 40
    assert after.resident <= before.resident + MOST_GROWTH
    assert "Traceback" not in kernel.stderr(), kernel.stderr()
    print(f"\nseed {seed}, {time.monotonic() - began:.1f} s: {storm.tally}")
    print(f"host before {before}, after {after}")
    return storm


@pytest.mark.parametrize("somebody", machines.users(wrapped=True), indirect=True)
def test_no_kill_costs_what_was_answered_under_preset_safe(somebody, start):
    rage(start(argv=argv_changed(PATIENT, "safe"), **somebody), SEED)


def test_no_kill_costs_what_was_answered_under_preset_unsafe(start):
    rage(start(argv=argv_changed(PATIENT, "unsafe", "--allow-unsafe")), SEED + 1)


PRESSED = """extends = "safe"
memory_max_bytes = 268_435_456
undo_depth = 2
"""
#: Has a kernel find ``room`` in the place of /proc/meminfo, in a mount namespace of its own.
NARROW = 'mount --bind "$0" /proc/meminfo && exec "$@"'


def free(room, mebibytes):
    """Say how much memory the machine has left."""
    room.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {mebibytes << 10} kB\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can say how much memory there is")
def test_under_memory_pressure_nothing_is_lost_unless_it_was_said_before(world, start):
    room = world.root / "meminfo"
    free(room, 4096)
    private = ("unshare", "--mount", "--propagation", "private", "sh", "-c", NARROW, str(room))
    argv = argv_changed(PATIENT, world.policy(PRESSED))
    kernel = start(argv=argv, world=world, prefix=private)
    storm = rage(kernel, SEED + 3, pressed=True)
    free(room, 200)
    time.sleep(2 * FRESH)  # the host knows of plenty for as long
    for _ in range(3):  # it is said after a cell's end, so with the next one's at the latest
        kernel.run("import time; before = time.time()")
    notice = "[cellblock takes no snapshot: memory is short. If a cell is killed, your variables may be lost]\n"
    assert notice in reading.notices([m for channel, m in kernel.log if channel == "iopub"])
    os.kill(guests_and_copies(kernel.zygote())[0][-1], signal.SIGKILL)
    kernel.until(lambda m: "Your variables are gone" in str(m["content"]))
    kernel.log.clear()
    free(room, 4096)
    Storm(kernel, storm.seed + 1, pressed=True).blow()
