"""Attacks through every door but plain cells: one small program a file.

A program's ``attack`` gets a ``Door`` and tries to get at the secret around it, or says what else
it got. ``prepare`` comes before the kernel starts, which is then its own. Its positive control is
the same attack on stock ipykernel, or, with ``CONTROL``, on a kernel in mode unsafe; what those
withstand too has a ``control`` of its own. One that has just a ``change`` forges a message by it;
its control is the message as it was.
"""

import contextlib
import importlib.util
from pathlib import Path

import pytest

from support import doors, machines
from support.kernels import Kernel, world_and_prefix

FOLDER = Path(__file__).parent / "doors"
#: What shares a kernel with others.
QUICK = pytest.mark.quick


def read(path):
    spec = importlib.util.spec_from_file_location(f"door_{path.stem}", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    if hasattr(program, "change"):
        program.attack = lambda door: door.forge(program.change)
        program.control = lambda door: door.forge(list)
    return program


PROGRAMS = {f"{p.parent.name}/{p.stem}": read(p) for p in sorted(FOLDER.glob("*/*.py"))}


def is_alone(program):
    """Say whether a program wants a kernel of its own."""
    return hasattr(program, "prepare") or getattr(program, "ALONE", False)


class Kernels:
    """Kernels by user and kind, started when they are wanted and kept while they live."""

    def __init__(self):
        self.kept = {}

    @contextlib.contextmanager
    def door(self, user, kind, program):
        alone = is_alone(program)
        door = None if alone else self.kept.pop((user, kind), None)
        if door is None or door.kernel.proc.poll() is not None:
            if door:
                end(door)
            door = start(user, kind, program)
        door.kernel.log.clear()
        try:
            yield door
        finally:
            if alone:
                end(door)
            else:
                self.kept[user, kind] = door

    def close(self):
        for door in self.kept.values():
            end(door)


def start(user, kind, program):
    world, prefix = world_and_prefix(user)
    prey = doors.Prey(world)
    told = program.prepare(prey) if hasattr(program, "prepare") else {}
    prefix = (*told.get("prefix", ()), *prefix)
    argv = told.get("argv", {}).get(kind, doors.ARGVS[kind])
    if argv == doors.STOCK and not is_alone(program):
        argv = doors.PROMPT_STOCK
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


def end(door):
    door.kernel.close()
    door.prey.world.close()


@pytest.fixture(scope="module")
def kernels():
    made = Kernels()
    yield made
    made.close()


#: What holds there is the OS layer, which acts differently for root.
FOR_BOTH = ("secrets", "start")
USERS = machines.users()
CASES = [
    pytest.param(user, name, id=f"{name}-{user}", marks=[] if is_alone(program) else QUICK)
    for user in USERS
    for name, program in PROGRAMS.items()
    if user == "same user" or name.startswith(FOR_BOTH)
]


@pytest.mark.parametrize(("user", "name"), CASES)
def test_attack_gets_nothing_and_is_worth_its_file(kernels, user, name):
    program = PROGRAMS[name]
    confined = getattr(program, "POLICY", "safe")
    with kernels.door(user, confined, program) as door:
        found = door.loot(program.attack(door))
        assert found == [], door.kernel.stderr()[-2_000:]
        assert door.answers()
    if user != USERS[0]:
        return
    own = getattr(program, "control", None)
    kind = confined if own else getattr(program, "CONTROL", "stock")
    with kernels.door(user, kind, program) as door:
        if own:
            assert own(door), "the control"
        else:
            # What runs in place of a module of the kernel's often ends it.
            alive = door.kernel.proc.poll() is None
            assert door.loot(program.attack(door) if alive else None), "the control"
