"""History on the host: this session in memory, earlier ones from the file."""

import contextlib
import os
import pwd
import sqlite3
import time
from pathlib import Path

import pytest

from cellblock.host.session.history import History, default_path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "history.sqlite"


@pytest.fixture
def history(path, closing):
    return closing(History(path))


def test_this_session_is_0_and_earlier_ones_keep_their_numbers(path, history):
    first = History(path)
    first.store(1, "%time a", "time(a)")
    first.store(2, "b", "b")
    first.close()
    history.store(1, "c", "c")
    assert history.tail(10, raw=True) == [(1, 1, "%time a"), (1, 2, "b"), (0, 1, "c")]
    assert history.tail(10, raw=False)[0] == (1, 1, "time(a)")
    assert history.tail(2, raw=True) == [(1, 2, "b"), (0, 1, "c")]
    assert history.tail(0, raw=True) == []


def test_what_was_written_is_not_shown_twice(history):
    history.store(1, "a", "a")
    history.flush()
    history.flush()
    assert history.tail(10, raw=True) == [(0, 1, "a")]


@pytest.mark.parametrize("before", [None, 0o644])
def test_file_and_folder_are_the_users_alone(path, before):
    if before:
        made(path)
        path.chmod(before)
    assert tail(path) == ["ours"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_reading_alone_makes_no_file(path, history):
    assert history.tail(10, raw=True) == []
    assert not path.exists()


@pytest.mark.parametrize(
    "put",
    [lambda path: path.write_bytes(b"not a database" * 100), Path.mkdir, os.mkfifo],
    ids=["garbage", "folder", "pipe"],
)
def test_a_database_that_can_not_be_used_costs_the_earlier_history_only(path, put):
    path.parent.mkdir(mode=0o700)
    put(path)
    assert tail(path) == ["ours"]


def test_ranges_end_before_their_stop_and_know_no_other_session(history):
    for n in range(1, 5):
        history.store(n, f"c{n}", f"c{n}")
    assert [e[1] for e in history.range(0, 2, 4, raw=True)] == [2, 3]
    assert [e[1] for e in history.range(0, 3, None, raw=True)] == [3, 4]
    assert history.range(7, 1, None, raw=True) == []


def test_a_search_finds_the_last_and_each_once_when_asked(history):
    for n, text in enumerate(["plot(a)", "x", "plot(a)", "plot(b)"], 1):
        history.store(n, text, text)
    texts = [e[2] for e in history.search("plot*", None, raw=True, unique=False)]
    assert texts == ["plot(a)", "plot(a)", "plot(b)"]
    assert [e[2] for e in history.search("plot*", 1, raw=True, unique=False)] == ["plot(b)"]
    assert len(history.search("plot*", None, raw=True, unique=True)) == 2


# --- files that somebody else has prepared --------------------------------------------------------

MADE = """
create table sessions (id integer primary key autoincrement, started text);
create table history (session integer, line integer, raw text, source text,
    primary key (session, line));
insert into sessions (started) values ('then');
"""


THEIRS = "insert into history values (1, 1, 'theirs', 'theirs')"


def made(path, *statements):
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as db:
        for statement in (MADE, *statements):
            db.executescript(statement)


def tail(path):
    history = History(path)
    history.store(1, "ours", "ours")
    began = time.monotonic()
    found = history.tail(50, raw=True)
    history.close()
    assert time.monotonic() - began < 2
    return [text for *_, text in found]


def test_positive_control_an_earlier_history_is_read(path):
    made(path, THEIRS)
    assert tail(path) == ["theirs", "ours"]


HOSTILE = {
    "a view that never ends": """
        drop table history;
        create view history as with recursive n(i) as (select 1 union all select i + 1 from n)
            select i as session, i as line, 'x' as raw, 'x' as source from n""",
    "a trigger": """
        create trigger t after insert on history begin
            insert into history select session, line + 1, raw || raw, source from history; end""",
    "an index over an expression": "create index i on history (hex(raw))",
    "a table of other columns": "drop table history; create table history (a, b, c, d, e)",
    "no table of that name": "drop table history; create table other (x)",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_database_that_holds_more_than_history_is_not_read(path, capsys, what):
    made(path, HOSTILE[what])
    before = path.read_bytes()
    assert tail(path) == ["ours"]
    assert f"history is off: {path}" in capsys.readouterr().err
    assert len(path.read_bytes()) < len(before) + 100_000


@pytest.mark.parametrize(
    "row",
    [
        "1, 1, zeroblob(3000000), zeroblob(3000000)",
        "1, 1, x'fffe', x'fffe'",
        "1, 1, null, null",
        "1, 1, hex(zeroblob(2000000)), hex(zeroblob(2000000))",
        "'a', x'00', 'theirs', 'theirs'",
    ],
)
def test_entries_that_are_no_text_or_too_long_and_numbers_that_are_none_are_left_out(path, row):
    made(path, f"insert into history values ({row})")
    assert tail(path) == ["ours"]


def test_what_comes_back_at_once_is_bounded(path):
    row = "insert into history values (1, {}, hex(zeroblob(500000)), 'x')"
    made(path, *(row.format(n) for n in range(30)))
    assert sum(map(len, tail(path))) < 10 << 20


def test_a_database_that_somebody_keeps_locked_holds_nobody_up(path, capsys):
    made(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("begin exclusive")
        assert tail(path) == ["ours"]
    assert "locked" in capsys.readouterr().err


def test_a_link_is_not_followed(path, tmp_path, capsys):
    target = tmp_path / "other.sqlite"
    made(target, THEIRS)
    target.chmod(0o644)
    before = target.read_bytes()
    path.parent.mkdir(mode=0o700)
    path.symlink_to(target)
    assert tail(path) == ["ours"]
    assert target.read_bytes() == before
    assert target.stat().st_mode & 0o777 == 0o644
    assert "history is off" in capsys.readouterr().err


def test_a_link_to_nowhere_makes_no_file(path, tmp_path):
    path.parent.mkdir(mode=0o700)
    path.symlink_to(tmp_path / "new")
    assert tail(path) == ["ours"]
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_a_link_is_not_followed(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    path.parent.symlink_to(tmp_path / "elsewhere")
    assert tail(path) == ["ours"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_others_can_write_is_not_trusted_and_the_message_says_what_to_do(path, capsys, which):
    made(path, THEIRS)
    (path if which == "file" else path.parent).chmod(0o777)
    assert tail(path) == ["ours"]
    assert "chmod go-w" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_file_of_somebody_elses_is_not_trusted(path, capsys):
    made(path, THEIRS)
    os.chown(path, 65534, 65534)
    assert tail(path) == ["ours"]
    assert "belongs to uid 65534. Remove it." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cache", "expected"), [("{}/c", "c"), (None, ".cache"), ("cache", ".cache")]
)
def test_the_default_is_in_the_users_cache_unless_that_is_named_relatively(
    monkeypatch, tmp_path, cache, expected
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if cache:
        monkeypatch.setenv("XDG_CACHE_HOME", cache.format(tmp_path))
    assert default_path() == tmp_path / expected / "cellblock" / "history.sqlite"


def test_without_a_home_there_is_no_file_and_no_error(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert tail(default_path()) == ["ours"]
    assert list(tmp_path.iterdir()) == []
