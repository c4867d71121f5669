"""A cell that spoils the event loop costs itself and its tasks; the cells after it run."""

import pytest

from support import reading

SPOILERS = [
    "loop._ready = None",
    "loop._scheduled.append(1)",
    "loop.create_task = None",
    "loop._run_once = lambda: None",
    "loop.run_forever = lambda: None",
    "loop.call_soon = loop.call_soon_threadsafe = None",
    "loop.set_task_factory(lambda *a, **k: None)",
    "loop.set_debug(True); loop.slow_callback_duration = 'x'",
    "type(loop).__mro__[1].close(loop)",
    "loop._thread_id = 1",
    "[t.get_coro().close() for t in asyncio.all_tasks()]",
    "asyncio.create_task(spoil())",
]
CELL = """
import asyncio
loop = asyncio.get_running_loop()
asyncio.create_task(asyncio.sleep(0.01))
async def spoil():
    for t in asyncio.all_tasks():
        if t is not asyncio.current_task():
            t.get_coro().close()
            t.cancel()
    loop._ready = None
"""


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_the_next_cells_run(start, spoiler):
    kernel = start("safe")
    kernel.run(CELL + spoiler)
    _, messages = kernel.run("import asyncio\nprint(await asyncio.sleep(0.01, 'a' + 'b'))")
    assert "ab" in reading.stream(messages, "stdout")
    _, messages = kernel.run("print('c' + 'd')")
    assert "cd" in reading.stream(messages, "stdout")
