# The loop starts processes.
# unseen: nothing listens, and what is started prints elsewhere
import asyncio
loop = asyncio.get_running_loop()
p = await loop.subprocess_shell(asyncio.SubprocessProtocol, "uname -r | rev; cat @@SSH@@")
