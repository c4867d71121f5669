"""What a cell leaves in the project's layer and in /dev/shm, and what its processes do there then."""

import pytest

from cellblock.backends.layers import receives_mounts
from support import machines, processes, reading
from support.kernels import Kernel, argv_for, world_and_prefix
from support.limits import assert_runs_cells, stop_card

POLICY = """
extends = "data"
backend = "{}"
memory_max_bytes = 600_000_000
scratch_max_bytes = 16_777_216
max_file_size = 209_715_200
"""
FILLS = """
import subprocess, sys
filling = subprocess.Popen([sys.executable, "-S", "-c", '''
import os, time
time.sleep(1.5)
for number in range(40):
    fd = os.open(f"part{number}", os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(fd, 0, 20 << 20)
    time.sleep(0.5)
'''])
"""
#: Nearly all that fits.
SHARED = """
import mmap, os, subprocess, sys, time
with open("/dev/shm/left", "w+b") as file:
    for _ in range(130): file.write(bytes(1 << 20))
"""
MAPPED = (
    SHARED
    + """
    mapped = mmap.mmap(file.fileno(), 0)
touched = mapped[::4096]
"""
)
#: A process with so many bytes of its own, for as long as the cell waits.
HOLDS = """
holding = subprocess.Popen(
    [sys.executable, "-S", "-c", "held = b'x' * {}; input()"], stdin=subprocess.PIPE
)
time.sleep({})
holding.communicate()
"""


@pytest.fixture(scope="module", params=machines.users())
def placed_as(request):
    world, prefix = world_and_prefix(request.param)
    yield world, prefix
    world.close()


@pytest.fixture(scope="module", params=["landlock", "bubblewrap"])
def kernel(placed_as, request):
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world, prefix = placed_as
    world.backend = request.param
    policy = world.work.parent / "limited.toml"
    policy.write_text(POLICY.format(request.param))
    made = Kernel(argv_for(policy), world=world, prefix=prefix)
    made.wait_ready()
    made.run("kept = 7")
    yield made
    made.close()


def test_a_process_that_fills_the_layer_between_cells_is_ended_and_that_is_said(kernel):
    kernel.run(FILLS)
    guest = kernel.guest()
    assert processes.until(lambda: kernel.guest() not in {guest, None})
    _, published = kernel.run(
        "import os, glob\nsum(map(os.path.getsize, glob.glob('part*'))) >> 20"
    )
    assert int(reading.result(published)) < 200
    said = reading.cards([m for channel, m in kernel.log if channel == "iopub"], "outcome")
    assert (said[-1]["reason"], said[-1]["state"]) == ("scratch", "restored")
    kernel.run("for name in glob.glob('part*'): os.unlink(name)")
    assert reading.result(kernel.run("kept")[1]) == "7"


def test_files_in_a_folder_that_the_host_may_not_search_count(kernel):
    """Whoever may list a folder, and not search it, learns the size of nothing in it."""
    unsearchable = """
import os, time
os.mkdir("closed")
files = [open(f"closed/{number}", "wb") for number in range(40)]
os.chmod("closed", 0o400)
for file in files:
    file.write(bytes(2 << 20))
    file.flush()
    time.sleep(0.1)
time.sleep(30)
"""
    reply, published = kernel.run(unsearchable)
    if reply["ename"] == "PermissionError":  # no cell closes a folder: see ``receives_mounts``
        assert receives_mounts()
        return
    assert stop_card(reply, published)["reason"] == "scratch"
    kernel.run("for file in files: file.close()")
    cleared = "os.chmod('closed', 0o700)\nimport shutil\nshutil.rmtree('closed')"
    assert kernel.run(cleared)[0]["status"] == "ok"
    assert_runs_cells(kernel)


def test_files_in_dev_shm_are_memory_and_go_with_their_guest(kernel):
    kernel.run(SHARED)
    card = stop_card(*kernel.run(HOLDS.format(570_000_000, 15)))
    assert (card["reason"], card["state"]) == ("memory", "restored")
    assert card["lost"] == ["the files in /dev/shm"]
    assert reading.result(kernel.run("os.listdir('/dev/shm'), kept")[1]) == "([], 7)"
    reply, _ = kernel.run(HOLDS.format(570_000_000, 1))
    assert reply["status"] == "ok"
    assert_runs_cells(kernel)


def test_what_is_mapped_of_dev_shm_counts_once(kernel):
    kernel.run(MAPPED)
    assert kernel.run(HOLDS.format(450_000_000, 1))[0]["status"] == "ok"
    assert kernel.run("mapped.close()\nos.unlink('/dev/shm/left')")[0]["status"] == "ok"
