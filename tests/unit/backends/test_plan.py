from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

from cellblock.backends import networks, plan
from cellblock.backends.base import NEIGHBOURS, OWN_NETWORK, named
from cellblock.backends.landlock import Landlock
from cellblock.backends.noop import Noop
from cellblock.backends.plan import make_plan, make_view, splits_roots
from cellblock.descriptors import remove_tree
from cellblock.errors import PolicyError
from cellblock.policy import paths
from cellblock.policy.model import Policy, Status
from cellblock.wire.messages import Layer, Plan

MIB = 2**20


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    for name in (".ssh", ".config/gcloud", ".config/pip", "project/work", "data"):
        (folder / name).mkdir(parents=True)
    (folder / ".ssh/id_rsa").write_text("key")
    (folder / ".netrc").write_text("password")
    (folder / "notes.txt").write_text("notes")
    (folder / "ssh-link").symlink_to(folder / ".ssh")
    for variable in ("XDG_DATA_HOME", "XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def planned(tmp_path, home):
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def make(private=(), **fields):
        policy = Policy().replace(**fields)
        return make_plan(
            policy, Landlock(), scratch=scratch, project=home / "project", private=private
        )

    return make


def own(result, home):
    return [root for root in result.read_roots if root.startswith(str(home))]


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap", "docker"])
@pytest.mark.parametrize("staged", [(), ("{project}",)])
@pytest.mark.parametrize("programs", [False, True])
@pytest.mark.parametrize("network", [False, True, ("example.org:443",)])
def test_a_network_of_the_sessions_own_is_told_of_where_there_is_one(
    tmp_path, home, backend, staged, programs, network
):
    policy = Policy().replace(
        network_access=network, subprocess_execution=programs, filesystem_staged_roots=staged
    )
    (scratch := tmp_path / "scratch").mkdir()
    project, made = home / "project", named(backend)
    layers = (Layer(root=str(project), folder="/layer"),) if staged and made.stages else ()
    plan = make_plan(policy, made, scratch=scratch, project=project, layers=layers)
    told = made.declare(policy, made.glance())["network_access"].mechanism
    assert (told == OWN_NETWORK or told.startswith(NEIGHBOURS)) == plan.loopback


def test_a_backend_without_locks_plans_nothing(tmp_path):
    assert make_plan(Policy(), Noop(), scratch=tmp_path, project=tmp_path) == Plan()


def test_placeholders_stand_for_the_kernels_folders_and_every_lock_is_required(
    planned, home, tmp_path
):
    result = planned(filesystem_read_roots=("{project}",), filesystem_write_roots=("{scratch}",))

    assert own(result, home) == [f"{home}/project"]
    assert result.write_roots == (f"{tmp_path}/scratch",)

    result = planned()

    assert result.locks == result.required == Landlock.locks
    assert (result.network, result.subprocess) == (False, False)


def test_the_interpreter_is_readable_and_the_folders_around_it_are_not(planned):
    roots = planned().read_roots

    for place in (os.__file__, sys.prefix + "/lib", plan.__file__):
        path = os.path.realpath(place)
        assert any(path == root or path.startswith(root + "/") for root in roots), path
    # Neither the home folder nor a prefix as a whole, nor a place that holds others' data.
    for place in ("/", "/etc", "/root", "/home", "/usr", "/tmp", "/proc", "/dev", "/run", "/var"):
        assert place not in roots
    assert sys.prefix not in roots


def test_a_folder_on_sys_path_is_not_readable_for_that_alone(planned, home, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(home), str(home / "data"), *sys.path])

    assert own(planned(), home) == []


def test_a_package_that_the_policy_lets_in_is_readable_where_it_lies(planned, home, monkeypatch):
    project = home / "project"
    (project / "mylib").mkdir(parents=True)
    (project / "secrets.env").write_text("x")
    monkeypatch.setattr("sys.path", [*sys.path, str(project)])
    roots = planned(allowed_modules=("mylib", "numpy")).read_roots
    assert str(project / "mylib") in roots
    assert str(project) not in roots


def test_programs_name_resolution_and_certificates_come_with_their_capabilities(planned):
    closed = planned().read_roots
    assert not any(root.endswith("/bin") or root == "/etc/hosts" for root in closed)

    assert "/etc/hosts" in planned(network_access=True).read_roots
    assert "/usr/bin" in planned(subprocess_execution=True).read_roots

    listed = planned(network_access=("example.org:443",))
    assert (listed.network, listed.loopback, listed.local_sockets) == (False, True, False)
    assert {"/etc/ssl", "/etc/hosts"} <= set(listed.read_roots)
    assert "/etc/resolv.conf" not in listed.read_roots


@pytest.mark.parametrize("network", [False, True, ()])
def test_without_a_list_there_is_nobody_but_the_session(planned, network):
    result = planned(network_access=network)
    assert (result.neighbours, result.loopback) == ((), False)
    assert ("/etc/ssl" in result.read_roots) is (network is True)


def test_each_listed_host_is_found_at_an_address_and_no_two_at_the_same(planned):
    listed = (
        "example.org:443",
        "example.org:80",
        "db.example:5432",
        "10.0.0.5:5432",
        "127.80.0.1:443",
        "[2001:db8::1]:443",
        "localhost:8080",
        "127.0.0.1:8080",
    )
    found = planned(network_access=listed).neighbours
    assert [(each.name, each.address, each.port) for each in found] == [
        ("example.org", "127.80.0.2", 443),
        ("example.org", "127.80.0.2", 80),
        ("db.example", "127.80.0.3", 5432),
        ("", "10.0.0.5", 5432),
        ("", "127.80.0.1", 443),
        ("", "2001:db8::1", 443),
        ("localhost", "127.0.0.1", 8080),
        ("localhost", "::1", 8080),
    ]
    assert [each.entry for each in found if each.name != "localhost"] == list(listed[:6])


def test_a_container_has_no_listed_addresses_but_its_own_and_says_so(tmp_path):
    docker = named("docker")
    policy = Policy().replace(network_access=("db.example:1", "10.0.0.5:1", "127.0.0.1:1"))
    plan = make_plan(policy, docker, scratch=tmp_path, project=tmp_path)
    assert [each.entry for each in plan.neighbours] == ["db.example:1", "127.0.0.1:1"]
    declared = docker.declare(policy, docker.glance())["network_access"]
    assert declared.holes == ("listed addresses are not reached, list their names: 10.0.0.5:1",)


def test_where_no_network_can_be_made_nobody_is_reached_and_that_is_a_gap(planned, monkeypatch):
    monkeypatch.setattr(networks, "why_not", lambda _: "max_net_namespaces is 0")
    policy = Policy().replace(network_access=("example.org:443",))
    declared = named("landlock").declare(policy, named("landlock").glance())["network_access"]
    assert (declared.status, declared.holds) == (Status.unavailable, False)
    result = planned(network_access=("example.org:443",), subprocess_execution=True)
    assert (result.neighbours, result.loopback, result.has_sockets) == ((), False, False)


def test_sandboxes_with_a_list_share_no_zygote(tmp_path, home):
    policy = Policy().replace(network_access=("example.org:443",), subprocess_execution=True)
    for backend in map(named, ("landlock", "bubblewrap")):
        (scratch := tmp_path / backend.name).mkdir()
        plan = make_plan(policy, backend, scratch=scratch, project=home, pooled=True)
        assert not plan.own_mounts


def test_a_denied_path_beneath_a_root_is_cut_out_even_if_it_does_not_exist_yet(planned, home):
    result = planned(filesystem_read_roots=(str(home),))

    assert own(result, home) == [
        f"{home}/.config/pip",
        f"{home}/data",
        f"{home}/notes.txt",
        f"{home}/project",
    ]

    assert not (home / ".aws").exists()

    result = planned(filesystem_read_roots=(str(home),), read_deny_paths=("~/.aws",))
    assert str(home) not in result.read_roots


@pytest.mark.parametrize("place", ["part", "part/inner"])
@pytest.mark.parametrize("field", ["filesystem_read_roots", "filesystem_write_roots"])
def test_a_link_that_cells_put_in_place_of_a_root_is_not_followed(planned, home, field, place):
    work = home / "project/work"
    for folder in (work / "part/inner", home / "data/inner"):
        folder.mkdir(parents=True)

    def granted():
        result = planned(**{"filesystem_write_roots": (), field: (f"{work}/{place}",)})
        return [*own(result, home), *result.write_roots]

    assert granted() == [f"{work}/{place}"]
    (work / "part").rename(work / "away")
    (work / "part").symlink_to(home / "data")
    assert granted() == []


def test_a_link_does_not_lead_around_a_denied_path(planned, home):
    result = planned(filesystem_read_roots=(str(home),), read_deny_paths=("~/.ssh",))

    assert f"{home}/ssh-link" not in result.read_roots
    assert f"{home}/.ssh" not in result.read_roots

    result = planned(filesystem_read_roots=(str(home),), read_deny_paths=("~/ssh-link",))

    assert f"{home}/.ssh" not in result.read_roots
    assert f"{home}/.netrc" in result.read_roots


def test_a_root_inside_a_denied_path_and_a_writable_folder_around_one_are_refused(planned, home):
    with pytest.raises(PolicyError) as caught:
        planned(filesystem_read_roots=(f"{home}/.ssh",))

    assert str(caught.value) == (
        "safe: filesystem_read_roots: this root lies in a place that is never readable "
        f"(got '{home}/.ssh'). Remove the root, or {home}/.ssh from read_deny_paths if it stands "
        "there."
    )

    with pytest.raises(PolicyError) as caught:
        planned(filesystem_write_roots=(str(home),))

    assert caught.value.key == "filesystem_write_roots"
    assert caught.value.message == (
        "can't be kept: what is writable is readable, and this holds a denied path"
    )


@pytest.mark.parametrize(
    "folder",
    [
        sys.prefix,
        f"{sys.prefix}/lib",
        plan.__file__.rpartition("/backends/")[0],
        f"{sys.prefix}/bin",
    ],
)
def test_what_runs_unconfined_is_not_writable(planned, folder):
    with pytest.raises(PolicyError, match="runs unconfined"):
        planned(filesystem_write_roots=(folder,))


def test_a_link_on_the_way_to_what_runs_unconfined_or_is_private_is_not_writable(
    planned, home, monkeypatch
):
    work = home / "project/work"
    (work / "link").symlink_to(sys.prefix)
    planned(filesystem_write_roots=(str(work),))
    for name in ("prefix", "executable"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, f"{work}/link/x")
            with pytest.raises(PolicyError, match=f"runs unconfined: {work}/link "):
                planned(filesystem_write_roots=(str(work),))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", f"{work}/link/runtime")
    with pytest.raises(PolicyError, match="holds a denied path"):
        planned(filesystem_write_roots=(str(work),))


def test_the_root_of_the_file_system_grants_no_other_process_no_device_no_key(planned, home):
    roots = planned(filesystem_read_roots=("/",)).read_roots

    for place in ("/", "/proc", "/dev", "/run", "/sys", f"{home}/.ssh", f"{home}/.ipython"):
        assert place not in roots
    assert [root for root in roots if root.startswith(("/proc/", "/sys/"))] == [
        "/proc/cpuinfo",
        "/proc/meminfo",
        *filter(
            os.path.exists,
            (
                "/sys/devices/system/cpu",
                "/sys/devices/system/node",
                "/sys/fs/cgroup/cpu.max",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
            ),
        ),
    ]


@pytest.mark.parametrize("place", ["/proc", "/proc/1", "/dev", "/run"])
def test_other_processes_and_devices_are_never_a_root(planned, place):
    with pytest.raises(PolicyError, match="never readable"):
        planned(filesystem_read_roots=(place,))


def test_connection_files_of_all_kernels_stay_unreadable(planned, home):
    runtime = home / ".local/share/jupyter/runtime"
    runtime.mkdir(parents=True)
    (home / ".local/share/fonts").mkdir()

    result = planned(filesystem_read_roots=(str(home),))

    assert not any(str(runtime).startswith(root) for root in result.read_roots)
    assert f"{home}/.local/share/fonts" in result.read_roots


@pytest.mark.parametrize(
    ("name", "folder"),
    [("JUPYTER_DATA_DIR", "data/runtime"), ("JUPYTER_PATH", "a/kernels"), ("IPYTHONDIR", "ipy")],
)
def test_folders_that_jupyter_was_told_of_stay_unreadable(planned, home, monkeypatch, name, folder):
    moved = home / "project" / folder
    moved.mkdir(parents=True)
    before = planned(filesystem_read_roots=("{project}",))
    assert any(str(moved).startswith(root) for root in before.read_roots)
    monkeypatch.setenv(name, f"{home}/project/{folder.partition('/')[0]}")

    result = planned(filesystem_read_roots=("{project}",))

    assert not any(str(moved).startswith(root) for root in result.read_roots)


def test_kernelspecs_beside_the_interpreter_stay_unreadable(tmp_path, monkeypatch):
    (tmp_path / "share/jupyter/kernels").mkdir(parents=True)
    (tmp_path / "share/jupyter/nbconvert").mkdir()
    (tmp_path / "share/man").mkdir()
    for prefix in ("prefix", "exec_prefix", "base_prefix"):
        monkeypatch.setattr(sys, prefix, str(tmp_path))

    granted = list(plan.interpreter())

    assert {f"{tmp_path}/share/man", f"{tmp_path}/share/jupyter/nbconvert"} <= set(granted)
    assert not [path for path in granted if f"{tmp_path}/share/jupyter".startswith(path)]


def test_a_private_place_of_the_host_stays_unreadable(planned, home):
    result = planned(private=(home / "project/audit.jsonl",), filesystem_read_roots=("{project}",))

    assert own(result, home) == [f"{home}/project/work"]


def test_a_scratch_folder_may_lie_in_the_run_time_folder(tmp_path, home, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    scratch = tmp_path / "cellblock-1"
    scratch.mkdir()

    result = make_plan(Policy(), Landlock(), scratch=scratch, project=home)

    assert result.write_roots == (str(scratch),)


@pytest.mark.parametrize(
    ("read", "written", "apart"),
    [
        ((), ("{scratch}",), True),
        (("{home}/project",), ("{scratch}",), True),
        (("{home}/project/deeper",), (), True),
        (("{home}",), (), False),
        (("{home}/project", "{home}/data"), (), False),
        ((), ("{home}/out",), False),
    ],
)
def test_guests_are_apart_where_the_users_files_are_seen_through_a_layer_alone(
    home, tmp_path, read, written, apart
):
    places = {"home": str(home), "scratch": str(tmp_path / "scratch")}
    for name in ("project/deeper", "out"):
        (home / name).mkdir(parents=True, exist_ok=True)
    policy = Policy(
        filesystem_read_roots=tuple(path.format(**places) for path in read),
        filesystem_write_roots=tuple(path.format(**places) for path in written),
    )
    layer = Layer(root=f"{home}/project", folder="/layer")
    made = make_plan(
        policy, Landlock(), scratch=tmp_path / "scratch", project=home, layers=(layer,)
    )
    assert made.apart is apart


def fill(folder, entries):
    for number in range(entries):
        (folder / f"{number}").touch()


def test_a_folder_of_thousands_of_entries_may_hold_a_denied_path(planned, home):
    fill(home / "data", 3_000)
    result = planned(filesystem_read_roots=(str(home),), read_deny_paths=("~/data/1",))
    granted = [path for path in result.read_roots if path.startswith(f"{home}/data/")]
    assert len(granted) >= 2_999
    assert f"{home}/data/1" not in granted
    assert f"{home}/data/10" in granted


def test_a_folder_with_too_many_entries_is_named_and_the_remedy_works(planned, home, monkeypatch):
    monkeypatch.setattr(plan, "MAX_EXPANSION", 40)
    fill(home / "data", 50)
    asked = {"filesystem_read_roots": (str(home),), "read_deny_paths": ("~/data/1",)}
    with pytest.raises(PolicyError) as caught:
        planned(**asked)

    assert caught.value.message == (
        f"can't be kept: {home}/data has more than 40 entries beside it, too many to be granted "
        "singly"
    )
    line = f'add.read_deny_paths = ["{home}/data"]'
    assert caught.value.remedy == f"Deny all of that folder: {line}"
    added = tomllib.loads(line)["add"]["read_deny_paths"]
    result = planned(**asked | {"read_deny_paths": ("~/data/1", *added)})
    assert not [path for path in result.read_roots if path.startswith(f"{home}/data")]
    assert f"{home}/project" in result.read_roots


def test_a_root_with_too_many_entries_itself_is_told_what_else_to_do(planned, home, monkeypatch):
    monkeypatch.setattr(plan, "MAX_EXPANSION", 40)
    fill(home / "data", 50)
    with pytest.raises(PolicyError) as caught:
        planned(filesystem_read_roots=(f"{home}/data",), read_deny_paths=("~/data/1",))
    assert caught.value.remedy == (
        f"Move {home}/data/1 to another folder, or name what cells read of {home}/data as "
        "filesystem_read_roots."
    )


def long_names(folder, entries, name=""):
    """Make so many files whose paths take 1,300 bytes or more; return the folder with them."""
    deep = folder.joinpath(*["d" * 240] * 5)
    deep.mkdir(parents=True)
    for number in range(entries):
        (deep / f"{name}{number}").touch()
    return deep


def test_a_plan_of_too_many_bytes_names_the_folder_and_the_remedy_works(planned, home, monkeypatch):
    monkeypatch.setattr(plan, "MAX_PLAN_BYTES", 50_000)
    deep = long_names(home / "data", 50)
    asked = {"filesystem_read_roots": (str(home),), "read_deny_paths": (f"{deep}/1",)}
    with pytest.raises(PolicyError) as caught:
        planned(**asked)

    assert caught.value.key == "read_deny_paths"
    assert caught.value.message == (
        f"can't be kept: to name what is beneath {deep} singly takes more than 50,000 bytes"
    )
    line = caught.value.remedy.removeprefix("Deny all of that folder: ")
    added = tomllib.loads(line)["add"]["read_deny_paths"]
    assert added == [str(deep)]
    assert f"{home}/project" in planned(**asked | {"read_deny_paths": tuple(added)}).read_roots


def test_roots_that_are_too_large_together_are_told_so(planned, home, monkeypatch):
    monkeypatch.setattr(plan, "MAX_PLAN_BYTES", 50_000)
    folders = [long_names(home / name, 25) for name in ("data", "more")]
    asked = {"filesystem_read_roots": tuple(str(folder) for folder in folders)}
    denied = [f"{folder}/1" for folder in folders]
    planned(**asked, read_deny_paths=tuple(denied[:1]))
    with pytest.raises(PolicyError) as caught:
        planned(**asked, read_deny_paths=tuple(denied))
    assert caught.value.remedy == (
        f"Move {denied[0]}, and all else that is denied there, to another folder, or name what"
        f" cells read of {home} as filesystem_read_roots."
    )


def test_many_roots_of_a_policys_own_are_too_large_whatever_is_denied(planned, home, monkeypatch):
    monkeypatch.setattr(plan, "MAX_PLAN_BYTES", 50_000)
    deep = long_names(home / "data", 50)
    with pytest.raises(PolicyError) as caught:
        planned(filesystem_read_roots=tuple(map(str, deep.iterdir())))
    assert caught.value.key == "filesystem_read_roots"
    assert caught.value.remedy == (
        f"Name folders as filesystem_read_roots, not what is in them: {deep}."
    )


@pytest.mark.parametrize("field", ["hidden", "fixed", "covered"])
def test_what_layers_hide_counts_too(home, tmp_path, monkeypatch, field):
    monkeypatch.setattr(plan, "MAX_PLAN_BYTES", 50_000)
    deep = long_names(home / "project", 50)
    names = [str(path.relative_to(home / "project")) for path in deep.iterdir()]
    layer = Layer(root=f"{home}/project", folder="/layer", **{field: tuple(names)})
    (tmp_path / "scratch").mkdir()
    folders = {"scratch": tmp_path / "scratch", "project": home / "project"}
    private = {"private": tuple(deep.iterdir()), "layers": (layer,)}
    with pytest.raises(PolicyError, match=f"{deep} singly takes more than 50,000 bytes"):
        make_plan(Policy(), Landlock(), **folders, **private)


def test_a_folder_whose_name_cant_be_shown_is_denied_with_the_one_above(planned, home, monkeypatch):
    monkeypatch.setattr(plan, "MAX_PLAN_BYTES", 50_000)
    deep = long_names(home / "data" / os.fsdecode(b"\xff\n"), 50)
    with pytest.raises(PolicyError) as caught:
        planned(filesystem_read_roots=(str(home),), read_deny_paths=(f"{deep}/1",))
    assert caught.value.remedy.endswith(f'add.read_deny_paths = ["{home}/data"]')
    str(caught.value).encode()


def test_a_folder_may_be_deeper_than_pythons_stack(planned, home):
    folder = str(home / "data") + "/a" * 1_500
    (home / "data/b").mkdir()
    here = os.open(home / "data", os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("a", dir_fd=here)
        here, above = os.open("a", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    try:
        granted = planned(
            filesystem_read_roots=(f"{home}/data",), read_deny_paths=(f"{folder}/.env",)
        ).read_roots
    finally:
        remove_tree(str(home / "data"))
    assert f"{home}/data/b" in granted
    assert f"{home}/data/a" not in granted


def test_more_masks_than_a_wrapper_mounts_are_refused_and_the_remedy_works(
    home, tmp_path, monkeypatch
):
    monkeypatch.setattr(plan, "MAX_MASKS", 40)
    fill(home / "data", 50)
    denied = tuple(map(str, (home / "data").iterdir()))
    folders = {"scratch": tmp_path / "scratch", "project": home / "project"}
    folders["scratch"].mkdir()

    def view(denied):
        asked = Policy().replace(filesystem_read_roots=(str(home),), read_deny_paths=denied)
        return make_view(asked, Plan(), **folders)

    assert view(denied[:40])
    with pytest.raises(PolicyError) as caught:
        view(denied)
    assert "takes more than 40 mounts" in caught.value.message
    line = caught.value.remedy.removeprefix("Deny all of that folder: ")
    assert view((*denied, *tomllib.loads(line)["add"]["read_deny_paths"]))


def test_thousands_of_secrets_take_no_time_for_each_pair_of_them():
    """When it took time in proportion to their square, that was minutes."""
    names = tuple(f"{number}/.env" for number in range(20_000))
    layer = Layer(root="/p", folder="/layer", hidden=names)
    inside = [f"/p/{name}/x" for name in names]
    assert Plan(layers=(layer,)).not_hidden((*inside, "/p/0/env")) == ["/p/0/env"]
    assert plan.outermost([*inside, "/p/0", "/p/0!", "/p/0-b"])[:4] == (
        "/p/0",
        "/p/0!",
        "/p/0-b",
        "/p/1/.env/x",
    )


def test_roots_are_only_split_where_a_denied_path_lies_beneath_one(home):
    assert not splits_roots(Policy())
    assert splits_roots(Policy().replace(filesystem_read_roots=(str(home),)))


def test_limits_are_the_policys(planned):
    limits = planned(memory_max_bytes=None, max_file_size=7, max_open_files=9).limits

    assert (limits.memory_max_bytes, limits.max_file_size, limits.max_open_files) == (None, 7, 9)


def test_where_all_that_cells_write_is_bounded_together_no_file_may_be_larger(home, tmp_path):
    (tmp_path / "scratch").mkdir()
    layer = Layer(root=str(home / "project"), folder=str(tmp_path / "layer"))

    def largest(layers=(layer,), **fields):
        own = {"filesystem_write_roots": ("{scratch}",), "scratch_max_bytes": 512 * MIB}
        policy = Policy().replace(**{**own, "max_file_size": 4096 * MIB, **fields})
        folders = {"scratch": tmp_path / "scratch", "project": home / "project"}
        return make_plan(policy, Landlock(), layers=layers, **folders).limits.max_file_size

    assert largest() == largest(max_file_size=None) == 640 * MIB
    assert largest(max_file_size=7) == 7
    assert largest(scratch_max_bytes=MIB) == 65 * MIB
    for unbounded in (
        {"layers": ()},
        {"scratch_max_bytes": None},
        {"filesystem_write_roots": ("{scratch}", str(home / "data"))},
    ):
        assert largest(**unbounded) == 4096 * MIB


def test_a_zygote_has_its_folder_where_no_guest_may_write(planned, home, tmp_path):
    folders = {"scratch": tmp_path / "scratch", "project": home / "project"}
    result = planned(filesystem_write_roots=())
    seen = make_view(Policy().replace(filesystem_write_roots=()), result, **folders)

    assert result.write_roots == ()
    assert seen.writable == (str(tmp_path / "scratch"),)


# --- what is never writable, never readable: each place, from outside, itself and from inside ------


#: Spelled out, not taken from the plan: an entry that is lost there is to be missed here.
FOLDERS = (
    *("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_CONFIG_PATH", "JUPYTER_RUNTIME_DIR"),
    "XDG_RUNTIME_DIR",
)
DATA = ("JUPYTER_DATA_DIR", "JUPYTER_PATH")
PRIVATE_DATA = ("kernels", "nbsignatures.db", "notebook_secret", "runtime")
#: In the home folder, and by what a user may have moved it with.
PRIVATE_AT_HOME = [
    (".jupyter", {}),
    (".ipython", {}),
    (".config/jupyter", {}),
    ("moved/jupyter", {"XDG_CONFIG_HOME": "moved"}),
    (".local/share/jupyter", {}),
    ("moved/jupyter", {"XDG_DATA_HOME": "moved"}),
    *(("moved", {name: "moved"}) for name in FOLDERS),
    *((f"moved/{entry}", {name: "moved"}) for name in DATA for entry in PRIVATE_DATA),
]


@pytest.fixture
def private(request, home, monkeypatch):
    """Make a private folder with another in it; return its path."""
    place, variables = request.param
    (home / place / "inside").mkdir(parents=True)
    for name in (*FOLDERS, *DATA, "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in variables.items():
        monkeypatch.setenv(name, f"{home}/{folder}")
    return f"{home}/{place}"


def each_private(test):
    names = [" ".join((place, *variables)) for place, variables in PRIVATE_AT_HOME]
    return pytest.mark.parametrize("private", PRIVATE_AT_HOME, ids=names, indirect=True)(test)


@each_private
def test_what_jupyter_keeps_at_home_is_not_readable_beneath_a_root_nor_a_root(
    planned, home, private
):
    granted = own(planned(filesystem_read_roots=(str(home),)), home)
    assert f"{home}/data" in granted
    assert not [root for root in granted if paths.within(private, root)]
    assert not [root for root in granted if paths.within(root, private)]
    for root in (private, f"{private}/inside"):
        with pytest.raises(PolicyError, match="a place that is never readable"):
            planned(filesystem_read_roots=(root,))


@each_private
def test_nothing_is_written_in_what_jupyter_keeps_at_home_nor_around_it(planned, home, private):
    work = f"{home}/project/work"
    assert planned(filesystem_write_roots=(work,)).write_roots == (work,)
    for root in (private, f"{private}/inside", str(Path(private).parent)):
        with pytest.raises(PolicyError) as caught:
            planned(filesystem_write_roots=(root,))
        assert caught.value.message.startswith("can't be kept: what is writable is readable")


@pytest.mark.parametrize("of_host", [False, True], ids=["of guests", "of the host for them"])
@pytest.mark.parametrize(
    "folder",
    [
        str(Path(pytest.__file__).resolve().parent),
        str(Path(plan.__file__).resolve().parent),
        str(Path(json.__file__).resolve().parent),
    ],
    ids=["a package", "cellblock", "the standard library"],
)
def test_nothing_is_written_inside_what_runs_unconfined(planned, home, folder, of_host):
    def allow(root):
        if of_host:
            plan.check_writable((root,), (), Policy(), "ops.write_file.roots")
        else:
            planned(filesystem_write_roots=(root,))

    allow(f"{home}/project/work")
    with pytest.raises(PolicyError, match="cells could change what runs unconfined"):
        allow(folder)


def test_nothing_is_written_inside_the_packages_that_other_kernels_import(
    planned, home, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", f"{home}/project/work")
    inside = home / "project/work/cellblock/packages/abc"
    inside.mkdir(parents=True)
    for root in (inside, inside.parent, inside.parent.parent):
        with pytest.raises(PolicyError, match="packages that other kernels import"):
            planned(filesystem_write_roots=(str(root),))


def test_nothing_is_written_inside_what_is_denied_or_the_hosts_own(planned, home):
    (home / "project/work/inner").mkdir()
    inside = (f"{home}/project/work/inner",)
    for options in (
        {"read_deny_paths": (f"{home}/project/work",)},
        {"private": (home / "project/work",)},
    ):
        with pytest.raises(PolicyError, match="this holds a denied path"):
            planned(**options, filesystem_write_roots=inside)


@pytest.mark.parametrize("of", ["the policy", "the host", "Jupyter"])
def test_where_a_link_stands_in_a_denied_place_its_own_name_is_denied_too(
    planned, home, monkeypatch, of
):
    """It may be another link, or a file, before the next look: what it is called counts."""
    work = home / "project/work"
    (work / "link").symlink_to(home / "data")
    (work / "other").mkdir()
    options = {"the policy": {"read_deny_paths": (f"{work}/link",)}}.get(of, {})
    options |= {"the host": {"private": (work / "link",)}}.get(of, {})
    if of == "Jupyter":
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", f"{work}/link")
    assert own(planned(**options, filesystem_read_roots=(str(work),)), home) == [f"{work}/other"]
    denied = plan.denied(
        Policy().replace(read_deny_paths=options.get("read_deny_paths", ())),
        private=options.get("private", ()),
    )
    assert {f"{work}/link", f"{home}/data"} <= set(denied)
    with pytest.raises(PolicyError, match="this holds a denied path"):
        planned(**options, filesystem_write_roots=(str(work),))
