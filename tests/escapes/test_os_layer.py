"""Programs in mode unsafe against the host: one per file, each with what `os/prelude.txt` offers.

Whatever a program does, the next cell runs in time, the host stays small and what the front end
gets is bounded; nothing of it is left when the kernel has ended.
"""

import re
import time
from pathlib import Path

import pytest
import zmq

from support import reading

FOLDER = Path(__file__).parent / "os"
PRELUDE = (FOLDER / "prelude.txt").read_text()
PROGRAMS = sorted(path.stem for path in FOLDER.glob("programs/*.txt"))
TOO_DEEP = {"deep_folders", "folders_that_cannot_be_read"}
HOST_MIB, FLOOD_MIB = 400, 32
LIMIT = "timeout = 5.0\nmode = 'unsafe'"


def host_mib(kernel):
    status = Path(f"/proc/{kernel.proc.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) >> 10


def received_mib(kernel):
    """Return how much waits on iopub, in MiB, and take it away."""
    size = 0
    while kernel.iopub.poll(200):
        size += sum(map(len, kernel.iopub.recv_multipart(zmq.NOBLOCK)))
    return size >> 20


@pytest.fixture
def kernel(start, world):
    return start(world.policy(LIMIT), "--allow-unsafe", world=world)


def answered(kernel, code, seconds):
    mid = kernel.execute_send(code)
    return kernel.reply(mid, timeout=seconds)["content"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_next_cell_runs_and_the_host_stays_small(kernel, world, program):
    started = time.monotonic()
    answered(kernel, PRELUDE + (FOLDER / "programs" / f"{program}.txt").read_text(), 20)
    took = time.monotonic() - started
    mid = kernel.execute_send("1 + 1")
    try:
        reply = kernel.reply(mid, timeout=8)
    except TimeoutError:
        kernel.interrupt()
        reply = kernel.reply(mid, timeout=4)
    # Folders that can't be measured stop later cells, too, if a look finds them while those run.
    is_stopped = program in TOO_DEEP and "more folders than" in reply["content"].get("evalue", "")
    assert is_stopped or reply["content"]["status"] == "ok", reply["content"]
    assert took < 15
    assert host_mib(kernel) < HOST_MIB
    assert received_mib(kernel) < FLOOD_MIB
    assert kernel.end() == []
    assert kernel.proc.returncode == 0
    assert [p.name for p in (world.root / "tmp").glob("cellblock-*")] == []


def test_no_file_is_made_that_runs_as_its_owner(kernel):
    code = PRELUDE + (FOLDER / "programs" / "set_user_id_files.txt").read_text()
    assert "held" in reading.stream(kernel.run(code)[1], "stdout")


@pytest.mark.parametrize("depth", [980, 992, 1_000])
def test_a_comm_message_nested_too_deep_costs_itself_alone(safe, depth):
    kernel = safe
    header = kernel.session.msg_header("comm_open")
    nested = b"[" * depth + b"]" * depth
    content = b'{"comm_id":"a","target_name":"t","data":{"a":' + nested + b"}}"
    pack = kernel.session.pack
    parts = [pack(header), b"{}", b"{}", content]
    kernel.shell.send_multipart([b"<IDS|MSG>", kernel.session.sign(parts), *parts])
    assert kernel.run("1 + 1")[0]["status"] == "ok"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_kernel_starts_without_its_standard_descriptors(start, closed):
    kernel = start("safe", prefix=("sh", "-c", f'exec "$@" {closed}', "sh"))
    assert kernel.run("1 + 1")[0]["status"] == "ok"


def test_few_open_files_are_enough(start):
    kernel = start("safe", prefix=("sh", "-c", 'ulimit -n 80; exec "$@"', "sh"))
    assert kernel.run("1 + 1")[0]["status"] == "ok"


@pytest.mark.parametrize(
    "line", ["?x\n", "!!x\n", "a=!x\n", "a=%x\n", "x\n?\n", "%%timeit\n%time x\n"]
)
def test_a_cell_of_many_magics_does_not_hold_up_the_host(safe, line):
    kernel = safe
    kernel.execute_send(line * 3_000)
    kernel.send("is_complete_request", {"code": line * 3_000})
    assert kernel.run("1 + 1")[0]["status"] == "ok"
