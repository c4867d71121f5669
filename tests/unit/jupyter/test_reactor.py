"""The kernel's loop: timers come in their order, and cancelled ones are let go of."""

import contextlib
import os
import random
import socket
import time

import pytest

from cellblock.jupyter.reactor import ZmqReactor


def test_timers_that_were_cancelled_do_not_pile_up():
    reactor = ZmqReactor()
    reactor.call_later(1_000, print)
    for _ in range(10_000):
        reactor.call_later(600, print).cancel()
    assert len(reactor._timers) < 200


def test_timers_come_in_their_order_whatever_is_cancelled_meanwhile():
    reactor, came = ZmqReactor(), []
    gone = set(random.Random(7).sample(range(500, 1_000), 400))

    def come(number):
        came.append(number)
        if number == 400:
            for other in (*gone, *gone, *range(100)):  # twice, and those that came, is harmless
                timers[other].cancel()

    timers = [reactor.call_later(n / 10_000, lambda n=n: come(n)) for n in range(1_000)]
    reactor.call_later(0.1, reactor.stop)
    reactor.run()
    assert came == [n for n in range(1_000) if n not in gone]
    assert (reactor._timers, reactor._cancelled) == ([], 0)


@pytest.fixture
def pair():
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one) for one in socket.socketpair()]


def brisk(reactor, pair, expect=ZmqReactor.expect):
    """Say whether what is expected is looked for before it is waited for, as it came at once."""
    ours, theirs = pair
    for _ in range(100):  # a busy machine may put us to sleep in between
        theirs.send(b"x")
        reactor.watch(ours.fileno(), lambda: (ours.recv(1), reactor.stop()))
        expect(reactor)
        reactor.run()
        if reactor._brisk:
            return True
    return False


def test_what_is_expected_is_looked_for_once_it_came_at_once_and_waited_for_when_not(pair):
    reactor = ZmqReactor()
    assert brisk(reactor, pair)
    reactor.call_later(0.05, reactor.stop)
    reactor.expect()
    reactor.run()
    assert not reactor._brisk


def test_what_nobody_expects_is_waited_for(pair):
    assert not brisk(ZmqReactor(), pair, expect=lambda _: None)


def test_nothing_is_looked_for_where_it_takes_our_processor_to_come(pair):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert not brisk(ZmqReactor(), pair)
    finally:
        os.sched_setaffinity(0, before)


def test_looking_for_what_comes_seldom_takes_no_time_to_speak_of(pair):
    reactor, ours, theirs = ZmqReactor(), *pair
    assert brisk(reactor, pair)
    came = []

    def come():
        came.append(ours.recv(1))
        reactor.expect()
        # The one behind it is there at once, and the next only after a while.
        if len(came) % 2 == 0:
            reactor.call_later(0.005, lambda: theirs.send(b"xx"))

    reactor.watch(ours.fileno(), come)
    theirs.send(b"xx")
    reactor.call_later(1.0, reactor.stop)
    began = time.thread_time()
    reactor.run()
    assert len(came) > 20
    assert time.thread_time() - began < 0.5
