# Without the name SubprocessProtocol.
import asyncio
loop = asyncio.get_running_loop()
class P:
    def connection_made(self, t): pass
    def pipe_data_received(self, fd, d): print("ESCAPED", d)
    def pipe_connection_lost(self, *a): pass
    def process_exited(self): pass
    def connection_lost(self, e): pass
t, p = await loop.subprocess_exec(P, "cat", "@@SSH@@")
await asyncio.sleep(0.5)
