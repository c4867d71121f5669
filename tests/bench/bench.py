"""Compares cellblock with stock ipykernel in one run, as ratios (lower is better).

python tests/bench/bench.py [--kernel cellblock] [--against python3] [--rounds 5] [--json FILE]
                            [--only MEASURE ...] [--starts]

The two kernels take turns, so that a machine that slows down slows both. Figures are medians. Then
it measures starts behind each backend, as ratios to landlock's, and the time for which a start
looks up a proof; with ``--starts`` only these. This is never a timed test: the numbers are for
developers who change a hot path.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cellblock.backends import container_engine
from cellblock.backends.container_engine import EMPTY_IMAGE, build_image
from support import engine, machines
from support.kernels import Kernel, World, argv_for, argv_of

TARGETS = {
    "round trip": 0.7,
    "spawn": 0.9,
    "100k prints": 0.4,
    "1k displays": 0.6,
    "error cell": 0.8,
    "3000 lines": 0.9,
    "completion": 0.7,
    "interrupt": 1.0,
    "memory": 1.3,
}
PRINTS = "for i in range(100_000): print(i)"
DISPLAYS = "for i in range(1_000): display(i)"
ERROR = "def f(x):\n    return g(x)\ndef g(x):\n    y = x + 1\n    return y / 0\nf(1)"
LONG = "\n".join(f"v{i} = {i} * 2 + len('{i}')" for i in range(3000))


class UsersWorld(World):
    """The user's own environment, since a first start in an empty home would slow ipykernel."""

    def environment(self, **extra: str) -> dict[str, str]:
        return dict(os.environ) | extra


def timed(action) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def whole(kernel: Kernel, code: str, status: str = "ok") -> float:
    """Return the milliseconds from a request to its reply and idle."""

    def once() -> None:
        reply, _ = kernel.run(code)
        if reply["status"] != status:
            raise RuntimeError(f"{code[:40]!r}: {reply}")

    return timed(once)


def round_trip(kernel: Kernel) -> float:
    return statistics.median(whole(kernel, "x = 1") for _ in range(100))


def error_cell(kernel: Kernel) -> float:
    return statistics.median(whole(kernel, ERROR, "error") for _ in range(10))


def completion(kernel: Kernel) -> float:
    def once() -> None:
        mid = kernel.send("complete_request", {"code": "word.upp", "cursor_pos": 8})
        content = kernel.reply(mid)["content"]
        kernel.until_idle(mid)
        if not any(m.endswith("upper") for m in content["matches"]):
            raise RuntimeError(content)

    return statistics.median(timed(once) for _ in range(30))


def interrupt(kernel: Kernel) -> float:
    """Return the milliseconds from interrupt_request to the reply of the interrupted cell."""
    mid = kernel.execute_send("print('go', flush=True)\nwhile True: pass")
    while kernel.recv("iopub")["msg_type"] != "stream":
        pass
    time.sleep(0.05)

    def once() -> None:
        if kernel.interrupt_mode == "message":
            kernel.send("interrupt_request", {}, "control")
        else:
            kernel.proc.send_signal(signal.SIGINT)
        kernel.reply(mid)

    took = timed(once)
    kernel.until_idle(mid)
    return took


def spawn(name: str) -> tuple[Kernel, float]:
    """Return a kernel, and the milliseconds from its spawn to its first execute reply."""
    kernel = Kernel(argv_of(name), world=UsersWorld())
    mid = kernel.execute_send("x = 1")
    kernel.reply(mid)
    took = (time.perf_counter() - kernel.started) * 1000
    kernel.interrupt_mode = "message" if name != "python3" else "signal"
    return kernel, took


MEASURES = {
    "round trip": round_trip,
    "100k prints": lambda k: whole(k, PRINTS),
    "1k displays": lambda k: whole(k, DISPLAYS),
    "error cell": error_cell,
    "3000 lines": lambda k: whole(k, LONG),
    "completion": completion,
    "interrupt": interrupt,
    "memory": lambda k: k.pss(),
}


def measure(names: list[str], rounds: int, only: list[str]) -> dict[str, dict[str, list[float]]]:
    got: dict[str, dict[str, list[float]]] = {n: {"spawn": []} for n in names}
    for _ in range(rounds):
        kernels = {}
        for name in names:
            kernels[name], took = spawn(name)
            got[name]["spawn"].append(took)
        for kernel in kernels.values():
            kernel.run("word = 'abc'")
            for _ in range(20):
                kernel.run("x = 1")
        for label, fn in MEASURES.items():
            if only and label not in only:
                continue
            for name, kernel in kernels.items():
                got[name].setdefault(label, []).append(fn(kernel))
        for kernel in kernels.values():
            kernel.close()
            kernel.world.close()
    return got


#: The starts to measure: the policy's backend, and whether doctor has proved the policy before.
STARTS = {
    "landlock": ("landlock", False),
    "landlock, proved": ("landlock", True),
    "noop": ("noop", False),
    "bubblewrap": ("bubblewrap", False),
    "docker": ("docker", False),
}
#: Ratios to landlock's start.
START_TARGETS = {"bubblewrap": 1.15}
#: Milliseconds that looking up a proof may take.
PROOF_TARGET = 20.0
DOCTOR = "from cellblock.cli.main import main; main()"


class Place(World):
    """The world in which a kernel behind one backend starts again and again."""

    def __init__(self, backend: str, *, proved: bool) -> None:
        super().__init__(backend=backend)
        image = f'container_image = "{EMPTY_IMAGE}"\n' if backend == "docker" else ""
        self.named = self.policy(f'extends = "safe"\nbackend = "{backend}"\n{image}')
        if proved:
            words = ["doctor", "--policy", str(self.named)]
            command = [sys.executable, "-P", "-c", DOCTOR, *words]
            options = {"cwd": self.work, "env": self.environment(), "stdout": subprocess.DEVNULL}
            subprocess.run(command, check=True, **options)

    def environment(self, **extra: str) -> dict[str, str]:
        where = {k: v for k, v in os.environ.items() if k == "DOCKER_HOST"}
        return super().environment(**where, **extra)

    def start(self) -> float:
        """Start a kernel and end it; return the milliseconds to its first execute reply."""
        kernel = Kernel(argv_for(self.named), world=self)
        kernel.reply(kernel.execute_send("x = 1"))
        took = (time.perf_counter() - kernel.started) * 1000
        kernel.close()
        return took


def starts(rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of starts behind each backend on this machine, measured in turns."""
    with contextlib.ExitStack() as made:
        missing = {"bubblewrap": machines.no_bubblewrap()}
        missing["docker"] = made.enter_context(engine.running())
        if not missing["docker"]:
            build_image(container_engine.find_engine("docker", os.environ))
        places = {}
        for label, (backend, proved) in STARTS.items():
            if why := missing.get(backend):
                print(f"{label}: not measured: {why}")
            else:
                places[label] = Place(backend, proved=proved)
                made.callback(places[label].close)
                places[label].start()  # a first start in a home takes longer
        got: dict[str, list[float]] = {label: [] for label in places}
        for _ in range(rounds):
            for label, place in places.items():
                got[label].append(place.start())
        return got


def show_starts(got: dict[str, list[float]]) -> list[dict[str, object]]:
    """Print the starts with their ratios to landlock's; return them as rows."""
    least = statistics.median(got["landlock"])
    rows: list[dict[str, object]] = []
    print(f"\n{'start behind':22}{'':>14}{'ratio':>8}{'target':>8}")
    for label, times in got.items():
        took = statistics.median(times)
        print(f"{label:22}{took:>11.2f} ms{took / least:>8.2f}{START_TARGETS.get(label, ''):>8}")
        rows.append({"measure": f"start: {label}", "ours": took, "ratio": took / least})
    # The quickest of each, since starts vary by more than this costs.
    more = min(got["landlock, proved"]) - min(got["landlock"])
    print(f"{'a proof is looked up':22}{more:>11.2f} ms{'':>8}{PROOF_TARGET:>5.0f} ms")
    return rows


def show(ours: str, theirs: str, got: dict[str, dict[str, list[float]]]) -> list[dict[str, object]]:
    """Print the two kernels' figures with ratios; return them as rows."""
    rows: list[dict[str, object]] = []
    print(f"{'':14}{ours:>14}{theirs:>14}{'ratio':>8}{'target':>8}")
    for label, target in TARGETS.items():
        if label not in got[ours]:
            continue
        one, other = (statistics.median(got[name][label]) for name in (ours, theirs))
        unit = "KiB" if label == "memory" else "ms"
        print(f"{label:14}{one:>11.2f} {unit}{other:>11.2f} {unit}{one / other:>8.2f}{target:>8}")
        rows.append(
            {"measure": label, "ours": one, "theirs": other, "ratio": one / other, "unit": unit}
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", default="cellblock")
    parser.add_argument("--against", default="python3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--starts", action="store_true")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    if not args.starts:
        names = [args.kernel, args.against]
        rows += show(*names, measure(names, args.rounds, args.only))
    if not args.only:
        rows += show_starts(starts(args.rounds))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
