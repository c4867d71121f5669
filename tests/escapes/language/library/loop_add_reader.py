# Readiness of any descriptor.
import asyncio
loop = asyncio.get_running_loop()
loop.add_reader(1, print)
print("ESCAPED")
