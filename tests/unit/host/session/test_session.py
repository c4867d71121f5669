"""A session against guests that lie, hang, steal and die; no process is started."""

import signal

import msgspec
import pytest

from cellblock.host.guests.supervisor import LAST_WORDS, NEXT_START
from cellblock.host.session.types import MAX_DETAIL, Stopped
from cellblock.wire import frames, messages


@pytest.fixture
def sim(simulate):
    return simulate()


# --- P1: no source reaches the guest before it passed ---------------------------------------------


def test_a_refused_cell_is_denied_at_once_and_never_sent(sim):
    sim.runs("import os")
    assert sim.ended.status == "denied"
    assert [f.rule for f in sim.ended.findings] == ["import-not-allowed"]
    assert sim.ended.usage is None
    assert sim.guest.read() == []
    assert sim.shells_sent == []  # so nothing of a guest's is shown below it
    sim.took_up()
    assert sim.shells_sent == [0]


def test_a_refused_user_expression_is_not_sent_and_its_reply_says_so(sim):
    request = sim.took_up(user_expressions={"good": "x", "bad": "__import__('os')"})
    assert request.user_expressions == {"good": "x"}
    sim.done(request, user_expressions={"good": {"status": "ok"}})
    assert sim.ended.user_expressions["bad"]["ename"] == "PolicyDenied"
    assert sim.ended.user_expressions["good"] == {"status": "ok"}


def test_what_the_guest_refuses_is_a_denial_too(sim):
    request = sim.took_up()
    finding = {"rule": "r", "line": 1, "column": 0, "end_column": 2, "excerpt": "x"}
    sim.done(request, refused=[finding | {"line": "lies"}])
    assert sim.ended.status == "denied"
    assert [(f.rule, f.line) for f in sim.ended.findings] == [("r", 0)]


def test_a_guest_chooses_no_line_that_a_user_is_told_to_put_in_a_policy(sim):
    request = sim.took_up()
    finding = {"rule": "r", "line": 1, "column": 0, "end_column": 2, "excerpt": "x"}
    named = ['add.magics = ["env"]', 'add.allowed_modules = ["@science"]']
    lies = [
        'extends = "unsafe"',
        'add.magics = ["env"]\nextends = "unsafe"',
        'mode = "unsafe"',
        'ops.read_file.roots = ["/"]',
        "network_access = true",
        7,
    ]
    refused = [finding | {"allows": [one]} for one in (*named, *lies)]
    sim.done(request, refused=[*refused, finding | {"allows": named[0]}])
    assert [f.allows for f in sim.ended.findings if f.allows] == [(one,) for one in named]


# --- ways to end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize(
    ("policy", "own", "told"),
    [(5.0, None, None), (5.0, 60.0, None), (5.0, 2.0, 2.0), (None, 2.0, 2.0)],
)
def test_over_its_time_it_is_interrupted_and_killed_if_it_is_deaf(
    simulate, policy, own, told, deaf
):
    sim = simulate(timeout=policy)
    request = sim.took_up(timeout=own)
    sim.reactor.advance((told or policy) - 0.1)
    assert sim.signals() == []
    sim.reactor.advance(0.2)
    assert sim.signals() == [signal.SIGINT]
    if deaf:
        sim.reactor.advance(2.0)
        assert sim.signals() == [signal.SIGKILL]
    else:
        sim.done(request)
    assert sim.ended.stopped == Stopped("timeout", kept=not deaf, seconds=told)
    sim.outcomes.clear()
    sim.done(sim.took_up())
    assert sim.ended.status == "ok"
    assert len(sim.guests) == 1 + deaf


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("why", ["cpu", "scratch"])
def test_over_another_limit_it_is_interrupted_once_and_killed_if_it_is_deaf(simulate, why, deaf):
    sim = simulate(timeout=None)
    request = sim.took_up()
    for _ in range(3):
        sim.session.requests.on_excess(why, urgent=False)
    assert sim.signals() == [signal.SIGINT]
    if deaf:
        sim.reactor.advance(2.1)
        assert sim.signals() == [signal.SIGKILL]
    else:
        sim.done(request)
    assert sim.ended.stopped == Stopped(why, kept=not deaf)
    assert len(sim.guests) == 1 + deaf


def test_what_gets_worse_by_waiting_is_killed_at_once(sim):
    sim.took_up()
    sim.session.requests.on_excess("memory", urgent=True)
    assert sim.signals() == [signal.SIGKILL]
    assert sim.ended.stopped == Stopped("memory")
    sim.reactor.turn()
    assert len(sim.guests) == 2


def test_a_guest_that_grows_between_cells_is_killed_and_its_loss_is_said(sim):
    sim.session.requests.on_excess("scratch", urgent=False)
    assert sim.signals() == []
    sim.session.requests.on_excess("memory", urgent=True)
    assert sim.signals() == [signal.SIGKILL]
    assert ("restarted", Stopped("memory")) in sim.notes


def test_a_cell_that_ends_well_is_ok_and_what_it_took_is_in_its_outcome(sim):
    request = sim.took_up()
    sim.reactor.advance(1.5)
    sim.hears(
        messages.Stream(name="stdout", text="ä" * 10),
        messages.Display(data={"text/plain": "x" * 5, "image/png": b"1234"}),
        messages.Done(id=request.id, read_bytes=512),
    )
    assert sim.ended.status == "ok"
    assert [kind for kind, _ in sim.notes] == ["locked", "shown", "shown"]
    usage = sim.ended.usage
    assert (usage.wall_seconds, usage.output_bytes, usage.read_bytes) == (1.5, 29, 512)
    sim.reactor.advance(100)
    assert sim.signals() == []


def test_a_cell_that_is_refused_to_step_back_has_run_and_says_what_it_took(sim):
    request = sim.took_up(code="x = 1\n%time")
    sim.reactor.advance(1.5)
    sim.hears(messages.Undo(steps=9), messages.Done(id=request.id, read_bytes=512))
    assert sim.ended.error.ename == "UndoRefused"
    assert sim.ended.error.evalue == "%undo 9: there is nothing to undo"
    assert (sim.ended.usage.wall_seconds, sim.ended.usage.read_bytes) == (1.5, 512)


@pytest.mark.parametrize("begun", [True, False])
def test_without_a_limit_a_cell_may_take_forever_and_be_waited_for(simulate, begun):
    sim = simulate(timeout=None)
    sim.runs()
    if begun:  # else a task of an earlier cell keeps the loop
        sim.begins()
    sim.reactor.advance(10**6)
    assert sim.outcomes == []
    assert sim.signals() == []
    assert len(sim.guests) == 1


def test_an_interrupt_that_was_slept_through_is_heard_of_at_once(sim):
    sim.took_up()
    sim.session.interrupt()
    sim.reactor.advance(0.6)
    first, *rest = [number for _, number in sim.kills]
    assert first == signal.SIGINT
    assert rest == [signal.SIGURG] * 3


@pytest.mark.parametrize("completing", [False, True])
def test_what_has_ended_is_woken_no_more_and_neither_is_what_follows(sim, completing):
    if completing:
        sim.session.complete("a.", 2, lambda _answer: None)
        answer = messages.Completed(id=sim.sent().id, matches=[], start=0, end=0)
    else:
        answer = messages.Done(id=sim.took_up().id)
    sim.session.interrupt()
    sim.reactor.advance(0.06 if completing else 0)
    sim.hears(answer)
    sim.took_up()
    sim.reactor.advance(0.6)
    assert [number for _, number in sim.kills] == [signal.SIGINT]


def test_what_has_not_begun_is_interrupted_once_it_has(sim):
    sim.interrupted_at_once()
    assert sim.signals() == []
    sim.begins()
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(1)
    assert sim.signals() == []


def test_a_task_that_keeps_the_guest_from_what_is_interrupted_is_interrupted(sim):
    sim.interrupted_at_once()
    sim.reactor.advance(0.1)
    assert sim.signals() == [signal.SIGINT]


@pytest.mark.parametrize("came", [False, True])
def test_an_interrupt_that_is_about_to_hit_a_cell_is_not_sent_to_it_again(sim, came):
    sim.interrupted_at_once()
    request = sim.sent()
    sim.reactor.advance(0.1)
    assert sim.signals() == [signal.SIGINT]
    # Told so late that the host took it for kept by a task; it may be, and then was interrupted.
    sim.hears(messages.Began(id=request.id, interrupted=came))
    assert sim.signals() == [signal.SIGINT] * came


def test_an_interrupt_that_comes_while_a_guest_starts_is_for_the_cell_that_it_gets(sim):
    sim.start_well = False
    sim.reaped(9)
    sim.reactor.advance(5)
    sim.interrupted_at_once()
    sim.reactor.advance(0.1)
    sim.signals()
    sim.hears(messages.Ready(report=messages.LockReport()))
    sim.begins()
    assert sim.signals() == [signal.SIGINT]


def test_a_second_interrupt_kills_unless_it_is_the_same_key_press(sim):
    sim.took_up()
    sim.session.interrupt()
    sim.reactor.advance(0.4)
    sim.session.interrupt()
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(0.2)
    sim.session.interrupt()
    assert sim.signals() == [signal.SIGKILL]
    assert sim.ended.stopped.why == "interrupt"


@pytest.mark.parametrize(
    ("status", "detail"),
    [(9, "signal SIGKILL"), (11, "signal SIGSEGV"), (3 << 8, "status 3"), (50, "signal 50")],
)
def test_a_guest_that_died_costs_its_cell_and_its_end_is_told(sim, status, detail):
    sim.took_up()
    sim.reaped(status)
    assert sim.ended.stopped.why == "crash"
    assert detail in sim.ended.stopped.detail
    assert len(sim.guests) == 2


@pytest.mark.parametrize("held", [False, True])
def test_what_a_guest_said_before_it_died_is_heard_before_its_end(sim, held):
    sim.took_up()
    sim.session.hold(held=held)
    said = messages.Stream(name="stdout", text="x" * 100_000)
    sim.guest.send(said, messages.Breach(operation="socket.connect"))
    sim.reaped(9)
    assert sim.ended.stopped == Stopped("breach", "socket.connect")
    assert ("shown", said) in sim.notes
    assert len(sim.guests) == 2


def test_a_guest_that_dies_after_its_cell_ended_does_not_cost_the_cell(sim):
    request = sim.took_up()
    sim.guest.send(messages.Done(id=request.id))
    sim.reaped(9)
    assert sim.ended.status == "ok"
    assert [kind for kind, _ in sim.notes] == ["locked", "restarted", "locked"]
    assert sim.notes[1][1].why == "crash"
    assert len(sim.guests) == 2


@pytest.mark.parametrize("failing", [0, 1])
def test_a_zygote_that_died_costs_the_cell_at_once_and_is_replaced_when_it_can_be(sim, failing):
    sim.took_up()
    sim.spawns_to_fail = failing
    sim.kill_zygote()
    assert sim.ended.stopped == Stopped("crash", "its zygote ended")
    sim.reactor.advance(2 * NEXT_START)
    assert len(sim.guests) == 2


@pytest.mark.parametrize("failing", ["deaths", "spawns_to_fail"])
def test_a_host_that_can_not_start_a_guest_tries_again_and_the_cell_runs(sim, failing):
    setattr(sim, failing, 2)
    sim.kill_zygote()
    sim.runs()
    sim.reactor.advance(2 * NEXT_START)
    sim.done(sim.begins())
    assert sim.ended.status == "ok"
    assert "failed" not in dict(sim.notes)
    assert len(sim.guests) == 2


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        ("deaths", "the guest ended 3 times while starting: its zygote ended"),
        ("spawns_to_fail", "its process could not be started: Too many open files"),
    ],
)
def test_a_host_that_never_can_ends_every_cell_with_the_reason(sim, failing, why):
    setattr(sim, failing, 1_000)
    sim.kill_zygote()
    sim.runs()
    sim.reactor.advance(2 * NEXT_START)
    sim.runs()
    assert [outcome.error.evalue for outcome in sim.outcomes] == [why, why]


def test_a_guest_that_hangs_up_has_a_moment_to_say_how_it_ended(sim):
    sim.took_up()
    sim.guest.sock.close()
    sim.reactor.turn()
    assert sim.signals() == []
    sim.reactor.advance(1.1)
    assert sim.signals() == [signal.SIGKILL]
    assert sim.ended.stopped.detail == "protocol violation: it closed its channel"


# --- P3: every byte from the guest is hostile -----------------------------------------------------


def framed(payload):
    return len(payload).to_bytes(4, "big") + payload


OUT_OF_TURN = (
    messages.Done(id=77),
    messages.Completed(id=1, matches=[], start=0, end=0),
    messages.Ready(report=messages.LockReport(achieved={"seccomp": "yes"})),
    messages.NotReady(lock="seccomp", detail="after all"),
    messages.TrialResults(results={"tcp": messages.Attempt(outcome="refused")}),
)
LIES = {
    "no message": framed(b"\xc1"),
    "a huge frame": b"\xff\xff\xff\xff",
    "a field too many": framed(msgspec.msgpack.encode({"type": "began", "id": 1, "x": 1})),
    "an unknown table": frames.encode(messages.Show(what="undo")),
    "an unknown message": framed(msgspec.msgpack.encode({"type": "sudo"})),
    "nesting": framed(b"\x81\xa4type\xa6stream" + b"\x91" * 100_000),
    **{type(message).__name__: frames.encode(message) for message in OUT_OF_TURN},
}


@pytest.mark.parametrize("kind", LIES)
def test_a_frame_malformed_or_out_of_turn_kills_the_guest_and_never_the_session(sim, kind):
    sim.took_up()
    sim.guest.sock.sendall(LIES[kind])
    sim.reactor.turn()
    assert sim.ended.stopped.why == "violation"
    assert len(sim.guests) == 2


def test_a_breach_of_the_language_layer_ends_the_guest_and_is_told_with_its_operation(sim):
    sim.took_up()
    sim.hears(messages.Breach(operation="socket.connect"))
    assert sim.ended.stopped == Stopped("breach", "socket.connect")
    assert len(sim.guests) == 2


def test_a_detail_is_bounded_whoever_words_it():
    assert len(Stopped("crash", "x" * 24_000_000).detail) == MAX_DETAIL


def test_a_guest_that_can_not_confine_itself_serves_nobody_and_why_is_bounded(sim):
    sim.start_well = False
    sim.kill_zygote()
    sim.hears(messages.NotReady(lock="seccomp", detail="x" * 10_000))
    ((_, detail),) = [note for note in sim.notes if note[0] == "failed"]
    assert detail.startswith("seccomp: xxx")
    assert len(detail) == LAST_WORDS
    sim.runs()
    assert "seccomp: xxx" in sim.ended.error.evalue


def test_a_question_nobody_can_answer_does_not_stop_the_clock(simulate):
    sim = simulate(timeout=5.0)
    sim.answers_questions = False
    request = sim.took_up()
    sim.guest.send(messages.InputRequest(id=request.id, prompt="?"))
    sim.reactor.advance(10)
    assert sim.ended.status == "stopped"


def test_answers_give_back_what_was_left_and_no_new_time(simulate):
    sim = simulate(timeout=5.0)
    request = sim.took_up(allow_stdin=True)
    for _ in range(4):
        sim.reactor.advance(1.1)
        sim.guest.send(messages.InputRequest(id=request.id, prompt="?"))
        sim.reactor.advance(100)
        sim.session.answer("yes")
        assert [m.value for m in sim.guest.read()] == ["yes"]
    assert sim.signals() == []
    sim.reactor.advance(0.7)
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(2.1)
    assert sim.ended.stopped == Stopped("timeout")


def test_a_question_that_is_interrupted_does_not_stop_the_clock_for_good(simulate):
    sim = simulate(timeout=5.0)
    request = sim.took_up(allow_stdin=True)
    sim.reactor.advance(1)
    sim.guest.send(messages.InputRequest(id=request.id, prompt="?"))
    sim.reactor.advance(100)
    sim.session.interrupt()
    sim.reactor.advance(3.9)
    assert sim.signals() == [signal.SIGINT]
    sim.reactor.advance(2.2)
    assert (sim.ended.stopped.why, sim.ended.stopped.kept) == ("timeout", False)


def test_a_wish_to_step_back_is_that_of_a_cell_which_has_begun(sim):
    answers, wish = [], messages.Undo(steps=1)
    sim.session.comm("comm_msg", {"comm_id": "1"}, {}, [], answers.append)
    sim.hears(wish, messages.Done(id=sim.begins().id))
    sim.session.complete("a", 1, answers.append)
    completed = messages.Completed(id=sim.sent().id, matches=[], start=0, end=0)
    sim.hears(wish, completed)
    assert answers == [None, completed]
    sim.runs()
    sim.hears(wish)
    sim.done(sim.begins())
    assert sim.ended.status == "ok"
    assert len(sim.guests) == 1


def test_an_answer_after_the_cell_ended_goes_nowhere(sim):
    request = sim.took_up(allow_stdin=True)
    sim.done(request)
    sim.session.answer("late")
    assert sim.guest.read() == []


# --- requests that never arrive -------------------------------------------------------------------


@pytest.mark.parametrize("twice", [False, True])
def test_a_stolen_request_runs_once_more_in_the_next_guest_and_no_more(sim, twice):
    sim.runs()
    sim.guest.read()  # a thread of the guest took it and says nothing
    sim.reactor.advance(4.1)
    assert [stopped.why for kind, stopped in sim.notes if kind == "restarted"] == ["silent"]
    assert sim.outcomes == []
    if twice:
        sim.guest.read()
        sim.reactor.advance(4.1)
        assert sim.ended.stopped.why == "silent"
    else:
        sim.done(sim.begins())
        assert sim.ended.status == "ok"


# --- starting -------------------------------------------------------------------------------------


def test_a_cell_waits_for_its_guest(sim):
    sim.start_well = False
    sim.reaped(9)
    sim.runs()
    assert sim.guest.read() == []
    sim.hears(messages.Ready(report=messages.LockReport()))
    assert len(sim.guest.read()) == 1


def test_p5_a_missing_required_lock_means_that_nothing_runs(simulate):
    sim = simulate(required=("seccomp",))
    for _ in range(2):
        sim.runs()
    assert [outcome.status for outcome in sim.outcomes] == ["error", "error"]
    assert "seccomp" in sim.outcomes[0].error.evalue
    assert [kind for kind, _ in sim.notes] == ["failed"]
    assert len(sim.guests) == 1


def test_a_front_may_refuse_what_the_locks_achieved(sim):
    sim.refusal = "network_access is required and not enforced"
    sim.reaped(9)
    sim.runs()
    assert sim.ended.error.evalue == sim.refusal


def test_guests_that_end_while_starting_are_tried_three_times(sim):
    sim.start_well = False
    sim.reaped(9)
    sim.runs()
    for _ in range(3):
        sim.guest.err.write(b"no memory\n")
        sim.reactor.turn()
        sim.reaped(1 << 8)
    assert "the guest ended 3 times while starting" in sim.ended.error.evalue
    assert "no memory" in sim.ended.error.evalue


# --- queries --------------------------------------------------------------------------------------


def test_a_query_that_hangs_is_answered_with_nothing_and_costs_no_guest(sim):
    answers = []
    sim.session.complete("a.", 2, answers.append)
    query = sim.sent()
    sim.reactor.advance(10.1)
    assert answers == [None]
    assert sim.signals() == [signal.SIGINT]
    sim.hears(messages.Completed(id=query.id, matches=["late"], start=0, end=0))
    assert len(sim.guests) == 1
    assert answers == [None]


def test_a_query_answered_with_another_kind_of_reply_kills_the_guest(sim):
    answers = []
    sim.session.inspect("a", 1, 0, answers.append)
    query = sim.sent()
    sim.hears(messages.Completed(id=query.id, matches=[], start=0, end=0))
    (again,) = sim.guest.read()
    assert (again, len(sim.guests), answers) == (query, 2, [])
    sim.hears(messages.Completed(id=query.id, matches=[], start=0, end=0))
    assert (answers, len(sim.guests)) == ([None], 3)


def test_a_claim_to_have_begun_what_is_unread_kills_the_guest(sim):
    sim.runs()
    sim.guest.send(messages.Began(id=2))
    sim.hears(messages.Began(id=1))
    assert len(sim.guests) == 2


def test_one_request_at_a_time(sim):
    sim.took_up()
    with pytest.raises(RuntimeError, match="one request at a time"):
        sim.session.complete("a", 1, print)


def test_text_written_below_python_is_shown_before_the_cells_end(sim):
    request = sim.took_up()
    sim.guest.out.write("né".encode() + b"\xff\n")
    sim.done(request)
    assert sim.ended.status == "ok"
    shown = [m for kind, m in sim.notes if kind == "shown"]
    assert [(m.name, m.text) for m in shown] == [("stdout", "né\ufffd\n")]
