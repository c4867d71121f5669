"""How a zygote or its reaper ends its children."""

import pytest

from cellblock.guest import reaper


class Children:
    """Children of a process, of which it may not kill those that are ``out_of_reach``."""

    def __init__(self, monkeypatch, pids, *, out_of_reach=()):
        self.alive, self.killed, self._out_of_reach = [*pids], [], out_of_reach
        monkeypatch.setattr(reaper, "_children", lambda: [*self.alive, *self.killed])
        monkeypatch.setattr(reaper.os, "kill", self._kill)
        monkeypatch.setattr(reaper.os, "waitpid", self._wait)

    def _kill(self, pid, _number):
        if pid in self._out_of_reach:
            raise PermissionError
        if pid in self.alive:
            self.alive.remove(pid)
            self.killed.append(pid)

    def _wait(self, _pid, _options):
        assert self.killed, "it would wait for a child that nobody has killed"
        return self.killed.pop(), 9


def test_all_children_are_killed_and_waited_for(monkeypatch):
    children = Children(monkeypatch, [11, 12, 13])
    reaper.end_children()
    assert children.alive == children.killed == []


@pytest.mark.parametrize("others", [[], [11, 12]])
def test_a_child_that_may_not_be_killed_is_not_waited_for(monkeypatch, others):
    children = Children(monkeypatch, [*others, 13], out_of_reach=[13])
    reaper.end_children()
    assert (children.alive, children.killed) == ([13], [])
