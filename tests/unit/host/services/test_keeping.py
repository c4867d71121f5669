"""What the host writes to a project of a layer that a hostile guest made."""

import json
import os
import resource
import time
from hashlib import sha256

import pytest

from cellblock.errors import ChangesError
from cellblock.host.services import changes, keeping
from cellblock.host.services.keeping import finish, steps
from support import commands


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_kept_takes_its_place_without_set_user_id_and_is_staged_no_more(
    upper, project, staged
):
    (upper / "folder").mkdir()
    (upper / "folder" / "new").write_text("new")
    (upper / "folder" / "new").chmod(0o6777)
    (upper / "old").write_text("after")
    assert "+after" in staged.diff(staged.chosen(["old"])[0])

    finish(steps(staged, staged.chosen()))

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
    for way in ("made", "way"):
        (upper / way).mkdir()
        (upper / way / "file").write_text("evil")
    chosen = staged.chosen()
    (project / "way").symlink_to(tmp_path / "outside")

    with pytest.raises(ChangesError, match="nothing was kept"):
        finish(steps(staged, chosen))

    assert (project / "old").read_text() == "before"
    assert names(project) == ["old", "way"]
    assert names(tmp_path / "outside") == []


def test_a_staged_file_that_is_no_longer_what_was_asked_about_is_not_kept(upper, project, staged):
    (upper / "old").write_text("after")
    chosen = staged.chosen(["old"])
    asked = finish(keeping.digests(staged, chosen))
    (upper / "old").write_text("afTer")
    with pytest.raises(ChangesError, match="it changed meanwhile"):
        finish(steps(staged, chosen, asked))
    (upper / "old").write_text("something else")
    with pytest.raises(ChangesError, match="it changed meanwhile"):
        finish(steps(staged, chosen))
    assert (project / "old").read_text() == "before"


def test_a_file_that_the_user_changes_after_the_look_is_not_kept_nor_lost(upper, project, staged):
    (upper / "old").write_text("after")
    (upper / "new").write_text("new")
    chosen = staged.chosen()
    (project / "old").write_text("the user's")
    with pytest.raises(ChangesError, match="your file changed meanwhile"):
        finish(steps(staged, chosen))
    (project / "old").unlink()
    chosen = staged.chosen()
    (project / "new").write_text("the user's")
    with pytest.raises(ChangesError, match="your file changed meanwhile"):
        finish(steps(staged, chosen))
    assert (project / "new").read_text() == "the user's"
    assert names(project) == ["new"]


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

    chosen = staged.chosen()
    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(ChangesError, match="nothing was kept"):
        finish(steps(staged, chosen))
    monkeypatch.undo()
    assert names(project) == ["old"]
    assert (project / "old").read_text() == "before"


def test_one_that_is_closed_before_its_end_keeps_nothing(upper, project, staged):
    (upper / "made").mkdir()
    (upper / "made" / "large").write_bytes(bytes(5 << 20))
    work = steps(staged, staged.chosen())
    next(work)
    assert names(project) == ["made", "old"]
    work.close()
    assert names(project) == ["old"]


def test_thousands_of_files_in_as_many_folders_take_few_descriptors(upper, project, staged):
    for number in range(600):
        (upper / f"{number}").mkdir()
        (upper / f"{number}" / "file").write_text("x")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        assert len(finish(steps(staged, staged.chosen()))) == 600
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(names(project)) == 601


def test_each_kept_file_is_on_an_audit_log_after_what_allowed_it(upper, project, staged, tmp_path):
    (upper / "new").write_text("new")
    os.mknod(upper / "old", 0o020000, os.makedev(0, 0))
    keeping.keep(staged, (), by="a terminal")
    (log,) = (tmp_path / "audit").iterdir()
    first, *kept, last = map(json.loads, log.read_text().splitlines())
    assert (first["kind"], first["of"], first["decision"], first["why"]) == (
        "approval",
        "keep",
        "once",
        "a terminal",
    )
    assert [(one["change"], one["name"], one["bytes"], one.get("sha256", "")) for one in kept] == [
        ("new", f"{project}/new", 3, sha256(b"new").hexdigest()),
        ("deleted", f"{project}/old", 0, ""),
    ]
    assert {(one["of"], one["by"]) for one in kept} == {("0123456789abcdef", "a terminal")}
    assert last["kind"] == "session-end"
    assert names(project) == ["new"]


def test_nothing_is_kept_where_a_required_log_can_not_be_written(upper, project, staged, tmp_path):
    (upper / "new").write_text("new")
    (tmp_path / "audit").write_text("in its place")
    required = changes.replace(staged, log=changes.replace(staged.log, required=True))
    with pytest.raises(ChangesError, match="the audit log could not be written"):
        keeping.keep(required, (), by="a terminal")
    assert names(project) == ["old"]


def test_in_a_terminal_what_a_running_session_changes_after_the_diff_is_not_kept(
    upper, project, staged
):
    (upper / "new").write_text("print('good')")
    began = changes.begin(staged)
    shown = commands.in_this_process("cellblock changes diff one new")
    assert "+print('good')\n" in shown.stdout
    command = shown.stdout.splitlines()[-1].partition("To keep exactly this: ")[2]
    assert command.startswith("cellblock changes keep one new --as ")
    (upper / "new").write_text("print('evil')")
    refused = commands.in_this_process(command)
    assert refused.returncode != 0
    assert "it is not what was shown any more" in refused.stderr
    assert names(project) == ["old"]
    (upper / "new").write_text("print('good')")
    assert commands.in_this_process(command).stdout == f"new      {project}/new\nkept 1\n"
    began.close()
    assert (
        "To keep exactly this" not in commands.in_this_process("cellblock changes diff one").stdout
    )


def test_a_session_that_can_not_be_listed_hides_no_other(upper, staged, monkeypatch):
    monkeypatch.setattr(changes, "MOST_ENTRIES", 5)
    (upper / "new").write_text("x")
    full = upper.parent.parent.parent / "full" / "0"
    (full / "upper").mkdir(parents=True)
    for number in range(10):
        (full / "upper" / f"{number}").touch()
    layers = ((staged.layers[0][0], str(full), ()),)
    for one in (staged, changes.replace(staged, id="full", layers=layers, began=time.time() + 60)):
        changes.begin(one).close()
    listed = commands.in_this_process("cellblock changes list").stdout
    assert "it can't be listed: more than 5 files" in listed
    assert "/project/new" in listed.replace("\n", "")


def test_a_file_with_holes_is_kept_with_its_holes_and_has_the_digest_of_its_content(
    upper, project, staged
):
    with (upper / "large").open("wb") as file:
        file.write(b"head")
        file.truncate(64 << 20)
    (kept,) = finish(steps(staged, staged.chosen()))
    found = (project / "large").stat()
    assert found.st_size == 64 << 20
    assert found.st_blocks * 512 < 1 << 20
    assert kept.sha256 == sha256((project / "large").read_bytes()).hexdigest()
