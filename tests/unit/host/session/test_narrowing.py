"""A cell that narrows the policy: how a session settles it."""

import errno
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cellblock.analysis import Rules, admission
from cellblock.errors import BackendError, PolicyError
from cellblock.host import threads
from cellblock.host.consent.admission import AdmissionGate
from cellblock.host.session import narrowing
from cellblock.host.session.narrowing import Narrower
from cellblock.host.session.types import ExecuteRequest, NarrowingStep, SessionSettings
from cellblock.host.snapshots import memory
from cellblock.host.state import core
from cellblock.policy.model import Policy
from cellblock.policy.narrowing import changed_fields, try_narrow
from cellblock.policy.paths import Places
from cellblock.wire import frames, messages
from support.approvals import Desk

RULES = Rules(True, {}, frozenset(), frozenset({"policy"}))
ARGUMENT = "argument-not-allowed"

# --- how a session settles it ---------------------------------------------------------------------


class Scope(Narrower):
    """A policy that can be enforced as the test says."""

    policy = None

    def __init__(self, folder):
        self.policy = Policy(
            timeout=10.0, network_access=True, allowed_modules=("numpy",), memory_max_bytes=None
        )
        self.places = Places("the cell", folder, folder, folder)
        self.step, self.refusal = NarrowingStep.relock, None
        self.adopted, self.shown, self._weighing = [], [], None

    @property
    def _front(self):
        return self.sim

    @property
    def _reactor(self):
        return self.sim.reactor

    def weigh(self, changes):
        return try_narrow(self.policy, changes, places=self.places)

    def locking_step(self):
        return self.step

    def settings_under(self, policy):
        if self.refusal is not None:
            raise self.refusal
        return SessionSettings(
            policy=policy,
            changed=dict.fromkeys(changed_fields(self.policy, policy), ""),
            digest="",
            rules=replace(RULES, magics=frozenset(policy.magics)),
            prepare=self.prepare(policy),
            zygote=self.sim.spawn,
            tools=None,
            tools_gone=frozenset(),
            gate=AdmissionGate(policy, Path("/x")),
        )

    def prepare(self, policy):
        told = self.sim.session.requests.supervisor._prepare
        plan = messages.Plan(network=bool(policy.network_access))
        modules = {"raw_modules": policy.allowed_modules}
        return msgspec.structs.replace(told, plan=plan, rules=modules)

    def adopt(self, settings):
        self.policy = settings.policy
        self.adopted.append(settings)

    def show_change(self, _settings, stopped, *, used):
        self.shown.append((stopped, used))


@pytest.fixture
def scope(tmp_path):
    return Scope(tmp_path)


@pytest.fixture
def sim(stepped, scope):
    scope.sim = stepped(narrower=scope)
    return scope.sim


def narrow(sim, line):
    """Run a narrowing; return its outcome, or None while it is not answered."""
    known = len(sim.outcomes)
    sim.count += 1
    sim.run(ExecuteRequest(code=f"%policy narrow {line}", execution_count=sim.count))
    return sim.outcomes[-1] if len(sim.outcomes) > known else None


def enforce(sim, **settings):
    sim.session.settings = msgspec.structs.replace(sim.session.settings, **settings)


def rules_of(outcome):
    return [(finding.rule, finding.subject) for finding in outcome.findings]


def nothing_changed(sim, scope):
    return scope.adopted == scope.shown == [] and len(sim.guests) == 1 and sim.kills == []


def nothing_to_undo(sim):
    sim.run(ExecuteRequest(code="%undo", execution_count=9))
    assert sim.outcomes[-1].error.evalue == "%undo 1: there is nothing to undo"


def test_what_the_host_keeps_is_in_force_at_once_and_no_guest_is_asked(sim, scope):
    sim.kept()
    assert narrow(sim, "timeout=5").status == "ok"
    assert scope.policy.timeout == 5.0
    assert [terms.step for terms in scope.adopted] == [NarrowingStep.none]
    assert (sim.guest.read(), len(sim.guests)) == ([], 1)
    sim.begin()
    sim.reactor.advance(4.9)
    assert signal.SIGINT not in sim.signals()
    sim.reactor.advance(0.2)
    assert signal.SIGINT in sim.signals()


def test_others_have_their_turn_while_what_a_narrowing_names_is_looked_up(sim, scope, monkeypatch):
    """Cells lock the folders that they then name: the host looked there in its loop."""
    begun, passed = [], []
    monkeypatch.setattr(threads, "_start", begun.append)
    assert narrow(sim, "timeout=5") is None
    sim.reactor.call_later(1, lambda: passed.append("others"))
    sim.reactor.advance(narrowing.PATIENCE)
    assert passed == ["others"]
    assert "could not be looked at within 3 s" in sim.outcomes[-1].findings[0].why
    begun[0]()  # too late
    sim.reactor.turn()
    assert nothing_changed(sim, scope)
    assert narrow(sim, "timeout=4") is None
    begun[1]()
    sim.reactor.turn()
    assert scope.policy.timeout == 4.0
    assert narrow(sim, "timeout=3") is None
    sim.session.close()
    begun[2]()
    sim.reactor.turn()
    assert scope.policy.timeout == 4.0


def test_what_the_host_keeps_is_in_force_though_it_can_not_be_shown(sim, scope, monkeypatch):
    def fails(_settings):
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(scope, "adopt", fails)
    sim.kept()
    with pytest.raises(OSError, match="Errno"):
        narrow(sim, "timeout=5")
    sim.begin()
    sim.reactor.advance(5.1)
    assert signal.SIGINT in sim.signals()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("timeout=11", [("policy-only-narrows", "timeout")]),
        ('timeout="none"', [("policy-only-narrows", "timeout")]),
        ("timeout=11 nonsense=1", [(ARGUMENT, "nonsense"), ("policy-only-narrows", "timeout")]),
        ('add.allowed_modules=["os"]', [("policy-only-narrows", "add.allowed_modules")]),
        ("timeout=1 network_access=1", [(ARGUMENT, "network_access")]),
    ],
)
def test_what_would_allow_more_is_denied_and_nothing_changes(sim, scope, line, found):
    outcome = narrow(sim, line)
    assert (outcome.status, rules_of(outcome)) == ("denied", found)
    assert nothing_changed(sim, scope)
    assert sim.begin().source == "x = (1).bit_length()"


def test_a_denial_shows_the_line_and_the_key(sim):
    (finding,) = narrow(sim, "network_access=false timeout=11").findings
    assert finding.excerpt == "%policy narrow network_access=false timeout=11"
    assert finding.excerpt[finding.column : finding.end_column] == "timeout"
    assert finding.why == "can't be changed so: 11 is more than 10"


@pytest.mark.parametrize("error", [PolicyError, BackendError])
def test_what_can_not_be_kept_here_is_denied_and_nothing_changes(sim, scope, error):
    said = {"file": "f", "key": "network_access", "value": "", "remedy": "Do."}
    scope.refusal = error("no", **said) if error is PolicyError else error("no")
    outcome = narrow(sim, "network_access=false")
    assert [rule for rule, _ in rules_of(outcome)] == ["narrowing-not-kept"]
    assert nothing_changed(sim, scope)


def test_a_magic_that_the_policy_does_not_have_narrows_nothing(sim, scope):
    enforce(sim, rules=replace(RULES, magics=frozenset()))
    assert rules_of(narrow(sim, "timeout=1")) == [("magic-not-allowed", "%policy")]
    assert scope.adopted == []


def test_without_anybody_who_knows_the_policy_a_narrowing_is_an_argument(stepped):
    assert rules_of(narrow(stepped(), "timeout=1"))[0][0] == ARGUMENT


class Admitting:
    """A gate that has nothing approved, and no templates."""

    def __init__(self, kind):
        self.admitted = admission.Admitted(kind)

    def judge(self, raw):
        return admission.judge(raw, self.admitted)


@pytest.mark.parametrize("kind", ["approved", "template"])
def test_where_cells_have_to_be_admitted_a_narrowing_has_to_be(sim, scope, kind):
    enforce(sim, gate=Admitting(kind))
    outcome = narrow(sim, "timeout=5")
    assert (outcome.status, scope.adopted) == ("denied", [])


def test_which_cells_may_run_is_decided_by_the_narrower_policy(sim, scope):
    narrow(sim, "timeout=5")
    (settings,) = scope.adopted
    assert sim.session.settings is settings


@pytest.mark.parametrize(("own", "seconds"), [(6.0, None), (4.0, 4.0)])
def test_a_cells_own_timeout_counts_where_it_is_less_than_the_narrower_policys(sim, own, seconds):
    narrow(sim, "timeout=5")
    sim.begin(timeout=own)
    assert sim.session.requests.request.seconds == seconds


# --- a new guest ----------------------------------------------------------------------------------


def networks(sim):
    """Return what each zygote was told of the network."""
    return [told.plan.network for told in sim.told if isinstance(told, messages.Prepare)]


def test_before_anything_has_run_a_new_guest_is_started_under_the_narrower_policy(sim, scope):
    assert narrow(sim, "network_access=false").status == "ok"
    assert [terms.step for terms in scope.adopted] == [NarrowingStep.fresh]
    assert len(sim.guests) == 2
    assert sim.guests[0].gone()
    assert any(isinstance(told, messages.Quit) for told in sim.told)
    assert networks(sim) == [False, False]
    assert scope.shown[0][1] is False
    assert sim.cell() is None  # it came at once: the first copy is to stand
    sim.stands(sim.guest.copy())
    assert sim.outcomes[-1].status == "ok"


def test_a_guest_with_variables_is_not_thrown_away_unless_that_is_said(sim, scope):
    sim.kept()
    outcome = narrow(sim, "allowed_modules=[]")
    assert rules_of(outcome) == [("narrowing-not-kept", "allowed_modules")]
    assert "your variables would be gone" in outcome.findings[0].why
    assert "--fresh" in outcome.findings[0].remedy
    assert (scope.adopted, len(sim.guests)) == ([], 1)
    assert narrow(sim, "--fresh allowed_modules=[]").status == "ok"
    assert [terms.step for terms in scope.adopted] == [NarrowingStep.fresh]
    assert (len(sim.guests), scope.shown[0][1]) == (2, True)


def test_a_fresh_guest_has_no_copies_and_nothing_to_undo_and_asks_nothing_again(sim):
    sim.kept()
    copies = list(sim.guest.copies)
    narrow(sim, "--fresh network_access=false")
    assert all(copy.gone() for copy in copies)
    nothing_to_undo(sim)
    assert narrow(sim, "allowed_modules=[]").status == "ok"


def test_where_no_new_guest_can_be_started_nothing_goes_on_under_the_old_policy(sim, scope):
    sim.spawns_to_fail = 3
    narrow(sim, "network_access=false")
    sim.reactor.advance(10)
    assert sim.outcomes[-1].status == "error"
    assert scope.policy.network_access is False
    sim.outcomes.clear()
    sim.run(ExecuteRequest(code="x = 1", execution_count=5))
    assert sim.outcomes[-1].error.ename == "GuestFailed"


# --- more locks on the guest that there is --------------------------------------------------------


def confine(sim):
    return [told for told in sim.told if isinstance(told, messages.Narrow)][-1]


@pytest.fixture
def used(sim):
    """Return the simulation of a session in which a cell has run and a copy stands."""
    sim.kept("x = (1).bit_length()")
    return sim


def copied(sim):
    """Have the copy that a narrowing asks for stand; return it."""
    copy = sim.guest.copy()
    sim.stands(copy)
    return copy


def zygote_says(sim, **said):
    sim._ends[-1].sendall(frames.encode(messages.Narrowed(ticket=confine(sim).ticket, **said)))
    sim.reactor.turn()


def goes_on(sim, copy):
    """Have a copy's locks be laid, and have it go on under them."""
    zygote_says(sim, ready=True)
    zygote_says(sim)
    sim.takes_over(copy)


def relocking(sim):
    """Narrow and have locks asked for; return the copy that they are for."""
    assert narrow(sim, "network_access=false") is None
    copy = copied(sim)
    assert confine(sim).pid == copy.pid
    assert confine(sim).plan.network is False
    return copy


def test_a_copy_takes_over_when_its_locks_are_on(used, scope):
    first = used.guest
    copy = relocking(used)
    assert (scope.adopted, first.gone()) == ([], False), "nothing has changed yet"
    zygote_says(used, ready=True)
    assert [terms.step for terms in scope.adopted] == [NarrowingStep.relock]
    assert first.gone()
    (resume,) = copy.read()
    assert resume.plan.network is False
    zygote_says(used)
    used.guests.append(copy)
    used.hears(messages.Resumed(threads=["poller"]), by=copy)
    ((stopped, was_used),) = scope.shown
    assert (stopped.restored.threads, was_used) == (("poller",), True)
    assert used.outcomes[-1].status == "ok"
    used.cell()
    assert used.outcomes[-1].status == "ok"


def test_nothing_but_that_copy_is_left_and_there_is_nothing_to_undo(used):
    used.kept()
    used.kept()
    copy = relocking(used)
    others = [one for one in (*used.guest.copies, *copy.copies) if one is not copy]
    goes_on(used, copy)
    assert others
    assert all(other.gone() for other in others)
    nothing_to_undo(used)


@pytest.mark.parametrize(
    "said",
    [
        messages.Resumed(),
        messages.Done(id=1),
        messages.Began(id=0),
        messages.Stream(name="stdout", text="x"),
        None,
    ],
)
def test_a_copy_that_does_not_ask_for_its_locks_is_ended_and_a_new_guest_serves(used, scope, said):
    copy = relocking(used)
    zygote_says(used, ready=True)
    if said is None:
        used.reactor.advance(5)
    else:
        copy.read()
        used.hears(said, by=copy)
    assert copy.gone()
    assert len(used.guests) == 2
    assert networks(used)[-1] is False
    ((stopped, _),) = scope.shown
    assert stopped is None
    used.cell()
    assert used.outcomes[-1].status == "ok"


def test_a_guest_that_speaks_for_the_zygote_is_not_believed(used, scope):
    relocking(used)
    used.guest.sock.sendall(b"\0\0\0\x0c" + b"\x81\xa4type\xa9confined"[:12])
    used.reactor.turn()
    assert scope.adopted == []


def test_locks_that_can_not_be_had_change_nothing(used, scope):
    first = used.guest
    relocking(used)
    zygote_says(used, failure="this needs Linux 5.19")
    outcome = used.outcomes[-1]
    assert (outcome.status, rules_of(outcome)) == ("denied", [("narrowing-not-kept", "narrow")])
    assert outcome.findings[0].why.startswith("this needs Linux 5.19: it takes a new guest")
    assert (scope.adopted, first.gone()) == ([], False)
    assert used.cell() is not None


def test_a_copy_that_can_not_be_made_changes_nothing(used, scope):
    used.cell()
    assert narrow(used, "network_access=false") is None
    used.guest.copy()
    for copy in used.guest.copies:
        used.hears(messages.SnapshotFailed(id=copy.number, errno=errno.ENOMEM))
    outcome = used.outcomes[-1]
    assert outcome.status == "denied"
    assert "no copy of the session could be made" in outcome.findings[0].why
    assert scope.adopted == []


def test_a_guest_that_is_killed_while_it_is_copied_is_narrowed_in_what_takes_over(used, scope):
    older = used.guest.copy()
    assert narrow(used, "network_access=false") is None
    used.guest.close()
    used.reactor.advance(2)
    used.takes_over(older)
    assert scope.adopted == []
    goes_on(used, copied(used))
    assert [terms.step for terms in scope.adopted] == [NarrowingStep.relock]
    assert used.outcomes[-1].status == "ok"


def test_a_guest_that_holds_more_than_it_may_is_not_narrowed_to_death(used, scope, monkeypatch):
    read = memory.read

    def large(*args):
        return msgspec.structs.replace(read(*args), size=2**30)

    monkeypatch.setattr(memory, "read", large)
    assert narrow(used, "memory_max_bytes=40_000_000") is None
    copied(used)
    outcome = used.outcomes[-1]
    assert outcome.status == "denied"
    assert "the session holds 1,073,741,824 bytes already" in outcome.findings[0].why
    assert scope.adopted == []


def test_where_no_locks_can_be_laid_a_new_guest_has_to_be_asked_for(used, scope):
    scope.step = None
    found = rules_of(narrow(used, "network_access=false"))
    assert found == [("narrowing-not-kept", "network_access")]
    assert scope.adopted == []
    scope.step = NarrowingStep.none  # nothing is locked, so nothing has to be
    assert narrow(used, "network_access=false").status == "ok"
    assert len(used.guests) == 1


def test_an_interrupt_while_locks_are_made_does_no_harm(used):
    copy = relocking(used)
    used.session.interrupt()
    goes_on(used, copy)
    used.reactor.advance(core.IDLE)
    assert used.outcomes[-1].status == "ok"


# --- where the user is asked ----------------------------------------------------------------------


@pytest.fixture
def asked(stepped, scope, tmp_path):
    """Return a session whose user is asked, and what asks him."""
    desk = Desk(tmp_path / "data")
    scope.sim = stepped(narrower=scope, approver=desk.approver)
    return scope.sim, desk


def test_a_cell_narrows_unasked_and_what_goes_on_beside_it_asks_nobody_for_it(asked):
    sim, desk = asked
    sim.kept()
    assert narrow(sim, "network_access=false") is None
    desk.calls("a")
    assert desk.refused == [(1, "nobody can be asked while no cell runs")]
    assert desk.user.questions == []


def test_under_a_narrower_policy_is_asked_anew_what_was_allowed_for_always(asked, scope):
    sim, desk = asked
    sim.run(ExecuteRequest(code="import bz2", execution_count=1))
    desk.user.says("always")
    sim.again("import bz2")
    assert narrow(sim, "timeout=1").status == "ok"
    assert scope.adopted[-1].digest == desk.grants.under.digest
    sim.run(ExecuteRequest(code="import bz2", execution_count=3))
    assert len(desk.user.questions) == 2
