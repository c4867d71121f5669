from __future__ import annotations

import os

import pytest

from cellblock.backends.base import ORDER, named, unprobed
from cellblock.backends.landlock import Landlock
from cellblock.backends.noop import Noop
from cellblock.backends.report import COMPATIBILITY_MATRIX, blocking, gaps, settle
from cellblock.backends.seatbelt import Seatbelt
from cellblock.guest.probes import NAMES
from cellblock.policy.model import CAPABILITIES, DECLARED, Policy, Status
from cellblock.wire.messages import LockReport

SUPPORT = unprobed("for a test", usable=True)
ALL = LockReport(
    achieved=dict.fromkeys(Landlock.locks, "taken")
    | {
        "witness": "read_file, list_folder, tcp, udp, netlink, fork, execute, signal",
        "gate": "asked",
    }
)
UNGATED = LockReport(achieved={k: v for k, v in ALL.achieved.items() if k != "gate"})


def declared(policy, backend=None):
    return (backend or Landlock()).declare(policy, SUPPORT)


def found(policy, report=ALL, backend=None):
    """Return the gaps of a policy, by capability."""
    return {gap.capability: gap for gap in gaps(policy, declared(policy, backend), report)}


def statuses(policy, report=ALL, backend=None):
    settled = settle(declared(policy, backend), report)
    return {name: each.status for name, each in settled.items()}


def test_a_backend_that_forgets_or_invents_a_capability_fails_when_it_is_defined():
    incomplete = {k: v for k, v in Landlock.declarations.items() if k != "network_access"}

    with pytest.raises(TypeError) as caught:
        type("Forgetful", (Landlock,), {"name": "forgetful", "declarations": incomplete})

    assert str(caught.value) == "backend forgetful: undeclared ['network_access'], unknown []"

    invented = {**Noop.declarations, "telepathy": Noop.declarations["snapshots"]}
    with pytest.raises(TypeError, match=r"undeclared \[\], unknown \['telepathy'\]"):
        type("Inventive", (Noop,), {"name": "inventive", "declarations": invented})


def test_the_compatibility_matrix_is_what_the_backends_declare():
    assert list(COMPATIBILITY_MATRIX) == list(DECLARED)
    for capability, row in COMPATIBILITY_MATRIX.items():
        assert list(row) == list(ORDER)
        for backend in map(named, ORDER):
            assert row[backend.name] == backend.declare(Policy(), SUPPORT)[capability].status


@pytest.mark.parametrize("display", ["text", "sanitized", "isolated"])
def test_what_the_host_alone_enforces_is_the_same_behind_every_backend(display):
    policy = Policy().replace(display=display)
    for name in set(CAPABILITIES) - set(DECLARED):
        (found,) = {backend.declare(policy, SUPPORT)[name] for backend in map(named, ORDER)}
        assert (found.status, found.holes, found.locks) == (Status.asserted, (), ())
        assert found.mechanism


def test_a_guests_own_witness_verifies_nothing_and_an_empty_report_voids_every_lock():
    assert Status.verified not in statuses(Policy()).values()
    assert statuses(Policy())["network_access"] is Status.asserted

    made = statuses(Policy(), LockReport())

    for name in ("filesystem_read_roots", "network_access", "memory_max_bytes"):
        assert made[name] is Status.unavailable


@pytest.mark.parametrize("lock", Landlock.locks)
def test_a_lock_that_was_not_reported_voids_what_rests_on_it(lock):
    report = LockReport(
        achieved={k: v for k, v in ALL.achieved.items() if k != lock}, failed={lock: "no luck"}
    )
    settled = settle(declared(Policy()), report)

    resting = [each for each in settled.values() if lock in each.locks]
    assert all(each.status is Status.unavailable for each in resting)
    assert all(f"{lock}: no luck" in each.evidence for each in resting)
    if lock != "not_dumpable":
        assert resting


def test_noop_holds_only_what_the_host_does():
    made = statuses(Policy(), LockReport(), backend=Noop())

    holding = [name for name, status in made.items() if status is not Status.unenforced]
    assert holding == [
        "credentials",
        "port_hosts",
        "env_var_access",
        "display",
        "widget_modules",
        "comm_targets",
        "snapshots",
        "undo_depth",
        "max_branches",
        "timeout",
        "cpu_seconds",
        "memory_max_bytes",
        "scratch_max_bytes",
        "stdout_max_bytes",
        "stderr_max_bytes",
        "display_max_bytes",
        "undo_max_bytes",
        "forks_max_bytes",
        "output_kept_max_bytes",
        "artifact_max_bytes",
        "artifacts_max_bytes",
    ]


def test_the_gap_of_read_roots_says_that_names_can_be_seen_and_matters():
    gap = next(iter(found(Policy()).values()))

    assert gap.capability == "filesystem_read_roots"
    assert gap.status is Status.partial
    assert gap.asked == "none"
    assert gap.consequence == NAMES
    assert gap.matters


def test_the_remedy_for_denied_paths_beneath_a_root_is_a_narrower_root(tmp_path):
    denied = str(tmp_path / "keys")
    policy = Policy().replace(filesystem_read_roots=(str(tmp_path),), read_deny_paths=(denied,))

    mended, failed = (found(policy, report)["read_deny_paths"] for report in (ALL, LockReport()))
    assert mended.remedy == "grant narrower filesystem_read_roots, with nothing denied beneath them"
    assert failed.remedy.startswith("use Linux 5.13 or later")


def test_the_remedy_for_processor_time_of_short_processes_is_no_newer_linux():
    policy = Policy().replace(cpu_seconds=2, subprocess_execution=True)
    assert found(policy)["cpu_seconds"].remedy == (
        "set subprocess_execution to false, or timeout, which ends such cells too"
    )


def test_package_installation_is_a_gap_whose_remedy_is_the_host():
    gap = found(Policy().replace(package_installation=True))["package_installation"]

    assert (gap.status, gap.asked) == (Status.unavailable, "allowed")
    assert not gap.matters
    assert gap.consequence == "a cell that runs an installer fails"
    assert gap.remedy == "list what notebooks need in packages, or grant ops.install"


@pytest.mark.parametrize("field", ["idle_timeout", "max_processes"])
def test_a_limit_that_is_not_configured_is_no_gap(field):
    assert field not in found(Policy().replace(**{field: None}), UNGATED)
    assert field in found(Policy().replace(**{field: 10}), UNGATED)


def test_what_may_be_exceeded_by_a_known_amount_is_enforced_and_by_an_unknown_one_a_gap():
    for field in ("memory_max_bytes", "scratch_max_bytes"):
        assert statuses(Policy())[field] is Status.asserted
        assert field in found(Policy().replace(max_open_files=None))


def test_a_gap_by_which_no_cell_gains_does_not_matter():
    gaps = found(Policy().replace(idle_timeout=60), UNGATED)
    assert {name for name in gaps if not gaps[name].matters} == {
        "idle_timeout",
        "snapshots",
        "undo_depth",
        "max_branches",
    }


def test_an_address_list_is_enforced_only_behind_backends_with_a_relay():
    listed = Policy().replace(network_access=("example.org:443",))
    assert statuses(listed)["network_access"] is Status.asserted
    assert "network_access" not in found(listed)

    closed = found(listed, None, Seatbelt())["network_access"]
    assert (closed.status, closed.asked) == (Status.unavailable, "example.org:443")
    assert closed.consequence == "connections to the listed addresses fail"

    opened = found(listed, None, Noop())["network_access"]
    assert opened.status is Status.unenforced
    assert opened.consequence == "a cell can send data anywhere"

    assert "network_access" not in found(Policy().replace(network_access=True))


def test_tasks_are_unlimited_for_uid_0_unless_the_gate_counts_them(monkeypatch):
    policy = Policy().replace(max_processes=10)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert statuses(policy, UNGATED)["max_processes"] is Status.unenforced

    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert statuses(policy, UNGATED)["max_processes"] is Status.partial

    policy = Policy().replace(max_processes=10)
    gated = LockReport(achieved={**ALL.achieved, "gate": "starts and signals are asked for"})

    assert statuses(policy, gated)["max_processes"] is Status.asserted


def test_snapshots_are_a_gap_without_a_gate():
    assert statuses(Policy())["snapshots"] is Status.asserted
    assert statuses(Policy(), UNGATED)["snapshots"] is Status.unavailable

    gap = found(Policy(), UNGATED)["snapshots"]
    assert gap.consequence == "a killed cell costs the variables"
    assert "snapshots" not in found(Policy().replace(snapshots="off"), UNGATED)


def test_on_unsupported_error_and_require_block_on_gaps_that_are_not_partial():
    strict = Policy().replace(on_unsupported="error")
    assert blocking(strict, gaps(strict, declared(strict), ALL)) == ()

    strict = strict.replace(idle_timeout=5.0)
    (gap,) = blocking(strict, gaps(strict, declared(strict), ALL))
    assert gap.capability == "idle_timeout"

    policy = Policy().replace(require=("network_access",))

    assert blocking(policy, gaps(policy, declared(policy), ALL)) == ()
    (gap,) = blocking(policy, gaps(policy, declared(policy, Noop()), LockReport()))
    assert gap.capability == "network_access"
