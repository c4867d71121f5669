# The loop connects.
# unseen: nothing listens, and what is started prints elsewhere
import asyncio
loop = asyncio.get_running_loop()
await loop.create_connection(lambda: None, "127.0.0.1", 9)
print("ESCAPED")
