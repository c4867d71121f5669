from __future__ import annotations

import os

import pytest

from cellblock.backends import COMPATIBILITY_MATRIX, blocking, gaps, settle
from cellblock.backends.base import Backend
from cellblock.backends.chooser import ORDER
from cellblock.backends.landlock import Landlock
from cellblock.backends.noop import Noop
from cellblock.backends.probes import unprobed
from cellblock.backends.seatbelt import Seatbelt
from cellblock.policy.enforcement import CAPABILITIES, Status
from cellblock.policy.model import FIELDS, Policy
from cellblock.wire.messages import LockReport

SUPPORT = unprobed("for a test", usable=True)
ALL = LockReport(
    achieved=dict.fromkeys(Landlock.locks, "taken")
    | {"witness": "files, signals, sockets, processes, programs", "gate": "asked"}
)
UNGATED = LockReport(achieved={k: v for k, v in ALL.achieved.items() if k != "gate"})


def declared(policy, backend=None):
    return (backend or Landlock()).declare(policy, SUPPORT)


def statuses(policy, report=ALL, backend=None):
    settled = settle(declared(policy, backend), report)
    return {name: each.status for name, each in settled.items()}


def test_capabilities_are_policy_fields():
    assert set(CAPABILITIES) <= set(FIELDS)


def test_a_backend_that_forgets_a_capability_fails_when_it_is_defined():
    incomplete = {k: v for k, v in Landlock.declarations.items() if k != "network_access"}

    with pytest.raises(TypeError) as caught:
        type("Forgetful", (Landlock,), {"name": "forgetful", "declarations": incomplete})

    assert str(caught.value) == "backend forgetful: undeclared ['network_access'], unknown []"


def test_a_backend_that_invents_a_capability_fails_when_it_is_defined():
    invented = {**Noop.declarations, "telepathy": Noop.declarations["timeout"]}

    with pytest.raises(TypeError, match=r"undeclared \[\], unknown \['telepathy'\]"):
        type("Inventive", (Noop,), {"name": "inventive", "declarations": invented})


def test_the_matrix_is_what_the_backends_declare():
    assert list(COMPATIBILITY_MATRIX) == list(CAPABILITIES)
    for capability, row in COMPATIBILITY_MATRIX.items():
        assert list(row) == [backend.name for backend in ORDER]
        for backend in ORDER:
            assert row[backend.name] == backend.declare(Policy(), SUPPORT)[capability].status


def test_a_guests_own_witness_verifies_nothing():
    assert Status.verified not in statuses(Policy()).values()
    assert statuses(Policy())["network_access"] is Status.asserted


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


def test_a_guest_that_reports_nothing_has_nothing():
    found = statuses(Policy(), LockReport())

    for name in ("filesystem_read_roots", "network_access", "memory_max_bytes"):
        assert found[name] is Status.unavailable


def test_noop_holds_only_what_the_host_does():
    found = statuses(Policy(), LockReport(), backend=Noop())

    holding = [name for name, status in found.items() if status is not Status.unenforced]
    assert holding == [
        "env_var_access",
        "display",
        "widget_modules",
        "comm_targets",
        "snapshots",
        "undo_depth",
        "timeout",
        "cpu_seconds",
        "memory_max_bytes",
        "scratch_max_bytes",
        "stdout_max_bytes",
        "stderr_max_bytes",
        "display_max_bytes",
        "undo_max_bytes",
        "output_kept_max_bytes",
        "artifact_max_bytes",
        "artifacts_max_bytes",
    ]


def test_trusted_output_asks_for_nothing_and_claims_nothing():
    for display, status in (("isolated", Status.asserted), ("trusted", Status.unenforced)):
        policy = Policy().replace(display=display)
        missing = [gap.capability for gap in gaps(policy, declared(policy), ALL)]
        for name in ("display", "widget_modules", "comm_targets"):
            assert statuses(policy)[name] is status
            assert name not in missing


def test_the_gap_of_file_names_says_what_a_cell_can_learn():
    gap = next(g for g in gaps(Policy(), declared(Policy()), ALL))

    assert gap.capability == "filesystem_read_roots"
    assert gap.status is Status.partial
    assert gap.asked == "none"
    assert gap.consequence == "names, sizes and times of files outside the roots can be looked up"


def test_the_gap_of_denied_paths_beneath_a_root_is_mended_in_the_policy(tmp_path):
    denied = str(tmp_path / "keys")
    policy = Policy().replace(filesystem_read_roots=(str(tmp_path),), read_deny_paths=(denied,))

    def remedy(report):
        found = gaps(policy, declared(policy), report)
        return next(gap.remedy for gap in found if gap.capability == "read_deny_paths")

    assert remedy(ALL) == "grant narrower filesystem_read_roots, with nothing denied beneath them"
    assert remedy(LockReport()).startswith("use Linux 5.13 or later")


def test_cells_that_may_install_packages_learn_who_does_it():
    policy = Policy().replace(package_installation=True)
    found = gaps(policy, declared(policy), ALL)
    gap = next(gap for gap in found if gap.capability == "package_installation")

    assert (gap.status, gap.asked) == (Status.unavailable, "allowed")
    assert gap.consequence == "a cell that runs an installer fails"
    assert gap.remedy == "list what notebooks need in packages, or grant ops.install"


@pytest.mark.parametrize("field", ["idle_timeout", "memory_max_bytes", "max_processes"])
def test_a_limit_that_is_not_configured_is_no_gap(field):
    def names(policy):
        return [gap.capability for gap in gaps(policy, declared(policy), UNGATED)]

    assert field not in names(Policy().replace(**{field: None}))
    assert field in names(Policy().replace(**{field: 10}))


LISTED = Policy().replace(network_access=("example.org:443",))


def test_an_address_list_holds_where_a_relay_connects():
    assert declared(LISTED)["network_access"].status is Status.asserted
    assert "network_access" not in [gap.capability for gap in gaps(LISTED, declared(LISTED), ALL)]


def test_an_address_list_is_a_gap_that_fails_closed_where_none_does():
    found = gaps(LISTED, Seatbelt().declare(LISTED, SUPPORT))

    gap = next(gap for gap in found if gap.capability == "network_access")

    assert (gap.status, gap.asked) == (Status.unavailable, "example.org:443")
    assert gap.consequence == "connections to the listed addresses fail"


def test_an_address_list_is_a_gap_that_lets_all_through_where_nothing_holds():
    found = gaps(LISTED, Noop().declare(LISTED, SUPPORT))

    gap = next(gap for gap in found if gap.capability == "network_access")

    assert (gap.status, gap.consequence) == (Status.unenforced, "a cell can send data anywhere")


def test_a_network_that_is_allowed_is_no_gap():
    policy = Policy().replace(network_access=True)

    assert "network_access" not in [g.capability for g in gaps(policy, declared(policy), ALL)]


def test_tasks_are_unlimited_for_uid_0_and_say_so(monkeypatch):
    policy = Policy().replace(max_processes=10)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert statuses(policy, UNGATED)["max_processes"] is Status.unenforced

    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert statuses(policy, UNGATED)["max_processes"] is Status.partial


def test_without_a_gate_there_are_no_snapshots_and_that_is_a_gap():
    assert statuses(Policy())["snapshots"] is Status.asserted
    assert statuses(Policy(), UNGATED)["snapshots"] is Status.unavailable

    found = {gap.capability: gap for gap in gaps(Policy(), declared(Policy()), UNGATED)}
    assert found["snapshots"].consequence == "a killed cell costs the variables"
    off = Policy().replace(snapshots="off")
    assert "snapshots" not in {gap.capability for gap in gaps(off, declared(off), UNGATED)}


def test_tasks_are_counted_for_everybody_by_the_gate():
    policy = Policy().replace(max_processes=10)
    gated = LockReport(achieved={**ALL.achieved, "gate": "starts and signals are asked for"})

    assert statuses(policy, gated)["max_processes"] is Status.asserted


def test_nothing_runs_with_a_gap_under_error_unless_it_is_partial():
    strict = Policy().replace(on_unsupported="error")
    assert blocking(strict, gaps(strict, declared(strict), ALL)) == ()

    strict = strict.replace(idle_timeout=5.0)
    found = blocking(strict, gaps(strict, declared(strict), ALL))
    assert [gap.capability for gap in found] == ["idle_timeout"]


def test_nothing_runs_without_what_is_required():
    policy = Policy().replace(require=("network_access",))

    assert blocking(policy, gaps(policy, declared(policy), ALL)) == ()
    found = blocking(policy, gaps(policy, declared(policy, Noop()), LockReport()))
    assert [gap.capability for gap in found] == ["network_access"]


def test_every_backend_is_a_backend():
    assert all(isinstance(backend, Backend) for backend in ORDER)
