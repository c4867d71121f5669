"""Packages for cells: wheels of the policy's index, within its list. Nothing is ever built."""

import io
import os
import re
import signal
import sys
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.host.services.operations import packages
from cellblock.host.services.operations.catalog import TRANSIENT
from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.operations.packages import Installer
from cellblock.host.services.tools import calls
from cellblock.policy import operations
from cellblock.policy.operations import Install as Table
from support.web import answer
from support.wheels import Index, wheel


@pytest.fixture(scope="module")
def index():
    """Return an index with some packages; tests add others."""
    with Index() as made:
        made.add("alpha-one", "1.0")
        made.add("alpha-one", "2.0")
        made.add("needy", "1.0", needs=("alpha-one<2", 'pytest; extra == "more"'))
        made.add("greedy", "1.0", needs=("unlisted",))
        made.add("unlisted", "1.0")
        made.add("pointing", "1.0", needs=("evil @ http://127.0.0.1:9/evil.tar.gz",))
        made.add("large", "1.0", size=2_000_000)
        made.add("here-already", "1.0", needs=("pytest",))
        made.files["sources-1.0.tar.gz"] = _sources("sources")
        yield made


def _sources(name):
    """Return a source distribution that says when it is run."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        code = b"raise SystemExit('it was run')\n"
        found = tarfile.TarInfo(f"{name}-1.0/setup.py")
        found.size = len(code)
        archive.addfile(found, io.BytesIO(code))
    return made.getvalue()


@pytest.fixture
def installer(index, tmp_path):
    """Return an installer, of these packages; unless ``real`` it runs neither uv nor pip."""

    def make(*allow, real=False, **changed):
        table = Table(index=index.url, allow=allow or ("alpha-one", "needy"))
        index.asked_for()
        made = replace(table, **{"timeout": 60.0} | changed)
        folder = str(tmp_path / "shelf")
        return Installer(made, folder) if real else Installer(made, folder, index.unpack)

    return make


@pytest.fixture
def silent():
    """An index that says nothing."""
    made = Index()
    made._say = lambda *_: made.wait(30) and b""
    yield made
    made.close()


def of(index, folder, timeout):
    table = Table(index=index.url, allow=("a",), max_bytes=10**6, timeout=timeout)
    return Installer(table, str(folder))


@pytest.fixture(params=["uv", "pip"])
def by(request, tmp_path, monkeypatch):
    """Have this one install, with a cache of its own and no second try."""
    if request.param == "pip":
        monkeypatch.setattr(operations, "find_uv", lambda: None)
    else:
        assert operations.find_uv(), "uv is among what tests need"
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
        passed = (*packages._ENVIRONMENT, "UV_HTTP_RETRIES", "UV_CACHE_DIR")
        monkeypatch.setattr(packages, "_ENVIRONMENT", passed)
    return request.param


@pytest.fixture
def retry(by, monkeypatch):
    """Have pip, too, try again so many times only."""

    def limit(times):
        command = packages._command
        retries = ["--retries", str(times)] if by == "pip" else []
        monkeypatch.setattr(packages, "_command", lambda *given: [*command(*given), *retries])

    return limit


def refusal(call, *args):
    with pytest.raises(OperationError) as refused:
        call(*args)
    return f"{refused.value.kind}: {refused.value.message}"


@pytest.mark.usefixtures("by")
def test_a_wheel_is_unpacked_once_and_shared_by_its_content(installer, index, tmp_path):
    told = []
    calls.progress_to.set(told.append)
    one = installer(real=True).install("Alpha_One")
    assert one["installed"] == ["alpha-one 2.0"]
    (path,) = one["paths"]
    assert path.startswith(f"{tmp_path}/shelf/lib/alpha-one-2.0-")
    sys.path.append(path)
    try:
        import alpha_one  # noqa: PLC0415

        assert alpha_one.version == "2.0"
    finally:
        sys.path.remove(path)
        sys.modules.pop("alpha_one", None)
    assert told == ["ops.install: fetching alpha-one …", "ops.install: alpha-one 2.0"]
    assert index.asked_for()
    # Another kernel's: it is there.
    assert installer().install("alpha-one") == one
    assert index.asked_for() == []


def test_what_a_package_needs_comes_along_in_versions_that_fit(installer):
    told = installer().install("needy", "alpha-one")
    assert told["installed"] == ["alpha-one 1.0", "needy 1.0"]
    assert len(told["paths"]) == 2
    # And so does the list say which.
    assert installer("alpha-one<2").install("alpha-one")["installed"] == ["alpha-one 1.0"]


def test_what_is_needed_has_to_be_listed_too(installer, index):
    said = refusal(installer("greedy").install, "greedy")
    assert said == "NotGranted: unlisted: greedy needs it, and it is not in allow of [ops.install]"
    assert index.asked_for() == ["greedy"]
    said = refusal(installer("pointing", "evil").install, "pointing")
    assert said == "NotGranted: pointing: it names what it needs by an address: evil"


def test_what_the_interpreter_has_is_not_installed_again(installer):
    told = installer("here-already").install("here-already")
    assert [one.split(" ")[0] for one in told["installed"]] == ["here-already", "pytest"]
    assert len(told["paths"]) == 1
    said = refusal(installer("pytest").install, "pytest<1")
    assert said.startswith("InstallError: pytest<1: the kernel's interpreter has ")


@pytest.mark.parametrize(
    "asked",
    [
        "unlisted",
        "alpha-one @ http://127.0.0.1:9/alpha.whl",
        "http://127.0.0.1:9/alpha.whl",
        "git+https://127.0.0.1/x",
        "./alpha",
        "/etc/passwd",
        "-r requirements.txt",
        "--index-url=http://127.0.0.1:9",
        "alpha-one --pre",
        "alpha-one; python_version > '3'",
        "alpha-one\nunlisted",
        "",
    ],
)
def test_what_is_not_in_the_list_is_not_looked_for(installer, index, asked):
    assert refusal(installer().install, asked).startswith(("NotGranted: ", "ValueError: "))
    assert index.asked_for() == []


@pytest.mark.usefixtures("by")
def test_sources_are_never_built_and_the_failure_is_remembered_until_it_is_cleared(
    installer, index, tmp_path
):
    made = installer("sources", real=True)
    said = refusal(made.install, "sources")
    assert said.startswith("InstallError: sources: ")
    assert said.endswith("(it is not tried again before `cellblock packages clear`)")
    assert "it was run" not in said
    assert str(tmp_path) not in said
    assert index.asked_for() == ["/simple/sources/"]
    began = time.monotonic()
    assert refusal(installer("sources").install, "sources") == said
    assert (index.asked_for(), time.monotonic() - began < 2) == ([], True)
    kept = packages.PackageStore(tmp_path / "shelf")
    assert [one["requirement"] for one in kept.failures()] == ["sources"]
    assert kept.clear(lambda one: one == "other", installed=False) == 0
    assert kept.clear(lambda one: one == "sources", installed=False) == 1
    index.add("sources", "2.0")
    assert installer("sources").install("sources")["installed"] == ["sources 2.0"]
    del index.files["sources-2.0-py3-none-any.whl"]


@pytest.mark.usefixtures("by")
def test_a_package_that_is_too_large_is_not_kept(installer, tmp_path):
    said = refusal(installer("large", real=True, max_bytes=1_000_000).install, "large")
    assert said.startswith("InstallError: large: ")
    assert list((tmp_path / "shelf" / "lib").iterdir()) == []
    assert list((tmp_path / "shelf" / "making").iterdir()) == []


def test_a_package_whose_files_are_too_large_together_is_not_kept(installer, tmp_path):
    said = refusal(installer("large", max_bytes=1_000_000).install, "large")
    assert re.search(r"it takes 2,\d{3},\d{3} bytes on disk; 1,000,000 may be \(max_bytes\)", said)
    assert list((tmp_path / "shelf" / "lib").iterdir()) == []


@pytest.mark.usefixtures("by")
def test_an_index_that_says_nothing_is_not_waited_for_longer_than_the_policy_says(silent, tmp_path):
    began = time.monotonic()
    said = refusal(of(silent, tmp_path, timeout=1.0).install, "a")
    assert said == "TimeoutError: a: it took too long ([ops.install] timeout)"
    assert time.monotonic() - began < 15
    assert packages.PackageStore(tmp_path).failures() == []


def test_an_index_that_refuses_connections_is_tried_again_by_the_next_call(
    retry, installer, index, tmp_path
):
    retry(1)
    made, origin = installer(real=True), index.url
    shelf = str(tmp_path / "shelf")
    away = replace(made._table, index="http://127.0.0.1:9/simple")
    said = refusal(Installer(away, shelf).install, "alpha-one")
    assert said == "ConnectError: alpha-one: its index can't be reached, or does not answer"
    assert packages.PackageStore(tmp_path / "shelf").failures() == []
    back = Installer(replace(away, index=origin), shelf)
    assert back.install("alpha-one")["installed"] == ["alpha-one 2.0"]


#: Where an index gives nothing for now, and how it says so.
GIVES_NOTHING = [
    ("/simple", "503 Service Unavailable"),
    ("/simple", "401 Unauthorized"),
    ("/simple", "429 Too Many Requests"),
    ("/files", "502 Bad Gateway"),
    ("/files", "401 Unauthorized"),
]


def test_an_index_that_gives_nothing_now_is_tried_again_by_the_next_call(
    retry, installer, index, tmp_path, monkeypatch
):
    retry(0)
    made, page = installer(real=True), index._say
    for where, status in GIVES_NOTHING:

        def say(path, head, where=where, status=status):
            return answer(status=status) if path.startswith(where) else page(path, head)

        with monkeypatch.context() as patched:
            patched.setattr(index, "_say", say)
            said = refusal(made.install, "alpha-one")
        assert said == "ConnectError: alpha-one: its index answers that it is not available now", (
            status
        )
        assert packages.PackageStore(tmp_path / "shelf").failures() == []
    assert made.install("alpha-one")["installed"] == ["alpha-one 2.0"]


@pytest.mark.parametrize(
    ("status", "said", "kind", "message"),
    [
        (
            2,
            "error: Failed to install: a\n  cause: No space left on device (os error 28)",
            "OSError",
            "this machine says: No space left on device",
        ),
        (
            2,
            "ERROR: Exception:\nTraceback\nOSError: [Errno 122] Disk quota exceeded: '/p/a'",
            "OSError",
            "this machine says: Disk quota exceeded",
        ),
        (-9, "", "OSError", "its installer was killed"),
        (-signal.SIGXFSZ, "", "InstallError", "it failed without a word"),
        (
            1,
            "ERROR: Could not install packages due to an OSError: [Errno 27] File too large",
            "InstallError",
            "Could not install packages due to an OSError: [Errno 27] File too large",
        ),
        (
            1,
            "ERROR: No matching distribution found for a503",
            "InstallError",
            "No matching distribution found for a503",
        ),
        (
            1,  # in words of newer pips
            (
                "ERROR: HTTPConnectionPool(host='h', port=1): Max retries exceeded with url: /a (Caused "
                "by ResponseError('too many 502 error responses'))"
            ),
            "ConnectError",
            "its index answers that it is not available now",
        ),
    ],
)
def test_only_what_is_the_package_s_own_is_remembered(status, said, kind, message):
    error = packages._install_error(status, said, "")
    assert (error.kind, error.message) == (kind, message)
    assert (kind in TRANSIENT) == (kind != "InstallError")


def test_uv_is_found_beside_the_interpreter_where_path_does_not_name_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert operations.find_uv() == str(Path(sys.executable).parent / "uv")


def test_a_call_that_is_cancelled_leaves_nothing_running_and_nothing_remembered(
    silent, tmp_path, monkeypatch
):
    class Stopped(BaseException):
        pass

    def sleep(seconds):
        if silent.asked:
            raise Stopped
        time_sleep(seconds)

    time_sleep = time.sleep
    monkeypatch.setattr(packages.time, "sleep", sleep)
    with pytest.raises(Stopped):
        of(silent, tmp_path, timeout=60.0).install("a")
    assert packages.PackageStore(tmp_path).failures() == []


def test_two_kernels_that_install_wait_for_each_other(tmp_path):
    kept, got = packages.PackageStore(tmp_path), []
    kept.prepare({})

    def enter():
        with kept.locked(time.monotonic() + 10):
            got.append("in")

    with kept.locked(time.monotonic() + 5):
        assert refusal(kept.locked(time.monotonic() + 0.1).__enter__).startswith("TimeoutError: ")
        thread = threading.Thread(target=enter)
        thread.start()
    thread.join(10)
    assert got == ["in"]


def test_a_folder_is_named_for_its_content_and_nothing_else(tmp_path):
    hashes = []
    for name, text, by in (("a", "1", "pip"), ("b", "1", "uv"), ("c", "2", "pip")):
        info = tmp_path / name / "x.dist-info"
        info.mkdir(parents=True)
        (tmp_path / name / "x.py").write_text(text)
        (info / "INSTALLER").write_text(by)
        (info / "METADATA").write_text("Name: x")
        hashes.append(packages.content(tmp_path / name))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("what", ["link", "fifo"])
def test_what_holds_more_than_files_is_no_wheel(tmp_path, what):
    if what == "link":
        (tmp_path / "x").symlink_to("/etc/passwd")
    else:
        os.mkfifo(tmp_path / "x")
    assert (
        refusal(packages.content, tmp_path) == "InstallError: it holds something that is not a file"
    )


def test_packages_that_nothing_comes_to_are_swept(installer, tmp_path):
    installer().install("needy")
    kept = packages.PackageStore(tmp_path / "shelf")
    assert {one["name"] for one in kept.packages()} == {"needy", "alpha-one"}
    assert kept.about()["allow"] == ["alpha-one", "needy"]
    kept.clear(lambda one: one.startswith("needy"), installed=True)
    assert [path.name.split("-")[0] for path in kept.lib.iterdir()] == ["alpha"]


def test_a_wheel_of_another_name_is_not_taken_for_what_was_asked(installer, index):
    index.files["claimed-1.0-py3-none-any.whl"] = wheel("alpha-one", "1.0")
    assert refusal(installer("claimed").install, "claimed").startswith("InstallError: claimed: ")


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("evil", "1.0/../../../planted"),
        ("evil", "../planted"),
        ("evil", ""),
        ("evil/../../planted", "1.0"),
        ("..", "1.0"),
        ("", "1.0"),
    ],
)
def test_what_a_wheel_says_of_itself_is_no_path(tmp_path, name, version):
    info = tmp_path / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n")
    assert refusal(packages._package, tmp_path) == (
        "InstallError: it is not a wheel: its name or version is not valid"
    )
