"""``cellblock approvals``: what was approved, and taking it back."""

import json
import os

import pytest
from typer.testing import CliRunner

from cellblock.cli.main import app
from cellblock.host.consent import store
from cellblock.policy.load import load
from support.approvals import always_answers


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Return a store with an answer that counts here, and two that do not."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    policy = tmp_path / "mine.toml"
    policy.write_text('approvals = "prompt"\n')
    digest = load("mine.toml", project=tmp_path, allow_unsafe=False).digest()
    made = store.of_user()
    here = [store.record("import", "csv", digest), store.record("call", "ops.http", "0" * 64)]
    made.answers(os.path.realpath(tmp_path), "mine").change(lambda _: here)
    there = [store.record("start", "mode unsafe", digest)]
    made.answers("/els\u202eewhere", "mine").change(lambda _: there)
    return made


@pytest.fixture
def ids(kept):
    return {one.subject: one.id for one in always_answers(kept)}


def run(*arguments, status=0):
    done = CliRunner().invoke(app, ["approvals", *arguments])
    assert done.exit_code == status, done.output
    return done.output


def test_all_that_was_approved_is_listed_with_where_and_under_what(kept, ids, tmp_path):
    lines = run("list").splitlines()
    one = next(each for each in always_answers(kept) if each.subject == "csv")
    at = lines.index(f"{ids['csv']}  import of csv")
    where = f"policy mine ({one.digest[:12]}) in {tmp_path}, {one.when}, by {one.who}"
    assert lines[at + 1] == f"          {where}"
    assert any("(000000000000)" in line for line in lines)
    assert any("in /els⟨U+202E⟩ewhere," in line for line in lines)
    told = next(each for each in json.loads(run("list", "--json")) if each["id"] == one.id)
    assert (told["kind"], told["subject"], told["scope"]) == ("import", "csv", str(tmp_path))


def test_what_is_taken_back_is_named(kept, ids):
    said = run("revoke", ids["csv"], ids["mode unsafe"])
    assert sorted(said.splitlines()) == sorted(
        [
            f"Took back {ids['csv']}: import of csv",
            f"Took back {ids['mode unsafe']}: start in mode unsafe",
        ]
    )
    assert [one.subject for one in always_answers(kept)] == ["ops.http"]
    assert "no approval has the id nothing" in run("revoke", "nothing", ids["ops.http"], status=1)
    assert run("list") == "nothing was approved\n"


def test_all_can_be_taken_back(kept):
    assert len(run("revoke", "--all").splitlines()) == 3
    assert always_answers(kept) == []


@pytest.mark.parametrize("arguments", [(), ("x", "--all")])
def test_ids_or_all_have_to_be_given(kept, arguments):
    run("revoke", *arguments, status=2)
    assert len(always_answers(kept)) == 3


def test_a_manifest_that_can_not_be_trusted_is_said_and_how_to_be_rid_of_it(kept, ids, tmp_path):
    file = kept.answers(os.path.realpath(tmp_path), "mine").file
    file.write_bytes(b'{"cellblock":"approval","version":1,"key":"","signature":""}\n{}')
    why = f"approvals that do not count: {file}: approval.folder: another version of cellblock wrote it"
    remedy = f"Remove it, and approve again: rm {file}"
    for said in (run("list"), run("revoke", ids["mode unsafe"])):
        assert f"{why} (format 1). {remedy}\n" in said
    assert why in run("revoke", "--all", status=1)  # not all of it is taken back
    file.unlink()
    assert run("list") == "nothing was approved\n"
