"""Files of a hostile folder are copied out: what is meant and has changed, and nothing else."""

import os
import resource
import shutil
import signal
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from cellblock.descriptors import FOLDER, open_unlinked
from cellblock.host.services import artifacts
from cellblock.host.services.artifacts import ArtifactCollector, Patterns
from support.simulator import Reactor


def open_folder(path):
    return open_unlinked(path, FOLDER)


class Place:
    """A folder that cells write, one for copies, and what lies outside."""

    def __init__(self, root):
        self.scratch, self.folder = root / "scratch", root / "folder"
        self.scratch.mkdir()
        self.secret = root / "secret"
        self.secret.write_text("secret")
        self.reactor = Reactor()
        self.exports = self.exporting()

    def exporting(self, *patterns, **limits):
        asked = [f"{self.scratch}/{one}" for one in patterns or ("**/*",)]
        limits = {
            "max_bytes": 1 << 20,
            "max_total_bytes": 4 << 20,
            "open_folder": open_folder,
        } | limits
        made = ArtifactCollector(
            self.reactor, (str(self.scratch),), Patterns.of(asked), str(self.folder), **limits
        )
        made.begin()
        return made

    def write(self, name, content=b"x"):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def cell_ends(self):
        found = []
        self.exports.after_cell(found.append)
        self.reactor.advance(1)
        (result,) = found
        return result

    def names(self):
        return [one.name for one in self.cell_ends().artifacts]

    def why(self):
        result = self.cell_ends()
        assert not result.artifacts
        return {one.name: one.why for one in result.skipped}


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.exports.close()


def test_what_a_cell_wrote_is_copied_and_told_by_content(place):
    place.write("plots/a.png", b"\x89PNG\r\n\x1a\n\0")
    (artifact,) = place.cell_ends().artifacts
    assert artifact.as_dict() == {
        "name": "plots/a.png",
        "path": f"{place.folder}/plots/a.png",
        "size_bytes": 9,
        "content_type": "image/png",
    }
    assert (place.folder / "plots/a.png").read_bytes() == b"\x89PNG\r\n\x1a\n\0"


def test_only_what_changed_since_is_copied_again_and_in_its_place(place):
    place.write("a", b"1")
    place.write("b", b"1")
    assert sorted(place.names()) == ["a", "b"]
    assert not place.cell_ends()
    place.write("a", b"22")
    assert place.names() == ["a"]
    assert (place.folder / "a").read_bytes() == b"22"
    assert names_in(place.folder) == ["a", "b"]


def test_what_is_not_meant_or_was_there_before_the_first_cell_stays(place):
    place.write("earlier.csv")
    place.exports = place.exporting("*.csv")
    for name in ("a.csv", "a.txt", "in/a.csv", ".ipython/a.csv"):
        place.write(name)
    assert place.names() == ["a.csv"]


def test_a_session_copies_so_many_files_and_says_so_of_the_rest(place, monkeypatch):
    monkeypatch.setattr("cellblock.host.services.artifacts.MAX_PER_SESSION", 2)
    for name in ("a", "b"):
        place.write(name)
    assert sorted(place.names()) == ["a", "b"]
    place.write("c")
    assert place.why() == {"c": "the session has copied 2 already"}
    place.write("a", b"22")
    assert place.names() == ["a"]  # it takes the place of its earlier copy


def test_what_the_user_has_there_is_never_written_to(place):
    place.folder.mkdir()
    (place.folder / "a.csv").write_text("mine")
    (place.folder / "b.csv").symlink_to(place.secret)
    place.write("a.csv")
    place.write("b.csv")
    assert sorted(place.names()) == ["a-2.csv", "b-2.csv"]
    assert (place.folder / "a.csv").read_text() == "mine"
    assert place.secret.read_text() == "secret"


@pytest.mark.parametrize("replaced", [True, False])
def test_a_copy_that_the_user_replaced_or_wrote_to_is_not_written_to(place, replaced):
    place.write("a", b"1")
    place.cell_ends()
    if replaced:
        (place.folder / "a").unlink()  # the new file may get the old one's number
    (place.folder / "a").write_text("mine")
    place.write("a", b"22")
    assert place.names() == ["a-2"]
    assert (place.folder / "a").read_text() == "mine"


@pytest.mark.parametrize(
    ("link", "taken", "name"),
    [("folder", None, "a"), ("folder/in", None, "in/a"), ("folder/in-2", "folder/in", "in/a")],
)
def test_a_folder_that_is_a_link_takes_nothing(place, tmp_path, link, taken, name):
    (tmp_path / "else").mkdir()
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "else")
    if taken:
        (tmp_path / taken).touch()
    place.write(name)
    assert place.why() == {name: "it can't be copied: Not a directory"}
    assert not names_in(tmp_path / "else")


def test_a_file_that_becomes_a_folder_is_copied_beside_its_earlier_copy(place):
    place.write("a", b"1")
    assert place.names() == ["a"]
    (place.scratch / "a").unlink()
    place.write("a/b", b"2")
    place.write("a/c/d", b"3")
    assert sorted(place.names()) == ["a-2/b", "a-2/c/d"]
    assert (place.folder / "a").read_bytes() == b"1"
    assert (place.folder / "a-2/b").read_bytes() == b"2"
    place.write("a/b", b"22")
    assert place.names() == ["a-2/b"]
    assert (place.folder / "a-2/b").read_bytes() == b"22"
    (place.folder / "a-2/b").write_text("mine")
    place.write("a/b", b"333")
    (artifact,) = place.cell_ends().artifacts
    assert (artifact.name, artifact.path) == ("a-2/b-2", f"{place.folder}/a-2/b-2")
    assert (place.folder / "a-2/b-2").read_bytes() == b"333"
    assert (place.folder / "a-2/b").read_text() == "mine"


def test_a_folder_that_becomes_a_file_is_copied_beside_its_earlier_copies(place):
    place.write("a/b", b"1")
    assert place.names() == ["a/b"]
    shutil.rmtree(place.scratch / "a")
    place.write("a", b"2")
    assert place.names() == ["a-2"]
    assert (place.folder / "a/b").read_bytes() == b"1"


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo])
def test_what_the_user_has_by_a_folders_name_is_left_alone(place, monkeypatch, make):
    monkeypatch.setattr(artifacts, "_MAX_NUMBER", 3)
    place.folder.mkdir()
    make(place.folder / "in.d")
    before = (place.folder / "in.d").lstat()
    place.write("in.d/a")
    assert place.names() == ["in-2.d/a"]
    assert (place.folder / "in.d").lstat() == before
    for name in ("on", "on-2"):
        make(place.folder / name)
    place.write("on/a")
    assert place.why() == {"on/a": "a thousand others have its name"}


def test_links_to_files_and_folders_are_not_followed_nor_hard_ones_copied(place):
    (place.scratch / "passwd").symlink_to("/etc/passwd")
    (place.scratch / "etc").symlink_to("/etc")
    (place.scratch / "mine").hardlink_to(place.secret)
    link = "it is a link"
    hard = "it has another name (a hard link)"
    assert place.why() == {"passwd": link, "etc": link, "mine": hard}
    assert not place.cell_ends()  # told once


def test_pipes_sockets_and_devices_are_no_files_and_nothing_waits(place):
    os.mkfifo(place.scratch / "pipe")
    if os.getuid() == 0:
        os.mknod(place.scratch / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    assert set(place.why().values()) == {"it is not a file"}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path, _: os.mkfifo(path), "it is not a regular file"),
        (Path.symlink_to, "it can't be read: Too many levels of symbolic links"),
    ],
)
def test_a_pipe_or_link_put_in_a_files_place_meanwhile_is_not_read(place, monkeypatch, make, why):
    path, real, done = place.write("a"), os.open, []

    def swap(name, flags, *rest, **keywords):
        if name == "a" and not done:
            path.unlink()
            done.append(make(path, place.secret))
        return real(name, flags, *rest, **keywords)

    monkeypatch.setattr("cellblock.host.services.artifacts.os.open", swap)
    assert place.why() == {"a": why}


def test_a_folder_made_a_link_meanwhile_leads_nowhere(place, tmp_path, monkeypatch):
    place.write("in/a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("secret")
    real = os.open

    def swap(name, flags, *rest, **keywords):
        inner = place.scratch / "in"
        if name == "in" and not inner.is_symlink():
            inner.rename(tmp_path / "moved")
            inner.symlink_to(tmp_path / "outside")
        return real(name, flags, *rest, **keywords)

    monkeypatch.setattr("cellblock.host.services.artifacts.os.open", swap)
    assert not place.cell_ends()


def test_a_folder_above_a_root_made_a_link_leads_nowhere(place, tmp_path):
    (tmp_path / "outside" / "in").mkdir(parents=True)
    (tmp_path / "outside" / "in" / "a").write_text("secret")
    place.write("above/in/known")
    root = f"{place.scratch}/above/in"
    made = ArtifactCollector(
        place.reactor,
        (root,),
        Patterns.of([f"{root}/*"]),
        str(place.folder),
        max_bytes=9,
        max_total_bytes=9,
        open_folder=open_folder,
    )
    made.begin()
    place.exports, _ = made, place.exports.close()
    (place.scratch / "above").rename(place.scratch / "away")
    (place.scratch / "above").symlink_to(tmp_path / "outside")
    assert not place.cell_ends()


def test_a_sparse_file_of_a_terabyte_costs_nothing(place):
    with place.write("huge").open("r+b") as file:
        file.truncate(1 << 40)
    assert place.why() == {"huge": "it is larger than 1,048,576 bytes (artifact_max_bytes)"}
    assert not place.folder.exists() or not names_in(place.folder)


def test_a_file_that_grows_while_it_is_copied_is_left_out_at_its_cap(place, monkeypatch):
    path, real = place.write("a", b"x" * 1000), os.read

    def grow(fd, size):
        block = real(fd, size)
        if path.stat().st_size < 20 << 20:
            with path.open("ab") as file:
                file.write(b"x" * (1 << 20))
        return block

    monkeypatch.setattr("cellblock.host.services.artifacts.os.read", grow)
    assert place.why() == {"a": "it is larger than 1,048,576 bytes (artifact_max_bytes)"}
    assert names_in(place.folder) == []


def test_all_files_together_are_bounded_and_a_new_copy_takes_the_old_ones_room(place):
    place.exports = place.exporting(max_total_bytes=1500)
    place.write("a", b"x" * 1000)
    assert place.names() == ["a"]
    place.write("b", b"x" * 1000)
    assert place.why() == {"b": "no more than 500 bytes are left (artifacts_max_bytes)"}
    place.write("a", b"x" * 1400)
    assert place.names() == ["a"]


@pytest.mark.parametrize(
    ("bound", "pattern", "copied"),
    [((artifacts, "MAX_PER_CELL", 5), "**/*", 5), ((artifacts, "MAX_ENTRIES", 10), "*.csv", 0)],
)
def test_files_and_entries_without_number_are_bounded_and_said_to_be(
    place, monkeypatch, bound, pattern, copied
):
    monkeypatch.setattr(*bound)
    place.exports = place.exporting(pattern)
    for number in range(20):
        place.write(f"{number}.txt")
    result = place.cell_ends()
    assert (len(result.artifacts), result.uncounted) == (copied, True)


def test_folders_without_end_are_bounded(place, monkeypatch):
    monkeypatch.chdir(place.scratch)
    for _ in range(200):
        Path("d").mkdir()
        os.chdir("d")
    Path("a").touch()
    assert not place.cell_ends()


def test_no_descriptor_is_left_open(place):
    for number in range(10):
        place.write(f"in/{number}")
    (place.scratch / "link").symlink_to("/")
    place.cell_ends()
    place.exports.close()
    before = len(names_in(Path("/proc/self/fd")))
    place.exports = place.exporting()
    place.write("in/more")
    place.cell_ends()
    place.exports.close()
    assert len(names_in(Path("/proc/self/fd"))) == before


@pytest.mark.parametrize(
    ("names", "copies"),
    [
        (
            ("<b>.csv", "a\nb.csv", "a\u202eb.csv", os.fsdecode(b"\xff.csv")),
            ["_.csv", "_b_.csv", "a b.csv", "a_b.csv"],
        ),
        (("a<", "a>"), ["a_", "a_-2"]),  # which become one
    ],
)
def test_names_with_markup_line_breaks_and_marks_are_copied_under_harmless_ones(
    place, names, copies
):
    for name in names:
        place.write(name)
    assert sorted(place.names()) == copies


def test_a_disk_that_is_full_costs_the_artifact_and_leaves_no_half(place):
    place.write("a", b"x" * 10_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        why = place.why()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert why == {"a": "it can't be copied: File too large"}
    assert names_in(place.folder) == []


def test_a_fault_of_ours_costs_artifacts_and_not_the_end_of_a_cell(place, monkeypatch, capsys):
    monkeypatch.setattr(ArtifactCollector, "_copy", lambda *_: 1 / 0)
    place.write("a")
    assert not place.cell_ends()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_others_have_their_turn_while_folders_are_locked_as_has_the_end_of_a_session(
    place, monkeypatch
):
    threads, found = [], []
    monkeypatch.setattr("cellblock.host.threads._start", threads.append)
    place.write("a")
    for _ in range(2):
        place.exports.after_cell(found.append)
    place.reactor.advance(60)
    assert (found, len(threads)) == ([], 2)
    threads[0]()
    place.reactor.advance(1)
    assert [len(one.artifacts) for one in found] == [1]
    place.write("b")
    place.exports.close()
    threads[1]()
    place.reactor.advance(1)
    assert len(found) == 1
    assert [path.name for path in place.folder.iterdir()] == ["a"]


def test_a_file_with_holes_is_copied_with_its_holes(place):
    made = place.write("large", b"head")
    os.truncate(made, 1 << 20)
    (copied,) = place.cell_ends().artifacts
    found = Path(copied.path).stat()
    assert found.st_size == 1 << 20
    assert found.st_blocks * 512 < 1 << 19
    assert copied.sha256 == sha256(made.read_bytes()).hexdigest()
