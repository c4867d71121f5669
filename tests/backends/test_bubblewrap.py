"""Backend bubblewrap, with the real bwrap: what a guest sees, how it ends, and why it can't be had.

Whatever a cell tries is tried in mode unsafe, by ctypes and past all guards: it is the OS layer
that holds here. Landlock beside it is the positive control.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backends import namespaced_guests
from backends.namespaced_guests import STAT, devices, emptied, patiently, refused
from cellblock.backends import bubblewrap
from cellblock.backends.bubblewrap import Bubblewrap
from cellblock.backends.report import doctor_report
from cellblock.policy.model import Policy, Status
from support import machines, processes, reading
from support.kernels import NOBODY, Kernel, World, argv_for, nobody_prefix
from support.reading import value

WHY_NOT = machines.no_bubblewrap()
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"no bubblewrap: {WHY_NOT}")


@pytest.fixture(autouse=True)
def _machine_with_bubblewrap(monkeypatch):
    monkeypatch.setenv("PATH", machines.path("bubblewrap"))


USERS = {"same user": None}
if os.geteuid() == 0 and nobody_prefix():
    USERS["nobody"] = NOBODY


@pytest.fixture(scope="module", params=USERS.values(), ids=USERS)
def kernel(request):
    """A kernel whose guests are in namespaces; no test leaves anything in it that matters."""
    if WHY_NOT:
        pytest.skip(f"no bubblewrap: {WHY_NOT}")
    made = begun(request.param)
    yield made
    made.close()


def begun(user, backend="bubblewrap"):
    """Return a kernel whose policy opens one folder, with secrets in it; a cell has run in it."""
    world = World(user, backend="bubblewrap")
    policy = namespaced_guests.policy_of(world, f'backend = "{backend}"')
    prefix = (nobody_prefix() or ()) if user else ()
    made = Kernel(argv_for(policy, "--allow-unsafe"), world=world, prefix=prefix)
    made.own_world = True
    return made.wait_ready()


def started(world, text="", **variables):
    """Start a kernel in mode unsafe, under another environment."""
    policy = world.policy(f'extends = "unsafe"\nbackend = "bubblewrap"\n{text}')
    return Kernel(argv_for(policy, "--allow-unsafe"), world=world, extra_env=variables)


# --- what a guest sees ------------------------------------------------------------------------


class TestApart(namespaced_guests.Apart):
    """What is so in all namespaces."""


def test_the_only_network_device_is_a_loopback(kernel):
    assert devices(kernel) == {"lo"}
    ours = {name for _, name in socket.if_nameindex()}
    code = f"{STAT}[name for name in {sorted(ours)!r} if stat('/sys/class/net/' + name) == 0]"
    assert value(kernel, code) == []
    routes = Path(f"/proc/{kernel.guest()}/net/route").read_text().splitlines()
    assert len(routes) == 1  # the heading


def test_who_lists_processes_sees_no_path_of_the_policys(kernel):
    opened = str(kernel.world.root / "open")
    shown = {pid: processes.read_file(pid, "cmdline") for pid in kernel.tree()}
    assert any(b"--args" in words for words in shown.values())
    assert [words for words in shown.values() if opened.encode() in words] == []


@needs_bwrap
def test_without_a_root_to_write_to_cells_run_and_write_nowhere(place):
    with started(place, "filesystem_write_roots = []\n").wait_ready() as kernel:
        code = "import os\nopen(os.environ['TMPDIR'] + '/new', 'w')"
        assert refused(kernel, code) == "PermissionError"
        assert value(kernel, "import os\nos.path.exists('/new'), 6 * 7") == (False, 42)


def test_the_environment_is_what_a_guest_gets_without_a_wrapper(kernel):
    ours = value(kernel, "import os\nsorted(os.environ)")
    with begun(None, "landlock") as bare:
        assert ours == value(bare, "import os\nsorted(os.environ)")
        # The control: without namespaces the same names are there to be seen.
        closed = str(bare.world.root / "closed/name")
        assert value(bare, f"{STAT}[stat('/etc/passwd'), stat({closed!r})]") != [2, 2]


@needs_bwrap
def test_with_all_of_the_machine_readable_what_is_never_readable_is_masked(place):
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id").write_text("secret")
    with started(place, 'filesystem_read_roots = ["/"]\n').wait_ready() as kernel:
        hidden = [str(place.home / ".ssh/id"), str(kernel.file), "/dev/tty", "/sys/kernel"]
        shown = ["/etc/passwd", "/dev/null", str(place.root)]
        wanted = dict.fromkeys(hidden, 2) | dict.fromkeys(shown, 0)
        assert value(kernel, f"{STAT}{{name: stat(name) for name in {[*wanted]!r}}}") == wanted


def test_the_users_other_processes_can_trace_guests_in_namespaces_and_not_the_host(kernel):
    """A hole that is told: who owns a user namespace has every capability in it."""
    prefix = nobody_prefix() if kernel.world.user else ()
    is_root = not prefix and os.geteuid() == 0  # whose others may trace anybody
    with begun(kernel.world.user, "landlock") as bare:
        assert traceable(kernel.guest(), prefix)
        assert traceable(kernel.proc.pid, prefix) == is_root
        assert traceable(bare.guest(), prefix) == is_root


#: PTRACE_SEIZE stops nothing, and ends with who seized.
SEIZE = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0) != 0)"
)


def traceable(pid, prefix):
    """Say whether another process, of whom ``prefix`` makes it, may trace ``pid``."""
    look = [*prefix, sys.executable, "-IS", "-c", SEIZE, str(pid)]
    return subprocess.run(look, check=False, capture_output=True, timeout=30).returncode == 0


# --- how it ends, and what comes back ---------------------------------------------------------


def test_a_key_press_reaches_nobody_but_the_host(kernel):
    """A server's, or a terminal's Ctrl-C, goes to whoever is in the host's process group."""
    (wrapper,) = [pid for pid in kernel.tree() if processes.name(pid) == "bwrap"]
    assert os.getpgid(wrapper) != os.getpgid(kernel.proc.pid)


@pytest.mark.parametrize("victim", ["bwrap", "cb-zygote"])
def test_with_its_zygote_a_guest_ends_and_the_next_cell_has_another(kernel, victim):
    kernel.run("lost = 1")
    before = kernel.tree()[1:]
    os.kill(next(pid for pid in before if processes.name(pid) == victim), signal.SIGKILL)
    assert patiently(kernel, "6 * 7") == "42"
    assert processes.gone(before) == []


@needs_bwrap
@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_a_killed_host_leaves_no_process_and_its_folder_to_the_next_host(user):
    with begun(user) as kernel:
        kernel.run("a = 1")
        pids = kernel.tree()
        kernel.proc.kill()
        kernel.proc.wait()
        assert processes.gone(pids) == []
        tmp = kernel.world.root / "tmp"
        (left,) = tmp.iterdir()
        prefix = (nobody_prefix() or ()) if user else ()
        with Kernel(argv_for("safe"), world=kernel.world, prefix=prefix) as following:
            following.wait_ready()
            processes.until(lambda: not left.exists())
        assert emptied(tmp) == []


@needs_bwrap
def test_whoever_is_killed_in_whatever_order_nothing_stays(place):
    for delay in (0.0, 0.02, 0.1, 0.3):
        with started(place) as kernel:
            time.sleep(delay)
            pids = kernel.tree()
            for pid in reversed(pids):
                processes.end([pid])
            kernel.proc.wait()
            assert processes.gone(pids) == []


# --- why it can't be had ----------------------------------------------------------------------

#: What bwrap has said on such machines, and what the probe makes of it.
REFUSALS = {
    "No permissions to creating new namespace, likely because the kernel does not allow "
    "non-privileged user namespaces. On e.g. debian this can be enabled with 'sysctl "
    "kernel.unprivileged_userns_clone=1'.": "user namespaces are forbidden here",
    "Creating new namespace failed, likely because the kernel does not support user namespaces.  "
    "bwrap must be installed setuid on such systems.": "bwrap is not setuid root",
    "Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded "
    "(ENOSPC)": "see user.max_user_namespaces",
    "Creating new namespace failed: No space left on device": "see user.max_user_namespaces",
    "setting up uid map: Permission denied": "see AppArmor, SELinux or the container",
    "loopback: Failed RTM_NEWADDR: Operation not permitted": "see AppArmor, SELinux",
    "Can't mount proc on /newroot/proc: Operation not permitted": "this container hides parts",
    "Out of memory": "it fails here (bwrap: Out of memory)",
}
SETTINGS = {
    "user/max_user_namespaces": ("0", "user.max_user_namespaces is 0; to allow it: sysctl "),
    "kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone is 0; to allow "),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "kernel.apparmor_restrict_unprivileged_userns is 1; to allow it: an AppArmor profile",
    ),
}


@pytest.fixture
def faulty(monkeypatch, tmp_path):
    """Put another bwrap on the path, and other settings in place."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(bubblewrap, "_SETTINGS", tmp_path / "sys")

    def make(script, **settings):
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bwrap").chmod(0o755)
        for name, content in settings.items():
            (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "sys" / name).write_text(f"{content}\n")

    return make


def complaint(words):
    return f'cat >&2 <<"END"\nbwrap: {words}\nEND\nexit 1'


@pytest.mark.parametrize("words", REFUSALS)
def test_what_bwrap_says_is_explained_and_passed_on(faulty, words):
    faulty(complaint(words))
    found = Bubblewrap().probe()
    assert not found.usable
    assert REFUSALS[words] in found.why
    assert found.why.endswith(f"(bwrap: {words})")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_setting_that_forbids_it_is_named(faulty, name):
    content, why = SETTINGS[name]
    faulty(complaint("setting up uid map: Permission denied"), **{name: content})
    found = Bubblewrap().probe()
    assert not found.usable
    assert found.why.startswith(why)


def test_a_program_that_is_not_there_is_named_with_its_package(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not Bubblewrap().glance().usable
    assert Bubblewrap().probe().why == "bwrap is not installed: install the package bubblewrap"


#: A bwrap that sets nothing up, but starts what it is to start.
TRANSPARENT = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'


def test_a_wrapper_that_wraps_nothing_is_found_out(faulty):
    faulty(TRANSPARENT)
    found = Bubblewrap().probe()
    assert not found.usable
    assert "namespaces: the zygote is in the machine's pid namespace" in found.why


def test_nothing_runs_behind_a_wrapper_that_wraps_nothing(faulty, world):
    faulty(TRANSPARENT)
    with started(world, PATH=os.environ["PATH"]) as kernel:
        reply, _ = kernel.wait_heard().run("1")
        assert reply["status"] == "error"
        assert "namespaces" in str(reply), reply


def test_by_auto_a_kernel_runs_without_a_wrapper_that_fails(faulty, world):
    faulty(complaint("setting up uid map: Permission denied"))
    path = {"PATH": os.environ["PATH"]}
    with Kernel(argv_for("safe"), world=world, extra_env=path) as kernel:
        _, published = kernel.wait_heard().run("1")
        (card,) = reading.cards(published, "enforcement")
        assert card["backend"] == "landlock"


#: Once there is a file ``now``, a bwrap in whose last moment a cell puts a link in a root's place.
SWAPPING = """[ -e "$(dirname "$0")/now" ] && mv "{part}" "{part}.away" && ln -s "{secrets}" "{part}"
exec {bwrap} "$@"
"""


@needs_bwrap
@pytest.mark.parametrize(
    "roots",
    {
        "read": "filesystem_read_roots=['work/part'] filesystem_write_roots=[]",
        "written": "filesystem_read_roots=[] filesystem_write_roots=['work/part']",
    }.values(),
)
def test_a_link_put_in_a_root_s_place_while_it_is_mounted_opens_nothing(
    faulty, world, roots, tmp_path
):
    part, secrets = world.work / "work/part", world.root / "secrets"
    for folder in (part, secrets):
        folder.mkdir(parents=True)
    (secrets / "file").write_text("secret")
    faulty(SWAPPING.format(part=part, secrets=secrets, bwrap=shutil.which("bwrap")))
    text = 'filesystem_read_roots = ["{project}"]\nfilesystem_write_roots = ["{project}/work"]\n'
    with started(world, text, PATH=os.environ["PATH"]).wait_ready() as kernel:
        assert value(kernel, "import os; os.listdir('work/part')") == []
        (tmp_path / "now").touch()
        kernel.run(f"%policy narrow --fresh {roots}")
        reply, published = kernel.run(f"open('{part}/file').read()")
        assert reply["status"] == "error", published
        assert f"{part} was moved while it was being mounted" in str(published)


@needs_bwrap
@pytest.mark.parametrize("policy", ["safe", "data"])
def test_by_auto_a_kernel_s_guests_are_in_namespaces(start, policy):
    kernel = start(policy, world=World(backend="bubblewrap"))
    kernel.own_world = True
    assert [processes.name(pid) for pid in kernel.tree()[1:3]] == ["bwrap", "cb-zygote"]
    ours, theirs = (Path(f"/proc/{pid}/ns/mnt").readlink() for pid in ("self", kernel.guest()))
    assert ours != theirs


@needs_bwrap
@pytest.mark.parametrize("backend", ["bubblewrap", "auto"])
def test_the_doctor_says_what_was_seen_to_hold(backend):
    report = doctor_report(Policy().replace(backend=backend))
    assert report.backend == "bubblewrap"
    assert {"names", "list_folder", "tcp", "fork"} <= set(report.witnessed)
    statuses = {each.capability: each.status for each in report.capabilities}
    # Verified is what the suite of probes saw (``test_probes``).
    assert statuses["filesystem_read_roots"] is statuses["network_access"] is Status.asserted


# --- what is recalled -------------------------------------------------------------------------


@pytest.fixture
def place():
    """A world with two folders, and a policy that opens the one, both, or neither."""
    world = World(backend="bubblewrap")
    for name in ("one", "two"):
        (world.root / name).mkdir()
        (world.root / name / "file").touch()
    yield world
    world.close()


def seen(world, *names, **extra):
    """Start a kernel that may read ``names``; return what is there of both."""
    roots = json.dumps([str(world.root / name) for name in names])
    with started(world, f"filesystem_read_roots = {roots}\n", **extra).wait_ready() as kernel:
        files = [str(world.root / name / "file") for name in ("one", "two")]
        return value(kernel, f"{STAT}[stat(name) == 0 for name in {files!r}]")


def remembered(world):
    """Return what is kept for the next kernel: whether it is as before, and the words."""
    text = (world.home / ".cache/cellblock/wrappings").read_bytes()
    ((state, _, _, *words),) = [entry.split(b"\0") for entry in text.split(b"\0\0")]
    return state, words


@needs_bwrap
def test_what_is_recalled_of_an_earlier_policy_does_not_outlive_it(place):
    assert seen(place, "one") == [True, False]
    state, words = remembered(place)
    assert (state, str(place.root / "one").encode() in words) == (b"same", True)
    assert seen(place, "two") == [False, True]
    assert remembered(place)[0] == b"differed"
    assert seen(place) == [False, False]
    assert seen(place) == [False, False]
    state, words = remembered(place)
    assert (state, str(place.root / "two").encode() in words) == (b"same", False)
    assert seen(place, "one", "two") == [True, True]


@needs_bwrap
@pytest.mark.parametrize(
    "words",
    {
        "everything": ["--bind", "/", "/"],
        "no such option": ["--open-sesame"],
        "nothing": ["--tmpfs", "/"],
    }.values(),
)
def test_a_memory_that_was_tampered_with_costs_time_only(place, words):
    assert seen(place, "one") == [True, False]
    _, right = remembered(place)
    file = place.home / ".cache/cellblock/wrappings"
    head = file.read_bytes().split(b"\0")[:4]
    file.write_bytes(b"\0".join([*head, *map(os.fsencode, words)]))
    assert seen(place, "one") == [True, False]
    assert remembered(place) == (b"differed", right)


@needs_bwrap
def test_a_zygote_that_starts_in_what_is_recalled_is_the_only_one(place):
    script, counted = place.root / "bwrap", place.root / "counted"
    script.write_text(f'#!/bin/sh\necho >>{counted}\nexec {shutil.which("bwrap")} "$@"\n')
    script.chmod(0o755)
    path = {"PATH": f"{place.root}:{os.environ['PATH']}"}
    sizes = [0]
    for names in (["one"], ["one"], ["two"], ["two"], ["two"]):
        assert seen(place, *names, **path) == ["one" in names, "two" in names]
        sizes.append(counted.stat().st_size)
    # Each kernel tries besides whether namespaces can be made.
    assert [after - before for before, after in itertools.pairwise(sizes)] == [2, 2, 3, 2, 2]
