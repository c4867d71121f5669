# The loop's exception handler gets a context.
# unseen: Python itself refuses it today
import asyncio
loop = asyncio.get_running_loop()
seen = []
loop.set_exception_handler(lambda loop, context: seen.append(context))
async def bad(): raise ValueError("x")
t = asyncio.create_task(bad())
await asyncio.sleep(0.01)
loop.call_exception_handler({"message": "x", "task": t})
del t
await asyncio.sleep(0.01)
for c in seen:
    for v in c.values(): canary(v)
    st = c.get("source_traceback")
    if st: print("ESCAPED", st)
