"""What Jupyter starts a kernel with is there for its cells, as under ipykernel."""

import json

import pytest

from support import machines, reading
from support.kernels import Kernel, argv_for, world_and_prefix


def value(kernel, source):
    reply, published = kernel.run(source)
    assert reply["status"] == "ok", reply
    return eval(reading.result(published))


@pytest.fixture(scope="module")
def named(start_shared, shared_world):
    """A kernel as a server starts it for a notebook."""
    notebook = str(shared_world.work / "a.ipynb")
    variables = {"JPY_SESSION_NAME": notebook, "JPY_PARENT_PID": "1"}
    return start_shared("data", world=shared_world, extra_env=variables)


def test_cells_find_what_ipykernel_shows_them_of_its_start(named):
    named.run("import os, sys, tempfile")
    program, *arguments = value(named, "sys.argv")
    assert program.endswith("/ipykernel_launcher.py")
    assert arguments == ["-f", str(named.file)]
    original = value(named, "sys.orig_argv")
    assert original[1:] == ["-m", "ipykernel_launcher", *arguments]
    file = value(named, "get_ipython().config['IPKernelApp']['connection_file']")
    assert file == str(named.file)
    assert value(named, "os.environ['JPY_PARENT_PID'] == str(os.getppid())")
    names = value(named, "[__session__, os.environ['JPY_SESSION_NAME']]")
    assert names == [str(named.world.work / "a.ipynb")] * 2
    # line_profiler and debuggers know a cell by it.
    cell = value(named, "(lambda: 0).__code__.co_filename")
    assert cell.startswith(f"{value(named, 'tempfile.gettempdir()')}/ipykernel_")


def test_programs_are_told_that_they_may_show_colours_and_page_nothing(named):
    named.run("import os")
    assert value(named, "[os.environ[n] for n in ('TERM', 'FORCE_COLOR', 'GIT_PAGER')]") == [
        "xterm-color", "1", "cat",
    ]  # fmt: skip


def test_code_that_restarts_a_kernel_is_told_who_does_that(named):
    named.run("kept = 1")
    _, published = named.run("get_ipython().kernel.do_shutdown(True)")
    assert reading.result(published) == "{'status': 'ok', 'restart': True}"
    said = "To restart, use Restart Kernel of the front end; %reset -f drops the variables.\n"
    assert reading.stream(published, "stderr") == said
    assert value(named, "kept") == 1


def test_a_notebooks_own_parser_takes_the_arguments_of_its_kernel(named):
    source = "import argparse\np = argparse.ArgumentParser()\np.add_argument('-f')\n"
    more = "p.add_argument('--lr', type=float, default=0.1)\np.parse_args().lr"
    assert value(named, source + more) == 0.1


def test_a_state_that_was_restored_has_them_too(named):
    named.run("import os, sys")
    named.run("os.kill(os.getpid(), 9)")
    assert value(named, "sys.argv[1:]") == ["-f", str(named.file)]


def test_a_session_that_cells_can_not_see_the_folder_of_is_not_named(start, world):
    away = {"JPY_SESSION_NAME": "/srv/secret/a.ipynb"}
    kernel = start("data", world=world, extra_env=away)
    assert value(kernel, "'__session__' in globals()") is False
    kernel.run("import os")
    assert value(kernel, "[os.environ.get(n) for n in ('JPY_SESSION_NAME', 'JPY_PARENT_PID')]") == [
        None, None,
    ]  # fmt: skip


def test_options_of_ipykernels_do_what_they_do_there(start, world):
    (world.work / "beside.py").write_text("x = 1\n")
    kernel = start(
        "data", "--Kernel.stop_on_error_timeout=0", "--InteractiveShell.ast_node_interactivity=all",
        "--InlineBackend.figure_format=svg", "--ext", "autoreload", "--ignore-cwd",
        "--InteractiveShellApp.exec_lines=greeting = 'hello'", "-c", "import nothing_of_that_name",
        "--PlainTextFormatter.max_seq_length=no number", world=world,
    )  # fmt: skip
    reply, published = kernel.run("1\ngreeting")
    assert [one["data"]["text/plain"] for one in reading.of(published, "execute_result")] == [
        "1", "'hello'",
    ]  # fmt: skip
    assert reply["execution_count"] == 1
    failed = "code_to_run=import nothing_of_that_name failed: ModuleNotFoundError"
    assert failed in reading.notices(published)
    assert value(
        kernel, "'IPython.extensions.autoreload' in get_ipython().extension_manager.loaded"
    )
    assert value(kernel, "get_ipython().config.InlineBackend.figure_format + ''") == "svg"
    assert kernel.run("import beside")[0]["ename"] == "ModuleNotFoundError"


def test_code_of_the_command_line_is_checked_as_a_cells_is(start, world):
    kernel = start(
        "safe", "--InteractiveShellApp.exec_lines=import gc", "--InteractiveShell.autocall=2",
        "--InteractiveShellApp.exec_lines=kept = 1",
        "--InteractiveShell.ast_node_interactivity=all", world=world,
    )  # fmt: skip
    _, published = kernel.run("kept\n2")
    said = reading.notices(published)
    assert "exec_lines=import gc failed: PolicyDenied" in said
    assert "does not set --InteractiveShell.autocall: in mode safe options set what %config" in said
    assert len(reading.of(published, "execute_result")) == 2


def test_an_option_that_moves_the_sockets_ends_the_start_with_the_reason(world):
    with Kernel(argv_for("safe", "--ip=0.0.0.0"), world=world) as kernel:
        assert kernel.proc.wait(20) != 0
        assert "cellblock: --IPKernelApp.ip: the connection file says" in kernel.stderr()


@pytest.mark.parametrize("user", machines.users(wrapped=True))
def test_the_connection_file_that_is_named_can_not_be_read(start, user):
    world, prefix = world_and_prefix(user)
    kernel = start("data", world=world, prefix=prefix)
    kernel.run("import pathlib, subprocess, sys")
    assert json.loads(kernel.file.read_text())["key"]
    for door in ("pathlib.Path(sys.argv[2]).read_text()", "open(sys.orig_argv[-1]).read()"):
        assert kernel.run(door)[0]["ename"] in {"PermissionError", "FileNotFoundError"}
    read = "subprocess.run(['cat', {}], capture_output=True).stdout"
    world.write("open.txt", "open")
    assert value(kernel, read.format("'open.txt'")) == b"open"
    assert value(kernel, read.format("sys.argv[2]")) == b""
    kernel.close()
    world.close()
