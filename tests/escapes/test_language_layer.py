"""Attacks on the language layer by itself: one program a file, the OS layer off.

Each runs with everything on and with the audit hook left out, since the guards have to hold without
it. And each runs where there is no layer at all, to prove that its witness would be seen.
"""

from pathlib import Path

import pytest

from support import guarded

#: The first test of each kind waits for all programs.
pytestmark = pytest.mark.timeout(900)

PROGRAMS = [p for p in guarded.attacks(Path(__file__).parent / "language") if p.runs_here]
NAMES = [program.name for program in PROGRAMS]
SEEN = [program.name for program in PROGRAMS if not program.unseen]


def run(tmp_path_factory, **options):
    world = guarded.World(tmp_path_factory.mktemp("world"))
    return world, world.run(PROGRAMS, **options)


@pytest.fixture(scope="module")
def with_everything(tmp_path_factory):
    return run(tmp_path_factory)


@pytest.fixture(scope="module")
def without_audit_hook(tmp_path_factory):
    return run(tmp_path_factory, arm=False)


@pytest.fixture(scope="module")
def without_the_layer(tmp_path_factory):
    return run(tmp_path_factory, layer=False)


@pytest.mark.parametrize("name", NAMES)
def test_attack_gets_nothing(name, with_everything):
    world, results = with_everything
    assert not world.breach(results[name]), results[name]


@pytest.mark.parametrize("name", NAMES)
def test_attack_gets_nothing_where_no_audit_hook_helps(name, without_audit_hook):
    world, results = without_audit_hook
    assert not world.breach(results[name]), results[name]


@pytest.mark.parametrize("name", SEEN)
def test_positive_control_without_the_layer_the_attack_is_seen(name, without_the_layer):
    world, results = without_the_layer
    assert world.loot(results[name]), results[name]


def test_every_program_has_a_name_of_its_own():
    assert len({name.partition("/")[2] for name in NAMES}) == len(NAMES) > 500
