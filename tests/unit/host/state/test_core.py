"""The core's rules, one by one: events are played, and actions looked at."""

import errno
from functools import cache

import pytest

from cellblock.host.limits.shares import Shares
from cellblock.host.session.types import Restored, Stopped
from cellblock.host.snapshots.memory import USES_DEVICE, Reading
from cellblock.host.state import core as rules
from cellblock.host.state.actions import (
    Cause,
    Continue,
    Drop,
    EndAll,
    EndGuest,
    EndUnknown,
    Fork,
    Protect,
    Remind,
    Reminder,
    Replay,
    Serve,
    StartAnew,
    Stop,
    TakeOver,
    Tell,
    Unwatch,
    Wake,
)
from cellblock.host.state.actions import (
    Restored as Serves,
)
from cellblock.host.state.chain import PastRequest
from cellblock.host.state.core import CopyReading, Core
from cellblock.host.state.takeover import Takeover
from cellblock.policy.model import Policy
from cellblock.wire import messages
from support.core_play import Budget

CRASH = Stopped("crash")
DONE = messages.Done


@cache
def cell(count):
    return messages.Execute(id=count, source="x", raw=f"x = {count}", execution_count=count)


class Session:
    """A core, the world that it asks, and what it has done since that was looked at last."""

    def __init__(self, **settings):
        policy = Policy().replace(**{"undo_depth": 5, "undo_max_bytes": None} | settings)
        self.budget = Budget()
        self.core = Core(policy, self.budget, self)
        self.time, self.begun, self.told, self.idle = 0.0, None, [], True
        self.device_users = set()
        self.core.guest_starts()
        self.core.guest_is_ready(idle=False)
        (self.first,) = self.forks()

    def now(self):
        return self.time

    def resident(self, _process):
        return 1 << 20

    def reading(self, _process, resident, given):
        return Reading(resident, given)

    def uses_device(self, process):
        return process in self.device_users

    def is_idle(self):
        return self.idle

    def runs_beside(self):
        return False

    def running(self):
        return self.begun

    def others_are_settled(self):
        return True

    def acts(self):
        """Return what is to be done, without reminders; who waited is told."""
        found = []
        while self.core.actions:
            action = self.core.actions.popleft()
            if isinstance(action, Tell):
                action.then(*action.with_)
            if not isinstance(action, Remind):
                found.append(action)
        return found

    def forks(self):
        """Return the numbers of the processes that are to be forked."""
        return [action.number for action in self.acts() if isinstance(action, Fork)]

    def stands(self, number):
        self.core.fork_stood(number, 0)
        return self.acts()

    def ends(self, count, seconds=0.0, *, repeatable=False, alone=True):
        """Have a cell end; its count is told when it is answered."""
        past = PastRequest(cell(count), seconds, repeatable, ended=self.time)
        self.core.cell_ended(past, lambda: self.told.append(count), alone=alone)

    def keeps(self, count):
        """Have a cell end, and a copy stand that holds what it did; return the copy's number."""
        self.ends(count, 0.5)
        (number,) = self.forks()
        self.stands(number)
        return number

    def lost(self):
        """Have the guest end; return what is done about that."""
        self.core.guest_lost(CRASH)
        return self.acts()

    def takes_over(self, *again):
        """Have the copy that is tried leave a twin, take over and serve; return what that tells.

        It runs the cells ``again`` that it is asked to.
        """
        taker, twin = self.core.guest, self.core.takeover.snapshot.copy.number
        if twin != taker:
            self.stands(twin)
        self.core.takeover_said(messages.Resumed())
        for count in again:
            assert self.acts()[-1].request.message == cell(count)
            self.core.takeover_said(DONE(id=count))
        assert Serve(taker) in self.acts()
        self.core.served(taker)
        acts = self.acts()
        (told,) = [action for action in acts if isinstance(action, Serves)]
        return told.outcome


@pytest.fixture
def begin():
    return Session


@pytest.fixture
def sim(begin):
    """A session with a snapshot of its beginning, which stands."""
    made = begin()
    made.stands(made.first)
    return made


# --- a device is in use ---------------------------------------------------------------------------


def test_a_guest_that_uses_a_device_is_not_copied_and_what_takes_over_is(sim):
    first = sim.keeps(1)
    sim.device_users.add(sim.core.guest)
    for count in (2, 3):
        sim.ends(count, 0.5)
        assert sim.forks() == []
    assert sim.told == [1, 2, 3]
    assert set(sim.budget.said) == {"device"}  # a real one tells it once
    sim.lost()
    assert sim.core.guest == first  # it has no device
    assert sim.takes_over().restored.missed == (2, 3)
    sim.keeps(4)


def test_a_fork_that_was_due_before_a_device_was_used_is_not_asked_for(sim):
    sim.ends(1, 0.5)
    (number,) = sim.forks()
    assert sim.told == []
    sim.core.fork_of_device_user(number)
    assert Drop(number) in sim.acts()
    assert sim.told == [1]
    assert sim.core.chain.newest().copy.number == sim.first
    assert sim.budget.said == ["device"]


def test_where_a_device_is_in_use_undo_takes_back_no_more_cells_than_are_asked_for(sim):
    sim.keeps(1)
    sim.device_users.add(sim.core.guest)
    sim.ends(2, 0.5)
    assert [step.undone[0].message for step in sim.core.steps()] == [cell(2), cell(1)]
    sim.ends(3, 0.5)
    sim.acts()
    assert sim.core.steps() == []
    sim.device_users.clear()
    assert len(sim.core.steps()) == 2


def test_where_a_device_is_in_use_there_are_no_checkpoints_branches_and_forks(sim):
    sim.device_users.add(sim.core.guest)
    whys, forks = [], []
    sim.core.checkpoint("point", whys.append)
    sim.core.go_to_branch("idea", "", whys.append)
    sim.core.fork(1, forks.append)
    assert sim.forks() == []
    assert (whys, forks) == ([USES_DEVICE, USES_DEVICE], [[]])
    assert sim.core.branch == "main"


def test_a_checkpoint_of_before_a_device_was_used_is_gone_back_to(named):
    named.device_users.add(named.core.guest)
    named.core.restore("point", named.whys.append)
    (twin,) = named.forks()
    named.stands(twin)
    assert named.core.restores
    assert named.whys == [""]


# --- when a request is answered -------------------------------------------------------------------


def test_a_short_cell_is_answered_at_once_and_the_next_when_its_copy_stands(sim):
    sim.ends(1)
    (first,) = sim.forks()
    sim.ends(2)
    assert len(sim.forks()) == 1
    assert sim.told == [1]
    sim.stands(first)
    assert sim.told == [1, 2]


def test_a_long_cell_is_answered_when_its_own_copy_stands_or_is_certain_not_to(sim):
    sim.ends(1, 0.5)
    (number,) = sim.forks()
    assert sim.told == []
    sim.stands(number)
    assert sim.told == [1]
    sim.ends(2, 0.5)
    (number,) = sim.forks()
    sim.core.reminded(Reminder(Cause.late, number))
    assert Drop(number) in sim.acts()
    assert sim.told == [1, 2]


def test_a_copy_that_stands_once_the_guest_is_lost_answers_nobody_until_it_serves(sim):
    sim.ends(1, 0.5)
    (number,) = sim.forks()
    sim.lost()
    sim.stands(number)
    assert sim.told == []
    assert sim.takes_over().restored == Restored()
    assert sim.told == [1]


def test_an_answer_is_given_by_no_other_state_than_its_own_when_the_guest_is_lost(sim):
    sim.ends(1)
    (first,) = sim.forks()
    sim.ends(2)
    (second,) = sim.forks()
    sim.begun = cell(2)  # it is not answered yet
    sim.lost()
    sim.core.reminded(Reminder(Cause.too_long, second))
    sim.stands(first)
    sim.takes_over()
    assert sim.told == [1]


def test_a_cell_whose_guest_was_lost_before_it_ended_is_not_answered_here(sim):
    sim.lost()
    sim.ends(1)
    sim.takes_over()
    assert (sim.told, sim.core.chain[-1].after) == ([], [])


def test_cells_that_come_out_the_same_get_a_copy_when_they_took_a_second_together(sim):
    for count in range(1, 4):
        sim.ends(count, 0.3, repeatable=True)
        assert sim.forks() == []
    sim.ends(4, 0.3, repeatable=True)
    assert len(sim.forks()) == 1
    assert sim.told == [1, 2, 3, 4]


def test_a_cell_beside_another_is_recorded_and_no_copy_made_until_that_has_ended(sim):
    sim.ends(1, 0.5, alone=False)
    assert (sim.forks(), sim.told) == ([], [1])


# --- when a snapshot is taken ---------------------------------------------------------------------


def test_of_a_guest_that_nobody_asks_anything_a_copy_is_made_after_a_while(begin):
    sim = begin()
    sim.core.end()
    sim.core.guest_starts()
    sim.core.guest_is_ready(idle=True)
    (reminder,) = [one for one in sim.core.actions if getattr(one, "seconds", 0) == rules.IDLE]
    assert sim.forks() == []
    sim.core.reminded(reminder.of)
    assert len(sim.forks()) == 1


def test_a_cell_that_comes_before_puts_it_off_but_not_the_first_of_all(begin):
    sim = begin()
    sim.core.end()
    sim.core.guest_starts()
    sim.core.guest_is_ready(idle=True)
    sim.acts()
    sim.core.cell_began()
    assert len(sim.forks()) == 1


def test_a_copy_that_ends_while_a_cell_runs_is_not_made_again_before_that_has_ended(sim):
    """The guest would make it behind the cell, and it would count as made before."""
    sim.lost()
    sim.takes_over()  # one is due when nothing comes; a cell waits, and is sent
    twin = sim.core.chain[-1].copy.number
    sim.core.copy_ended(twin)
    sim.idle = False
    sim.core.cell_began()  # a subshell's
    assert sim.forks() == []
    sim.ends(1)
    assert len(sim.forks()) == 1


def test_where_memory_is_short_the_oldest_are_given_up_and_a_cell_is_answered_without(sim):
    sim.budget.is_short = True
    sim.ends(1, 0.5)
    acts = sim.acts()
    assert Drop(sim.first) in acts
    assert not [action for action in acts if isinstance(action, Fork)]
    assert sim.told == [1]


def test_a_copy_that_was_asked_for_is_stopped_and_kept_from_cells_when_it_stands(begin):
    sim = begin()
    assert sim.stands(sim.first)[:2] == [Protect(sim.first), Stop(sim.first)]


def test_three_that_never_stand_are_all_until_what_took_their_forks_is_ended(begin):
    sim = begin(undo_depth=5)
    for count in range(1, 3):
        sim.ends(count, 0.5)
    sim.acts()
    held = sim.core.chain[0]
    sim.core.fork_stood(held.copy.number, 0)
    held.copy.forks.add(99)  # something always is being forked
    for number in [one.copy.number for one in sim.core.chain[1:]]:
        sim.core.reminded(Reminder(Cause.late, number))
    sim.ends(3, 0.5)
    (number,) = sim.forks()
    sim.core.reminded(Reminder(Cause.late, number))
    sim.ends(4, 0.5)
    assert sim.acts()[-1:] != []
    assert sim.told == [1, 2, 3, 4]
    assert not any(not one.kept for one in sim.core.chain)
    sim.core.reminded(Reminder(Cause.kept_waiting, 99))
    sim.core.reminded(Reminder(Cause.sweep))
    assert EndUnknown() in sim.acts()
    sim.ends(5, 0.5)
    assert len(sim.forks()) == 1


# --- a guest is lost ------------------------------------------------------------------------------


def test_the_newest_copy_leaves_a_twin_first_and_is_told_to_take_over_when_that_stands(sim):
    newest = sim.keeps(1)
    sim.begun = cell(2)
    *ends, wake, fork = sim.lost()
    twin = fork.number
    assert ends == [Unwatch(), EndGuest(1, empties=True, has_failed=False)]
    assert (wake, fork) == (Wake(newest), Fork(newest, twin))
    *_, told = sim.stands(twin)
    assert told == TakeOver(newest, 0, [(2, "x = 2")], None, None, fork=False)


def test_programs_of_the_guest_before_are_ended_before_anything_is_asked_of_a_copy(begin):
    sim = begin(subprocess_execution=True)
    sim.stands(sim.first)
    acts = [type(action) for action in sim.lost()]
    assert acts.index(EndUnknown) < acts.index(Fork)


def test_a_copy_of_which_no_twin_can_be_made_takes_over_without(sim):
    sim.lost()
    twin = sim.core.takeover.snapshot.copy.number
    sim.core.fork_failed(sim.first, twin, errno.EAGAIN)
    assert isinstance(sim.acts()[-1], TakeOver)
    assert sim.core.chain == []
    assert "failed" in sim.budget.said


@pytest.mark.parametrize("killed", [True, False])
def test_who_is_killed_is_followed_by_its_twin_and_who_fails_by_the_state_before(sim, killed):
    newest = sim.keeps(1)
    sim.lost()
    twin = sim.core.takeover.snapshot.copy.number
    sim.stands(twin)
    if killed:
        sim.core.copy_ended(newest)
    else:
        sim.core.reminded(Reminder(Cause.too_long, newest))
    acts = sim.acts()
    assert Wake(twin if killed else sim.first) in acts
    assert (Drop(twin) in acts) is not killed


def test_a_state_is_not_kept_any_more_when_eight_copies_of_it_were_killed(sim):
    newest = sim.keeps(1)
    sim.lost()
    for _ in range(rules.MAX_SERVED):
        twin = sim.core.takeover.snapshot.copy.number
        sim.stands(twin)
        sim.core.copy_ended(sim.core.guest)
        assert Wake(twin) in sim.acts()
    sim.core.copy_ended(sim.core.guest)
    assert newest != sim.first
    assert Wake(sim.first) in sim.acts()


def test_guests_that_are_lost_again_and_again_while_nothing_runs_are_restored_no_more(sim):
    for _ in range(rules.MAX_LOSSES):
        sim.lost()
        sim.takes_over()
    assert StartAnew(CRASH) in sim.lost()
    assert sim.core.chain == []


def test_a_long_cell_that_was_run_again_is_so_once_more_if_its_guest_ends_before_it_is_copied(sim):
    sim.keeps(1)
    sim.ends(2, 0.5, repeatable=True)
    sim.lost()
    sim.takes_over(2)
    sim.core.copy_ended(sim.core.chain[-1].copy.number)
    sim.lost()
    assert sim.takes_over(2).restored == Restored()


def test_cells_are_run_again_one_after_the_other_and_then_it_serves(sim):
    sim.ends(1, repeatable=True)
    sim.ends(2)
    (young,) = sim.forks()
    sim.core.copy_ended(young)
    sim.lost()
    sim.stands(sim.core.takeover.snapshot.copy.number)
    for count in (1, 2):
        sim.core.takeover_said(messages.Resumed() if count == 1 else DONE(id=1))
        (again,) = sim.acts()
        assert (type(again), again.request.message) == (Replay, cell(count))
    sim.core.takeover_said(DONE(id=2))
    assert sim.acts() == [Serve(sim.first)]
    sim.core.served(sim.first)
    assert sim.acts()[-1].outcome.restored == Restored(again=(2,))


@pytest.mark.parametrize(
    "said",
    [DONE(id=1), messages.Breach(operation="os.fork"), messages.SnapshotReady(id=77)],
    ids=lambda said: type(said).__name__,
)
def test_who_takes_over_and_says_anything_else_is_ended(sim, said):
    sim.lost()
    sim.core.takeover_said(said)
    assert EndGuest(sim.first, empties=False, has_failed=False) in sim.acts()


def test_who_says_that_it_took_over_before_it_was_told_to_is_ended(sim):
    sim.lost()
    sim.core.takeover_said(messages.Resumed())
    assert EndGuest(sim.first, empties=False, has_failed=False) in sim.acts()


def test_when_the_zygote_is_lost_so_are_all_copies_and_no_answer_is_given(sim):
    sim.ends(1, 0.5)
    sim.core.guest_lost(CRASH, with_copies=True)
    assert sim.acts()[-1] == StartAnew(CRASH)
    assert (sim.told, sim.core.chain) == ([], [])


def test_when_all_ends_so_does_whatever_was_forked(sim):
    sim.core.end()
    first, *_, last = sim.acts()
    assert (first, last) == (EndGuest(1, empties=False, has_failed=False), EndAll())


# --- steps back, names and branches ---------------------------------------------------------------


def test_undo_goes_to_the_state_before_and_drops_those_behind_it(sim):
    first, second = sim.keeps(1), sim.keeps(2)
    sim.core.undo(sim.core.steps()[0])
    acts = sim.acts()
    assert Wake(first) in acts
    assert Drop(second) in acts
    outcome = sim.takes_over()
    assert (outcome.why, outcome.undone) == ("undo", (2,))


@pytest.fixture
def named(sim):
    """A session with a checkpoint ``point``; what is told is noted."""
    sim.whys = []
    sim.core.checkpoint("point", sim.whys.append, 1)
    (sim.point,) = sim.forks()
    sim.stands(sim.point)
    return sim


def test_a_checkpoint_is_told_of_when_its_copy_stands_and_no_kill_goes_back_to_it(named):
    assert named.whys == [""]
    assert Wake(named.first) in named.lost()


def test_a_checkpoint_of_the_same_name_takes_the_place_of_the_one_before(named):
    named.core.checkpoint("point", named.whys.append)
    (number,) = named.forks()
    assert named.core.chain.named()["point"].copy.number == named.point
    assert Drop(named.point) in named.stands(number)
    assert named.core.chain.named()["point"].copy.number == number


def test_a_checkpoint_that_the_guest_did_not_live_to_fork_is_told_to_be_none(sim):
    whys = []
    sim.core.checkpoint("point", whys.append)
    (number,) = sim.forks()
    assert Drop(number) in sim.lost()
    assert whys == ["no copy of the state could be made"]


def test_a_checkpoint_is_gone_back_to_when_its_twin_stands_and_then_the_chain_is_dropped(named):
    named.core.restore("point", named.whys.append)
    go_on, fork = named.acts()
    assert (go_on, fork.maker) == (Continue(named.point), named.point)
    assert named.core.serves
    acts = named.stands(fork.number)
    assert acts.index(Unwatch()) < acts.index(Wake(named.point))
    assert isinstance(acts[-1], TakeOver)
    outcome = named.takes_over()
    assert (outcome.why, outcome.detail, named.whys) == ("undo", "point", [""])
    assert [one.copy.number for one in named.core.chain.apart] == [fork.number]
    assert named.first not in [one.copy.number for one in named.core.chain]


def test_a_checkpoint_of_which_no_twin_can_be_made_is_kept_and_so_is_the_guest(named):
    named.core.restore("point", named.whys.append)
    (twin,) = named.forks()
    named.core.fork_failed(named.point, twin, errno.EAGAIN)
    named.acts()
    assert named.whys == ["", "no copy of it could be made"]
    assert named.core.serves
    assert "point" in named.core.chain.named()


def test_a_name_that_nothing_has_is_not_gone_back_to(named):
    named.core.restore("other", named.whys.append)
    named.acts()
    assert named.whys[1] == "there is no checkpoint or branch other; there are checkpoints: point"


def test_who_leaves_a_branch_has_its_state_kept_and_comes_back_to_it(named):
    named.core.go_to_branch("idea", "", named.whys.append)
    (kept,) = named.forks()
    named.stands(kept)
    assert (named.whys, named.core.branch) == (["", ""], "idea")
    named.core.go_to_branch("main", "", named.whys.append)
    (left,) = named.forks()
    acts = named.stands(left)
    (twin,) = [action.number for action in acts if isinstance(action, Fork)]
    assert Wake(kept) in named.stands(twin)
    assert named.core.branch == "main"
    assert named.core.chain.named().keys() == {"point", "main", "idea"}


def test_a_branch_that_can_not_be_gone_to_is_not_gone_to(named):
    named.core.go_to_branch("idea", "point", named.whys.append)
    (kept,) = named.forks()
    (twin,) = [one.number for one in named.stands(kept) if isinstance(one, Fork)]
    named.core.copy_ended(twin)
    named.acts()
    assert named.whys == ["", "no copy of it could be made"]
    assert named.core.branch == "main"


def test_no_more_names_are_kept_than_there_may_be(begin):
    sim, whys = begin(max_branches=1), []
    for name in ("one", "two"):
        sim.core.checkpoint(name, whys.append)
        for number in sim.forks():
            sim.stands(number)
    assert whys == ["", "max_branches allows 1, and there are one"]


# --- locks, and copies for others -----------------------------------------------------------------


def test_more_locks_leave_no_copy_that_has_fewer_and_no_twin(sim):
    newest = sim.keeps(1)
    plan = messages.Plan(required=("landlock",))
    sim.core.relock(plan)
    acts = sim.acts()
    assert Drop(sim.first) in acts
    assert acts[-2:] == [Wake(newest), TakeOver(newest, 0, [], plan, None, fork=False)]
    assert sim.core.chain.all() == []


@pytest.mark.parametrize("locked", [True, False])
def test_who_goes_on_without_its_locks_is_ended(sim, locked):
    newest = sim.keeps(1)
    sim.core.relock(messages.Plan())
    sim.acts()
    if locked:
        sim.core.locks_are_on()
    sim.core.takeover_said(messages.Resumed())
    assert (Serve(newest) in sim.acts()) is locked


def test_forks_are_made_by_a_copy_that_ends_then_and_not_by_the_guest(sim):
    made = []
    sim.core.fork(4, made.append)
    (source,) = sim.forks()
    sim.stands(source)
    numbers = [one.copy.number for one in sim.core.chain.apart if one.copy.number != source]
    assert len(numbers) == 3
    for number in numbers:
        acts = sim.stands(number)
        numbers += [one.number for one in acts if isinstance(one, Fork)]
    assert [copy.copy.number for copy in made[0]] == numbers
    assert Drop(source) in acts


def test_a_copy_of_anothers_guest_takes_over_when_its_locks_are_ready(begin):
    sim = begin()
    sim.core.end()
    sim.acts()
    plan = messages.Plan()
    number = sim.core.adopt(Reading(1, 7), Takeover(Stopped("fork"), 0.0, plan=plan))
    assert [*filter(lambda one: isinstance(one, TakeOver), sim.acts())] == []
    sim.core.locks_are_ready(number)
    assert sim.acts() == [TakeOver(number, 0, [], plan, None, fork=True)]
    assert sim.core.given == 7


# --- what copies hold -----------------------------------------------------------------------------


def test_a_copy_that_computes_is_dropped_and_of_those_that_grow_the_largest(begin):
    sim = begin(memory_max_bytes=256 << 20)
    sim.stands(sim.first)
    first, second, third = (sim.keeps(count) for count in range(1, 4))
    sim.core.copies_read({first: CopyReading(1.0, 0, 0)})
    sim.core.copies_read({first: CopyReading(1.1, 0, 0)})
    assert Drop(first) in sim.acts()
    sim.core.copies_read(
        {second: CopyReading(0.0, 60 << 20, 0), third: CopyReading(0.0, 50 << 20, 0)}
    )
    assert [one for one in sim.acts() if isinstance(one, Drop)] == [Drop(second)]


MIB = 1 << 20
SHARED = Shares(share=MIB // 4, alone=0, whole=MIB)
ALONE = Shares(share=MIB, alone=MIB, whole=MIB)


@pytest.fixture
def crowded(begin):
    """A session in which the copies of three states could hold more for themselves than two."""
    sim = begin(subprocess_execution=True, undo_max_bytes=2 * MIB)
    sim.stands(sim.first)
    sim.copies = [sim.first, *(sim.keeps(count) for count in range(1, 4))]
    return sim


def dropped(sim):
    return [one.number for one in sim.acts() if isinstance(one, Drop)]


def test_whose_pages_a_child_may_have_written_to_has_them_read_and_the_oldest_are_dropped(crowded):
    asked = crowded.core.doubts()
    assert asked == {*crowded.copies}
    crowded.core.shares_read(asked, dict.fromkeys(asked, ALONE))
    assert dropped(crowded) == crowded.copies[:1]
    assert crowded.core.doubts() == frozenset()  # two older ones may have all that they had


def test_copies_are_read_again_when_one_was_dropped_since_the_others_have_more_then(begin):
    sim = begin(subprocess_execution=True, undo_max_bytes=MIB)
    sim.stands(sim.first)
    copies = [sim.first, *(sim.keeps(count) for count in range(1, 5))]
    asked = sim.core.doubts()
    half = Shares(share=MIB // 2, alone=0, whole=MIB)  # each page is in two of them
    older = dict.fromkeys(copies[:-1], half)
    sim.core.shares_read(asked, {**older, copies[-1]: Shares(MIB // 2, 0, MIB // 2)})
    assert dropped(sim) == copies[:2]
    assert sim.core.doubts() == {*copies[2:]}


def test_copies_that_share_their_pages_with_the_newest_are_all_kept_and_read_once(crowded):
    crowded.core.reminded(Reminder(Cause.look))
    asked = crowded.core.doubts()
    assert Remind(rules._LOOK_DELAY, Reminder(Cause.look)) in crowded.core.actions
    crowded.core.shares_read(asked, dict.fromkeys(asked, SHARED))
    assert dropped(crowded) == []
    assert crowded.core.doubts() == frozenset()
    crowded.copies.append(crowded.keeps(4))
    assert crowded.core.doubts() == {*crowded.copies}


@pytest.mark.parametrize("lacking", [0, -1, None])
def test_no_copy_is_dropped_by_an_answer_that_lacks_one_of_them(crowded, lacking):
    asked = crowded.core.doubts()
    found = dict.fromkeys(asked, ALONE)
    del found[crowded.copies[lacking or 0]]
    crowded.core.shares_read(asked, {} if lacking is None else found)
    assert dropped(crowded) == []


@pytest.mark.parametrize(
    "settings",
    [{"undo_max_bytes": 3 * MIB}, {"undo_max_bytes": None}, {"subprocess_execution": False}],
)
def test_nothing_is_read_where_no_child_can_write_or_all_that_copies_had_is_allowed(
    begin, settings
):
    sim = begin(**{"subprocess_execution": True, "undo_max_bytes": 2 * MIB} | settings)
    sim.stands(sim.first)
    for count in range(1, 4):
        sim.keeps(count)
    assert sim.core.doubts() == frozenset()


def test_checkpoints_are_held_against_what_the_guest_has_and_are_read_time_and_again(begin):
    sim = begin(subprocess_execution=True, undo_max_bytes=MIB)
    sim.stands(sim.first)
    made = []
    for name in "ab":
        sim.core.checkpoint(name, list)
        made += sim.forks()
        sim.stands(made[-1])
    asked = sim.core.doubts()
    assert asked == {sim.core.guest, *made}
    sim.core.shares_read(asked, dict.fromkeys(asked, Shares(MIB // 3, 0, MIB)))
    assert dropped(sim) == []
    assert sim.core.doubts() == asked
    sim.core.shares_read(asked, dict.fromkeys(asked, ALONE))
    assert dropped(sim) == made[:1]
    assert [said.partition(":")[0] for said in sim.budget.said] == ["dropped checkpoint a"]


def test_no_more_states_are_kept_than_can_be_undone(begin):
    sim = begin(undo_depth=1)
    sim.stands(sim.first)
    first, second = sim.keeps(1), sim.keeps(2)
    assert [one.copy.number for one in sim.core.chain] == [first, second]


def test_a_copy_is_given_up_when_cells_that_can_be_run_again_are_all_that_undo_may_step_over(begin):
    sim = begin(undo_depth=2)
    sim.stands(sim.first)
    newest = sim.keeps(1)
    sim.ends(2, repeatable=True)
    sim.acts()
    sim.core.reminded(Reminder(Cause.look))
    sim.core.copies_read({})
    assert sim.acts() == []  # before cell 1 there is the first copy alone
    sim.ends(3, repeatable=True)
    assert Remind(0.1, Reminder(Cause.look)) in sim.core.actions
    sim.acts()
    sim.core.copies_read({})
    assert sim.acts() == [Drop(sim.first)]
    undone = [tuple(past.message.id for past in step.undone) for step in sim.core.steps()]
    assert ([one.copy.number for one in sim.core.chain], undone) == ([newest], [(3,), (2, 3)])
