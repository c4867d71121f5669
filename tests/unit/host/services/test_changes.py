"""What the host reads out of a layer that a hostile guest made, within bounds."""

import os
import stat
import time

import pytest

from cellblock.errors import ChangesError
from cellblock.host.services import changes
from cellblock.host.services.keeping import finish, steps


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
        **dict.fromkeys(("link", "linked", "fifo", ".ENV"), "never"),
        "sub/.git": "never",
        os.fsdecode(b"\xff"): "never",
    }
    assert [one.path for one in staged.chosen()] == ["old", "folder/new"]
    with pytest.raises(ChangesError, match="not a regular file"):
        staged.chosen(["link"])


def test_a_session_that_wrote_nothing_leaves_nothing_and_another_its_changes_for_a_week(
    upper, staged
):
    began = changes.begin(staged)
    assert changes.session("one").runs()
    began.close()
    changes.end("one")
    assert changes.sessions() == []

    upper.mkdir(parents=True)
    (upper / "new").write_text("new")
    began = changes.begin(staged)
    began.close()
    changes.end("one")
    (left,) = changes.sessions()
    assert (kinds(left), left.runs()) == ({"new": "new"}, False)

    old = upper.parent.parent.parent / "old"
    (old / "0" / "upper").mkdir(parents=True)
    os.close(changes.begin(changes.replace(staged, id="old")).lock)
    long_ago = time.time() - changes.KEPT_FOR - 1
    os.utime(old / "session.json", (long_ago, long_ago))
    again = upper.parent.parent.parent / "two"
    again.mkdir()
    os.close(changes.begin(changes.replace(staged, id="two")).lock)
    changes.sweep()
    assert {one.id for one in changes.sessions()} == {"one", "two"}


def test_of_too_many_sessions_the_oldest_goes(upper, staged, monkeypatch):
    monkeypatch.setattr(changes, "MOST_SESSIONS", 2)
    store = upper.parent.parent.parent
    for age, name in ((30, "first"), (20, "second"), (10, "third")):
        (store / name / "0" / "upper").mkdir(parents=True)
        os.close(changes.begin(changes.replace(staged, id=name)).lock)
        info = store / name / "session.json"
        os.utime(info, (time.time() - age, time.time() - age))
    os.close(changes.begin(staged).lock)
    changes.sweep()
    assert {one.id for one in changes.sessions()} == {"one", "third"}


def test_what_is_as_it_was_or_settled_is_not_listed(project, upper, staged):
    for number in range(30):
        (project / f"same{number}").write_text("x")
        (upper / f"same{number}").write_text("x")
        (upper / f"settled{number}").write_text("x")
        (upper / f"new{number}").write_text("x")
    staged.settle([one for one in staged.changes() if one.path.startswith("settled")])
    assert {one.path for one in staged.changes()} == {f"new{number}" for number in range(30)}


def test_a_folder_with_files_without_end_is_not_read_to_its_end(upper, staged, monkeypatch):
    monkeypatch.setattr(changes, "MOST_ENTRIES", 1_000)
    (upper / "many").mkdir()
    for number in range(20_000):
        (upper / "many" / f"{number}").touch()
    (upper / "wanted").write_text("x")
    read = []
    scandir = os.scandir

    class Counted:
        def __init__(self, folder):
            self.inner = scandir(folder)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.inner.close()

        def __iter__(self):
            return (read.append(entry) or entry for entry in self.inner)

    monkeypatch.setattr(os, "scandir", Counted)
    monkeypatch.setattr(os, "listdir", None)
    with pytest.raises(ChangesError, match="more than 1,000 files were written or deleted"):
        staged.changes()
    assert len(read) <= 1_010
    # The remedies work: what is named is found beside them, and all of it is dropped.
    assert [one.path for one in staged.chosen(["wanted"])] == ["wanted"]
    began = changes.begin(staged)
    assert (len(began.drop()), began.is_dropped()) == (20_001, True)
    os.close(began.lock)


def test_paths_without_end_are_not_held_in_memory(upper, staged, monkeypatch):
    monkeypatch.setattr(changes, "_MOST_CHARACTERS", 10_000)
    deep = upper
    for _ in range(10):
        deep = deep / ("d" * 200)
        deep.mkdir()
    for number in range(20):
        (deep / f"{number}").touch()
    with pytest.raises(ChangesError, match="files were written"):
        staged.changes()


def test_one_listing_compares_no_more_than_its_bound(upper, project, staged, monkeypatch):
    monkeypatch.setattr(changes, "_MOST_COMPARED", 1 << 20)
    for number in range(10):
        (upper / f"{number}").write_bytes(bytes(300_000))
        (project / f"{number}").write_bytes(bytes(300_000))
    # Three of ten are known to be as they were; the others may be, and are listed.
    assert len(kinds(staged)) == 7
    monkeypatch.setattr(changes, "_MOST_COMPARED", 1 << 30)
    assert kinds(staged) == {}


def test_a_hostile_text_costs_its_diff_no_minutes(upper, project, staged):
    # No line is one of a hundred, so difflib takes none for junk: 20,000 by 200, for each match.
    lines = [f"{number * 37 % 101}" for number in range(20_000)]
    (project / "old").write_text("\n".join(lines))
    (upper / "old").write_text("\n".join(lines[::-1]))
    began = time.process_time()
    (change,) = staged.changes()
    assert len(staged.diff(change).text.splitlines()) == 401
    assert time.process_time() - began < 1


def test_named_paths_are_found_in_folders_that_were_made_anew(upper, project, staged):
    (project / "folder").mkdir()
    for name in ("kept", "gone", "other"):
        (project / "folder" / name).write_text("before")
    (upper / "folder").mkdir()
    (upper / "folder" / "kept").write_text("after")
    os.setxattr(upper / "folder", "user.overlay.opaque", b"y")
    assert kinds(staged) == {"folder/kept": "changed"}  # what came later is the user's
    staged = changes.replace(staged, began=time.time() + 60)  # the project is older
    assert kinds(staged) == {
        "folder/gone": "deleted",
        "folder/kept": "changed",
        "folder/other": "deleted",
    }
    named = ["folder/gone", str(project / "folder" / "kept")]
    chosen = staged.chosen(named, overwrite=True)
    assert {one.path: one.kind for one in chosen} == {
        "folder/gone": "deleted",
        "folder/kept": "changed",
    }
    for path in ("folder/none", "..", "/etc", "fold"):
        with pytest.raises(ChangesError, match="nothing was changed at"):
            staged.chosen([path])


def test_a_file_is_shown_by_the_path_that_keeps_it(upper, project, staged):
    (upper / "sub").mkdir()
    for name in ("--overwrite", "sub/new"):
        (upper / name).write_text("new")
    beside = changes.replace(staged, base=f"{project}/sub")
    at_top = changes.replace(staged, base=str(project))
    for one, shown in ((beside, {"../--overwrite", "new"}), (at_top, {"./--overwrite", "sub/new"})):
        assert {one.label(change) for change in one.changes()} == shown
        assert len(one.chosen(shown)) == len(shown)
    elsewhere = changes.replace(staged, base="/")
    assert {elsewhere.label(change) for change in staged.changes()} == {
        f"{project}/--overwrite",
        f"{project}/sub/new",
    }


def test_what_was_dropped_while_the_session_runs_is_staged_again_once_it_changes(
    upper, project, staged
):
    (upper / "old").write_text("after")
    (upper / "new").write_text("new")
    began = changes.begin(staged)
    began.drop()
    assert kinds(began) == {}
    (upper / "new").write_text("newer")
    assert kinds(began) == {"new": "new"}
    os.close(began.lock)
    began.drop()
    assert changes.sessions() == []
    assert (project / "old").read_text() == "before"


def test_a_file_that_the_user_changed_since_the_session_began_is_kept_only_when_told(
    upper, project, staged
):
    (upper / "old").write_text("after")
    (upper / "new").write_text("new")
    earlier = changes.replace(staged, began=time.time() - 10)
    (project / "old").write_text("the user's")
    with pytest.raises(ChangesError, match=r"old was changed by somebody else at .* --overwrite"):
        earlier.chosen()
    assert [one.path for one in earlier.chosen(["new"])] == ["new"]
    finish(steps(earlier, earlier.chosen(overwrite=True)))
    assert (project / "old").read_text() == "after"
    # What was kept is the cells' own, not the user's: they may go on, and it is kept again.
    (upper / "old").write_text("after that")
    finish(steps(earlier, earlier.chosen()))
    assert (project / "old").read_text() == "after that"


def test_what_is_denied_is_neither_listed_nor_shown_where_its_folder_was_deleted(
    upper, project, staged
):
    (project / "secret").write_text("SECRET")
    for folder in ("gone", "anew"):
        (project / folder).mkdir()
        for name in ("public", "denied"):
            (project / folder / name).write_text("text")
    hidden = ("secret", "gone/denied", "anew/denied", "later/denied")
    layers, older = ((*staged.layers[0][:2], hidden),), time.time() + 60
    denying = changes.replace(staged, layers=layers, began=older)
    os.mknod(upper / "gone", 0o020000, os.makedev(0, 0))
    (upper / "anew").mkdir()
    os.setxattr(upper / "anew", "user.overlay.opaque", b"y")
    # What the zygote lays where a denied path's folder is missing is no deletion of a cell's.
    os.mknod(upper / "later", 0o020000, os.makedev(0, 0))
    time.sleep(0.02)
    (project / "later").mkdir()
    (project / "later" / "new").write_text("the user's")
    assert kinds(denying) == {"anew/public": "deleted", "gone/public": "deleted"}


def test_what_is_denied_since_is_not_shown(upper, project, staged):
    (upper / "old").write_text("after")
    assert kinds(staged.without([str(project / "old")])) == {}
    assert kinds(staged.without([str(project)])) == {}


def test_what_can_not_be_read_or_kept_holds_nothing_else_hostage(upper, project, staged):
    (upper / "good").write_text("x")
    (upper / "folder").mkdir()
    (upper / "folder" / ".env").write_text("x")
    (upper / "folder" / "good").write_text("x")
    (upper / "shut").mkdir(mode=0)
    (upper / "listed").mkdir()
    (upper / "listed" / "one").write_text("x")
    (upper / "listed").chmod(0o400)
    (project / "link").symlink_to("old")
    (upper / "link").write_text("x")
    deep = upper
    for _ in range(70):
        deep = deep / "d"
        deep.mkdir()
    by_root = {"listed/one"} if os.geteuid() == 0 else set()
    assert {"good", "folder/good", *by_root} == {one.path for one in staged.chosen()}
    assert [one.path for one in staged.chosen(["folder"])] == ["folder/good"]
    why = {one.path: one.why_not for one in staged.changes() if one.why_not}
    assert why.pop("d/" * 64 + "d") == "its folders are nested more than 64 deep"
    for folder in ("shut", "listed"):
        assert why.pop(folder, None) in {None, "it can't be read"}  # root reads it
    assert why == {
        "folder/.env": "files of this name hold secrets",
        "link": "something that is not a file is in its place",
    }
    with pytest.raises(ChangesError, match="is not kept: files of this name hold secrets"):
        staged.chosen(["folder/.env"])


def test_a_file_in_place_of_a_folder_and_the_other_way_round_are_listed_whole(
    upper, project, staged
):
    (project / "folder").mkdir()
    (project / "folder" / "in").write_text("x")
    (upper / "folder").write_text("a file now")
    (upper / "old").mkdir()
    (upper / "old" / "in").write_text("x")
    found = {one.path: (one.kind, one.why_not) for one in staged.changes()}
    assert found == {
        "folder": ("new", "something that is not a file is in its place"),
        "folder/in": ("deleted", "a file is in the place of its folder"),
        "old": ("deleted", "a folder is in its place, of which nothing can be kept"),
        "old/in": ("new", "something that is not a file is in its place"),
    }
    (upper / "good").write_text("x")
    assert [one.path for one in staged.chosen(overwrite=True)] == ["good"]


def test_a_file_whose_place_an_empty_folder_took_can_be_deleted(upper, project, staged):
    (upper / "old" / "empty").mkdir(parents=True)
    assert [(one.path, one.kind) for one in staged.chosen(overwrite=True)] == [("old", "deleted")]
    finish(steps(staged, staged.chosen(overwrite=True)))
    assert not (project / "old").exists()


def test_what_python_would_import_from_the_project_is_not_kept(upper, project, staged, monkeypatch):
    (upper / "src").mkdir()
    for name in ("src/evil.py", "src/evil.pth", "src/plot.png", "note.py"):
        (upper / name).write_text("x")
    monkeypatch.setattr("sys.path", ["", str(project / "src")])
    assert {one.path for one in staged.chosen()} == {"note.py", "src/plot.png"}
    with pytest.raises(ChangesError, match="Python, cellblock's own too, imports from"):
        staged.chosen(["src/evil.py"])
    monkeypatch.setattr("sys.path", [str(project)])  # a program's own folder
    assert "src/evil.py" in {one.path for one in staged.chosen()}


def test_compiled_code_which_nobody_can_read_is_not_kept(upper, staged):
    for name in ("__pycache__/helper.cpython-311.pyc", "helper.PYC", "helper.abi3.so"):
        (upper / name).parent.mkdir(exist_ok=True)
        (upper / name).write_bytes(b"code")
    assert {*kinds(staged).values()} == {"never"}


def test_a_path_is_what_the_shell_means_by_it_and_not_two_files(upper, project, staged, tmp_path):
    (upper / "nb").mkdir()
    for name in ("out.csv", "nb/out.csv"):
        (upper / name).write_text("x")

    def chosen(path, base):
        return [one.path for one in changes.replace(staged, base=base).chosen([path])]

    assert chosen("out.csv", str(project / "nb")) == ["nb/out.csv"]
    assert chosen("../out.csv", str(project / "nb")) == ["out.csv"]
    assert chosen("out.csv", "/") == chosen("out.csv", "") == ["out.csv"]
    other = (str(tmp_path / "other"), str(upper.parent), ())
    two = changes.replace(staged, layers=(*staged.layers, other), base="/")
    with pytest.raises(ChangesError, match=r"out\.csv could lie in .*: name it whole"):
        two.chosen(["out.csv"])


def test_a_name_reaches_no_terminal_as_it_is(upper, staged):
    (upper / "\x1b]0;pwned\x07").write_text("x")
    with pytest.raises(ChangesError) as caught:
        staged.chosen(["\x1b]0;pwned\x07"])
    assert "\x1b" not in str(caught.value)
    with pytest.raises(ChangesError) as caught:
        staged.chosen(["\x1b[31m"])
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("content", [b"x\n", b"\xff"])
def test_a_name_is_one_line_of_a_diff(upper, project, staged, content):
    name = "a\n--- old\n+++ b\x1b[2K\x85"
    (upper / name).write_bytes(content)
    (change,) = staged.changes()
    shown = f"{project}/a␊--- old␊+++ b␛[2K⟨U+0085⟩"
    expected = [f"{shown}: not a text, or too large to be shown"]
    if content == b"x\n":
        expected = ["--- /dev/null", f"+++ {shown} (staged)", "@@ -0,0 +1 @@", "+x"]
    assert staged.diff(change).text.split("\n") == expected


LINE_ENDS = ["\x0c", "\r", "\x0b", "\x1c", "\x85", "\u2028"]


@pytest.mark.parametrize("end", LINE_ENDS)
def test_a_change_of_line_ends_alone_is_shown(upper, project, staged, end):
    (project / "old").write_text(f"# harmless{end}import os", newline="")
    (upper / "old").write_text("# harmless\nimport os", newline="")
    (change,) = staged.changes()
    assert "+import os" in staged.diff(change).text


def test_a_last_line_end_is_shown_and_what_is_cut_is_said(upper, staged):
    (upper / "old").write_text("before\n")
    (change,) = staged.changes()
    assert "no newline at the end" in staged.diff(change).text
    (upper / "new").write_text("one\n")
    assert staged.diff(staged.chosen(["new"])[0]).text.split("@@\n")[1] == "+one"
    (upper / "new").unlink()
    (upper / "old").write_text("".join(f"{n}\n" for n in range(1_000)))
    (change,) = staged.changes()
    text, cut = staged.diff(change)
    assert text.splitlines()[-1] == "… 605 more lines"
    assert cut == 605
    text, cut = staged.diff(change, most=60)
    assert text.splitlines()[-1] == "… 945 more lines"
    assert cut == 945
    text, cut = staged.diff(change, most=None)
    assert "\n+999\n" in text
    assert cut == 0
    (upper / "old").write_text("x" * 999)
    text, cut = staged.diff(staged.changes()[0])
    assert "… 500 more characters" in text
    assert cut == 1


def test_a_line_of_a_diff_that_may_be_shown_in_another_order_is_also_shown_in_its_own(
    upper, project, staged
):
    (upper / "new").write_text("# \u05d0 ; import os ; \u05d1\nx = 1\n")
    (upper / "\u05d0 (staged)").write_bytes(b"\xff")
    text, binary = (staged.diff(change).text for change in staged.changes())
    _, _, behind = text.partition("+# \u05d0 ; import os ; \u05d1\n")
    note = "! runs from right to left; exactly: "
    assert behind == f"{note}+# \\u05d0 ; import os ; \\u05d1\n+x = 1"
    _, _, behind = binary.partition("\n")
    assert behind == f"{note}{project}/\\u05d0 (staged): not a text, or too large to be shown"


def test_the_users_own_files_are_listed_before_all_that_are_new(upper, project, staged):
    for name in ("run.sh", "zz"):
        (project / name).write_text("the user's")
    (upper / "run.sh").write_text("evil")
    os.mknod(upper / "zz", stat.S_IFCHR, 0)
    for number in range(120):
        (upper / f"a{number:03}").write_text("x")
    kinds = [(change.path, change.kind) for change in staged.changes()[:3]]
    assert kinds == [("run.sh", "changed"), ("zz", "deleted"), ("a000", "new")]


def test_a_root_whose_way_became_a_link_is_not_read(upper, staged, tmp_path):
    (upper / "old").write_text("after")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "project").mkdir()
    (tmp_path / "private" / "project" / "old").write_text("SECRET")
    moved = changes.Staged(
        "one", ((f"{tmp_path}/way/project", *staged.layers[0][1:]),), time.time()
    )
    (tmp_path / "way").symlink_to("private")
    (change,) = moved.changes()
    assert change.kind == "new"
    assert "SECRET" not in moved.diff(change)


def test_folders_of_sessions_that_never_began_are_removed(upper, staged):
    store = upper.parent.parent.parent
    for name, age in (("orphan", 7_200), ("starting", 1)):
        (store / name / "0" / "upper").mkdir(parents=True)
        os.utime(store / name, (time.time() - age, time.time() - age))
    os.close(changes.begin(staged).lock)
    changes.sweep()
    assert sorted(path.name for path in store.iterdir()) == ["one", "starting"]


def test_of_a_secret_in_a_denied_place_a_listing_has_the_name_alone(upper, project, staged):
    layers = ((*staged.layers[0][:2], (".env", ".env.local", "secret")),)
    denying = changes.replace(staged, layers=layers)
    (project / ".env").write_text("KEY=yours")
    for name in (".env", "secret"):
        (upper / name).write_text("KEY=the cells'")
    os.mknod(upper / ".env.local", stat.S_IFCHR, 0)
    (listed,) = denying.changes()
    assert (listed.path, listed.kind, listed.size, listed.before) == (".env", "new", None, None)
    assert listed.why_not == "files of this name hold secrets"
    assert denying.diff(listed).text == f"{project}/.env: not shown, as the policy denies it"
    denying.settle([listed])
    assert denying.changes() == []


def test_what_is_never_kept_has_its_size(upper, staged):
    (upper / "AGENTS.md").write_text("four")
    (upper / ".git").mkdir()
    assert [(one.path, one.size) for one in staged.changes()] == [(".git", None), ("AGENTS.md", 4)]
