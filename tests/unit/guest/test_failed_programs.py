"""Which words of a command may be paths, and where the command was to write."""

import os
import subprocess

import pytest

from cellblock.guest import failed_programs
from cellblock.guest.failed_programs import _addresses, _words

READ, WRITTEN = False, True


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("cat '/a b/c' d", [("cat", READ), ("/a b/c", READ), ("d", READ)]),
        ("touch /a/b", [("touch", WRITTEN), ("/a/b", WRITTEN)]),
        ("X=1 echo 1 >/a/b", [("X=1", READ), ("echo", READ), ("1", READ), ("/a/b", WRITTEN)]),
        ("cat </a/b", [("cat", READ), ("/a/b", READ)]),
        (
            "cp a b; ls /c | wc",
            [
                ("cp", WRITTEN),
                ("a", WRITTEN),
                ("b", WRITTEN),
                ("ls", READ),
                ("/c", READ),
                ("wc", READ),
            ],
        ),
        ("ls -l --file=/a", [("ls", READ), ("/a", READ)]),
        ("cat /a\nrm /b", [("cat", READ), ("/a", READ), ("rm", WRITTEN), ("/b", WRITTEN)]),
        ("echo \"it's", [("echo", READ), ("\"it's", READ)]),
        (["/bin/cat", "/a b"], [("/bin/cat", READ), ("/a b", READ), ("/a", READ), ("b", READ)]),
        (["mkdir", b"/a"], [("mkdir", WRITTEN), ("/a", WRITTEN)]),
        (b"cat /a", [("cat", READ), ("/a", READ)]),
    ],
)
def test_words_of_a_command_say_what_was_to_be_written(command, words):
    assert list(_words(command)) == words


def test_a_path_in_a_programs_own_text_counts():
    words = [word for word, _ in _words(["python", "-c", "open('/a/b.csv')"])]
    assert "/a/b.csv" in words


@pytest.fixture
def told(monkeypatch):
    """What is told of programs; the status of each is seen as in a guest."""
    found = []
    for place, name in ((subprocess.Popen, "_handle_exitstatus"), (os, "system")):
        monkeypatch.setattr(place, name, getattr(place, name))
    failed_programs.watch(found.append)
    return found


def test_only_a_cells_own_programs_that_fail_are_told_and_each_path_once(told, tmp_path):
    there = tmp_path / "x"
    there.touch()
    command = ["sh", "-c", f"cat {there} /absent/x; exit ${{1:-3}}", "sh"]
    for more in ([], [], ["0"]):
        subprocess.run([*command, *more], check=False, capture_output=True)
    os.system("cat /absent/y 2>/dev/null; exit 1")
    subprocess.run("cat /absent/z 2>/dev/null | cat", shell=True, check=True)
    asked = [(one.name, one.seen) for one in told if one.kind == "argument"]
    assert [name for name, _ in asked if name.startswith("/absent/")] == [
        "/absent/x",
        "/absent/y",
        "/absent/z",
    ]
    assert (str(there), True) not in asked


def test_a_process_that_a_cell_forked_tells_nothing(told):
    if (forked := os.fork()) == 0:
        subprocess.run(["ls", "/absent/forked"], check=False, capture_output=True)
        os._exit(len(told))
    # Not any child: orphans come to the process that runs the tests.
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0


@pytest.mark.parametrize(
    ("command", "addresses"),
    [
        ("curl -o x.html https://example.org/x?y=http", ["example.org:443"]),
        ("curl http://u:p@[::1]:8000/x https://b.example", ["[::1]:8000", "b.example:443"]),
        (["wget", "-q", "ftp://example.org/x"], ["example.org:21"]),
        (["sh", "-c", "true; X=1 curl http://example.org"], ["example.org:80"]),
        ("curl example.org", [""]),
        ("git clone git@example.org:a/b.git", ["example.org:22"]),
        ("git pull && make", [""]),
        ("git commit -m https://example.org", []),
        ("git status", []),
        ("node x.js --from=https://example.org:8443/", ["example.org:8443"]),
        ("aws s3 ls s3://bucket", []),
        ("cat x | grep https://example.org", []),
        ("pytest -q tests", []),
        (b"curl 'https://example.org", ["example.org:443"]),
    ],
)
def test_addresses_of_a_command_are_those_that_a_program_was_to_connect_to(command, addresses):
    assert list(_addresses(command)) == addresses


def test_the_addresses_of_a_program_that_fails_are_told_each_time(told):
    command = ["sh", "-c", "exit 6", "curl", "https://example.org"]
    for _ in range(2):
        subprocess.run(command, check=False)
    assert [one.name for one in told if one.kind == "address"] == ["example.org:443"] * 2
