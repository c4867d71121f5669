# The loop's own sockets.
import asyncio
loop = asyncio.get_running_loop()
S = type(loop._ssock)
print("ESCAPED", S)
