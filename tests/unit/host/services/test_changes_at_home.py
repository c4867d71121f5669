"""What is listed and kept of the cells' home folder: files under a name of the user's, no settings."""

import os
from dataclasses import replace

import pytest

from cellblock.errors import ChangesError
from cellblock.host.services import changes
from cellblock.host.services.keeping import finish, steps
from cellblock.policy.model import Policy
from cellblock.wire.messages import HOME, UPPER, Layer


@pytest.fixture
def home(tmp_path):
    made = tmp_path / "home"
    (made / "lab").mkdir(parents=True)
    (made / "notes").write_text("mine")
    (made / "lab" / "mine.csv").write_text("mine")
    return made


@pytest.fixture
def written(upper):
    """The layer of what cells wrote below ~."""
    made = upper.parent.parent / HOME / UPPER
    made.mkdir(parents=True)
    return made


@pytest.fixture
def at_home(project, upper, home, written, tmp_path):
    """A session's changes, of a project and the home folder."""
    layers = [
        Layer(root=str(project), folder=str(upper.parent)),
        Layer(root=str(tmp_path / "scratch/home"), folder=str(written.parent), kept_in=str(home)),
    ]
    policy = Policy.preset("data")
    policy = policy.replace(audit=replace(policy.audit, folder=str(tmp_path / "audit")))
    return replace(changes.of_layers(layers, policy, "0123456789abcdef"), base=str(project))


def listed(staged):
    return {staged.label(one): one.kind if not one.why_not else "never" for one in staged.changes()}


def test_files_are_listed_by_their_name_below_home_and_kept_there(at_home, written, home, upper):
    (written / "results.csv").write_text("1,2")
    (written / "out").mkdir()
    (written / "out" / "a.csv").write_text("a")
    (upper / "results.csv").write_text("the project's")
    assert listed(at_home) == {
        "results.csv": "new",
        "~/results.csv": "new",
        "~/out/a.csv": "new",
    }
    (chosen,) = at_home.chosen(["~/results.csv"])
    finish(steps(at_home, [chosen]))
    assert (home / "results.csv").read_text() == "1,2"
    assert listed(at_home) == {"results.csv": "new", "~/out/a.csv": "new"}
    assert [one.path for one in at_home.chosen([str(home / "out")])] == ["out/a.csv"]


def test_settings_and_caches_are_neither_listed_nor_kept(at_home, written):
    for name in (".cache", ".config", ".local", ".ssh", ".matplotlib"):
        (written / name).mkdir()
        (written / name / "file").write_text("x")
    (written / ".bashrc").write_text("evil")
    assert not at_home.is_written_to()
    assert listed(at_home) == {}
    with pytest.raises(ChangesError, match="nothing was changed"):
        at_home.chosen(["~/.bashrc"])
    (written / "results.csv").touch()
    assert at_home.is_written_to()


def test_when_the_session_ends_its_caches_go_and_its_files_stay(at_home, written, upper, home):
    upper.mkdir(exist_ok=True)
    (written / ".cache").mkdir()
    (written / ".cache" / "model").write_text("large")
    (written / ".link").symlink_to(home)
    (written / "results.csv").write_text("1")
    changes.begin(at_home).close()
    left = changes.end(at_home.id)
    assert [one.path for one in left.changes()] == ["results.csv"]
    assert [path.name for path in written.iterdir()] == ["results.csv"]
    assert (home / "notes").exists()


def test_what_other_programs_run_is_never_kept_there_either(at_home, written, monkeypatch, home):
    monkeypatch.setenv("PATH", f"{home}/tools:/usr/bin")
    for path in ("bin/ls", "tools/git", "lab/.git/config", "lab/.env", "lab/conftest.py"):
        (written / path).parent.mkdir(parents=True, exist_ok=True)
        (written / path).write_text("evil")
    (written / "link").symlink_to(home / "notes")
    found = listed(at_home)
    assert set(found.values()) == {"never"}
    assert {"~/bin/ls", "~/tools/git", "~/lab/conftest.py", "~/link"} <= set(found)
    assert at_home.chosen() == []


def test_cells_delete_nothing_of_a_home_that_they_do_not_see(at_home, written, home):
    """Whatever the layer looks like: a folder made anew hides all below it in an overlay."""
    (written / "lab").mkdir()
    os.setxattr(written / "lab", "user.overlay.opaque", b"y")
    (written / "lab" / "new.csv").write_text("x")
    (written / "notes").mkdir()
    (written / "notes" / "inside").write_text("x")
    assert listed(at_home) == {"~/lab/new.csv": "new", "~/notes/inside": "never"}
    finish(steps(at_home, at_home.chosen()))
    assert (home / "lab" / "mine.csv").read_text() == "mine"
    assert (home / "notes").read_text() == "mine"


def test_a_file_of_the_users_is_shown_beside_the_one_to_come(at_home, written):
    (written / "notes").write_text("a cell's")
    (change,) = at_home.changes()
    assert (change.kind, change.before) == ("changed", 4)
    assert "-mine\n+a cell's" in at_home.diff(change).text
