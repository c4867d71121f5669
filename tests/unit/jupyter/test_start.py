"""What a kernel guesses before it has read its policy: a wrong guess costs time, so it is right."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cellblock.backends.base import ORDER, named
from cellblock.backends.bubblewrap import PROGRAM
from cellblock.host.guests import spawn
from cellblock.host.guests.spawn import WrappingCache
from cellblock.jupyter import command_line, start
from cellblock.jupyter.early_zygote import EarlyZygote, is_alike
from cellblock.jupyter.kernel_policy import session_notebook
from cellblock.policy.folders import changes_folder, remove_scratch
from support import machines

POLICIES = {
    'backend = "bubblewrap"': (True, True),
    'backend = "seatbelt"': (True, True),
    'backend = "landlock"': (False, False),
    'backend = "noop"': (False, False),
    'backend = "auto"': (True, False),
    'extends = "data"': (True, False),
}


@pytest.fixture(params=["bubblewrap", "landlock"])
def machine(request, monkeypatch, tmp_path):
    """A machine with bwrap, be it a program that does nothing, and one without."""
    monkeypatch.setenv("PATH", machines.path("landlock"))
    if request.param == "bubblewrap":
        (tmp_path / "bwrap").touch(mode=0o755)
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")
    return request.param


@pytest.mark.parametrize("text", POLICIES)
def test_a_zygote_waits_for_a_policy_that_has_it_wrapped(text, machine, tmp_path):
    policy = tmp_path / "lab.toml"
    policy.write_text(text)
    with_it, without = POLICIES[text]
    assert start.may_be_wrapped(str(policy)) == (with_it if machine == "bubblewrap" else without)


@pytest.mark.parametrize("preset", ["safe", "data", "unsafe", "local"])
def test_a_preset_takes_the_strongest(preset, machine):
    assert start.may_be_wrapped(preset) == (machine == "bubblewrap")


def test_it_knows_every_backend_and_its_program():
    by_wrapping = {
        wraps: {b.name.encode() for b in map(named, ORDER) if b.wraps == wraps} for wraps in (1, 0)
    }
    assert (set(start.WRAPPING), set(start.BARE)) == (by_wrapping[1], by_wrapping[0])
    assert start.WRAPPER == PROGRAM


def test_options_of_ipykernels_are_taken_and_any_other_ends_the_start():
    added = ["--HistoryManager.hist_file=:memory:", "--debug", "--profile-dir", "x", "--profile=y"]
    options = command_line.parse(["--f=file", "--policy", "data", *added])
    assert (options.connection_file, options.policy, options.allow_unsafe) == (
        "file",
        "data",
        False,
    )
    assert not options.ipykernel.keeps_history
    assert command_line.parse(["-f", "file"]).ipykernel.keeps_history
    assert command_line.parse(["--IPKernelApp.connection_file=file"]).connection_file == "file"
    for words in (["--HistoryManager.hist_file"], ["--polcy=safe"], ["-f", "other"], ["x.ipynb"]):
        with pytest.raises(SystemExit, match="usage: "):
            command_line.parse(["-f", "file", *words])


class Around:
    """What goes around a zygote; ``words`` says whether a later kernel may repeat it."""

    def __init__(self, *words):
        self.words = words


def test_a_zygote_is_kept_only_in_what_is_due():
    due, other, wordless = Around("bwrap", "--a"), Around("bwrap", "--b"), Around()
    for one, two in ((due, due), (Around("bwrap", "--a"), due), (None, None), (wordless, wordless)):
        assert is_alike(one, two)
    for one, two in ((other, due), (None, due), (due, None), (wordless, Around())):
        assert not is_alike(one, two)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("/home/u/a.ipynb", Path("/home/u/a.ipynb")),
        ("a.ipynb", None),
        ("/home/u/console-1-7b0c", None),
        ("/home/u/a.py", None),
        ("", None),
    ],
)
def test_the_notebook_is_the_one_that_the_server_names(name, found):
    assert session_notebook({"JPY_SESSION_NAME": name}) == found
    assert session_notebook({}) is None


def test_a_jupyter_server_names_it_as_we_look_for_it():
    sessions = pytest.importorskip("jupyter_server.services.sessions.sessionmanager")
    kernels = SimpleNamespace(cwd_for_path=lambda _path: "/srv/notebooks")
    server = SimpleNamespace(kernel_manager=kernels)
    named = sessions.SessionManager.get_kernel_env(server, "notebooks/a.ipynb", "a.ipynb")
    assert session_notebook(named) == Path("/srv/notebooks/a.ipynb")


@pytest.mark.parametrize("mounted", [True, False])
def test_what_layers_lie_in_is_there_before_it_is_mounted(tmp_path, monkeypatch, mounted):
    monkeypatch.setenv("XDG_DATA_HOME", f"{tmp_path}/data")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Path(changes_folder())
    words = ("bwrap", "--bind-try", str(folder), str(folder)) if mounted else ("bwrap",)
    found = []

    def begin(around):
        found.append((around.words, folder.is_dir()))
        return None, 0

    monkeypatch.setattr(spawn, "start", begin)
    monkeypatch.setattr(WrappingCache, "recall", lambda _: spawn.Recalled(words))
    early = EarlyZygote("data", None)
    assert found == [(words, mounted)]
    remove_scratch(str(early.scratch))
