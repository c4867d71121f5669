"""What is kept of verdicts: for the very same judge, the user's own, and no harm if damaged."""

import sys

import msgspec
import pytest

import cellblock
from cellblock.batch import check as module
from cellblock.batch.check import MAX_CACHE_FILES, VerdictCache
from cellblock.batch.verdict import (
    CheckOptions,
    FileKind,
    Limits,
    PlacedFinding,
    Verdict,
    check_finding,
)
from cellblock.policy.load import load_for_check

SAFE = load_for_check("safe")
OPTIONS = CheckOptions.of(SAFE)
BAD = Verdict((PlacedFinding(check_finding("source-not-python", text="import os")),), 3)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cellblock" / "check"


def keep(folder, verdict=BAD, content=b"x", options=OPTIONS):
    cache = VerdictCache(folder, options)
    cache.put(content, FileKind.script, verdict)
    cache.save()


def find(folder, content=b"x", kind=FileKind.script, options=OPTIONS):
    return VerdictCache(folder, options).get(content, kind)


@pytest.mark.parametrize("verdict", [Verdict(), BAD])
def test_a_verdict_is_found_for_the_same_content(folder, verdict):
    keep(folder, verdict)
    assert find(folder) == verdict
    assert find(folder, b"y") is None
    assert find(folder, kind=FileKind.notebook) is None


def test_what_is_kept_is_for_its_owner_alone(folder):
    keep(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]


@pytest.mark.parametrize(
    "options",
    [
        CheckOptions.of(SAFE, template=True),
        CheckOptions.of(SAFE.replace(magics=())),
        CheckOptions.of(SAFE.replace(timeout=1.0)),
        CheckOptions.of(load_for_check("data")),
        CheckOptions.of(SAFE, limits=Limits(memory=1)),
    ],
)
def test_a_verdict_by_other_rules_is_none(folder, options):
    keep(folder)
    assert find(folder, options=options) is None


CHANGES = {
    "cellblock": lambda m: m.setattr(cellblock, "__version__", "9.9"),
    "its code": lambda m: m.setattr(module, "_code_digest", lambda: "other"),
    "Python": lambda m: m.setattr(sys, "version", "3.99"),
    "IPython": lambda m: m.setattr(module.metadata, "version", lambda _: "99"),
}


@pytest.mark.parametrize("part", CHANGES)
def test_a_verdict_by_another_judge_is_none(folder, monkeypatch, part):
    keep(folder)
    CHANGES[part](monkeypatch)
    assert find(folder) is None


def test_a_verdict_is_found_in_another_folder_and_one_that_depends_on_it_is_not_kept(folder):
    keep(folder)
    assert (
        find(folder, options=msgspec.structs.replace(OPTIONS, project=b"/b", folder=b"/c")) == BAD
    )
    keep(folder, msgspec.structs.replace(BAD, location_matters=True), b"y")
    assert find(folder, b"y") is None


def test_a_verdict_on_the_machine_is_not_kept(folder):
    keep(folder, Verdict((PlacedFinding(check_finding("file-not-checked")),)))
    assert find(folder) is None


DAMAGE = {
    "empty": b"",
    "text": b"not msgpack",
    "another shape": msgspec.msgpack.encode([1, 2]),
    "cut off": msgspec.msgpack.encode({"a": Verdict()})[:-1],
    "nested": b"\x91" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_a_missing_one_and_is_written_anew(folder, damage):
    keep(folder)
    (file,) = folder.iterdir()
    file.write_bytes(damage)
    assert find(folder) is None
    keep(folder)
    assert find(folder) == BAD


def test_a_damaged_verdict_is_none(folder):
    keep(folder)
    (file,) = folder.iterdir()
    keys = msgspec.msgpack.decode(file.read_bytes())
    for odd in (1, [], {"findings": 1}, {"findings": [{"finding": {}}]}, {"found": []}):
        file.write_bytes(msgspec.msgpack.encode(dict.fromkeys(keys, odd)))
        assert find(folder) is None


def test_what_others_can_write_counts_for_nothing(folder):
    keep(folder)
    folder.chmod(0o777)
    assert find(folder) is None


def test_a_link_is_not_followed(folder, tmp_path):
    keep(folder)
    (file,) = folder.iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert find(folder) is None


def test_runs_add_up_and_the_oldest_goes_first(folder, monkeypatch):
    for content in (b"1", b"2", b"3"):
        keep(folder, content=content)
    assert [find(folder, content) for content in (b"1", b"2", b"3")] == [BAD] * 3
    (file,) = folder.iterdir()
    monkeypatch.setattr(module, "MAX_CACHE_BYTES", file.stat().st_size + 100)
    keep(folder, content=b"4")
    assert [find(folder, content) for content in (b"1", b"2", b"3", b"4")] == [None, BAD, BAD, BAD]


def test_few_sets_of_rules_have_a_file(folder):
    for number in range(MAX_CACHE_FILES + 3):
        keep(folder, options=CheckOptions.of(SAFE, limits=Limits(cpu_seconds=number)))
    assert len(list(folder.iterdir())) == MAX_CACHE_FILES


def test_where_nothing_can_be_kept_nothing_is(tmp_path):
    (tmp_path / "file").touch()
    keep(tmp_path / "file" / "check")
    assert find(tmp_path / "file" / "check") is None
