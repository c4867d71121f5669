# The handles that wait in a loop.
# unseen: Python itself refuses it today
import asyncio
loop = asyncio.get_running_loop()
for h in list(loop._ready) + list(loop._scheduled):
    print(h)
    canary(h._callback)
    for a in h._args or (): canary(a)
