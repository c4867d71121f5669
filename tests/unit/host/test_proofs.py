"""What is kept of suites: for the very same circumstances, whole, and the user's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import cellblock
from cellblock.backends.base import named
from cellblock.backends.report import Proof, Seen, probes_for
from cellblock.host import probes
from cellblock.host.probes import MOST, MOST_BYTES, NAME, Proofs, is_whole
from cellblock.jupyter import proving
from cellblock.policy.load import load
from cellblock.policy.model import Policy
from cellblock.wire.messages import LockReport

REPORT = LockReport(achieved={"landlock": "ABI 7, files"})
PROOF = Proof({"tcp": Seen("refused", "EPERM")}, "Linux", "now")
UID = os.geteuid()
PROJECT = Path("/somewhere/project")


def key(policy=None, backend="landlock", report=REPORT, project=PROJECT, scratch=None):
    return probes.key(policy or Policy(), named(backend), report, project=project, scratch=scratch)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cellblock"


@pytest.fixture
def kept(folder):
    made = Proofs(folder)
    assert made.keep(key(), PROOF)
    return made


@pytest.mark.usefixtures("kept")
def test_what_is_kept_is_for_its_owner_alone(folder):
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == [NAME]


#: Each makes one part of a key another one.
CHANGES = {
    "OS kernel": lambda m: m.setattr(probes, "where", lambda: "Linux 7.0"),
    "cellblock": lambda m: m.setattr(cellblock, "__version__", "9.9"),
    "suite": lambda m: m.setattr(probes, "PROBES", probes.PROBES[1:]),
    "interpreter": lambda m: m.setattr(probes.sys, "prefix", "/another"),
    "user": lambda m: m.setattr(os, "geteuid", lambda: UID + 1),
    "wrapper": lambda m: m.setattr(type(named("landlock")), "fingerprint", lambda _: "newer"),
}


@pytest.mark.parametrize("part", CHANGES)
def test_a_proof_made_elsewhere_is_none(kept, monkeypatch, part):
    CHANGES[part](monkeypatch)
    wanted = key()
    monkeypatch.undo()
    assert kept.find(wanted) is None


@pytest.mark.parametrize(
    "other",
    [
        {"backend": "noop"},
        {"report": LockReport(achieved={"landlock": "ABI 6, files"})},
        {"policy": Policy().replace(network_access=True)},
        {"policy": Policy().replace(filesystem_read_roots=("/srv",))},
    ],
    ids=["backend", "ABI", "network", "roots"],
)
def test_a_proof_of_something_else_is_none(kept, other):
    assert kept.find(key(**other)) is None


def test_the_folders_of_one_start_are_no_part_of_a_policy():
    scratch = Path("/tmp/cellblock-x")
    started = Policy().replace(filesystem_write_roots=(str(scratch),))
    assert key(started, scratch=scratch) == key()

    one, other = Path("/one"), Path("/other")
    there = Policy().replace(filesystem_read_roots=("/one/data",))
    here = Policy().replace(filesystem_read_roots=("/other/data",))
    assert key(there, project=one) == key(here, project=other)
    assert key(there, project=other) != key(here, project=other)
    assert key(there, project=Path("/on")) == key(there, project=other)


def test_a_proof_made_in_the_home_folder_counts_in_a_project_and_the_other_way(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "below").mkdir()
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").touch()
    (tmp_path / "own.toml").write_text('extends = "data"\nops.list_dir.roots = ["{project}"]')
    keys = {
        key(load(spec, project=folder, allow_unsafe=False), project=folder)
        for folder in (tmp_path, project, project / "below")
        for spec in ("data", str(tmp_path / "own.toml"))
    }
    assert len(keys) == 1
    wider = load("data", project=project, allow_unsafe=False)
    wider = wider.replace(filesystem_read_roots=(*wider.filesystem_read_roots, str(tmp_path)))
    assert key(wider, project=project) not in keys


def test_the_program_that_wraps_is_part_of_the_key(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = key(backend="bubblewrap")
    program.write_text("#!/bin/sh\nexit 1\n")
    assert key(backend="bubblewrap") != before


def test_a_proof_that_lacks_a_probe_or_failed_is_not_whole():
    results = {probe.name: Seen("refused", "EPERM") for probe in probes_for(Policy())}
    whole = Proof(results, "Linux", "now")
    assert is_whole(whole, Policy())
    assert not is_whole(whole, Policy().replace(network_access=True))
    for name in results:
        fewer = {other: seen for other, seen in results.items() if other != name}
        assert not is_whole(Proof(fewer, "Linux", "now"), Policy())
    more = results | {"child_reads": Seen("refused", "EPERM")}
    assert not is_whole(Proof(more, "Linux", "now"), Policy())
    assert not is_whole(Proof(results, "Linux", "now", "its zygote ended"), Policy())


def test_a_proof_is_found_until_a_newer_one_takes_its_place(kept):
    assert kept.find(key()) == PROOF
    newer = Proof({}, "Linux", "later")
    assert kept.keep(key(), newer)
    assert kept.find(key()) == newer


def test_the_oldest_go_when_there_are_too_many(folder):
    made = Proofs(folder)
    for number in range(MOST + 2):
        made.keep((str(number),), PROOF)
    assert made.find(("1",)) is None
    assert made.find(("2",)) == PROOF
    assert len(json.loads((folder / NAME).read_bytes())) == MOST


DAMAGE = {
    "cut off": b'[{"key": ["a"], "proof',
    "another shape": b'{"key": 1}',
    "unknown field": b'[{"key": [], "proof": {"results": {}, "where": "", "time": "", "x": 1}}]',
    "no text": b"\xff\xfe",
    "too large": b" " * (MOST_BYTES + 1),
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_a_missing_one_and_is_written_anew(kept, folder, damage):
    (folder / NAME).write_bytes(DAMAGE[damage])
    assert kept.find(key()) is None
    assert kept.keep(key(), PROOF)
    assert kept.find(key()) == PROOF


def test_a_link_is_not_written_through(kept, folder, tmp_path):
    (folder / NAME).rename(tmp_path / "elsewhere")
    (folder / NAME).symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    kept.keep(("another",), PROOF)
    assert (tmp_path / "elsewhere").read_bytes() == before


@pytest.mark.usefixtures("kept")
def test_a_linked_folder_is_not_entered(tmp_path, folder):
    (tmp_path / "link").symlink_to(folder)
    assert Proofs(tmp_path / "link").find(key()) is None
    assert not Proofs(tmp_path / "link").keep(key(), PROOF)


def test_a_file_that_is_not_what_was_kept_counts_for_nothing(kept, folder, spoil):
    spoil(folder / NAME)
    assert kept.find(key()) is None


def test_a_folder_that_others_can_write_to_counts_for_nothing(kept, folder):
    folder.chmod(0o777)
    assert kept.find(key()) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_elses_counts_for_nothing(kept, folder):
    os.chown(folder, 65534, 65534)
    assert kept.find(key()) is None


def test_a_place_where_nothing_can_be_kept_costs_the_proof_alone():
    made = Proofs(Path(os.devnull, "cellblock"))
    assert not made.keep(key(), PROOF)
    assert made.find(key()) is None


def test_a_run_in_which_somebody_else_called_at_a_listener_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(proving, "default_path", lambda: tmp_path / "history")
    kept = Proofs(tmp_path)
    for detail, keeps in (("the host saw it, and the guest said: refused", False), ("EPERM", True)):
        outcome = "refused" if keeps else "unwitnessed"
        proof = Proof({"tcp": Seen(outcome, detail)}, "Linux", "now")
        monkeypatch.setattr(proving, "prove", lambda *_, proof=proof: (proof, REPORT))
        proving.run_probes(Policy(), SimpleNamespace(backend=named("landlock")), PROJECT)
        assert (kept.find(key()) is not None) is keeps
