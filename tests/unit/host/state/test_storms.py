"""Storms over a core: events in any order, and what must hold after each (``support.core_play``).

In a *fair* storm one process is killed at a time, once another holds its state, and none breaks the
protocol: nothing that was answered is lost, and nobody is told otherwise. In a *foul* one any
process is killed at any moment, the zygote too, and does wrong whatever it can do wrong: what is
lost is told, and nothing is that a copy holds which did as it should.

``CORE_STORMS`` says how many there are, ``CORE_STORM_SEED`` where they begin.
"""

import os
import random

import pytest

from support.core_play import FAULTS, Play

STORMS = int(os.environ.get("CORE_STORMS", "10000"))
SEED = int(os.environ.get("CORE_STORM_SEED", "0"))
_PARTS = 20
_EVENTS = 70
_NAMES = ("one", "two")
_BRANCHES = ("main", "idea")
#: Cells: seconds, whether they come out the same again, whether they did something outside.
_CELLS = (
    (0.001, True, False),
    (0.3, True, False),
    (0.001, False, False),
    (0.001, False, False),
    (0.5, False, False),
    (0.001, False, True),
)


class Storm:
    """One session, and dice that decide what happens next."""

    def __init__(self, seed, *, fair):
        self.dice, self.fair = random.Random(seed), fair
        self.play = Play(undo_depth=self.dice.randrange(4), max_branches=2)

    def blow(self):
        """Have things happen, then come to rest; a last kill must not cost anything."""
        for _ in range(_EVENTS):
            lot = self.dice.random()
            if lot < 0.35:
                self._act()
            elif lot < 0.70:
                self._say()
            elif lot < 0.80:
                self._ask()
            elif lot < 0.90:
                self._wait()
            elif self.fair:
                self._strike_fairly()
            else:
                self._strike_foully()
        self._rest()

    def _act(self):
        able = [one for one in self.play.open.values() if one.inbox]
        if able:
            self.play.acts(self.dice.choice(able))

    def _say(self):
        heard = [one for one in self.play.open.values() if one.outbox or not one.alive]
        if heard:
            self.play.says(self.dice.choice(heard))

    def _wait(self):
        """Have time pass; in a fair storm so little that nobody is late."""
        play = self.play
        busy = any(one.inbox or one.outbox or not one.alive for one in play.open.values())
        if self.fair and (busy or play.core.restores):
            play.pass_time(self.dice.choice((0.001, 0.03)))
        elif self.dice.random() < 0.5:
            play.next_reminder()
        else:
            play.pass_time(self.dice.choice((0.001, 0.03, 1.5)))

    def _ask(self):
        """Have the session ask for something, if it may."""
        play, dice = self.play, self.dice
        if play.request is not None:
            return
        lot = dice.randrange(20)
        if lot < 10:
            seconds, repeatable, side_effects = dice.choice(_CELLS)
            play.run(seconds=seconds, repeatable=repeatable, side_effects=side_effects)
        elif lot < 12:
            play.run("undo", dice.randint(1, 2))
        elif lot < 14:
            play.run("checkpoint", dice.choice(_NAMES))
        elif lot < 17:
            play.run("restore", dice.choice([*play.core.chain.named()] or _NAMES))
        elif lot < 18:
            play.run("branch", dice.choice(_BRANCHES), dice.choice(("", "", "one")))
        elif lot < 19:
            play.run("narrow")
        else:
            play.ask_for_forks(dice.randint(1, 4))

    def _strike_fairly(self):
        play = self.play
        guest = play.guest
        if guest is not None and guest.alive and play.is_held():
            play.kill(guest)
            while play.says(guest):  # the host hears of it at once
                pass

    def _strike_foully(self):
        play, lot = self.play, self.dice.random()
        play.is_sheltered = False
        victims = [one for one in play.open.values() if one.alive]
        if lot < 0.05:
            play.kill_zygote()
        elif lot < 0.1:
            play.budget.is_short = not play.budget.is_short
        elif lot < 0.4 and play.guest is not None:
            play.kill(play.guest)
        elif victims and lot < 0.6:
            play.kill(self.dice.choice(victims))
        elif victims:
            self.dice.choice(victims).fault = self.dice.choice(FAULTS)

    def _rest(self):
        """Have all come to rest, and see that nobody waits and nothing is left over."""
        play = self.play
        for process in play.processes.values():
            process.fault = ""
        play.settle()
        guest = play.guest
        if play.request is not None and guest is not None and guest.hangs:
            play.kill(guest)
            play.settle()
        assert play.core.serves
        assert play.request is None
        assert play.owed == 0
        assert not play.core._promises
        assert not play.core._waiting
        assert not any(one.copy.forks for one in play.core.chain.all())
        for process in play.processes.values():  # nothing goes on that nobody knows
            assert process.number in play.open or process in play.forks or not process.alive


def blow_all(part, *, fair):
    for seed in range(SEED + part, SEED + STORMS // 2, _PARTS):
        try:
            Storm(seed, fair=fair).blow()
        except AssertionError as exc:
            raise AssertionError(f"seed {seed}") from exc


@pytest.mark.parametrize("part", range(_PARTS))
def test_a_fair_storm_costs_nothing_that_was_answered(part):
    blow_all(part, fair=True)


@pytest.mark.parametrize("part", range(_PARTS))
def test_in_a_foul_storm_what_is_lost_is_told_and_nothing_that_a_good_copy_holds(part):
    blow_all(part, fair=False)
