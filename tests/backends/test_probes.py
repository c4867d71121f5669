"""One suite of probes for every backend, run in guests of the real launch path.

What a backend declares holds, as root and as nobody; every probe passes where its lock is not;
and a lock that fails, lies or is not there ends as a gap or as nothing that runs.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock.backends.report import probes_for
from cellblock.guest.confine import arch, landlock
from cellblock.guest.probes import EARLIER_LINKS, INHERITED, NAMES, PROBES
from cellblock.policy.model import CAPABILITIES, Policy
from support import machines, probe_suite
from support.kernels import nobody_prefix

pytestmark = pytest.mark.quick
MACHINE = arch.current()
HERE = MACHINE is not None and landlock.abi(MACHINE) > 0
needs_landlock = pytest.mark.skipif(not HERE, reason="this OS kernel has no Landlock")
NO_BWRAP = machines.no_bubblewrap()
LOCKING = [
    pytest.param("landlock", marks=needs_landlock),
    pytest.param(
        "bubblewrap",
        marks=[
            needs_landlock,
            pytest.mark.skipif(bool(NO_BWRAP), reason=f"no bubblewrap: {NO_BWRAP}"),
        ],
    ),
]
#: What the host sees to under every backend.
BY_THE_HOST = {INHERITED, "environment"}
EVERY = {probe.name for probe in PROBES}
LISTED = {"network_access": ("example.org:443",)}
#: Probes of what a list leaves out.
OF_A_LIST = {"unlisted_port", "unlisted_host", "turn_connection"}
BECAUSE = "import cellblock.guest.confine as c, cellblock.guest.confine.process as process\n"
#: A guest that says it saw a lock hold.
BLIND = "seen = c.witness.see\nc.witness.see = lambda lock, p: 'it' if lock == {!r} else seen(lock, p)\n"


@pytest.fixture(autouse=True)
def _with_bubblewrap(monkeypatch):
    monkeypatch.setenv("PATH", machines.path("bubblewrap"))


@pytest.fixture
def temporary(monkeypatch):
    """Return the folder for temporary files, where nothing is yet; its sockets need short names."""
    made = tempfile.mkdtemp(prefix="cb-")
    monkeypatch.setattr(tempfile, "tempdir", made)
    yield Path(made)
    shutil.rmtree(made)


def as_somebody(user, backend, **fields):
    if user == "same user":
        return probe_suite.run(backend, **fields)
    prefix = nobody_prefix()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534, also in a mount namespace")
    return probe_suite.run_as(prefix, backend, **fields)


def test_every_probe_is_named_once_and_about_a_capability_that_is_declared():
    assert len(EVERY) == len(PROBES)
    assert {probe.capability for probe in PROBES} <= set(CAPABILITIES)


def test_each_capability_with_probes_has_one_that_is_no_way_around():
    for wide in ({}, probe_suite.WIDE):
        probes = probes_for(Policy().replace(**wide))
        straight = {probe.capability for probe in probes if not probe.around}
        assert {probe.capability for probe in probes} - straight <= {"network_access"}


# --- what is declared holds -----------------------------------------------------------------------


@pytest.mark.parametrize("user", ["same user", "nobody"] if os.geteuid() == 0 else ["same user"])
@pytest.mark.parametrize("backend", LOCKING)
def test_what_the_backend_declares_holds(backend, user):
    found = as_somebody(user, backend)

    probe_suite.assert_proved(found, backend)


@pytest.mark.parametrize("backend", LOCKING)
def test_what_the_backend_declares_of_a_wide_policy_holds(backend):
    probe_suite.assert_wide_proved(probe_suite.run(backend, **probe_suite.WIDE))


@pytest.mark.parametrize("user", ["same user", "nobody"] if os.geteuid() == 0 else ["same user"])
@pytest.mark.parametrize("backend", LOCKING)
def test_what_the_backend_declares_of_a_list_of_addresses_holds(backend, user):
    found = as_somebody(user, backend, **LISTED)

    assert (found.failure, found.contradicted) == ("", [])
    tried = OF_A_LIST | {"tcp", "tcp_fast_open", "udp", "mptcp", "listen", "netlink"}
    assert {name: found.outcomes[name] for name in tried} == dict.fromkeys(tried, "refused")
    assert found.statuses["network_access"] == "verified"


@needs_landlock
@pytest.mark.parametrize("abi", range(1, landlock.HIGHEST_KNOWN_ABI + 1))
def test_what_is_declared_holds_under_each_abi(abi):
    found = probe_suite.run("landlock", plan={"highest_abi": abi})

    assert (found.failure, found.contradicted) == ("", [])
    assert "unwitnessed" not in found.outcomes.values(), found.outcomes


@needs_landlock
def test_an_abi_that_is_newer_than_this_code_counts_as_the_newest_that_it_knows():
    newer = BECAUSE + "c.landlock.abi = lambda machine: 99"
    found = probe_suite.run("landlock", spoil=newer)
    assert (found.failure, found.contradicted) == ("", [])
    newest = landlock.handled(landlock.HIGHEST_KNOWN_ABI, network=False)
    assert landlock.handled(99, network=False) == newest


@needs_landlock
def test_a_trial_keeps_out_of_what_cells_may_write_and_leaves_nothing(temporary):
    found = probe_suite.run("landlock", filesystem_write_roots=("{scratch}", str(temporary)))

    assert (found.failure, found.contradicted) == ("", [])
    assert found.statuses["filesystem_write_roots"] == "verified"
    assert list(temporary.iterdir()) == []


@needs_landlock
def test_a_policy_that_can_not_be_kept_is_not_proved_and_leaves_nothing(temporary):
    found = probe_suite.run("landlock", filesystem_write_roots=(str(Path(sys.prefix).parent),))

    assert "cells could change what runs unconfined" in found.failure
    assert list(temporary.iterdir()) == []


# --- every probe can fail -------------------------------------------------------------------------


def test_every_probe_passes_where_there_is_no_lock():
    found = probe_suite.run("noop")
    probes = EVERY - BY_THE_HOST - OF_A_LIST - {"child_reads"}
    assert found.failure == ""
    assert {name: found.outcomes[name] for name in probes} == dict.fromkeys(probes, "disclosed")


def test_what_a_list_leaves_out_is_reached_where_there_is_no_lock():
    found = probe_suite.run("noop", **LISTED)
    assert {found.outcomes[name] for name in OF_A_LIST} == {"disclosed"}
    assert found.statuses["network_access"] == "unenforced"


def test_processes_that_a_cell_starts_are_not_held_where_there_is_no_lock():
    assert probe_suite.run("noop", **probe_suite.WIDE).outcomes["child_reads"] == "disclosed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else as well")
def test_without_locks_nobody_is_held_by_what_holds_anybody():
    found = as_somebody("nobody", "noop")
    passed = {name for name, outcome in found.outcomes.items() if outcome == "disclosed"}
    # What is on the import path belongs to root.
    assert EVERY - BY_THE_HOST - OF_A_LIST - {"child_reads", "write_on_import_path"} <= passed


@needs_landlock
def test_a_descriptor_that_is_left_open_contradicts_what_is_declared():
    found = probe_suite.run(
        "landlock", spoil=BECAUSE + "process.close_inherited = lambda keep: None"
    )
    assert found.contradicted == [INHERITED]
    assert found.statuses["filesystem_read_roots"] == "partial"
    assert found.holes["filesystem_read_roots"] == ["a cell has what the host had open", NAMES]


def test_a_variable_of_the_hosts_is_seen(monkeypatch):
    passed_on = probe_suite.proving.prepare_message

    def told(*arguments):
        made = passed_on(*arguments)
        leak = {name: "" for name in os.environ if name.startswith("CELLBLOCK_TRIAL_")}
        return probe_suite.msgspec.structs.replace(made, environment={**made.environment, **leak})

    monkeypatch.setattr(probe_suite.proving, "prepare_message", told)
    found = probe_suite.run("noop")
    assert found.contradicted == ["environment"]
    assert found.statuses["env_var_access"] == "unenforced"
    assert "env_var_access" in found.gaps


# --- locks that fail, lie or are not there --------------------------------------------------------

#: What says that it is locked and is not, its witness with it; and what the suite sees of that.
LIES = {
    "landlock": (
        BLIND.format("landlock") + "c.landlock.apply = lambda *_: 'ABI 7, files'",
        {"filesystem_read_roots": "unenforced", "filesystem_write_roots": "unenforced"},
    ),
    "seccomp": (
        BLIND.format("seccomp") + "c.seccomp.load = lambda *_: 'loaded'",
        # From ABI 4 on Landlock itself refuses TCP, and nothing else.
        {"network_access": "partial", "subprocess_execution": "unenforced"},
    ),
    "rlimits": (
        "c.process.apply_limits = c.process.limit_files = lambda *_, **__: 'set'",
        {"max_open_files": "unenforced", "max_file_size": "unenforced"},
    ),
}


@needs_landlock
@pytest.mark.parametrize("lock", LIES)
def test_a_lock_that_only_says_that_it_holds_is_a_gap(lock):
    spoil, statuses = LIES[lock]
    found = probe_suite.run("landlock", spoil=BECAUSE + spoil)

    if landlock.abi(MACHINE) < landlock.NET_ABI and lock == "seccomp":
        statuses = statuses | {"network_access": "unenforced"}
    assert {name: found.statuses[name] for name in statuses} == statuses
    assert set(statuses) <= set(found.gaps)


@needs_landlock
def test_a_filter_that_only_says_that_it_holds_is_a_gap_of_a_list_too():
    found = probe_suite.run("landlock", spoil=BECAUSE + LIES["seccomp"][0], **LISTED)
    assert "network_access" in found.gaps


def test_no_guest_starts_without_the_library_behind_the_locks():
    found = probe_suite.run("landlock", spoil="sys.modules['ctypes'] = None")
    assert found.failure
    assert set(found.outcomes.values()) == {"unwitnessed"}
    assert "verified" not in found.statuses.values()


def test_a_guest_that_lies_about_its_probes_is_found_out_by_what_it_touched():
    lies = (
        "import cellblock.guest.probes as t\n"
        "tried = t.attempt\n"
        "def lied(name, place):\n"
        "    tried(name, place)\n"
        "    return t.Attempt(outcome='refused', detail='EPERM')\n"
        "t.attempt = lied"
    )
    found = probe_suite.run("noop", spoil=lies)
    touching = {
        "write_file",
        "write_readable_file",
        "make_file",
        "truncate",
        "remove",
        "move_file",
        "hard_link",
        "chmod",
        "utime",
        "limit_of_another",
        "priority_of_another",
    }
    assert {found.outcomes[name] for name in touching} == {"disclosed"}
    # At these anybody may have called.
    calling = {"tcp", "tcp_fast_open", "mptcp", "udp", "unix_socket", "abstract_socket"}
    assert {found.outcomes[name] for name in calling} == {"unwitnessed"}
    assert found.outcomes["netlink"] == "refused"


def test_a_guest_that_says_nothing_of_a_probe_has_not_been_seen_to_be_refused():
    silent = "import cellblock.guest.probes as t\nt.BY_NAME.clear()"
    found = probe_suite.run("landlock" if HERE else "noop", spoil=silent)
    assert found.outcomes["tcp"] == "unwitnessed"
    assert found.statuses["network_access"] in {"asserted", "unenforced"}


def test_the_holes_that_probes_show_are_those_that_declarations_tell():
    declared = probe_suite.choose(Policy().replace(backend="landlock"), "attempt")
    told = declared.declare(Policy())["filesystem_read_roots"].holes
    assert NAMES in told or not HERE
    assert EARLIER_LINKS in {probe.hole for probe in PROBES}
