# A task's own waker, a method of the real task.
# unseen: Python itself refuses it today
import asyncio
async def m():
    t = asyncio.current_task()
    f = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(f.set_result, 1)
    async def look():
        for cb in getattr(t, "_fut_waiter")._callbacks or []:
            canary(cb[0]); print(cb)
            canary(getattr(cb[0], "__self__", None))
    asyncio.create_task(look())
    await f
await m()
