"""How a zygote or its reaper ends what descends from it."""

import os

import pytest

from cellblock.guest import reaper


class Processes:
    """Children of this process and theirs; ``out_of_reach`` are those that it may not kill."""

    def __init__(self, monkeypatch, children, *, out_of_reach=()):
        self._children, self._out_of_reach = {os.getpid(): [*children]} | children, out_of_reach
        self.alive = {*children}.union(*children.values())
        monkeypatch.setattr(reaper, "_children_of", lambda pid: self._children.get(pid, []))
        monkeypatch.setattr(reaper.os, "kill", self._kill)
        monkeypatch.setattr(reaper.os, "waitpid", self._wait)

    def _kill(self, pid, _number):
        if pid in self._out_of_reach:
            raise PermissionError
        self.alive.discard(pid)

    def _wait(self, _pid, _options):
        assert self.alive <= {*self._out_of_reach}, "it waits while something runs"
        ours = self._children[os.getpid()]
        ended = next(pid for pid in ours if pid not in self._out_of_reach)
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
