"""What a cell wrote is looked for where cells may keep folders locked: no loop waits for that."""

import threading
from types import SimpleNamespace

import pytest

from cellblock.host.cell.cell import CellRun
from cellblock.host.cell.status import Views
from cellblock.host.cell.written import PATIENCE, Looks, Written
from cellblock.host.session.types import ExecuteRequest, Outcome, Usage
from cellblock.jupyter.lab_changes import StagedChanges
from support.simulator import Reactor

RAN = Outcome("ok", usage=Usage(1.0, 1.0, 0, 0, 0))


@pytest.fixture
def locked(monkeypatch):
    """A folder that is locked: ``looks`` are those that came to it."""
    monkeypatch.undo()  # threads are threads here
    gate = SimpleNamespace(looks=[], came=threading.Event(), opens=threading.Event())

    def look(*_, **__):
        gate.looks.append(threading.current_thread())
        gate.came.set()
        gate.opens.wait()
        return Written(is_staged=True)

    gate.look = look
    yield gate
    gate.opens.set()


def test_a_cell_ends_though_what_it_wrote_is_locked_and_the_next_is_not_kept(locked, monkeypatch):
    reactor, ended = Reactor(), []
    front = SimpleNamespace(views=Views(), exports=None, looks=Looks(reactor))
    monkeypatch.setattr(front.views, "look", lambda *_, **__: locked.look)
    monkeypatch.setattr(CellRun, "_finish", lambda _, *found: ended.append(found[1:]))
    CellRun(front, ExecuteRequest(code="~"), None)._done(RAN)
    assert locked.came.wait(10)
    reactor.advance(PATIENCE / 2)
    assert ended == []
    reactor.advance(PATIENCE / 2)
    assert ended == [(None, Written())]
    CellRun(front, ExecuteRequest(code="~"), None)._done(RAN)
    assert ended == [(None, Written())] * 2
    assert len(locked.looks) == 1


def test_a_cell_is_told_what_was_found(monkeypatch):
    reactor, ended, found = Reactor(), [], Written(is_staged=True)
    front = SimpleNamespace(views=Views(), exports=None, looks=Looks(reactor))
    monkeypatch.setattr(front.views, "look", lambda *_, **__: lambda: found)
    monkeypatch.setattr(CellRun, "_finish", lambda _, *found: ended.append(found[1:]))
    CellRun(front, ExecuteRequest(code="~"), None)._done(RAN)
    reactor.turn()
    assert ended == [(None, found)]


def test_the_list_of_a_panel_is_made_beside_the_loop(locked):
    reactor, told = Reactor(), []
    views = SimpleNamespace(staged=SimpleNamespace(is_written_to=locked.look))
    views.listable = lambda: views.staged
    staged = StagedChanges(views, None, reactor, lambda: told.append("list"))
    staged.look()
    ended = threading.Thread(target=lambda: reactor.advance(60))
    ended.start()
    assert locked.came.wait(10)
    assert locked.looks != [ended]
    ended.join()
    assert told == []
    staged.close()
