"""What the OS layer refuses a cell that runs: a card, and reason and remedy in the message."""

import re
import shutil

import pytest

from support import machines, reading
from support.kernels import World

CASES = {
    "read": ("open('/etc/shadow-').read()", "filesystem_read_roots"),
    "read, by pathlib": (
        "import pathlib; pathlib.Path('/proc/1/environ').read_text()",
        "filesystem_read_roots",
    ),
    "list": ("import os; os.listdir('/var')", "filesystem_read_roots"),
    "write": (
        "import os; open(os.path.dirname(os.__file__) + '/evil.py', 'w')",
        "filesystem_write_roots",
    ),
    "delete": ("import os; os.unlink(os.__file__)", "filesystem_write_roots"),
    "socket": ("import socket; socket.socket()", "network_access"),
    "name": ("import socket; socket.create_connection(('example.org', 443))", "network_access"),
    "url": (
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "network_access",
    ),
    "subprocess": ("import subprocess; subprocess.run(['id'])", "subprocess_execution"),
    "fork": ("import os; os.fork()", "subprocess_execution"),
    "exec": ("import os; os.execv('/bin/id', ['id'])", "subprocess_execution"),
    "escape": ("!id", "subprocess_execution"),
    "kill": ("import os; os.kill(os.getppid(), 9)", "subprocess_execution"),
    "memory": ("bytearray(10**13)", "memory_max_bytes"),
    "size": ("with open('big', 'wb') as f: f.truncate(10**13)", "max_file_size"),
    "files": ("[open('/dev/null') for _ in range(10**5)]", "max_open_files"),
    "threads": (
        "import threading\nwhile True: threading.Thread(target=threading.Event().wait).start()",
        "max_processes",
    ),
    "wrapped": (
        "try: open('/etc/shadow-')\nexcept OSError as e: raise ValueError('mine') from e",
        "filesystem_read_roots",
    ),
}


@pytest.fixture(scope="module", params=["landlock", "bubblewrap"])
def unsafe(request, start_shared):
    """One kernel, and one in namespaces, where what is not granted is not even there."""
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    made = start_shared("unsafe", "--allow-unsafe", world=World(backend=request.param))
    made.own_world = True
    made.run("None")  # shows the gaps
    return made


@pytest.mark.parametrize("kind", CASES)
def test_a_refusal_is_a_card_after_the_traceback_and_stands_in_the_message(unsafe, kind):
    code, field = CASES[kind]
    reply, published = unsafe.run(code)
    (shown,) = reading.cards(published, "refusal")
    assert shown["field"] == field, shown
    assert reading.kinds(published)[-2:] == ["error", "display_data"]
    (error,) = reading.of(published, "error")
    assert error["evalue"] == reply["evalue"]
    assert "[cellblock: under policy " in reply["evalue"]
    assert f"{field})" in reply["evalue"]
    # The command makes a file that extends the preset.
    lines = [line for line in shown["write"] if not line.startswith("extends")]
    assert all(line in reply["evalue"] for line in lines)


URL = """import urllib.request
def load(): return urllib.request.urlopen("https://example.org/x.csv")
load()"""


def test_a_card_stands_below_the_users_own_frames_and_tb_shows_all_of_them(start_shared):
    kernel = start_shared("data", world=World())
    kernel.own_world = True
    reply, published = kernel.run(URL, allow_stdin=True)
    shown = reading.traceback(published).splitlines()
    assert [line for line in shown if line.startswith(("File ", "Cell "))] == [
        f"Cell In[{reply['execution_count']}], line 3",
        f"Cell In[{reply['execution_count']}], line 2, in load()",
    ]
    assert re.fullmatch(r"    \[\.\.\. \d+ frames of libraries: %tb shows all\]", shown[-3])
    assert shown[-1].startswith("URLError: <urlopen error ")
    assert reply["traceback"] == reading.of(published, "error")[0]["traceback"]
    assert "urllib/request.py" in reading.traceback(kernel.run("%tb")[1])


def test_an_error_that_the_policy_has_no_part_in_keeps_all_of_its_frames(start_shared):
    kernel = start_shared("data", world=World())
    kernel.own_world = True
    _, published = kernel.run("import tarfile; tarfile.open('not there.tar')")
    assert "tarfile.py" in reading.traceback(published)
    assert "frames of libraries" not in reading.traceback(published)


PROGRAMS = {
    "!curl -sS https://example.org": ("ok", "example.org:443"),
    "import subprocess; n = subprocess.run(['curl', '-sS', 'http://10.0.0.6:8000']).returncode": (
        "ok",
        "10.0.0.6:8000",
    ),
    "%%bash\ncurl -sS https://example.org": ("error", "example.org:443"),
    "!curl -sS https://example.org || curl -sS http://example.com": ("ok", "example.org:443"),
}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("code", PROGRAMS)
def test_a_program_that_fails_for_want_of_a_network_has_a_card_at_the_end(start_shared, code):
    kernel = start_shared("data", world=World())
    kernel.own_world = True
    for _ in range(2):
        reply, published = kernel.run(code)
        (shown,) = reading.cards(published, "refusal")
        assert (reply["status"], shown["asked"]) == PROGRAMS[code]
        assert reading.kinds(published)[-1] == "display_data"
        assert (shown["field"], shown["what"]) == ("network_access", "cells have no network")
        assert f'"{shown["asked"]}"' in shown["write"][-1]


@pytest.mark.parametrize(
    "code", ["!exit 3", "!curl --version", "!grep https://example.org /dev/null"]
)
def test_a_program_that_uses_no_network_has_no_card(start_shared, code):
    kernel = start_shared("data", world=World())
    kernel.own_world = True
    assert reading.kinds(kernel.run(code)[1]) in (["stream"], [])


def test_what_seems_missing_is_said_to_be_out_of_reach_in_the_traceback_too(unsafe):
    _, published = unsafe.run(
        CASES["wrapped"][0].replace("ValueError('mine') from e", "e"), allow_stdin=True
    )
    last = reading.traceback(published).splitlines()[-1]
    if "No such file" in reading.of(published, "error")[0]["evalue"]:
        assert last.startswith("[cellblock: under policy unsafe cells can't use files outside"), (
            last
        )
    else:
        assert last.startswith("PermissionError"), last


def test_a_write_that_no_line_allows_is_told_where_cells_write(unsafe):
    _, published = unsafe.run("open('/evil.py', 'w')")
    (shown,) = reading.cards(published, "refusal")
    assert shown["instead"].startswith(("Write below /", "Or write below /")), shown


def test_who_left_the_scratch_folder_out_is_told_the_line_that_lets_any_kernel_write_there(
    start, world, tmp_path
):
    roots = f'extends = "data"\nfilesystem_write_roots = ["{tmp_path}"]'
    code = "import tempfile\ntempfile.mkdtemp()"
    kernel = start(world.policy(roots), world=world)
    (shown,) = reading.cards(kernel.run(code)[1], "refusal")
    assert shown["write"][-1] == 'add.filesystem_write_roots = ["{scratch}"]'
    kernel = start(world.policy(f"{roots}\n{shown['write'][-1]}"), world=world)
    assert kernel.run(code)[0]["status"] == "ok"


def test_what_was_asked_for_is_named(unsafe):
    _, published = unsafe.run(CASES["name"][0])
    (shown,) = reading.cards(published, "refusal")
    assert shown["asked"] == "example.org:443"
    assert shown["write"][-1] == 'network_access = ["example.org:443"]'
    assert "It asked for example.org:443." in reading.card_text(published)


ADVICE = {
    "import os, requests.api\nrequests.get('http://127.0.0.1:9/')": (
        "network_access",
        "line 1 has requests.api, which opens network connections",
    ),
    "%cd .\nimport sqlite3 as s\nopen('/etc/shadow-')": (
        "filesystem_read_roots",
        "line 2 has sqlite3, which reads and changes files",
    ),
    "bytearray(10**13)": ("memory_max_bytes", ""),
}


@pytest.mark.parametrize("code", ADVICE)
def test_what_the_source_check_finds_is_advice_in_the_card_of_a_failure(start_shared, code):
    kernel = start_shared("data", world=World())
    kernel.own_world = True
    (shown,) = reading.cards((published := kernel.run(code)[1]), "refusal")
    assert (shown["field"], shown["advice"]) == ADVICE[code]
    assert (
        f"In this cell, {shown['advice']}." in reading.card_text(published) or not shown["advice"]
    )


def test_a_cell_that_handles_it_sees_the_error_that_python_has(unsafe):
    code = "try: open('/etc/shadow-')\nexcept (PermissionError, FileNotFoundError) as e: said = e"
    reply, published = unsafe.run(code)
    assert (reply["status"], reading.kinds(published)) == ("ok", [])
    assert "cellblock" not in reading.result(unsafe.run("str(said)")[1])


@pytest.mark.parametrize(
    "code",
    [
        "raise PermissionError('of my own')",
        "open('no such file')",
        "import os; open('mine', 'w').close(); os.chmod('mine', 0); os.close(-1)",
        "1 / 0",
    ],
)
def test_other_errors_get_no_card(unsafe, code):
    reply, published = unsafe.run(code)
    assert reading.cards(published, "refusal") == []
    assert "cellblock" not in reply["evalue"]


def test_a_guest_that_lies_gets_a_card_about_its_own_cell_in_which_nothing_acts(unsafe):
    name = "/\\x1b[2J\\u202e<script>" + "x" * 5_000
    reply, published = unsafe.run(f"raise PermissionError(13, 'x', '{name}')")
    (shown,) = reading.cards(published, "refusal")
    assert "\x1b" not in reading.card_text(published) + reply["evalue"]
    assert "<script>" not in str(
        [c["data"]["text/html"] for c in reading.of(published, "display_data")]
    )
    assert len(shown["asked"]) <= 1_000


def test_an_error_that_raises_at_every_touch_is_shown_as_it_is(unsafe):
    code = (
        "class Nasty(PermissionError):\n"
        "    def __getattribute__(self, name): raise RuntimeError(name)\n"
        "raise Nasty(13, 'x', '/etc')"
    )
    assert unsafe.run(code)[0]["status"] == "error"
    assert unsafe.run("1")[0]["status"] == "ok"


def test_without_locks_nothing_is_our_doing(start, world):
    policy = world.policy('mode = "unsafe"\nbackend = "noop"\nrequire = []')
    kernel = start(policy, "--allow-unsafe", world=world)
    closed = world.write("closed", "")
    reply, published = kernel.run(f"import os; os.mkdir({str(closed)!r} + '/x')")
    assert reply["status"] == "error"
    assert reading.cards(published, "refusal") == []


def test_a_write_outside_is_told_the_line_that_allows_it(start, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    code = f"open('{outside}/mine.txt', 'w').close(); open('{outside}/mine.txt').read()"
    kernel = start("unsafe", "--allow-unsafe")
    (there := outside / "there.txt").write_text("")
    kernel.run(f"open('{there}', 'a')")
    (shown,) = reading.cards(kernel.run(f"open('{there}')")[1], "refusal")
    assert shown["field"] == "filesystem_read_roots"  # though it was to be written before
    for tried in (code, f"import os; os.mkdir('{outside}/made')"):
        (shown,) = reading.cards(kernel.run(tried)[1], "refusal")
        assert shown["write"][-1] == f'add.filesystem_write_roots = ["{outside}"]'
    kernel = start(kernel.world.policy("\n".join(shown["write"])), "--allow-unsafe")
    assert kernel.run(code)[0]["status"] == "ok"


FOLLOWED = ("open('/etc/hostname').read()", "room = bytearray(3 << 29)", CASES["escape"][0])


@pytest.mark.parametrize("code", FOLLOWED)
def test_the_lines_that_it_says_to_write_allow_it(start, world, code):
    kernel = start("unsafe", "--allow-unsafe", world=world)
    (shown,) = reading.cards(kernel.run(code)[1], "refusal")
    kernel = start(world.policy("\n".join(shown["write"])), "--allow-unsafe", world=world)
    assert kernel.run(code)[0]["status"] == "ok"


def test_in_mode_safe_a_missing_file_says_that_cells_begin_in_a_scratch_folder(start_shared):
    pytest.importorskip("pandas", reason="extra 'data' is not installed")
    text = 'extends = "safe"\nadd.allowed_modules = ["@science"]\n'
    world = World()
    (world.work / "a.csv").write_text("a,b\n1,2\n")
    read = "import pandas as pd\nlen(pd.read_csv('a.csv'))"
    kernel = start_shared(world.policy(text), world=world)
    (shown,) = reading.cards(kernel.run(read)[1], "refusal")
    assert (
        shown["what"] == "cells begin in a scratch folder, and can't read the files of your project"
    )
    assert shown["write"] == ['add.filesystem_read_roots = ["{project}"]']
    followed = world.policy("\n".join([text, *shown["write"]]), name="followed")
    assert reading.result(start_shared(followed, world=world).run(read)[1]) == "1"
    granted = world.policy(f'{text}\n[ops.read_file]\nroots = ["{{project}}"]\n', name="granted")
    kernel = start_shared(granted, world=world)
    (shown,) = reading.cards(kernel.run(read)[1], "refusal")
    assert "ops.read_file(PATH, binary=True)" in shown["instead"]
    instead = "import io\nlen(pd.read_csv(io.BytesIO(ops.read_file('a.csv', binary=True))))"
    assert reading.result(kernel.run(instead)[1]) == "1"
