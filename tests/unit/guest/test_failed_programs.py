"""Which words of a command may be paths, and where the command was to write."""

import os
import subprocess

import pytest

from cellblock.guest import failed_programs
from cellblock.guest.failed_programs import _words

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
