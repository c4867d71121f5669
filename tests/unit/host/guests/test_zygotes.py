"""A zygote that several keepers share: to whom it speaks, and who goes when."""

import contextlib
import os
import socket

import msgspec
import pytest

from cellblock.host.guests import zygote
from cellblock.host.guests.process import Guest
from cellblock.host.guests.zygotes import Seat, Shared
from cellblock.wire import frames, messages
from support.simulator import Reactor

PREPARE = messages.Prepare(
    rules={}, preload=(), pre_imported=(), policy_name="p", ipython_dir="/x/.ipython",
    scratch="/x", cwd="/x", environment={"HOME": "/x"}, plan=messages.Plan(),
    inputs={"name": '"Ada"'},
)  # fmt: skip


def place(name):
    folder = f"/x/{name}"
    return messages.Place(
        ipython_dir=folder, scratch=folder, cwd=folder, environment={}, plan=messages.Plan()
    )


class Zygotes:
    """Zygotes that say what they are told to, and the shared one in front of them."""

    def __init__(self):
        self.reactor, self.theirs = Reactor(), []
        self.shared = Shared(self.reactor, self._spawn, PREPARE)
        self.heard, self.left = {}, []

    def _spawn(self):
        ours, theirs = socket.socketpair()
        self.theirs.append(theirs)
        return ours, 2**22 + 7

    def seat(self, name):
        seat = Seat(self.shared, place(name), lambda: self.left.append(name))
        heard = self.heard.setdefault(name, [])
        seat.one(PREPARE, lambda m, fd: heard.append(m) or close(fd), lambda: heard.append("lost"))
        return seat

    def fork(self, seat):
        guest = Guest(self.reactor, print, print, print)
        seat.fork(guest)
        return guest

    def told(self):
        sock, data = self.theirs[-1], b""
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while part := socket.recv_fds(sock, 1 << 20, 30):  # up to the next descriptors
                data += part[0]
                for fd in part[1]:
                    os.close(fd)
        sock.setblocking(True)
        payloads = frames.Splitter().feed(data)
        return [msgspec.msgpack.decode(one, type=messages.ToZygote) for one in payloads]

    def say(self, message, fds=()):
        socket.send_fds(self.theirs[-1], [bytes(frames.encode(message))], list(fds))
        self.reactor.turn()


def close(fd):
    if fd is not None:
        os.close(fd)


@pytest.fixture
def zygotes(monkeypatch):
    made = Zygotes()
    monkeypatch.setattr("cellblock.host.guests.zygote.os.kill", lambda *_: None)
    yield made
    made.shared.close()
    for sock in made.theirs:
        sock.close()


def read(fd):
    """Return the one message that waits on a guest's channel."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        (payload,) = frames.Splitter().feed(sock.recv(1 << 16))
    return msgspec.msgpack.decode(payload, type=messages.ToGuest)


def test_forks_of_all_seats_are_numbered_apart_and_the_zygote_never_has_their_places(
    zygotes, monkeypatch
):
    places = []

    def keep(guest):
        places.append(read(guest.theirs[0]))
        release(guest)

    release = Guest.release_theirs
    monkeypatch.setattr(Guest, "release_theirs", keep)
    a, b = zygotes.seat("a"), zygotes.seat("b")
    first, second = zygotes.fork(a), zygotes.fork(b)
    prepare, *forks = zygotes.told()
    assert (type(prepare), len(zygotes.theirs)) == (messages.Prepare, 1)
    assert forks == [messages.Fork(id=1), messages.Fork(id=2)]
    assert [one.scratch for one in places] == ["/x/a", "/x/b"]
    assert (first.number, first.lineage.number, second.number) == (1, 1, 2)
    assert places[0].seed != places[1].seed
    assert prepare.inputs == {}


def test_each_hears_of_its_own_forks_and_of_every_end(zygotes):
    a, b = zygotes.seat("a"), zygotes.seat("b")
    zygotes.fork(a)
    zygotes.fork(b)
    zygotes.say(messages.Forked(id=2, pid=22), [os.open(os.devnull, os.O_RDONLY)])
    zygotes.say(messages.Reaped(pid=22, status=0))
    assert [type(m) for m in zygotes.heard["a"]] == [messages.Reaped]
    assert [type(m) for m in zygotes.heard["b"]] == [messages.Forked, messages.Reaped]


def test_a_fork_that_comes_when_its_keeper_has_gone_is_ended(zygotes, monkeypatch):
    killed = []
    monkeypatch.setattr(zygote, "kill", lambda pid, fd: killed.append(pid) or close(fd))
    seat = zygotes.seat("a")
    zygotes.fork(seat)
    assert seat.end() is False
    zygotes.say(messages.Forked(id=1, pid=22), [os.open(os.devnull, os.O_RDONLY)])
    assert (killed, zygotes.heard["a"]) == ([22], [])


def test_who_leaves_names_its_forks_and_is_told_when_nothing_is_left(zygotes):
    a, b = zygotes.seat("a"), zygotes.seat("b")
    for seat in (a, b, a):
        zygotes.fork(seat)
    zygotes.told()
    assert b.quit()  # has a zygote of its own from now on, and leaves this one to the others
    (leave,) = zygotes.told()
    assert (type(leave), leave.forks) == (messages.Leave, (2,))
    a.end()
    (leave,) = zygotes.told()
    assert sorted(leave.forks) == [1, 3]
    assert zygotes.left == []
    zygotes.say(messages.Left(id=leave.id + 1))
    assert zygotes.left == []
    zygotes.say(messages.Left(id=leave.id))
    assert zygotes.left == ["a"]


def test_locks_for_a_copy_are_made_by_the_zygote_that_is_shared(zygotes):
    seat = zygotes.seat("a")
    guest = zygotes.fork(seat)
    guest.pid, guest.lineage.session = 22, 21
    zygotes.told()
    seat.confine(guest, messages.Plan(), 9)
    (confine,) = zygotes.told()
    assert (confine.id, confine.ticket, confine.session, confine.pid) == (1, 9, 21, 22)
    guest.pid = None


def test_a_lost_zygote_is_told_to_all_and_the_next_is_shared_again(zygotes):
    zygotes.seat("a")
    zygotes.seat("b")
    leaving = zygotes.seat("c")
    zygotes.fork(leaving)
    leaving.end()
    zygotes.theirs[0].close()
    zygotes.reactor.turn()
    assert (zygotes.heard["a"], zygotes.heard["b"], zygotes.heard["c"]) == (["lost"], ["lost"], [])
    assert zygotes.left == ["c"]
    zygotes.seat("a")
    zygotes.seat("b")
    assert len(zygotes.theirs) == 2


def test_who_leaves_without_a_zygote_is_told_later(zygotes):
    Seat(zygotes.shared, None, lambda: zygotes.left.append("a")).end()
    assert zygotes.left == []
    zygotes.reactor.advance(0.1)
    assert zygotes.left == ["a"]
