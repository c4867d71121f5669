"""A session whose user is asked: when cells are sent, and whose time it is; no process is started."""

import signal

import pytest

from cellblock.host.outcome import Cell
from cellblock.wire import messages
from support.approvals import Desk, call
from support.simulator import Simulation


class Consented:
    """A simulated session with a clerk, and the user that it asks."""

    def __init__(self, monkeypatch, path):
        self.desk = Desk(path)
        self.sim = Simulation(monkeypatch, timeout=10.0, clerk=self.desk.clerk)
        self.user, self.session = self.desk.user, self.sim.session
        self.session.start()
        self.sim.reactor.turn()

    def run(self, code, **fields):
        self.sim.run(Cell(raw=code, execution_count=1, allow_stdin=True, **fields))

    def sent(self):
        self.sim.reactor.turn()
        return self.sim.guest.read()

    def says(self, word=""):
        self.user.says(word)
        self.sim.reactor.turn()

    def take_up(self):
        (request,) = self.sent()
        self.sim.guest.send(messages.Began(id=request.id))
        self.sim.reactor.turn()
        return request

    def end(self, request):
        self.sim.guest.send(messages.Done(id=request.id))
        self.sim.reactor.turn()

    @property
    def outcomes(self):
        return self.sim.outcomes


@pytest.fixture
def consented(monkeypatch, tmp_path):
    made = Consented(monkeypatch, tmp_path / "state" / "grants.json")
    yield made
    made.sim.close()


# --- imports ----------------------------------------------------------------------------------


def test_nothing_is_sent_while_the_user_is_asked(consented):
    consented.run("import csv")
    assert "may cell [1] import csv?" in consented.user.text
    assert (consented.sent(), consented.outcomes) == ([], [])
    consented.says()
    (request,) = consented.sent()
    assert request.source == "import csv"
    assert request.granted == messages.Granted(modules=("csv",))


def test_a_cell_that_needs_no_approval_is_sent_as_ever(consented):
    consented.run("import math")
    (request,) = consented.sent()
    assert request.granted is None
    assert consented.user.questions == []


def test_a_no_is_a_denial_that_says_so(consented):
    consented.run("import csv")
    consented.says("no")
    (outcome,) = consented.outcomes
    assert outcome.status == "denied"
    assert [f.remedy for f in outcome.findings] == [
        "You said no. Run the cell again to be asked again."
    ]
    assert consented.sent() == []


def test_without_input_it_is_a_denial_at_once(consented):
    consented.user.takes_input = False
    consented.run("import csv")
    (outcome,) = consented.outcomes
    assert outcome.status == "denied"
    assert "approve it where you can be asked" in outcome.findings[0].remedy


@pytest.mark.parametrize("code", ["import os", "import csv, os", "import csv\nopen('x')"])
def test_what_approval_does_not_help_is_denied_unasked(consented, code):
    consented.run(code)
    assert [outcome.status for outcome in consented.outcomes] == ["denied"]
    assert consented.user.questions == []


def test_once_is_for_that_cell_and_no_other(consented):
    consented.run("import csv")
    consented.says()
    consented.end(consented.take_up())
    consented.run("import csv")
    assert len(consented.user.questions) == 2
    consented.says("session")
    consented.end(consented.take_up())
    consented.run("x = 1")
    assert consented.take_up().granted == messages.Granted(modules=("csv",))


def test_what_is_taken_back_is_not_granted_to_the_next_cell(consented):
    consented.run("import csv")
    consented.says("always")
    consented.end(consented.take_up())
    consented.desk.store.revoke(None)
    consented.run("x = 1")
    request = consented.take_up()
    assert request.granted is None
    consented.end(request)
    consented.run("import csv")
    assert len(consented.user.questions) == 2


def test_an_interrupt_while_the_user_is_asked_denies_the_cell_and_nothing_else(consented):
    consented.run("import csv")
    consented.session.interrupt()
    assert [outcome.status for outcome in consented.outcomes] == ["denied"]
    assert consented.user.withdrawn == 1
    assert consented.sim.signals() == []
    consented.says("always")
    assert consented.sent() == []
    assert consented.desk.store.grants() == ()


def test_an_expression_beside_a_cell_may_use_what_that_was_granted(consented):
    consented.run("import csv", user_expressions={"x": "csv.reader"})
    consented.says()
    assert consented.take_up().user_expressions == {"x": "csv.reader"}


def test_the_longest_of_names_is_not_taken_for_the_part_of_it_that_is_told(consented):
    name = "csv." + "a" * 200
    consented.run(f"import {name}")
    assert consented.user.questions == []


# --- time -------------------------------------------------------------------------------------


def test_the_users_time_is_not_the_cells(consented):
    consented.run("x = 1")
    consented.take_up()
    consented.sim.reactor.advance(6.0)
    consented.desk.calls("a")
    consented.sim.reactor.advance(600.0)
    assert consented.sim.signals() == []
    consented.says()
    assert len(consented.desk.ran) == 1
    consented.sim.reactor.advance(3.0)
    assert consented.sim.signals() == []
    consented.sim.reactor.advance(2.0)
    assert consented.sim.signals() == [signal.SIGINT]


def test_time_goes_on_only_when_neither_question_stands(consented):
    consented.run("x = 1")
    request = consented.take_up()
    consented.sim.guest.send(messages.InputRequest(id=request.id, prompt="Name? "))
    consented.sim.reactor.turn()
    consented.desk.calls("a")
    consented.session.answer("Ada")
    consented.sim.reactor.advance(600.0)
    assert consented.sim.signals() == []
    consented.says()
    consented.sim.reactor.advance(11.0)
    assert consented.sim.signals() == [signal.SIGINT]


def test_the_end_of_a_cell_ends_its_questions(consented):
    consented.run("x = 1")
    request = consented.take_up()
    consented.desk.calls("a")
    consented.end(request)
    assert consented.desk.refused == [(1, "the cell has ended")]
    assert consented.user.withdrawn == 1


def test_an_interrupt_refuses_what_a_cell_waits_for(consented):
    consented.run("x = 1")
    consented.take_up()
    consented.desk.calls("a")
    consented.session.interrupt()
    consented.desk.calls("b", number=2)
    assert [why for _, why in consented.desk.refused] == ["it was interrupted"] * 2


def test_a_cell_is_interrupted_before_it_hears_that_what_it_asks_for_is_refused(consented):
    consented.run("x = 1")
    consented.take_up()
    sent_by_then = []

    def refuse(_why):
        sent_by_then.extend(consented.sim.signals())

    consented.desk.clerk.decide(call("a"), lambda: None, refuse)
    consented.session.interrupt()
    assert sent_by_then == [signal.SIGINT]
    consented.sim.reactor.advance(1)
    assert consented.sim.signals() == []
