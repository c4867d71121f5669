# The selector's registered files.
import asyncio
loop = asyncio.get_running_loop()
print("ESCAPED", loop.__dict__["_selector"].get_map())
