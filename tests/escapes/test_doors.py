"""Attacks through every door but plain cells: one small program a file.

A program's ``attack`` gets a ``Door`` and tries to get at the secret around it, or says what else
it got. ``prepare`` comes before the kernel starts, which is then its own. Its positive control is
the same attack on stock ipykernel, or, with ``CONTROL``, on a kernel in mode unsafe; what those
withstand too has a ``control`` of its own.
"""

import importlib.util
import os
from pathlib import Path

import pytest

from support import doors
from support.kernels import Kernel, World, nobody_prefix, world_of_nobody

FOLDER = Path(__file__).parent / "doors"


def read(path):
    spec = importlib.util.spec_from_file_location(f"door_{path.stem}", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


PROGRAMS = {f"{p.parent.name}/{p.stem}": read(p) for p in sorted(FOLDER.glob("*/*.py"))}


class Kernels:
    """Kernels of one user, started when they are wanted and kept while they live."""

    def __init__(self, nobody):
        self.nobody, self.kept = nobody, {}

    def door(self, kind, program=None):
        alone = hasattr(program, "prepare") or getattr(program, "ALONE", False)
        found = None if alone else self.kept.pop(kind, None)
        if found is None or found.kernel.proc.poll() is not None:
            found = self.start(kind, program)
        return found

    def start(self, kind, program):
        world = world_of_nobody() if self.nobody else World()
        prey = doors.Prey(world)
        told = program.prepare(prey) if hasattr(program, "prepare") else {}
        prefix = (*told.get("prefix", ()), *(nobody_prefix() if self.nobody else ()))
        argv = told.get("argv", {}).get(kind, doors.ARGVS[kind])
        kernel = Kernel(
            argv, world=world, prefix=prefix, extra_env=prey.environment | told.get("env", {})
        )
        door = doors.Door(kernel, prey, argv)
        try:
            doors.wait_ready(kernel)
        except TimeoutError:
            if kernel.proc.poll() is None or not prey.mark.exists():
                end(door)
                raise
        return door

    def give_back(self, kind, program, door):
        alone = hasattr(program, "prepare") or getattr(program, "ALONE", False)
        if alone or kind in self.kept:
            end(door)
        else:
            self.kept[kind] = door

    def close(self):
        for door in self.kept.values():
            end(door)


def end(door):
    door.kernel.close()
    door.prey.world.close()


@pytest.fixture(scope="module")
def kernels(request):
    nobody = getattr(request, "param", "same user") == "nobody"
    if nobody and nobody_prefix() is None:
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    made = Kernels(nobody)
    yield made
    made.close()


#: What holds there is the OS layer, which acts differently for root.
FOR_BOTH = ("secrets", "start")
USERS = ["same user", "nobody"] if os.geteuid() == 0 else ["same user"]
CASES = [
    pytest.param(user, name, id=f"{name}-{user}")
    for user in USERS
    for name in PROGRAMS
    if user == "same user" or name.startswith(FOR_BOTH)
]


@pytest.mark.parametrize(("kernels", "name"), CASES, indirect=["kernels"])
def test_attack_gets_nothing(kernels, name):
    program = PROGRAMS[name]
    kind = getattr(program, "POLICY", "safe")
    door = kernels.door(kind, program)
    try:
        found = door.loot(program.attack(door))
        assert found == [], door.kernel.stderr()[-2_000:]
        assert door.answers()
    finally:
        kernels.give_back(kind, program, door)


@pytest.mark.parametrize("name", PROGRAMS)
def test_positive_control_the_attack_is_worth_its_file(kernels, name):
    program = PROGRAMS[name]
    own = getattr(program, "control", None)
    kind = getattr(program, "POLICY", "safe") if own else getattr(program, "CONTROL", "stock")
    door = kernels.door(kind, program)
    try:
        if own:
            assert own(door)
        else:
            # What runs in place of a module of the kernel's often ends it.
            alive = door.kernel.proc.poll() is None
            assert door.loot(program.attack(door) if alive else None)
    finally:
        kernels.give_back(kind, program, door)
