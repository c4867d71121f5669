"""P9: what is decided about a cell is on the audit log before it starts; nobody's secrets are."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellblock.cli import main as cli
from cellblock.host.audit import log as chain
from cellblock.host.audit.log import verify
from cellblock.policy.load import load
from support import approvals, reading, tool_kernels
from support.kernels import Kernel, argv_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
SECRET = "s3cr3tW0rd"


def home_of(world):
    return world.home / ".cache" / "cellblock" / "audit"


def records(folder, *kinds):
    """Return the records of the folder's sessions, or those of some kinds."""
    found = [
        json.loads(line)
        for session in chain.sessions(folder)
        for line in session.file.read_text().splitlines()
    ]
    return [record for record in found if not kinds or record["kind"] in kinds]


def verdict(folder):
    (session,) = chain.sessions(folder)
    return verify(session)


def ended(kernel):
    """Shut a kernel down in good order; return the verdict on its log."""
    kernel.end()
    return verdict(home_of(kernel.world))


def decisions(folder):
    return [(r["count"], r["decision"]) for r in records(folder, "cell") if not r.get("silent")]


# --- what is on it --------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_session_from_its_start_to_its_end(start, world, monkeypatch):
    kernel = start("safe", world=world)
    kernel.run("x = 1")
    kernel.run("import gc", user_expressions={"a": "x", "b": "open('f')"})
    kernel.run("1 / 0")
    kernel.run("x", user_expressions={"a": "x", "b": "open('f')"})
    assert ended(kernel).state == "ended"
    found = records(home_of(world))
    assert (found[0]["kind"], found[-1]["kind"]) == ("session-start", "session-end")
    assert (found[0]["policy"], found[0]["pid"]) == ("safe", kernel.proc.pid)
    monkeypatch.setenv("HOME", str(world.home))
    shown = load("safe", project=world.work, allow_unsafe=False)
    assert found[0]["digest"] == shown.digest(), "as `cellblock policy show` prints it"
    assert found[0]["asked"] == "auto"
    assert found[0]["backend"] in {"landlock", "bubblewrap"}
    (enforced,) = records(home_of(world), "enforcement")
    assert "proved" not in enforced, "no suite of probes has run for this user"
    assert enforced["capabilities"]["network_access"] in {"verified", "asserted"}
    assert decisions(home_of(world)) == [
        (1, "allowed"),
        (2, "denied"),
        (3, "allowed"),
        (4, "allowed"),
    ]
    cells = records(home_of(world), "cell")
    assert cells[2]["findings"] == [
        {"rule": "import-not-allowed", "line": 1, "column": 7, "subject": "gc"}
    ]
    assert [e["decision"] for e in cells[4]["expressions"]] == ["allowed", "denied"]
    outcomes = records(home_of(world), "outcome")
    assert [(o["cell"], o["status"], o.get("error")) for o in outcomes[1:]] == [
        (2, "ok", None),
        (4, "error", "ZeroDivisionError"),
        (5, "ok", None),
    ]
    assert outcomes[1]["usage"]["wall_seconds"] > 0


def test_a_call_of_a_tool_is_on_record_without_its_secrets_and_what_it_returned(start, world):
    kernel = start(argv=tool_kernels.argv(world), world=world)
    kernel.run("add(1, b=2)")
    kernel.run(f"log_in('ann', password='{SECRET}')")
    kernel.run("fail()")
    assert ended(kernel).sound
    calls = records(home_of(world), "tool")
    assert all(call["seconds"] >= 0 for call in calls)
    told = ("cell", "name", "outcome", "args", "kwargs", "error", "message")
    assert [{key: call[key] for key in told if key in call} for call in calls] == [
        {"cell": 2, "name": "add", "outcome": "ok", "args": [1], "kwargs": {"b": 2}},
        {
            "cell": 3,
            "name": "log_in",
            "outcome": "ok",
            "args": ["ann"],
            "kwargs": {"password": "•••"},
        },
        {"cell": 4, "name": "fail", "outcome": "error", "error": "LookupError"},
    ]
    text = next(home_of(world).iterdir()).read_text()
    assert SECRET not in text
    assert "no such city" not in text


def test_a_session_that_ends_while_a_cell_waits_for_a_tool_says_what_became_of_both(start, world):
    kernel = start(argv=tool_kernels.argv(world), world=world)
    mid = kernel.execute_send("print('begun', flush=True)\nslow(100)")
    kernel.until(lambda message: message["msg_type"] == "stream", mid)
    time.sleep(0.5)  # the call is behind it
    assert ended(kernel).state == "ended"
    (called,) = records(home_of(world), "tool")
    *_, outcome = records(home_of(world), "outcome")
    assert (called["name"], called["outcome"]) == ("slow", "withdrawn")
    assert (outcome["status"], outcome["why"]) == ("stopped", "shutdown")
    assert verdict(home_of(world)).sound


def test_a_decision_is_on_the_log_before_its_cell_starts_and_outlives_the_host(start, world):
    kernel = start("unsafe", "--allow-unsafe", world=world)
    mid = kernel.execute_send("print('go', flush=True)\nwhile True: pass")
    kernel.until(lambda m: m["msg_type"] == "stream", mid)
    assert decisions(home_of(world)) == [(1, "allowed")]
    assert verdict(home_of(world)).state == "running"
    kernel.proc.send_signal(signal.SIGKILL)
    kernel.proc.wait()
    seen = verdict(home_of(world))
    assert (seen.problems, seen.state) == ([], "open")
    assert decisions(home_of(world)) == [(1, "allowed")]


def test_kills_crashes_restores_and_steps_back(start, world):
    policy = world.policy('extends = "unsafe"\ntimeout = 0.3')
    kernel = start(policy, "--allow-unsafe", world=world)
    kernel.run("x = 1")
    kernel.run("import os\nos._exit(3)")
    kernel.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass")
    kernel.run("x = 2")
    kernel.run("%undo")
    assert ended(kernel).sound
    folder = home_of(world)
    (crash,) = records(folder, "crash")
    assert (crash["cell"], crash["detail"]) == (3, "it exited with status 3")
    (kill,) = records(folder, "kill")
    assert (kill["cell"], kill["why"]) == (4, "timeout")
    (undo,) = records(folder, "undo")
    assert (undo["cell"], undo["counts"]) == (6, [4])
    assert len(records(folder, "restore")) == 3
    stopped = [
        (o["cell"], o["why"]) for o in records(folder, "outcome") if o["status"] == "stopped"
    ]
    assert stopped == [(3, "crash"), (4, "timeout")]


def test_output_that_nobody_was_shown_and_a_cell_that_is_too_long(start, world):
    kernel = start(world.policy("stdout_max_bytes = 1000"), world=world)
    kernel.run("print('x' * 5_000)")
    kernel.run(
        "from IPython.display import display\ndisplay({'application/javascript': 'x'}, raw=True)"
    )
    kernel.run("#" * 5_000_000)
    assert ended(kernel).sound
    *_, cell = records(home_of(world), "cell")
    assert (cell["decision"], cell["why"]) == ("refused", "it is too long to be looked at")
    first, second = records(home_of(world), "withheld")
    assert (first["cell"], list(first["bytes"])) == (2, ["stdout"])
    assert 4_000 <= first["bytes"]["stdout"] <= 5_001
    assert (second["cell"], second["types"]) == (3, ["application/javascript"])


CELLS = [
    f"x = '{SECRET}'  # {SECRET}",
    f"print('{SECRET}')",
    f"raise ValueError('{SECRET}')",
    f"open('{SECRET}')",
    f"'{SECRET}'",
    f"getattr(1, '{SECRET} x')",
    f"class E(Exception): pass\nE.__name__ = '{SECRET} x'\nraise E",
]


@pytest.mark.parametrize("sources", [False, True])
def test_what_cells_say_is_on_the_log_only_if_the_policy_says_so(start, world, sources):
    kernel = start(world.policy(f"audit.sources = {str(sources).lower()}"), world=world)
    for code in CELLS:
        kernel.run(code, user_expressions={SECRET: f"'{SECRET}'"})
    assert ended(kernel).sound
    text = "".join(file.read_text() for file in home_of(world).iterdir())
    assert (SECRET in text) == sources
    assert len(records(home_of(world), "cell")) == len(CELLS) + 1


def test_no_log_is_kept_where_the_policy_says_so(start, world):
    kernel = start(world.policy("audit.log = false\naudit.required = true"), world=world)
    assert kernel.run("1")[0]["status"] == "ok"
    assert not home_of(world).exists()


# --- files ----------------------------------------------------------------------------------------


FILL = """
said = None
for n in range(1_000):
    try:
        log_in('\\x01' * 4_000, password='')
    except Exception as exc:
        said = said or (n, str(exc))
print(said)
"""


def test_a_log_that_a_cell_has_filled_lets_nothing_more_run_and_stays_valid(start, world):
    kernel = start(argv=tool_kernels.argv(world, settings="audit.max_bytes = 65536"), world=world)
    _, published = kernel.run(FILL)
    assert "it would not be in the audit log" in reading.stream(published, "stdout")
    reply, published = kernel.run("1")
    assert reply["ename"] == "AuditProblem"
    (card,) = reading.cards(published, "problem")
    assert card["key"] == "audit.max_bytes"
    assert "Start a new session" in card["remedy"]
    assert ended(kernel).sound
    assert sum(file.stat().st_size for file in home_of(world).iterdir()) < 2 << 20
    assert decisions(home_of(world)) == [(1, "allowed"), (2, "refused")]


LOOK = """
import os
def tried(what, *args):
    try:
        return what(*args)
    except OSError as exc:
        return type(exc).__name__
print(tried(os.listdir, {folder!r}), tried(lambda: open({file!r}).read(9)),
      tried(lambda: open({file!r}, 'a')), tried(os.unlink, {file!r}),
      tried(lambda: open({beside!r}).read()))
"""


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_guest_can_neither_read_nor_write_it_though_its_root_is_the_home(start, world, elsewhere):
    folder = world.home / "mine" / "logs" if elsewhere else home_of(world)
    (world.home / "mine").mkdir()
    (world.home / "mine" / "beside.txt").write_text("seen")
    text = f'extends = "unsafe"\nfilesystem_read_roots = ["~"]\naudit.folder = "{folder}"'
    kernel = start(world.policy(text), "--allow-unsafe", world=world)
    (file,) = folder.iterdir()
    beside = str(world.home / "mine" / "beside.txt")
    _, said = kernel.run(LOOK.format(folder=str(folder), file=str(file), beside=beside))
    assert reading.stream(said) == f"{'PermissionError ' * 4}seen\n"
    assert file.exists()


@pytest.mark.parametrize("where", ["writable", "libraries"])
def test_a_log_is_not_kept_where_cells_may_write_or_always_read(world, where):
    place = world.work if where == "writable" else Path(os.__file__).parent
    policy = world.policy(
        f'filesystem_write_roots = ["{{scratch}}", "{world.work}"]\n'
        f'audit.folder = "{place / "logs"}"'
    )
    with Kernel(argv_for(policy), world=world) as kernel:
        reply, said = kernel.wait_heard().run("1")
    assert reply["ename"] == "PolicyProblem"
    (card,) = reading.cards(said, "problem")
    keys = {"writable": "filesystem_write_roots", "libraries": "audit.folder"}
    assert card["key"] == keys[where]
    assert not (place / "logs").exists()


# --- what happens where it can't be written -------------------------------------------------------


@pytest.fixture
def folder(world):
    """A folder for logs that is not there yet."""
    return world.root / "logs"


def begun(world, text="", *, required="false"):
    """Return a kernel whose log is in that folder, once it is heard; it is a context, too."""
    audit = f'[audit]\nrequired = {required}\nfolder = "{world.root / "logs"}"\n'
    return Kernel(argv_for(world.policy(f"{text}\n{audit}")), world=world).wait_heard()


def replace_by_link(folder, target):
    """Put a link in a folder's place: while its kernel may be writing how the last cell ended."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return folder.symlink_to(target)
        except FileExistsError:
            time.sleep(0.01)
    raise AssertionError(f"{folder} comes again and again")


def test_a_log_that_is_required_and_cannot_be_written_lets_no_cell_run(world, folder):
    folder.symlink_to(world.work)
    with begun(world, required="true") as kernel:
        reply, said = kernel.run("1")
        assert reply["ename"] == "AuditProblem"
        (card,) = reading.cards(said, "problem")
        assert card["title"] == "This cell did not run: it would not be in the audit log"
        assert (Path(card["file"]).parent, card["key"]) == (folder, "audit.folder")
        assert card["remedy"] == f"Put a folder at {folder}, or name where the link leads."
        assert not list(world.work.iterdir())
        folder.unlink()
        assert kernel.run("1")[0]["status"] == "ok"
    assert verdict(folder).state == "ended"
    assert decisions(folder) == [(1, "refused"), (2, "allowed")]


def test_a_comm_that_a_page_opens_in_vain_for_want_of_a_log_is_closed_again(world, folder):
    with begun(world, 'comm_targets = ["echo"]', required="true") as kernel:
        kernel.run("1")
        replace_by_link(folder, world.work)
        kernel.run("1")
        asked = {"comm_id": "c1", "target_name": "echo", "data": {}}
        said = kernel.until_idle(kernel.send("comm_open", asked))
        (closed,) = reading.of(said, "comm_close")
        assert closed["comm_id"] == "c1"
        folder.unlink()
        said = kernel.until_idle(kernel.send("comm_msg", {"comm_id": "c1", "data": {}}))
        assert reading.cards(said, "problem") == []


def test_a_log_that_is_not_required_is_said_to_be_missing_once(world, folder):
    folder.symlink_to(world.work)
    with begun(world) as kernel:
        reply, said = kernel.run("1")
        assert reply["status"] == "ok"
        (card,) = reading.cards(said, "problem")
        assert card["title"] == "This cell runs, but is not in the audit log"
        assert card["detail"] == "its folder is a link"
        assert reading.cards(kernel.run("1")[1], "problem") == []
    assert not list(world.work.iterdir())


def test_a_cell_that_its_user_was_asked_about_is_itself_said_to_be_missing(world, folder):
    with begun(world, 'approvals = "prompt"') as kernel:
        kernel.run("1")
        replace_by_link(folder, world.work)
        mid = kernel.execute_send("import bz2\nprint('ran')", allow_stdin=True)
        approvals.answer_question(kernel, "{}")
        assert kernel.reply(mid)["content"]["status"] == "ok"
        shown = kernel.until_idle(mid)
        (card,) = reading.cards(shown, "problem")
        assert card["title"] == "This cell runs, but is not in the audit log"
        kinds = [one["msg_type"] for one in shown]
        assert kinds.index("display_data") < kinds.index("stream")
        assert reading.cards(kernel.run("1")[1], "problem") == []


@pytest.fixture
def tiny(world):
    """A file system of a few pages, with room for a small log."""
    place = world.root / "tiny"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(place)], check=False
    )
    if made.returncode:
        pytest.skip("this machine lets root mount nothing")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place):
    """Take all of the room there is."""
    with (place / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


@needs_root
def test_a_full_disk_stops_cells_where_the_log_is_required_and_costs_nothing(start, world, tiny):
    folder = tiny / "audit"
    policy = world.policy(f'[audit]\nrequired = true\nfolder = "{folder}"')
    kernel = start(policy, world=world)
    kernel.run("kept = 0")
    fill(tiny)
    ran = 0
    while (answer := kernel.run("kept += 1"))[0]["status"] == "ok":
        ran += 1
    reply, said = answer
    assert reply["ename"] == "AuditProblem"
    (log,) = folder.iterdir()
    (card,) = reading.cards(said, "problem")
    del card["version"]
    assert card == {
        "title": "This cell did not run: it would not be in the audit log",
        "detail": "it can't be written: No space left on device. Your variables are kept.",
        "file": str(log),
        "key": "audit.folder",
        "value": "",
        "remedy": "Make room there, or set another audit.folder in the policy.",
    }
    assert kernel.run("kept += 1")[0]["status"] == "error"
    (tiny / "filler").unlink()
    assert reading.result(kernel.run("kept")[1]) == str(ran)
    kernel.end()
    seen = verdict(folder)
    assert (seen.problems, seen.state) == ([], "ended")
    assert [d for _, d in decisions(folder)] == ["allowed"] * (ran + 1) + ["refused"] * 2 + [
        "allowed"
    ]


# --- the command ----------------------------------------------------------------------------------


def test_the_command_shows_verifies_and_exports_what_a_kernel_wrote(
    start, world, monkeypatch, capfd
):
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("COLUMNS", "120")

    def cellblock(*arguments):
        monkeypatch.setattr(sys, "argv", ["cellblock", "audit", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        return ended.value.code, out + err

    kernel = start("safe", world=world)
    kernel.run("import gc")
    capfd.readouterr()
    assert cellblock("verify")[0] == 0
    assert "running" in cellblock("show")[1]
    kernel.end()
    seen = verdict(home_of(world))
    whole = f"{seen.session}: {seen.records} records, whole\n  head {seen.seq} {seen.head}\n"
    assert cellblock("verify", seen.session[:4]) == (0, whole)
    assert "import-not-allowed" in cellblock("show", "last")[1]
    status, exported = cellblock("export", "last")
    assert status == 0
    assert [json.loads(line) for line in exported.splitlines()] == records(home_of(world))
    assert cellblock("export", "last", "--head")[1] == f"{seen.session} {seen.seq} {seen.head}\n"
