"""How a zygote or its reaper ends what descends from it."""

import os

import pytest

from cellblock.guest import reaper


class Processes:
    """Children of this process and theirs; ``out_of_reach`` are those that it may not kill."""

    def __init__(self, monkeypatch, children, *, out_of_reach=()):
        self._children, self._out_of_reach = {os.getpid(): [*children]} | children, out_of_reach
        self.alive = {*children}.union(*children.values())
        #: How often children were looked up.
        self.looks = 0
        monkeypatch.setattr(reaper, "_children_of", self._look)
        monkeypatch.setattr(reaper.os, "kill", self._kill)
        monkeypatch.setattr(reaper.os, "waitpid", self._wait)

    def _look(self, pid):
        self.looks += 1
        return [*self._children.get(pid, [])]

    def _kill(self, pid, _number):
        if pid in self._out_of_reach:
            raise PermissionError
        self.alive.discard(pid)

    def _wait(self, _pid, options):
        assert self.alive <= {*self._out_of_reach}, "it waits while something runs"
        ours = self._children[os.getpid()]
        ended = next((pid for pid in ours if pid not in self._out_of_reach), 0)
        if not ours:
            raise ChildProcessError
        if not ended:
            assert options == os.WNOHANG, "it waits for who may not be killed"
            return 0, 0
        ours.remove(ended)
        return ended, 9


@pytest.mark.parametrize(
    "children",
    [{11: [], 12: [], 13: []}, {11: [21, 22], 21: [31]}],
    ids=["children", "children of children"],
)
def test_all_are_killed_before_one_is_waited_for(monkeypatch, children):
    processes = Processes(monkeypatch, children)
    reaper.end_children()
    assert processes.alive == set()


@pytest.mark.parametrize("others", [{}, {11: [], 12: []}])
def test_a_child_that_may_not_be_killed_is_not_waited_for(monkeypatch, others):
    processes = Processes(monkeypatch, others | {13: []}, out_of_reach=[13])
    reaper.end_children()
    assert processes.alive == {13}


def test_many_are_ended_in_two_looks(monkeypatch):
    """Each look for each of them: a session's 450 forks kept its folder from being removed."""
    processes = Processes(monkeypatch, {pid: [] for pid in range(1_000, 1_450)})
    reaper.end_children()
    assert processes.alive == set()
    assert processes.looks < 4 * 450
