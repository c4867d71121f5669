"""Attacks on the OS layer alone: one small program per file, run in a guest of mode unsafe.

Each file in `os/programs/*/` has ``attack(w)``, which raises OSError where it is refused and
returns where it is not (False: it came to nothing), and says ``confined``, what must come of it
in the guest. Run unconfined by the same user it comes to ``unconfined``, "reached" by default:
the positive control. ``only_root`` marks what the OS itself refuses to everybody else, and
``no_control`` says why there is none; ``gap`` marks what is disclosed as not held.

Whatever a program says of itself, witnesses outside are looked at: files, a process, listeners,
what is kept by the OS kernel.
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from support import machines, reading
from support.kernels import Kernel, argv_for, nobody_prefix, world_and_prefix
from support.surroundings import Surroundings

FOLDER = Path(__file__).parent / "os"
PRELUDE = (FOLDER / "prelude.py").read_text()
EVERYWHERE = sorted((FOLDER / "programs").glob("*/*.py"))
TAIL = "\nprint(json.dumps(outcome(attack, json.loads({world!r}))))"
#: What an OS kernel says that was built without something, or has no such device.
ABSENT = {
    "ENOSYS",
    "ENOTSUP",
    "EOPNOTSUPP",
    "ENOPKG",
    "EPROTONOSUPPORT",
    "EAFNOSUPPORT",
    "ESOCKTNOSUPPORT",
    "ENODEV",
}


#: What attacks come to besides in namespaces: what they look for is not there, or not written.
NOT_THERE = {"ENOENT", "EROFS", "StopIteration: "}


@pytest.fixture(scope="module")
def party_of():
    """Return a kernel in mode unsafe and a shell without confinement, both of one user."""
    with contextlib.ExitStack() as stack:
        yield cache(lambda *asked: stack.enter_context(started(*asked)))


@contextlib.contextmanager
def started(whose, more=""):
    place, prefix = world_and_prefix(whose)
    for name in ("readable", "writable", "outside"):
        (place.root / name).mkdir()
        place.give(place.root / name)
    policy = place.policy(
        "extends = 'unsafe'\nmemory_max_bytes = 2_147_483_648\n"
        f"filesystem_read_roots = ['{place.root}/readable']\n"
        f"filesystem_write_roots = ['{{scratch}}', '{place.root}/writable']\n{more}"
    )
    kernel = Kernel(argv_for(policy, "--allow-unsafe"), world=place, prefix=prefix)
    control = subprocess.Popen(
        [*prefix, sys.executable, "-P", str(FOLDER / "control.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=place.work,
        # Under coverage a process in seccomp's strict mode dies before it can say that it is there.
        env={k: v for k, v in place.environment().items() if not k.startswith("COVERAGE_")},
    )
    around = Surroundings(place, place.user is not None)
    try:
        yield Party(kernel.wait_ready(), control, around)
    finally:
        around.close()
        control.stdin.close()
        control.wait(10)
        control.stdout.close()
        kernel.close()
        place.close()


class Party:
    def __init__(self, kernel, control, around):
        self.kernel, self.control, self.around = kernel, control, around
        self.in_namespaces = kernel.world.backend == "bubblewrap"

    def confined(self, source, world):
        """Return the outcome in the guest, and everything that the front end was sent."""
        tail = TAIL.format(world=json.dumps(world))
        reply, published = self.kernel.run(source + tail)
        said = reading.stream(published)
        assert reply["status"] == "ok", f"{reply}\n{reading.stream(published, 'stderr')}"
        return json.loads(said.splitlines()[-1]), json.dumps(published, default=str)

    def unconfined(self, source, world):
        request = json.dumps({"source": source, "world": world}) + "\n"
        self.control.stdin.write(request.encode())
        self.control.stdin.flush()
        return json.loads(self.control.stdout.readline())


def declared(path):
    """Return what a program says about itself, without running it as an attack."""
    scope = {"__name__": "declarations"}
    exec(compile(path.read_text(), path, "exec"), scope)
    return scope


PROGRAMS = [
    path
    for path in EVERYWHERE
    if declared(path).get("machine", platform.machine()) == platform.machine()
]


#: Programs of every family; the rest are not `quick`.
QUICK = PROGRAMS[::12]
CASES = [
    pytest.param(
        path,
        id=f"{path.parent.name}-{path.stem}",
        marks=[pytest.mark.quick] if path in QUICK else [],
    )
    for path in PROGRAMS
]


@pytest.mark.parametrize("path", CASES)
def test_the_attack_is_refused_to_every_user_and_unconfined_it_is_not(
    path, party_of, record_property
):
    everybody = machines.users(wrapped=True)
    missing = {whose: why for whose in everybody if (why := unavailable(whose))}
    for whose in everybody:
        if whose not in missing and (lacking := attacked(path, party_of(whose), whose)):
            record_property(f"this OS kernel offers no control as {whose}", lacking)
    if missing:  # the others were attacked; CI counts what is skipped here as failed
        pytest.skip("; ".join(f"not as {whose}: {why}" for whose, why in missing.items()))


def unavailable(whose):
    """Return why no kernel can be started as somebody here."""
    user, _, wrapped = whose.partition(" in ")
    if user == "nobody" and nobody_prefix() is None:
        return "this interpreter is out of reach for uid 65534, also in a mount namespace"
    return machines.no_bubblewrap() if wrapped else ""


def attacked(path, party, whose):
    """Run an attack and its control; return what the OS kernel said that offers no control."""
    says = declared(path)
    source = PRELUDE + path.read_text()

    with party.around.watched() as watched:
        came_to, published = party.confined(source, watched.world)
        watched.nothing_happened()
    assert came_to in confined(says, party), whose
    if "gap" not in says:
        assert watched.token not in published, whose
    if "no_control" in says or (says.get("only_root") and os.geteuid() + party.around.uid != 0):
        return ""
    with party.around.watched() as watched:
        control = party.unconfined(source, watched.world)
    if control in ABSENT - {says.get("unconfined")}:
        return control
    assert control == says.get("unconfined", "reached"), whose
    assert control != came_to or "gap" in says, whose
    return ""


#: What cells with programs may do to themselves and what they start, done to somebody else.
WITH_PROGRAMS = sorted((FOLDER / "with_programs").glob("*.py"))


@pytest.mark.parametrize("path", WITH_PROGRAMS, ids=lambda path: path.stem)
def test_what_programs_may_do_to_their_own_is_refused_to_others(path, party_of):
    missing = {}
    for whose in machines.users(wrapped=True):
        if why := unavailable(whose):
            missing[whose] = why
        else:
            attacked(path, party_of(whose, "subprocess_execution = true\n"), whose)
    if missing:
        pytest.skip("; ".join(f"not as {whose}: {why}" for whose, why in missing.items()))


#: What comes to something where programs have a network of their own, and reaches nobody there.
AMONG_THEMSELVES = {
    "bind_half_of_a_pair",
    "every_other_family",
    "recvmmsg",
    "send_a_descriptor",
    "send_credentials",
    "sendmmsg",
    "udp",
    "udp_connected",
}
#: What ends the guest: its channel is no socket of its programs.
ENDS_THE_GUEST = {"send_a_descriptor_to_the_host"}
WITH_SOCKETS = [
    path for path in PROGRAMS if path.parent.name == "network" and path.stem not in ENDS_THE_GUEST
]


@pytest.mark.parametrize("path", WITH_SOCKETS, ids=lambda path: path.stem)
def test_programs_reach_nobody_by_the_network_that_they_have_to_themselves(path, party_of):
    whose = machines.users(wrapped=True)[-1]
    if why := unavailable(whose):
        pytest.skip(why)
    party = party_of(whose, "subprocess_execution = true\n")
    with party.around.watched() as watched:
        came_to, published = party.confined(PRELUDE + path.read_text(), watched.world)
        watched.nothing_happened()
    assert came_to != "reached" or path.stem in AMONG_THEMSELVES
    assert watched.token not in published


@pytest.mark.parametrize("path", WITH_SOCKETS, ids=lambda path: path.stem)
def test_nobody_is_reached_under_a_list_of_addresses_either(path, party_of):
    # By whoever may do least, with an address listed that nobody listens at.
    party = party_of(machines.users()[-1], "network_access = ['127.7.7.7:1']\n")
    with party.around.watched() as watched:
        came_to, published = party.confined(PRELUDE + path.read_text(), watched.world)
        watched.nothing_happened()
    assert came_to != "reached" or path.stem in AMONG_THEMSELVES
    assert watched.token not in published


OF_PROC = ["keys_of_the_user", "what_proc_tells_of_the_machine"]
#: What programs look up there; libraries too, as psutil.
LOOKED_UP = """
lines = {name: open(f"/proc/{name}").readline() for name in (
    "cpuinfo", "loadavg", "meminfo", "self/status", "self/mountinfo", "stat", "uptime", "version",
    "sys/kernel/osrelease", "sys/kernel/pid_max", "sys/vm/overcommit_memory",
)}
beside = [name for name in os.listdir("/proc") if not name.isdigit()]
print(json.dumps([name for name, line in lines.items() if not line.strip()]))
"""


@pytest.mark.parametrize("whose", ["same user in namespaces", "nobody in namespaces"])
def test_cells_with_programs_read_of_proc_what_those_look_up_and_no_more(party_of, whose):
    if why := unavailable(whose):
        pytest.skip(why)
    if os.geteuid() != 0 and whose.startswith("nobody"):
        pytest.skip("only root starts a kernel as somebody else")
    party = party_of(whose, "subprocess_execution = true\n")
    for name in OF_PROC:
        path = FOLDER / "programs" / "kernel" / f"{name}.py"
        with party.around.watched() as watched:
            source = PRELUDE + path.read_text()
            assert party.confined(source, watched.world)[0] in NOT_THERE | {"EACCES"}, name
            assert party.unconfined(source, watched.world) == "reached"
    assert json.loads(reading.stream(reading.run(party.kernel, PRELUDE + LOOKED_UP))) == []


def confined(says, party):
    """Return what an attack may come to in the guest."""
    if not party.in_namespaces:
        return {says["confined"]}
    # Of what Landlock leaves open, names are not reached here.
    names = says["confined"] == "reached" and "names" in says["gap"]
    return NOT_THERE | ({"EACCES"} if names else {says["confined"]})


def test_there_is_a_program_for_each_family():
    """At least as many cases as the containment sample has for this layer."""
    assert len(PROGRAMS) >= 120
