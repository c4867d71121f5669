"""``cellblock approvals``: what was allowed for always, and taking it back."""

import os

import pytest
from typer.testing import CliRunner

from cellblock.cli.main import app
from cellblock.host.consent import grants
from cellblock.host.consent.grants import GrantContext, Store
from cellblock.policy.load import load


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Return a store with a grant that counts here, and two that do not."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    policy = tmp_path / "mine.toml"
    policy.write_text('approvals = "prompt"\n')
    digest = load("mine.toml", project=tmp_path, allow_unsafe=False).digest()
    here = {"scope": os.path.realpath(tmp_path), "policy": "mine", "digest": digest}
    made = Store(grants.default_path())
    made.add(
        (
            GrantContext(**here).grant("import", "csv"),
            GrantContext(**{**here, "digest": "0" * 64}).grant("call", "ops.http"),
            GrantContext(**{**here, "scope": "/els\u202eewhere"}).grant("start", "mode unsafe"),
        )
    )
    return made


def run(*arguments, status=0):
    done = CliRunner().invoke(app, ["approvals", *arguments])
    assert done.exit_code == status, done.output
    return done.output


def test_all_that_was_allowed_is_listed_with_where_and_under_what(kept):
    (first, under, _, changed, _, elsewhere) = run("list").splitlines()
    one = kept.grants()[0]
    assert first == f"{one.id}  import of csv"
    assert under == f"          policy mine ({one.digest[:12]}) in {one.scope}, {one.at}"
    assert "(000000000000)" in changed
    assert "in /els⟨U+202E⟩ewhere," in elsewhere


def test_what_is_taken_back_is_named(kept):
    first, second, third = kept.grants()
    said = run("revoke", first.id, third.id)
    assert said.splitlines() == [
        f"Took back {first.id}: import of csv",
        f"Took back {third.id}: start in mode unsafe",
    ]
    assert kept.grants() == (second,)
    assert "by the id nothing" in run("revoke", "nothing", second.id, status=1)
    assert run("list") == "nothing was allowed for always\n"


def test_all_can_be_taken_back(kept):
    assert len(run("revoke", "--all").splitlines()) == 3
    assert kept.grants() == ()


@pytest.mark.parametrize("arguments", [(), ("x", "--all")])
def test_ids_or_all_have_to_be_given(kept, arguments):
    run("revoke", *arguments, status=2)
    assert len(kept.grants()) == 3


@pytest.mark.usefixtures("kept")
def test_a_file_that_does_not_count_is_told():
    grants.default_path().chmod(0o666)
    said = run("list")
    assert "grants.json counts: it is damaged, a link, or not yours alone" in said
    assert "nothing was allowed for always" in said
