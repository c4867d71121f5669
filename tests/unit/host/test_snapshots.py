"""Snapshots over guests and copies that do as they are told, and time that stands still."""

import errno
import signal

import pytest

from cellblock.host import keeper, pace, snapshots
from cellblock.host.outcome import Cell, Restored, Stopped
from cellblock.host.snapshots import Settings
from cellblock.wire import messages
from support.simulator import Simulation

EXACT, INEXACT = "x = 1", "x = (1).bit_length()"


class Simulated(Simulation):
    """A session with snapshots, whose cells are numbered."""

    def __init__(self, monkeypatch, **settings):
        settings = {"mode": "always", "depth": 5} | settings
        super().__init__(monkeypatch, timeout=None, snapshots=Settings(**settings))
        self.count = 0
        self.session.start()
        self.reactor.turn()
        self.reactor.advance(pace.IDLE)

    def begin(self, code=INEXACT, **fields):
        """Run a cell and have the guest take it up; return the request."""
        self.count += 1
        self.run(Cell(raw=code, execution_count=self.count, **fields))
        (request,) = self.guest.read()
        self.guest.send(messages.Began(id=request.id))
        self.reactor.turn()
        return request

    def cell(self, code=INEXACT, seconds=0.0, **fields):
        """Run a cell to its end; return its outcome, or None while it is not answered."""
        known = len(self.outcomes)
        request = self.begin(code, **fields)
        self.reactor.advance(seconds)
        self.guest.send(messages.Done(id=request.id))
        self.reactor.turn()
        return self.outcomes[-1] if len(self.outcomes) > known else None

    def kept(self, code=INEXACT, **fields):
        """Run a cell and have the copy that holds what it did stand; return that copy."""
        self.cell(code, **fields)
        self.reactor.advance(pace.IDLE)
        copy = self.guest.copy()
        self.stands(copy)
        return copy

    def again(self, code):
        """Have the guest that takes over run what it is given; it has to be ``code``."""
        (request,) = self.guest.read()
        assert (type(request), request.raw) == (messages.Execute, code)
        self.guest.send(messages.Began(id=request.id), messages.Done(id=request.id))
        self.reactor.turn()

    def losses(self):
        """Return what was told of guests that were lost while nothing ran."""
        return [stopped for kind, stopped in self.notes if kind == "restarted"]

    def notices(self):
        return [text for kind, text in self.notes if kind == "noticed"]


@pytest.fixture
def simulate(monkeypatch):
    made = []

    def simulation(**settings):
        made.append(Simulated(monkeypatch, **settings))
        return made[-1]

    yield simulation
    for simulation in made:
        simulation.close()


@pytest.fixture
def sim(simulate):
    """A session whose first copy stands."""
    made = simulate()
    made.stands(made.guest.copy())
    return made


CRASH = "it was ended by signal SIGKILL"


def lost(**restored):
    return Stopped("crash", CRASH, restored=Restored(**restored))


# --- standing -------------------------------------------------------------------------------------


def test_a_copy_is_asked_for_in_idle_time_only(simulate):
    sim = simulate()
    sim.stands(sim.guest.copy())
    assert [m for m in sim.told if isinstance(m, messages.Allow)] == [messages.Allow(id=1)]
    assert sim.cell(EXACT).status == "ok"
    sim.reactor.advance(pace.IDLE / 2)
    sim.guest.read()
    assert len(sim.guest.copies) == 1
    sim.reactor.advance(pace.IDLE)
    sim.guest.read()
    assert len(sim.guest.copies) == 2


def test_a_long_cell_is_answered_when_the_copy_that_holds_it_stands(sim):
    assert sim.cell(seconds=0.2) is None
    sim.reactor.advance(snapshots.PATIENCE - 0.1)
    assert sim.outcomes == []
    sim.stands(sim.guest.copy())
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]


def test_a_long_cell_is_answered_when_it_is_certain_that_no_copy_will_stand(sim):
    assert sim.cell(seconds=0.2) is None
    sim.reactor.advance(snapshots.PATIENCE)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    assert sim.guest.copy().gone()
    claimed = [m for m in sim.told if isinstance(m, messages.Members)]
    assert claimed[-1].pids == (sim.guest.pid, sim.guest.copies[0].pid)
    assert sim.cell(EXACT) is None  # what is before it can't be run again, so it is kept at once
    sim.stands(sim.guest.copy())
    assert [outcome.status for outcome in sim.outcomes] == ["ok", "ok"]


def test_a_copy_that_stands_after_its_time_is_not_heard(sim):
    sim.cell(seconds=0.2)
    late = sim.guest.copy()
    sim.reactor.advance(snapshots.PATIENCE)
    assert late.gone()
    with pytest.raises(BrokenPipeError):
        sim.stands(late)


def test_a_guest_that_says_it_can_make_none_is_believed_and_the_user_told_once(sim):
    for _ in range(3):
        assert sim.cell(seconds=0.2) is None
        asked = sim.guest.copy()
        sim.guest.send(messages.NotStanding(id=asked.number, errno=errno.ENOMEM))
        sim.reactor.turn()
        assert asked.gone()
    assert [outcome.status for outcome in sim.outcomes] == ["ok"] * 3
    assert sim.notices() == ["one could not be made (Cannot allocate memory)"]


def test_what_says_anything_but_that_it_stands_is_no_copy(sim):
    sim.cell()
    copy = sim.guest.copy()
    sim._standing = copy.pid
    copy.send(messages.Standing(id=copy.number + 1))
    sim.reactor.turn()
    assert copy.gone()


def test_a_copy_is_stopped_while_it_stands_and_set_going_to_take_over(sim):
    copy = sim.kept()
    assert (copy.pid, signal.SIGSTOP) in sim.kills
    sim.kills.clear()
    sim.reaped(9)
    assert sim.kills == [(copy.pid, signal.SIGCONT)]


def test_a_copy_that_is_lost_while_it_stands_is_made_again(sim):
    sim.guest.copies[0].close()
    sim.reactor.turn()
    sim.reactor.advance(pace.IDLE)
    sim.guest.read()
    assert len(sim.guest.copies) == 2


def test_copies_that_are_lost_again_and_again_are_given_up(sim):
    for _ in range(keeper.MAX_LOSSES + 3):
        sim.guest.copy().close()
        sim.reactor.turn()
        sim.reactor.advance(pace.IDLE)
        sim.guest.read()
        if sim.guest.copies[-1].sock.fileno() >= 0:
            sim.stands(sim.guest.copies[-1])
    assert len(sim.guest.copies) == keeper.MAX_LOSSES + 1
    sim.kept()
    assert len(sim.guest.copies) == keeper.MAX_LOSSES + 2


# --- what is answered before it is kept -----------------------------------------------------------


def test_one_short_cell_is_answered_before_it_is_kept_and_the_next_when_that_one_is(sim):
    assert sim.cell().status == "ok"
    first = sim.guest.copy()
    assert sim.cell() is None
    sim.stands(first)
    assert [outcome.status for outcome in sim.outcomes] == ["ok", "ok"]


def test_short_cells_that_come_out_the_same_are_all_answered_at_once(sim):
    for _ in range(10):
        assert sim.cell(EXACT).status == "ok"
    sim.guest.read()
    assert len(sim.guest.copies) == 1


def test_not_more_than_twenty_are_left_to_be_run_again(sim):
    for _ in range(21):
        sim.cell(EXACT)
    sim.guest.read()
    assert len(sim.guest.copies) == 2


# --- a guest is lost ------------------------------------------------------------------------------


def test_without_a_copy_a_fresh_guest_serves(simulate):
    sim = simulate(mode="off")
    sim.begin()
    sim.reaped(9)
    assert sim.outcomes[0].stopped == Stopped("crash", CRASH)
    assert len(sim.guests) == 2


def test_with_a_copy_that_stands_the_next_cell_is_sent_to_it(sim):
    copy = sim.guest.copy()
    sim.begin()
    sim.reaped(9)
    assert sim.outcomes == []
    resume = sim.takes_over(copy, threads=["poller"], tasks=2, files=1)
    assert resume.inputs == [(1, INEXACT)]
    assert sim.outcomes[0].stopped == lost(threads=("poller",), tasks=2, files=1)
    sim.stands(sim.guest.copy())
    assert sim.cell().status == "ok"


def test_each_guest_that_takes_over_has_a_seed_of_its_own(sim):
    seeds = set()
    for _ in range(3):
        copy = sim.guest.copy()
        sim.reaped(9)
        seeds.add(sim.takes_over(copy).seed)
        sim.stands(sim.guest.copy())
    assert {len(seed) for seed in seeds} == {32}
    assert len(seeds) == 3


def test_with_a_copy_under_way_it_stands_and_takes_over(simulate):
    sim = simulate()
    copy = sim.guest.copy()
    sim.begin()
    sim.reaped(9)
    sim.stands(copy)
    sim.takes_over(copy)
    assert sim.outcomes[0].stopped == lost()


def test_with_a_copy_under_way_that_never_stood_the_one_before_runs_the_last_cell_again(sim):
    older = sim.guest.copy()
    assert sim.cell().status == "ok"
    newer = sim.guest.copy()
    sim.reaped(9)
    newer.close()
    sim.reactor.turn()
    sim.takes_over(older)
    assert sim.losses() == []
    sim.again(INEXACT)
    assert sim.losses() == [lost(again=(1,))]


def test_with_two_under_way_that_both_fail_the_one_that_stands_takes_over(sim):
    older = sim.guest.copy()
    assert sim.cell().status == "ok"
    assert sim.cell() is None  # the one before is not kept yet
    sim.guest.read()
    sim.reaped(9)
    for copy in reversed(sim.guest.copies[1:]):
        copy.close()
        sim.reactor.turn()
    sim.takes_over(older)
    sim.again(INEXACT)
    assert sim.outcomes[-1].stopped == lost(again=(1,))


def test_a_copy_that_does_not_take_over_makes_way_for_the_one_before_sooner_each_time(sim):
    copies = [sim.guest.copies[0], sim.kept(), sim.kept()]
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
    copy.send(said)
    sim.reactor.turn()
    assert copy.gone()
    assert sim.outcomes[-1].stopped.restored is None


def test_a_guest_that_ends_as_soon_as_it_took_over_makes_way_for_the_copy_before(sim):
    older, copy = sim.guest.copies[0], sim.kept(EXACT)
    sim.reaped(9)
    sim.takes_over(copy)
    sim.reaped(11)
    sim.takes_over(older)
    sim.again(EXACT)
    assert sim.losses()[1:] == [
        Stopped("crash", CRASH.replace("KILL", "SEGV"), restored=Restored())
    ]


def test_a_state_that_ends_every_guest_is_not_restored_for_ever(sim):
    for _ in range(keeper.MAX_LOSSES):
        copy = sim.guest.copy()
        sim.reaped(9)
        sim.takes_over(copy)
        sim.stands(sim.guest.copy())
    assert all(stopped.restored for stopped in sim.losses())
    sim.reaped(9)
    assert sim.losses()[-1].restored is None
    assert not hasattr(sim.guest, "number")  # no copy


def test_a_cell_that_ends_well_makes_up_for_all_losses(sim):
    for _ in range(keeper.MAX_LOSSES + 3):
        copy = sim.guest.copy()
        sim.reaped(9)
        sim.takes_over(copy)
        sim.stands(sim.guest.copy())
        sim.kept()
    assert all(stopped.restored for stopped in sim.losses())


# --- what is run again ----------------------------------------------------------------------------


def test_exact_cells_are_run_again_in_order_and_nobody_is_told(sim):
    copy = sim.guest.copy()
    codes = ["a = 1", "b = a + 1", "c = [a, b]"]
    for code in codes:
        sim.cell(code)
    sim.reaped(9)
    resume = sim.takes_over(copy)
    assert resume.inputs == []
    for code in codes:
        assert sim.losses() == []
        sim.again(code)
    assert sim.losses() == [lost()]


def test_exact_cells_are_followed_by_the_last_one_which_is_told(sim):
    copy = sim.guest.copy()
    sim.cell("a = 1")
    sim.cell(INEXACT)
    newer = sim.guest.copy()
    sim.reaped(9)
    newer.close()
    sim.reactor.turn()
    sim.takes_over(copy)
    sim.again("a = 1")
    sim.again(INEXACT)
    assert sim.losses() == [lost(again=(2,))]


def test_an_inexact_one_is_not_run_again_when_it_was_not_lately(sim):
    older = sim.guest.copy()
    sim.cell()
    newer = sim.guest.copy()
    sim.reactor.advance(1.1)
    sim.reaped(9)
    newer.close()
    sim.reactor.turn()
    assert sim.takes_over(older).inputs == [(1, INEXACT)]
    assert sim.losses() == [lost(missed=(1,))]


@pytest.mark.parametrize("code", [INEXACT, EXACT])
def test_after_a_breach_of_the_protocol_only_what_comes_out_the_same_is_run_again(sim, code):
    older = sim.guest.copy()
    sim.cell(code)
    sim.guest.read()
    newer = sim.guest.copies[1:]
    sim.guest.send(messages.Resumed())
    sim.reactor.turn()
    for copy in newer:
        copy.close()
        sim.reactor.turn()
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
    copy = sim.kept("start = 0")
    sim.cell("a = 1")
    sim.reaped(9)
    sim.takes_over(copy)
    sim.again("a = 1")
    first = sim.guest.copies[0]  # asked for before any of it was run again
    sim.reaped(9)
    first.close()
    sim.reactor.turn()
    assert sim.takes_over(older).inputs == []
    sim.again("start = 0")
    sim.again("a = 1")
    assert sim.losses()[-1] == lost()


# --- undo -----------------------------------------------------------------------------------------


def undo(sim, line="%undo"):
    sim.count += 1
    sim.run(Cell(raw=line, execution_count=sim.count))
    return sim.outcomes[-1] if sim.outcomes else None


def undone(sim):
    return [stopped.undone for kind, stopped in sim.notes if kind == "undone"]


def test_undo_goes_to_the_copy_before_and_the_guest_ends(sim):
    first, _ = sim.guest.copies[0], sim.kept()
    guest = sim.guest
    sim.outcomes.clear()
    undo(sim)
    assert guest.gone()
    assert sim.takes_over(first).inputs == [(1, f"# undone\n{INEXACT}"), (2, "%undo")]
    assert [outcome.status for outcome in sim.outcomes] == ["ok"]
    assert undone(sim) == [(1,)]


def test_undo_over_cells_that_share_a_copy_runs_those_before_again(sim):
    copy = sim.guest.copy()
    for code in ("a = 1", "a = 2", "a = 3"):
        sim.cell(code)
    undo(sim, "%undo 2")
    resume = sim.takes_over(copy)
    assert [count for count, _ in resume.inputs] == [2, 3, 4]
    sim.again("a = 1")
    assert undone(sim) == [(2, 3)]


def test_silent_cells_and_those_without_history_are_no_steps(sim):
    first = sim.guest.copies[0]
    sim.kept()
    sim.kept(silent=True, store_history=False)
    sim.kept(store_history=False)
    undo(sim)
    sim.takes_over(first)
    assert undone(sim) == [(1,)]


def test_more_steps_than_there_are_change_nothing(sim):
    sim.kept()
    outcome = undo(sim, "%undo 2")
    assert outcome.error.evalue == "%undo 2: 1 can be"
    assert len(sim.guests) == 1


def test_undo_to_a_copy_that_fails_goes_to_the_one_before_and_runs_what_is_missing_again(sim):
    first, second = sim.guest.copies[0], sim.kept()
    sim.kept()
    undo(sim)
    second.close()
    sim.reactor.turn()
    sim.takes_over(first)
    sim.again(INEXACT)
    (stopped,) = [s for kind, s in sim.notes if kind == "undone"]
    assert (stopped.undone, stopped.restored) == ((2,), Restored(again=(1,)))


def test_undo_when_every_copy_has_ended_says_that_nothing_is_restored(sim):
    copies = [sim.guest.copies[0], sim.kept()]
    for copy in copies:
        copy.sock.close()  # the host has not looked yet
    undo(sim)
    sim.reactor.turn()
    assert [s for kind, s in sim.notes if kind == "undone"] == [Stopped("undo", undone=(1,))]
    assert len(sim.guests) == 2


def test_a_cell_that_was_undone_can_be_followed_by_undoing_the_one_before(sim):
    first, second = sim.guest.copies[0], sim.kept()
    sim.kept()
    undo(sim)
    sim.takes_over(second)
    sim.stands(sim.guest.copy())
    undo(sim)
    sim.takes_over(first)
    assert undone(sim) == [(2,), (1,)]


# --- how many are kept ----------------------------------------------------------------------------


def test_as_many_are_kept_as_can_be_undone_and_the_newest(simulate):
    sim = simulate(depth=2)
    sim.stands(sim.guest.copy())
    for _ in range(5):
        sim.kept()
    assert [copy.gone() for copy in sim.guest.copies] == [True] * 3 + [False] * 3


def test_what_nobody_would_call_a_step_is_given_up(sim):
    sim.kept(silent=True, store_history=False)
    assert [copy.gone() for copy in sim.guest.copies] == [True, False]


def test_the_oldest_goes_first_when_they_hold_too_much(simulate, monkeypatch):
    size = snapshots.room.PAGE * 100
    sim = simulate(most_bytes=2 * size)
    sim.stands(sim.guest.copy())
    faults = iter(range(0, 10_000, 100))  # a hundred pages between any two
    monkeypatch.setattr(snapshots.room, "faults", lambda _: next(faults))
    monkeypatch.setattr(snapshots.room, "resident", lambda _: 1 << 40)
    for _ in range(5):
        sim.kept()
    gone = [copy.gone() for copy in sim.guest.copies]
    assert gone == [True] * 3 + [False] * 3
    assert sim.session._keeper.snapshots.cost() == 2 * size


# --- what they cost -------------------------------------------------------------------------------


@pytest.fixture
def plenty(monkeypatch):
    """Memory without end, and guests of one GiB."""
    sizes = {"free": 1 << 40, "guest": 1 << 30}
    monkeypatch.setattr(snapshots.room, "available", lambda: sizes["free"])
    monkeypatch.setattr(snapshots.room, "resident", lambda _: sizes["guest"])
    return sizes


def slow(sim):
    """Run a cell whose copy takes longer than it may; say whether one was asked for."""
    sim.guest.read()
    known = len(sim.guest.copies)
    sim.cell()
    sim.guest.read()
    if len(sim.guest.copies) == known:
        return False
    sim.reactor.advance(snapshots.TOO_LONG + 0.05)
    sim.stands(sim.guest.copies[-1])
    return True


def test_two_slow_ones_in_a_row_begin_a_rest_which_time_ends(simulate, plenty):
    assert plenty
    sim = simulate(mode="auto")
    sim.stands(sim.guest.copy())
    assert [slow(sim) for _ in range(4)] == [True, True, False, False]
    assert sim.notices() == ["the last one took 0.3 s"]
    sim.reactor.advance(20 * 0.3)
    assert slow(sim)
    assert not slow(sim)
    assert len(sim.notices()) == 1


def test_a_quick_one_between_them_makes_up_for_a_slow_one(simulate, plenty):
    assert plenty
    sim = simulate(mode="auto")
    sim.stands(sim.guest.copy())
    for _ in range(4):
        assert slow(sim)
        sim.kept()
    assert sim.notices() == []


def test_a_guest_that_became_smaller_ends_the_rest(simulate, plenty):
    sim = simulate(mode="auto")
    sim.stands(sim.guest.copy())
    assert [slow(sim) for _ in range(3)] == [True, True, False]
    plenty["guest"] = plenty["guest"] * 3 // 4
    assert slow(sim)


def test_always_asks_neither_for_time_nor_for_memory(simulate, plenty):
    plenty["free"] = 0
    sim = simulate(mode="always")
    sim.stands(sim.guest.copy())
    assert all(slow(sim) for _ in range(5))
    assert sim.notices() == []


def test_while_memory_is_short_the_oldest_are_given_up_and_none_is_taken(simulate, plenty):
    sim = simulate(mode="auto")
    sim.stands(sim.guest.copy())
    copy = sim.kept()
    plenty["free"] = snapshots.room.wanted(plenty["guest"]) - 1
    sim.cell(seconds=0.2)
    sim.cell(seconds=0.2)
    assert [outcome.status for outcome in sim.outcomes] == ["ok"] * 3
    assert copy.gone()
    assert sim.notices() == ["memory is short"]
    plenty["free"] += 1
    sim.kept()
    assert not sim.guest.copy().gone()
