# A descriptor read as a pipe.
import asyncio
loop = asyncio.get_running_loop()
class F:
    def fileno(self): return 0
    def close(self): pass
class P:
    def connection_made(self, t): print("ESCAPED")
    def data_received(self, d): pass
    def connection_lost(self, e): pass
await loop.connect_read_pipe(P, F())
