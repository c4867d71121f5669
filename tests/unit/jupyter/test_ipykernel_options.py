"""Options of ipykernel's on this kernel's command line: who does what they ask for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cellblock.jupyter.ipykernel_options import OptionsError, read


def cells(*words):
    return [source for _, source in read(list(words)).cells]


def test_what_jupyter_tools_add_is_done_by_the_host():
    asked = read(["--HistoryManager.hist_file=:memory:", "--Kernel.stop_on_error_timeout=0"])
    assert (asked.keeps_history, asked.abort_seconds) == (False, 0.0)
    assert (asked.shell, asked.cells, asked.unused) == ({}, [], [])
    assert read([]).keeps_history
    assert read(["--HistoryManager.enabled=True"]).keeps_history
    assert not read(["--HistoryManager.enabled=False"]).keeps_history


@pytest.mark.parametrize(
    "word",
    ["--IPKernelApp.parent_appname='x'", "--Application.log_level=10", "--debug", "--quiet"],
)
def test_what_is_about_the_log_is_passed_over(word):
    asked = read([word])
    assert (asked.shell, asked.cells, asked.unused) == ({}, [], [])


def test_what_a_waiting_start_is_given_imports_nothing():
    words = ["--HistoryManager.hist_file=:memory:", "--Kernel.stop_on_error_timeout=0"]
    words += ["--InlineBackend.figure_format=svg"]
    program = (
        "import sys; from cellblock.jupyter.ipykernel_options import read;"
        f"read({words!r}); print([m for m in ('traitlets', 'IPython', 'typing') if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert said.stdout == "[]\n"


def test_traits_of_the_shell_are_for_the_guest_as_they_were_given():
    asked = read(
        ["--InteractiveShell.ast_node_interactivity=all", "--InlineBackend.figure_formats=svg",
         "--InlineBackend.figure_formats=png", "--no-automagic", "--cache-size=7", "--Foo.bar=1"]
    )  # fmt: skip
    shell = {"ast_node_interactivity": "all", "automagic": False, "cache_size": "7"}
    formats = {"figure_formats": ["svg", "png"]}
    assert asked.shell == {"InteractiveShell": shell, "InlineBackend": formats, "Foo": {"bar": "1"}}


def test_what_runs_code_is_cells_in_the_order_of_ipythons():
    given = ["-c", "last()", "--ext", "autoreload", "--ext=storemagic", "--matplotlib=inline"]
    lines = ["--InteractiveShellApp.exec_lines=a = 1", "--IPKernelApp.exec_files=x y.py", "--pdb"]
    assert cells(*given, *lines) == [
        "%matplotlib inline", "%load_ext autoreload", "%load_ext storemagic", "a = 1",
        '%run -i "x y.py"', "last()", "%pdb on",
    ]  # fmt: skip
    with pytest.warns(DeprecationWarning, match="exec_lines"):
        assert cells("--InteractiveShellApp.exec_lines=['a', 'b']") == ["a", "b"]
    assert cells("--matplotlib") == ["%matplotlib"]
    assert cells("--pylab=inline", "--no-pdb") == ["%pylab inline"]
    assert cells("-m", "this") == ["%run -m this"]
    assert cells("--InteractiveShell.xmode=Plain") == ["%xmode Plain"]
    assert not read(["--ignore-cwd"]).searches_folder


def test_where_a_kernel_listens_is_for_the_connection_file_to_say():
    there = {"ip": "127.0.0.1", "shell_port": 5, "transport": "tcp"}
    assert not read([]).why_not(there)
    assert not read(["--ip=127.0.0.1", "--shell=5", "--transport=tcp"]).why_not(there)
    why = read(["--ip=0.0.0.0"]).why_not(there)
    assert why == (
        "--IPKernelApp.ip: the connection file says where a kernel listens and who may speak to "
        "it, and says otherwise. Set 'ip' there, or leave the option out."
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--nonsense"], "unknown argument '--nonsense'"),
        (["--nonsense=x"], "unknown argument '--nonsense'"),
        (["notebook.ipynb"], "unknown argument 'notebook.ipynb'"),
        (["--InteractiveShell.automagic"], "arguments that need a value, or take none: "),
        (["--Kernel.stop_on_error_timeout=soon"], "'soon' is not a number of seconds"),
        (["--Session.key=b''"], "--Session.key: the connection file alone says with which key"),
        (["--no-secure"], "--Session.key: the connection file alone says with which key"),
        (["--keyfile=/tmp/k"], "--Session.keyfile: the connection file alone says with which key"),
    ],
)
def test_what_is_unknown_or_would_loosen_the_start_is_named(words, why):
    with pytest.raises(OptionsError, match=why.replace("[", r"\[")):
        read(words)


def test_what_nothing_here_is_done_about_is_told_in_one_list():
    words = ["--profile=mine", "--IPKernelApp.capture_fd_output=False", "--Kernel._poll_interval=1"]
    assert sorted(read(words).unused) == [
        "--IPKernelApp.capture_fd_output", "--IPKernelApp.profile", "--Kernel._poll_interval",
    ]  # fmt: skip
