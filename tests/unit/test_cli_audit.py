"""`cellblock audit` over logs that are whole, broken, foreign or not there."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cellblock.host.audit import records
from cellblock.host.audit.log import Log, body


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    """Run `cellblock audit` in-process; return exit status, stdout and stderr."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    return partial(command, "audit")


@pytest.fixture
def log(tmp_path):
    """A log of three records, of which the last ends it."""
    return written(tmp_path / "cellblock" / "audit")


def written(folder, text="x"):
    log = Log(folder, max_bytes=1 << 20, fsync=False)
    log.write([body(records.Notice(text=text)), body(records.Failure(detail="\x1b[2J[red]"))])
    log.write([body(records.SessionEnd(cells=0))])
    log.close()
    return log


def test_where_no_log_is_that_is_said_and_help_names_the_folder(run, tmp_path):
    assert run("verify") == (0, f"no session in {tmp_path}/cellblock/audit\n", "")
    assert run("show")[0] == 0
    status, _, err = run("show", "last")
    assert status == 2
    assert err == (
        f"cellblock: {tmp_path}/cellblock/audit: no session last. "
        "`cellblock audit show` lists all sessions.\n"
    )

    _, out, _ = run("verify", "--help")
    assert "cache folder" in out
    assert "state folder" not in out


def test_an_edited_record_is_named_by_file_and_line(run, log):
    log.path.write_text(log.path.read_text().replace('"x"', '"y"'))
    status, out, _ = run("verify")
    assert status == 1
    assert out == (
        f"{log.session}: 3 records, not whole\n"
        f"  {log.path}:1: record 0 was changed: its hash is not that of its bytes\n"
    )
    status, out, err = run("export", "last")
    assert (status, out) == (1, log.path.read_text())
    assert err.startswith(f"cellblock: {log.path}:1: record 0 was changed")


def test_the_log_of_a_killed_host_is_no_error_unless_logs_have_to_be_ended(run, log):
    lines = log.path.read_text().splitlines(keepends=True)
    log.path.write_text("".join(lines[:-1]))
    status, out, _ = run("verify")
    assert status == 0
    assert "its end is open: the host was killed, or records are cut off" in out
    assert run("verify", "--ended")[0] == 1
    written(log.path.parent)
    status, out, _ = run("verify")
    assert (status, out.splitlines()[-1]) == (0, "2 logs: 1 with an open end")
    log.path.write_text("".join(lines[1:]))
    status, out, _ = run("verify")
    assert (status, out.splitlines()[-1]) == (1, "2 logs: 1 not whole")


def test_a_kept_head_shows_that_the_end_is_cut(run, log):
    session, seq, head = run("export", "last", "--head")[1].split()
    assert (session, seq) == (log.session, "2")
    assert run("verify", "last", "--head", head)[0] == 0
    lines = log.path.read_text().splitlines(keepends=True)
    log.path.write_text("".join(lines[:-1]))
    status, out, _ = run("verify", "last", "--head", head)
    assert status == 1
    assert "the hash that was kept is not here" in out


def test_a_head_is_of_one_session(run, log):
    assert log
    written(log.path.parent)
    status, _, err = run("verify", "--head", "00")
    assert status == 2
    assert "Name the session" in err


def test_what_a_record_says_is_no_command_to_the_terminal(run, log):
    assert log
    status, out, _ = run("show", "last")
    assert status == 0
    assert "\x1b" not in out
    assert "�[2J[red]" in out


def test_a_letter_that_the_terminal_lacks_is_spelled_by_its_number(tmp_path):
    written(tmp_path / "cellblock" / "audit", text="a ☃")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from cellblock.cli.main import main; main()",
            "audit",
            "show",
            "last",
        ],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"a \\u2603" in done.stdout


def test_the_list_shows_ids_and_times_whole_in_80_columns(run, log, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("show")
    (line,) = [line for line in out.splitlines() if log.session in line]
    assert re.fullmatch(rf"\s*{log.session} +\d{{4}}-\d\d-\d\d \d\d:\d\d .* ended\s*", line)
    assert "…" not in out
    assert max(map(len, out.splitlines()[1:])) <= 80


def test_a_log_is_named_by_its_file_too_wherever_that_lies(run, log, tmp_path):
    status, out, _ = run("export", str(log.path))
    assert (status, out) == (0, log.path.read_text())
    copy = tmp_path / "copy.jsonl"
    copy.write_text(out)
    assert run("verify", str(copy))[0] == 0


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("thing", Path.mkdir),
        ("thing", os.mkfifo),
        ("thing", str),  # makes nothing
        ("20000101T000000Z-0123456789abcdef", str),
    ],
)
def test_what_is_no_log_is_said_in_one_line(run, tmp_path, name, make):
    path = tmp_path / f"{name}.jsonl"
    make(path)
    status, _, err = run("verify", str(path))
    assert status == 2
    assert err.count("\n") == 1
    assert str(path) in err


def test_a_log_that_can_not_be_read_is_told_and_the_others_are_looked_at(run, log):
    link = log.path.with_name("20000101T000000Z-0123456789abcdef.jsonl")
    link.symlink_to(log.path)
    status, out, err = run("verify")
    assert (status, err) == (1, "")
    assert out.startswith(
        f"0123456789abcdef: 0 records, not whole\n  {link}: it is a link\n"
        f"{log.session}: 3 records, whole\n"
    )
    status, out, err = run("show")
    assert status == 1
    assert re.search(r"0123456789abcdef .* unreadable", out)
    assert re.search(rf"{log.session} .* ended", out)
    assert err.startswith(f"cellblock: {link}: it is a link")
    assert run("verify", "last")[0] == 0
    status, out, err = run("export", "0123")
    assert (status, out, err) == (1, "", f"cellblock: {link}: it is a link\n")


def test_problems_beyond_those_that_are_told_are_counted(run, log):
    log.path.write_text("x\n" * 1_234)
    status, out, _ = run("verify")
    assert status == 1
    assert out.endswith(f"  {log.path}:100: no record\n  and 1,134 more problems\n")
    assert len(out.splitlines()) == 102
    status, _, err = run("export", "last", "--head")
    assert status == 1
    assert err.endswith("cellblock: and 1,134 more problems\n")
