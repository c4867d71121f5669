# The interrupt's handler.
import asyncio, functools
loop = asyncio.get_running_loop()
loop.add_signal_handler(2, print)
print("ESCAPED")
