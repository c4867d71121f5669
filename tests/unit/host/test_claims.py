"""When the zygote is told which processes there may be: not while one is being made."""

import errno

import pytest

from cellblock.host.guest_process import Guest
from cellblock.host.keeping import Settings
from cellblock.host.snapshots import Snapshots
from cellblock.wire import messages
from support.simulator import NOBODYS_PID, Reactor


class Zygote:
    """Takes note of what it is told."""

    def __init__(self):
        self.told = []

    def allow(self, _lineage, _pid):
        self.told.append("allow")

    def members(self, _lineage, _session, pids):
        self.told.append(pids)


@pytest.fixture
def made():
    """Two copies that were asked for and do not stand, of a guest that does not answer."""
    reactor, zygote = Reactor(), Zygote()
    guest = Guest(reactor, print, print, print)
    guest.pid, guest.signal = NOBODYS_PID, lambda _: None
    settings = Settings(mode="always")
    snapshots = Snapshots(reactor, settings, lambda: reactor.now, print, lambda: None)
    for _ in range(2):
        snapshots.take(guest, zygote)
    yield reactor, zygote, snapshots
    snapshots.end()
    guest.close()


def test_a_copy_that_is_given_up_does_not_cost_the_one_that_is_being_made(made):
    _, zygote, snapshots = made
    first, second = snapshots.ring
    snapshots.not_standing(messages.NotStanding(id=first.number, errno=errno.ENOMEM))
    assert zygote.told == ["allow", "allow"]
    assert snapshots.ring == [second]


def test_when_none_is_being_made_what_was_forked_besides_is_ended(made):
    _, zygote, snapshots = made
    for copy in tuple(snapshots.ring):
        snapshots.not_standing(messages.NotStanding(id=copy.number, errno=errno.ENOMEM))
    assert zygote.told == ["allow", "allow", (NOBODYS_PID,)]


def test_it_is_asked_for_once_more_when_a_fork_may_have_been_under_way(made):
    reactor, zygote, snapshots = made
    snapshots.clear()
    del zygote.told[:]
    reactor.advance(2)
    assert set(zygote.told) == {(NOBODYS_PID,)}


def test_copies_that_never_stand_are_ended_in_time(made):
    reactor, zygote, snapshots = made
    reactor.advance(6)
    assert snapshots.ring == []
    assert zygote.told[-1] == (NOBODYS_PID,)
