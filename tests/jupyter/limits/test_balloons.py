"""Memory by every route: the machine keeps its own, and the kernel answers the next cell."""

import pytest

from support import processes
from support.limits import MOST_HELD, assert_runs_cells

CATCH = (
    "while True:\n    try: {}\n    except (MemoryError, OSError, RuntimeError, ValueError): break"
)
BALLOONS = {
    "bytearrays": "held = []\n" + CATCH.format("held.append(bytearray(b'x') * (8 << 20))"),
    "one text": "text = 'x' * (1 << 20)\n" + CATCH.format("text += text"),
    "small numbers": "held = []\nwhile True: held.append([len(held)] * 10)",
    "a set": "set(range(10**9))",
    "private mappings": (
        "import mmap\nheld = []\n"
        + CATCH.format(
            "held.append(mmap.mmap(-1, 8 << 20, flags=34)); held[-1].write(b'x' * (8 << 20))"
        )
    ),
    "shared mappings": (
        "import mmap\nheld = []\n"
        + CATCH.format(
            "held.append(mmap.mmap(-1, 8 << 20, flags=33)); held[-1].write(b'x' * (8 << 20))"
        )
    ),
    "memory of the C library": (
        "import ctypes\nlib = ctypes.CDLL(None)\n"
        "lib.calloc.restype = lib.memset.restype = ctypes.c_void_p\n"
        "lib.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)\n"
        "while at := lib.calloc(1, 8 << 20): lib.memset(at, 1, 8 << 20)"
    ),
    "arrays": ("import numpy\nheld = []\n" + CATCH.format("held.append(numpy.ones(1 << 20))")),
    "page tables": (
        "import mmap\nheld = []\n"
        "for _ in range(8):\n"
        "    held.append(mmap.mmap(-1, 100 << 30, flags=34, prot=mmap.PROT_READ))\n"
        "    for at in range(0, 100 << 30, 2 << 20): held[-1][at]"
    ),
    "stacks of threads": (
        "import threading, time\nthreading.stack_size(16 << 20)\n"
        "def deep(n):\n    return deep(n - 1) if n else time.sleep(1)\n"
        "for _ in range(64):\n"
        "    try: threading.Thread(target=deep, args=(900,), daemon=True).start()\n"
        "    except (RuntimeError, MemoryError): break"
    ),
    "recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f([n] * 100)\nf(0)"),
    "pipes": (
        "import os, fcntl\nheld = []\n"
        + CATCH.format(
            "held.append(os.pipe()); os.set_blocking(held[-1][1], False); "
            "[os.write(held[-1][1], bytes(1 << 16)) for _ in range(16)]"
        )
    ),
    "sockets": (
        "import socket\nheld = []\n"
        + CATCH.format(
            "held.append(socket.socketpair()); held[-1][0].setblocking(False); "
            "[held[-1][0].send(bytes(1 << 16)) for _ in range(100)]"
        )
    ),
    "a file that is mapped": (
        "import mmap\nheld = []\nn = 0\n"
        + CATCH.format(
            "n += 1; file = open(f'part{n}', 'w+b'); file.truncate(8 << 20); "
            "held.append(mmap.mmap(file.fileno(), 0)); held[-1].write(b'x' * (8 << 20))"
        )
    ),
    "memfd": (
        "import os\nheld = []\n"
        + CATCH.format("held.append(os.memfd_create('x')); os.write(held[-1], bytes(8 << 20))")
    ),
}


@pytest.fixture(scope="module")
def kernel(start_tight):
    """One kernel in mode unsafe with 300 MB of memory; each balloon begins in a fresh guest."""
    return start_tight(cpu_seconds=None, timeout=3.0, snapshots='"off"')


@pytest.mark.parametrize("route", BALLOONS)
def test_a_balloon_is_an_error_or_ends_its_guest_and_the_next_cell_runs(kernel, route):
    assert_runs_cells(kernel)
    guest = kernel.guest()
    mid = kernel.execute_send(BALLOONS[route])
    most = 0
    while not kernel.shell.poll(5):
        most = max(most, resident(guest))
    reply = kernel.reply(mid)
    kernel.until_idle(mid)
    took = reply["metadata"]["cellblock"]["usage"]["peak_memory_bytes"]
    assert max(most, took, resident(guest)) < MOST_HELD, reply["content"]
    kernel.run("import os\nos._exit(0)")
    assert_runs_cells(kernel)


def resident(pid):
    """Return the peak of a process, 0 when it is gone."""
    try:
        return processes.peak_memory(pid)
    except (OSError, AttributeError):
        return 0
