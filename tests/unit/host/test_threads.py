"""Work in folders that cells can lock: others go on meanwhile, and hear of it once."""

import asyncio
import threading

import pytest

from cellblock.host import threads
from cellblock.host.threads import in_thread
from support.simulator import Reactor


def test_many_that_wait_for_a_locked_folder_keep_nobody_from_theirs(monkeypatch):
    """As many as there are processors, and four, kept all others' files from being read."""
    monkeypatch.undo()  # threads are threads here
    gate = threading.Event()

    async def both():
        waiting = [asyncio.ensure_future(in_thread(gate.wait)) for _ in range(64)]
        assert await in_thread(sum, [1, 2], start=3) == 6
        assert not any(one.done() for one in waiting)
        waiting[0].cancel()
        gate.set()
        assert await asyncio.gather(*waiting[1:]) == [True] * 63

    asyncio.run(both())


def test_where_there_can_be_no_more_threads_the_outcome_says_so(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_start", start)
    reactor, found = Reactor(), []
    threads.begin(reactor, list, found.append)
    reactor.turn()
    assert isinstance(found[0].exception(), BlockingIOError)


def test_what_it_raises_is_raised():
    async def fails():
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 / 0)

    asyncio.run(fails())
