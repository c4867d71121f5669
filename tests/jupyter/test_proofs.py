"""What `cellblock doctor` and `cellblock install` saw, at a kernel's start."""

import json
import subprocess
import sys

import pytest

from cellblock.backends.bubblewrap import how_to_have
from cellblock.guest.confine import arch, landlock
from support import machines, processes, reading
from support.kernels import Kernel, argv_for

MACHINE = arch.current()
pytestmark = pytest.mark.skipif(
    MACHINE is None or landlock.abi(MACHINE) == 0, reason="this OS kernel has no Landlock"
)
POLICY = 'backend = "landlock"\n'


def cellblock(world, *words, prefix=()):
    """Run the command in a world, by its user."""
    done = subprocess.run(
        [
            *prefix,
            sys.executable,
            "-P",
            "-c",
            "from cellblock.cli.main import main; main()",
            *words,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=world.work,
        env=world.environment(),
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def statuses(kernel):
    (table,) = reading.cards(kernel.run("%policy")[1], "policy")
    return {each["capability"]: each["status"] for each in table["enforcement"]}


def proofs_of(world):
    return world.home / ".cache" / "cellblock" / "proofs.json"


def altered(world, probe, **changes):
    """Have the suite have seen something else of a probe."""
    file = proofs_of(world)
    kept = json.loads(file.read_bytes())
    for entry in kept:
        entry["proof"]["results"][probe].update(changes)
    file.write_text(json.dumps(kept))


@pytest.mark.parametrize("somebody", machines.users(wrapped=True), indirect=True)
def test_a_kernel_claims_verified_only_what_the_doctor_saw(somebody):
    world, prefix = somebody["world"], somebody["prefix"]
    policy = world.policy('extends = "safe"\n')
    with Kernel(argv_for(policy), **somebody).wait_ready() as kernel:
        assert set(statuses(kernel).values()) <= {"asserted", "partial", "unenforced"}

    report = json.loads(
        cellblock(world, "doctor", "--policy", str(policy), "--json", prefix=prefix)
    )
    assert (report["unproved"], report["backend"]) == ("", world.backend)
    seen = {each["capability"]: each["status"] for each in report["capabilities"]}
    assert seen["network_access"] == seen["subprocess_execution"] == "verified"
    with Kernel(argv_for(policy), **somebody).wait_ready() as kernel:
        assert statuses(kernel) == seen


#: Seconds in which a kernel has its policy proved: half a minute after its start, when the machine
#: has time for that.
PROVED_LATE = 200


@pytest.mark.timeout(2 * PROVED_LATE)
def test_a_kernel_that_nobody_proved_proves_itself_once_for_this_machine(start, world):
    policy = world.policy('extends = "data"\n')
    kernel = start(policy, world=world)
    assert "verified" not in statuses(kernel).values()
    assert processes.until(proofs_of(world).exists, PROVED_LATE)
    assert processes.until(lambda: "verified" in statuses(kernel).values())
    kept = proofs_of(world).read_bytes()
    again = start(policy, world=world)
    assert "verified" in statuses(again).values()
    assert proofs_of(world).read_bytes() == kept


def test_installing_verifies_and_a_contradiction_is_the_users_to_see(start, world, records):
    policy = world.policy(f"{POLICY}require = []\n")
    said = cellblock(world, "install", "--policy", str(policy), "--user").splitlines()
    assert said[1].startswith("◐ Policy ")
    assert "under landlock: " in said[1]
    assert statuses(start(policy, world=world))["network_access"] == "verified"

    altered(world, "tcp", outcome="passed", detail="")
    kernel = start(policy, world=world)
    (card,) = reading.cards(kernel.run("1")[1], "enforcement")
    audited = [each for each in records(world, "enforcement") if each["gaps"]][-1]
    (gap,) = [each for each in card["gaps"] if each["capability"] == "network_access"]
    assert (gap["status"], gap["consequence"]) == ("unenforced", "a cell can connect by TCP")
    assert audited["proved"]
    assert [each["capability"] for each in audited["gaps"] if each.get("contradicted")] == [
        "network_access"
    ]


def test_nothing_runs_where_a_probe_contradicts_what_is_required(world):
    policy = world.policy(f"{POLICY}require = ['network_access']\nidle_timeout = 'none'\n")
    cellblock(world, "doctor", "--policy", str(policy))
    altered(world, "udp", outcome="passed", detail="")
    with Kernel(argv_for(policy), world=world) as kernel:
        reply, published = kernel.wait_heard().run("print('ran')")
        assert reply["status"] == "error"
        assert "network_access is partial: system call filter: no socket is opened" in str(reply)
        assert reading.stream(published) == ""


@pytest.mark.timeout(2 * PROVED_LATE)
def test_what_a_late_proof_contradicts_is_shown_and_what_is_required_runs_no_more(world):
    shown = world.policy(f"{POLICY}require = []\n", name="shown.toml")
    needed = world.policy(f"{POLICY}require = ['network_access']\n", name="needed.toml")
    for policy in (shown, needed):
        cellblock(world, "doctor", "--policy", str(policy))
    altered(world, "udp", outcome="passed", detail="")
    late = proofs_of(world).rename(world.home / "late")
    with (
        Kernel(argv_for(shown), world=world).wait_ready() as one,
        Kernel(argv_for(needed), world=world).wait_ready() as other,
    ):
        assert (statuses(one)["network_access"], other.run("1")[0]["status"]) == ("asserted", "ok")
        late.rename(proofs_of(world))

        def gaps():
            return reading.cards(one.run("1")[1], "enforcement")

        (card,) = processes.until(gaps, PROVED_LATE)
        (gap,) = [each for each in card["gaps"] if each["capability"] == "network_access"]
        assert (gap["status"], gaps()) == ("partial", [])
        processes.until(lambda: other.run("print('ran')")[0]["status"] == "error", PROVED_LATE)
        reply, published = other.run("print('ran')")
        assert "network_access is partial: system call filter: no socket is opened" in str(reply)
        assert reading.stream(published) == ""


def test_every_gap_is_in_the_log_shown_or_not(start, world):
    kernel = start(world.policy(f'{POLICY}on_unsupported = "ignore"\n'), world=world)
    published = kernel.run("1")[1]
    assert reading.cards(published, "enforcement") == []
    (line,) = [each for each in kernel.stderr().splitlines() if "read_roots" in each]
    assert line == (
        "cellblock: gap: filesystem_read_roots is partial: asked: none; "
        "here: Landlock: files and folders outside the roots can't be opened; "
        "cells can see the names, sizes, times and links of your files (not what is in them); "
        f"remedy: to hide them, {how_to_have('landlock')}"
    )


def test_a_log_that_nobody_takes_costs_nothing(start, world):
    full = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh")
    assert start(world.policy(POLICY), world=world, prefix=full).run("1")[0]["status"] == "ok"
