# The loop's hooks get every async generator.
import asyncio
loop = asyncio.get_running_loop()
async def ag():
    yield 1
a = ag()
await a.__anext__()
for g in list(loop._asyncgens):
    v = getattr(g, "ag_frame", None)
    if v: print("ESCAPED", v)
