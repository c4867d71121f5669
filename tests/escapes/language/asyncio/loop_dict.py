# Everything a loop holds.
import asyncio
loop = asyncio.get_running_loop()
for k, v in loop.__dict__.items():
    canary(v)
    if "sock" in repr(type(v)).lower() or "selector" in repr(type(v)).lower(): print("ESCAPED", k, v)
