"""When the zygote is told which processes there may be: not while one is being made."""

import errno

import pytest

from cellblock.host.guests.process import Guest
from cellblock.host.snapshots.store import Snapshots
from cellblock.policy.model import Policy
from cellblock.wire import messages
from support.simulator import NOBODYS_PID, Reactor


@pytest.fixture
def made(supervise):
    """Two copies that were asked for and do not stand, of a guest that does not answer."""
    reactor = Reactor()
    guest = Guest(reactor, print, print, print)
    guest.pid, guest.signal = NOBODYS_PID, lambda _: None
    policy = Policy().replace(snapshots="always")
    snapshots = Snapshots(reactor, lambda: reactor.now, policy, supervise(guest))
    for _ in range(2):
        snapshots.take()
    yield reactor, snapshots
    snapshots.end()
    guest.close()


def test_what_was_forked_besides_is_ended_when_no_copy_is_being_made(made, zygote):
    _, snapshots = made
    first, second = snapshots.chain
    snapshots.not_standing(messages.SnapshotFailed(id=first.number, errno=errno.ENOMEM))
    assert zygote.told == ["allow", "allow"]
    assert snapshots.chain == [second]
    snapshots.not_standing(messages.SnapshotFailed(id=second.number, errno=errno.ENOMEM))
    assert zygote.told == ["allow", "allow", (NOBODYS_PID,)]


def test_it_is_asked_for_once_more_when_a_fork_may_have_been_under_way(made, zygote):
    reactor, snapshots = made
    snapshots.clear()
    del zygote.told[:]
    reactor.advance(2)
    assert set(zygote.told) == {(NOBODYS_PID,)}


def test_copies_that_never_stand_are_ended_in_time(made, zygote):
    reactor, snapshots = made
    reactor.advance(6)
    assert snapshots.chain == []
    assert zygote.told[-1] == (NOBODYS_PID,)
