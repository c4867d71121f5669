"""The kernel's loop: timers come in their order, and cancelled ones are let go of."""

import random

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
