"""The guest's loop: tasks between cells, interrupts of awaiting cells, nested asyncio.run."""

import asyncio
import socket
import threading
import time

import pytest

from cellblock.guest import loop
from cellblock.guest.channel import Channel
from cellblock.wire import frames, messages


@pytest.fixture
def driven():
    ours, theirs = socket.socketpair()
    driver = loop.Driver(channel := Channel(theirs), loop.ChannelReaders(channel))
    yield driver, ours
    driver.loop.close()
    asyncio.set_event_loop(None)
    ours.close()
    theirs.close()


def send(ours, number=1):
    ours.sendall(frames.encode(messages.Inspect(id=number, code="x", cursor=1)))


def test_a_task_goes_on_while_the_guest_waits_for_its_next_request(driven):
    driver, ours = driven
    ticks = []

    async def tick():
        for n in range(3):
            ticks.append(n)
            await asyncio.sleep(0)
        send(ours)

    with driver.entered():
        task = asyncio.create_task(tick())
    assert driver.next_message().id == 1
    assert ticks == [0, 1, 2]
    assert task.done()


def test_without_tasks_waiting_is_one_blocking_read(driven):
    driver, ours = driven
    send(ours, 5)
    assert driver.next_message().id == 5
    assert not driver.loop.used


def test_an_awaiting_cell_is_cancelled_by_an_interrupt_and_one_that_cancels_itself_is_not(driven):
    driver, _ = driven
    threading.Timer(0.05, driver.interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        driver.run(asyncio.sleep(30))

    async def cancel():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        driven[0].run(cancel())


def test_asyncio_run_inside_a_cell_has_a_loop_of_its_own(driven, monkeypatch):
    monkeypatch.setattr(asyncio, "run", asyncio.run)
    monkeypatch.setattr(asyncio.runners, "run", asyncio.runners.run)
    loop.allow_nested_run()

    async def which():
        return asyncio.get_running_loop()

    driver, _ = driven
    with driver.entered():
        inner = asyncio.run(which())
        assert inner is not driver.loop
        assert asyncio.get_running_loop() is driver.loop

    async def nested():
        refused = which()
        try:
            asyncio.run(refused)
        finally:
            refused.close()

    with pytest.raises(RuntimeError):
        driver.run(nested())


def test_entering_is_undone_even_when_the_cell_fails(driven):
    driver, _ = driven
    with pytest.raises(ValueError, match="cell"), driver.entered():
        raise ValueError("cell")
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_flood_of_ready_callbacks_does_not_starve_the_host(driven):
    driver, ours = driven

    async def spin():
        while True:  # noqa: ASYNC110 - the point
            await asyncio.sleep(0)

    with driver.entered():
        task = asyncio.create_task(spin())
    threading.Timer(0.05, send, (ours,)).start()
    began = time.monotonic()
    assert driver.next_message().id == 1
    assert time.monotonic() - began < 2
    task.cancel()
    driver.run(asyncio.sleep(0))


SPOILERS = {
    "ready": lambda loop: vars(loop).update(_ready=None),
    "ready-of-junk": lambda loop: loop._ready.append(1),
    "scheduled": lambda loop: vars(loop).update(_scheduled=None),
    "scheduled-junk": lambda loop: loop._scheduled.append(1),
    "create-task": lambda loop: vars(loop).update(create_task=None),
    "run-once": lambda loop: vars(loop).update(_run_once=lambda: None),
    "run-forever": lambda loop: vars(loop).update(run_forever=lambda: None),
    "call-soon": lambda loop: vars(loop).update(call_soon=lambda *_, **__: None),
    "stop": lambda loop: vars(loop).update(stop=lambda: None),
    "time": lambda loop: vars(loop).update(time=lambda: float("nan")),
    "time-kept": lambda loop: vars(loop).update(_clock_resolution="x"),
    "factory": lambda loop: loop.set_task_factory(lambda *_, **__: None),
    "factory-attribute": lambda loop: vars(loop).update(_task_factory=1),
    "handler": lambda loop: loop.set_exception_handler(lambda *_: 1 / 0),
    "stopping": lambda loop: vars(loop).update(_stopping=True),
    "stopping-odd": lambda loop: vars(loop).update(_stopping="x"),
    "closed": lambda loop: vars(loop).update(_closed=True),
    "closed-really": lambda loop: (asyncio._set_running_loop(None), loop.close()),
    "thread": lambda loop: vars(loop).update(_thread_id=1),
    "gone": lambda loop: vars(loop).pop("_ready"),
    "debug": lambda loop: loop.set_debug(True),
    "slow": lambda loop: vars(loop).update(slow_callback_duration="x", _debug=True),
    "asyncgens": lambda loop: vars(loop).update(_asyncgens=None),
    "unused": lambda loop: vars(loop).update(used=None),
}


@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS)
@pytest.mark.parametrize("used", [True, False])
def test_a_spoilt_loop_costs_its_tasks_and_not_the_next_cells(driven, spoil, used):
    driver, ours = driven
    with driver.entered():
        if used:
            asyncio.create_task(asyncio.sleep(0.01))  # noqa: RUF006 - it may be lost
        spoil(asyncio.get_running_loop())
    for number in (1, 2):
        send(ours, number)
        assert driver.next_message().id == number
        assert driver.run(asyncio.sleep(0.001, number)) == number

        async def gather():
            return await asyncio.gather(asyncio.sleep(0, 1), asyncio.to_thread(int, 2))

        if spoil is not SPOILERS["factory"] and spoil is not SPOILERS["factory-attribute"]:
            assert driver.run(gather()) == [1, 2]


def test_a_loop_that_is_merely_configured_is_kept(driven):
    driver, ours = driven
    kept = driver.loop
    with driver.entered():
        kept.set_debug(1)
        kept.slow_callback_duration = 1
        kept.set_exception_handler(lambda *_: None)
        kept.my_own = 1
        kept.call_later(0.01, print)
    send(ours)
    assert driver.next_message().id == 1
    assert driver.run(asyncio.sleep(0, 5)) == 5
    assert driver.loop is kept


def test_between_cells_no_task_is_there_but_the_cells_own(driven):
    driver, ours = driven
    seen = []

    async def look():
        await asyncio.sleep(0)
        seen.append(asyncio.all_tasks() - {asyncio.current_task()})
        send(ours)

    with driver.entered():
        task = asyncio.create_task(look())
    assert driver.next_message().id == 1
    assert seen == [set()]
    assert task.done()


def test_a_task_that_stops_the_loop_over_and_over_keeps_nobody_waiting(driven):
    driver, ours = driven

    async def stop():
        while True:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)

    with driver.entered():
        task = asyncio.create_task(stop())
    threading.Timer(0.05, send, (ours,)).start()
    assert driver.next_message().id == 1
    task.cancel()
