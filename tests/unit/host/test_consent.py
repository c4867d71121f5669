"""A session whose user is asked: when cells are sent, and whose time it is; no process is started."""

import signal

import pytest

from cellblock.wire import messages
from support.approvals import Desk, always_answers, call


@pytest.fixture
def sim(simulate, tmp_path):
    """Return a simulated session with a approver, and the user that it asks."""
    desk = Desk(tmp_path / "data")
    made = simulate(timeout=10.0, approver=desk.approver)
    made.desk, made.user = desk, desk.user
    return made


def imports(sim, answer=""):
    """Run a cell that needs an approval, and give the answer."""
    sim.runs("import bz2")
    sim.user.says(answer)


# --- imports ----------------------------------------------------------------------------------


def test_nothing_is_sent_while_the_user_is_asked(sim):
    sim.runs("import bz2")
    assert "may cell [1] import bz2?" in sim.user.text
    assert (sim.guest.read(), sim.outcomes) == ([], [])
    sim.user.says()
    request = sim.sent()
    assert request.source == "import bz2"
    assert request.granted == messages.Granted(modules=("bz2",))


def test_a_cell_that_needs_no_approval_is_sent_as_ever(sim):
    assert sim.took_up("import math").granted is None
    assert sim.user.questions == []


def test_a_no_is_a_denial_that_says_so(sim):
    imports(sim, answer="no")
    assert sim.ended.status == "denied"
    remedies = [f.remedy for f in sim.ended.findings]
    assert remedies == ["You said no. Run the cell again to be asked again."]
    sim.reactor.turn()
    assert sim.guest.read() == []


def test_without_input_it_is_a_denial_at_once(sim):
    sim.user.takes_input = False
    sim.runs("import bz2")
    assert sim.ended.status == "denied"
    assert "Approve it where you can be asked" in sim.ended.findings[0].remedy


def test_once_is_for_that_cell_and_no_other(sim):
    imports(sim)
    sim.done(sim.begins())
    sim.runs("import bz2")
    assert len(sim.user.questions) == 2
    sim.user.says("session")
    sim.done(sim.begins())
    sim.runs("x = 1")
    assert sim.begins().granted == messages.Granted(modules=("bz2",))


def test_what_is_taken_back_is_not_granted_to_the_next_cell(sim):
    imports(sim, answer="always")
    sim.done(sim.begins())
    sim.desk.store.revoke(None)
    request = sim.took_up()
    assert request.granted is None
    sim.done(request)
    sim.runs("import bz2")
    assert len(sim.user.questions) == 2


def test_an_interrupt_while_the_user_is_asked_denies_the_cell_and_nothing_else(sim):
    sim.runs("import bz2")
    sim.session.interrupt()
    assert [outcome.status for outcome in sim.outcomes] == ["denied"]
    assert sim.user.withdrawn == 1
    assert sim.signals() == []
    sim.user.says("always")
    sim.reactor.turn()
    assert sim.guest.read() == []
    assert always_answers(sim.desk.store) == []


def test_an_expression_beside_a_cell_may_use_what_that_was_granted(sim):
    sim.runs("import bz2", user_expressions={"x": "bz2.open"})
    sim.user.says()
    assert sim.begins().user_expressions == {"x": "bz2.open"}


@pytest.mark.parametrize(
    "code",
    [
        "import gc",
        "import bz2, os",
        "import bz2\nopen('x')",
        "import bz2." + "a" * 200,  # only a part of it is told
    ],
    ids=lambda code: code[:20],
)
def test_what_approval_does_not_help_is_denied_unasked(sim, code):
    sim.runs(code)
    assert sim.ended.status == "denied"
    assert sim.user.questions == []


# --- time -------------------------------------------------------------------------------------


def test_the_users_time_is_not_the_cells(sim):
    sim.took_up()
    sim.reactor.advance(6.0)
    sim.desk.calls("a")
    sim.reactor.advance(600.0)
    assert sim.signals() == []
    sim.user.says()
    assert len(sim.desk.ran) == 1
    sim.reactor.advance(3.0)
    assert sim.signals() == []
    sim.reactor.advance(2.0)
    assert sim.signals() == [signal.SIGINT]


def test_time_goes_on_only_when_neither_question_stands(sim):
    request = sim.took_up(allow_stdin=True)
    sim.hears(messages.InputRequest(id=request.id, prompt="Name? "))
    sim.desk.calls("a")
    sim.session.answer("Ada")
    sim.reactor.advance(600.0)
    assert sim.signals() == []
    sim.user.says()
    sim.reactor.advance(11.0)
    assert sim.signals() == [signal.SIGINT]


def test_the_end_of_a_cell_ends_its_questions(sim):
    request = sim.took_up()
    sim.desk.calls("a")
    sim.done(request)
    assert sim.desk.refused == [(1, "the cell has ended")]
    assert sim.user.withdrawn == 1


def test_a_cell_that_has_ended_asks_no_more_while_its_snapshot_is_taken(stepped, tmp_path):
    desk = Desk(tmp_path / "data")
    sim = stepped(approver=desk.approver)
    assert sim.cell(seconds=0.2) is None  # not answered: no snapshot stands
    desk.calls("a")
    assert desk.refused == [(1, "nobody can be asked while no cell runs")]
    assert desk.user.questions == []
    sim.stands(sim.guest.copy())
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]


def test_an_interrupt_refuses_what_a_cell_waits_for(sim):
    sim.took_up()
    sim.desk.calls("a")
    sim.session.interrupt()
    sim.desk.calls("b", number=2)
    assert [why for _, why in sim.desk.refused] == ["it was interrupted"] * 2


def test_a_cell_is_interrupted_before_it_hears_that_what_it_asks_for_is_refused(sim):
    sim.took_up()
    sent_by_then = []

    def refuse(_why):
        sent_by_then.extend(sim.signals())

    sim.desk.approver.decide(call("a"), lambda: None, refuse)
    sim.session.interrupt()
    assert sent_by_then == [signal.SIGINT]
    sim.reactor.advance(1)
    assert sim.signals() == []
