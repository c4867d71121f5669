# Classes under the loop's.
import asyncio
loop = asyncio.get_running_loop()
for c in type(loop).__mro__:
    if "subprocess_exec" in c.__dict__:
        c.subprocess_exec = None
        print("ESCAPED")
