"""The containment sample: attacks against canaries, and legitimate cells, as several users."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cellblock.backends.container_engine import build_image, find_engine
from support import engine, machines
from support.kernels import argv_for

SAMPLE = Path(__file__).parent / "sample"
SHIPPED = json.loads(
    (Path(__file__).parents[2] / "kernelspec" / "cellblock" / "kernel.json").read_text()
)
SAFE = (
    "builtins",
    "exhaust-lang",
    "import-forms",
    "import-indirect",
    "magics",
    "module-attrs",
    "object-walk",
    "stdlib-exec",
    "stdlib-io",
)
OS = ("exec", "exhaust-os", "files", "network", "processes", "procfs")

#: As the user of this suite under Landlock, and as whoever may do least in namespaces.
WHO = ["same user", machines.users(wrapped=True)[-1]]

pytestmark = pytest.mark.timeout(280)


@pytest.fixture(scope="module")
def container_engine():
    with engine.running() as why:
        if why:
            pytest.skip(f"no container engine: {why}")
        build_image(find_engine("docker", os.environ))
        yield


@pytest.fixture
def sample(somebody):
    """Return a function that runs one of the sample's programs and returns its JSON."""
    world, prefix = somebody["world"], somebody["prefix"]
    env = world.environment(PYTHONDONTWRITEBYTECODE="1")
    install(world, env)

    def run(program, *options):
        found = world.root / "work" / "found.json"
        command = [sys.executable, "-P", str(SAMPLE / program), "--json", str(found), *options]
        done = subprocess.run(
            [*prefix, *command],
            check=False,
            capture_output=True,
            text=True,
            env=env,
            cwd=world.work,
            timeout=270,
        )
        assert found.exists(), done.stdout[-2_000:] + done.stderr[-2_000:]
        return json.loads(found.read_text()), done

    return run


def install(world, env):
    """Install both kernels: the shipped one, and one of mode unsafe as the command line does."""
    folder = world.home / ".local/share/jupyter/kernels/cellblock"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(SHIPPED | {"argv": argv_for("safe")}))
    install_unsafe(world, env, "unsafe", "cellblock-unsafe")


def install_unsafe(world, env, policy, name):
    code = "from cellblock.cli.main import main; main()"
    options = ["--policy", str(policy), "--allow-unsafe", "--name", name, "--user"]
    subprocess.run(
        [sys.executable, "-P", "-c", code, "install", *options],
        check=True,
        capture_output=True,
        env=env,
        timeout=60,
    )
    for path in (world.home, *world.home.rglob("*")):
        world.give(path)


def attack(sample, kernel, mode, classes, *options):
    """Run the attacks of some classes; return how many there were and those not contained."""
    chosen = [part for name in classes for part in ("--class", name)]
    options = ("--kernel", kernel, "--mode", mode, "--jobs", "2", *options)
    found, done = sample("contain.py", *options, *chosen)
    assert not found["skipped"] or mode == "os", found["skipped"]
    failed = [
        f"{r['verdict']} {r['id']}: {r.get('witnesses') or r.get('error')}"
        for r in found["results"]
        if r["verdict"] != "CONTAINED"
    ]
    assert {r["class"] for r in found["results"]} == set(classes), done.stdout
    return len(found["results"]), failed


@pytest.mark.parametrize("somebody", WHO, indirect=True)
def test_the_os_layer_alone_contains_every_attack(sample):
    count, failed = attack(sample, "cellblock-unsafe", "os", OS)
    assert failed == []
    assert count >= 49


@pytest.mark.usefixtures("container_engine")
@pytest.mark.parametrize("somebody", ["same user"], indirect=True)
def test_a_container_contains_every_attack(sample, somebody):
    world = somebody["world"]
    policy = world.policy('extends = "unsafe"\nbackend = "docker"\n')
    install_unsafe(world, world.environment(), policy, "cellblock-docker")
    engines_place = ("--pass-env", f"DOCKER_HOST={os.environ.get('DOCKER_HOST', '')}")
    count, failed = attack(sample, "cellblock-docker", "os", OS, *engines_place)
    assert failed == []
    assert count >= 49


@pytest.mark.parametrize("somebody", ["same user"], indirect=True)
def test_mode_safe_contains_every_attack(sample):
    """What a cell's source may say does not depend on who runs it: one user is enough."""
    count, failed = attack(sample, "cellblock", "safe", SAFE)
    assert failed == []
    assert count >= 103


@pytest.mark.parametrize(
    ("somebody", "kernel"),
    [("same user", "cellblock"), (machines.users()[-1], "cellblock-unsafe")],
    indirect=["somebody"],
)
def test_no_legitimate_cell_is_refused(sample, kernel):
    found, done = sample("benign.py", "--kernel", kernel)
    failed = [f"{r['id']}: {r['problems']}" for r in found["results"] if r["problems"]]
    assert failed == [], done.stdout[-2_000:]
    corpus = [tomllib.loads(path.read_text()) for path in SAMPLE.glob("benign/*.toml")]
    cases = [case for file in corpus for case in file["case"]]
    assert len(found["results"]) == len(cases) == 63
    assert sum(len(case.get("cells", [])) + len(case.get("step", [])) for case in cases) == 77
