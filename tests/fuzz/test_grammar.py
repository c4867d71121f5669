"""Generated attacks on the guards alone: none shows the canary a thing that cells must not hold.

Without ``FUZZ_SECONDS`` they are so many, and the same each time. With it (``make fuzz
SECONDS=600``) they are looked for that long, from a seed that a failure names.
"""

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from grammar import programs
from prepared import Prepared

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
FIRST_SEED = int(os.environ.get("FUZZ_SEED", "0")) or (int(time.time()) if SECONDS else 1)
#: Seeds that are tried at the least, each with 30 batches.
SEEDS = 2
BATCH = 40


@pytest.fixture
def prepared(request):
    made = Prepared(layer=request.param)
    yield made
    made.close()


def look(prepared, number, examples=30):
    """Run batches of programs; a failure is shrunk to the program that matters."""

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(programs, min_size=BATCH, max_size=BATCH))
    def batches(batch):
        breaches = prepared.run(batch)
        assert not breaches, "\n\n".join(f"{program}\n# {seen}" for program, seen in breaches)

    batches()


@pytest.mark.quick
@pytest.mark.parametrize("prepared", [True], indirect=True)
def test_none_of_a_few_hundred_programs_gets_the_canary(prepared):
    look(prepared, FIRST_SEED + SEEDS, examples=10)
    assert prepared.programs >= 10 * BATCH
    assert prepared.ended > prepared.programs / 100


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("prepared", [True], indirect=True)
def test_no_generated_program_gets_the_canary(prepared, record_property):
    began = time.monotonic()
    number = FIRST_SEED
    while number < FIRST_SEED + SEEDS or time.monotonic() - began < SECONDS:
        look(prepared, number)
        number += 1
    took = time.monotonic() - began
    rate = round(prepared.programs / took)
    record_property("programs", prepared.programs)
    print(
        f"\n{prepared.programs} programs in {took:.0f} s, {rate} a second, from seed {FIRST_SEED}"
    )
    print(f"{prepared.ended} came to their end")
    assert prepared.ended > prepared.programs / 100


@pytest.mark.quick
@pytest.mark.parametrize("prepared", [False], indirect=True)
def test_positive_control_without_the_layer_the_grammar_gets_the_canary(prepared):
    found = []

    @seed(1)
    @settings(max_examples=10, deadline=None, database=None, phases=[Phase.generate])
    @given(st.lists(programs, min_size=BATCH, max_size=BATCH))
    def batches(batch):
        found.extend(prepared.run(batch))

    batches()
    print(f"\n{len(found)} of {prepared.programs} programs got it")
    assert len(found) > prepared.programs / 50
    assert len({seen for _, seen in found}) > 5
