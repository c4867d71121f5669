"""The sample's cases of the guards, by rule: they hold with all, with no audit hook, with no check.

``test_sample.py`` runs the same in whole kernels, where one layer may hide a hole in another.
"""

from functools import cache
from pathlib import Path

import pytest

from support import guarded

#: The first of them waits for all.
pytestmark = [pytest.mark.quick, pytest.mark.timeout(300)]

CORPUS = Path(__file__).parent / "sample" / "corpus"
CASES = [
    guarded.Program(name, tuple(cells))
    for pattern in ("s0?_*.toml", "s1[0-3]_*.toml")
    for name, cells, _ in guarded.cases(CORPUS, pattern)
]
LAYERS = {
    "everything": {},
    "no audit hook": {"arm": False},
    "no check of sources": {"check": False},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return what each case came to, by what is left of the layer; all are run together."""

    @cache
    def results(layer):
        world = guarded.World(tmp_path_factory.mktemp("world"))
        return world, world.run(CASES, **LAYERS[layer])

    return results


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_guards_hold(name, ran):
    for layer in LAYERS:
        world, results = ran(layer)
        assert not world.breach(results[name]), (layer, results[name])


def test_every_case_has_a_name_of_its_own():
    assert len({case.name for case in CASES}) == len(CASES) > 100
