"""What the results of probes turn a declaration into."""

from __future__ import annotations

import pytest

from cellblock.backends.base import named, unprobed
from cellblock.backends.bubblewrap import Bubblewrap
from cellblock.backends.landlock import Landlock
from cellblock.backends.report import Proof, Seen, blocking, gaps, probes_for, resolve, settle
from cellblock.errors import BackendError
from cellblock.policy.model import CAPABILITIES, Policy, Status
from cellblock.wire.messages import LockReport

SUPPORT = unprobed("for a test", usable=True)
REPORT = LockReport(achieved=dict.fromkeys(Landlock.locks, "taken") | {"gate": "asked"})
DISCLOSED = {"look_up_name": Seen("passed", "", disclosed=True)}
NETWORK = [probe.name for probe in probes_for(Policy()) if probe.capability == "network_access"]


def proof(**changes):
    refused = {probe.name: Seen("refused", "EPERM") for probe in probes_for(Policy())}
    return Proof(refused | DISCLOSED | changes, "Linux 6.1", "2026-01-02T03:04:05Z")


def settled(made, policy=None, report=REPORT):
    return settle(Landlock().declare(policy or Policy(), SUPPORT), report, made)


def test_a_capability_is_verified_when_every_probe_was_refused_and_its_control_passed():
    each = settled(proof())["network_access"]

    assert each.status is Status.verified
    assert each.evidence == (
        f"seen to be refused: {', '.join(NETWORK)}; Linux 6.1; 2026-01-02T03:04:05Z"
    )


def test_a_capability_without_probes_or_with_holes_or_unknown_outcomes_is_not_verified():
    assert settled(proof())["timeout"].status is Status.asserted

    assert settled(proof(tcp=Seen("fine")))["network_access"].status is Status.asserted

    each = settled(proof())["filesystem_read_roots"]

    assert each.status is Status.partial
    assert each.evidence.startswith("seen to be refused: read_file, list_folder, follow_link")


@pytest.mark.parametrize("probe", NETWORK)
def test_a_capability_is_not_verified_if_one_probe_was_not_witnessed(probe):
    each = settled(proof(**{probe: Seen("unwitnessed", "no such protocol")}))["network_access"]

    assert each.status is Status.asserted
    assert each.evidence.endswith(f"; unwitnessed: {probe}")


def test_a_passing_way_around_makes_a_capability_partial_and_a_passing_straight_way_unenforced():
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
        "name another backend, and report this with what `cellblock doctor --json` prints"
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


def test_an_older_proof_does_not_verify_a_lock_that_failed_today():
    report = LockReport(
        achieved={k: v for k, v in REPORT.achieved.items() if k != "seccomp"},
        failed={"seccomp": "no luck"},
    )
    assert settled(proof(), report=report)["network_access"].status is Status.unavailable


# --- the same declarations as flags and lists -----------------------------------------------------


@pytest.mark.parametrize("name", ["landlock", "bubblewrap", "seatbelt", "noop"])
def test_enforced_and_unenforced_capabilities_follow_the_backends_declarations(name):
    policy, backend = Policy(), named(name)
    found = backend.enforcement(policy)

    enforced = policy.enforced_capabilities(backend)
    assert enforced == tuple(c for c in CAPABILITIES if found[c].holds)
    assert set(enforced) | set(policy.unenforced_capabilities(backend)) == set(CAPABILITIES)
    assert not set(enforced) & set(policy.unenforced_capabilities(backend))
    if not backend.glance().usable:
        assert enforced == ()


def test_enforced_flags_are_true_only_for_capabilities_without_holes():
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


def test_bwrap_is_tried_until_it_has_worked_and_anew_where_it_is_another(monkeypatch):
    bubblewrap, tried, works = Bubblewrap(), [], [False]

    def run(_, argv, _view):
        tried.append(argv)
        if not works[0]:
            raise BackendError("no namespaces")

    monkeypatch.setattr(Bubblewrap, "glance", lambda _: SUPPORT)
    monkeypatch.setattr(Bubblewrap, "fingerprint", lambda _: f"bwrap {works[0]}")
    monkeypatch.setattr(Bubblewrap, "_run", run)
    assert [bubblewrap.attempt().usable for _ in range(2)] == [False, False]
    assert len(tried) == 2
    works[0] = True
    assert [bubblewrap.attempt().usable for _ in range(2)] == [True, True]
    assert len(tried) == 3
    works[0] = False  # and with it the file
    assert not bubblewrap.attempt().usable
