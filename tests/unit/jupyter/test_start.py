"""What a kernel guesses before it has read its policy: a wrong guess costs time, so it is right."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cellblock import Policy
from cellblock.errors import PolicyError
from cellblock.host.guests import spawn
from cellblock.host.guests.spawn import WrappingCache
from cellblock.jupyter import command_line, kernel_policy
from cellblock.jupyter.early_zygote import EarlyZygote
from cellblock.jupyter.kernel_policy import session_notebook
from cellblock.policy.folders import changes_folder


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


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Return a list of what zygotes were started in, and ended; none of them is there."""
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = []

    def begin(wrap):
        found.append(("start", wrap and wrap.words))
        return None, 0

    monkeypatch.setattr(spawn, "start", begin)
    monkeypatch.setattr(spawn, "drop", lambda *_: found.append("end"))
    return found


BARE, BWRAP, OTHER, NAMELESS = None, Around("bwrap", "--a"), Around("bwrap", "--b"), Around()


@pytest.mark.parametrize(
    ("before", "due", "done"),
    {
        "nothing is known": ([], BWRAP, [("start", BWRAP.words)]),
        "nothing is known, and bare": ([], BARE, [("start", None)]),
        "bwrap, as before": ([BWRAP], Around(*BWRAP.words), [("start", BWRAP.words)]),
        "bare, as before": ([BARE], BARE, [("start", None)]),
        "other options": ([BWRAP], OTHER, [("start", BWRAP.words), "end", ("start", OTHER.words)]),
        "bare now": ([BWRAP], BARE, [("start", BWRAP.words), "end", ("start", None)]),
        "bare before": ([BARE], BWRAP, [("start", None), "end", ("start", BWRAP.words)]),
        "a container now": ([BARE], NAMELESS, [("start", None), "end", ("start", ())]),
        "a container before": ([NAMELESS], NAMELESS, [("start", ())]),
        "not as before": ([BWRAP, OTHER], OTHER, [("start", OTHER.words)]),
    }.values(),
)
def test_a_zygote_starts_as_the_last_one_and_is_kept_only_in_what_is_due(
    started, before, due, done
):
    for wrap in before:
        early = EarlyZygote("data")
        early.settle(wrap)
        early.remember()
    started.clear()
    early = EarlyZygote("data")
    early.settle(due)
    assert started == done
    early.take()
    assert started == done


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
def test_what_layers_lie_in_is_there_before_it_is_mounted(started, monkeypatch, mounted):
    folder = Path(changes_folder())
    words = ("bwrap", "--bind-try", str(folder), str(folder)) if mounted else ("bwrap",)
    there = []
    begin = spawn.start
    monkeypatch.setattr(spawn, "start", lambda wrap: there.append(folder.is_dir()) or begin(wrap))
    monkeypatch.setattr(WrappingCache, "recall", lambda _: words)
    EarlyZygote("data")
    assert (started, there) == ([("start", words)], [mounted])


class Process:
    """Says what came of it."""

    def __init__(self, module):
        self.module, self.told, self.is_there = module, [], True
        self.sock = SimpleNamespace(sendall=self.told.append)

    def drop(self):
        self.is_there = False


@pytest.mark.parametrize(
    ("tools", "asked", "begins"),
    [(("math:sqrt",), False, True), (("math:sqrt",), True, False), ((), False, False)],
)
def test_tools_are_imported_from_when_the_policy_is_read_unless_a_person_is_asked_first(
    started, monkeypatch, tools, asked, begins
):
    """And they end with the kernel, where it has no session."""
    assert started == []
    monkeypatch.setattr(kernel_policy.worker_process, "start", Process)
    early = EarlyZygote("mine")
    condition = PolicyError("ask", remedy="") if asked else None
    config = SimpleNamespace(policy=Policy.preset("safe", tools=tools), condition=condition)
    kernel_policy._start_tools(config, early)
    assert (early.worker is not None) is begins
    if begins:
        worker = early.worker
        assert worker.module == "cellblock.host.services.tools.worker"
        assert b"math:sqrt" in bytes(worker.told[0])
        early.end()
        assert not worker.is_there
    assert early.take_worker() is None
