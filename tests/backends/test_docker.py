"""Backend docker, with a real engine: what a guest sees, how it ends, and why it can't be had.

Whatever a cell tries is tried in mode unsafe, past all guards: it is the OS layer that holds here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from backends import namespaced_guests
from backends.namespaced_guests import STAT, devices, emptied, patiently, refused
from cellblock import SandboxPool
from cellblock.backends import container_engine
from cellblock.backends.base import choose
from cellblock.backends.container_engine import EMPTY_IMAGE, HOST, build_image
from cellblock.backends.docker import Docker
from cellblock.backends.report import doctor_report
from cellblock.errors import BackendError
from cellblock.policy.model import Policy, Status
from support import doc_pages, engine, probe_suite, processes, reading
from support.kernels import NOBODY, Kernel, World, argv_for, nobody_prefix
from support.reading import value


@pytest.fixture(scope="module")
def docker():
    """The engine of this machine, or a daemon of our own, with an image that holds nothing."""
    with engine.running() as why:
        if why:
            pytest.skip(f"no container engine: {why}")
        found = container_engine.find_engine("docker", os.environ)
        build_image(found)
        yield found


def environment():
    return {name: os.environ[name] for name in ("DOCKER_HOST",) if name in os.environ}


class Contained(Kernel):
    """A kernel whose guests are in a container: they are the engine's children, and not its own."""

    def inspected(self):
        """Return what the engine says of its container."""
        docker = container_engine.find_engine("docker", os.environ)
        for word in docker.ask("ps", "--all", "--quiet", "--no-trunc").stdout.decode().split():
            found = json.loads(docker.ask("inspect", word).stdout or b"[]")
            if found and found[0]["Config"]["Labels"].get(HOST) == str(self.proc.pid):
                return found[0]
        raise LookupError(self.proc.pid)

    def zygote(self):
        return self.inspected()["State"]["Pid"]

    def sole_guest(self):
        def found():
            inside = processes.tree(self.zygote())
            guests = [pid for pid in inside if processes.name(pid) == "cb-guest"]
            return guests[0] if len(guests) == 1 else None

        return processes.until(found)

    guest = sole_guest


def started(world, text="", **changed):
    """Start a kernel in mode unsafe, under another environment."""
    text = f'extends = "unsafe"\nbackend = "docker"\ncontainer_image = "{EMPTY_IMAGE}"\n{text}'
    argv = argv_for(world.policy(text), "--allow-unsafe")
    return Contained(argv, world=world, extra_env=environment() | changed)


LIMITS = """scratch_max_bytes = 4194304
memory_max_bytes = 268435456
max_processes = 60
artifact_export_paths = ["*.csv"]
"""


def begun(user=None):
    """Return a kernel whose policy opens one folder, with secrets in it; a cell has run in it."""
    world = World(user)
    text = f'backend = "docker"\ncontainer_image = "{EMPTY_IMAGE}"\n{LIMITS}'
    argv = argv_for(namespaced_guests.policy_of(world, text), "--allow-unsafe")
    prefix = (nobody_prefix() or ()) if user else ()
    made = Contained(argv, world=world, prefix=prefix, extra_env=environment())
    made.own_world = True
    return made.wait_ready()


@pytest.fixture(scope="module")
def kernel(docker):
    """A kernel whose guests are in a container; no test leaves anything in it that matters.

    Its user is nobody where that can be had: the engine is root's, and what it makes is not.
    """
    assert docker
    made = begun(NOBODY if engine.lets_nobody_in() else None)
    yield made
    made.close()


# --- what it declares holds -------------------------------------------------------------------


@pytest.mark.parametrize("user", ["same user", "nobody"] if os.geteuid() == 0 else ["same user"])
def test_what_the_backend_declares_holds(docker, user):
    assert docker
    if user == "same user":
        found = probe_suite.run("docker", container_image=EMPTY_IMAGE)
    elif engine.lets_nobody_in():
        found = probe_suite.run_as(nobody_prefix(), "docker", container_image=EMPTY_IMAGE)
    else:
        pytest.skip("the engine does not let nobody in, or the interpreter is out of reach")
    probe_suite.assert_proved(found, "docker")


def test_what_the_backend_declares_of_a_wide_policy_holds(docker):
    assert docker
    probe_suite.assert_wide_proved(
        probe_suite.run("docker", container_image=EMPTY_IMAGE, **probe_suite.WIDE)
    )


def test_a_kernel_says_verified_of_what_doctor_saw_of_its_image(docker, world):
    assert docker
    policy = world.policy(f'backend = "docker"\ncontainer_image = "{EMPTY_IMAGE}"\n')
    where = environment()
    command = [Path(sys.executable).parent / "cellblock", "doctor", "--policy", policy]
    options = {"cwd": world.work, "env": world.environment(**where), "timeout": 120}
    subprocess.run(command, check=True, capture_output=True, **options)
    with Kernel(argv_for(policy), world=world, extra_env=where) as kernel:
        (table,) = reading.cards(kernel.wait_ready().run("%policy")[1], "policy")
    statuses = {each["capability"]: each["status"] for each in table["enforcement"]}
    assert statuses["filesystem_read_roots"] == statuses["network_access"] == "verified"


# --- what a guest sees ------------------------------------------------------------------------


class TestApart(namespaced_guests.Apart):
    """What is so in all namespaces."""


def test_who_lists_processes_sees_no_path_of_the_policys(kernel):
    pids = [*kernel.tree(), *processes.tree(kernel.zygote())]
    opened = str(kernel.world.root / "open").encode()
    assert [pid for pid in pids if opened in Path(f"/proc/{pid}/cmdline").read_bytes()] == []


def test_no_socket_of_an_engine_and_no_way_in_is_left(kernel):
    sockets = [os.environ["DOCKER_HOST"].removeprefix("unix://")] if environment() else []
    names = [*sockets, "/var/run/docker.sock", "/run/docker.sock"]
    assert set(value(kernel, f"{STAT}[stat(name) for name in {names!r}]")) == {2}
    # What the zygote came in by is a name without anybody behind it, and no cell gets to it.
    code = "import socket\nsocket.socket(socket.AF_UNIX).connect('/.cellblock')"
    assert refused(kernel, code) == "PermissionError"


def test_the_only_network_device_is_a_loopback(kernel):
    assert devices(kernel) == {"lo"}
    assert refused(kernel, "import socket\nsocket.socket()") == "PermissionError"


def test_zygote_and_guest_have_no_capability_and_get_no_privilege(kernel):
    for pid in (kernel.zygote(), kernel.guest()):
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert {fields[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2"


def test_the_root_is_read_only_and_scratch_is_memory_of_a_bounded_size(kernel):
    assert value(kernel, "import os\nos.statvfs('/').f_flag & os.ST_RDONLY") == os.ST_RDONLY
    assert refused(kernel, "open('/new', 'w')") in {"PermissionError", "OSError"}
    code = (
        "import os, errno\nname = os.environ['TMPDIR'] + '/big'\n"
        "try:\n    with open(name, 'wb') as f: f.write(bytes(8 << 20))\n"
        "except OSError as exc: said = exc.errno\n"
        "os.remove(name)\nopen(name, 'w').write('small')\nos.remove(name)\nsaid"
    )
    assert value(kernel, code) == 28  # ENOSPC
    # Nothing of it is on the host's disk, and of what it was started by nothing is left but a name.
    assert [path for path in (kernel.world.root / "tmp").rglob("*") if not path.is_dir()] == []


def test_the_whole_is_bounded_in_memory_and_tasks(kernel):
    asked = kernel.inspected()["HostConfig"]
    assert asked["Memory"] == asked["MemorySwap"] > 268435456
    assert 60 < asked["PidsLimit"] < 120
    lines = Path(f"/proc/{kernel.guest()}/cgroup").read_text().splitlines()
    places = [
        Path(f"/sys/fs/cgroup/{name}{path}/{file}")
        for _, name, path in (line.split(":", 2) for line in lines)
        for file in ("pids.max", "memory.max", "memory.limit_in_bytes")
    ]
    bounds = {int(place.read_text()) for place in places if place.is_file()}
    assert {asked["Memory"], asked["PidsLimit"]} <= bounds
    assert refused(kernel, "bytearray(400 << 20)") == "MemoryError"


def test_the_environment_is_what_a_guest_gets_without_a_container(kernel):
    ours = value(kernel, "import os\nsorted(os.environ)")
    assert {"PATH", "HOME", "TMPDIR"} <= set(ours)
    assert not {"HOSTNAME", "container", "DOCKER_HOST"} & set(ours)
    # The engine's own, a proxy's password in it, is not in the memory of the process either.
    first = Path(f"/proc/{kernel.zygote()}/environ").read_bytes()
    assert b"HOSTNAME" not in first


def test_packages_are_imported_from_where_they_are_installed(kernel):
    assert value(kernel, "import numpy\nint(numpy.arange(10).sum())") == 45


def test_with_network_access_there_is_the_machines_network(docker, world):
    assert docker
    with started(world, "network_access = true\nsubprocess_execution = true\n") as kernel:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            code = f"import socket\nsocket.create_connection({address!r}).close()\n1"
            assert value(kernel.wait_ready(), code) == 1
        code = (
            "import subprocess\nsubprocess.run(['ls', '/usr/lib'], capture_output=True).returncode"
        )
        assert value(kernel, code) == 0


def test_with_a_list_of_addresses_listed_hosts_are_neighbours_and_there_is_no_network(
    docker, world
):
    assert docker
    with socket.create_server(("127.0.0.1", 0)) as server:
        listed = server.getsockname()
        text = f'network_access = ["127.0.0.1:{listed[1]}", "db.example:80"]\n'
        with started(world, text) as kernel:
            code = f"import socket\nsocket.create_connection({listed!r}).getpeername()"
            assert value(kernel.wait_ready(), code) == listed
            where = "s = socket.create_connection(('db.example', 80)); s.getpeername()"
            assert value(kernel, where) == ("127.80.0.1", 80)
            elsewhere = (listed[0], listed[1] % 65_535 + 1)
            reply, _ = kernel.run(f"socket.create_connection({elsewhere!r})")
            assert reply["ename"] == "ConnectionRefusedError"
            assert devices(kernel) == {"lo"}


# --- how it ends, and what comes back ---------------------------------------------------------


@pytest.mark.parametrize("victim", ["launcher", "zygote"])
def test_with_its_container_a_guest_ends_and_the_next_cell_has_another(kernel, victim):
    kernel.run("lost = 1")
    before = kernel.zygote()
    os.kill(before if victim == "zygote" else kernel.tree()[1], signal.SIGKILL)
    # A cell that comes at once may be done before the guest is told of its launcher's end.
    assert processes.gone([before]) == []
    assert patiently(kernel, "6 * 7") == "42"
    assert kernel.zygote() != before


def test_a_narrower_policy_takes_more_locks_in_the_container_and_a_new_one_if_asked(docker):
    assert docker
    with begun() as kernel:
        written = f"open('{kernel.world.root}/open/written/x', 'w').close()"
        value(kernel, f"{written}\nx = 1\nx")
        before = kernel.zygote()
        for option, guest_is in (("", "kept"), ("--fresh", "instead")):
            line = f"%policy narrow {option} filesystem_write_roots=['{{scratch}}']"
            reply, published = kernel.run(line)
            assert reply["status"] == "ok", reply
            (card,) = reading.cards(published, "narrowing")
            assert card["guest"] == guest_is
            assert refused(kernel, written) in {"PermissionError", "OSError"}
            assert (kernel.zygote() == before) is (guest_is == "kept")
            assert kernel.run("x")[0]["status"] == ("ok" if guest_is == "kept" else "error")


def test_a_killed_host_leaves_no_container_no_process_and_no_folder(docker):
    with begun() as kernel:
        kernel.run("a = 1")
        pids = [*kernel.tree(), *processes.tree(kernel.zygote())]
        kernel.proc.kill()
        kernel.proc.wait()
        assert processes.gone(pids) == []
        assert emptied(kernel.world.root / "tmp") == []
        deadline = time.monotonic() + 10.0
        label = f"label={HOST}={kernel.proc.pid}"
        while docker.ask("ps", "--all", "--quiet", "--filter", label).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_two_kernels_have_a_container_each_and_the_end_of_one_is_not_the_others(docker):
    assert docker
    first, second = begun(), begun()
    try:
        for kernel, number in ((first, 1), (second, 2)):
            kernel.run(f"mine = {number}")
        assert first.zygote() != second.zygote()
        at = time.monotonic()
        assert first.end() == []
        assert time.monotonic() - at < 10
        assert value(second, "mine") == 2
    finally:
        first.close()
        second.close()


# --- images -----------------------------------------------------------------------------------


def test_image_build_says_what_it_has_made_and_makes_it_once(docker):
    command = [Path(sys.executable).parent / "cellblock", "image", "build"]
    docker.ask("rmi", "--force", EMPTY_IMAGE)
    said = [subprocess.run(command, check=True, capture_output=True).stdout for _ in range(2)]
    assert said == [
        f"Made {EMPTY_IMAGE}\n".encode(),
        f"{EMPTY_IMAGE} is there already\n".encode(),
    ]


def test_the_locks_hold_inside_a_plain_pod(docker, tmp_path):
    """What docs/remote.md says of Kubernetes, short of it: no privilege, the engine's own filter."""
    policy = tmp_path / "lab.toml"
    policy.write_text(doc_pages.files("remote.md")["lab.toml"])
    tmp_path.chmod(0o755)
    installed_in = {sys.prefix, sys.base_prefix, *(path for path in sys.path if path)}
    folders = [path for path in (*installed_in, "/usr", "/lib", "/lib64") if Path(path).is_dir()]
    mounts = [f"--volume={path}:{path}:ro" for path in (*folders, tmp_path)]
    options = "--rm --user=1000:1000 --cap-drop=ALL --security-opt=no-new-privileges"
    doctor = "from cellblock.cli.main import main; main()"

    ran = docker.ask(
        "run", *options.split(), "--network=none", "--pull=never", "--tmpfs=/own:mode=1777",
        "--env=HOME=/own", "--env=TMPDIR=/own", f"--workdir={tmp_path}", *mounts, f"--entrypoint={sys.executable}",
        EMPTY_IMAGE, "-c", doctor, "doctor", "--json", f"--policy={policy}", seconds=60.0,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["backend"] == "landlock"
    settled = {each["capability"]: each["status"] for each in report["capabilities"]}
    for name in ("filesystem_write_roots", "network_access", "subprocess_execution"):
        assert settled[name] == "verified"
    assert not [gap for gap in report["gaps"] if gap["contradicted"]]


# --- why it can't be had ----------------------------------------------------------------------


def test_a_probe_sees_the_locks_hold_in_a_real_container(docker):
    assert docker
    found = Docker("docker", "", EMPTY_IMAGE).probe()
    assert found.usable, found
    assert {"names", "list_folder", "tcp", "fork", "execute"} <= {*found.witnessed}
    report = doctor_report(Policy().replace(backend="docker", container_image=EMPTY_IMAGE))
    settled = {each.capability: each.status for each in report.capabilities}
    # Verified is what the suite of probes saw, above.
    for name in ("filesystem_read_roots", "filesystem_write_roots", "network_access"):
        assert settled[name] is Status.asserted


def why(**settings):
    with pytest.raises(BackendError) as caught:
        choose(Policy().replace(backend="docker", **settings))
    return str(caught.value)


def test_an_image_that_is_not_there_is_said_with_the_remedy(docker):
    assert docker
    assert why(container_image="no:such") == (
        "backend 'docker' can't be had here (no image no:such: cellblock image build)"
    )


def test_a_runtime_that_is_not_known_is_said(docker):
    assert docker
    said = why(container_runtime="nosuch", container_image=EMPTY_IMAGE)
    assert "no OCI runtime of that name: see container_runtime" in said


def test_an_engine_that_is_not_installed_or_elsewhere_or_silent_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (tmp_path / "docker").write_text('#!/bin/sh\necho "Cannot connect to it" >&2; exit 1\n')
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "the engine does not answer: start it" in why()
    assert "podman is not installed" in why(container_engine="podman")
    monkeypatch.setenv("DOCKER_HOST", "tcp://198.51.100.7:2376")
    assert "DOCKER_HOST is tcp://…: its machine is another" in why()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "install docker, podman or nerdctl" in why()


#: Engines that start what they are to start, and leave one thing out.
LEAVES_OUT = {
    "--read-only": "the root of the file system can be written",
    "--cap-drop=ALL": "the engine left capabilities",
    "--security-opt=no-new-privileges": "the engine did not set no_new_privs",
    "--network=none": "there are network devices",
}


@pytest.fixture
def lying(docker, monkeypatch, tmp_path):
    """Put another docker on the path, which the real one stands behind."""
    real = shutil.which("docker")

    def make(script):
        program = tmp_path / "docker"
        program.write_text(f"#!/bin/sh\nreal={real}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path

    assert docker
    return make


@pytest.mark.parametrize("option", LEAVES_OUT)
def test_an_engine_that_leaves_something_out_is_found_out(lying, option):
    # Without a network of its own it gets the machine's.
    instead = 'set -- "$@" --network=host' if option == "--network=none" else ":"
    lying(
        f'for a; do shift; if [ "$a" = {option} ]; then {instead}; else set -- "$@" "$a"; fi; done\n'
        'exec $real "$@"'
    )
    found = Docker("docker", "", EMPTY_IMAGE).probe()
    assert not found.usable, found
    assert LEAVES_OUT[option] in found.why


def test_an_engine_that_gives_scratch_no_bound_is_found_out(lying):
    lying(
        'for a; do shift; a=$(printf %s "$a" | sed "s/,tmpfs-size=1048576//"); set -- "$@" "$a"; done\n'
        'exec $real "$@"'
    )
    found = Docker("docker", "", EMPTY_IMAGE).probe()
    assert not found.usable, found
    assert re.search(r"container: /.*/scratch holds more than 1048576 bytes", found.why), found


def test_nothing_runs_in_a_container_of_another_users(lying, world):
    folder = lying(
        'for a; do shift; case "$a" in --user=*) a=--user=1:1;; esac; set -- "$@" "$a"; done\n'
        'exec $real "$@"'
    )
    said = card(world, PATH=f"{folder}:{os.environ['PATH']}")
    # Its socket is closed to others, too: that one can't even connect.
    assert "as another user" in said or "Permission denied" in said, said


#: Starts what is to be started, and no container around it.
TRANSPARENT = """[ "$1" = run ] || exec $real "$@"
for a; do case "$a" in --entrypoint=*) program="${a#--entrypoint=}";; esac; done
while [ "$1" != cellblock:mounted ]; do shift; done; shift
exec "$program" "$@"
"""


def test_nothing_runs_where_the_engine_starts_no_container(lying, world):
    folder = lying(TRANSPARENT)
    found = Docker("docker", "", EMPTY_IMAGE).probe()
    assert "the zygote is in the machine's pid namespace" in found.why
    # A kernel does not probe: it is found out when it fetches what it needs, or can't.
    assert "error" in card(world, PATH=f"{folder}:{os.environ['PATH']}")


def test_a_kernel_without_an_engine_says_why_and_runs_nothing(world, tmp_path):
    said = card(world, DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    if shutil.which("docker"):
        assert "the engine does not answer: start it" in said


def card(world, **changed):
    """Return what a cell gets from a kernel under another environment; its state leaves nothing."""
    with started(world, **changed) as kernel:
        reply, published = kernel.wait_heard().run("1")
        assert reply["status"] == "error", reply
        return f"{reply} {published}"


def test_an_engine_that_hangs_does_not_hold_up_the_end(world, tmp_path):
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "docker").chmod(0o755)
    kernel = started(world, PATH=f"{tmp_path}:{os.environ['PATH']}")
    kernel.wait_heard()
    kernel.end()
    # Who is to see to the container's end asks in vain, but not for ever.
    assert processes.gone([], 15.0) == []


@pytest.fixture
def storage(monkeypatch):
    """Podman's own folder: by a short name, or it waits for sockets that can't have theirs."""
    root = Path(tempfile.mkdtemp(prefix="cb-pm-"))
    conf = f'[storage]\ndriver = "vfs"\ngraphroot = "{root}/graph"\nrunroot = "{root}/run"\n'
    (root / "storage.conf").write_text(conf)
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(root / "storage.conf"))
    yield
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.usefixtures("storage")
def test_podman_starts_the_same():
    try:
        found = container_engine.find_engine("podman", os.environ)
    except container_engine.EngineError as missing:
        pytest.skip(str(missing))
    build_image(found)
    # By name: the default one may not know this machine's cgroups.
    runtime = "runc" if shutil.which("runc") else ""
    probed = Docker("podman", runtime, EMPTY_IMAGE).probe()
    assert probed.usable, probed


def test_files_of_a_folder_that_is_nowhere_outside_are_copied_out(kernel):
    reply, published = kernel.run(
        "import os\nopen('a.csv', 'w').write('1')\nos.symlink('/etc/passwd', 'b.csv')"
    )
    assert reply["status"] == "ok", reply
    (card,) = reading.cards(published, "artifacts")
    assert [(one["path"], one["size_bytes"]) for one in card["artifacts"]] == [
        ("artifacts/a.csv", 1)
    ]
    assert card["not_copied"] == [{"name": "b.csv", "why": "it is a link"}]
    assert (kernel.world.work / "artifacts" / "a.csv").read_text() == "1"


def test_sandboxes_of_a_pool_have_a_container_each(docker, tmp_path):
    policy = Policy.preset(
        "unsafe",
        backend="docker",
        container_image=EMPTY_IMAGE,
        memory_max_bytes=2**28,
        artifact_export_paths=("*.csv",),
        artifact_folder=str(tmp_path / "out"),
    )
    running = docker.ask("ps", "--quiet").stdout.split()
    with (
        SandboxPool(policy, allow_unsafe=True, project=tmp_path) as pool,
        pool.sandbox(inputs={"n": 1}) as a,
        pool.sandbox(inputs={"n": 2}) as b,
    ):
        assert len(docker.ask("ps", "--quiet").stdout.split()) == len(running) + 2
        results = [one.execute("open('a.csv', 'w').write('x' * inputs['n'])") for one in (a, b)]
    assert [one.artifacts[0].size_bytes for one in results] == [1, 2]
    processes.until(lambda: docker.ask("ps", "--quiet").stdout.split() == running)
