"""Measure what the language layer costs in a loop within one cell, against plain Python, as ratios.

Each line is the least of many runs on each side, taken in turns in one session.
"""

from __future__ import annotations

import ast
import subprocess
import sys

from cellblock import Sandbox

#: Turns of a loop, loops of which the least counts, and how often each side is asked.
LOOP, RUNS, ROUNDS = 10_000, 30, 3
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
import re, time
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


def program() -> str:
    """Return the cell: a function for each line, and a loop that times them."""
    made = [PROGRAM]
    for number, line in enumerate(LINES.values()):
        made.append(f"def f{number}(n):\n    for i in range(n): {line}\n")
    functions = ", ".join(f"f{number}" for number in range(len(LINES)))
    made.append(
        f"""
def least(f):
    best = 1e9
    for _ in range({RUNS}):
        began = time.perf_counter()
        f({LOOP})
        best = min(best, time.perf_counter() - began)
    return best
print([least(f) for f in ({functions},)])
"""
    )
    return "\n".join(made)


def main() -> None:
    """Print a ratio a line."""
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
    for what, *times in zip(LINES, *guarded, *plain, strict=True):
        ours, theirs = min(times[:ROUNDS]), min(times[ROUNDS:])
        print(f"{what:26} {ours / theirs:5.2f}   {theirs / LOOP * 1e9:7.0f} ns")


if __name__ == "__main__":
    main()
