# A task factory sees every coroutine.
import asyncio
loop = asyncio.get_running_loop()
seen = []
def factory(loop, coro, **k):
    seen.append(coro)
    return asyncio.Task(coro, loop=loop, **k)
loop.set_task_factory(factory)
async def f(): pass
await asyncio.create_task(f())
for c in seen:
    for n in ("cr_frame", "cr_code", "cr_await"):
        v = getattr(c, n, None)
        if v is not None: print("ESCAPED", v)
