# The origin of a coroutine names its frames.
import asyncio
loop = asyncio.get_running_loop()
loop.set_debug(True)
async def f(): pass
async def g():
    c = f()
    o = getattr(c, "cr_" + "origin")
    c.close()
    return o
print("ESCAPED", await g())
