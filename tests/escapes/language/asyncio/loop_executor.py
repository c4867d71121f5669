# The loop's default executor and its initialiser.
# unseen: Python itself refuses it today
import asyncio
loop = asyncio.get_running_loop()
await loop.run_in_executor(None, int)
ex = loop._default_executor
for t in list(ex._threads):
    for k, v in t.__dict__.items(): canary(v)
for k, v in ex.__dict__.items(): canary(v)
canary(ex._work_queue)
