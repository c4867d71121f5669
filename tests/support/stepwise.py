"""``Stepwise``: a simulated session with snapshots, run step by step."""

from __future__ import annotations

from cellblock.host.session.types import ExecuteRequest, Restored, Stopped
from cellblock.host.state import core
from cellblock.policy.model import Policy
from cellblock.wire import messages
from support.simulator import Simulation

#: A cell that the guest reports as repeatable, and one that it does not.
EXACT, INEXACT = "x = 1", "x = (1).bit_length()"


class Stepwise(Simulation):
    """A simulated session with snapshots and numbered cells.

    Unless ``at_once``, it is idle first, so that a copy is made before the first cell.
    """

    def __init__(self, monkeypatch, *, narrower=None, approver=None, at_once=False, **settings):
        policy = Policy().replace(**{"snapshots": "always", "undo_depth": 5} | settings)
        super().__init__(
            monkeypatch, timeout=None, policy=policy, narrower=narrower, approver=approver
        )
        self.count = 0
        self.session.start()
        self.reactor.turn()
        if not at_once:
            self.reactor.advance(core.IDLE)

    def begin(self, code=INEXACT, **fields):
        """Run a cell and let the guest begin it; return the request."""
        self.count += 1
        self.run(ExecuteRequest(code=code, execution_count=self.count, **fields))
        (request,) = self.guest.read()
        self.guest.send(messages.Began(id=request.id))
        self.reactor.turn()
        return request

    def cell(self, code=INEXACT, seconds=0.0, **fields):
        """Run a cell to its end; return its outcome, or None if it is not answered yet."""
        known = len(self.outcomes)
        request = self.begin(code, **fields)
        self.reactor.advance(seconds)
        self.guest.send(messages.Done(id=request.id, repeatable=code != INEXACT))
        self.reactor.turn()
        return self.outcomes[-1] if len(self.outcomes) > known else None

    def kept(self, code=INEXACT, **fields):
        """Run a cell, and let the copy with its state get ready; return that copy."""
        self.cell(code, **fields)
        self.reactor.advance(core.IDLE)
        copy = self.guest.copy()
        self.stands(copy)
        return copy

    def again(self, code):
        """Let the copy that takes over replay a cell, which must be ``code``."""
        (request,) = self.guest.read()
        assert (type(request), request.raw) == (messages.Execute, code)
        self.guest.send(messages.Began(id=request.id), messages.Done(id=request.id))
        self.reactor.turn()

    def losses(self):
        """Return the outcomes of guests that were lost while nothing ran."""
        return [stopped for kind, stopped in self.notes if kind == "restarted"]

    def notices(self):
        return [text for kind, text in self.notes if kind == "noticed"]


CRASH = "it was ended by signal SIGKILL"


def outcome_of_loss(**restored):
    return Stopped("crash", CRASH, restored=Restored(**restored))
