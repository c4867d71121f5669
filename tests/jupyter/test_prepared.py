"""What a first start finds made by whoever installed its kernel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from support.kernels import Kernel, World

BACKENDS = ["landlock", *(["bubblewrap"] if shutil.which("bwrap") else [])]


@pytest.fixture
def world(request):
    made = World(backend=getattr(request, "param", "landlock"))
    yield made
    made.close()


def ran(world, *words):
    """Run the command in the notebook's folder; return what it printed."""
    argv = [f"{sys.prefix}/bin/cellblock", *words]
    return subprocess.run(
        argv,
        env=world.environment(),
        cwd=world.work,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout


@pytest.mark.parametrize("world", BACKENDS, indirect=True)
def test_the_first_kernel_of_a_policy_starts_in_what_install_found(world):
    """The next kernel's guess is what it needs: else the kernel would note that it differed."""
    policy = world.policy(f'extends = "data"\nbackend = "{world.backend}"\n')
    ran(world, "install", "--policy", str(policy), "--prefix", str(world.root / "env"))
    (spec,) = (world.root / "env").glob("**/kernel.json")
    cache = world.home / ".cache/cellblock"
    (entry,) = (cache / "wrappings").read_bytes().split(b"\0\0")
    state, _, named, *words = entry.split(b"\0")
    wrapped = world.backend == "bubblewrap"
    assert (state, named, bool(words)) == (b"same", bytes(world.work), wrapped)
    with Kernel(json.loads(spec.read_text())["argv"], world=world) as kernel:
        kernel.wait_ready()
        kernel.run("x = 1")
        kernel.send("shutdown_request", {"restart": False}, "control")
        kernel.proc.wait(20)
    assert (cache / "wrappings").read_bytes() == entry
    assert not list((world.home / ".local/share/cellblock/changes").glob("*"))


def test_files_for_first_plots_and_charts_are_there_when_doctor_is_done(world):
    pytest.importorskip("matplotlib", reason="extra 'data' is not installed")
    pytest.importorskip("vl_convert", reason="extra 'interactive' is not installed")
    ran(world, "doctor", "--policy", "data")
    cache = world.home / ".cache/cellblock"
    made = {path.parent.name: path.stat().st_ino for path in cache.glob("*/*")}
    assert {"matplotlib", "vega"} <= made.keys()
    ran(world, "doctor", "--policy", "data")
    again = {path.parent.name: path.stat().st_ino for path in cache.glob("*/*")}
    assert {name: again[name] for name in ("matplotlib", "vega")} == {
        name: made[name] for name in ("matplotlib", "vega")
    }
