"""What the host reads out of a layer that a hostile guest made, and what it writes to a project."""

import os
import time

import pytest

from cellblock.host.services import changes
from cellblock.wire.messages import Layer


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def project(tmp_path):
    made = tmp_path / "project"
    made.mkdir()
    (made / "old").write_text("before")
    return made


@pytest.fixture
def upper(tmp_path):
    made = tmp_path / "data" / "cellblock" / "changes" / "one" / "0" / "upper"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def staged(upper, project):
    layer = Layer(root=str(project), folder=str(upper.parent), hidden=("secret",))
    return changes.of_layers([layer], "data")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def kinds(staged):
    return {one.path: one.kind if not one.why_not else "never" for one in staged.changes()}


def test_only_regular_files_can_be_kept_and_nothing_is_followed(upper, staged):
    (upper / "old").write_text("after")
    (upper / "folder").mkdir()
    (upper / "folder" / "new").write_text("new")
    (upper / "link").symlink_to("/etc/passwd")
    (upper / "linked").symlink_to("/etc")
    os.mkfifo(upper / "fifo")
    (upper / ".ENV").write_text("EVIL=1")
    (upper / "sub" / ".git" / "hooks").mkdir(parents=True)
    (upper / "sub" / ".git" / "hooks" / "pre-commit").write_text("evil")
    (upper / os.fsdecode(b"\xff")).write_text("")
    (upper / "secret").mkdir()
    (upper / "secret" / "own").write_text("")
    assert kinds(staged) == {
        "old": "changed",
        "folder/new": "new",
        **dict.fromkeys(("link", "linked", "fifo", ".ENV", "secret/own"), "never"),
        "sub/.git/hooks/pre-commit": "never",
        os.fsdecode(b"\xff"): "never",
    }
    assert [one.path for one in staged.chosen(())] == ["folder/new", "old"]
    with pytest.raises(changes.ChangesError, match="not a regular file"):
        staged.chosen(["link"])


def test_folders_in_folders_without_end_are_refused(upper, staged):
    deep = upper
    for _ in range(70):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(changes.ChangesError, match="deep"):
        staged.changes()


def test_what_is_kept_takes_its_place_without_set_user_id_and_is_staged_no_more(
    upper, project, staged
):
    (upper / "folder").mkdir()
    (upper / "folder" / "new").write_text("new")
    (upper / "folder" / "new").chmod(0o6777)
    (upper / "old").write_text("after")
    assert "+after" in staged.diff(staged.chosen(["old"])[0])

    staged.keep(staged.chosen(()))

    assert (project / "old").read_text() == "after"
    assert (project / "folder" / "new").read_text() == "new"
    assert (project / "folder" / "new").stat().st_mode & 0o6111 == 0
    assert names(project) == ["folder", "old"]
    assert staged.changes() == []


def test_a_link_in_the_project_is_not_followed_and_nothing_of_the_rest_is_kept(
    upper, project, staged, tmp_path
):
    (tmp_path / "outside").mkdir()
    (upper / "old").write_text("after")
    (upper / "way").mkdir()
    (upper / "way" / "file").write_text("evil")
    chosen = staged.chosen(())
    (project / "way").symlink_to(tmp_path / "outside")

    with pytest.raises(changes.ChangesError, match="nothing was kept"):
        staged.keep(chosen)

    assert (project / "old").read_text() == "before"
    assert names(project) == ["old", "way"]
    assert names(tmp_path / "outside") == []


def test_a_file_that_changes_between_the_look_and_the_keeping_is_not_kept(upper, project, staged):
    (upper / "old").write_text("after")
    chosen = staged.chosen(["old"])
    (upper / "old").write_text("something else")
    with pytest.raises(changes.ChangesError, match="it changed meanwhile"):
        staged.keep(chosen)
    assert (project / "old").read_text() == "before"


def test_where_one_of_several_can_not_take_its_place_all_are_as_before(
    upper, project, staged, monkeypatch
):
    (upper / "new").write_text("new")
    (upper / "old").write_text("after")
    rename = os.rename

    def fails(source, target, **options):
        if target == "old" and source.endswith(".keep"):
            raise OSError(28, "No space left on device")
        rename(source, target, **options)

    chosen = staged.chosen(())
    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(changes.ChangesError, match="nothing was kept"):
        staged.keep(chosen)
    monkeypatch.undo()
    assert names(project) == ["old"]
    assert (project / "old").read_text() == "before"


def test_a_session_that_wrote_nothing_leaves_nothing_and_another_its_changes_for_a_week(
    upper, staged, tmp_path
):
    began = changes.begin(staged)
    assert changes.session("one").runs()
    changes.end(tmp_path / "one", began)
    assert changes.sessions() == []

    upper.mkdir(parents=True)
    (upper / "new").write_text("new")
    began = changes.begin(staged)
    changes.end(tmp_path / "one", began)
    (left,) = changes.sessions()
    assert (kinds(left), left.runs()) == ({"new": "new"}, False)

    old = upper.parent.parent.parent / "old"
    (old / "0" / "upper").mkdir(parents=True)
    later = changes.replace(staged, id="old", began=time.time() - changes.KEPT_FOR - 1)
    os.close(changes.begin(later).lock)
    again = upper.parent.parent.parent / "two"
    again.mkdir()
    os.close(changes.begin(changes.replace(staged, id="two")).lock)
    assert {one.id for one in changes.sessions()} == {"one", "two"}
