"""What the host writes to a project of a layer that a hostile guest made."""

import errno
import itertools
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
    assert "+after" in staged.diff(staged.chosen(["old"])[0]).text

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
    link = os.link

    def fails(source, target, **options):
        if target == "old" and source.endswith(".keep"):
            raise OSError(28, "No space left on device")
        link(source, target, **options)

    chosen = staged.chosen()
    monkeypatch.setattr(os, "link", fails)
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
        ("deleted", f"{project}/old", 0, ""),
        ("new", f"{project}/new", 3, sha256(b"new").hexdigest()),
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
    assert "the files changed after they were shown" in refused.stderr
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


def test_what_is_copied_must_be_what_was_asked_about_though_the_file_looks_untouched(
    upper, project, staged
):
    """A write through a mapping that is dirty already leaves size and times as they are."""
    (upper / "old").write_text("evil")
    chosen = staged.chosen(["old"])
    asked = {chosen[0].name: sha256(b"good").hexdigest()}
    for digests in (asked, {}):
        with pytest.raises(ChangesError, match="old: it changed meanwhile"):
            finish(steps(staged, chosen, digests))
        assert (project / "old").read_text() == "before"
        assert names(project) == ["old"]
    finish(steps(staged, chosen, {chosen[0].name: sha256(b"evil").hexdigest()}))
    assert (project / "old").read_text() == "evil"


LARGE = 3 << 20


def grows(file):
    with file.open("ab") as staged_file:
        staged_file.write(b"evil")


def shrinks(file):
    os.truncate(file, LARGE // 2)


def changes_what_was_read(file):
    with file.open("r+b") as staged_file:
        staged_file.write(b"evil")
    os.utime(file, ns=(0, 0))  # clocks of file systems may tick every four milliseconds only


@pytest.mark.parametrize("change", [grows, shrinks, changes_what_was_read])
@pytest.mark.parametrize("digests_alone", [False, True])
def test_a_staged_file_that_cells_write_to_while_it_is_copied_is_not_kept(
    upper, project, staged, change, digests_alone
):
    (upper / "large").write_bytes(bytes(LARGE))
    chosen = staged.chosen()
    work = keeping.digests(staged, chosen) if digests_alone else steps(staged, chosen)
    next(work)
    change(upper / "large")
    with pytest.raises(ChangesError, match="large: it changed meanwhile"):
        finish(work)
    assert names(project) == ["old"]


def test_nothing_is_read_of_a_staged_file_that_is_not_the_one_that_was_listed(
    upper, project, staged
):
    (upper / "large").write_text("small")
    chosen = staged.chosen()
    os.truncate(upper / "large", LARGE)  # or a terabyte, with a hole in it
    for work in (keeping.digests(staged, chosen), steps(staged, chosen)):
        with pytest.raises(ChangesError, match="large: it changed meanwhile"):
            next(work)
    assert names(project) == ["old"]


def saves_in_place(file):
    file.write_text("the user's new work")


def saves_anew(file):
    (file.parent / "saving").write_text("the user's new work")
    (file.parent / "saving").replace(file)


def saves_one_of_the_same_time(file):
    """As a backup is put back."""
    made = file.stat().st_mtime_ns if file.exists() else 0
    (file.parent / "saving").write_text("the user's new work")
    os.utime(file.parent / "saving", ns=(made, made))
    (file.parent / "saving").replace(file)


SAVES = pytest.mark.parametrize("save", [saves_in_place, saves_anew, saves_one_of_the_same_time])


@SAVES
@pytest.mark.parametrize("name", ["old", "new"])
def test_what_the_user_saves_while_files_are_copied_is_not_lost(upper, project, staged, save, name):
    """The place of ``name`` was looked at already; the second file is still to be copied."""
    (upper / name).write_text("after")
    (upper / "zlarge").write_bytes(bytes(LARGE))
    work = steps(staged, staged.chosen())
    while not any(".zlarge" in one for one in names(project)):
        next(work)
    save(project / name)
    with pytest.raises(ChangesError, match=f"{name}: your file changed meanwhile"):
        finish(work)
    assert (project / name).read_text() == "the user's new work"
    assert names(project) == sorted({"old", name})


def at_call(monkeypatch, call, action, *, of):
    """Have ``action`` called once, right before a call of ``os`` for a name that ends so."""
    original, left = getattr(os, call), [action]

    def late(source, target, **options):
        if source.endswith(of) and left:
            left.pop()()
        original(source, target, **options)

    monkeypatch.setattr(os, call, late)


@SAVES
@pytest.mark.parametrize("kind", ["changed", "deleted"])
def test_what_the_user_saves_right_before_it_is_moved_aside_is_not_lost(
    upper, project, staged, monkeypatch, save, kind
):
    if kind == "changed":
        (upper / "old").write_text("after")
    else:
        os.mknod(upper / "old", 0o020000, os.makedev(0, 0))
    at_call(monkeypatch, "rename", lambda: save(project / "old"), of="old")
    with pytest.raises(ChangesError, match="old: your file changed meanwhile"):
        finish(steps(staged, staged.chosen()))
    assert (project / "old").read_text() == "the user's new work"
    assert names(project) == ["old"]


@SAVES
@pytest.mark.parametrize("name", ["old", "new"])
def test_what_the_user_saves_right_before_the_new_file_takes_its_place_is_not_lost(
    upper, project, staged, monkeypatch, save, name
):
    (upper / name).write_text("after")
    at_call(monkeypatch, "link", lambda: save(project / name), of=".keep")
    with pytest.raises(ChangesError, match=f"{name}: your file changed meanwhile"):
        finish(steps(staged, staged.chosen()))
    assert (project / name).read_text() == "the user's new work"
    assert names(project) == sorted({"old", name})


def test_what_the_user_saves_over_a_kept_file_stays_when_the_rest_is_taken_back(
    upper, project, staged, monkeypatch
):
    for name in ("new", "old", "other", "x"):
        (upper / name).write_text("after")
    (project / "other").write_text("before")
    chosen = staged.chosen(overwrite=True)

    def save():
        for name in ("new", "old"):
            saves_anew(project / name)
        (project / "x").write_text("in its place")

    counted = itertools.count()
    link = os.link

    def at_the_last(source, target, **options):
        if next(counted) == 3:
            save()
        link(source, target, **options)

    monkeypatch.setattr(os, "link", at_the_last)
    with pytest.raises(ChangesError, match="x: your file changed meanwhile"):
        finish(steps(staged, chosen))
    monkeypatch.undo()
    assert {file.name: file.read_text() for file in project.iterdir()} == {
        "new": "the user's new work",
        "old": "the user's new work",
        "other": "before",
        "x": "in its place",
    }


@pytest.mark.parametrize("saved", [False, True])
def test_where_a_file_system_has_no_links_files_are_kept_and_what_is_there_is_not_lost(
    upper, project, staged, monkeypatch, saved
):
    (upper / "new").write_text("after")

    def fails(*_, **__):
        if saved:
            saves_in_place(project / "new")
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", fails)
    if not saved:
        finish(steps(staged, staged.chosen()))
        assert (project / "new").read_text() == "after"
    else:
        with pytest.raises(ChangesError, match="new: your file changed meanwhile"):
            finish(steps(staged, staged.chosen()))
        assert (project / "new").read_text() == "the user's new work"
    assert names(project) == ["new", "old"]
