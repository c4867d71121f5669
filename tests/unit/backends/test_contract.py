"""What a suite's results make of a declaration."""

from __future__ import annotations

import pytest

from cellblock.backends import blocking, gaps, named, resolve, settle
from cellblock.backends.contract import Proof, Seen, asked
from cellblock.backends.landlock import Landlock, unprobed
from cellblock.errors import BackendError
from cellblock.policy.enforcement import CAPABILITIES, Status
from cellblock.policy.model import Policy
from cellblock.wire.messages import LockReport

SUPPORT = unprobed("for a test", usable=True)
REPORT = LockReport(achieved=dict.fromkeys(Landlock.locks, "taken") | {"gate": "asked"})
DISCLOSED = {"look_up_name": Seen("passed", "", disclosed=True)}
NETWORK = [probe.name for probe in asked(Policy()) if probe.capability == "network_access"]


def proof(**changes):
    refused = {probe.name: Seen("refused", "EPERM") for probe in asked(Policy())}
    return Proof(refused | DISCLOSED | changes, "Linux 6.1", "2026-01-02T03:04:05Z")


def settled(made, policy=None, report=REPORT):
    return settle(Landlock().declare(policy or Policy(), SUPPORT), report, made)


def test_what_was_refused_with_its_control_is_verified_with_its_evidence():
    each = settled(proof())["network_access"]

    assert each.status is Status.verified
    assert each.evidence == (
        f"seen to be refused: {', '.join(NETWORK)}; Linux 6.1; 2026-01-02T03:04:05Z"
    )


def test_what_no_probe_is_about_or_is_partial_or_unknown_is_not_verified():
    assert settled(proof())["timeout"].status is Status.asserted

    assert settled(proof(tcp=Seen("fine")))["network_access"].status is Status.asserted

    each = settled(proof())["filesystem_read_roots"]

    assert each.status is Status.partial
    assert each.evidence.startswith("seen to be refused: read_file, list_folder, follow_link")


@pytest.mark.parametrize("probe", NETWORK)
def test_one_probe_that_was_not_witnessed_and_nothing_is_verified(probe):
    each = settled(proof(**{probe: Seen("unwitnessed", "no such protocol")}))["network_access"]

    assert each.status is Status.asserted
    assert each.evidence.endswith(f"; unwitnessed: {probe}")


def test_a_way_around_makes_a_claim_partial_and_what_simply_passes_is_not_enforced():
    made = proof(udp=Seen("passed"), mptcp=Seen("passed"))
    each = settled(made)["network_access"]

    assert each.status is Status.partial
    assert each.holes == ("a cell can send datagrams (UDP)", "a cell can connect by MPTCP")
    assert each.evidence == "seen to pass: udp, mptcp; Linux 6.1; 2026-01-02T03:04:05Z"

    each = settled(proof(tcp=Seen("passed"), udp=Seen("passed")))["network_access"]

    assert each.status is Status.unenforced
    assert each.holes[0] == "a cell can connect by TCP"


def test_a_contradiction_is_a_gap_that_says_what_a_cell_can_do():
    made = proof(udp=Seen("passed"))
    declared = Landlock().declare(Policy(), SUPPORT)
    (gap,) = [g for g in gaps(Policy(), declared, REPORT, made) if g.contradicted]

    assert (gap.capability, gap.status, gap.asked) == ("network_access", "partial", "not allowed")
    assert gap.consequence == "a cell can send datagrams (UDP)"
    assert gap.actual == "system call filter: no socket is opened"
    assert gap.remedy == (
        "name another backend, and report this: `cellblock doctor --json` says it all"
    )


@pytest.mark.parametrize(
    "strict", [{"require": ("network_access",)}, {"on_unsupported": "error"}], ids=str
)
def test_nothing_runs_with_a_contradiction_where_the_capability_is_required(strict):
    policy = Policy().replace(idle_timeout=None, **strict)
    declared = Landlock().declare(policy, SUPPORT)

    assert blocking(policy, gaps(policy, declared, REPORT, proof())) == ()
    found = blocking(policy, gaps(policy, declared, REPORT, proof(udp=Seen("passed"))))
    assert [gap.capability for gap in found] == ["network_access"]


def test_a_lock_that_failed_is_not_verified_by_a_proof_of_another_day():
    report = LockReport(
        achieved={k: v for k, v in REPORT.achieved.items() if k != "seccomp"},
        failed={"seccomp": "no luck"},
    )
    assert settled(proof(), report=report)["network_access"].status is Status.unavailable


# --- the same declarations as flags and lists -----------------------------------------------------


@pytest.mark.parametrize("name", ["landlock", "bubblewrap", "seatbelt", "noop"])
def test_a_policy_says_what_a_backend_enforces_of_it_and_what_not(name):
    policy, backend = Policy(), named(name)
    found = backend.enforcement(policy)

    enforced = policy.enforced_capabilities(backend)
    assert enforced == tuple(c for c in CAPABILITIES if found[c].holds)
    assert set(enforced) | set(policy.unenforced_capabilities(backend)) == set(CAPABILITIES)
    assert not set(enforced) & set(policy.unenforced_capabilities(backend))
    if not backend.glance().usable:
        assert enforced == ()


def test_flags_are_true_only_where_nothing_is_to_be_disclosed():
    resolved = resolve(Policy().replace(backend="noop"))

    assert resolved.ENFORCED_NETWORK_ACCESS is False
    assert resolved.ENFORCED_TIMEOUT is True
    assert list(resolved.flags) == [f"ENFORCED_{name.upper()}" for name in CAPABILITIES]
    assert all(getattr(resolved, name) is value for name, value in resolved.flags.items())
    with pytest.raises(AttributeError):
        _ = resolved.ENFORCED_TELEPATHY
    with pytest.raises(AttributeError):
        _ = resolved.ENFORCED_network_access

    with pytest.raises(BackendError, match="no backend is called 'jail'"):
        named("jail")
