# A loop's method made a transport that writes to any descriptor, for any object in the loop's place.
# unseen: bytes on a descriptor are no loot of this harness
import asyncio
L = type(asyncio.get_running_loop())
class Fake:
    def __getattr__(s, n): return lambda *a, **k: None
    def get_debug(s): return False
class P:
    def fileno(s): return 1
    def close(s): pass
class Proto:
    def __getattr__(s, n): return lambda *a: None
t = L._make_write_pipe_transport(Fake(), P(), Proto())
t.write(b"raw")
print("ESCAPED")
