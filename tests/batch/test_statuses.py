"""Many notebooks, of every kind, in one run: each gets its status, and nothing is left."""

import json
import os
import random

import pytest

from support import processes
from support.runs import code, document, texts

POLICY = """
extends = "safe"
allowed_modules = ["os", "signal", "threading"]
memory_max_bytes = 134_217_728
stdout_max_bytes = 65_536
"""
DIE = [
    "import os\nos._exit(1)",
    "import os\nos.kill(os.getpid(), 9)",
    "import os\nos.abort()",
    "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
]
HANG = [
    "import time\ntime.sleep(1_000)",
    "import threading\nthreading.Event().wait()",
    "import time, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1_000)",
    "while True: pass",
    "sum(range(10**14))",
]
FLOOD = [
    "for n in range(10_000): print(n, 'x' * 50)",
    "from IPython.display import display\nfor n in range(500): display(n)",
    "import os\nos.write(2, b'y' * 3_000_000)\n'end'",
    "import os\nos.write(1, b'z' * 3_000_000)\n'end'",
]
REFUSED = [
    "import socket",
    "open('/etc/passwd')",
    "eval('1')",
    "().__class__.__bases__[0].__subclasses__()",
    "!id",
]
FAIL = ["1 / 0", "undefined", "x = = 1", "raise SystemExit", "x = bytearray(10**9)"]
TORN = [b"", b"{}", b"[" * 50_000, b"\xff\xfe", b'{"nbformat": 4, "cells": 3}', b"[0," * 10**6]
#: How many of each there are, and what they come to.
KINDS = {
    "fine": (30, "passed"),
    "refused": (10, "denied"),
    "fail": (5, "failed"),
    "flood": (4, "passed"),
    "hang": (5, "timed out"),
    "die": (8, "killed"),
    "torn": (6, "could not read"),
}
SOURCES = {"refused": REFUSED, "fail": FAIL, "flood": FLOOD, "hang": HANG, "die": DIE}


def content(kind, number):
    if kind == "torn":
        return TORN[number % len(TORN)]
    fine = [f"x = {number}", "def f(y):\n    return y * 2", "f(x)", "print(f'{x:04}')"]
    bad = [SOURCES[kind][number % len(SOURCES[kind])], "'after'"] if kind != "fine" else []
    made = document(*fine[:2], *bad, *fine[2:])
    made["cells"][0] = code(fine[0], id="a", outputs=[{"output_type": "stream", "name": "stdout", "text": "<script>"}])  # fmt: skip
    return json.dumps(made).encode()


@pytest.fixture
def generated(run):
    """Write the notebooks, each kind's among the others; return their statuses by name."""
    names = [(kind, n) for kind, (many, _) in KINDS.items() for n in range(many)]
    random.Random(7).shuffle(names)
    statuses = {}
    for place, (kind, number) in enumerate(names):
        path = run.work / f"nb/{place % 7}/{place:03}-{kind}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(kind, number))
        statuses[f"nb/{place % 7}/{path.name}"] = KINDS[kind][1]
    return statuses


@pytest.mark.timeout(300)
def test_each_of_many_notebooks_meets_its_fate_and_nothing_is_left(run, generated):
    policy, tmp = run.world.policy(POLICY), run.world.root / "tmp"
    # More at once than processors: those that hang wait beside each other.
    options = ("--policy", policy, "--cell-timeout", "5", "--jobs", "8")
    ended = run("nb", "-o", "out", *options, seconds=280)
    assert ended.err == ""
    assert ended.status == 1
    assert {n: f for n, f in ended.statuses.items() if f != generated[n]} == {}
    assert ended.statuses.keys() == generated.keys()
    # Nothing is waited for: whatever was started is gone when the command is.
    assert processes.orphans() == []
    assert list(tmp.iterdir()) == []
    out = run.work / "out"
    assert sorted(os.listdir(out)) == [".cellblock", "nb"]  # noqa: PTH208
    for name, status in generated.items():
        assert (out / name).exists() is (status != "could not read"), name
        if name.endswith("-fine.ipynb"):
            number = int(texts(out / name)[2]) // 2
            assert texts(out / name) == ["", "", f"{number * 2}", f"{number:04}\n"]
        if name.endswith("-flood.ipynb"):
            assert (out / name).stat().st_size < 3_000_000, name
            assert texts(out / name)[3] == "'after'", name
