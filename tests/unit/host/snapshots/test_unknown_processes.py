"""When the zygote is told which processes there may be: not while one is being made."""

import errno

import pytest

from cellblock.host.guests.process import Guest
from support.simulator import NOBODYS_PID, Reactor


@pytest.fixture
def made(serving):
    """Two copies that were asked for and do not stand, of a guest that does not answer."""
    reactor = Reactor()
    guest = Guest(reactor, print, print, print)
    guest.pid, guest.signal = NOBODYS_PID, lambda _: None
    snapshots = serving(reactor, guest, snapshots="always")
    for _ in range(2):
        snapshots.play(snapshots.core.copy_guest, lambda _: None)
    yield reactor, snapshots
    snapshots.play(snapshots.core.end)


def cannot_fork(snapshots, snapshot):
    core = snapshots.core
    snapshots.play(core.fork_failed, core.guest, snapshot.copy.number, errno.ENOMEM)


def test_what_was_forked_besides_is_ended_when_no_copy_is_being_made(made, zygote):
    _, snapshots = made
    first, second = snapshots.chain
    cannot_fork(snapshots, first)
    assert zygote.told == ["allow", "allow"]
    assert snapshots.chain == [second]
    cannot_fork(snapshots, second)
    assert zygote.told == ["allow", "allow", (NOBODYS_PID,)]


def test_it_is_asked_for_once_more_when_a_fork_may_have_been_under_way(made, zygote):
    reactor, snapshots = made
    snapshots.let_go(*snapshots.chain)
    del zygote.told[:]
    reactor.advance(2)
    assert set(zygote.told) == {(NOBODYS_PID,)}


def test_copies_that_never_stand_are_ended_in_time(made, zygote):
    reactor, snapshots = made
    reactor.advance(6)
    assert snapshots.chain == []
    assert zygote.told[-1] == (NOBODYS_PID,)
