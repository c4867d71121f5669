"""Measures the cost of the language layer in a loop within a cell, as ratios to plain Python.

Each figure is the least of many runs, which both sides make in turns in one session.
"""

from __future__ import annotations

import ast
import subprocess
import sys

from cellblock import Sandbox

#: Iterations of a loop, loops of which the quickest counts, and rounds.
LOOP, RUNS, ROUNDS = 10_000, 30, 5
LINES = {
    "attribute": "x.value",
    "call of a method": "x.method()",
    "isinstance": "isinstance(x, C)",
    "getattr": 'getattr(x, "value")',
    "getattr with a default": 'getattr(x, "nothing", None)',
    "getattr, computed": "getattr(x, name)",
    "hasattr": 'hasattr(x, "value")',
    "hasattr, not there": 'hasattr(x, "nothing")',
    "hasattr, computed": "hasattr(x, name)",
    "setattr": 'setattr(x, "value", 1)',
    "str.format": "template.format(1, i)",
    "str.format of a literal": '"{} {}".format(1, i)',
    "sorted by a key": "sorted(numbers, key=C.negative)",
    "re.sub": "re.sub(pattern, 'b', text)",
    "match by position": "match_by_position(x)",
}
PROGRAM = """
import re
class C:
    __match_args__ = ("value",)
    def __init__(self):
        self.value = 1
    def method(self): pass
    @staticmethod
    def negative(number): return -number
def match_by_position(x):
    match x:
        case C(1): pass
x, name, template, text, pattern = C(), "value", "{} {}", "aaaa", re.compile("a")
numbers = list(range(10))
"""
TIMED = """
took = []
for _ in range({runs}):
    began = perf_counter()
    {run}
    took.append(perf_counter() - began)
times.append(min(took))
"""


def program() -> str:
    """Return the cell, which times each line in a loop within a function and in one without."""
    made = [PROGRAM, "from time import perf_counter", "times = []"]
    for number, line in enumerate(LINES.values()):
        loop = f"for i in range({LOOP}): {line}"
        made.append(f"def f{number}():\n    {loop}\n")
        made += [TIMED.format(runs=RUNS, run=run) for run in (f"f{number}()", loop)]
    return "\n".join([*made, "print(times)"])


def main() -> None:
    """Print two ratios for each line, and its time in a function of plain Python."""
    cell = program()
    guarded, plain = [], []
    with Sandbox("safe") as sandbox:
        for _ in range(ROUNDS):
            result = sandbox.execute(cell, timeout=120)
            if result.error or result.denials:
                raise SystemExit(f"not run: {result.error} {result.denials}")
            guarded.append(ast.literal_eval(result.output))
            done = subprocess.run(
                [sys.executable, "-c", cell], check=True, capture_output=True, text=True
            )
            plain.append(ast.literal_eval(done.stdout))
    ours, theirs = (list(map(min, zip(*times, strict=True))) for times in (guarded, plain))
    print(f"{'':26}function  cell")
    for number, what in enumerate(LINES):
        in_function, in_cell = (ours[at] / theirs[at] for at in (2 * number, 2 * number + 1))
        took = theirs[2 * number] / LOOP * 1e9
        print(f"{what:26}{in_function:8.2f}{in_cell:6.2f}{took:8.0f} ns")


if __name__ == "__main__":
    main()
