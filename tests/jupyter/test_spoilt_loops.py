"""A cell that spoils the event loop costs itself and its tasks; the cells after it run."""

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


def test_the_next_cells_run(start):
    """Each spoils a loop that is as new: %undo goes back to the guest before it."""
    kernel = start("safe")
    kernel.run("kept = 1")
    for spoiler in SPOILERS:
        kernel.run(CELL + spoiler)
        code = "import asyncio\nprint(await asyncio.sleep(0.01, 'a' + 'b'))"
        _, published = kernel.run(code, store_history=False)
        assert "ab" in reading.stream(published, "stdout"), spoiler
        _, published = kernel.run("print('c' + 'd')", store_history=False)
        assert "cd" in reading.stream(published, "stdout"), spoiler
        assert kernel.run("%undo")[0]["status"] == "ok", spoiler
        assert kernel.run("loop", store_history=False)[0]["ename"] == "NameError", spoiler
