"""Whose a group is that a program signals: the gate answers each of a cell's calls, one by one."""

import os

import pytest

from cellblock.guest.confine import notify

USER = 1


class Sessions(set):
    def user_of(self, number):
        return USER if number in self else -1


@pytest.fixture
def gate(monkeypatch):
    """A gate over processes 100 to 549, each leads a group; ``looks`` counts looks at all."""
    gate, gate_looks, members = notify.Gate.__new__(notify.Gate), [], range(100, 550)
    gate._sessions, gate._groups, gate.looks = Sessions({7}), (frozenset(), 0.0), gate_looks
    gate._is_guests_group = lambda _group: False
    clock = iter(range(10_000))  # each look takes a second
    monkeypatch.setattr(notify.time, "monotonic", lambda: next(clock) / 1)

    def descendants(pid):
        assert pid == os.getpid()
        gate_looks.append(pid)
        return iter([*members, 600])

    monkeypatch.setattr(notify, "descendants", descendants)
    monkeypatch.setattr(notify, "descends", lambda pid, _ancestor: pid in members)
    monkeypatch.setattr(notify, "session", lambda pid: 7 if pid in members or pid == 600 else -1)
    group = {pid: pid for pid in members} | {600: 650}  # its leader has ended
    monkeypatch.setattr(notify, "_group", lambda pid: group.get(pid, -1))
    return gate


def test_a_group_with_a_leader_is_known_without_a_look_at_all(gate):
    assert all(gate._is_of_programs(group, USER) for group in (100, 107, 549))
    assert not any(gate._is_of_programs(group, USER + 1) for group in (100, 107, 549))
    assert gate.looks == []


def test_others_are_looked_for_once_in_a_while(gate):
    for _ in range(3):
        assert gate._is_of_programs(650, USER)
        assert not gate._is_of_programs(651, USER)
    assert len(gate.looks) == 1
    for _ in range(10):
        gate._is_of_programs(650, USER)
    assert len(gate.looks) == 2
