"""Preset data: no cell is refused for what it says, and the operating system holds it."""

from __future__ import annotations

import textwrap

import pytest

from cellblock import Sandbox
from cellblock.errors import CellblockError
from cellblock.policy.model import Policy
from support import reading

WORKS = {
    "import os, sys, csv": None,
    "import beside; beside.x": "7",
    "open('beside.py').read()": "'x = 7\\n'",
    "exec('q = 3'); q + eval('4')": "7",
    "type(__builtins__).__name__": "'module'",
    "len(globals()) > 0 and vars() is not None": "True",
    "open('../data/a.csv').read()": "'1\\n'",
    "ls beside.py": "beside.py",
    "cat ../data/a.csv": "1",
    "pwd": "notebooks",
    "ls = 5": None,
    "ls ": "5",
    "!echo hi": "hi",
    "!echo a{b,c}": "ab ac",
    "%%bash\necho ho": "ho",
    "import subprocess; subprocess.run(['echo', 'hi'], capture_output=True).stdout": "b'hi\\n'",
    "help(len)": "Help on built-in function len",
    "%load_ext autoreload": None,
    "%pwd\nfrom __future__ import annotations\n__name__": "__main__",
    "%%writefile work/a.py\nz = 9": "Writing",
    "%run work/a.py": None,
    "z": "9",
    "%%writefile work/b.ipy\ny = 8;": "Writing",
    "%run work/b.ipy": None,
    "y": "8",
    "display(y)": None,
    "%xdel y": None,
    "'y' in globals()": "False",
    "y = 5\n%store y\ndel y\n%store -r\ny": "5",
    "%store": "y             -> 5",
    "%env FOO=1": "FOO=1",
    "%cd work": "work",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("1\n")
    folder = tmp_path / "notebooks"
    (folder / "work").mkdir(parents=True)
    (folder / "beside.py").write_text("x = 7\n")
    (folder / ".hidden").write_text("s")
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    monkeypatch.setenv("SHELL", "/bin/bash")
    return folder


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
def test_what_ipykernel_runs_runs_under_data(project, backend):
    with Sandbox(Policy.preset("data", backend=backend), project=project) as sandbox:
        for source, shown in WORKS.items():
            result = sandbox.execute(source)
            assert result.success, result.to_string()
            assert (shown or "") in result.output + (result.result or "")


def test_a_parser_of_arguments_finds_none_where_no_kernel_was_started(project):
    code = "import argparse, sys; argparse.ArgumentParser().parse_args(); sys.argv"
    with Sandbox(Policy.preset("data"), project=project) as sandbox:
        (program,) = eval(sandbox.execute(code).result)
    assert program.endswith("/ipykernel_launcher.py")


def test_distutils_is_setuptools_as_with_its_pth_file(project):
    pytest.importorskip("_distutils_hack", reason="setuptools is not installed")
    with Sandbox(Policy.preset("data"), project=project) as sandbox:
        assert "setuptools" in sandbox.execute("import distutils; distutils.__file__").result


def test_a_syntax_error_names_the_cell_as_ipykernel_does(project):
    with Sandbox(Policy.preset("data"), project=project) as sandbox:
        error = sandbox.execute("print 1").error
    # ipykernel.compiler.get_file_name("print 1")
    assert error.message.endswith("(2006075915.py, line 1)")


def test_a_program_of_a_cells_is_confined_as_the_cell_is(project):
    attempt = "!touch taken ../taken /etc/taken; cat /etc/shadow; ls ~/.ssh; env | grep -c SECRET"
    with Sandbox(Policy.preset("data"), project=project) as sandbox:
        said = sandbox.execute(attempt).output
    assert "cannot touch '/etc/taken'" in said
    assert "root:" not in said
    assert not any(at.exists() for at in (project / "taken", project.parent / "taken"))
    assert not (project.parent / "taken").exists()


def test_of_a_home_folder_cells_read_plain_files_alone(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    with Sandbox(Policy.preset("data"), project=project) as sandbox:
        assert sandbox.execute("open('beside.py').read()").success
        for path in (".hidden", "../data/a.csv"):
            assert not sandbox.execute(f"open({path!r})").success


def test_a_line_says_once_what_is_read_of_a_home_folder(start, world):
    world.home.rmdir()
    world.work.rename(world.home)
    world.work.symlink_to(world.home)
    (world.home / "credentials.json").write_text("SECRET")
    (world.home / "open.csv").write_text("1")
    kernel = start("data", world=world)
    _, published = kernel.run("open('open.csv').read()")
    said = reading.notices(published)
    assert said.count("it is your home folder, or holds it") == 1
    reply, published = kernel.run("open('credentials.json').read()")
    assert (reply["status"], reading.notices(published)) == ("error", "")


def test_nothing_starts_where_nothing_is_confined(project):
    policy = Policy.preset("data", backend="noop", on_unsupported="ignore")
    with pytest.raises(CellblockError, match=r"network_access|subprocess_execution"):
        Sandbox(policy, project=project).open()


def test_processes_that_a_cell_forks_print_lines_and_do_not_reach_the_host(project):
    flood = """
    from multiprocessing import Process
    def shout(letter):
        for _ in range(300):
            print(letter * 2_000)
    shouting = [Process(target=shout, args=(letter,)) for letter in "abcd"]
    [one.start() for one in shouting]
    [one.join() for one in shouting]
    print("end")
    """
    ask = """
    def ask():
        try:
            get_ipython().kernel.comm_manager and __import__("comm").create_comm(target_name="t")
            input()
        except BaseException as error:
            print(error)
    one = Process(target=ask); one.start(); one.join()
    """
    policy = Policy.preset("data", stdout_max_bytes=16 << 20)
    with Sandbox(policy, project=project) as sandbox:
        said = sandbox.execute(textwrap.dedent(flood))
        assert said.success, said.to_string()
        assert {len(line) for line in said.output.split()} == {2_000, 3}
        assert said.output.endswith("end\n")
        assert "a process that a cell forked can't" in sandbox.execute(textwrap.dedent(ask)).output
        left = "import os\nif (child := os.fork()) == 0: raise ValueError\nos.waitpid(child, 0)[1]"
        assert sandbox.execute(left).result == "256"
        assert sandbox.execute("1").result == "1"
