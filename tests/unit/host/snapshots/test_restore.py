"""Restorations: who takes over from a guest that was lost, and what is run again."""

import pytest

from cellblock.host.session.types import Restored, Stopped
from cellblock.host.state import core, takeover
from cellblock.wire import messages
from support.stepwise import CRASH, EXACT, INEXACT, outcome_of_loss

# --- a guest is lost ------------------------------------------------------------------------------


def test_with_a_copy_that_stands_the_next_cell_is_sent_to_it(sim):
    copy = sim.guest.copy()
    sim.begin()
    sim.reaped(9)
    assert sim.outcomes == []
    resume = sim.takes_over(copy, threads=["poller"], tasks=2, files=1)
    assert resume.inputs == [(1, INEXACT)]
    assert sim.outcomes[0].stopped == outcome_of_loss(threads=("poller",), tasks=2, files=1)
    assert sim.cell().status == "ok"


def test_each_guest_that_takes_over_has_a_seed_of_its_own(sim):
    seeds = {lose(sim).seed for _ in range(3)}
    assert {len(seed) for seed in seeds} == {32}
    assert len(seeds) == 3


def test_with_a_copy_under_way_it_stands_and_takes_over(stepped):
    sim = stepped()
    copy = sim.guest.copy()
    sim.begin()
    sim.reaped(9)
    sim.stands(copy)
    sim.takes_over(copy)
    assert sim.outcomes[0].stopped == outcome_of_loss()


def two_cells(sim):
    """Run two cells, the second while nothing keeps the first; lose the guest and its copies."""
    assert sim.cell().status == "ok"
    assert sim.cell() is None
    sim.guest.read()
    sim.reaped(9)
    return sim.guest.copies[1:]


def test_with_two_under_way_that_both_fail_the_one_that_stands_takes_over(sim):
    older = sim.guest.copy()
    sim.end(*reversed(two_cells(sim)))
    sim.takes_over(older)
    sim.again(INEXACT)
    assert sim.outcomes[-1].stopped == outcome_of_loss(again=(1,))


def test_a_cell_that_waits_is_answered_when_its_own_copy_takes_over(sim):
    _, second = two_cells(sim)
    sim.stands(second)
    sim.takes_over(second)
    assert [outcome.status for outcome in sim.outcomes] == ["ok", "ok"]
    assert sim.losses() == [outcome_of_loss()]


@pytest.mark.parametrize("early", [True, False])
def test_a_cell_that_waits_is_stopped_when_the_copy_before_its_own_takes_over(sim, early):
    first, second = two_cells(sim)
    sim.stands(second)
    if early:
        sim.stands(first)
    sim.end(second)
    if not early:
        sim.stands(first)
    sim.takes_over(first)
    assert [outcome.status for outcome in sim.outcomes] == ["ok", "stopped"]
    assert sim.guest.read() == []  # nothing is run again


def test_a_copy_that_does_not_take_over_makes_way_for_the_one_before_sooner_each_time(sim):
    copies = [sim.guest.copies[0], sim.kept(), sim.kept()]
    sim.reactor.advance(1.1)
    sim.begin()
    sim.reaped(9)
    sim.reactor.advance(3.9)
    assert not copies[2].gone()
    sim.reactor.advance(0.2)
    assert copies[2].gone()
    sim.reactor.advance(1.8)
    assert not copies[1].gone()
    sim.reactor.advance(0.2)
    assert copies[1].gone()
    sim.takes_over(copies[0])
    assert sim.outcomes[-1].stopped.restored.missed == (1, 2)


def test_when_no_copy_takes_over_a_fresh_guest_serves_and_the_state_is_gone(sim):
    sim.kept()
    sim.begin()
    sim.reaped(9)
    sim.reactor.advance(6.1)
    assert sim.outcomes[-1].stopped == Stopped("crash", CRASH)
    sim.stands(sim.guest.copy())
    assert sim.cell().status == "ok"


@pytest.mark.parametrize(
    "said",
    [
        messages.Stream(name="stdout", text="x"),
        messages.Done(id=1),
        messages.InputRequest(id=1, prompt=""),
        messages.Breach(operation="os.fork"),
        messages.Ready(report=messages.LockReport()),
    ],
    ids=lambda said: type(said).__name__,
)
def test_a_copy_that_says_anything_but_that_it_took_over_does_not(sim, said):
    copy = sim.guest.copy()
    sim.begin()
    sim.reaped(9)
    copy.read()
    sim.hears(said, by=copy)
    assert copy.gone()
    assert sim.outcomes[-1].stopped.restored is None


def test_a_guest_that_ends_as_soon_as_it_took_over_makes_way_for_the_copy_before(sim):
    older, copy = sim.guest.copies[0], sim.kept()
    sim.reaped(9)
    twin = copy.twin()
    sim.takes_over(copy)
    sim.end(twin)
    sim.reaped(11)
    sim.takes_over(older)
    sim.again(INEXACT)
    assert sim.losses()[1:] == [
        Stopped("crash", CRASH.replace("KILL", "SEGV"), restored=Restored(again=(1,)))
    ]


def lose(sim):
    """Have a guest end and its newest copy take over."""
    copy = sim.guest.copy()
    sim.reaped(9)
    return sim.takes_over(copy)


def test_a_state_that_ends_every_guest_is_not_restored_for_ever(sim):
    for _ in range(core.MAX_LOSSES):
        lose(sim)
    assert all(stopped.restored for stopped in sim.losses())
    sim.reaped(9)
    assert sim.losses()[-1].restored is None
    assert not hasattr(sim.guest, "number")  # no copy


def test_a_cell_that_ends_well_makes_up_for_all_losses(sim):
    for _ in range(core.MAX_LOSSES + 3):
        lose(sim)
        sim.kept()
    assert all(stopped.restored for stopped in sim.losses())


# --- what is run again ----------------------------------------------------------------------------


def test_exact_cells_are_run_again_in_order_and_nobody_is_told(sim):
    copy = sim.guest.copy()
    codes = ["a = 1", "b = [1 + 1]", "def f(): return a"]
    for code in codes:
        sim.cell(code)
    sim.reaped(9)
    resume = sim.takes_over(copy)
    assert resume.inputs == []
    for code in codes:
        assert sim.losses() == []
        sim.again(code)
    assert sim.losses() == [outcome_of_loss()]


def test_exact_cells_are_followed_by_the_last_one_which_is_told(sim):
    copy = sim.guest.copy()
    sim.cell("a = 1")
    sim.cell(INEXACT)
    newer = sim.guest.copy()
    sim.reaped(9)
    sim.end(newer)
    sim.takes_over(copy)
    sim.again("a = 1")
    sim.again(INEXACT)
    assert sim.losses() == [outcome_of_loss(again=(2,))]


def test_an_inexact_one_is_not_run_again_when_it_was_not_lately(sim):
    older = sim.guest.copy()
    sim.cell()
    newer = sim.guest.copy()
    sim.reactor.advance(1.1)
    sim.reaped(9)
    sim.end(newer)
    assert sim.takes_over(older).inputs == [(1, INEXACT)]
    assert sim.losses() == [outcome_of_loss(missed=(1,))]


@pytest.mark.parametrize("code", [INEXACT, EXACT])
def test_after_a_breach_of_the_protocol_only_what_comes_out_the_same_is_run_again(sim, code):
    older = sim.guest.copy()
    sim.cell(code)
    sim.guest.read()
    newer = sim.guest.copies[1:]
    sim.hears(messages.Resumed())
    sim.end(*newer)
    sim.takes_over(older)
    if code == EXACT:
        sim.again(EXACT)
    (stopped,) = sim.losses()
    assert stopped.why == "violation"
    assert stopped.restored == Restored(missed=() if code == EXACT else (1,))


def test_one_that_does_not_end_when_it_is_run_again_costs_its_copy(sim):
    sim.kept()
    copy = sim.guest.copy()
    sim.cell(EXACT)
    sim.reaped(9)
    sim.takes_over(copy)
    sim.reactor.advance(4.1)
    assert copy.gone()


def test_what_was_run_again_is_not_lost_with_the_guest_that_did(sim):
    older = sim.guest.copy()
    copy = sim.kept()
    sim.cell("a = 1")
    sim.reaped(9)
    sim.takes_over(copy)
    sim.again("a = 1")
    first, (twin, _) = sim.guest.copy(), sim.guest.copies
    sim.reaped(9)
    sim.end(first, twin)
    assert sim.takes_over(older).inputs == []
    sim.again(INEXACT)
    sim.again("a = 1")
    assert sim.losses()[-1] == outcome_of_loss(again=(1,))


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_a_cell_that_can_not_be_run_again_costs_itself_and_those_behind_it(sim, how):
    copy = sim.kept()
    for code in ("a = 1", "b = 1", "c = 1"):
        sim.cell(code)
    sim.reaped(9)
    sim.takes_over(copy)
    sim.again("a = 1")
    (request,) = copy.read()
    copy.send(messages.Began(id=request.id))
    if how == "fails":
        error = messages.Error(ename="E", evalue="", traceback=[])
        copy.send(messages.Done(id=request.id, error=error))
    sim.reactor.turn()
    if how == "hangs":
        sim.reactor.advance(takeover.PATIENCE)
    sim.takes_over(copy.twin())
    sim.again("a = 1")
    assert sim.losses()[-1].restored.missed == (3, 4)


def test_a_cell_is_left_out_when_four_copies_were_killed_while_they_ran_it_again(sim):
    copy = sim.kept()
    sim.cell("a = 1")
    sim.reaped(9)
    for _ in range(takeover.MAX_STUMBLES):
        assert sim.losses() == []
        assert sim.takes_over(copy).again == 1
        twin = copy.twin()
        sim.end(copy)
        copy = twin
    assert sim.takes_over(copy).again == 0
    assert sim.losses()[-1] == outcome_of_loss(missed=(2,))


def test_of_what_a_copy_lacks_all_is_run_again_up_to_what_can_not_be(sim):
    """The newest copy does not take over; the one before it lacks a long cell."""
    older = sim.guest.copy()
    sim.cell("a = 1")
    assert sim.cell(INEXACT, seconds=0.2) is None
    copy = sim.guest.copy()
    sim.stands(copy)
    sim.reaped(9)
    sim.end(copy)
    assert sim.takes_over(older).again == 1
    sim.again("a = 1")
    assert sim.losses()[-1] == outcome_of_loss(missed=(2,))
