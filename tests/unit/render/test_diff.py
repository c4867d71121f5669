"""Diffs of hostile texts are found in bounded time; those of honest ones are what diff -u says."""

import difflib
import random
import time

from hypothesis import given
from hypothesis import strategies as st

from cellblock.render.text import unified

LINES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


@given(LINES, LINES)
def test_applied_to_the_old_text_it_gives_the_new_one(old, new):
    made, left = [], list(old)
    at = 0
    for line in unified(old, new, "", "")[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1][1:].split(",")[0])
            empty = line.split()[1].endswith(",0")
            upto = start if empty else start - 1
            made += left[at:upto]
            at = upto
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert left[at] == line[1:]
            at += 1
            made += [line[1:]] if line[0] == " " else []
    assert made + left[at:] == new


def test_two_edits_far_apart_are_two_hunks_as_in_diff_u():
    old = [f"line {n}" for n in range(5_000)]
    new = [*old[:10], "changed", *old[11:4_000], "added", *old[4_000:]]
    assert unified(old, new, "a", "b") == list(
        difflib.unified_diff(old, new, "a", "b", lineterm="")
    )


def test_the_worst_texts_a_cell_can_write_take_less_than_half_a_second():
    random.seed(1)
    few = [random.choice("ab") for _ in range(100_000)]
    other = [random.choice("ab") for _ in range(100_000)]
    apart = [f"{n}" if n % 2 else "x" for n in range(30_000)]
    for old, new in (
        (few, other),
        (few, few[::-1]),
        (["a", "b"] * 50_000, ["b", "a", "a"] * 33_000),
        (apart, apart[::-1]),
        (["x"] * 100_000, ["x", "y"] * 50_000),
    ):
        began = time.process_time()
        unified(old, new, "a", "b")
        assert time.process_time() - began < 0.5
