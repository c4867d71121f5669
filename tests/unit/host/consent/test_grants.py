"""What was allowed for always: written whole, read warily, taken back at once."""

import fcntl
import json
import os
import stat

import pytest

from cellblock.host.consent import grants
from cellblock.host.consent.grants import MOST_GRANTS, GrantContext, Grants, Store
from cellblock.host.consent.request import ApprovalRequest

UNDER = {"scope": "/lab", "policy": "mine", "digest": "d"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "cellblock" / "grants.json"


@pytest.fixture
def kept(path):
    made = Store(path)
    made.add(
        (
            GrantContext(**UNDER).grant("call", "ops.http"),
            GrantContext(**UNDER).grant("import", "csv"),
        )
    )
    return made


def subjects(path):
    """Return what another kernel sees."""
    return [one.subject for one in Store(path).grants()]


def test_what_was_allowed_is_there_for_the_next_kernel(kept, path):
    assert subjects(path) == ["ops.http", "csv"]
    assert [(one.of, one.scope, one.policy, one.digest) for one in kept.grants()] == [
        ("call", "/lab", "mine", "d"),
        ("import", "/lab", "mine", "d"),
    ]


@pytest.mark.usefixtures("kept")
def test_the_file_is_the_users_alone(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in sorted(path.parent.iterdir())] == [
        "grants.json",
        "grants.json.lock",
    ]


def test_the_same_is_kept_once(kept, path):
    kept.add((GrantContext(**UNDER).grant("import", "csv"),))
    kept.add((GrantContext(**{**UNDER, "digest": "e"}).grant("import", "csv"),))
    assert subjects(path) == ["ops.http", "csv", "csv"]


def test_what_is_taken_back_counts_no_more_for_who_had_read_it(kept, path):
    other = Store(path)
    first, second = other.grants()
    assert kept.revoke(frozenset({first.id, "nothing"})) == (first,)
    assert other.grants() == (second,)
    assert kept.revoke(None) == (second,)
    assert other.grants() == ()


def test_a_file_that_is_changed_or_gone_meanwhile_holds_nothing(kept, path):
    assert len(kept.grants()) == 2
    path.chmod(0o666)
    assert kept.grants() == ()  # it is seen under a kernel's eyes
    path.unlink()
    assert kept.grants() == ()
    assert not kept.is_damaged


def tampered(name):
    """Return what somebody did to the file."""

    def change(path):
        text = path.read_text()
        said = json.loads(text)
        texts = {
            "empty": "",
            "cut": text[:-20],
            "no json": "grants",
            "another kind": json.dumps(
                said | {"grants": [said["grants"][0] | {"of": "everything"}]}
            ),
            "another field": json.dumps(said | {"all": True}),
            "another version": text.replace('"version": 1', '"version": 2'),
            "another file": '{"cellblock": "approval", "version": 1, "grants": []}',
            "deep": "[" * 100_000,
            "large": text + " " * grants.MOST_BYTES,
        }
        path.write_text(texts[name])

    return change


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def piped(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "change",
    [
        *map(
            tampered,
            ["empty", "cut", "no json", "another kind", "another field", "another version",
             "another file", "deep", "large"],
        ),
        linked,
        piped,
        lambda path: path.chmod(0o620),
        lambda path: path.chmod(0o602),
        lambda path: path.parent.chmod(0o770),
    ],
)  # fmt: skip
def test_a_file_that_is_not_as_it_was_written_holds_nothing(path, change):
    change(path)
    assert Store(path).grants() == ()
    assert Store(path).is_damaged


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_anothers_file_holds_nothing(kept, path):
    os.chown(path, 65534, 65534)
    assert Store(path).grants() == ()
    os.chown(path, 0, 0)
    assert len(Store(path).grants()) == 2
    os.chown(path.parent, 65534, 65534)
    assert kept.is_damaged


def test_nothing_is_written_while_another_does_or_beyond_the_end(kept, path):
    with (path.parent / "grants.json.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another process keeps it locked"):
            kept.add((GrantContext(**UNDER).grant("import", "gzip"),))
    many = tuple(GrantContext(**UNDER).grant("call", f"tool{n}") for n in range(MOST_GRANTS - 1))
    with pytest.raises(OSError, match="there are 1,000 already"):
        kept.add(many)
    assert subjects(path) == ["ops.http", "csv"]


def test_a_link_in_the_place_of_the_lock_is_not_followed(kept, path):
    lock = path.parent / "grants.json.lock"
    lock.unlink()
    lock.symlink_to(path.parent / "other")
    with pytest.raises(OSError, match="symbolic"):
        kept.revoke(None)
    assert not (path.parent / "other").exists()


def test_who_allowed_a_part_is_asked_about_the_rest(kept):
    def wanted(*subjects):
        return ApprovalRequest(of="import", subjects=subjects, sha256="", asks="", all_of="")

    known = Grants(GrantContext(**UNDER), kept)
    known.add(wanted("bz2"), "session")
    assert known.covers(wanted("bz2")) == "session"
    assert known.covers(wanted("csv")) == "always"
    assert known.covers(wanted("bz2", "csv")) == "always"
    assert known.covers(wanted("bz2", "lzma")) is None
    assert known.covers(wanted("csv", "lzma")) is None
    assert (
        known.covers(ApprovalRequest(of="call", subjects=("csv",), sha256="", asks="", all_of=""))
        is None
    )
    for changed in ("scope", "policy", "digest"):
        assert (
            Grants(GrantContext(**UNDER | {changed: "other"}), kept).covers(wanted("csv")) is None
        )
