"""A zygote that several supervisors share: to whom it speaks, and who goes when."""

import contextlib
import os
import socket

import msgspec
import pytest

from cellblock.host.guests import zygote
from cellblock.host.guests.process import Guest
from cellblock.host.guests.zygote import SharedZygote, ZygoteSource
from cellblock.wire import frames, messages
from support.simulator import Reactor

PREPARE = messages.Prepare(
    rules={}, preload=(), pre_imported=(), policy_name="p", ipython_dir="/x/.ipython",
    scratch="/x", cwd="/x", environment={"HOME": "/x"}, plan=messages.Plan(),
    inputs={"name": '"Ada"'},
)  # fmt: skip


def place(name):
    folder = f"/x/{name}"
    return messages.SessionSetup(
        ipython_dir=folder, scratch=folder, cwd=folder, environment={}, plan=messages.Plan()
    )


class Share:
    """A supervisor's part, which notes what it hears."""

    def __init__(self, reactor, shared, name, left):
        self.share = ZygoteSource(reactor, shared, place(name), lambda: left.append(name))
        self.heard, self.guests = [], []
        self.zygote = self.share.get(PREPARE, self)

    def on_zygote(self, message):
        self.heard.append(message)

    def on_zygote_lost(self, _why):
        self.heard.append("lost")

    def fork(self, reactor):
        guest = Guest(reactor, print, print, print)
        self.guests.append(guest)
        self.share.fork(self.zygote, guest)
        return guest

    def close(self):
        """Close what a supervisor's guests and its zygote have open."""
        for guest in self.guests:
            guest.reaped()
            guest._hang_up()
        self.zygote._release()

    def leave(self):
        return self.share.leave(self.zygote)

    def end(self):
        return self.share.end(self.zygote)


class Zygotes:
    """Zygotes that say what they are told to, and the shared one in front of them."""

    def __init__(self):
        self.reactor, self.theirs, self.left = Reactor(), [], []
        self.shares = []
        self.shared = SharedZygote(self.reactor, self._spawn, PREPARE)

    def _spawn(self):
        ours, theirs = socket.socketpair()
        self.theirs.append(theirs)
        return ours, 2**22 + 7

    def share(self, name):
        self.shares.append(Share(self.reactor, self.shared, name, self.left))
        return self.shares[-1]

    def fork(self, share):
        return share.fork(self.reactor)

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


@pytest.fixture
def zygotes(monkeypatch):
    made = Zygotes()
    monkeypatch.setattr("cellblock.host.guests.zygote.os.kill", lambda *_: None)
    yield made
    made.shared.close()
    for share in made.shares:
        share.close()
    for sock in made.theirs:
        sock.close()


def read(fd):
    """Return the one message that waits on a guest's channel."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        (payload,) = frames.Splitter().feed(sock.recv(1 << 16))
    return msgspec.msgpack.decode(payload, type=messages.ToGuest)


def test_forks_of_all_are_numbered_apart_and_the_zygote_never_has_their_places(
    zygotes, monkeypatch
):
    places = []

    def keep(guest):
        places.append(read(guest.child_fds[0]))
        release(guest)

    release = Guest.close_child_fds
    a, b = zygotes.share("a"), zygotes.share("b")
    with monkeypatch.context() as kept:
        kept.setattr(Guest, "close_child_fds", keep)
        first, second = zygotes.fork(a), zygotes.fork(b)
    prepare, *forks = zygotes.told()
    assert (type(prepare), len(zygotes.theirs)) == (messages.Prepare, 1)
    assert forks == [messages.Fork(id=1), messages.Fork(id=2)]
    assert [one.scratch for one in places] == ["/x/a", "/x/b"]
    assert (first.lineage.number, second.lineage.number) == (1, 2)
    assert places[0].seed != places[1].seed
    assert prepare.inputs == {}


def test_each_has_its_own_forks_and_all_hear_of_every_end(zygotes):
    a, b = zygotes.share("a"), zygotes.share("b")
    first, second = zygotes.fork(a), zygotes.fork(b)
    zygotes.say(messages.Forked(id=2, pid=22), [os.open(os.devnull, os.O_RDONLY)])
    zygotes.say(messages.Reaped(pid=22, status=0))
    assert (first.pid, second.pid, second.lineage.session) == (None, 22, 22)
    assert a.heard == b.heard == [messages.Reaped(pid=22, status=0)]
    second.reaped()


@pytest.mark.parametrize("who", ["guest", "supervisor"])
def test_a_fork_that_comes_when_who_asked_for_it_has_gone_is_ended(zygotes, monkeypatch, who):
    killed = []
    monkeypatch.setattr(zygote, "kill", lambda pid, fd: killed.append(pid) or os.close(fd))
    share = zygotes.share("a")
    guest = zygotes.fork(share)
    if who == "guest":
        guest.close()
    else:
        assert share.end() is False
    zygotes.say(messages.Forked(id=1, pid=22), [os.open(os.devnull, os.O_RDONLY)])
    assert (killed, guest.pid, share.heard) == ([22], None, [])


def test_who_leaves_names_its_forks_and_is_told_when_nothing_is_left(zygotes):
    a, b = zygotes.share("a"), zygotes.share("b")
    for share in (a, b, a):
        zygotes.fork(share)
    zygotes.told()
    assert b.leave()  # has a zygote of its own from now on, and leaves this one to the others
    (leave,) = zygotes.told()
    assert (type(leave), leave.forks) == (messages.EndForks, (2,))
    a.end()
    (leave,) = zygotes.told()
    assert sorted(leave.forks) == [1, 3]
    assert zygotes.left == []
    zygotes.say(messages.ForksEnded(id=leave.id + 1))
    assert zygotes.left == []
    zygotes.say(messages.ForksEnded(id=leave.id))
    assert zygotes.left == ["a"]


def test_locks_for_a_copy_are_made_by_the_zygote_that_is_shared(zygotes):
    share = zygotes.share("a")
    guest = zygotes.fork(share)
    guest.pid, guest.lineage.session = 22, 21
    zygotes.told()
    share.zygote.narrow(guest, messages.Plan(), 9, rulesets=1)
    (confine,) = zygotes.told()
    assert (confine.id, confine.ticket, confine.pid) == (1, 9, 22)
    guest.pid = None


def test_a_lost_zygote_is_told_to_all_and_the_next_is_shared_again(zygotes):
    a, b, leaving = (zygotes.share(name) for name in "abc")
    zygotes.fork(leaving)
    leaving.end()
    zygotes.theirs[0].close()
    zygotes.reactor.turn()
    assert (a.heard, b.heard, leaving.heard) == (["lost"], ["lost"], [])
    assert zygotes.left == ["c"]
    zygotes.share("a")
    zygotes.share("b")
    assert len(zygotes.theirs) == 2


def test_who_leaves_a_zygote_that_has_ended_is_told_later(zygotes):
    share = zygotes.share("a")
    zygotes.theirs[0].close()
    zygotes.reactor.turn()
    share.end()
    assert zygotes.left == []
    zygotes.reactor.advance(0.1)
    assert zygotes.left == ["a"]


def test_a_zygote_that_takes_nothing_up_is_lost_to_all_that_share_it(zygotes):
    one, other = zygotes.share("one"), zygotes.share("other")
    zygotes.say(messages.Obeyed())  # it is prepared
    zygotes.reactor.advance(1_000)
    zygotes.fork(one)
    zygotes.reactor.advance(zygote.LOOK * (zygote.LOOKS - 1))
    assert one.heard == other.heard == []
    zygotes.reactor.advance(zygote.LOOK)
    assert one.heard == other.heard == ["lost"]


def test_each_message_that_is_taken_up_gives_the_next_one_its_time(zygotes):
    one = zygotes.share("one")
    zygotes.say(messages.Obeyed())
    for _ in range(3):
        zygotes.fork(one)
    for _ in range(3):
        zygotes.reactor.advance(zygote.LOOK * (zygote.LOOKS - 1))
        zygotes.say(messages.Obeyed())
    zygotes.reactor.advance(1_000)
    assert one.heard == []


def test_a_zygote_may_take_longer_to_prepare_but_not_for_ever(zygotes):
    one = zygotes.share("one")
    zygotes.reactor.advance(zygote.LOOK * (zygote.LOOKS_AT_START - 1))
    assert one.heard == []
    zygotes.reactor.advance(zygote.LOOK)
    assert one.heard == ["lost"]


def test_a_zygote_that_is_looked_after_is_asked_once_and_lost_if_it_does_not_answer(zygotes):
    one = zygotes.share("one")
    zygotes.say(messages.Obeyed())
    zygotes.told()
    one.zygote.check()
    one.zygote.check()
    assert zygotes.told() == [messages.Ping()]
    zygotes.reactor.advance(zygote.LOOK * zygote.LOOKS)
    assert one.heard == ["lost"]


def test_a_zygote_that_does_not_read_is_hung_up_on(zygotes):
    one = zygotes.share("one")
    one.zygote._sock.settimeout(0.01)
    plan = messages.Plan(read_roots=("/" + "x" * 4_000,) * 1_000)
    guest = zygotes.fork(one)
    one.zygote.narrow(guest, plan, 1, rulesets=1)
    zygotes.reactor.turn()
    assert one.heard == ["lost"]


def test_sandboxes_that_share_a_zygote_have_no_network_in_which_they_would_hear_each_other():
    plan = msgspec.structs.replace(PREPARE.plan, loopback=True, local_sockets=True)
    shared = SharedZygote(Reactor(), None, msgspec.structs.replace(PREPARE, plan=plan))
    told = shared._prepare.plan
    assert (told.loopback, told.local_sockets) == (False, False)


def test_a_sandbox_with_a_list_whose_zygote_only_its_forks_share_keeps_its_network():
    listed = (messages.Neighbour(name="db.example", address="127.80.0.1", port=1),)
    plan = msgspec.structs.replace(PREPARE.plan, loopback=True, neighbours=listed)
    shared = SharedZygote(Reactor(), None, msgspec.structs.replace(PREPARE, plan=plan))
    assert shared._prepare.plan == plan


def test_a_zygote_whose_word_was_read_before_the_loop_came_to_it_is_not_waited_for_nor_lost(
    zygotes,
):
    """A loop calls back for all that was ready at once; a copy's channel has the zygote read."""
    one = zygotes.share("a")
    fd = one.zygote._sock.fileno()
    one.zygote._sock.settimeout(0.01)  # in which it would be lost
    on_ready = zygotes.reactor._fds[fd][0]
    socket.send_fds(zygotes.theirs[-1], [bytes(frames.encode(messages.Obeyed()))], [])
    one.zygote.read_rest()
    on_ready()
    assert one.heard == []
    assert not one.zygote.closed
