"""P9, from inside: a decision is written before the guest is sent a byte of its cell."""

import json

import pytest

from cellblock.host.audit import log as log_module
from cellblock.host.audit.log import Log
from cellblock.host.audit.recorder import Audit
from cellblock.host.consent.approver import Approver, Decision, Prompt
from cellblock.host.consent.grants import Grants
from cellblock.host.consent.request import ApprovalRequest
from cellblock.host.session.types import ExecuteRequest
from cellblock.wire import messages
from support.approvals import UNDER, User
from support.simulator import Simulation


@pytest.fixture
def log(tmp_path):
    made = Log(tmp_path / "audit", max_bytes=1 << 20, fsync=False)
    yield made
    made.close()


@pytest.fixture
def simulate(monkeypatch, log):
    made = []

    def simulation(**options):
        made.append(Simulation(monkeypatch, audit=Audit(log, **options)))
        made[-1].session.start()
        made[-1].reactor.turn()
        return made[-1]

    yield simulation
    for simulation in made:
        simulation.close()


def run(sim, raw="x = 1", *then, count=1, **more):
    sim.run(ExecuteRequest(code=raw, execution_count=count, **more), *then)


def ends(sim, **done):
    """Have the guest say that its cell has ended."""
    (request,) = sim.guest.read()
    sim.guest.send(messages.Began(id=request.id), messages.Done(id=request.id, **done))
    sim.reactor.turn()


def read(log):
    lines = log.path.read_text().splitlines() if log.path.exists() else []
    return [json.loads(line) for line in lines]


def kinds(log):
    return [(record["kind"], record["cell"]) for record in read(log)]


#: What a cell that has ended leaves on its log.
WHOLE = [("cell", 1), ("outcome", 1)]
BESIDE = {"user_expressions": {"good": "x", "bad": "__import__('os')"}}


def test_a_decision_is_written_before_anything_is_sent(simulate, log, monkeypatch):
    sim, seen = simulate(), []
    real = sim.session.requests.submit

    def submit(*args):
        seen.append(kinds(log))
        real(*args)

    monkeypatch.setattr(sim.session.requests, "submit", submit)
    run(sim)
    assert seen == [[("cell", 1)]]


def test_a_cell_that_is_refused_for_want_of_a_log_reaches_no_guest(simulate, log):
    log._folder.write_text("")
    sim = simulate(required=True)
    run(sim)
    run(sim, "import os")
    outcome, denied = sim.outcomes
    assert outcome.status == "refused"
    assert outcome.unwritten.key == "audit.folder"
    assert denied.status == "denied"  # whether or not it can be written
    assert sim.guest.read() == []
    log._folder.unlink()
    run(sim, count=2)
    (request,) = sim.guest.read()
    assert request.execution_count == 2


def decisions(log):
    """Return of each record of a cell how it, and each of its expressions, was decided."""
    return [
        (record["decision"], [one["decision"] for one in record["expressions"]])
        for record in read(log)
        if record["kind"] == "cell"
    ]


def test_expressions_of_a_cell_that_is_refused_for_want_of_a_log_are_refused(simulate, log):
    log._folder.write_text("")
    sim = simulate(required=True)
    run(sim, **BESIDE)
    log._folder.unlink()
    run(sim, **BESIDE)
    assert decisions(log) == [
        ("refused", ["refused", "denied"]),
        ("allowed", ["allowed", "denied"]),
    ]


def test_expressions_of_a_cell_about_which_nothing_could_be_decided_are_refused(log):
    Audit(log).undecided(ExecuteRequest(code="x", execution_count=1, **BESIDE), "no key")
    assert decisions(log) == [("refused", ["refused", "refused"])]


def test_a_cell_that_the_end_of_its_session_cuts_off_has_an_outcome(simulate, log):
    sim = simulate()
    run(sim)
    sim.session.disconnect()
    sim.session.disconnect()
    assert kinds(log) == WHOLE
    last = read(log)[-1]
    assert (last["status"], last["why"]) == ("stopped", "shutdown")


def test_where_a_required_log_can_not_be_written_no_handler_and_no_call_runs(
    simulate, log, monkeypatch
):
    monkeypatch.setattr(log_module, "PAUSE", float("inf"))
    sim, told = simulate(required=True), []
    barred = sim.session._audit.barred
    assert barred() is None
    log._folder.write_text("")
    sim.session._audit.refused_more(1)
    assert barred().key == "audit.folder"
    sim.session.comm("comm_msg", {}, {}, [], told.append)
    assert "can't be written" in told[0]
    assert sim.guest.read() == []
    log._folder.unlink()
    assert barred() is not None  # not tried again at once
    monkeypatch.setattr(log_module, "PAUSE", 0.0)
    assert barred() is None
    sim.session.comm("comm_msg", {}, {}, [], told.append)
    assert [type(one) for one in sim.guest.read()] == [messages.CommIn]


def test_a_log_that_nobody_requires_bars_nothing(log):
    audit = Audit(log)
    log._folder.write_text("")
    audit.refused_more(1)
    assert audit.barred() is None


WANTED = ApprovalRequest(
    of="call", subjects=("tool",), sha256="0", asks="call tool?", all_of="each"
)


def test_consent_that_a_required_log_does_not_have_counts_as_none(log):
    audit, yes = Audit(log, required=True), Decision(scope="once", asked=True)
    log._folder.write_text("")
    assert audit.approved(WANTED, yes) == "the audit log could not be written"
    assert audit.new_problem() is not None
    log._folder.unlink()
    assert audit.approved(WANTED, yes) == ""
    decided = [one["decision"] for one in read(log) if one["kind"] == "approval"]
    assert decided == ["no", "once"]


def test_an_outcome_is_written_after_its_reply(simulate, log):
    sim, seen = simulate(), []
    run(sim, "x = 1", lambda _outcome: seen.append(kinds(log)))
    ends(sim)
    assert seen == [[("cell", 1)]]
    assert kinds(log) == WHOLE
    sim.session.disconnect()
    assert kinds(log) == WHOLE  # the end of the session does not cut it off


def test_an_exception_whose_name_is_a_text_stays_off_the_log(simulate, log):
    sim = simulate()
    run(sim)
    ends(sim, error=messages.Error(ename="my secret", evalue="secret", traceback=["secret"]))
    assert "secret" not in log.path.read_text()
    assert kinds(log) == WHOLE


def test_a_log_that_is_removed_between_two_cells_is_missed_by_the_end_of_the_next(simulate, log):
    sim = simulate()
    run(sim)
    ends(sim)
    log.path.unlink()
    run(sim, count=2)
    ends(sim)
    (outcome,) = read(log)
    assert (outcome["kind"], outcome["cell"]) == ("outcome", 2)


def test_a_cell_whose_import_was_approved_in_vain_is_refused_for_want_of_a_log(monkeypatch, log):
    user, audit = User(), Audit(log, required=True)
    grants = Grants(UNDER, None)
    approver = Approver(Prompt(user.consult, grants), grants, observe=audit.approved, tell=print)
    sim = Simulation(monkeypatch, audit=audit, approver=approver)
    sim.session.start()
    sim.reactor.turn()
    log._folder.write_text("")
    for _ in range(2):
        run(sim, "import bz2", allow_stdin=True)
        user.says()
        assert sim.outcomes[-1].status == "refused"
        assert sim.outcomes[-1].unwritten.key == "audit.folder"
    log._folder.unlink()
    run(sim, "import bz2", allow_stdin=True)
    user.says()
    (request,) = sim.guest.read()
    assert request.granted.modules == ("bz2",)
    decided = [one["decision"] for one in read(log) if "decision" in one]
    assert decided == ["no", "refused", "no", "refused", "once", "allowed"]
    sim.close()
