"""What was allowed for always: signed, read warily, taken back at once."""

import fcntl
import stat

import pytest

from cellblock.errors import AdmissionError
from cellblock.host.consent import store
from cellblock.host.consent.grants import GrantContext, Grants
from cellblock.host.consent.request import ApprovalRequest
from cellblock.host.consent.store import Store
from support.approvals import always_answers

UNDER = {"scope": "/lab", "policy": "mine", "digest": "d"}


def wanted(*subjects, of="import"):
    return ApprovalRequest(of=of, subjects=subjects, sha256="", asks="", all_of="")


@pytest.fixture
def kept(tmp_path):
    """Return a store in which a call and an import were allowed for always."""
    made = Store(tmp_path / "data" / "approved", tmp_path / "data" / "approval.key")
    user = Grants(GrantContext(**UNDER), made)
    assert user.add(wanted("ops.http", of="call"), "always") == ""
    assert user.add(wanted("csv"), "always") == ""
    return made


@pytest.fixture
def file(kept):
    return kept.answers("/lab", "mine").file


def later(kept, **under):
    """Return what another kernel looks at."""
    return Grants(GrantContext(**UNDER | under), kept)


def test_what_was_allowed_is_there_for_the_next_kernel(kept):
    assert later(kept).covers(wanted("csv")) == "always"
    assert later(kept).imports() == {"csv"}
    assert [(one.kind, one.subject, one.digest) for one in always_answers(kept)] == [
        ("call", "ops.http", "d"),
        ("import", "csv", "d"),
    ]


def test_what_is_kept_is_the_users_alone(kept, file):
    for path, mode in ((file, 0o600), (file.parent, 0o700), (kept.key, 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_same_is_kept_once(kept):
    later(kept).add(wanted("csv"), "always")
    later(kept, digest="e").add(wanted("csv"), "always")
    assert [one.subject for one in always_answers(kept)] == ["ops.http", "csv", "csv"]


def test_what_is_for_the_session_is_in_no_file(kept, file):
    before = file.read_bytes()
    user = later(kept)
    user.add(wanted("bz2"), "session")
    user.add(wanted("lzma"), "once")
    assert user.imports() == {"bz2", "lzma", "csv"}
    assert file.read_bytes() == before


def test_what_is_taken_back_counts_no_more_for_who_had_read_it(kept):
    user = later(kept)
    first, second = always_answers(kept)
    assert user.covers(wanted("ops.http", of="call")) == "always"
    assert kept.revoke(frozenset({first.id, "nothing"})) == ([first], [])
    assert user.covers(wanted("ops.http", of="call")) is None
    assert kept.revoke(None) == ([second], [])
    assert user.imports() == frozenset()


@pytest.mark.parametrize("changed", UNDER)
def test_what_was_allowed_elsewhere_or_under_another_policy_is_not_allowed_here(kept, changed):
    assert later(kept, **{changed: "other"}).covers(wanted("csv")) is None


def test_answers_put_in_the_place_of_another_scopes_allow_nothing(kept, file):
    for under in ({"scope": "/other"}, {"policy": "other"}):
        place = kept.answers(**{"scope": "/lab", "policy": "mine"} | under)
        place.file.write_bytes(file.read_bytes())
        assert later(kept, **under).covers(wanted("csv")) is None
    assert sum(isinstance(one, AdmissionError) for one in kept.manifests()) == 2


def test_an_answer_that_was_taken_back_does_not_count_again_by_the_older_file(kept, file):
    older = file.read_bytes()
    kept.revoke(None)
    file.write_bytes(older)
    assert later(kept).covers(wanted("csv")) is None


def forged(path):
    path.write_bytes(path.read_bytes().replace(b'"csv"', b'"bz2"'))


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("change", [forged, linked])
def test_what_can_not_be_trusted_allows_nothing_and_is_not_written_over(kept, file, change):
    user = later(kept)
    assert user.imports() == {"csv"}
    change(file)
    left = file.read_bytes()
    assert user.imports() == frozenset()
    said = user.add(wanted("gzip"), "always")
    assert said.endswith(f"Remove it, and approve again: rm {file}")
    assert file.read_bytes() == left
    assert user.covers(wanted("gzip")) == "session"
    file.unlink()
    assert user.add(wanted("gzip"), "always") == ""
    assert later(kept).imports() == {"gzip"}


def test_nothing_is_written_while_another_does_or_beyond_the_end(kept, file, monkeypatch):
    before = file.read_bytes()
    with kept.key.with_name("approval.key.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = later(kept).add(wanted("gzip"), "always")
    assert "another process keeps it locked. Try again" in said
    monkeypatch.setattr(store, "MOST_APPROVED", 2)
    assert "more than 2 cells and answers. Take some back" in later(kept).add(
        wanted("gzip"), "always"
    )
    assert file.read_bytes() == before


def test_a_link_in_the_place_of_the_lock_is_not_followed(kept):
    lock = kept.key.with_name("approval.key.lock")
    lock.unlink()
    lock.symlink_to(lock.with_name("other"))
    assert "symbolic" in later(kept).add(wanted("gzip"), "always")
    assert not lock.with_name("other").exists()


def test_who_allowed_a_part_is_asked_about_the_rest(kept):
    known = later(kept)
    known.add(wanted("bz2"), "session")
    assert known.covers(wanted("bz2")) == "session"
    assert known.covers(wanted("csv")) == "always"
    assert known.covers(wanted("bz2", "csv")) == "always"
    assert known.covers(wanted("bz2", "lzma")) is None
    assert known.covers(wanted("csv", "lzma")) is None
    assert known.covers(wanted("csv", of="call")) is None
