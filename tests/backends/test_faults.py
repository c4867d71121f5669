"""A lock that fails, or silently does nothing, under a whole kernel: nothing runs, or a gap is shown.

Faults are the OS kernel's own answers (``support.faults``), and programs on PATH that are not what
they are called. Each call behind a lock has its row in ``confine/test_faults.py``, as
root and as nobody; here is one of each lock, as a front end and ``cellblock doctor`` see it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial

import pytest

from cellblock.backends import bubblewrap
from cellblock.backends.base import choose
from cellblock.backends.bubblewrap import Bubblewrap
from cellblock.errors import BackendError
from cellblock.guest.confine import arch, landlock
from cellblock.policy.model import Policy
from confine.cell import run
from support import faults, machines, probe_suite, reading
from support.kernels import Kernel, World, argv_changed, argv_for

MACHINE = arch.current()
pytestmark = pytest.mark.skipif(
    MACHINE is None or landlock.abi(MACHINE) == 0, reason="this OS kernel has no Landlock"
)
WHY_NOT = machines.no_bubblewrap()
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"no bubblewrap: {WHY_NOT}")
NOT_STARTED = "The guest can't be started\n  {}\n  Instead: Run cellblock doctor; then restart "


def card(policy, world, **keywords):
    """Return the card that cells end on, of a kernel that leaves nothing."""
    with Kernel(argv_for(policy), world=world, **keywords) as kernel:
        reply, published = kernel.wait_heard().run("print('ran')")
    assert reply["ename"] == "PolicyProblem", reply
    assert reading.stream(published) == ""
    return reading.card_text(published)


@pytest.fixture
def landlocked():
    made = World(backend="landlock")
    yield made
    made.close()


@pytest.fixture
def wrapped():
    made = World(backend="bubblewrap")
    yield made
    made.close()


# --- one of each lock -----------------------------------------------------------------------------

NOTHING_RUNS = {
    "landlock_restrict_self=nothing": "landlock: read_file: an attempt succeeded under the lock",
    "seccomp:1=0=nothing": "seccomp: udp: refused for another reason: Connection refused",
    "prlimit64:1=7:2=*=nothing": "rlimits: the limit for max_open_files did not stick",
    "prctl:0=1=nothing": "end with the zygote: it would outlive its parent",
    "prctl:0=36=EINVAL": "orphans: refused by the OS kernel: Invalid argument",
    "close_range=nothing": r"inherited descriptors: descriptors are left open: \[.*\]",
}
if os.geteuid() == 0:  # whoever else has nothing to drop
    NOTHING_RUNS["capset=nothing"] = "capabilities: capabilities are left after capset"


@pytest.mark.parametrize("fault", NOTHING_RUNS)
def test_no_cell_runs_where_a_lock_fails_or_does_nothing(fault, landlocked):
    said = card("safe", landlocked, prefix=faults.prefix(fault))
    assert re.match(NOT_STARTED.format(NOTHING_RUNS[fault]), said), said


UNTRACEABLE = "it can't refuse to be traced (PR_SET_DUMPABLE)"
WITHOUT_CORES = "it can't do without core dumps (RLIMIT_CORE)"
HOST = {
    "prctl:0=4=EINVAL": UNTRACEABLE,
    "prctl:0=4=nothing": UNTRACEABLE,
    "prlimit64:1=4:2=*=EPERM": WITHOUT_CORES,
}


def ran(world, *command, **variables):
    """Run a command in a world; return its exit status and what it prints."""
    done = subprocess.run(
        [word.replace("{connection_file}", "/none.json") for word in command],
        check=False, capture_output=True, text=True, timeout=120,
        cwd=world.work, env=world.environment(**variables),
    )  # fmt: skip
    return done.returncode, done.stdout or done.stderr


@pytest.mark.parametrize("fault", HOST)
def test_a_host_that_others_could_read_reads_no_key(fault, landlocked):
    where = "Start it outside of the container, or the system call filter, that refuses it."
    said = f"cellblock: {HOST[fault]}. {where}\n"
    assert ran(landlocked, *faults.prefix(fault), *argv_for("safe")) == (1, said)


def test_a_python_that_can_take_no_lock_starts_no_kernel(landlocked):
    argv = argv_changed("import sys; sys.modules['ctypes'] = None", "safe")
    what = "this Python can't take a lock: it has no ctypes. Use one that was built with libffi."
    assert ran(landlocked, *argv) == (1, f"cellblock: {what}\n")


def doctor(world, policy, prefix=(), **variables):
    """Return doctor's exit status, its report, and each capability's status."""
    command = [*prefix, sys.executable, "-P", "-c", "from cellblock.cli.main import main; main()"]
    command += ["doctor", "--policy", str(policy), "--json"]
    status, said = ran(world, *command, **variables)
    report = json.loads(said)
    return status, report, {each["capability"]: each["status"] for each in report["capabilities"]}


def test_without_a_listener_the_gate_is_a_gap_on_the_first_cell_and_in_doctor(landlocked):
    without = {"prefix": faults.prefix("seccomp:1=*=ENOSYS")}
    with Kernel(argv_for("safe"), world=landlocked, **without) as kernel:
        (shown,) = reading.cards(kernel.wait_heard().run("1")[1], "enforcement")
    status, report, statuses = doctor(landlocked, "safe", **without)

    missing = {"snapshots", "undo_depth", "max_branches", "max_processes"}
    # Threads without number are a cell's gain; a lack of snapshots is only the user's loss.
    assert missing & {gap["capability"] for gap in shown["gaps"]} == {"max_processes"}
    assert missing <= {gap["capability"] for gap in report["gaps"]}
    assert not {statuses[name] for name in missing} & {"verified", "asserted"}
    # What has no need of it was tried, and holds.
    assert (status, statuses["network_access"]) == (0, "verified")


def test_doctor_takes_no_backend_whose_probe_sees_a_lock_do_nothing(landlocked):
    status, report, statuses = doctor(
        landlocked, "safe", prefix=faults.prefix("landlock_restrict_self=nothing")
    )
    order = {each["name"]: (each["verdict"], each["why"]) for each in report["order"]}
    passed_over = "landlock: read_file: an attempt succeeded under the lock"
    assert (status, report["backend"]) == (1, "noop")
    assert order["landlock"] == ("passed over", passed_over)
    assert statuses["filesystem_read_roots"] == "unenforced"


# --- no lock to be had at all ---------------------------------------------------------------------

NO_LANDLOCK = "landlock_create_ruleset=ENOSYS"
MISSING = "this OS kernel has no Landlock, or it is not switched on: boot with lsm=landlock,…"


def test_without_landlock_what_is_left_is_shown_in_the_log_on_the_first_cell_and_in_doctor(
    landlocked,
):
    policy = landlocked.policy('backend = "landlock"\nrequire = []\n')
    without = {"prefix": faults.prefix(NO_LANDLOCK)}
    with Kernel(argv_for(policy), world=landlocked, **without) as kernel:
        published = kernel.wait_heard().run("1")[1]
        (shown,) = reading.cards(published, "enforcement")
    status, report, statuses = doctor(landlocked, policy, **without)

    assert reading.card_text(published).startswith("✗ Audit only: nothing of this policy is ")
    assert "cellblock: WARN: backend noop: policy 'mine' is audited" in kernel.stderr()
    assert (status, report["backend"], shown["backend"]) == (1, "noop", "noop")
    for found in (shown["gaps"], report["gaps"]):
        missing = [gap["capability"] for gap in found]
        assert missing[0] == "backend"
        assert {"filesystem_read_roots", "network_access", "subprocess_execution"} <= {*missing}
    assert statuses["network_access"] == "unenforced"
    assert {each["why"] for each in report["order"] if each["name"] == "landlock"} == {MISSING}


@pytest.mark.parametrize("policy", ["safe", 'on_unsupported = "error"\nrequire = []\n'])
def test_nothing_runs_without_landlock_where_the_policy_insists(policy, landlocked):
    policy = policy if policy == "safe" else landlocked.policy(policy)
    said = card(policy, landlocked, prefix=faults.prefix(NO_LANDLOCK))
    why = f"backend 'auto' can't be had here (bubblewrap: bwrap is not installed: install the package bubblewrap; landlock: {MISSING};"
    assert " ".join(said.split()).startswith(f"The guest can't be started {why}")
    assert 'one with require = [] and on_unsupported = "warn" runs' in " ".join(said.split())


#: Policies to what carries them without Landlock, or why nothing does.
CHOICES = [
    ({}, "noop"),
    ({"backend": "landlock"}, "noop"),
    ({"backend": "noop", "on_unsupported": "error"}, "noop"),  # its gaps are what stops it
    ({"require": ("network_access",)}, "backend 'auto' can't be had here"),
    ({"on_unsupported": "error"}, "backend 'auto' can't be had here"),
    ({"backend": "landlock", "on_unsupported": "error"}, "backend 'landlock' can't be had here"),
    ({"backend": "landlock", "require": ("timeout",)}, "backend 'landlock' can't be had here"),
]


@pytest.mark.parametrize(("asked", "comes_to"), CHOICES, ids=str)
@pytest.mark.parametrize("how", ["probe", "attempt"], ids=["doctor", "kernel"])
def test_without_landlock_doctor_and_kernels_come_to_the_same(asked, comes_to, how, monkeypatch):
    monkeypatch.setenv("PATH", machines.path("landlock"))

    def chosen():
        faults.install(NO_LANDLOCK)
        try:
            return choose(Policy(require=()).replace(**asked), how).backend.name
        except BackendError as error:
            return str(error).partition(" (")[0]

    assert run(chosen, plan=None, uid=os.getuid()) == f"ok: {comes_to}"


# --- a bwrap that is none -------------------------------------------------------------------------

#: What a probe prints behind a real one, from somebody who never starts anything.
FORGED = json.dumps(
    {
        "achieved": dict.fromkeys(Bubblewrap.locks, "ABI 7, files")
        | {"witness": "names, read_file, list_folder, tcp, udp, netlink, fork, execute, signal"},
        "failed": {},
    }
)
ENDED = "the guest ended 3 times while starting: its zygote ended"
LIARS = {
    "says yes and starts nothing": ("exit 0", "the probe gave no answer: Input data was truncated"),
    "forges its probe's answer": (f"echo '{FORGED}'", ENDED),
}


def put(world, name, text):
    """Put another program on a world's PATH; return that as what changes its environment."""
    folder = world.root / "bin"
    folder.mkdir()
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{machines.path(world.backend)}"}


@pytest.fixture
def instead(wrapped):
    """Return a function that puts another bwrap on a world's PATH."""
    return partial(put, wrapped, "bwrap")


@pytest.mark.parametrize("liar", LIARS)
def test_no_cell_runs_behind_a_bwrap_that_is_none(liar, instead, wrapped):
    script, why = LIARS[liar]
    policy = wrapped.policy('backend = "bubblewrap"\n')
    said = card(policy, wrapped, extra_env=instead(f"#!/bin/sh\n{script}\n"))
    assert said.startswith("The guest can't be started\n")
    assert f"backend bubblewrap: {why}" in " ".join(said.split())
    assert 'or name another backend: backend = "landlock".' in " ".join(said.split())


def test_doctor_does_not_believe_a_probe_that_no_guest_bears_out(instead, wrapped):
    policy = wrapped.policy('backend = "bubblewrap"\n')
    path = instead(f"#!/bin/sh\necho '{FORGED}'\n")
    status, report, statuses = doctor(wrapped, policy, **path)

    assert (status, report["backend"], report["unproved"]) == (1, "bubblewrap", "its zygote ended")
    for name in ("filesystem_read_roots", "network_access", "subprocess_execution"):
        assert statuses[name] == "unavailable"
        assert name in {gap["capability"] for gap in report["gaps"]}


def test_a_bwrap_that_prints_nonsense_is_none(instead, monkeypatch):
    monkeypatch.setenv("PATH", instead("#!/bin/sh\necho ok\n")["PATH"])
    found = Bubblewrap().probe()
    assert not found.usable
    assert found.why.startswith("the probe gave no answer: JSON is malformed")


def test_a_bwrap_that_hangs_is_waited_for_no_longer_than_is_said(instead, monkeypatch):
    monkeypatch.setattr(bubblewrap, "_PATIENCE", 0.1)
    monkeypatch.setenv("PATH", instead("#!/bin/sh\nexec sleep 60\n")["PATH"])
    for found in (Bubblewrap().probe(), Bubblewrap().attempt()):
        assert not found.usable
        assert "timed out after 0.1 seconds" in found.why


# --- an engine that is none ----------------------------------------------------------------------

UNCONFINED = """[ $1 = run ] || exit 0
for a; do case "$a" in --entrypoint=*) program="${a#--entrypoint=}";; esac; done
while [ $1 != any:1 ]; do shift; done; shift
exec "$program" "$@"
"""
#: Each says of any image that it is there, and starts no container.
ENGINES = {
    "says yes, in no words that mean it": (
        "echo nonsense",
        "backend docker: the probe gave no answer: ",
    ),
    "starts it unconfined": (
        UNCONFINED,
        "backend docker: namespaces: the zygote is in the machine's pid namespace",
    ),
}


@pytest.fixture
def engine(landlocked):
    """Put a container engine on a world's PATH; return that, and a policy that names it."""

    def make(script):
        policy = landlocked.policy('backend = "docker"\ncontainer_image = "any:1"\n')
        return policy, put(landlocked, "docker", f"#!/bin/sh\n{script}\n")

    return make


@pytest.mark.parametrize("liar", ENGINES)
def test_no_cell_runs_by_an_engine_that_is_none(liar, engine, landlocked):
    script, why = ENGINES[liar]
    policy, path = engine(script)
    said = " ".join(card(policy, landlocked, extra_env=path).split())
    assert said.startswith(f"The guest can't be started {why}"), said


def test_doctor_does_not_believe_an_engine_that_no_guest_bears_out(engine, landlocked):
    policy, path = engine(f"[ $1 = run ] && echo '{FORGED}'; exit 0")
    status, report, statuses = doctor(landlocked, policy, **path)

    assert (status, report["backend"]) == (1, "docker")
    assert report["unproved"] == "container: it fails here (it gave no reason)"
    assert statuses["filesystem_read_roots"] == statuses["scratch_max_bytes"] == "unavailable"


#: A bwrap that meddles with the real one's options.
MEDDLER = f"""#!{sys.executable} -IS
import os, sys
words = sys.argv[1:]
at = words.index("--args")
with open(int(words[at + 1]), "rb") as told:
    words[at : at + 2] = told.read().decode().split("\\0")[:-1]
def without(*some):
    for nth in range(len(words)):
        if tuple(words[nth : nth + len(some)]) == some:
            del words[nth : nth + len(some)]
            return
    sys.exit("not there: " + " ".join(some))
{{change}}
os.execv({shutil.which("bwrap", path=machines.WITH_BUBBLEWRAP)!r}, ["bwrap", *words])
"""
FOUND_OUT = {
    "without('--unshare-pid'); without('--as-pid-1')": "the zygote is in the machine's pid namespace",
    "without('--unshare-net')": "there are network devices",
    "without('--as-pid-1')": "the zygote is in the machine's pid namespace",
    "without('--proc', '/proc')": "No such file or directory",
    "words[words.index('--'):0] = ['--ro-bind', '/etc', '/etc']": "a name outside of the roots is ",
}
#: Left out, these leave nothing open that is claimed: other locks are there, or nothing is said.
HELD_ANYHOW = (
    "without('--unshare-user')",
    "without('--unshare-ipc')",
    "without('--unshare-cgroup-try')",
    "without('--unshare-uts'); without('--hostname', 'cellblock')",
    "without('--cap-drop', 'ALL')",
    "without('--remount-ro', '/')",
)


@needs_bwrap
@pytest.mark.parametrize("change", FOUND_OUT)
def test_a_bwrap_that_leaves_something_out_is_found_out_by_its_guest(change, instead, monkeypatch):
    monkeypatch.setenv("PATH", instead(MEDDLER.format(change=change))["PATH"])
    found = probe_suite.run("bubblewrap")
    assert FOUND_OUT[change] in found.failure
    assert set(found.outcomes.values()) == {"unwitnessed"}
    assert found.statuses["filesystem_read_roots"] == "unavailable"
    assert not Bubblewrap().probe().usable


@needs_bwrap
def test_what_else_a_bwrap_may_leave_out_is_held_without(instead, monkeypatch):
    monkeypatch.setenv("PATH", instead(MEDDLER.format(change="; ".join(HELD_ANYHOW)))["PATH"])
    found = probe_suite.run("bubblewrap")
    assert (found.backend, found.failure, found.contradicted) == ("bubblewrap", "", [])
    assert "unwitnessed" not in found.outcomes.values()


@needs_bwrap
def test_a_bwrap_that_sets_variables_sets_none_of_its_guests(instead, wrapped):
    adds = instead(MEDDLER.format(change="words[:0] = ['--setenv', 'LEAKED', 'secret']"))
    policy = wrapped.policy('extends = "unsafe"\nbackend = "bubblewrap"\n')
    with Kernel(argv_for(policy, "--allow-unsafe"), world=wrapped, extra_env=adds) as kernel:
        published = kernel.wait_ready().run("import os\n'LEAKED' in os.environ")[1]
        assert reading.result(published) == "False"
