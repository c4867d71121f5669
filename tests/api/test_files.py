"""Files of a sandbox by the names that cells use: where cells begin, with or without a project."""

import asyncio
import io
import mmap
import os
import time
from pathlib import Path

import pytest

from cellblock import AsyncSandbox, File, Policy, Sandbox, SandboxPool
from cellblock.errors import ExchangeError, GuestError, PolicyError
from cellblock.host.services import exchange
from support import machines

WHY_NOT = machines.no_bubblewrap()
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"no bubblewrap: {WHY_NOT}")
BACKENDS = ["landlock", pytest.param("bubblewrap", marks=needs_bwrap)]
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def project(tmp_path):
    """A project of the user's, with a secret beside it and one in it."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "mine.csv").write_text("mine")
    (folder / "data" / "old.csv").write_text("old")
    (folder / ".env").write_text("key")
    (tmp_path / "secret").write_text("secret")
    return folder


def contents(folder):
    """Return all that is in a folder of the user's."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    if request.param == "bubblewrap":
        monkeypatch.setenv("PATH", machines.WITH_BUBBLEWRAP)
    return request.param


@pytest.fixture
def staging(backend, project):
    """A sandbox that begins in the project, which is staged."""
    with Sandbox(Policy.preset("data", backend=backend), project=project) as one:
        assert one.backend == backend
        yield one


@pytest.fixture(params=[False, True], ids=["private", "staged"])
def has_project(request):
    return request.param


@pytest.fixture
def either(backend, has_project, project):
    """A sandbox with a project, and one without."""
    policy = Policy.preset("data", backend=backend)
    with Sandbox(policy, project=project if has_project else None) as one:
        yield one


@pytest.mark.quick
def test_a_file_has_the_same_name_for_program_and_cells(either, tmp_path, project):
    before, s = contents(project), either
    (tmp_path / "sales.csv").write_text("a,b\n1,2\n")
    path = s.upload(tmp_path / "sales.csv")
    assert s.execute("open('sales.csv').read()").value == "a,b\n1,2\n"
    assert s.execute(f"open({path!r}).read()").value == "a,b\n1,2\n"
    s.execute("import os; os.mkdir('plots'); open('plots/chart.txt', 'w').write('picture')")
    s.download("plots/chart.txt", tmp_path / "chart.txt")
    assert (tmp_path / "chart.txt").read_text() == "picture"
    assert s.read("./plots/chart.txt") == s.read(f"{Path(path).parent}/plots/chart.txt")
    assert s.files(changed=True) == (File("plots/chart.txt", 7, changed=True),)
    assert File("sales.csv", 8, changed=False) in s.files()
    s.execute("open('sales.csv', 'a').write('3,4')")
    assert {one.name for one in s.files(changed=True)} == {"plots/chart.txt", "sales.csv"}
    s.write("sales.csv", "anew")
    assert s.execute("open('sales.csv').read()").value == "anew"
    assert {one.name for one in s.files(changed=True)} == {"plots/chart.txt"}
    assert contents(project) == before


def test_in_a_project_names_mean_what_cells_see(staging, project):
    assert staging.read("mine.csv") == b"mine"
    staging.execute("import os; open('mine.csv', 'a').write('!'); os.remove('data/old.csv')")
    assert staging.read("mine.csv") == b"mine!"
    with pytest.raises(ExchangeError, match=r"data/old\.csv .*No such file"):
        staging.read("data/old.csv")
    assert staging.files() == (File("mine.csv", 5, changed=True),)
    staging.write("data/old.csv", b"new")
    assert staging.execute("open('data/old.csv').read()").value == "new"
    assert staging.files("data") == (File("data/old.csv", 3, changed=False),)
    assert contents(project)["mine.csv"] == "mine"
    assert [one.path for one in staging.keep("data/old.csv")] == ["data/old.csv"]
    assert contents(project) == {".env": "key", "mine.csv": "mine", "data/old.csv": "new"}


def test_what_cells_are_denied_is_not_there_for_the_program_either(staging):
    with pytest.raises(ExchangeError, match=r"\.env .*No such file"):
        staging.read(".env")
    staging.execute("open('mine.csv', 'a').write('!')")
    assert staging.execute("%policy narrow add.read_deny_paths=['mine.csv']").success
    with pytest.raises(ExchangeError, match=r"mine\.csv"):
        staging.read("mine.csv")
    assert [one.name for one in staging.files()] == ["data/old.csv"]
    assert staging.files(changed=True) == ()


LINKS = """
import os
os.symlink('/etc/passwd', 'passwd')
os.symlink({secret!r}, 'secret')
os.symlink({outside!r}, 'outside')
os.symlink('/', 'root')
os.mkdir('own')
open('one', 'w').close()
os.link('one', 'two')
for make in (lambda: os.mkfifo('pipe'), lambda: os.mknod('device', 0o20600, os.makedev(1, 3))):
    try: make()
    except OSError: pass
"""


def test_no_name_leads_out_of_the_folder(either, tmp_path):
    before, s = contents(tmp_path), either
    links = LINKS.format(secret=str(tmp_path / "secret"), outside=str(tmp_path))
    assert s.execute(links).success
    names = [
        *("passwd", "secret", "outside/secret", "root/etc/passwd", "pipe", "device", "own", "one"),
        *("..", "../secret", "own/../../secret", "/etc/passwd", str(tmp_path / "secret"), "", "."),
        *("~/../secret", "/", "a\0b", "own/" * 40 + "x"),
    ]
    for name in names:
        with pytest.raises(ExchangeError):
            s.read(name)
        with pytest.raises(ExchangeError):
            s.download(name, tmp_path / "taken")
    for name in ("outside/x", "root/tmp/x", "own", "..", "../x", "/etc/x", str(tmp_path / "x")):
        with pytest.raises(ExchangeError):
            s.upload(b"new", name)
    for name in ("outside", "root/etc", "..", "/etc", "passwd"):
        with pytest.raises(ExchangeError):
            s.files(name)
    listed = {one.name for one in s.files()}
    assert listed.isdisjoint({"passwd", "secret", "outside/secret", "pipe", "device"})
    s.upload(b"new", "secret")  # the link is replaced, and not what it names
    assert s.execute("open('secret').read()").value == "new"
    assert contents(tmp_path) == before


def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(tmp_path):
    """Cells swap a folder and a link as fast as they can; the program reads and writes through."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    swap = f"""
import os, threading
os.mkdir('real'); open('real/f', 'w').write('own'); os.symlink({str(outside)!r}, 'link')
def swap():
    while not os.path.exists('stop'):
        for one, other in (('real', 'at'), ('at', 'real'), ('link', 'at'), ('at', 'link')):
            os.rename(one, other)
threading.Thread(target=swap).start()
"""
    with Sandbox("data") as s:
        assert s.execute(swap).success
        found = set()
        for number in range(400):
            for use in (lambda: s.read("at/f"), lambda n=number: s.write("at/g", f"{n}")):
                try:
                    found.add(use())
                except ExchangeError:
                    continue
        s.write("stop", b"")
        assert b"secret" not in found
    assert contents(outside) == {"f": "secret"}


def test_what_is_too_large_does_not_cross():
    policy = Policy.preset("data", scratch_max_bytes=2**20)

    class Endless(io.RawIOBase):
        def read(self, size=-1):
            return bytes(size)

    with Sandbox(policy) as s:
        for source in (bytes(2**20 + 1), io.BytesIO(bytes(2**20 + 1)), Endless()):
            with pytest.raises(ExchangeError, match="scratch_max_bytes is 1,048,576"):
                s.upload(source, "large")
        s.execute("import os\nos.truncate(os.open('f', 66), 10**6)")
        with pytest.raises(ExchangeError, match="1,000,000 bytes; max_bytes is 100"):
            s.read("f", max_bytes=100)
        assert [one.name for one in s.files()] == ["f"]


def test_more_files_than_can_be_listed_are_an_error_and_not_a_part(monkeypatch):
    monkeypatch.setattr(exchange, "MOST_ENTRIES", 10)
    with Sandbox("data") as s:
        s.execute("import os\nos.mkdir('d')\nfor n in range(11): open(f'd/{n}', 'w').close()")
        with pytest.raises(ExchangeError, match="more than 10 entries"):
            s.files()
        s.execute("os.makedirs('/'.join('e' * 40))\nfor n in range(5): os.remove(f'd/{n}')")
        monkeypatch.setattr(exchange, "MOST_ENTRIES", 1_000)
        with pytest.raises(ExchangeError, match="32 folders"):
            s.files()
        assert len(s.files("d")) == 6


def test_bytes_and_open_files_are_uploaded(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"path")
    with Sandbox("safe") as s, (tmp_path / "a.bin").open("rb") as file:
        s.upload(file)
        file.seek(2)
        s.upload(file, "rest")
        s.upload(io.BytesIO(b"buffer"), "sub/b")
        s.upload(memoryview(b"view"), "c")
        s.write("d", "text \N{SNOWMAN}")
        got = {one.name: s.read(one.name) for one in s.files()}
        assert got == {
            "a.bin": b"path",
            "c": b"view",
            "d": "text \N{SNOWMAN}".encode(),
            "rest": b"th",
            "sub/b": b"buffer",
        }
        with pytest.raises(TypeError, match="open it with mode 'rb'"):
            s.upload(io.StringIO("text"), "e")
        with pytest.raises(ValueError, match="the source has no name"):
            s.upload(b"bytes")
        assert len(s.files()) == 5


def test_what_a_thread_of_a_cell_writes_to_while_it_is_uploaded_is_changed():
    class Dirtied(io.BytesIO):
        """A source after whose first part a cell writes to the copy, which has a name already."""

        def read(self, size=-1):
            data = super().read(size)
            if not data:
                (copy,) = (path for path in folder.iterdir() if len(path.name) == 33)
                times = copy.stat()
                copy.write_bytes(b"c" * 3)
                os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
            return data

    with Sandbox(Policy.preset("unsafe", backend="landlock"), allow_unsafe=True) as one:
        folder = Path(one.execute("import os; os.getcwd()").value)
        one.upload(Dirtied(b"abc"), "dirtied")
        one.upload(b"abc", "clean")
        for _ in range(2):
            assert one.files() == (
                File("clean", 3, changed=False),
                File("dirtied", 3, changed=True),
            )
        assert one.files(changed=True) == (File("dirtied", 3, changed=True),)
        assert one.execute("open('clean', 'w').write('abd')").value == 3
        assert [file.changed for file in one.files()] == [True, True]


def test_what_a_cell_has_mapped_since_the_upload_is_changed_when_it_writes_there():
    mapped = []

    class Mapped(io.BytesIO):
        """A source after whose first part a cell maps the copy and writes to that."""

        def read(self, size=-1):
            data = super().read(size)
            if not data:
                (copy,) = (path for path in folder.iterdir() if len(path.name) == 33)
                with copy.open("r+b") as file:
                    mapped.append(mmap.mmap(file.fileno(), 3))
                mapped[0][0] = mapped[0][0]
            return data

    with Sandbox(Policy.preset("unsafe", backend="landlock"), allow_unsafe=True) as one:
        folder = Path(one.execute("import os; os.getcwd()").value)
        one.upload(Mapped(b"abc"), "mapped")
        assert one.files(changed=True) == ()
        time.sleep(0.2)  # longer than a tick of the clock that files' times are of
        assert one.files(changed=True) == ()
        mapped[0][:] = b"abd"  # which changes no time
        assert one.files(changed=True) == (File("mapped", 3, changed=True),)


def test_folders_in_which_files_are_looked_for_are_opened_once_each(tmp_path, monkeypatch):
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    for number in range(100):
        (deep / str(number)).touch()
    names = [str(path.relative_to(tmp_path)) for path in deep.iterdir()]
    folder, opened, real = os.open(tmp_path, os.O_RDONLY), [], os.open
    monkeypatch.setattr(
        os, "open", lambda *each, **more: opened.append(each) or real(*each, **more)
    )
    found = exchange.find(folder, [*names, "a-b", "a/none/x", "a/b"])
    assert sorted(name for name, _ in found) == sorted(names)
    assert len(opened) < 20


def test_a_pipe_is_not_waited_for_and_no_source(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with Sandbox("safe") as s, pytest.raises(ExchangeError, match="not a regular file"):
        s.upload(tmp_path / "pipe", "x")


def test_links_that_cells_make_lead_the_program_nowhere(project, tmp_path):
    policy = Policy.preset(
        "data",
        filesystem_read_roots=("{project}",),
        filesystem_write_roots=("{scratch}", "{project}/data"),
        filesystem_staged_roots=(),
    )
    other, data = tmp_path / "other", project / "data"
    other.mkdir()
    with Sandbox(policy, project=project) as saved:
        saved.save(other / "session")
    before = (other / "session").read_bytes()
    (tmp_path / "own").symlink_to(other)
    cell = f"""
import os
os.symlink({str(tmp_path / "secret")!r}, 'data/report')
os.symlink({str(other)!r}, 'data/sub')
open(os.path.expanduser('~/made'), 'w').write('made')
"""
    with Sandbox(policy, project=project) as s:
        assert s.execute(cell).success
        assert (data / "report").read_text() == "secret"
        for use in (
            lambda: s.upload(data / "report", "~/x"),
            lambda: s.upload(data / "sub" / "session", "~/x"),
            lambda: s.download("~/made", data / "sub" / "session"),
            lambda: s.save(data / "sub" / "session"),
            lambda: s.load(data / "sub" / "session"),
        ):
            with pytest.raises(OSError, match="a link leads there that cells could change"):
                use()
        assert [one.name for one in other.iterdir()] == ["session"]
        assert (other / "session").read_bytes() == before
        s.load(tmp_path / "own" / "session")
        s.upload(tmp_path / "own" / "session", "~/x")
        s.download("~/made", tmp_path / "own" / "made")
        s.download("~/made", data / "report")  # the link is replaced
        assert ((other / "made").read_text(), (data / "report").read_text()) == ("made", "made")
    assert (tmp_path / "secret").read_text() == "secret"


# --- without a project ----------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("policy", ["data", "safe"])
def test_without_a_project_the_programs_folder_is_out_of_reach(policy, tmp_path, monkeypatch):
    (tmp_path / "sales.csv").write_text("secret")
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    with Sandbox(policy) as s:
        assert s.policy.filesystem_staged_roots == s.policy.filesystem_read_roots == ()
        assert s.changes() == ()
        with pytest.raises(ExchangeError):
            s.read("sales.csv")
        if policy == "data":
            for name in ("sales.csv", str(tmp_path / "sales.csv")):
                failed = s.execute(f"open({name!r})")
                assert failed.error.type in ("FileNotFoundError", "PermissionError")
            assert s.execute("open('out.csv', 'w').write('x')").success
    assert contents(tmp_path) == {"sales.csv": "secret"}


def test_a_scratch_folder_in_a_repository_is_no_project(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Sandbox("data") as s:
        assert not s.execute(f"open({str(tmp_path / 'mine')!r})").success
        assert not s.execute("open('../../mine')").success


def test_what_a_policy_says_of_the_project_grants_nothing_without_one(project):
    policy = Policy.preset(
        "data",
        filesystem_read_roots=("{project}", "{checkout}/data", "{project}/gone"),
        filesystem_write_roots=("{scratch}", "{project}/data"),
    )
    with Sandbox(policy) as s:
        assert s.policy.filesystem_read_roots == ()
        assert s.execute("import os; os.getcwd()").value == s.policy.filesystem_write_roots[0]
    reading = Policy.preset("safe", ops={"read_file": {"roots": ["{project}"]}})
    with pytest.raises(PolicyError, match=r"ops\.read_file\.roots: there is no project.*project="):
        Sandbox(reading).open()
    with Sandbox(reading, project=project) as s:
        assert s.execute("ops.read_file('mine.csv')").value == "mine"


def test_sandboxes_of_a_pool_have_nothing_of_each_other():
    with SandboxPool("data") as pool, pool.sandbox() as one, pool.sandbox() as other:
        path = one.upload(b"secret", "f")
        assert other.files() == ()
        for name in ("f", path, "../1/f"):
            with pytest.raises(ExchangeError):
                other.read(name)
            assert not other.execute(f"open({name!r})").success
        with pytest.raises(ExchangeError):
            other.upload(b"forged", path)
        assert one.read("f") == b"secret"


def test_a_missing_file_says_how_files_come_in():
    policy = Policy.preset("safe", add={"allowed_modules": ["pandas"]})
    with Sandbox(policy) as s:
        refusal = s.execute("import pandas\npandas.read_csv('sales.csv')").refusal
        assert refusal.what == "cells begin in a folder of their own, and there is no project"
        assert refusal.remedy.instead.startswith(
            "have the program upload the file, or name a project"
        )


# --- forks, kills, other policies -----------------------------------------------------------------


def test_a_fork_reads_what_is_staged_and_has_a_folder_of_its_own(staging, project):
    staging.write("given", "1")
    staging.execute("open('made', 'w').write('2')")
    before = contents(project)
    (fork,) = staging.fork(1)
    assert (fork.read("given"), fork.read("made"), fork.read("mine.csv")) == (b"1", b"2", b"mine")
    assert fork.files(changed=True) == (File("made", 1, changed=True),)
    with pytest.raises(ExchangeError, match=r"not staged\. .* folder is ~, as in ~/x"):
        fork.upload(b"x", "x")
    own = fork.upload(b"x", "~/x")
    assert fork.execute(f"open({own!r}).read()").value == "x"
    assert fork.files("~") == (File(own, 1, changed=False),)
    assert fork.read(own) == b"x"
    for one, name in ((staging, own), (staging, f"~/{'/'.join(own.split('/')[-2:])}")):
        with pytest.raises(ExchangeError, match="is not a file of the sandbox"):
            one.read(name)
    with pytest.raises(ExchangeError, match="is not a file of the sandbox"):
        staging.files(str(Path(own).parent))
    (alike,) = staging.fork(1, shares_files=True)
    alike.write("shared", "3")
    assert staging.read("shared") == b"3"
    assert {one.name for one in staging.files(changed=True)} == {"made"}
    assert contents(project) == before


def test_files_are_there_after_a_killed_cell(staging):
    staging.write("given", "1")
    staging.execute("open('made', 'w').write('2')")
    assert staging.execute("import os\nos.kill(os.getpid(), 9)").stop.state == "restored"
    assert (staging.read("given"), staging.read("made")) == (b"1", b"2")
    assert staging.execute("open('given').read()").value == "1"


def test_where_cells_write_to_the_project_as_it_is_the_program_does_not(project):
    """As where nothing can be staged: only keep() changes the user's files."""
    policy = Policy.preset(
        "data",
        filesystem_read_roots=("{project}",),
        filesystem_write_roots=("{scratch}", "{project}/data"),
        filesystem_staged_roots=(),
    )
    with Sandbox(policy, project=project) as s:
        for name in ("x", "data/x", "data/old.csv"):
            with pytest.raises(ExchangeError, match=r"not staged\. .* as in ~/"):
                s.upload(b"new", name)
        with pytest.raises(ExchangeError, match="not a file that cells have"):
            s.read(".env")
        s.execute("open('data/made', 'w').write('made')")
        assert s.read("data/made") == b"made"
        assert s.files("data", changed=True) == (File("data/made", 4, changed=True),)
        path = s.upload(b"new", "~/x")
        assert s.execute(f"open({path!r}).read()").value == "new"
    assert contents(project) == {
        ".env": "key",
        "mine.csv": "mine",
        "data/old.csv": "old",
        "data/made": "made",
    }


def test_cwd_is_where_names_begin(project):
    with Sandbox("data", project=project, cwd=project / "data") as s:
        assert s.read("old.csv") == b"old"
        s.write("new.csv", "new")
        assert s.execute("open('new.csv').read()").value == "new"
        with pytest.raises(ExchangeError):
            s.read("../mine.csv")


def test_on_a_loop_it_is_the_same():
    async def use():
        async with AsyncSandbox("safe") as s:
            await s.write("a", "text")
            return await s.read("a"), await s.files()

    assert asyncio.run(use()) == (b"text", (File("a", 4, changed=False),))
    with pytest.raises(GuestError, match="is not open"):
        Sandbox("safe").read("a")


@pytest.fixture
def partly(backend, project):
    """A sandbox of a project in which a folder is staged, and the rest is only read."""
    (project / "data" / ".env").write_text("key")
    policy = Policy.preset("data", backend=backend, filesystem_staged_roots=("{project}/data",))
    with Sandbox(policy, project=project) as one:
        yield one


def test_a_staged_folder_within_the_project_is_as_cells_see_it(partly, project):
    """The host would come from above to what the user has there."""
    before = contents(project)
    partly.write("data/old.csv", "new")
    partly.upload(b"made", "data/made.csv")
    partly.execute("open('data/cells.csv', 'w').write('cells')")
    assert partly.execute("open('data/old.csv').read()").value == "new"
    assert partly.read("data/cells.csv") == b"cells"
    with pytest.raises(ExchangeError):
        partly.read("data/.env")
    assert [one.name for one in partly.files()] == [
        "data/cells.csv",
        "data/made.csv",
        "data/old.csv",
    ]
    assert contents(project) == before


@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
def test_what_cells_may_not_read_by_now_the_program_does_not_read_as_a_file_of_theirs(
    staging, first
):
    if not first:
        staging.execute("open('made.csv', 'w').write('made')")
    narrowed = staging.execute('%policy narrow filesystem_read_roots=["data"]')
    assert narrowed.success, narrowed.to_string()
    assert staging.execute("open('data/old.csv').read()").value == "old"
    assert staging.execute("open('mine.csv').read()").error.type == "PermissionError"
    assert staging.read("data/old.csv") == b"old"
    for name in ("mine.csv", "made.csv"):
        with pytest.raises(ExchangeError, match="is not a file that cells have"):
            staging.read(name)
    assert [one.name for one in staging.files()] == ["data/old.csv"]
