"""A session against guests that lie, hang, steal and die; no process is started."""

import signal

import msgspec
import pytest

from cellblock.host.keeper import NEXT_START
from cellblock.host.outcome import MOST_DETAIL, Cell, Stopped
from cellblock.host.supply import LAST_WORDS
from cellblock.wire import messages
from support.simulator import Simulation


@pytest.fixture
def simulate(monkeypatch):
    made = []

    def simulation(**options):
        made.append(Simulation(monkeypatch, **options))
        made[-1].session.start()
        made[-1].reactor.turn()
        return made[-1]

    yield simulation
    for simulation in made:
        simulation.close()


def cell(code="x = 1", **fields):
    return Cell(raw=code, execution_count=1, **fields)


def took_up(sim, **fields):
    """Run a cell and have the guest take it up; return the request."""
    sim.run(cell(**fields))
    (request,) = sim.guest.read()
    sim.guest.send(messages.Began(id=request.id))
    sim.reactor.turn()
    return request


def ended(sim):
    (outcome,) = sim.outcomes
    return outcome


def runs_well(sim):
    """Have the guest run what it was given to a good end."""
    (request,) = sim.guest.read()
    sim.guest.send(messages.Began(id=request.id), messages.Done(id=request.id))
    sim.reactor.turn()
    assert ended(sim).status == "ok"


# --- P1: no source reaches the guest before it passed ---------------------------------------------


def test_a_refused_cell_is_denied_at_once_and_never_sent(simulate):
    sim = simulate()
    sim.run(cell("import os"))
    assert ended(sim).status == "denied"
    assert [f.rule for f in ended(sim).findings] == ["import-not-allowed"]
    assert sim.guest.read() == []


def test_a_refused_user_expression_is_not_sent_and_its_reply_says_so(simulate):
    sim = simulate()
    request = took_up(sim, user_expressions={"good": "x", "bad": "__import__('os')"})
    assert request.user_expressions == {"good": "x"}
    sim.guest.send(messages.Done(id=request.id, user_expressions={"good": {"status": "ok"}}))
    sim.reactor.turn()
    assert ended(sim).user_expressions["bad"]["ename"] == "PolicyDenied"
    assert ended(sim).user_expressions["good"] == {"status": "ok"}


def test_what_the_guest_refuses_is_a_denial_too(simulate):
    sim = simulate()
    request = took_up(sim)
    finding = {"rule": "r", "line": 1, "column": 0, "end_column": 2, "excerpt": "x"}
    sim.guest.send(messages.Done(id=request.id, refused=[finding | {"line": "lies"}]))
    sim.reactor.turn()
    assert ended(sim).status == "denied"
    assert [(f.rule, f.line) for f in ended(sim).findings] == [("r", 0)]


# --- ways to end ----------------------------------------------------------------------------------


def test_a_cell_that_ends_well_is_ok(simulate):
    sim = simulate()
    request = took_up(sim)
    sim.guest.send(messages.Stream(name="stdout", text="hi"), messages.Done(id=request.id))
    sim.reactor.turn()
    assert ended(sim).status == "ok"
    assert [kind for kind, _ in sim.notes] == ["locked", "shown"]
    sim.reactor.advance(100)
    assert sim.signals() == []


def test_over_its_time_it_is_interrupted_first(simulate):
    sim = simulate(timeout=5.0)
    request = took_up(sim)
    sim.reactor.advance(4.9)
    assert sim.signals() == []
    sim.reactor.advance(0.2)
    assert sim.signals() == [signal.SIGINT]
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()
    assert (ended(sim).stopped.why, ended(sim).stopped.kept) == ("timeout", True)
    assert len(sim.guests) == 1


def test_over_its_time_and_deaf_it_is_killed_and_the_next_guest_is_there(simulate):
    sim = simulate(timeout=5.0)
    took_up(sim)
    sim.reactor.advance(7.1)
    assert sim.signals() == [signal.SIGINT, signal.SIGKILL]
    assert (ended(sim).stopped.why, ended(sim).stopped.kept) == ("timeout", False)
    sim.outcomes.clear()
    request = took_up(sim)
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()
    assert ended(sim).status == "ok"
    assert len(sim.guests) == 2


@pytest.mark.parametrize("policy", [5.0, None])
def test_a_cells_own_limit_counts_where_it_is_less_and_is_told(simulate, policy):
    sim = simulate(timeout=policy)
    request = took_up(sim, timeout=2.0)
    sim.reactor.advance(2.1)
    assert sim.signals() == [signal.SIGINT]
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()
    assert ended(sim).stopped == Stopped("timeout", kept=True, seconds=2.0)


def test_a_cells_own_limit_is_told_of_one_that_is_killed_too(simulate):
    sim = simulate(timeout=5.0)
    took_up(sim, timeout=2.0)
    sim.reactor.advance(4.1)
    assert ended(sim).stopped == Stopped("timeout", seconds=2.0)


def test_a_cells_own_limit_gives_it_no_more_than_the_policy(simulate):
    sim = simulate(timeout=5.0)
    took_up(sim, timeout=60.0)
    sim.reactor.advance(7.1)
    assert ended(sim).stopped == Stopped("timeout")


@pytest.mark.parametrize("why", ["cpu", "scratch"])
def test_over_another_limit_it_is_interrupted_once_then_killed(simulate, why):
    sim = simulate(timeout=None)
    took_up(sim)
    for _ in range(3):
        sim.session._under_way.on_excess(why, urgent=False)
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(2.1)
    assert sim.signals() == [signal.SIGKILL]
    assert (ended(sim).stopped.why, ended(sim).stopped.kept) == (why, False)


def test_over_another_limit_and_giving_way_it_keeps_its_guest(simulate):
    sim = simulate()
    request = took_up(sim)
    sim.session._under_way.on_excess("cpu", urgent=False)
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()
    assert (ended(sim).stopped.why, ended(sim).stopped.kept) == ("cpu", True)
    assert len(sim.guests) == 1


def test_what_gets_worse_by_waiting_is_killed_at_once(simulate):
    sim = simulate()
    took_up(sim)
    sim.session._under_way.on_excess("memory", urgent=True)
    assert sim.signals() == [signal.SIGKILL]
    assert ended(sim).stopped == Stopped("memory")
    sim.reactor.turn()
    assert len(sim.guests) == 2


def test_a_guest_that_grows_between_cells_is_killed_and_its_loss_is_said(simulate):
    sim = simulate()
    sim.session._under_way.on_excess("scratch", urgent=False)
    assert sim.signals() == []
    sim.session._under_way.on_excess("memory", urgent=True)
    assert sim.signals() == [signal.SIGKILL]
    assert ("restarted", Stopped("memory")) in sim.notes


def test_what_a_cell_took_is_in_its_outcome(simulate):
    sim = simulate()
    request = took_up(sim)
    sim.reactor.advance(1.5)
    sim.guest.send(
        messages.Stream(name="stdout", text="ä" * 10),
        messages.Display(data={"text/plain": "x" * 5, "image/png": b"1234"}),
        messages.Done(id=request.id, read_bytes=512),
    )
    sim.reactor.turn()
    usage = ended(sim).usage
    assert (usage.wall_seconds, usage.output_bytes, usage.read_bytes) == (1.5, 29, 512)


def test_a_cell_that_is_refused_to_step_back_has_run_and_says_what_it_took(simulate):
    sim = simulate()
    request = took_up(sim, code="x = 1\n%time")
    sim.reactor.advance(1.5)
    sim.guest.send(messages.Undo(steps=9), messages.Done(id=request.id, read_bytes=512))
    sim.reactor.turn()
    assert (ended(sim).error.ename, ended(sim).error.evalue) == (
        "UndoRefused",
        "%undo 9: there is nothing to undo",
    )
    assert (ended(sim).usage.wall_seconds, ended(sim).usage.read_bytes) == (1.5, 512)


def test_a_cell_that_did_not_run_took_nothing(simulate):
    sim = simulate()
    sim.run(cell("import os"))
    assert ended(sim).usage is None


def test_without_a_limit_a_cell_may_take_forever(simulate):
    sim = simulate(timeout=None)
    took_up(sim)
    sim.reactor.advance(10**6)
    assert sim.outcomes == []
    assert sim.signals() == []


def test_an_interrupt_that_was_slept_through_is_heard_of_at_once(simulate):
    sim = simulate()
    took_up(sim)
    sim.session.interrupt()
    sim.reactor.advance(0.6)
    first, *rest = [number for _, number in sim.kills]
    assert first == signal.SIGINT
    assert rest == [signal.SIGURG] * 3


def test_what_has_ended_is_woken_no_more_and_neither_is_what_follows(simulate):
    sim = simulate()
    request = took_up(sim)
    sim.session.interrupt()
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()
    took_up(sim)
    sim.reactor.advance(0.6)
    assert [number for _, number in sim.kills] == [signal.SIGINT]


def test_what_follows_an_interrupted_completion_is_not_woken_for_that(simulate):
    sim = simulate()
    sim.session.complete("a.", 2, lambda _answer: None)
    sim.reactor.turn()
    (request,) = sim.guest.read()
    sim.session.interrupt()
    sim.reactor.advance(0.06)
    sim.guest.send(messages.Completed(id=request.id, matches=[], start=0, end=0))
    sim.reactor.turn()
    took_up(sim)
    sim.reactor.advance(0.6)
    assert [number for _, number in sim.kills] == [signal.SIGINT]


def test_what_has_not_begun_is_interrupted_once_it_has(simulate):
    sim = simulate()
    sim.session.execute(cell("1"), sim.outcomes.append)
    sim.session.interrupt()
    assert sim.signals() == []
    sim.reactor.turn()
    (request,) = sim.guest.read()
    sim.guest.send(messages.Began(id=request.id))
    sim.reactor.turn()
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(1)
    assert sim.signals() == []


def test_a_task_that_keeps_the_guest_from_what_is_interrupted_is_interrupted(simulate):
    sim = simulate()
    sim.session.execute(cell("1"), sim.outcomes.append)
    sim.session.interrupt()
    sim.reactor.advance(0.1)
    assert sim.signals() == [signal.SIGINT]


@pytest.mark.parametrize("came", [False, True])
def test_an_interrupt_that_is_about_to_hit_a_cell_is_not_sent_to_it_again(simulate, came):
    sim = simulate()
    sim.session.execute(cell("1"), sim.outcomes.append)
    sim.session.interrupt()
    sim.reactor.turn()
    (request,) = sim.guest.read()
    sim.reactor.advance(0.1)
    assert sim.signals() == [signal.SIGINT]
    # Told so late that the host took it for kept by a task; it may be, and then was interrupted.
    sim.guest.send(messages.Began(id=request.id, interrupted=came))
    sim.reactor.turn()
    assert sim.signals() == [signal.SIGINT] * came


def test_an_interrupt_that_comes_while_a_guest_starts_is_for_the_cell_that_it_gets(simulate):
    sim = simulate()
    sim.start_well = False
    sim.reaped(9)
    sim.reactor.advance(5)
    sim.session.execute(cell("1"), sim.outcomes.append)
    sim.session.interrupt()
    sim.reactor.advance(0.1)
    sim.signals()
    sim.guest.send(messages.Ready(report=messages.LockReport()))
    sim.reactor.turn()
    (request,) = sim.guest.read()
    sim.guest.send(messages.Began(id=request.id))
    sim.reactor.turn()
    assert sim.signals() == [signal.SIGINT]


def test_a_second_interrupt_kills_unless_it_is_the_same_key_press(simulate):
    sim = simulate()
    took_up(sim)
    sim.session.interrupt()
    sim.reactor.advance(0.4)
    sim.session.interrupt()
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(0.2)
    sim.session.interrupt()
    assert sim.signals() == [signal.SIGKILL]
    assert ended(sim).stopped.why == "interrupt"


@pytest.mark.parametrize(
    ("status", "detail"),
    [(9, "signal SIGKILL"), (11, "signal SIGSEGV"), (3 << 8, "status 3"), (50, "signal 50")],
)
def test_a_guest_that_died_costs_its_cell_and_its_end_is_told(simulate, status, detail):
    sim = simulate()
    took_up(sim)
    sim.reaped(status)
    assert ended(sim).stopped.why == "crash"
    assert detail in ended(sim).stopped.detail
    assert len(sim.guests) == 2


def test_what_a_guest_said_before_it_died_is_heard_before_its_end(simulate):
    sim = simulate()
    took_up(sim)
    said = messages.Stream(name="stdout", text="x" * 100_000)
    sim.guest.send(said, messages.Breach(operation="socket.connect"))
    sim.reaped(9)
    assert ended(sim).stopped == Stopped("breach", "socket.connect")
    assert ("shown", said) in sim.notes
    assert len(sim.guests) == 2


def test_a_guest_that_dies_after_its_cell_ended_does_not_cost_the_cell(simulate):
    sim = simulate()
    request = took_up(sim)
    sim.guest.send(messages.Done(id=request.id))
    sim.reaped(9)
    assert ended(sim).status == "ok"
    assert [stopped.why for kind, stopped in sim.notes if kind == "restarted"] == ["crash"]
    assert len(sim.guests) == 2


def test_a_guest_that_died_while_nobody_heard_it_is_heard_out(simulate):
    sim = simulate()
    took_up(sim)
    sim.session.hold(held=True)
    said = messages.Stream(name="stdout", text="x")
    sim.guest.send(said)
    sim.reaped(9)
    assert ended(sim).stopped.why == "crash"
    assert ("shown", said) in sim.notes


def test_a_guest_that_died_while_idle_is_told_and_replaced(simulate):
    sim = simulate()
    sim.reaped(9)
    assert [kind for kind, _ in sim.notes] == ["locked", "restarted", "locked"]
    assert len(sim.guests) == 2


def test_a_zygote_that_died_costs_the_cell_and_is_replaced(simulate):
    sim = simulate()
    took_up(sim)
    sim.kill_zygote()
    assert ended(sim).stopped.why == "crash"
    assert "zygote" in ended(sim).stopped.detail
    assert len(sim.guests) == 2


def test_a_zygote_that_is_dead_before_it_is_spoken_to_is_replaced(simulate):
    sim = simulate()
    sim.deaths = 2
    sim.kill_zygote()
    took_up(sim)
    assert [note for note in sim.notes if note[0] == "failed"] == []
    assert len(sim.guests) == 2


def test_zygotes_that_are_all_dead_before_they_are_spoken_to_end_every_cell_with_that(simulate):
    sim = simulate()
    sim.deaths = 1_000
    sim.kill_zygote()
    for _ in range(2):
        sim.run(cell())
        assert [o.error.evalue for o in sim.outcomes] == [
            "the guest ended 3 times while starting: its zygote ended"
        ]
        sim.outcomes.clear()


def test_a_host_that_can_not_start_a_guest_tries_again_and_the_cell_runs(simulate):
    sim = simulate()
    sim.spawns_to_fail = 2
    sim.kill_zygote()
    sim.run(cell())
    sim.reactor.advance(2 * NEXT_START)
    runs_well(sim)


def test_a_cell_that_is_lost_while_the_host_can_not_start_another_guest_ends_at_once(simulate):
    sim = simulate()
    took_up(sim)
    sim.spawns_to_fail = 1
    sim.kill_zygote()
    assert ended(sim).stopped == Stopped("crash", "its zygote ended")


def test_a_host_that_never_can_ends_every_cell_with_the_reason(simulate):
    sim = simulate()
    sim.spawns_to_fail = 1_000
    sim.kill_zygote()
    sim.run(cell())
    sim.reactor.advance(2 * NEXT_START)
    sim.run(cell())
    why = "its process could not be started: Too many open files"
    assert [o.error.evalue for o in sim.outcomes] == [why, why]


def test_a_guest_that_hangs_up_has_a_moment_to_say_how_it_ended(simulate):
    sim = simulate()
    took_up(sim)
    sim.guest.sock.close()
    sim.reactor.turn()
    assert sim.signals() == []
    sim.reactor.advance(1.1)
    assert sim.signals() == [signal.SIGKILL]
    assert ended(sim).stopped.detail == "protocol violation: it closed its channel"


# --- P3: every byte from the guest is hostile -----------------------------------------------------

LIES = {
    "no message": b"\0\0\0\1\xc1",
    "a huge frame": b"\xff\xff\xff\xff",
    "a frame with a field too many": msgspec.msgpack.encode({"type": "began", "id": 1, "x": 1}),
    "an unknown message": msgspec.msgpack.encode({"type": "sudo"}),
    "nesting": b"\x81\xa4type\xa6stream" + b"\x91" * 100_000,
}


@pytest.mark.parametrize("kind", LIES)
def test_a_malformed_frame_kills_the_guest_and_never_the_session(simulate, kind):
    sim = simulate()
    took_up(sim)
    lie = LIES[kind]
    framed = lie if lie[0] in {0, 0xFF} else len(lie).to_bytes(4, "big") + lie
    sim.guest.sock.sendall(framed)
    sim.reactor.turn()
    assert ended(sim).stopped.why == "violation"
    assert len(sim.guests) == 2


@pytest.mark.parametrize(
    "lie",
    [
        messages.Done(id=77),
        messages.Completed(id=1, matches=[], start=0, end=0),
        messages.Ready(report=messages.LockReport(achieved={"seccomp": "yes"})),
        messages.NotReady(lock="seccomp", detail="after all"),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_message_out_of_turn_kills_the_guest(simulate, lie):
    sim = simulate()
    took_up(sim)
    sim.guest.send(lie)
    sim.reactor.turn()
    assert ended(sim).stopped.why == "violation"
    assert len(sim.guests) == 2


def test_a_breach_of_the_language_layer_ends_the_guest_and_is_told_with_its_operation(simulate):
    sim = simulate()
    took_up(sim)
    sim.guest.send(messages.Breach(operation="socket.connect"))
    sim.reactor.turn()
    assert ended(sim).stopped == Stopped("breach", "socket.connect")
    assert len(sim.guests) == 2


def test_a_detail_is_bounded_whoever_words_it():
    assert len(Stopped("crash", "x" * 24_000_000).detail) == MOST_DETAIL


def test_why_no_guest_can_be_had_is_bounded(simulate):
    sim = simulate()
    sim.start_well = False
    sim.kill_zygote()
    sim.guest.send(messages.NotReady(lock="seccomp", detail="x" * 10_000))
    sim.reactor.turn()
    ((_, detail),) = [note for note in sim.notes if note[0] == "failed"]
    assert detail.startswith("seccomp: xxx")
    assert len(detail) == LAST_WORDS


def test_a_report_of_locks_counts_once(simulate):
    sim = simulate()
    took_up(sim)
    sim.guest.send(messages.Ready(report=messages.LockReport(achieved={"landlock": "forged"})))
    sim.reactor.turn()
    assert ended(sim).stopped.why == "violation"


def test_a_guest_that_serves_was_not_asked_to_try_its_locks(simulate):
    sim = simulate()
    took_up(sim)
    results = {"tcp": messages.Attempt(outcome="refused")}
    sim.guest.send(messages.Tried(results=results))
    sim.reactor.turn()
    assert ended(sim).stopped.why == "violation"


def test_a_question_nobody_can_answer_does_not_stop_the_clock(simulate):
    sim = simulate(timeout=5.0)
    sim.answers_questions = False
    request = took_up(sim)
    sim.guest.send(messages.InputRequest(id=request.id, prompt="?"))
    sim.reactor.advance(10)
    assert ended(sim).status == "stopped"


def test_the_users_time_is_not_the_cells_but_the_clock_starts_again_with_the_answer(simulate):
    sim = simulate(timeout=5.0)
    request = took_up(sim, allow_stdin=True)
    sim.guest.send(messages.InputRequest(id=request.id, prompt="?"))
    sim.reactor.advance(100)
    assert sim.outcomes == []
    sim.session.answer("yes")
    assert [m.value for m in sim.guest.read()] == ["yes"]
    sim.reactor.advance(7.1)
    assert ended(sim).stopped.why == "timeout"


def test_answers_give_back_what_was_left_and_no_new_time(simulate):
    sim = simulate(timeout=5.0)
    request = took_up(sim, allow_stdin=True)
    for _ in range(4):
        sim.reactor.advance(1.1)
        sim.guest.send(messages.InputRequest(id=request.id, prompt="?"))
        sim.reactor.advance(100)
        sim.session.answer("yes")
    assert sim.signals() == []
    sim.reactor.advance(0.7)
    assert sim.signals() == [signal.SIGINT]


def test_a_question_that_is_interrupted_does_not_stop_the_clock_for_good(simulate):
    sim = simulate(timeout=5.0)
    request = took_up(sim, allow_stdin=True)
    sim.reactor.advance(1)
    sim.guest.send(messages.InputRequest(id=request.id, prompt="?"))
    sim.reactor.advance(100)
    sim.session.interrupt()
    sim.reactor.advance(3.9)
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(2.2)
    assert (ended(sim).stopped.why, ended(sim).stopped.kept) == ("timeout", False)


def test_a_wish_to_step_back_is_a_cells_alone(simulate):
    sim, answers = simulate(), []
    sim.session.comm("comm_msg", {"comm_id": "1"}, {}, [], answers.append)
    sim.reactor.turn()
    (request,) = sim.guest.read()
    sim.guest.send(
        messages.Began(id=request.id), messages.Undo(steps=1), messages.Done(id=request.id)
    )
    sim.reactor.turn()
    assert answers == [None]
    assert len(sim.guests) == 1


def test_an_answer_after_the_cell_ended_goes_nowhere(simulate):
    sim = simulate()
    request = took_up(sim, allow_stdin=True)
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()
    sim.session.answer("late")
    assert sim.guest.read() == []


# --- requests that never arrive -------------------------------------------------------------------


def test_a_stolen_request_runs_once_more_in_the_next_guest(simulate):
    sim = simulate()
    sim.run(cell())
    sim.guest.read()  # a thread of the guest took it and says nothing
    sim.reactor.advance(4.1)
    assert [stopped.why for kind, stopped in sim.notes if kind == "restarted"] == ["silent"]
    assert sim.outcomes == []
    runs_well(sim)


def test_a_request_stolen_twice_is_given_up(simulate):
    sim = simulate()
    sim.run(cell())
    for _ in range(2):
        sim.guest.read()
        sim.reactor.advance(4.1)
    assert ended(sim).stopped.why == "silent"


def test_a_guest_whose_main_thread_is_busy_elsewhere_is_waited_for(simulate):
    sim = simulate(timeout=None)
    sim.run(cell())
    sim.reactor.advance(100)  # unread: a task of an earlier cell keeps the loop
    assert len(sim.guests) == 1
    assert sim.outcomes == []


# --- starting -------------------------------------------------------------------------------------


def test_a_cell_waits_for_its_guest(simulate):
    sim = simulate()
    sim.start_well = False
    sim.reaped(9)
    sim.run(cell())
    assert sim.guest.read() == []
    sim.guest.send(messages.Ready(report=messages.LockReport()))
    sim.reactor.turn()
    assert len(sim.guest.read()) == 1


def test_p5_a_missing_required_lock_means_that_nothing_runs(monkeypatch):
    sim = Simulation(monkeypatch, required=("seccomp",))
    sim.session.start()
    sim.run(cell())
    assert ended(sim).status == "error"
    assert "seccomp" in ended(sim).error.evalue
    assert [kind for kind, _ in sim.notes] == ["failed"]
    sim.run(cell())
    assert len(sim.outcomes) == 2
    assert len(sim.guests) == 1
    sim.close()


def test_a_guest_that_can_not_confine_itself_serves_nobody(simulate):
    sim = simulate()
    sim.start_well = False
    sim.reaped(9)
    sim.guest.send(messages.NotReady(lock="landlock", detail="EPERM"))
    sim.run(cell())
    assert "landlock" in ended(sim).error.evalue


def test_a_front_may_refuse_what_the_locks_achieved(monkeypatch):
    sim = Simulation(monkeypatch)
    sim.refusal = "network_access is required and not enforced"
    sim.run(cell())
    assert ended(sim).error.evalue == sim.refusal
    sim.close()


def test_guests_that_end_while_starting_are_tried_three_times(simulate):
    sim = simulate()
    sim.start_well = False
    sim.reaped(9)
    sim.run(cell())
    for _ in range(3):
        sim.guest.err.write(b"no memory\n")
        sim.reactor.turn()
        sim.reaped(1 << 8)
    assert "the guest ended 3 times while starting" in ended(sim).error.evalue
    assert "no memory" in ended(sim).error.evalue


# --- queries --------------------------------------------------------------------------------------


def test_a_query_that_hangs_is_answered_with_nothing_and_costs_no_guest(simulate):
    sim = simulate()
    answers = []
    sim.session.complete("a.", 2, answers.append)
    sim.reactor.turn()
    (query,) = sim.guest.read()
    sim.reactor.advance(10.1)
    assert answers == [None]
    assert sim.signals() == [signal.SIGINT]
    sim.guest.send(messages.Completed(id=query.id, matches=["late"], start=0, end=0))
    sim.reactor.turn()
    assert len(sim.guests) == 1
    assert answers == [None]


def test_a_query_answered_with_another_kind_of_reply_kills_the_guest(simulate):
    sim = simulate()
    answers = []
    sim.session.inspect("a", 1, 0, answers.append)
    sim.reactor.turn()
    (query,) = sim.guest.read()
    sim.guest.send(messages.Completed(id=query.id, matches=[], start=0, end=0))
    sim.reactor.turn()
    (again,) = sim.guest.read()
    assert (again, len(sim.guests), answers) == (query, 2, [])
    sim.guest.send(messages.Completed(id=query.id, matches=[], start=0, end=0))
    sim.reactor.turn()
    assert (answers, len(sim.guests)) == ([None], 3)


def test_a_claim_to_have_begun_what_is_unread_kills_the_guest(simulate):
    sim = simulate()
    sim.run(cell())
    sim.guest.send(messages.Began(id=2))
    sim.guest.send(messages.Began(id=1))
    sim.reactor.turn()
    assert len(sim.guests) == 2


def test_one_request_at_a_time(simulate):
    sim = simulate()
    took_up(sim)
    with pytest.raises(RuntimeError, match="one request at a time"):
        sim.session.complete("a", 1, print)


def test_text_written_below_python_is_shown_before_the_cells_end(simulate):
    sim = simulate()
    request = took_up(sim)
    sim.guest.out.write("né".encode() + b"\xff\n")
    sim.guest.send(messages.Done(id=request.id))
    sim.reactor.turn()
    assert ended(sim).status == "ok"
    shown = [m for kind, m in sim.notes if kind == "shown"]
    assert [(m.name, m.text) for m in shown] == [("stdout", "né\ufffd\n")]
