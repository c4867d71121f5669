"""The containment cases against the guards: with everything on, and where no source is checked."""

from pathlib import Path

import pytest

from support import guarded

CASES = [
    guarded.Program(name, tuple(cells))
    for name, cells, _ in guarded.cases(Path(__file__).parent / "cases")
]


@pytest.fixture(scope="module", params=[{}, {"arm": False}, {"check": False}], ids=str)
def world_and_results(request, tmp_path_factory):
    world = guarded.World(tmp_path_factory.mktemp("world"))
    return world, world.run(CASES, **request.param)


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_guards_hold(name, world_and_results):
    world, results = world_and_results
    assert not world.breach(results[name]), results[name]


def test_every_case_has_a_name_of_its_own():
    assert len({case.name for case in CASES}) == len(CASES) > 100
