"""Who executes a program holds up nobody who reads what processes took."""

import threading

import pytest

from cellblock.host.limits import stat_reader
from cellblock.host.limits.processes import UNBORN
from cellblock.host.limits.stat_reader import MOST_HELD_UP, StatReader


@pytest.fixture
def locked(monkeypatch):
    """Return which processes keep whoever reads their stat waiting, and what ends that."""
    pids, released = set(), threading.Event()

    def stat(pid):
        if pid in pids:
            released.wait()
        return UNBORN._replace(parent=pid)

    monkeypatch.setattr(stat_reader, "process_stat", stat)
    yield pids, released
    released.set()


def test_one_process_holds_up_one_look_and_no_other(locked):
    pids, released = locked
    pids.add(2)
    reader = StatReader()
    assert list(reader.read([1, 2, 3])) == [1]
    assert list(reader.read([1, 2, 3])) == [1, 3]
    released.set()
    while len(reader.read([1, 2, 3])) < 3:
        pass


def test_no_more_threads_wait_than_may(locked, monkeypatch):
    monkeypatch.setattr(stat_reader, "PATIENCE", 0.001)
    pids, _ = locked
    pids.update(range(100))
    reader, before = StatReader(), threading.active_count()
    for _ in range(100):
        assert reader.read(range(100)) == {}
    assert threading.active_count() - before <= MOST_HELD_UP
