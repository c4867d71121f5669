"""Attacks on the language layer by itself: one program a file, the OS layer off.

Each runs with everything on and with the audit hook left out, since the guards have to hold without
it. And each runs where there is no layer at all, to prove that its witness would be seen.
"""

from pathlib import Path

import pytest

from support import guarded

PROGRAMS = [p for p in guarded.attacks(Path(__file__).parent / "language") if p.runs_here]
LAYERS = {"everything": {}, "no audit hook": {"arm": False}}
#: To prepare a process takes as long as many programs: a test is a share of them, of all families.
SHARES = 6


@pytest.mark.quick
@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", range(SHARES))
def test_attacks_get_nothing_and_are_seen_where_there_is_no_layer(share, tmp_path):
    programs = PROGRAMS[share::SHARES]
    for layer, left in LAYERS.items():
        world = guarded.World(tmp_path / layer.replace(" ", "-"))
        results = world.run(programs, **left)
        breached = {name: result for name, result in results.items() if world.breach(result)}
        assert breached == {}, layer

    world = guarded.World(tmp_path / "no-layer")
    results = world.run([p for p in programs if p.is_seen], layer=False)
    assert {name: result for name, result in results.items() if not world.loot(result)} == {}


def test_every_program_has_a_name_of_its_own():
    names = {program.name.partition("/")[2] for program in PROGRAMS}
    assert len(names) == len(PROGRAMS) > 500
