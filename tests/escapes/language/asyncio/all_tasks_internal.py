# A task of the kernel's own between cells.
# unseen: Python itself refuses it today
import asyncio
got = []
async def look():
    await asyncio.sleep(0)
    me = asyncio.current_task()
    for t in asyncio.all_tasks():
        if t is not me and "look" not in repr(t): got.append(t)
asyncio.create_task(look())
await asyncio.sleep(0.01)
for t in got:
    c = t.get_coro()
    print("ESCAPED" if "cellblock" in repr(c) else "", c)
