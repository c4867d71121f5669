"""Choosing a backend, with probes that really run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cellblock.backends.base import choose, unprobed
from cellblock.backends.landlock import Landlock
from cellblock.backends.report import doctor_report
from cellblock.errors import BackendError
from cellblock.guest.confine import arch, landlock
from cellblock.policy.model import CAPABILITIES, Policy, Status
from support import machines

MACHINE = arch.current()
HERE = MACHINE is not None and landlock.abi(MACHINE) > 0
needs_landlock = pytest.mark.skipif(not HERE, reason="this OS kernel has no Landlock")


NO_BUBBLEWRAP = ("bubblewrap", "bwrap is not installed: install the package bubblewrap")


@pytest.fixture(autouse=True)
def _machine_without_bubblewrap(monkeypatch):
    monkeypatch.setenv("PATH", machines.path("landlock"))


@pytest.fixture
def no_landlock(monkeypatch):
    monkeypatch.setattr(
        Landlock, "probe", lambda _: unprobed("switched off for a test", usable=False)
    )


@needs_landlock
@pytest.mark.parametrize(("backend", "passed_over"), [("auto", (NO_BUBBLEWRAP,)), ("landlock", ())])
def test_landlock_is_taken_after_it_was_seen_to_hold(backend, passed_over):
    chosen = choose(Policy().replace(backend=backend))

    assert chosen.backend.name == "landlock"
    assert set(chosen.support.witnessed) >= {"list_folder", "tcp", "fork", "execute"}
    assert chosen.support.abi == min(landlock.abi(MACHINE), landlock.HIGHEST_KNOWN_ABI)
    assert chosen.passed_over == passed_over


@needs_landlock
def test_auto_may_pass_a_stronger_one_over_under_a_strict_policy():
    strict = Policy().replace(on_unsupported="error")
    assert choose(strict).backend.name == "landlock"
    with pytest.raises(BackendError, match="'bubblewrap' can't be had here"):
        choose(strict.replace(backend="bubblewrap"))


@needs_landlock
def test_what_a_policy_requires_may_come_of_another_backend_than_it_names():
    policy = Policy().replace(backend="bubblewrap", require=("filesystem_read_roots",))
    assert choose(policy).backend.name == "landlock"


def descriptors():
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@needs_landlock
def test_a_probe_leaves_this_process_as_it_was():
    before, running = descriptors(), children()

    choose(Policy())

    assert descriptors() == before
    assert children() == running
    assert Path("/").stat()


@pytest.mark.usefixtures("no_landlock")
def test_auto_falls_back_to_noop_and_says_why():
    chosen = choose(Policy(require=()))

    assert chosen.backend.name == "noop"
    assert chosen.passed_over == (
        NO_BUBBLEWRAP,
        ("landlock", "switched off for a test"),
        ("seatbelt", "needs macOS, and this is Linux"),
    )


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize("strict", [{"on_unsupported": "error"}, {}])
def test_a_strict_policy_does_not_fall_back(strict):
    with pytest.raises(BackendError) as caught:
        choose(Policy().replace(**strict))

    assert str(caught.value) == (
        "backend 'auto' can't be had here (bubblewrap: bwrap is not installed: install the package "
        "bubblewrap; landlock: switched off for a test; seatbelt: needs macOS, and this is Linux). "
        'This policy runs nothing without; one with require = [] and on_unsupported = "warn" runs cells '
        "all the same"
    )


def test_a_probe_that_hangs_is_no_answer(monkeypatch):
    monkeypatch.setattr("cellblock.backends.landlock.PATIENCE", 0.05)
    monkeypatch.setattr(
        "cellblock.backends.landlock._confine_and_report", lambda *_: time.sleep(60)
    )

    support = Landlock().probe()

    assert not support.usable
    assert support.why == "the probe gave no answer: none within 0.05 s"


def test_a_probe_that_dies_is_no_answer(monkeypatch):
    monkeypatch.setattr("cellblock.backends.landlock._confine_and_report", lambda *_: os._exit(1))

    assert not Landlock().probe().usable


@needs_landlock
def test_the_doctor_reports_every_backend_and_every_capability():
    report = doctor_report(Policy())

    assert [(each.name, each.verdict, each.why) for each in report.order] == [
        ("bubblewrap", "passed over", NO_BUBBLEWRAP[1]),
        ("landlock", "chosen", "seen to hold in a probe"),
        ("docker", "not tried", 'taken by name only: backend = "docker"'),
        ("seatbelt", "not tried", "landlock is stronger"),
        ("noop", "not tried", "landlock is stronger"),
    ]
    assert [each.capability for each in report.capabilities] == list(CAPABILITIES)
    assert Status.verified not in {each.status for each in report.capabilities}
    assert report.unproved == "the suite of probes was not run"
    locks = {each.capability: each.evidence for each in report.capabilities}
    assert report.os_kernel in locks["filesystem_read_roots"]
