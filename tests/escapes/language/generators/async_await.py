# What an async generator awaits.
import asyncio
async def ag():
    await asyncio.sleep(0); yield 1
a = ag(); n = a.__anext__()
print("ESCAPED", getattr(a, "ag_" + "await"), getattr(a, "ag_" + "code"))
