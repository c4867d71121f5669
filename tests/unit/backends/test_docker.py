"""Backend docker without an engine: mounts, options, and what engines' words mean."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest

from cellblock.backends import container_engine, container_launcher, docker
from cellblock.backends.base import Bounds, View
from cellblock.backends.container_engine import (
    ContainerSpec,
    Engine,
    EngineError,
    explain,
)
from cellblock.backends.docker import Docker

ENGINE = Engine("docker", "/usr/bin/docker", (("PATH", "/usr/bin"),))
SPEC = ContainerSpec(
    engine=ENGINE,
    runtime="crun",
    image="a:1",
    mounts=(("/etc/fonts", ("--mount", "x")),),
    network=False,
    folder="/tmp",
    memory_bytes=1 << 30,
    tasks=60,
)


def view(**changes):
    nothing = View(readable=(), writable=(), masked=(), devices=(), names=())
    return msgspec.structs.replace(nothing, **changes)


def told(found):
    return {path: words[1] for path, words in docker.mounts(["/nonexistent"], found)}


def test_a_spec_survives_json_and_its_command_withholds_every_privilege(monkeypatch):
    assert ContainerSpec.from_json(SPEC.to_json()) == SPEC

    monkeypatch.setattr(
        Engine, "ask", lambda *_, **__: subprocess.CompletedProcess([], 0, b"sha256:1")
    )
    command = SPEC.command("name", 1, ["/usr/bin/python", "-I"])
    assert {
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--network=none",
        "--pull=never",
        "--runtime=crun",
        "--memory=1073741824",
        "--memory-swap=1073741824",
        "--pids-limit=60",
    } <= {*command}
    assert command[-2:] == ["a:1", "-I"]
    assert not [word for word in command if "privileged" in word or "sock" in word]


def test_mounts_are_read_only_but_what_may_be_written(tmp_path):
    (read := tmp_path / "a, b").mkdir()
    (write := tmp_path / "write").mkdir()
    (scratch := tmp_path / "scratch").mkdir()
    found = told(
        view(
            readable=(str(read), str(write)),
            writable=(str(write), str(scratch)),
            bounds=Bounds(str(scratch), 4096, None, None),
        )
    )
    assert found[str(read)] == f'type=bind,"src={read}","dst={read}",readonly'
    assert found[str(write)] == f"type=bind,src={write},dst={write}"
    assert found[str(scratch)] == f"type=tmpfs,dst={scratch},tmpfs-mode=1777,tmpfs-size=4096"


def test_denied_paths_are_masked_only_beneath_what_is_mounted(tmp_path):
    root = tmp_path / "root"
    (root / "secrets").mkdir(parents=True)
    (root / "token").touch()
    (tmp_path / "elsewhere").mkdir()
    denied = (str(root / "secrets"), str(root / "token"), str(tmp_path / "elsewhere"))
    found = told(view(readable=(str(root),), masked=denied))
    assert sorted(found) == [str(root), str(root / "secrets"), str(root / "token")]
    assert found[str(root / "secrets")].endswith("tmpfs-size=4096,tmpfs-mode=0555,readonly")
    assert f"src={os.devnull}," in found[str(root / "token")]


def test_a_link_is_mounted_as_its_target(tmp_path):
    (real := tmp_path / "real").mkdir()
    (link := tmp_path / "link").symlink_to(real)
    found = told(view(readable=(str(real),), names=(str(link),)))
    assert found[str(link)] == f"type=bind,src={real},dst={link},readonly"


def test_a_read_root_of_slash_mounts_its_entries_but_not_proc():
    found = told(view(readable=("/",)))
    assert {"/etc", "/usr"} <= {*found}
    assert not {"/", "/proc", "/sys", "/dev"} & {*found}


@pytest.mark.parametrize(
    ("said", "means"),
    {
        "Error: No such image: a:1": "the image is not there: cellblock image build",
        'Error: cellblock:mounted: image not known"': "the image is not there: cellblock image build",
        "docker: permission denied while trying to connect to the Docker daemon socket": (
            "the engine does not let this user in"
        ),
        "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?": (
            "the engine does not answer"
        ),
        'Cannot connect to Podman: dial unix /x: connect: connection refused"': (
            "the engine does not answer"
        ),
        "Error response from daemon: Unknown runtime specified x": "the engine has no OCI runtime",
        "invalid mount config: bind source path does not exist: /x": "the engine does not see this",
        "crun: cgroups in hybrid mode not supported": "the engine can't limit the container here",
        "": "it fails here (it gave no reason)",
        "x" * 10_000: "it fails here (xxx",
    }.items(),
)
def test_an_engines_complaint_is_explained_and_its_words_are_bounded(said, means):
    assert explain(said).startswith(means)
    assert len(explain(said)) < 500


def test_an_engine_gets_only_the_variables_that_lead_to_it(tmp_path):
    (tmp_path / "podman").touch(mode=0o755)
    environ = {"PATH": str(tmp_path), "HOME": "/home/x", "AWS_SECRET": "s", "HTTP_PROXY": "p"}
    found = container_engine.find_engine("auto", environ)
    assert (found.name, found.program) == ("podman", f"{tmp_path}/podman")
    assert dict(found.environment) == {"PATH": str(tmp_path), "HOME": "/home/x"}


def test_the_scratch_folder_is_bounded_also_inside_a_write_root(tmp_path):
    scratch = tmp_path / "cellblock-1"
    scratch.mkdir()
    bounds = Bounds(str(scratch), 1 << 20, None, None)
    found = told(view(writable=(str(tmp_path),), bounds=bounds))
    assert found[str(tmp_path)] == f"type=bind,src={tmp_path},dst={tmp_path}"
    assert found[str(scratch)] == f"type=tmpfs,dst={scratch},tmpfs-mode=1777,tmpfs-size=1048576"


# --- who it is --------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Put an engine on PATH that says what its image is; return a function that changes it."""

    def make(image, *, comment=""):
        program = tmp_path / "docker"
        program.write_text(f"#!/bin/sh\n{comment}\necho {image}\n")
        program.chmod(0o755)

    make("sha256:1")
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return make


def test_the_fingerprint_changes_with_engine_runtime_and_image(monkeypatch, installed):
    mine = Docker("docker", "", "a:1")
    seen = [mine.fingerprint(), Docker("docker", "crun", "a:1").fingerprint()]
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere")
    seen.append(mine.fingerprint())
    monkeypatch.delenv("DOCKER_HOST")
    installed("sha256:2")
    seen.append(mine.fingerprint())
    installed("sha256:2", comment="# updated")
    seen.append(mine.fingerprint())

    assert len({*seen}) == len(seen)
    assert seen[0].endswith(", runtime default, image sha256:1")
    assert mine.fingerprint() == seen[-1]


@pytest.mark.parametrize("said", ["exit 1", "exit 0", "echo 'No such image' >&2; exit 1"])
def test_there_is_no_fingerprint_where_the_image_is_not_known(said, tmp_path, monkeypatch):
    (tmp_path / "docker").write_text(f"#!/bin/sh\n{said}\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(OSError, match="no image a:1: cellblock image build"):
        Docker("docker", "", "a:1").fingerprint()


def test_an_engine_that_was_removed_fails_the_start_with_an_os_error(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    mine = Docker("docker", "", "a:1")
    with pytest.raises(OSError, match="docker is not installed"):
        mine.fingerprint()
    with pytest.raises(FileNotFoundError, match="docker is not installed"):  # noqa: SIM117
        with mine.command(["python", "-c", "", "5"], view()):
            pass


CLONE_NEWPID = 0x20000000


def connected(path, uid, *, first=True):
    """Connect to ``path`` from the first process of a new pid namespace; return a pid to wait for."""
    pid = os.fork()
    if pid:
        return pid
    try:
        if first:
            assert ctypes.CDLL(None).unshare(CLONE_NEWPID) == 0
        if (child := os.fork()) == 0:
            os.setresuid(uid, uid, uid)
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(path)
                sock.recv(1)
            os._exit(0)
        os.waitpid(child, 0)
    finally:
        os._exit(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a pid namespace just so")
@pytest.mark.parametrize(
    ("uid", "first", "refusal"),
    [
        (0, True, None),
        (65534, True, "the engine has started the container as another user: 65534"),
        (0, False, "the engine has started a process, and no container around it"),
    ],
)
def test_only_the_first_process_of_this_users_container_gets_descriptors(uid, first, refusal):
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    path = folder / "wire"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        pid = connected(str(path), uid, first=first)
        connection = listener.accept()[0]
    try:
        with connection:
            if refusal is None:
                os.close(container_launcher.first_process(connection))
            else:
                with pytest.raises(EngineError, match=refusal):
                    container_launcher.first_process(connection)
    finally:
        os.waitpid(pid, 0)
        shutil.rmtree(folder)
