"""The host's memory under gigabytes, and front ends that are slow, stalled or gone (P3, P6).

Through each route go CELLBLOCK_FLOOD_GB, a half unless that says otherwise: what makes a host grow
beyond its bound that keeps it, as the controls show. Empty displays are a hundredth of it, two hundred
thousand messages. What a host may hold beyond what it had is `cellblock.host.files`.
"""

import os
import time

import pytest
import zmq

from cellblock.host.files import HOST_MEMORY
from support import reading
from support.client import is_idle
from support.kernels import argv_changed
from support.processes import peak_memory

GIGABYTE = 10**9
SHARE = float(os.environ.get("CELLBLOCK_FLOOD_GB", "0.5"))
#: As good as no cap: what a cell sends is passed on, all of it.
UNCAPPED = "".join(f"{kind}_max_bytes = {10**15}\n" for kind in ("stdout", "stderr", "display"))
ROUTES = {
    "pipe": "piece, fd = b'x' * (1 << 16), 1",
    "stream frames": "piece, fd = frame({'type': 'stream', 'name': 'stdout', 'text': 'x' * 200_000}), 3",
    "displays": "piece, fd = frame({'type': 'display', 'data': {'text/plain': 'x' * 1_000_000}}), 3",
    "empty displays": "piece, fd = frame({'type': 'display', 'data': {}}) * 1_000, 3",
}
FLOOD = """
import os
from msgspec.msgpack import encode
def frame(message): return len(body := encode(message)).to_bytes(4, "big") + body
{route}
left = int({size})
while left > 0:
    view = memoryview(piece)
    while view: view = view[os.write(fd, view):]
    left -= len(piece)
"""


def flood(route, gigabytes):
    return FLOOD.format(route=ROUTES[route], size=gigabytes * GIGABYTE)


class Ended:
    """How a flooded cell ended, read as it came so that the reader stays small too."""

    def __init__(self, kernel, mid, seconds, slow=0.0):
        self.reply, self.idle, self.size, self.notes = None, False, 0, ""
        poller = zmq.Poller()
        for sock in (kernel.shell, kernel.iopub):
            poller.register(sock, zmq.POLLIN)
        deadline = time.monotonic() + seconds
        while (self.reply is None or not self.idle) and time.monotonic() < deadline:
            ready = dict(poller.poll(1_000))
            if kernel.shell in ready:
                self.reply = kernel.reply(mid)["content"]
            if kernel.iopub in ready:
                time.sleep(slow)
                self._take(kernel, mid, kernel.iopub.recv_multipart())

    def _take(self, kernel, mid, parts):
        size = sum(map(len, parts))
        self.size += size
        if size < 4_000:
            message = kernel.session.deserialize(kernel.session.feed_identities(parts)[1])
            self.idle |= is_idle(message) and message["parent_header"].get("msg_id") == mid
            # Of what a pipe had, the note stands among the text.
            self.notes += str(message["content"].get("text", "")) + reading.notices([message])


def listener(kernel):
    """Return a subscriber that holds little of what it has not read; unread, it stalls."""
    sock = kernel.ctx.socket(zmq.SUB)
    sock.linger, sock.rcvhwm, sock.rcvbuf = 0, 4, 4096
    sock.subscribe(b"")
    sock.connect(f"tcp://127.0.0.1:{kernel.info['iopub_port']}")
    kernel.until(lambda m: m["msg_type"] == "iopub_welcome")
    return sock


@pytest.fixture
def kernel(start, world):
    """Return a function that starts a kernel, whose host may be changed."""

    def started(extra=UNCAPPED, timeout=300.0, change=""):
        policy = world.policy(f"mode = 'unsafe'\ntimeout = {timeout}\n{extra}")
        argv = argv_changed(change, policy, "--allow-unsafe") if change else None
        return start(policy, "--allow-unsafe", argv=argv, world=world)

    return started


def flooded(kernel, route, size=SHARE, seconds=300):
    """Run a flood; return how it ended, which has to be well."""
    ended = Ended(kernel, kernel.execute_send(flood(route, size)), seconds)
    assert ended.reply["status"] == "ok", (route, ended.reply.get("evalue"))
    assert ended.idle, route
    return ended


def check(kernel, before, what=""):
    ended = Ended(kernel, kernel.execute_send("6 * 7"), 20)
    assert ended.reply is not None
    assert ended.reply["status"] == "ok", ended.reply.get("evalue")
    assert ended.idle
    grown = peak_memory(kernel.proc.pid) - before
    print(f"{what}: the host grew by {grown >> 20} MiB")
    assert grown < HOST_MEMORY, what


@pytest.mark.timeout(400)
def test_a_flood_beyond_its_cap_costs_the_host_nothing_by_any_route(kernel):
    kernel = kernel("")
    before = peak_memory(kernel.proc.pid)
    for route in ROUTES:
        ended = flooded(kernel, route, SHARE / 100 if route == "empty displays" else SHARE)
        assert "left out" in ended.notes, route
        assert ended.size < 32 << 20, route
        check(kernel, before, route)


#: Without caps, frames of a stream are as bytes of a pipe.
UNCAPPED_ROUTES = ["pipe", "displays"]


@pytest.mark.timeout(400)
def test_a_flood_without_a_cap_reaches_whoever_reads(kernel):
    kernel = kernel()
    before = peak_memory(kernel.proc.pid)
    for route in UNCAPPED_ROUTES:
        ended = flooded(kernel, route)
        assert ended.size > SHARE * GIGABYTE, route
        assert "left out" not in ended.notes, route
        check(kernel, before, route)


@pytest.mark.timeout(400)
def test_a_stalled_front_end_costs_the_others_a_moment_and_output_but_no_end(kernel):
    kernel = kernel()
    before = peak_memory(kernel.proc.pid)
    for route in UNCAPPED_ROUTES:
        behind = listener(kernel)
        ended = flooded(kernel, route)
        assert "a front end did not take them in time" in ended.notes, route
        check(kernel, before, route)
        behind.close()
        time.sleep(1.0)
        assert "left out" not in flooded(kernel, route, 0.01, 30).notes, route


def test_a_slow_front_end_gets_all_of_it_and_the_idle_at_last(kernel):
    kernel = kernel()
    before = peak_memory(kernel.proc.pid)
    # In place of the client's own, which would take everything from the kernel at once.
    kernel.iopub, fast = listener(kernel), kernel.iopub
    fast.close()
    kernel.iopub.recv_multipart()  # the welcome, which the other has read
    ended = Ended(kernel, kernel.execute_send(flood("stream frames", 0.1)), 60, slow=0.01)
    assert ended.idle
    assert ended.size > 0.1 * GIGABYTE
    assert "left out" not in ended.notes
    check(kernel, before)


def test_an_interrupt_is_heard_while_a_front_end_stalls_and_the_variables_stay(kernel):
    kernel = kernel()
    kernel.run("kept = 'here'")
    behind = listener(kernel)
    mid = kernel.execute_send("while True: print('x' * 10_000)")
    time.sleep(3.0)
    kernel.interrupt()
    ended = Ended(kernel, mid, 5)
    assert ended.reply is not None
    assert ended.reply["ename"] == "KeyboardInterrupt"
    assert ended.idle
    behind.close()
    assert kernel.run("kept")[0]["status"] == "ok"


def test_a_time_limit_is_kept_while_a_front_end_stalls(kernel):
    kernel = kernel(timeout=3.0)
    behind = listener(kernel)
    ended = Ended(kernel, kernel.execute_send("while True: print('x' * 10_000)"), 10)
    assert ended.reply is not None
    assert "timeout" in ended.reply["evalue"]
    assert ended.idle
    behind.close()


# --- positive controls: the same measurements see a host without the bound --------------------------


def test_a_host_without_a_brake_would_be_seen_to_grow(kernel):
    kernel = kernel(
        change="from cellblock.jupyter import channels as outflow; outflow.HIGH = 1 << 60"
    )
    before = peak_memory(kernel.proc.pid)
    behind = listener(kernel)
    assert Ended(kernel, kernel.execute_send(flood("displays", 0.5)), 60).idle
    assert peak_memory(kernel.proc.pid) - before > HOST_MEMORY
    behind.close()


def test_a_host_that_does_not_count_values_would_be_seen_to_grow(kernel):
    kernel = kernel(change="from cellblock.wire import frames as shape; shape.MAX_VALUES = 1 << 60")
    before = peak_memory(kernel.proc.pid)
    raw = r"b'\x82\xa4type\xa7display\xa4data\x81\xb0application/json\xdd\x00\x4b\x00\x00'"
    wide = r"b'\xa4\xf0\x9f\x98\x80' * 0x4b0000"
    code = (
        f"import os\nbody = {raw} + {wide}\nview = memoryview(len(body).to_bytes(4, 'big') + body)"
    )
    assert Ended(
        kernel, kernel.execute_send(f"{code}\nwhile view: view = view[os.write(3, view):]"), 60
    ).idle
    assert peak_memory(kernel.proc.pid) - before > HOST_MEMORY
